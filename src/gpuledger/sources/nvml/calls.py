"""What a device is asked, one line a call.

A fact with a dot in its name goes to `extra`; every other is a field of the reading's GPU. What
fails does so softly and alone, under the fact's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pynvml as nv

from gpuledger.readings import Memory

if TYPE_CHECKING:
    from collections.abc import Callable

RARELY = 60.0


class Call(NamedTuple):
    """One figure: how to ask for it, and after how many seconds to ask again."""

    fact: str
    ask: Callable[[Any], Any]
    every: float = 0.0


class FieldValue(NamedTuple):
    """A figure by its field id; all of them are asked in one call."""

    fact: str
    id: int


def memory(handle: Any) -> Memory:
    """Ask for version 2, whose `used` is without the driver's reserve; version 1's is with it."""
    try:
        v2 = nv.nvmlDeviceGetMemoryInfo(handle, version=nv.nvmlMemory_v2)
    except nv.NVMLError_FunctionNotFound:
        v1 = nv.nvmlDeviceGetMemoryInfo(handle)
        return Memory(total=v1.total, free=v1.free)
    return Memory(total=v2.total, used=v2.used, reserved=v2.reserved, free=v2.free)


def mig(handle: Any) -> bool:
    try:
        return bool(nv.nvmlDeviceGetMigMode(handle)[0])
    except (nv.NVMLError_NotSupported, nv.NVMLError_FunctionNotFound):
        return False  # a device that knows no MIG has none


CALLS = (
    Call("memory", memory),
    Call("energy_millijoules", nv.nvmlDeviceGetTotalEnergyConsumption),
    Call("power_limit_milliwatts", nv.nvmlDeviceGetEnforcedPowerLimit, RARELY),
    Call("utilization.device", nv.nvmlDeviceGetUtilizationRates),
    Call("utilization.encoder", lambda h: nv.nvmlDeviceGetEncoderUtilization(h)[0]),
    Call("utilization.decoder", lambda h: nv.nvmlDeviceGetDecoderUtilization(h)[0]),
    Call(
        "temperature_celsius",
        lambda h: nv.nvmlDeviceGetTemperature(h, nv.NVML_TEMPERATURE_GPU),
    ),
    Call("clocks.sm", lambda h: nv.nvmlDeviceGetClockInfo(h, nv.NVML_CLOCK_SM)),
    Call("clocks.memory", lambda h: nv.nvmlDeviceGetClockInfo(h, nv.NVML_CLOCK_MEM)),
    Call("mig", mig, RARELY),
)

FIELDS = (
    FieldValue("power_milliwatts", nv.NVML_FI_DEV_POWER_AVERAGE),
    FieldValue("power_instant_milliwatts", nv.NVML_FI_DEV_POWER_INSTANT),
    FieldValue("temperature.memory", nv.NVML_FI_DEV_MEMORY_TEMP),
)

# Where a field is not to be had: the older call for the same figure.
INSTEAD = {"power_milliwatts": nv.nvmlDeviceGetPowerUsage}
