"""What the agent costs: ratios against others in one run, for an absolute time means nothing."""
