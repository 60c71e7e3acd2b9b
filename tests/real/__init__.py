"""Against the real components that a user has."""
