"""Puts a recorded reading's GPU into a fake one, so that every call answers what was recorded."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from gpuledger.readings import Gpu, Instance, Memory, Number, Utilization
from tests.fakes.nvml.figures import Figures
from tests.fakes.nvml.gpu import FakeGpu, FakeInstance, FakeProcess, Window

EVERY: Final = "*"
_LISTS: Final = tuple(
    f"nvmlDeviceGet{kind}RunningProcesses{version}"
    for kind in ("Compute", "Graphics", "MPSCompute")
    for version in ("", "_v2", "_v3")
)
_SAMPLES: Final = ("nvmlDeviceGetProcessUtilization", "nvmlDeviceGetProcessesUtilizationInfo")
# The functions behind what a reading's `failures` name.
FUNCTIONS: Final[dict[str, tuple[str, ...]]] = {
    "device": (EVERY,),
    "name": ("nvmlDeviceGetName",),
    "minor": ("nvmlDeviceGetMinorNumber",),
    "pci": ("nvmlDeviceGetPciInfo_v3",),
    "arch": ("nvmlDeviceGetArchitecture",),
    "memory": ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"),
    "energy_millijoules": ("nvmlDeviceGetTotalEnergyConsumption",),
    "power_milliwatts": ("nvmlDeviceGetPowerUsage",),
    "power_limit_milliwatts": ("nvmlDeviceGetEnforcedPowerLimit",),
    "utilization.device": ("nvmlDeviceGetUtilizationRates",),
    "utilization.encoder": ("nvmlDeviceGetEncoderUtilization",),
    "utilization.decoder": ("nvmlDeviceGetDecoderUtilization",),
    "temperature_celsius": ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"),
    "clocks.sm": ("nvmlDeviceGetClockInfo",),
    "mig": ("nvmlDeviceGetMigMode",),
    "processes": _LISTS,
    "samples": _SAMPLES,
    "windows": ("nvmlDeviceGetSamples",),
}


def put(fake: FakeGpu, seen: Gpu) -> dict[str, str]:
    """Make a fake GPU the recorded one; say which functions fail, and how."""
    for figure in fields(Figures):
        setattr(fake, figure.name, None)
    fake.uuid, fake.minor = seen.uuid, seen.minor
    fake.model, fake.pci_bus_id = seen.model or "", seen.pci_bus_id or ""
    memory = seen.memory or Memory()
    fake.memory_total, fake.memory_used = memory.total, memory.used
    fake.memory_reserved, fake.memory_free = memory.reserved, memory.free
    fake.energy_millijoules = seen.energy_millijoules
    fake.power_milliwatts = seen.power_milliwatts
    fake.power_instant_milliwatts = seen.power_instant_milliwatts
    fake.power_limit_milliwatts = seen.power_limit_milliwatts
    utilization = seen.utilization or Utilization()
    fake.gpu_percent = _whole(utilization.gpu)
    fake.memory_percent = _whole(utilization.memory)
    fake.encoder_percent = _whole(utilization.encoder)
    fake.decoder_percent = _whole(utilization.decoder)
    fake.temperature_celsius = _whole(seen.temperature_celsius)
    fake.mig_current = fake.mig_pending = None if seen.mig is None else int(seen.mig)
    extra = {name: int(value) for name, value in seen.extra.items() if not isinstance(value, str)}
    fake.clocks = {
        name.removeprefix("clocks."): value
        for name, value in extra.items()
        if name.startswith("clocks.")
    }
    fake.max_clocks, fake.ecc, fake.temperature_thresholds = {}, {}, {}
    fake.memory_temperature_celsius = extra.get("temperature.memory")
    fake.pcie_tx_bytes = fake.pcie_rx_bytes = None
    fake.instances = [_instance(piece) for piece in seen.instances]
    fake.processes = {
        item.pid: FakeProcess(kinds=item.kinds, memory=item.memory, instance=item.instance)
        for item in seen.processes or ()
    }
    fake.samples = seen.samples or ()
    fake.windows.clear()
    fake.windows.extend(
        Window(end=end, gpu=int(busy), memory=_whole(controller))
        for end, busy, controller in seen.windows or ()
    )
    fake.power_samples.clear()
    return _failures(seen)


def _failures(seen: Gpu) -> dict[str, str]:
    failed = {
        name: "NOT_SUPPORTED"
        for name in ("processes", "samples", "windows")
        if getattr(seen, name) is None
    }
    return {
        function: error
        for name, error in (failed | seen.failures).items()
        for function in FUNCTIONS.get(name, ())
    }


def _instance(seen: Instance) -> FakeInstance:
    memory = seen.memory or Memory()
    return FakeInstance(
        gi=seen.gi,
        ci=seen.ci or 0,
        uuid=seen.uuid or "",
        profile=seen.profile or "",
        slices=seen.slices,
        memory_total=memory.total,
        memory_used=memory.used,
        memory_reserved=memory.reserved,
        memory_free=memory.free,
    )


def _whole(value: Number | None) -> int | None:
    return None if value is None else int(value)
