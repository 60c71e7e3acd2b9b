"""The fake NVML seen through unmodified nvidia-ml-py: what it answers is what Python says."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pynvml as nv
import pytest

from tests.fakes.nvml import FakeGpu, FakeInstance, FakeNode, FakeProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RESERVE = 644_939_776


@pytest.fixture
def node() -> Iterator[FakeNode]:
    """Two GPUs with two processes each, in this process's pynvml."""
    with FakeNode(gpus=2, processes=2) as node, node.in_process():
        nv.nvmlInit()
        yield node


def gpu(index: int = 0) -> Any:
    return nv.nvmlDeviceGetHandleByIndex(index)


def test_identity(node: FakeNode) -> None:
    """A GPU is found by index, uuid and PCI address, and says the same of itself each time."""
    assert nv.nvmlSystemGetDriverVersion() == "580.159.04"
    assert nv.nvmlSystemGetCudaDriverVersion() == 13_000
    assert nv.nvmlDeviceGetCount() == 2
    second = gpu(1)
    for handle in (
        nv.nvmlDeviceGetHandleByUUID(node.gpus[1].uuid),
        nv.nvmlDeviceGetHandleByPciBusId(node.gpus[1].pci_bus_id),
        second,
    ):
        assert nv.nvmlDeviceGetIndex(handle) == 1
        assert nv.nvmlDeviceGetMinorNumber(handle) == 1
        assert nv.nvmlDeviceGetUUID(handle) == node.gpus[1].uuid
        assert nv.nvmlDeviceGetName(handle) == "NVIDIA H200"
    pci = nv.nvmlDeviceGetPciInfo(second)
    assert (pci.busId, pci.bus) == ("00000000:07:00.0", 7)
    assert nv.nvmlDeviceGetArchitecture(second) == nv.NVML_DEVICE_ARCH_HOPPER
    with pytest.raises(nv.NVMLError_InvalidArgument):
        gpu(2)
    with pytest.raises(nv.NVMLError_NotFound):
        nv.nvmlDeviceGetHandleByUUID("GPU-none")


def test_memory(node: FakeNode) -> None:
    """Version 1 counts the driver's reserve as used, version 2 does not."""
    v1 = nv.nvmlDeviceGetMemoryInfo(gpu())
    v2 = nv.nvmlDeviceGetMemoryInfo(gpu(), version=nv.nvmlMemory_v2)

    assert v2.used == node.gpus[0].memory_used == 2 << 30
    assert v2.reserved == RESERVE
    assert v2.total == v2.used + v2.reserved + v2.free
    assert (v1.total, v1.free, v1.used) == (v2.total, v2.free, v2.used + v2.reserved)


