"""Whether what a scenario puts on a GPU has room there: bytes, and allocations."""

from __future__ import annotations

import math
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from gpuledger.sources.simulated.points import memory_points, places_of, process_comes_again

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpuledger.sources.simulated.forms import Place
    from gpuledger.sources.simulated.schema import Process, Scenario, Tenant

ROUNDING = 1.0  # bytes


class Use(NamedTuple):
    """A process on a GPU, by its place in the scenario."""

    path: str
    process: Process
    again: bool  # comes once more in each round

    @property
    def most(self) -> int:
        return max(size for _, size in memory_points(self.process))


class Peak(NamedTuple):
    """The most that is used at once, when, and whose part was the largest."""

    size: float
    at: float
    path: str


# When something grows, by how much at once, by how much a second from then on, and who.
_Step: TypeAlias = "tuple[float, float, float]"


def uses_of(scenario: Scenario) -> dict[Place, list[Use]]:
    """Give who is on each GPU, or instance of one."""
    found: dict[Place, list[Use]] = {}
    for i, tenant in enumerate(scenario.tenants):
        for j, process in enumerate(tenant.processes):
            path = f"tenants[{i}].processes[{j}].memory"
            again = process_comes_again(tenant, process, scenario.duration)
            for places in places_of(tenant, process):
                for place in places:
                    found.setdefault(place, []).append(Use(path, process, again))
    return found


def is_allocated(tenant: Tenant) -> bool:
    """Whether it was given its GPUs, rather than that it just uses them."""
    by_name = tenant.container is not None and tenant.container.access == "devices"
    return tenant.pod is not None or tenant.job is not None or by_name


def peak_of(uses: Sequence[Use], duration: float, *, restarts: bool) -> Peak:
    """Give the most that is used at any time, in the first round and in those to come.

    Where processes start anew at a moment of its own (the driver's reloads), and in later
    rounds, each counts with the most that it ever has.
    """
    largest = max(uses, key=lambda use: use.most)
    first = _highest(step for use in uses for step in _steps(use, flat=restarts))
    again = [use for use in uses if use.again]
    later = [u for u in uses if not u.again and (u.process.stop or math.inf) > duration]
    if not again:
        return Peak(*first, largest.path)
    coming = _highest(step for use in again for step in _steps(use, flat=True))
    staying = _highest(step for use in later for step in _steps(use, flat=True, since=duration))
    together = coming[0] + staying[0], coming[1] + duration
    return Peak(*max(first, together, key=itemgetter(0)), largest.path)


def _steps(use: Use, *, flat: bool, since: float = -math.inf) -> Iterator[_Step]:
    """Give how the memory of a process goes: jumps, and slopes in between."""
    process = use.process
    points = [(0.0, use.most)] if flat else list(memory_points(process))
    begin = max(process.start, since)
    stop = math.inf if process.stop is None else process.stop
    yield begin, points[0][1], 0.0
    size, slope = float(points[0][1]), 0.0
    following: Sequence[tuple[float, float]] = [*points[1:], (math.inf, points[-1][1])]
    for (age, value), (until, target) in zip(points, following, strict=True):
        at = begin + age
        if at >= stop:
            break
        rises = (target - value) / (until - age) if until > age else 0.0
        yield at, value - size, rises - slope
        length = min(stop - at, until - age)
        size = value + (rises * length if rises else 0.0)
        slope = rises
    if stop < math.inf:
        yield stop, -size, -slope


def _highest(steps: Iterable[_Step]) -> tuple[float, float]:
    """Give the most that steps add up to, and when."""
    highest = size = slope = 0.0
    when = before = 0.0
    # Who goes at a moment makes room for who comes then.
    for at, jump, rise in sorted(steps):
        size += slope * (at - before) if slope else 0.0
        if size > highest:
            highest, when = size, at
        size += jump
        slope += rise
        before = at
        if size > highest:
            highest, when = size, at
    return max(0.0, highest - ROUNDING), when


class Claim(NamedTuple):
    """An allocation of a GPU, while its tenant is there."""

    begin: float
    end: float
    tenant: int
    sharing: bool


def conflict(tenants: Sequence[Tenant]) -> tuple[Place, int, int] | None:
    """Find two that are allocated one GPU at one time, and do not both share it."""
    claims: dict[Place, list[Claim]] = {}
    for number, tenant in enumerate(tenants):
        if not is_allocated(tenant):
            continue
        begin = -math.inf if tenant.start is None else tenant.start
        end = math.inf if tenant.stop is None else tenant.stop
        for place in tenant.gpus:
            claims.setdefault(place, []).append(Claim(begin, end, number, tenant.sharing))
    for place, of in claims.items():
        longest: Claim | None = None
        alone: Claim | None = None  # the longest of those that share with nobody
        for claim in sorted(of):
            other = alone if claim.sharing else longest
            if other is not None and claim.begin < other.end:
                one, two = sorted((other.tenant, claim.tenant))
                return place, one, two
            if longest is None or claim.end > longest.end:
                longest = claim
            if not claim.sharing and (alone is None or claim.end > alone.end):
                alone = claim
    return None
