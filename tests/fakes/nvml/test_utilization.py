"""Process utilization and windows, as they were measured on an H200 with driver 580."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pynvml as nv
import pytest

from tests.fakes.nvml import FakeGpu, FakeNode, FakeProcess, Window

if TYPE_CHECKING:
    from collections.abc import Iterator

SECOND = 1_000_000


@pytest.fixture
def node() -> Iterator[FakeNode]:
    """One GPU with the processes 10 and 11, in this process's pynvml."""
    with FakeNode() as node, node.in_process():
        node.start(10)
        node.start(11)
        nv.nvmlInit()
        yield node


def window(node: FakeNode, owner: int | None, gpu: int, memory: int = 0) -> None:
    """Let one more window of 200 ms pass."""
    windows = node.gpus[0].windows
    end = (windows[-1].end if windows else 0) + 200_000
    windows.append(Window(end=end, gpu=gpu, memory=memory, owner=owner))
    node.publish()


def samples(since: int = 0) -> dict[int, tuple[int, int]]:
    """Ask for (sm, end of the last window owned) by pid."""
    reply = nv.nvmlDeviceGetProcessUtilization(gpu(), since)
    also = nv.nvmlDeviceGetProcessesUtilizationInfo(gpu(), since)
    assert [(s.pid, s.smUtil, s.timeStamp) for s in also] == [
        (s.pid, s.smUtil, s.timeStamp) for s in reply
    ]
    return {sample.pid: (sample.smUtil, sample.timeStamp) for sample in reply}


def gpu() -> Any:
    return nv.nvmlDeviceGetHandleByIndex(0)


def test_a_part_is_of_all_windows_since(node: FakeNode) -> None:
    """A sample is the owned windows over all of them, idle ones too, and ends with the last."""
    window(node, 10, 90)
    window(node, None, 0)
    window(node, 11, 40)
    window(node, 10, 70)
    window(node, None, 0)

    assert samples() == {10: (32, 800_000), 11: (8, 600_000)}
    assert samples(since=600_000) == {10: (35, 800_000)}


def test_rounding(node: FakeNode) -> None:
    """SM is rounded up and the memory controller down, as the recordings have it."""
    for busy, memory in ((98, 1), (98, 1), (99, 1)):
        window(node, 10, busy, memory)
    window(node, None, 0)

    sample = nv.nvmlDeviceGetProcessUtilization(gpu(), 0)[0]
    assert (sample.smUtil, sample.memUtil) == (74, 0)


def test_the_dead_leave_the_denominator(node: FakeNode) -> None:
    """When a process dies the living look busier at once; the list of windows keeps its part."""
    for owner in (10, 10, 11, None):
        window(node, owner, 80 if owner else 0)
    assert samples() == {10: (40, 400_000), 11: (20, 600_000)}

    node.kill(10)

    assert samples() == {11: (40, 600_000)}
    _, kept = nv.nvmlDeviceGetSamples(gpu(), nv.NVML_GPU_UTILIZATION_SAMPLES, 0)
    assert [item.sampleValue.uiVal for item in kept] == [80, 80, 80, 0]
    assert [p.pid for p in nv.nvmlDeviceGetComputeRunningProcesses(gpu())] == [11]

    node.start(10)
    node.gpus[0].windows.append(Window(end=SECOND, gpu=50, owner=10))
    node.publish()
    assert samples() == {10: (17, SECOND), 11: (27, 600_000)}, "pid 10 is somebody else now"


def test_where_nobody_computes_the_last_has_a_zero(node: FakeNode) -> None:
    """An idle span is told by a sample of 0 of the process that computed last."""
    window(node, 11, 50)
    window(node, 10, 50)
    window(node, None, 0)
    assert samples(since=400_000) == {10: (0, 400_000)}

    node.kill(10)
    with pytest.raises(nv.NVMLError_NotFound):
        samples(since=400_000)


def test_nothing_new_and_nobody_are_not_found(node: FakeNode) -> None:
    """Both are no failures: the caller has to know them."""
    window(node, 10, 50)
    for since in (200_000, SECOND):
        with pytest.raises(nv.NVMLError_NotFound):
            samples(since)
    node.kill(10)
    node.kill(11)
    window(node, None, 0)
    with pytest.raises(nv.NVMLError_NotFound):
        samples()


