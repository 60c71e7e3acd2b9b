"""The witnesses, each against what it looks at."""
