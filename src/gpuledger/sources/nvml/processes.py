"""Who has a context on a device: the driver's three lists, merged by pid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pynvml as nv

from gpuledger.readings import GpuProcess, Kind

if TYPE_CHECKING:
    from gpuledger.sources.nvml.arrays import Arrays

LISTS: tuple[tuple[Kind, str], ...] = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
)
NO_INSTANCE = 0xFFFFFFFF
NOT_AVAILABLE = 0xFFFFFFFFFFFFFFFF
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


def processes(arrays: Arrays, versions: tuple[str, ...]) -> tuple[GpuProcess, ...]:
    """Merge the three lists by pid; a device without one of the kinds has nobody of that kind."""
    kinds: dict[int, list[Kind]] = {}
    memory: dict[int, int | None] = {}
    instance: dict[int, int | None] = {}
    answered = False
    for kind, function in LISTS:
        try:
            listed = _first_to_exist(arrays, [function + version for version in versions])
        except (nv.NVMLError_NotSupported, nv.NVMLError_FunctionNotFound):
            continue
        answered = True
        for pid, used, gi, _ in listed:
            kinds.setdefault(pid, []).append(kind)
            held = None if used == NOT_AVAILABLE else used
            memory[pid] = _larger(memory.get(pid), held)
            instance[pid] = None if gi == NO_INSTANCE else gi
    if not answered:
        raise nv.NVMLError(nv.NVML_ERROR_NOT_SUPPORTED)
    return tuple(
        GpuProcess(pid=pid, kinds=tuple(of), memory=memory[pid], instance=instance[pid])
        for pid, of in kinds.items()
    )


def _first_to_exist(arrays: Arrays, functions: list[str]) -> list[tuple[Any, ...]]:
    for function in functions[:-1]:
        try:
            return arrays.processes(function)
        except nv.NVMLError_FunctionNotFound:
            continue
    return arrays.processes(functions[-1])


def _larger(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return max(one, other)
