"""Who has a context on a device: the driver's three lists, merged by pid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pynvml as nv

from gpuledger.readings import GpuProcess, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

LISTS: tuple[tuple[Kind, str], ...] = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
)
NO_INSTANCE = 0xFFFFFFFF
# These drivers put another struct behind the `_v3` symbols: pids and memory came out swapped.
SWAPPED_FROM, SWAPPED_BEFORE = (535, 43), (535, 98)


def list_versions(driver: str) -> tuple[str, ...]:
    """Choose the versions of the process lists that can be believed, best first."""
    try:
        major, minor = (int(part) for part in driver.split(".")[:2])
    except ValueError:
        return ("_v3", "_v2")
    swapped = SWAPPED_FROM <= (major, minor) < SWAPPED_BEFORE
    return ("_v2",) if swapped else ("_v3", "_v2")


def processes(handle: Any, versions: tuple[str, ...]) -> tuple[GpuProcess, ...]:
    """Merge the three lists by pid; a device without one of the kinds has nobody of that kind."""
    kinds: dict[int, list[Kind]] = {}
    memory: dict[int, int | None] = {}
    instance: dict[int, int | None] = {}
    answered = False
    for kind, function in LISTS:
        try:
            listed = _first_to_exist([getattr(nv, function + v) for v in versions], handle)
        except (nv.NVMLError_NotSupported, nv.NVMLError_FunctionNotFound):
            continue
        answered = True
        for process in listed:
            kinds.setdefault(process.pid, []).append(kind)
            memory[process.pid] = _larger(memory.get(process.pid), process.usedGpuMemory)
            gi = process.gpuInstanceId
            instance[process.pid] = None if gi == NO_INSTANCE else gi
    if not answered:
        raise nv.NVMLError(nv.NVML_ERROR_NOT_SUPPORTED)
    return tuple(
        GpuProcess(pid=pid, kinds=tuple(of), memory=memory[pid], instance=instance[pid])
        for pid, of in kinds.items()
    )


def _first_to_exist(functions: list[Callable[[Any], Any]], handle: Any) -> Any:
    for function in functions[:-1]:
        try:
            return function(handle)
        except nv.NVMLError_FunctionNotFound:
            continue
    return functions[-1](handle)


def _larger(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return max(one, other)
