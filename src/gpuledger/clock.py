"""The two clocks of a reading, as one thing that tests can put another in the place of."""

from __future__ import annotations

import time


class Clock:
    """The machine's own clocks; the one that is charged does not step, and runs on in suspend."""

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
