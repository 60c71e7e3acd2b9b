"""When a process wants the GPU: endless lists of segments, and their mean over a span."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from gpuledger.sources.simulated.schema import Busy

Segments: TypeAlias = "Iterator[tuple[float, float]]"  # seconds, level

# What each pattern takes, and what it is where a scenario does not say.
LEVELS: dict[str, dict[str, float]] = {
    "steady": {"level": 1.0},
    "training": {"level": 0.95, "period": 20.0, "dip": 0.1},
    "serving": {"level": 0.8, "period": 4.0, "dip": 0.6},
    "notebook": {"level": 0.7, "period": 600.0, "dip": 0.95},
    "parked": {},
    "trace": {},
}
HEAVY = 1.5  # tail of a notebook's pauses: their mean is three times the shortest


class Demand:
    """The part of the time that a process wants the GPU, told span by span, forward only."""

    def __init__(self, busy: Busy, start: float, begin: float, chance: Random) -> None:
        """Begin at a moment; a trace counts from the process's start."""
        self._segments = segments(busy, begin - start, chance)
        self._level = 0.0
        self._until = begin

    def mean(self, begin: float, end: float) -> float:
        if end <= self._until:
            return self._level
        wanted = 0.0
        at = begin
        while self._until < end:
            if self._until > at:
                wanted += self._level * (self._until - at)
                at = self._until
            seconds, self._level = next(self._segments)
            self._until += seconds
        return (wanted + self._level * (end - at)) / (end - begin)


def segments(busy: Busy, age: float, chance: Random) -> Segments:
    """Give the segments of a pattern for a process of that age."""
    if busy.trace:
        return _trace(busy.trace, age)
    usual = LEVELS[busy.pattern]
    level, period, dip = (
        usual.get(name, 0.0) if given is None else given
        for name, given in (("level", busy.level), ("period", busy.period), ("dip", busy.dip))
    )
    if busy.pattern == "training":
        return _training(level, period, dip, age)
    if busy.pattern == "serving":
        return _serving(level, period, dip, chance)
    if busy.pattern == "notebook":
        return _notebook(level, period, dip, chance)
    return iter([(math.inf, level)])


def _trace(points: tuple[tuple[float, float], ...], age: float) -> Segments:
    level = 0.0
    at = age
    for since, following in points:
        if since > at:
            yield since - at, level
            at = since
        level = following
    yield math.inf, level


def _training(level: float, period: float, dip: float, age: float) -> Segments:
    """Compute, then dip; where it is in its period follows from its age."""
    computing = period * (1 - dip)
    within = age % period
    if within < computing:
        yield computing - within, level
        within = computing
    yield period - within, 0.0
    while True:
        yield computing, level
        yield period - computing, 0.0


def _serving(level: float, period: float, dip: float, chance: Random) -> Segments:
    if chance.random() < dip:
        yield chance.expovariate(1.0) * period * dip, 0.0
    while True:
        yield chance.expovariate(1.0) * period * (1 - dip), level
        yield chance.expovariate(1.0) * period * dip, 0.0


def _notebook(level: float, period: float, dip: float, chance: Random) -> Segments:
    """Run a cell now and then, each of a level of its own, and think long in between."""
    if chance.random() < dip:
        yield chance.random() * period * dip, 0.0
    while True:
        yield chance.expovariate(1.0) * period * (1 - dip), level * chance.uniform(0.3, 1.0)
        yield chance.paretovariate(HEAVY) * period * dip / 3, 0.0
