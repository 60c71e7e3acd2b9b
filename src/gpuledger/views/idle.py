"""Processes that hold GPU memory and compute nothing, in the words of gpu-idle-exporter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuledger.readings import Memory, Utilization
from gpuledger.views import Family, Labels, Node, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuledger.readings import Gpu

PROCESS = ("gpu", "pid", "process")
DEVICE = ("gpu", "model", "uuid")

PROCESS_UTILIZATION = Family(
    "gpu_idle_process_compute_utilization_percent",
    "gauge",
    "The process's part of the GPU's time, percent; absent where the driver does not tell.",
    PROCESS,
)
PROCESS_MEMORY = Family(
    "gpu_idle_process_memory_used_bytes", "gauge", "GPU memory that the process holds.", PROCESS
)
IDLE_SECONDS = Family(
    "gpu_idle_process_idle_seconds",
    "gauge",
    "For how long the process has been idle (memory held, nothing computed); 0 while it is not.",
    PROCESS,
)
IDLE_MEMORY = Family(
    "gpu_idle_process_idle_memory_bytes",
    "gauge",
    "GPU memory that the process holds while it is idle; 0 while it is not.",
    PROCESS,
)
DEVICE_UTILIZATION = Family(
    "gpu_idle_device_utilization_percent",
    "gauge",
    "Compute utilization of the whole GPU, as the driver gives it.",
    DEVICE,
)
MEMORY_USED = Family(
    "gpu_idle_device_memory_used_bytes",
    "gauge",
    "Memory in use on the GPU, without the driver's own reserve.",
    DEVICE,
)
MEMORY_TOTAL = Family(
    "gpu_idle_device_memory_total_bytes", "gauge", "Memory that the GPU has.", DEVICE
)
POWER = Family("gpu_idle_device_power_watts", "gauge", "Power that the GPU draws.", DEVICE)
TEMPERATURE = Family(
    "gpu_idle_device_temperature_celsius", "gauge", "Temperature of the GPU.", DEVICE
)
IDLE_TOTAL = Family(
    "gpu_idle_memory_total_bytes", "gauge", "Memory that idle processes hold on the GPU.", ("gpu",)
)

FAMILIES = (
    PROCESS_UTILIZATION,
    PROCESS_MEMORY,
    IDLE_SECONDS,
    IDLE_MEMORY,
    DEVICE_UTILIZATION,
    MEMORY_USED,
    MEMORY_TOTAL,
    POWER,
    TEMPERATURE,
    IDLE_TOTAL,
)

NO_MEMORY, NO_UTILIZATION = Memory(), Utilization()  # of which nothing is known


def show(node: Node) -> Iterator[tuple[Family, Rows]]:
    gpus = node.reading.gpus if node.reading else ()
    part: list[tuple[Labels, float | None]] = []
    memory: list[tuple[Labels, float | None]] = []
    seconds: list[tuple[Labels, float | None]] = []
    idle_memory: list[tuple[Labels, float | None]] = []
    totals: list[tuple[Labels, float | None]] = []
    for gpu in gpus:
        total = 0
        held = {process.pid: process.memory for process in gpu.processes or ()}
        for watched in node.idleness.of(gpu):
            labels = (str(gpu.index), str(watched.pid), _name(node, watched.pid))
            idle = watched.idle_seconds(node.idleness.now)
            bytes_held = held[watched.pid]
            idle_bytes = bytes_held if watched.state == "idle" else 0
            part.append((labels, watched.part))
            memory.append((labels, bytes_held))
            seconds.append((labels, idle))
            idle_memory.append((labels, None if idle is None else idle_bytes))
            total += idle_bytes or 0
        totals.append(((str(gpu.index),), total if gpu.processes is not None else None))
    yield PROCESS_UTILIZATION, part
    yield PROCESS_MEMORY, memory
    yield IDLE_SECONDS, seconds
    yield IDLE_MEMORY, idle_memory
    devices = [((str(gpu.index), gpu.model or "", gpu.uuid), gpu) for gpu in gpus]
    yield DEVICE_UTILIZATION, [(of, (gpu.utilization or NO_UTILIZATION).gpu) for of, gpu in devices]
    yield MEMORY_USED, [(labels, (gpu.memory or NO_MEMORY).used) for labels, gpu in devices]
    yield MEMORY_TOTAL, [(labels, (gpu.memory or NO_MEMORY).total) for labels, gpu in devices]
    yield POWER, [(labels, _watts(gpu)) for labels, gpu in devices]
    yield TEMPERATURE, [(labels, gpu.temperature_celsius) for labels, gpu in devices]
    yield IDLE_TOTAL, totals


def _name(node: Node, pid: int) -> str:
    assert node.reading is not None
    process = node.reading.processes.get(pid)
    return "" if process is None or process.name is None else process.name


def _watts(gpu: Gpu) -> float | None:
    return None if gpu.power_milliwatts is None else gpu.power_milliwatts / 1000
