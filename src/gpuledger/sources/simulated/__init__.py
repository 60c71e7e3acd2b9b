"""A node that is none: a scenario and a physics, as a source of readings."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from gpuledger.clock import Clock
from gpuledger.sources.simulated.node import Node
from gpuledger.sources.simulated.scenario import load, locate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpuledger.readings import Header, Reading
    from gpuledger.sources.simulated.schema import Scenario

EPOCH = 1_767_225_600.0  # wall clock at the begin of a scenario in virtual time: 2026
LONGEST_GAP = 60.0  # seconds without a poll that are gone through; of more, most is left out
MISSED_STEP = 5.0  # seconds: nobody reads, and the scenario goes on
TOLERANCE = 0.1  # of an interval that a poll may be late and still be the tick's


class SimulatedSource:
    """Gives a scenario's readings in real time, for ever: what stops within it starts once more."""

    name = "simulated"
    remembers: float | None = None

    def __init__(
        self,
        scenario: str | Path | None = None,
        poll_interval: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Begin a scenario: a file, the name of one that ships with us, or the demo."""
        loaded = load(locate(scenario))
        self._clock = clock or Clock()
        self._interval = poll_interval or loaded.poll_interval
        self.interval: float | None = self._interval
        self._begin = self._clock.monotonic()
        self._node = Node(loaded, self._interval, self._clock.wall(), truth=False)
        self._last = -1.0

    async def read(self) -> Reading:
        """Read; after a long sleep of the machine the scenario goes on from where it was.

        The time that nobody polled did not exist for it, and did for the clocks of the readings.
        """
        self._leave_out_a_sleep()
        at = self._now()
        while (missed := self._missed(at)) > 0:
            await asyncio.sleep(min(missed, MISSED_STEP))
            self._leave_out_a_sleep()
            at = self._now()
            if self._missed(at) > 0:
                self._last = at
                self._node.advance(at)
        self._last = at
        return self._node.read(at)

    async def glance(self) -> None:
        """Forget nothing: a reading's samples cover whatever its interval was."""

    async def close(self) -> None:
        """There is nothing to let go of."""

    def _missed(self, at: float) -> float:
        """Give for how long nobody reads."""
        return self._node.faults.missed_until(at) - at

    def _leave_out_a_sleep(self) -> None:
        gap = self._clock.monotonic() - self._begin - max(self._last, 0.0)
        if gap > max(LONGEST_GAP, 2 * self._interval):
            slept = (gap // self._interval - 1) * self._interval
            self._begin += slept
            self._node.sleep(slept)

    def _now(self) -> float:
        """Give the scenario's time: that of the tick, for a poll that comes with one."""
        elapsed = self._clock.monotonic() - self._begin
        tick = round(elapsed / self._interval) * self._interval
        near = abs(elapsed - tick) <= TOLERANCE * self._interval
        at = tick if near and tick > self._last else elapsed
        return max(at, self._last + 0.001)


class Run:
    """A scenario in virtual time, as fast as it can be computed, with the truth of it."""

    def __init__(
        self,
        scenario: Scenario,
        poll_interval: float | None = None,
        duration: float | None = None,
    ) -> None:
        self._interval = poll_interval or scenario.poll_interval
        self._duration = duration or scenario.duration
        self._node = Node(scenario, self._interval, EPOCH, truth=True, ends=self._duration)

    @property
    def header(self) -> Header:
        return self._node.header

    def __iter__(self) -> Iterator[Reading]:
        """Give the readings from first to last, once."""
        for tick in range(int(self._duration / self._interval + 1e-9) + 1):
            at = tick * self._interval
            if self._node.faults.missed_until(at) <= at:
                yield self._node.read(at)

    def truth(self) -> dict[str, Any]:
        """Give what really happened between the first reading and the newest, as books."""
        return self._node.truth()
