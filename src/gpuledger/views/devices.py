"""Every GPU as its driver describes it: what it is, whether it answers, and its own gauges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuledger.views import Family, Labels, Node, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuledger.readings import Gpu, Number

DEVICE = ("gpu", "uuid", "mig")

INFO = Family(
    "gpuledger_device_info",
    "gauge",
    "What the device is; always 1.",
    (*DEVICE, "model", "driver", "cuda", "nvml", "pci_bus_id", "minor", "mig_profile", "arch"),
)
UP = Family(
    "gpuledger_device_up",
    "gauge",
    "1 if the device answered at the newest reading, 0 if it is lost or its driver hangs.",
    DEVICE,
)
LAST_READING = Family(
    "gpuledger_device_last_reading_timestamp_seconds",
    "gauge",
    "When the device answered last, Unix time.",
    DEVICE,
)
UTILIZATION = Family(
    "gpuledger_device_utilization_ratio",
    "gauge",
    "The driver's own figure for the whole device, 0 to 1: time in which an engine was at work.",
    (*DEVICE, "engine"),
)
POWER = Family(
    "gpuledger_device_power_watts",
    "gauge",
    "Power of the whole device, as the driver gives it (a mean over 1 s on Ampere and newer).",
    DEVICE,
)
POWER_LIMIT = Family(
    "gpuledger_device_power_limit_watts",
    "gauge",
    "The power limit that the driver enforces.",
    DEVICE,
)
TEMPERATURE = Family(
    "gpuledger_device_temperature_celsius",
    "gauge",
    "Temperature of the GPU and of its memory.",
    (*DEVICE, "sensor"),
)
CLOCK = Family(
    "gpuledger_device_clock_hertz",
    "gauge",
    "Clocks of the multiprocessors and of the memory at that moment.",
    (*DEVICE, "clock"),
)

FAMILIES = (INFO, UP, LAST_READING, UTILIZATION, POWER, POWER_LIMIT, TEMPERATURE, CLOCK)

ENGINES = ("gpu", "memory", "encoder", "decoder")


def show(node: Node) -> Iterator[tuple[Family, Rows]]:
    gpus = [(_labels(gpu), gpu) for gpu in node.reading.gpus] if node.reading else []
    answered_at = node.health.answered_at
    yield INFO, [(_info(labels, gpu), 1) for labels, gpu in gpus]
    yield UP, [(labels, int(gpu.answered)) for labels, gpu in gpus]
    yield LAST_READING, [(labels, answered_at.get(gpu.uuid)) for labels, gpu in gpus]
    yield (
        UTILIZATION,
        [
            ((*labels, engine), _divided(getattr(gpu.utilization, engine), 100))
            for labels, gpu in gpus
            if gpu.utilization is not None
            for engine in ENGINES
        ],
    )
    yield POWER, [(labels, _divided(gpu.power_milliwatts, 1000)) for labels, gpu in gpus]
    yield (
        POWER_LIMIT,
        [(labels, _divided(gpu.power_limit_milliwatts, 1000)) for labels, gpu in gpus],
    )
    yield (
        TEMPERATURE,
        [
            row
            for labels, gpu in gpus
            for row in (
                ((*labels, "gpu"), gpu.temperature_celsius),
                ((*labels, "memory"), _figure(gpu, "temperature.memory")),
            )
        ],
    )
    yield (
        CLOCK,
        [
            ((*labels, clock), _hertz(_figure(gpu, f"clocks.{clock}")))
            for labels, gpu in gpus
            for clock in ("sm", "memory")
        ],
    )


def _labels(gpu: Gpu) -> Labels:
    return (str(gpu.index), gpu.uuid, "")


def _info(labels: Labels, gpu: Gpu) -> Labels:
    extra = gpu.extra
    return (
        *labels,
        gpu.model or "",
        gpu.driver or "",
        str(extra.get("version.cuda", "")),
        str(extra.get("version.nvml", "")),
        gpu.pci_bus_id or "",
        "" if gpu.minor is None else str(gpu.minor),
        "",
        str(extra.get("arch", "")),
    )


def _figure(gpu: Gpu, name: str) -> Number | None:
    value = gpu.extra.get(name)
    return None if isinstance(value, str) else value


def _hertz(megahertz: Number | None) -> float | None:
    return None if megahertz is None else megahertz * 1_000_000


def _divided(value: Number | None, by: float) -> float | None:
    return None if value is None else value / by
