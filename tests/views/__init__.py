"""The views: what is shown of a node."""
