"""What a scenario's lists mean: values between points of time, and who is on which GPU."""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuledger.sources.simulated.forms import Place
    from gpuledger.sources.simulated.schema import Process, Tenant

Points: TypeAlias = "Sequence[tuple[float, float]]"

# Memory that the driver uses for contexts and tells of no process (8.8 MiB on an H200).
OVERHEAD = 9 << 20
OF_SERVER = 30 << 20  # what an MPS server has


def memory_points(process: Process) -> tuple[tuple[float, int], ...]:
    memory = process.memory
    return memory if isinstance(memory, tuple) else ((0.0, memory),)


def between(points: Points, age: float) -> float:
    """Give the value at an age, growing evenly from point to point; the last one stays."""
    passed = bisect_right(points, age, key=itemgetter(0))
    if passed in {0, len(points)}:
        return points[passed and -1][1]
    (since, value), (until, following) = points[passed - 1 : passed + 1]
    return value + (following - value) * (age - since) / (until - since)


def latest(points: Points, age: float, before: float) -> float:
    """Give the value of the newest point at an age, or the one that holds before any."""
    for since, value in reversed(points):
        if age >= since:
            return value
    return before


def comes_again(start: float | None, stop: float | None, duration: float) -> bool:
    """Tell whether something starts and stops within the scenario: only that comes once more."""
    return start is not None and stop is not None and start >= 0 and stop <= duration


def process_comes_again(tenant: Tenant, process: Process, duration: float) -> bool:
    """Tell it of a process: where its tenant goes for good, it does not come either."""
    tenant_is_there = tenant.stop is None or comes_again(tenant.start, tenant.stop, duration)
    return tenant_is_there and comes_again(process.start, process.stop, duration)


def places_of(tenant: Tenant, process: Process) -> list[tuple[Place, ...]]:
    """Give each of the processes its GPUs: those it names, else one of the tenant's in turn."""
    if process.gpus:
        return [process.gpus] * process.count
    before = 0
    for other in tenant.processes:
        if other is process:
            break
        before += 0 if other.gpus else other.count
    return [
        (tenant.gpus[(before + k) % len(tenant.gpus)],) if tenant.gpus else ()
        for k in range(process.count)
    ]
