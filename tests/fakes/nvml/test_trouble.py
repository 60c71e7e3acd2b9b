"""The fake NVML seen through unmodified nvidia-ml-py: symbols missing, reloads, errors, hangs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pynvml as nv
import pytest

from tests.fakes.nvml import FakeNode, build

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def node() -> Iterator[FakeNode]:
    """Two GPUs with two processes each, in this process's pynvml."""
    with FakeNode(gpus=2, processes=2) as node, node.in_process():
        nv.nvmlInit()
        yield node


def gpu(index: int = 0) -> Any:
    return nv.nvmlDeviceGetHandleByIndex(index)


@pytest.mark.parametrize(
    ("driver", "function", "there"),
    [
        ("470.256.02", "nvmlDeviceGetMemoryInfo_v2", False),
        ("470.256.02", "nvmlDeviceGetComputeRunningProcesses_v3", False),
        ("470.256.02", "nvmlDeviceGetComputeRunningProcesses_v2", True),
        ("510.39.01", "nvmlDeviceGetMemoryInfo_v2", True),
        ("535.161.08", "nvmlDeviceGetProcessesUtilizationInfo", False),
        ("550.54.14", "nvmlDeviceGetProcessesUtilizationInfo", True),
        ("550.54.14", "nvmlDeviceGetDriverModel_v2", False),
        ("565.57.01", "nvmlDeviceGetTemperatureV", False),
        ("580.159.04", "nvmlDeviceGetTemperatureV", True),
    ],
)
def test_a_symbol_is_missing_before_its_driver(driver: str, function: str, there: bool) -> None:
    """Absent and unsupported are two things, and tools fall back on the former only."""
    with FakeNode(driver=driver) as node, node.in_process():
        nv.nvmlInit()
        assert nv.nvmlSystemGetDriverVersion() == driver
        assert node.has(function) is there
        assert hasattr(nv.nvmlLib, function) is there
    assert (function in build.exports(int(driver[:3]))) is there


def test_without_a_node_the_driver_is_not_loaded() -> None:
    """The library alone is a machine whose kernel module is missing."""
    with FakeNode() as node, node.in_process():
        with pytest.raises(nv.NVMLError_Uninitialized):
            nv.nvmlDeviceGetCount()
        del os.environ["FAKE_NVML_STATE"]
        with pytest.raises(nv.NVMLError_DriverNotLoaded):
            nv.nvmlInit()
        os.environ["FAKE_NVML_STATE"] = "/nowhere"
        with pytest.raises(nv.NVMLError_DriverNotLoaded):
            nv.nvmlInit()


def test_a_call_needs_init(node: FakeNode) -> None:
    """Inits are counted: the last shutdown ends it."""
    handle = gpu()
    nv.nvmlInit()
    nv.nvmlShutdown()
    nv.nvmlDeviceGetPowerUsage(handle)
    nv.nvmlShutdown()
    with pytest.raises(nv.NVMLError_Uninitialized):
        nv.nvmlDeviceGetPowerUsage(handle)
    with pytest.raises(nv.NVMLError_Uninitialized):
        nv.nvmlShutdown()
    assert node.calls("nvmlInitWithFlags") == 2


def test_a_driver_reload(node: FakeNode) -> None:
    """After a reload every call says so until the library is initialised again."""
    node.gpus[0].energy_millijoules = 10**9
    handle = gpu()
    node.reload_driver()
    for _ in range(2):
        with pytest.raises(nv.NVMLError_Uninitialized):
            nv.nvmlDeviceGetTotalEnergyConsumption(handle)
    nv.nvmlShutdown()
    nv.nvmlInit()
    assert nv.nvmlDeviceGetTotalEnergyConsumption(gpu()) == 0


def test_errors_on_demand(node: FakeNode) -> None:
    """An error is of a function, of a GPU, of both or of neither, and heals."""
    first, second = gpu(0), gpu(1)
    node.fail("*", "GPU_IS_LOST", gpu=1)
    node.fail("nvmlDeviceGetPowerUsage", nv.NVML_ERROR_UNKNOWN)
    with pytest.raises(nv.NVMLError_GpuIsLost):
        nv.nvmlDeviceGetTotalEnergyConsumption(second)
    with pytest.raises(nv.NVMLError_GpuIsLost):
        gpu(1)
    with pytest.raises(nv.NVMLError_Unknown):
        nv.nvmlDeviceGetPowerUsage(first)
    nv.nvmlDeviceGetTotalEnergyConsumption(first)
    assert nv.nvmlDeviceGetCount() == 2

    node.heal("nvmlDeviceGetPowerUsage")
    nv.nvmlDeviceGetPowerUsage(first)
    with pytest.raises(nv.NVMLError_GpuIsLost):
        nv.nvmlDeviceGetPowerUsage(second)
    node.heal(gpu=1)
    nv.nvmlDeviceGetPowerUsage(second)


@pytest.mark.parametrize("hold_lock", [False, True])
def test_a_hang(node: FakeNode, hold_lock: bool) -> None:
    """A hung call returns when it is healed; with the library's lock it takes all others along."""
    first, second = gpu(0), gpu(1)
    node.hang("nvmlDeviceGetPowerUsage", gpu=1, hold_lock=hold_lock)
    hung = threading.Thread(target=nv.nvmlDeviceGetPowerUsage, args=(second,))
    hung.start()
    while not node.calls("nvmlDeviceGetPowerUsage", gpu=1):
        time.sleep(0.001)
    other = threading.Thread(target=nv.nvmlDeviceGetTemperature, args=(first, 0))
    other.start()
    other.join(0.1)
    assert hung.is_alive()
    assert other.is_alive() is hold_lock

    node.heal()
    hung.join(1)
    other.join(1)
    assert not hung.is_alive()
    assert not other.is_alive()


def test_costs(node: FakeNode) -> None:
    """A call can take time, and a part of it can be CPU; others stay cheap."""
    node.cost("nvmlDeviceGetTotalEnergyConsumption", wait_us=20_000, cpu_us=5_000)
    begin, cpu = time.monotonic(), time.thread_time()
    nv.nvmlDeviceGetTotalEnergyConsumption(gpu())
    assert time.monotonic() - begin >= 0.025
    assert 0.005 <= time.thread_time() - cpu < 0.02


def test_calls_are_counted_by_gpu_in_every_process(node: FakeNode) -> None:
    """A test can say what an exporter asks, though it runs elsewhere."""
    program = (
        "import pynvml as n; n.nvmlInit();"
        "[n.nvmlDeviceGetPowerUsage(n.nvmlDeviceGetHandleByIndex(i)) for i in (0, 1, 1)]"
    )
    environ = os.environ | node.environ()
    subprocess.run([sys.executable, "-c", program], env=environ, check=True)

    assert node.calls("nvmlDeviceGetPowerUsage", gpu=0) == 1
    assert node.calls("nvmlDeviceGetPowerUsage", gpu=1) == 2
    assert node.calls("nvmlDeviceGetPowerUsage") == 3
