"""What the agent's own process uses, as the operating system counts it."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING

from gpuledger.health import Usage

if TYPE_CHECKING:
    from gpuledger.clock import Clock

PAGE = os.sysconf("SC_PAGE_SIZE")
FILES = "/proc/self/fd"
TICKS = os.sysconf("SC_CLK_TCK")


def own_usage(clock: Clock) -> Usage:
    """Look at /proc/self; what cannot be read there is None."""
    usage = Usage(
        cpu_seconds=sum(os.times()[:2]),
        most_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )
    try:
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123  asked at every poll
            # The name, in brackets, may hold anything: count from behind it.
            fields = file.read().rpartition(b")")[2].split()
        # The folder's size is their number, from Linux 6.2 on; before, it is 0.
        open_files = os.stat(FILES).st_size or len(os.listdir(FILES)) - 1  # noqa: PTH116, PTH208
    except OSError:
        return usage
    born = int(fields[19]) / TICKS + clock.wall() - clock.monotonic()
    return usage._replace(
        virtual_bytes=int(fields[20]),
        resident_bytes=int(fields[21]) * PAGE,
        start_seconds=born,
        open_files=open_files,
    )
