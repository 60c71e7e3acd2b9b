"""Stand-ins for what gpuledger talks to, each with the interface of the real thing."""
