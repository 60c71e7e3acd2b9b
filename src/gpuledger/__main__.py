"""`python -m gpuledger` is the command `gpuledger`."""

from gpuledger.commands import main

main()
