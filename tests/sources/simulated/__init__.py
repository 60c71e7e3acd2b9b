"""The simulated node: its scenarios, its physics, its witnesses."""