@pytest.mark.parametrize(
    ("attribute", "ask"),
    [
        ("energy_millijoules", nv.nvmlDeviceGetTotalEnergyConsumption),
        ("power_milliwatts", nv.nvmlDeviceGetPowerUsage),
        ("power_limit_milliwatts", nv.nvmlDeviceGetEnforcedPowerLimit),
        ("power_management_limit_milliwatts", nv.nvmlDeviceGetPowerManagementLimit),
        ("gpu_percent", lambda h: nv.nvmlDeviceGetUtilizationRates(h).gpu),
        ("memory_percent", lambda h: nv.nvmlDeviceGetUtilizationRates(h).memory),
        ("encoder_percent", lambda h: nv.nvmlDeviceGetEncoderUtilization(h)[0]),
        ("decoder_percent", lambda h: nv.nvmlDeviceGetDecoderUtilization(h)[0]),
        ("temperature_celsius", lambda h: nv.nvmlDeviceGetTemperature(h, 0)),
        ("temperature_celsius", lambda h: nv.nvmlDeviceGetTemperatureV(h, 0)),
        ("fan_percent", nv.nvmlDeviceGetFanSpeed),
        ("performance_state", nv.nvmlDeviceGetPerformanceState),
        ("persistence_mode", nv.nvmlDeviceGetPersistenceMode),
        ("display_active", nv.nvmlDeviceGetDisplayActive),
        ("compute_mode", nv.nvmlDeviceGetComputeMode),
        ("link_generation", nv.nvmlDeviceGetCurrPcieLinkGeneration),
        ("link_width", nv.nvmlDeviceGetCurrPcieLinkWidth),
        ("pcie_tx_kilobytes_per_second", lambda h: nv.nvmlDeviceGetPcieThroughput(h, 0)),
        ("pcie_rx_kilobytes_per_second", lambda h: nv.nvmlDeviceGetPcieThroughput(h, 1)),
        ("mig_current", lambda h: nv.nvmlDeviceGetMigMode(h)[0]),
    ],
)
def test_a_figure_shows_at_once_and_unset_is_not_supported(
    node: FakeNode, attribute: str, ask: Callable[[Any], int]
) -> None:
    """What Python sets is the answer of the very next call, of that GPU alone."""
    handle, other = gpu(0), gpu(1)
    setattr(node.gpus[1], attribute, 1)
    setattr(node.gpus[0], attribute, 7)
    assert (ask(handle), ask(other)) == (7, 1)

    setattr(node.gpus[0], attribute, None)
    with pytest.raises(nv.NVMLError_NotSupported):
        ask(handle)
    assert ask(other) == 1


def test_tables(node: FakeNode) -> None:
    """Clocks, thresholds and ECC counters are told apart by kind."""
    node.gpus[0].clocks = {"sm": 1515, "memory": 3200}
    node.gpus[0].ecc = {"uncorrected_aggregate": 5}

    assert nv.nvmlDeviceGetClockInfo(gpu(), nv.NVML_CLOCK_SM) == 1515
    assert nv.nvmlDeviceGetClockInfo(gpu(), nv.NVML_CLOCK_MEM) == 3200
    assert nv.nvmlDeviceGetMaxClockInfo(gpu(), nv.NVML_CLOCK_SM) == 1980
    assert nv.nvmlDeviceGetTotalEccErrors(gpu(), 1, 1) == 5
    assert nv.nvmlDeviceGetTemperatureThreshold(gpu(), 1) == 89
    with pytest.raises(nv.NVMLError_NotSupported):
        nv.nvmlDeviceGetClockInfo(gpu(), nv.NVML_CLOCK_VIDEO)
    with pytest.raises(nv.NVMLError_NotSupported):
        nv.nvmlDeviceGetTotalEccErrors(gpu(), 0, 0)


def test_field_values(node: FakeNode) -> None:
    """Fields fail one by one: an unknown id does not take the others with it."""
    node.gpus[0].energy_millijoules = 2**40
    node.gpus[0].power_instant_milliwatts = None
    node.gpus[0].fields = {(138, 2): 77}

    values = nv.nvmlDeviceGetFieldValues(gpu(), [83, 185, 186, 9999, (138, 2), (138, 3)])

    assert [value.nvmlReturn for value in values] == [0, 0, 3, 3, 0, 3]
    assert values[0].value.ullVal == 2**40
    assert values[0].valueType == nv.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
    assert values[1].value.uiVal == 120_000
    assert values[1].valueType == nv.NVML_VALUE_TYPE_UNSIGNED_INT
    assert values[4].value.ullVal == 77
    assert values[0].timestamp == round(node.now * 1e6)


