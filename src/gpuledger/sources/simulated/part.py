"""What is shared at one time: a whole GPU, or an instance that MIG has cut of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuledger.sources.simulated.context import Context
    from gpuledger.sources.simulated.tenants import Tenancy

# A process in a span: its part of the part's time, the watts that it wants, how much of the whole
# device it really used, and what a profiler sees of that at full use.
Run: TypeAlias = "tuple[Context, float, float, float, tuple[float, ...]]"


class Roster(NamedTuple):
    """Who is there while nobody comes or goes."""

    contexts: tuple[Context, ...]
    holders: tuple[Tenancy, ...]  # each once: with a context, or allocated
    open: bool  # whether there is a context


class Part:
    """Processes that share: by time slices, or side by side behind an MPS server."""

    def __init__(
        self, fraction: float = 1.0, gi: int | None = None, server: Context | None = None
    ) -> None:
        self.fraction = fraction  # of the device's compute slices
        self.gi = gi
        self.server = server
        self.contexts: list[Context] = []  # also those to come, and those that just left
        self.tenancies: list[Tenancy] = []  # to whom it is, was or will be allocated
        self.roster = Roster((), (), open=False)

    def change(self, at: float) -> None:
        """Look who is there from a moment on."""
        there = tuple(c for c in self.contexts if c.alive(at))
        owners = [c.life.tenancy for c in there if c is not self.server]
        owners = owners or [c.life.tenancy for c in there]
        allocated = [t for t in self.tenancies if t.start <= at < t.stop]
        self.roster = Roster(there, tuple(dict.fromkeys(owners + allocated)), bool(there))

    def next_change(self, after: float) -> float:
        return min((at for at in self._moments() if at > after), default=math.inf)

    def forget(self, before: float) -> None:
        """Drop who left before a moment."""
        self.contexts = [c for c in self.contexts if c.stop > before]
        self.tenancies = [t for t in self.tenancies if t.stop > before]

    def share(self, begin: float, end: float) -> tuple[list[Run], float]:
        """Give who got how much of a span, and the part of it that was busy."""
        wants = [(w, c) for c in self.roster.contexts if (w := c.wants(begin, end))]
        if not wants:
            return [], 0.0
        total = sum(w for w, _ in wants)
        fraction = self.fraction
        if self.server is not None:
            scale = min(1.0, 1 / total)
            runs = [(c, w * scale, c.watts * w * scale, w * scale, c.profile) for w, c in wants]
            return runs, min(1.0, total)
        given = [w for w, _ in wants] if total <= 1 else _fair([w for w, _ in wants])
        runs = []
        for (w, c), part in zip(wants, given, strict=True):
            # Others want the GPU in as much of its time as they would take.
            useful = part * fraction * (1 - c.waits * min(1.0, total - w))
            runs.append((c, part, c.watts * useful, useful, c.profile))
        return runs, min(1.0, total)

    def _moments(self) -> Iterator[float]:
        for context in self.contexts:
            yield context.start
            yield context.stop
        for tenancy in self.tenancies:
            yield tenancy.start
            yield tenancy.stop


def _fair(wants: Sequence[float]) -> list[float]:
    """Divide the whole: nobody gets more than he wants, and none less than another who wants."""
    given = [0.0] * len(wants)
    left = 1.0
    order = sorted(range(len(wants)), key=wants.__getitem__)
    for done, i in enumerate(order):
        given[i] = min(wants[i], left / (len(order) - done))
        left -= given[i]
    return given
