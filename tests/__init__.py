"""What gpuledger promises, shown."""
