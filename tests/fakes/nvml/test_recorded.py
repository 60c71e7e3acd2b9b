"""A recorded reading put into the fake node: every call answers what was recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pynvml as nv
import pytest

from gpuledger.readings import Gpu, GpuProcess, Reading, Sample
from gpuledger.traces import TraceReader
from tests.fakes.nvml import FakeNode

RECORDED = Path(__file__).parents[2] / "data" / "h200-5-1s.jsonl.gz"


def asked_of(handle: Any, since: int) -> dict[str, Any]:
    """Ask for what a recording holds, call by call."""
    memory = nv.nvmlDeviceGetMemoryInfo(handle, version=nv.nvmlMemory_v2)
    rates = nv.nvmlDeviceGetUtilizationRates(handle)
    try:
        reply = nv.nvmlDeviceGetProcessUtilization(handle, since)
    except nv.NVMLError_NotFound:
        reply = []
    series = {}
    for kind in (nv.NVML_GPU_UTILIZATION_SAMPLES, nv.NVML_MEMORY_UTILIZATION_SAMPLES):
        _, found = nv.nvmlDeviceGetSamples(handle, kind, since)
        series[kind] = {item.timeStamp: item.sampleValue.uiVal for item in found}
    busy, controller = series.values()
    return {
        "uuid": nv.nvmlDeviceGetUUID(handle),
        "model": nv.nvmlDeviceGetName(handle),
        "pci_bus_id": nv.nvmlDeviceGetPciInfo(handle).busId,
        "driver": nv.nvmlSystemGetDriverVersion(),
        "memory": {name: getattr(memory, name) for name in ("total", "used", "reserved", "free")},
        "energy_millijoules": nv.nvmlDeviceGetTotalEnergyConsumption(handle),
        "power_milliwatts": nv.nvmlDeviceGetPowerUsage(handle),
        "power_limit_milliwatts": nv.nvmlDeviceGetEnforcedPowerLimit(handle),
        "utilization": {
            "gpu": rates.gpu,
            "memory": rates.memory,
            "encoder": nv.nvmlDeviceGetEncoderUtilization(handle)[0],
            "decoder": nv.nvmlDeviceGetDecoderUtilization(handle)[0],
        },
        "temperature_celsius": nv.nvmlDeviceGetTemperature(handle, nv.NVML_TEMPERATURE_GPU),
        "processes": [
            {"pid": p.pid, "kinds": ["compute"], "memory": p.usedGpuMemory}
            for p in nv.nvmlDeviceGetComputeRunningProcesses(handle)
        ],
        "samples": [
            {
                "pid": s.pid,
                "at": s.timeStamp,
                "sm": s.smUtil,
                "memory": s.memUtil,
                "encoder": s.encUtil,
                "decoder": s.decUtil,
            }
            for s in reply
        ],
        "windows": [[end, busy[end], controller[end]] for end in busy],
    }


def test_a_recording_comes_out_as_it_went_in() -> None:
    """A real H200's trace, reading by reading, through the library."""
    with TraceReader(RECORDED) as trace:
        readings = list(trace)
    with FakeNode.from_reading(readings[0]) as node, node.in_process():
        nv.nvmlInit()
        handle = nv.nvmlDeviceGetHandleByIndex(0)
        for reading in readings:
            node.show(reading)
            recorded = msgspec.json.decode(msgspec.json.encode(reading.gpus[0]))
            answered = asked_of(handle, recorded["samples_since"])
            assert answered == {name: recorded.get(name) for name in answered}
            clock = nv.nvmlDeviceGetClockInfo(handle, nv.NVML_CLOCK_SM)
            assert clock == reading.gpus[0].extra["clocks.sm"]
    assert len(readings) > 50


def test_what_was_not_known_fails_as_it_did() -> None:
    """A null is NOT_SUPPORTED, or what the reading says the call failed with."""
    gpu = Gpu(
        index=0,
        uuid="GPU-x",
        samples=(),
        processes=(GpuProcess(pid=1, kinds=("mps",), memory=None),),
        failures={"energy_millijoules": "UNKNOWN", "windows": "NO_PERMISSION"},
    )
    lost = Gpu(index=1, uuid="GPU-y", failures={"device": "GPU_IS_LOST"})
    reading = Reading(at=1_763_000_000.0, monotonic=1.0, gpus=(gpu, lost))
    with FakeNode.from_reading(reading) as node, node.in_process():
        nv.nvmlInit()
        handle = nv.nvmlDeviceGetHandleByIndex(0)
        for ask, error in (
            (nv.nvmlDeviceGetMemoryInfo, nv.NVMLError_NotSupported),
            (nv.nvmlDeviceGetPowerUsage, nv.NVMLError_NotSupported),
            (nv.nvmlDeviceGetTotalEnergyConsumption, nv.NVMLError_Unknown),
            (lambda h: nv.nvmlDeviceGetSamples(h, 1, 0), nv.NVMLError_NoPermission),
            (lambda h: nv.nvmlDeviceGetProcessUtilization(h, 0), nv.NVMLError_NotFound),
        ):
            with pytest.raises(error):
                ask(handle)
        (listed,) = nv.nvmlDeviceGetMPSComputeRunningProcesses(handle)
        assert (listed.pid, listed.usedGpuMemory) == (1, None)
        with pytest.raises(nv.NVMLError_GpuIsLost):
            nv.nvmlDeviceGetHandleByIndex(1)


def test_samples_are_answered_literally() -> None:
    """Garbage and repeats of real drivers pass through the fake untouched."""
    samples = (Sample(pid=7, at=5, sm=300), Sample(pid=7, at=9, sm=20), Sample(pid=8, at=1, sm=0))
    with FakeNode() as node, node.in_process():
        node.gpus[0].samples = samples
        nv.nvmlInit()
        handle = nv.nvmlDeviceGetHandleByIndex(0)
        reply = nv.nvmlDeviceGetProcessUtilization(handle, 10**15)
        assert [(s.pid, s.timeStamp, s.smUtil) for s in reply] == [
            (7, 5, 300),
            (7, 9, 20),
            (8, 1, 0),
        ]
