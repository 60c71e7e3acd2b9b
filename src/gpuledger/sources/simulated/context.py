"""A process's context on a device: what it wants, what its kernels draw, what it holds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from gpuledger.sources.simulated.kernels import DRAM, KINDS, Kernel, own
from gpuledger.sources.simulated.patterns import Demand
from gpuledger.sources.simulated.points import between, latest, memory_points

if TYPE_CHECKING:
    from random import Random

    from gpuledger.sources.simulated import schema
    from gpuledger.sources.simulated.tenants import Life

WANDER_SECONDS = 20.0
PROFILE_WANDERS = 0.3  # of what the watts wander, on its own way


class Context:
    """One process on one device, or on one instance of it."""

    __slots__ = (
        "_far",
        "_keep",
        "_kernel",
        "_memory",
        "_profile_far",
        "_spec",
        "_watts",
        "chance",
        "demand",
        "dram",
        "life",
        "never",
        "owned",
        "profile",
        "start",
        "stop",
        "waits",
        "watts",
    )

    def __init__(self, life: Life, begin: float, window: float, chance: Random) -> None:
        """Begin at a moment, or at the process's start if that is later."""
        spec: schema.Process = life.spec
        self.life = life
        self.start, self.stop = life.start, life.stop
        self.chance = chance
        self.demand = Demand(spec.busy, life.start, max(begin, life.start), chance)
        self.waits = spec.waits
        self.never = spec.busy.pattern == "parked" and not spec.busy.trace
        self.owned = 0.0  # of the window in work: seconds of the device
        self._spec = spec
        self._kernel = _kernel(spec)
        self._watts = self._kernel.watts if spec.watts is None else spec.watts
        self._memory = memory_points(spec)
        self._keep = math.exp(-window / WANDER_SECONDS)
        self._far = chance.gauss(0.0, 1.0)
        self._profile_far = chance.gauss(0.0, 1.0)
        self._see(max(begin, life.start))

    def wants(self, begin: float, end: float) -> float:
        """Give the part of a span in which it has a kernel to run."""
        return 0.0 if self.never else self.demand.mean(begin, end) * self._kernel.fill

    def wander(self, at: float) -> None:
        """Go on by a window: what its kernels do changes a little."""
        if self.never:
            return
        keep = self._keep
        shock = math.sqrt(1 - keep * keep)
        self._far = keep * self._far + shock * self.chance.gauss(0.0, 1.0)
        self._profile_far = keep * self._profile_far + shock * self.chance.gauss(0.0, 1.0)
        self._see(at)

    def memory(self, at: float) -> int:
        return int(between(self._memory, at - self.start))

    def alive(self, at: float) -> bool:
        return self.start <= at < self.stop

    def _see(self, at: float) -> None:
        spec = self._spec
        phase = latest(spec.phases, at - self.start, 1.0) if spec.phases else 1.0
        self.watts = self._watts * phase * max(0.0, 1 + spec.wander * self._far)
        seen = phase * max(0.0, 1 + spec.wander * PROFILE_WANDERS * self._profile_far)
        figures = self._kernel.profile
        self.profile = (figures[0], *[min(1.0, figure * seen) for figure in figures[1:]])
        self.dram = self.profile[DRAM]


def _kernel(spec: schema.Process) -> Kernel:
    if isinstance(spec.kernels, str):
        return KINDS[spec.kernels]
    return own(asdict(spec.kernels))
