"""A trace as a source: a node that was, seen again at its own pace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuledger.sources import SourceEnded
from gpuledger.traces import TraceError, TraceReader, interval_of

if TYPE_CHECKING:
    from pathlib import Path

    from gpuledger.readings import Reading


class RecordedSource:
    """Gives the readings of a trace one after another, times and all as they were."""

    name = "recorded"
    remembers: float | None = None

    def __init__(self, path: str | Path) -> None:
        self.interval: float | None = interval_of(path)
        self._trace = TraceReader(path)
        self._readings = iter(self._trace)
        self._given = 0

    async def read(self) -> Reading:
        try:
            reading = next(self._readings)
        except StopIteration:
            raise SourceEnded(
                f"{self._trace.path} has ended after {self._given} readings"
            ) from None
        except TraceError as error:
            raise SourceEnded(str(error)) from error
        self._given += 1
        return reading

    async def glance(self) -> None:
        """Forget nothing: the trace has it all."""

    async def close(self) -> None:
        self._trace.close()
