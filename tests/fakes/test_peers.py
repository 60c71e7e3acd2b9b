"""gpustat and nvitop, unmodified, on the fake node."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests.fakes.nvml import FakeNode, FakeProcess
from tests.fakes.peers import gpustat_sees, nvitop_sees

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fakes.peers import SeenGpu

MIB = 1 << 20


@pytest.fixture
def pids() -> Iterator[list[int]]:
    """Start processes that exist: nvitop asks the operating system about each."""
    sleepers = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
    yield [sleeper.pid for sleeper in sleepers]
    for sleeper in sleepers:
        sleeper.kill()
        sleeper.wait()


@pytest.fixture(params=["580.159.04", "470.256.02"])
def node(request: pytest.FixtureRequest, pids: list[int]) -> Iterator[FakeNode]:
    """Two GPUs: three processes on the first, the second empty."""
    with FakeNode(gpus=2, driver=request.param, start=time.time()) as node:
        with node.change():
            for number, pid in enumerate(pids, start=1):
                node.start(pid, FakeProcess(memory=number * 700 * MIB, share=0.3))
            node.gpus[0].power_milliwatts = 423_000
            node.gpus[0].temperature_celsius = 61
            node.gpus[1].temperature_celsius = 33
            node.gpus[1].power_milliwatts = 79_000
            node.gpus[0].gpu_percent = 57
        yield node


@pytest.mark.parametrize("sees", [gpustat_sees, nvitop_sees])
def test_a_peer_sees_what_the_node_is(
    node: FakeNode, pids: list[int], sees: Callable[[FakeNode], dict[int, SeenGpu]]
) -> None:
    """An old and a new driver look to the tools as the real ones do, or nothing here can count."""
    seen = sees(node)

    assert seen.keys() == {0, 1}
    busy, idle = seen[0], seen[1]
    reserve = 0 if node.has("nvmlDeviceGetMemoryInfo_v2") else 644_939_776 / MIB
    assert busy.memory_used == pytest.approx(4200 + reserve, abs=60)
    assert idle.memory_used == pytest.approx(reserve, abs=1)
    assert busy.memory_total == pytest.approx(150_754_820_096 / MIB, rel=0.001)
    assert (busy.utilization, idle.utilization) == (57, 0)
    assert (busy.power, idle.power) == (423, 79)
    assert (busy.temperature, idle.temperature) == (61, 33)
    assert busy.processes == {pid: 700 * number for number, pid in enumerate(pids, start=1)}
    assert idle.processes == {}


@pytest.mark.parametrize("sees", [gpustat_sees, nvitop_sees])
def test_a_peer_sees_what_is_not_supported_as_such(
    node: FakeNode, sees: Callable[[FakeNode], dict[int, SeenGpu]]
) -> None:
    """An unset figure is NOT_SUPPORTED to everybody, and not 0."""
    node.gpus[1].gpu_percent = None
    node.gpus[1].power_milliwatts = None

    seen = sees(node)[1]

    assert seen.utilization is None
    assert seen.power is None
