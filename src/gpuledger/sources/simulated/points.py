"""What a scenario's lists mean: values between points of time, and who is on which GPU."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuledger.sources.simulated.forms import Place
    from gpuledger.sources.simulated.schema import Process, Tenant

Points: TypeAlias = "Sequence[tuple[float, float]]"

# Memory that the driver uses for contexts and tells of no process (8.8 MiB on an H200).
OVERHEAD = 9 << 20


def memory_points(process: Process) -> tuple[tuple[float, int], ...]:
    memory = process.memory
    return memory if isinstance(memory, tuple) else ((0.0, memory),)


def between(points: Points, age: float) -> float:
    """Give the value at an age, growing evenly from point to point; the last one stays."""
    if age >= points[-1][0]:
        return points[-1][1]
    for (since, value), (until, following) in pairwise(points):
        if since <= age < until:
            return value + (following - value) * (age - since) / (until - since)
    return points[0][1]


def latest(points: Points, age: float, before: float) -> float:
    """Give the value of the newest point at an age, or the one that holds before any."""
    for since, value in reversed(points):
        if age >= since:
            return value
    return before


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
