"""What reads GPUs: the one seam where the world is swapped."""
