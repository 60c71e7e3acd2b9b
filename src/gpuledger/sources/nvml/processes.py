"""Who is on a device: the driver's three lists merged, and the windows of time it gave to whom."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import pynvml as nv

from gpuledger.readings import GpuProcess, Kind, Sample, Window

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
SUCCESS = 0


class Span(NamedTuple):
    """What the driver says of a span of time, each part with its own way to fail."""

    samples: tuple[Sample, ...] | None
    windows: tuple[Window, ...] | None
    samples_error: nv.NVMLError | None
    windows_error: nv.NVMLError | None

    def end(self) -> int | None:
        """Give where the next span begins: the newest window, else the newest sample."""
        if self.windows is not None:
            return max((end for end, _, _ in self.windows), default=None)
        return max((sample.at for sample in self.samples or ()), default=None)


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


def span(handle: Any, since: int, *, ask_samples: bool, ask_windows: bool) -> Span:
    """Ask for each process's part of the windows since a time, and for the windows themselves.

    The windows of the GPU are asked before the samples and those of the memory after them. Where
    the latter have one more, it ended in between and the samples may have it: once more, then.
    """
    samples: tuple[Sample, ...] | None = None
    windows: tuple[Window, ...] | None = None
    samples_error: nv.NVMLError | None = None
    windows_error: nv.NVMLError | None = None
    for _ in range(2):
        gpu: dict[int, int] = {}
        controller: dict[int, int] = {}
        if ask_windows:
            try:
                gpu = _windows(handle, nv.NVML_GPU_UTILIZATION_SAMPLES, since)
            except nv.NVMLError as error:
                ask_windows, windows_error = False, error
        if ask_samples:
            try:
                samples = _samples(handle, since)
            except nv.NVMLError as error:
                ask_samples, samples, samples_error = False, None, error
        if not ask_windows:
            windows = None
            break
        with suppress(nv.NVMLError):  # null beside each window then
            controller = _windows(handle, nv.NVML_MEMORY_UTILIZATION_SAMPLES, since)
        windows = tuple((end, busy, controller.get(end)) for end, busy in gpu.items())
        if max(controller, default=0) <= max(gpu, default=0):
            break
    return Span(samples, windows, samples_error, windows_error)


def _samples(handle: Any, since: int) -> tuple[Sample, ...]:
    try:
        found = nv.nvmlDeviceGetProcessUtilization(handle, since)
    except nv.NVMLError as error:
        # Nobody has a context, or nothing is new: answers both, not failures.
        if error.value in {nv.NVML_ERROR_NOT_FOUND, SUCCESS}:
            return ()
        raise
    return tuple(
        Sample(
            pid=sample.pid,
            at=sample.timeStamp,
            sm=sample.smUtil,
            memory=sample.memUtil,
            encoder=sample.encUtil,
            decoder=sample.decUtil,
        )
        for sample in found
    )


def _windows(handle: Any, kind: int, since: int) -> dict[int, int]:
    try:
        _, found = nv.nvmlDeviceGetSamples(handle, kind, since)
    except nv.NVMLError_NotFound:
        return {}
    return {window.timeStamp: window.sampleValue.uiVal for window in found}


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
