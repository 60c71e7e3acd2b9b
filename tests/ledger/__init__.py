"""The ledger: pure, so every rule is shown on readings alone."""
