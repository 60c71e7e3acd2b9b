"""Who may ask, and what they are told: the exposition, the pages and the connections."""
