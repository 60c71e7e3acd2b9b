"""Small scenarios for the tests, and what comes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gpuledger.sources.simulated import Run
from gpuledger.sources.simulated.scenario import loads

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuledger.readings import Gpu, Reading

PLAIN = "{model: NVIDIA H200, idle_watts: 80, context_watts: 40, limit_watts: 700, leakage: 0}"


class World(NamedTuple):
    """What an agent saw, and what was."""

    readings: list[Reading]
    truth: dict[str, Any]

    def gpu(self, number: int = 0) -> list[Gpu]:
        """Give a GPU's part of each reading."""
        return [reading.gpus[number] for reading in self.readings]

    def process(self, name: str) -> dict[str, Any]:
        return next(p for p in self.truth["processes"] if p["name"] == name)

    def account(self, owner: str) -> dict[str, Any]:
        return next(a for a in self.truth["accounts"] if a["owner"]["name"] == owner)

    def grown(self, number: int = 0) -> float:
        """Give the joules that a GPU's counter grew by."""
        first, last = (self.gpu(number)[i].energy_millijoules for i in (0, -1))
        assert first is not None
        assert last is not None
        return (last - first) / 1000


def tenant(*processes: str, who: str = "user: bob", gpus: str = "[0]", more: str = "") -> str:
    """Write a tenant, its processes in flow style without the braces."""
    lines = "".join(f"\n      - {{{process}}}" for process in processes)
    told = f"    processes:{lines}\n" if processes else ""
    return f"  - {who}\n    gpus: {gpus}\n{more}{told}"


def text(
    *tenants: str, gpus: Iterable[str] = (PLAIN,), top: str = "", faults: Iterable[str] = ()
) -> str:
    """Write a scenario."""
    parts = [top or "duration: 1m", "gpus:", *(f"  - {gpu}" for gpu in gpus)]
    parts += ["tenants:", "".join(tenants)] if tenants else []
    parts += ["faults:", *(f"  - {{{fault}}}" for fault in faults)] if faults else []
    return "\n".join(parts) + "\n"


def run(scenario: str, poll_interval: float | None = None) -> World:
    """Run a scenario in virtual time."""
    made = Run(loads(scenario, "test.yaml"), poll_interval)
    readings = list(made)
    return World(readings, made.truth())


def written(readings: Iterable[Reading]) -> bytes:
    return b"\n".join(map(msgspec.json.encode, readings))
