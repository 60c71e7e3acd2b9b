"""Who may ask, and what they are told."""
