"""What the agent knows of its own work, for the view `self`: a plain record that the loop fills."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from gpuledger.readings import UNSUPPORTED

if TYPE_CHECKING:
    from gpuledger.readings import Reading

POLL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    """Counts of observations up to each bound, as Prometheus wants them."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Usage(NamedTuple):
    """What the agent's own process uses; None where the operating system does not say."""

    cpu_seconds: float | None = None
    resident_bytes: int | None = None
    virtual_bytes: int | None = None
    start_seconds: float | None = None
    open_files: int | None = None
    most_files: int | None = None


class Health:
    """Counters of the agent's life, told by readings alone where they can be."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.up = False
        self.errors: dict[tuple[str, str], int] = {}
        self.answered_at: dict[str, float] = {}
        self.poll_seconds = Histogram(POLL_BUCKETS)
        self.missed = 0
        self.usage = Usage()
        self._unsupported: set[tuple[str, str]] = set()

    def saw(self, reading: Reading) -> None:
        """Count what failed; a call that a device does not support fails once, not every poll."""
        self.up = not reading.failures
        self._count(reading.failures, "")
        for gpu in reading.gpus:
            self._count(gpu.failures, gpu.uuid)
            if gpu.answered:
                self.answered_at[gpu.uuid] = reading.at

    def failed(self, error: str) -> None:
        """Count a poll that gave no reading."""
        self.up = False
        self._count({"poll": error}, "")

    def _count(self, failures: dict[str, str], device: str) -> None:
        for call, error in failures.items():
            if error in UNSUPPORTED:
                if (device, call) in self._unsupported:
                    continue
                self._unsupported.add((device, call))
            self.errors[call, error] = self.errors.get((call, error), 0) + 1