def test_process_lists(node: FakeNode) -> None:
    """The lists are three, a process may be in several, and memory may be not available."""
    node.gpus[0].processes = {
        10: FakeProcess(kinds=("compute", "graphics"), memory=5),
        11: FakeProcess(kinds=("compute", "mps"), memory=None),
    }

    compute = nv.nvmlDeviceGetComputeRunningProcesses(gpu())
    assert [(p.pid, p.usedGpuMemory) for p in compute] == [(10, 5), (11, None)]
    assert {p.gpuInstanceId for p in compute} == {p.computeInstanceId for p in compute}
    assert compute[0].gpuInstanceId == 0xFFFFFFFF
    assert [p.pid for p in nv.nvmlDeviceGetGraphicsRunningProcesses(gpu())] == [10]
    assert [p.pid for p in nv.nvmlDeviceGetMPSComputeRunningProcesses(gpu())] == [11]
    assert [p.pid for p in nv.nvmlDeviceGetComputeRunningProcesses_v2(gpu())] == [10, 11]


def test_the_process_struct_of_early_535() -> None:
    """Drivers 535.43 to 535.86 give memory as pids: a reader that believes them must show."""
    with FakeNode(driver="535.54.03") as node, node.in_process():
        node.gpus[0].processes = {pid: FakeProcess(memory=1 << 30) for pid in (10, 11)}
        nv.nvmlInit()
        swapped = nv.nvmlDeviceGetComputeRunningProcesses_v3(gpu())
        assert [p.pid for p in swapped] != [10, 11]
        assert [p.pid for p in nv.nvmlDeviceGetComputeRunningProcesses_v2(gpu())] == [10, 11]


def test_mig() -> None:
    """An instance has a handle of its own, with its memory and its processes only."""
    instances = [
        FakeInstance(gi=gi, uuid=f"MIG-{gi}", profile="3g.71gb", slices=3, memory_used=gi)
        for gi in (1, 2)
    ]
    whole = FakeGpu(mig_current=1, mig_pending=1, instances=instances)
    whole.processes = {10: FakeProcess(instance=2)}
    with FakeNode([whole]) as node, node.in_process():
        nv.nvmlInit()
        handle = nv.nvmlDeviceGetMigDeviceHandleByIndex(gpu(), 1)
        assert nv.nvmlDeviceGetUUID(handle) == "MIG-2"
        assert nv.nvmlDeviceGetName(handle) == "NVIDIA H200 MIG 3g.71gb"
        assert nv.nvmlDeviceIsMigDeviceHandle(handle)
        assert nv.nvmlDeviceGetIndex(handle) == 1
        assert nv.nvmlDeviceGetGpuInstanceId(handle) == 2
        assert nv.nvmlDeviceGetAttributes(handle).gpuInstanceSliceCount == 3
        assert nv.nvmlDeviceGetMemoryInfo(handle, version=nv.nvmlMemory_v2).used == 2
        processes = nv.nvmlDeviceGetComputeRunningProcesses(handle)
        assert [(p.pid, p.gpuInstanceId, p.computeInstanceId) for p in processes] == [(10, 2, 0)]
        for cut in (handle, gpu()):
            with pytest.raises(nv.NVMLError_NotSupported):
                nv.nvmlDeviceGetProcessUtilization(cut, 0)
            with pytest.raises(nv.NVMLError_NotSupported):
                nv.nvmlDeviceGetUtilizationRates(cut)
            with pytest.raises(nv.NVMLError_NotSupported):
                nv.nvmlDeviceGetSamples(cut, nv.NVML_GPU_UTILIZATION_SAMPLES, 0)
        with pytest.raises(nv.NVMLError_NotFound):
            nv.nvmlDeviceGetMigDeviceHandleByIndex(gpu(), 2)


def test_a_state_is_seen_whole(node: FakeNode) -> None:
    """A reader never sees half of a change, however fast the changes come."""
    handle = gpu()
    done = threading.Event()

    def change() -> None:
        used = 0
        while not done.is_set():
            used = (used + (1 << 20)) % (64 << 30)
            node.gpus[0].memory_used = used

    writer = threading.Thread(target=change)
    writer.start()
    try:
        for _ in range(3000):
            memory = nv.nvmlDeviceGetMemoryInfo(handle, version=nv.nvmlMemory_v2)
            assert memory.total == memory.used + memory.free + memory.reserved
    finally:
        done.set()
        writer.join()
