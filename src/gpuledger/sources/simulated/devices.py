"""Builds a scenario's devices: their names, their numbers, and the driver that answers for each."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from gpuledger.sources.simulated.checks import cut
from gpuledger.sources.simulated.device import Device, Facts
from gpuledger.sources.simulated.models import MODELS, model_of
from gpuledger.sources.simulated.part import Part
from gpuledger.sources.simulated.replies import Answerer, Cutting, Product
from gpuledger.sources.simulated.tenants import Addresses, uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuledger.sources.simulated import schema
    from gpuledger.sources.simulated.faults import Faults

FIRST_GI = {7: 0, 4: 1, 3: 1, 2: 3, 1: 7}  # id that the first instance of so many slices has
COUNTED = (10**8, 10**12)  # millijoules since the driver was loaded
FIRST_BUS = 0x18


def gpus_of(scenario: schema.Scenario) -> list[schema.Gpu]:
    """Give the entry of each GPU, by index."""
    return [entry for entry in scenario.gpus for _ in range(entry.count)]


def addresses_of(scenario: schema.Scenario) -> Addresses:
    """Name the GPUs and their instances."""
    gpus = gpus_of(scenario)
    seed = scenario.seed
    return Addresses(
        gpus=[f"GPU-{uuid(f'{seed}/gpu/{index}')}" for index in range(len(gpus))],
        instances=[
            [f"MIG-{uuid(f'{seed}/gpu/{index}/{i}')}" for i in range(len(gpu.mig))]
            for index, gpu in enumerate(gpus)
        ],
        profiles=[gpu.mig for gpu in gpus],
    )


def build(
    scenario: schema.Scenario,
    addresses: Addresses,
    faults: Faults,
    wall: Callable[[float], int],
    first_span: float,
) -> list[Answerer]:
    """Build each GPU, and what answers for it."""
    built = []
    for index, entry in enumerate(gpus_of(scenario)):
        chance = Random(f"{scenario.seed}/device/{index}")
        model = model_of(entry.model)
        cuttings = _cuttings(entry, addresses.instances[index])
        device = Device(
            _facts(entry, scenario.driver, chance)._replace(resets=faults.resets(index)),
            [Part(c.slices / model.slices, c.gi) for c in cuttings] or [Part()],
            wall,
            chance,
        )
        extra = {"version.cuda": "13.0", "version.nvml": f"13.{scenario.driver.version}"}
        if model in MODELS.values():
            extra["arch"] = model.arch
        product = Product(
            identity={
                "index": index,
                "uuid": addresses.gpus[index],
                "model": entry.model,
                "minor": index,
                "pci_bus_id": f"00000000:{FIRST_BUS + 3 * index:02X}:00.0",
                "driver": scenario.driver.version,
            },
            extra=extra,
            model=model,
            memory=model.memory if entry.memory is None else entry.memory,
            reserved=model.reserved if entry.reserved is None else entry.reserved,
            counted=chance.randint(*COUNTED),
            instances=cuttings,
        )
        built.append(Answerer(product, device, faults, first_span))
    return built


def _facts(entry: schema.Gpu, driver: schema.Driver, chance: Random) -> Facts:
    """Give the numbers of one GPU, which is not quite like its siblings."""
    model = model_of(entry.model)
    idle = model.idle_watts if entry.idle_watts is None else entry.idle_watts
    context = model.context_watts if entry.context_watts is None else entry.context_watts
    limit = model.limit_watts if entry.limit_watts is None else entry.limit_watts
    return Facts(
        idle_watts=idle * chance.uniform(1 - entry.spread, 1 + entry.spread),
        context_watts=context * chance.uniform(1 - entry.spread, 1 + entry.spread),
        limit_watts=limit,
        leakage=entry.leakage,
        window=driver.window,
        refresh=driver.energy_refresh,
    )


def _cuttings(entry: schema.Gpu, uuids: Sequence[str]) -> list[Cutting]:
    taken: set[int] = set()
    found = []
    for profile, name in zip(entry.mig, uuids, strict=True):
        slices, memory = cut(profile)
        gi = FIRST_GI.get(slices, 0)
        while gi in taken:
            gi += 1
        taken.add(gi)
        found.append(Cutting(gi, name, profile, slices, memory))
    return found
