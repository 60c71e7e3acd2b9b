"""What gathers evidence of who is who."""