def test_the_size_query_may_succeed(node: FakeNode) -> None:
    """A success without samples comes out of the binding as an error of value 0."""
    node.gpus[0].quirk = "success-when-empty"
    with pytest.raises(nv.NVMLError) as raised:
        nv.nvmlDeviceGetProcessUtilization(gpu(), 0)
    assert raised.value.value == nv.NVML_SUCCESS


def test_the_size_query_may_promise_and_not_keep(node: FakeNode) -> None:
    """On MIG devices a size query may say 100, and the call then that this is too few."""
    node.gpus[0].quirk = "says-100"
    with pytest.raises(nv.NVMLError_InsufficientSize):
        nv.nvmlDeviceGetProcessUtilization(gpu(), 0)


def test_mps_books_to_its_server() -> None:
    """The server owns the clients' windows; the clients are listed and have no samples."""
    fake = FakeGpu(mps_server=99)
    fake.processes = {
        99: FakeProcess(memory=30 << 20),
        10: FakeProcess(kinds=("compute", "mps"), share=0.5),
        11: FakeProcess(kinds=("compute", "mps"), share=0.3),
    }
    with FakeNode([fake]) as node, node.in_process():
        nv.nvmlInit()
        node.advance(10)
        assert samples().keys() == {99}
        assert samples()[99][0] == pytest.approx(79, abs=1)
        assert [p.pid for p in nv.nvmlDeviceGetMPSComputeRunningProcesses(gpu())] == [10, 11]


def test_another_pid_namespace(node: FakeNode) -> None:
    """There the lists are empty, while the samples still have the host's pids."""
    window(node, 10, 50)
    node.other_pid_namespace = True

    assert nv.nvmlDeviceGetComputeRunningProcesses(gpu()) == []
    assert samples() == {10: (50, 200_000)}


def test_windows_since(node: FakeNode) -> None:
    """The windows after a time, for GPU and memory controller alike; nothing new is NOT_FOUND."""
    window(node, 10, 50, 5)
    window(node, 10, 60, 6)

    for kind, expected in ((nv.NVML_GPU_UTILIZATION_SAMPLES, 60), (2, 6)):
        value_type, found = nv.nvmlDeviceGetSamples(gpu(), kind, 200_000)
        assert value_type == nv.NVML_VALUE_TYPE_UNSIGNED_INT
        assert [(w.timeStamp, w.sampleValue.uiVal) for w in found] == [(400_000, expected)]
        with pytest.raises(nv.NVMLError_NotFound):
            nv.nvmlDeviceGetSamples(gpu(), kind, 400_000)
    with pytest.raises(nv.NVMLError_NotSupported):
        nv.nvmlDeviceGetSamples(gpu(), nv.NVML_ENC_UTILIZATION_SAMPLES, 0)


def test_time_passes_the_same_way_every_time() -> None:
    """Windows by share, 71 of them kept; energy by power, refreshed every 100 ms."""
    runs = []
    for _ in range(2):
        with FakeNode(processes=2) as node, node.in_process():
            nv.nvmlInit()
            begin = round(node.now * 1e6)
            node.advance(0.25)
            assert nv.nvmlDeviceGetTotalEnergyConsumption(gpu()) == 24_000
            node.advance(0.05)
            assert nv.nvmlDeviceGetTotalEnergyConsumption(gpu()) == 36_000
            node.advance(29.7)
            assert nv.nvmlDeviceGetTotalEnergyConsumption(gpu()) == 3_600_000
            _, kept = nv.nvmlDeviceGetSamples(gpu(), nv.NVML_GPU_UTILIZATION_SAMPLES, 0)
            assert len(kept) == 71
            assert kept[-1].timeStamp == begin + 30 * SECOND
            assert kept[0].timeStamp == kept[-1].timeStamp - 70 * 200_000
            _, power = nv.nvmlDeviceGetSamples(gpu(), nv.NVML_TOTAL_POWER_SAMPLES, 0)
            assert (len(power), power[-1].sampleValue.uiVal) == (119, 120_000)
            busy = samples()
            assert {part for part, _ in busy.values()} <= {39, 40, 41}
            runs.append([busy, [(w.timeStamp, w.sampleValue.uiVal) for w in kept]])
    assert runs[0] == runs[1]
