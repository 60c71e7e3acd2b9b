"""What goes wrong on the node, and when; each fault of a scenario once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuledger.sources.simulated.schema import Fault

LOST = "GPU_IS_LOST"
RELOADING = "DRIVER_NOT_LOADED"
RESTART = 2.0  # seconds from a driver's return to that of its processes
TIMEOUT = "TIMEOUT"
UNSUPPORTED = "NOT_SUPPORTED"


class Faults:
    """The scenario's faults, asked by moment."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = faults

    def silent(self, gpu: int, at: float) -> str | None:
        """Give the error with which the whole device answers, if it does."""
        for fault in self._now(at):
            if fault.gpu not in {None, gpu}:
                continue
            if fault.what == "driver_reload":
                return RELOADING
            if fault.what == "lost":
                return LOST
            if fault.error is not None and fault.call is None:
                return fault.error
            if fault.hang is not None:
                return TIMEOUT
        return None

    def failing(self, gpu: int, at: float) -> dict[str, str]:
        """Give the calls of a device that fail, each with its error."""
        failing: dict[str, str] = {}
        for fault in self._now(at):
            if fault.gpu not in {None, gpu}:
                continue
            if fault.unsupported is not None:
                failing[fault.unsupported] = UNSUPPORTED
            elif fault.error is not None and fault.call is not None:
                failing[fault.call] = fault.error
        return failing

    def down(self, what: str, at: float) -> bool:
        return any(fault.what == what for fault in self._now(at))

    def missed_until(self, at: float) -> float:
        """Give the moment from which somebody reads."""
        return max((_end(f) for f in self._now(at) if f.what == "missed_polls"), default=at)

    def clock_step(self, at: float) -> float:
        """Give how far the wall clock is off."""
        return sum(fault.clock_step or 0.0 for fault in self._now(at))

    def reloads(self) -> list[tuple[float, float]]:
        """Give when the driver goes and when it is back."""
        return sorted((f.at, _end(f)) for f in self._faults if f.what == "driver_reload")

    def lives(self, start: float, stop: float) -> Iterator[tuple[float, float]]:
        """Cut a life at the driver's reloads: it ends there, and another begins after."""
        for gone, back in self.reloads():
            if start < gone < stop:
                yield start, gone
            if start < back + RESTART and gone < stop:
                start = back + RESTART
        if start < stop:
            yield start, stop

    def resets(self, gpu: int) -> list[float]:
        """Give when the energy counter of a device begins again."""
        of_counter = [
            fault.at
            for fault in self._faults
            if fault.what == "counter_reset" and fault.gpu in {None, gpu}
        ]
        return sorted([*of_counter, *(back for _, back in self.reloads())])

    def moments(self) -> list[float]:
        """Give all moments at which something begins or ends."""
        return [moment for fault in self._faults for moment in (fault.at, _end(fault))]

    def _now(self, at: float) -> Iterator[Fault]:
        for fault in self._faults:
            if fault.at <= at < _end(fault):
                yield fault


def _end(fault: Fault) -> float:
    if fault.what == "counter_reset":
        return fault.at
    return math.inf if fault.lasts is None else fault.at + fault.lasts
