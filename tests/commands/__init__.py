"""The command line, run as a user would."""
