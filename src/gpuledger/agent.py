"""The loop: a reading at every tick, and all that follows from it."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpuledger.clock import Clock
from gpuledger.health import Health
from gpuledger.ledger.idle import Idleness
from gpuledger.sources import SourceEnded
from gpuledger.usage import own_usage
from gpuledger.views import Node

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuledger.readings import Reading
    from gpuledger.sources import Source
    from gpuledger.witnesses.proc import ProcWitness

STALE_AFTER = 3  # polls

logger = logging.getLogger("gpuledger.agent")


class Ticks:
    """Moments at a steady distance: none drifts, and those that were slept through are skipped."""

    def __init__(self, start: float, interval: float) -> None:
        self._start = start
        self._interval = interval
        self._last = 0

    def next(self, now: float) -> tuple[float, int]:
        """Give the next moment after the one before, and how many were missed in between."""
        passed = math.floor((now - self._start) / self._interval)
        following = max(passed, self._last) + 1
        missed = following - self._last - 1
        self._last = following
        return self._start + following * self._interval, missed


class Agent:
    """Walks the way of the data once every poll interval."""

    def __init__(
        self,
        source: Source,
        interval: float,
        *,
        idle_polls: int = 2,
        processes: ProcWitness | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.health = Health(source.name)
        self._source = source
        self._interval = interval
        self._processes = processes
        self._idleness = Idleness(idle_polls)
        self._clock = clock or Clock()
        self._reading: Reading | None = None
        self._read_at = self._clock.monotonic()
        self._ended: str | None = None
        self._born: float | None = None

    async def run(self, show: Callable[[Node], None]) -> None:
        """Poll until the source ends, beginning now, and show the node after each poll."""
        ticks = Ticks(self._clock.monotonic(), self._interval)
        show(await self.poll())
        while self._ended is None:
            due, missed = ticks.next(self._clock.monotonic())
            if missed:
                self.health.missed += missed
                logger.debug("missed %d polls", missed)
            await self._wait(due)
            show(await self.poll())

    async def _wait(self, due: float) -> None:
        """Sleep until a moment; a source that would forget is looked at in between."""
        while (left := due - self._clock.monotonic()) > 0:
            naps = math.ceil(left / (self._source.remembers or left))
            await asyncio.sleep(left / naps)
            if naps > 1:
                await self._source.glance()

    async def poll(self) -> Node:
        """Take one reading, and all that follows from it."""
        begin = self._clock.monotonic()
        try:
            self._take(self._attested(await self._source.read()), begin)
        except SourceEnded as end:
            self._ended = str(end)
            self.health.up = False
            logger.warning("%s; its last reading is shown from now on", end)
        except Exception as error:  # a fault of ours must not end the reading of a node for good
            logger.exception("a poll failed")
            self._reading = None
            self.health.failed(type(error).__name__)
        self._look_at_ourselves()
        return Node(self._reading, self.health, self._idleness)

    def _take(self, reading: Reading, begin: float) -> None:
        self._reading = reading
        self._read_at = self._clock.monotonic()
        self.health.poll_seconds.observe(self._read_at - begin)
        self.health.saw(reading)
        self._idleness.step(reading)

    def alive(self) -> bool:
        """Whether polls go on, whatever they find; an ended source asks for no more."""
        age = self._clock.monotonic() - self._read_at
        return self._ended is not None or age <= STALE_AFTER * self._interval

    def why_not_ready(self) -> str | None:
        """Give the reason why the figures are not fresh, or None where they are."""
        if self._ended is not None:
            return self._ended
        if self._reading is None or not self.alive():
            age = self._clock.monotonic() - self._read_at
            return f"the last reading is {age:.1f} s old, at a poll interval of {self._interval} s"
        if self._reading.failures:
            call, error = next(iter(self._reading.failures.items()))
            return f"the source does not answer: {call}: {error}"
        return None

    def _attested(self, reading: Reading) -> Reading:
        """Put in what the witnesses know; a trace has it already."""
        if self._processes is None:
            return reading
        pids = (process.pid for gpu in reading.gpus for process in gpu.processes or ())
        return replace(reading, processes=self._processes.look(pids))

    def _look_at_ourselves(self) -> None:
        usage = own_usage(self._clock)
        if self._born is None:
            self._born = usage.start_seconds  # once: a step of the wall clock does not move it
        self.health.usage = usage._replace(start_seconds=self._born)
