"""The sources, each against what it reads."""
