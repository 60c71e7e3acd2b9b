"""The list of every promise that the five seeds make, and the tests that keep it complete."""
