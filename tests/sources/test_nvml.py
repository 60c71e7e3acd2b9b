"""What NVML says comes into a reading as it is: a failure as one, an unknown as unknown."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pynvml
import pytest

from gpuledger.clock import Clock
from gpuledger.readings import Gpu, GpuProcess, Memory, Reading, Sample
from gpuledger.sources.nvml import NvmlSource
from gpuledger.sources.nvml.arrays import Arrays
from gpuledger.sources.nvml.driver import settled
from gpuledger.traces import TraceReader
from tests.fakes.nvml.gpu import GIB, FakeGpu, FakeProcess
from tests.fakes.nvml.node import FakeNode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DATA = Path(__file__).parents[1] / "data"


class NodeClock(Clock):
    """The fake node's clock: time passes when the test says so."""

    def __init__(self, node: FakeNode) -> None:
        self._node = node
        self.stepped = 0.0

    def wall(self) -> float:
        return self._node.now

    def monotonic(self) -> float:
        return self._node.now + self.stepped - 1_762_999_000


class Reader:
    """A source that reads a fake node in this process."""

    def __init__(self, node: FakeNode, interval: float = 5.0) -> None:
        self.node = node
        self.clock = NodeClock(node)
        self.source = NvmlSource(interval, self.clock)
        self.loop = asyncio.new_event_loop()

    def read(self, after: float = 0.0) -> Reading:
        if after:
            self.node.advance(after)
        return self.loop.run_until_complete(self.source.read())

    def close(self) -> None:
        self.loop.run_until_complete(self.source.close())
        self.loop.close()


@contextmanager
def reading(node: FakeNode, interval: float = 5.0) -> Iterator[Reader]:
    with node, node.in_process():
        reader = Reader(node, interval)
        try:
            yield reader
        finally:
            node.heal()
            reader.close()


def only(found: Reading) -> Gpu:
    (gpu,) = found.gpus
    return gpu


def test_every_figure() -> None:
    """Each figure that the driver gives stands at its place, in the units of the contract."""
    gpu = FakeGpu(uuid="GPU-a", minor=3, pci_bus_id="00000000:06:00.0")
    gpu.processes[4021] = FakeProcess(memory=5 * GIB)
    with reading(FakeNode([gpu], driver="580.159.04")) as reader:
        gpu.memory_total, gpu.memory_reserved = 143771 << 20, 615 << 20
        gpu.memory_used, gpu.memory_free = 5 * GIB, (143771 << 20) - (615 << 20) - 5 * GIB
        gpu.energy_millijoules, gpu.power_milliwatts = 123456789, 70123
        gpu.power_instant_milliwatts, gpu.power_limit_milliwatts = 71000, 700000
        gpu.gpu_percent, gpu.memory_percent = 41, 12
        gpu.encoder_percent, gpu.decoder_percent = 3, 4
        gpu.temperature_celsius, gpu.memory_temperature_celsius = 33, 44
        found = reader.read()
        seen = only(found)
    assert found.failures == {}
    assert seen.failures == {}
    assert (seen.index, seen.uuid, seen.model, seen.minor) == (0, "GPU-a", "NVIDIA H200", 3)
    assert (seen.pci_bus_id, seen.driver) == ("00000000:06:00.0", "580.159.04")
    assert seen.memory == Memory(
        total=143771 << 20,
        used=5 * GIB,
        reserved=615 << 20,
        free=(143771 << 20) - (615 << 20) - 5 * GIB,
    )
    assert (seen.energy_millijoules, seen.power_milliwatts) == (123456789, 70123)
    assert (seen.power_instant_milliwatts, seen.power_limit_milliwatts) == (71000, 700000)
    assert seen.utilization is not None
    assert (seen.utilization.gpu, seen.utilization.memory) == (41, 12)
    assert (seen.utilization.encoder, seen.utilization.decoder) == (3, 4)
    assert seen.temperature_celsius == 33
    assert seen.mig is False
    assert seen.processes == (GpuProcess(pid=4021, kinds=("compute",), memory=5 * GIB),)
    assert seen.extra == {
        "arch": "hopper",
        "clocks.memory": 3201,
        "clocks.sm": 1980,
        "temperature.memory": 44,
        "version.cuda": "13.0",
        "version.nvml": "13.580.159.04",
    }


@pytest.mark.parametrize("path", sorted(DATA.glob("h200-*.jsonl.gz")), ids=lambda p: p.name)
def test_recorded_traces_come_out_as_they_went_in(path: Path) -> None:
    """What a real H200 said, said again by the library, is read as the same facts."""
    with TraceReader(path) as trace:
        recorded = list(trace)
    node = FakeNode.from_reading(recorded[0])
    with reading(node, interval=5.0) as reader:
        for number, original in enumerate(recorded):
            node.show(original)
            found = reader.read()
            wanted, seen = only(original), only(found)
            assert seen.answered
            for field in Gpu.__struct_fields__:
                if field in {"extra", "failures", "profile", "samples_since"}:
                    continue
                assert getattr(seen, field) == getattr(wanted, field), (number, field)
            figures = {k: v for k, v in wanted.extra.items() if not isinstance(v, str)}
            assert figures.items() <= seen.extra.items()
            # Windows that the driver did not tell leave us to ask since the newest sample.
            if number and wanted.windows and recorded[number - 1].gpus[0].windows:
                assert seen.samples_since == wanted.samples_since, number


CALLS: dict[str, tuple[str, Callable[[Gpu], object]]] = {
    "memory": ("nvmlDeviceGetMemoryInfo_v2", lambda g: g.memory),
    "energy_millijoules": (
        "nvmlDeviceGetTotalEnergyConsumption",
        lambda g: g.energy_millijoules,
    ),
    "power_limit_milliwatts": (
        "nvmlDeviceGetEnforcedPowerLimit",
        lambda g: g.power_limit_milliwatts,
    ),
    "utilization.device": ("nvmlDeviceGetUtilizationRates", lambda g: g.utilization.gpu),  # type: ignore[union-attr]
    "utilization.encoder": (
        "nvmlDeviceGetEncoderUtilization",
        lambda g: g.utilization.encoder,  # type: ignore[union-attr]
    ),
    "utilization.decoder": (
        "nvmlDeviceGetDecoderUtilization",
        lambda g: g.utilization.decoder,  # type: ignore[union-attr]
    ),
    "temperature_celsius": ("nvmlDeviceGetTemperature", lambda g: g.temperature_celsius),
    "clocks.sm": ("nvmlDeviceGetClockInfo", lambda g: g.extra.get("clocks.sm")),
    "processes": ("nvmlDeviceGetComputeRunningProcesses_v3", lambda g: g.processes),
    "samples": ("nvmlDeviceGetProcessUtilization", lambda g: g.samples),
    "windows": ("nvmlDeviceGetSamples", lambda g: g.windows),
}


@pytest.mark.parametrize("fact", CALLS)
def test_a_call_fails_alone(fact: str) -> None:
    """One failing call leaves its own figure unknown, never 0, and every other as it is."""
    function, figure = CALLS[fact]
    with reading(FakeNode(1, processes=2)) as reader:
        reader.read()
        whole = only(reader.read(5))
        reader.node.fail(function, "UNKNOWN")
        reader.source._devices[0]._kept.clear()
        broken = only(reader.read(5))
        reader.node.heal()
        again = only(reader.read(5))
    assert figure(whole) is not None
    assert figure(broken) is None
    assert broken.failures[fact] == "UNKNOWN"
    assert figure(again) is not None
    assert again.failures == whole.failures == {}
    for other, (its_function, its_figure) in CALLS.items():
        if its_function != function:
            assert its_figure(broken) is not None, other


def test_unsupported_is_asked_once_until_the_driver_reloads() -> None:
    """What a device does not have is not asked of it again and again, but anew of a new driver."""
    function = "nvmlDeviceGetEncoderUtilization"
    with reading(FakeNode(1)) as reader:
        node = reader.node
        node.fail(function, "NOT_SUPPORTED")
        for _ in range(5):
            seen = only(reader.read(5))
            assert seen.failures == {"utilization.encoder": "NOT_SUPPORTED"}
            assert seen.utilization is not None
            assert seen.utilization.encoder is None
        assert node.calls(function) == 1
        node.heal()
        node.reload_driver()
        assert reader.read(5).failures == {"connection": "UNINITIALIZED"}
        seen = only(reader.read(5))
        assert seen.failures == {}
        assert seen.utilization is not None
        assert seen.utilization.encoder is not None


def test_what_changes_slowly_is_asked_rarely() -> None:
    """The power limit costs a call a minute, not one a poll, and is in every reading."""
    with reading(FakeNode(1)) as reader:
        limits = {only(reader.read(5)).power_limit_milliwatts for _ in range(24)}
        assert limits == {700_000}
        assert reader.node.calls("nvmlDeviceGetEnforcedPowerLimit") == 2
        assert reader.node.calls("nvmlDeviceGetTotalEnergyConsumption") == 24


def test_processes_are_merged_by_pid() -> None:
    """A process in two lists is one process; its memory, if unavailable, is unknown."""
    gpu = FakeGpu(uuid="GPU-a")
    gpu.processes = {
        10: FakeProcess(kinds=("compute", "graphics"), memory=GIB),
        11: FakeProcess(kinds=("graphics",), memory=None),
        12: FakeProcess(kinds=("mps",), memory=2 * GIB),
        13: FakeProcess(kinds=("compute", "mps"), memory=3 * GIB),
    }
    with reading(FakeNode([gpu])) as reader:
        seen = only(reader.read())
    assert seen.processes is not None
    assert {p.pid: (p.kinds, p.memory) for p in seen.processes} == {
        10: (("compute", "graphics"), GIB),
        11: (("graphics",), None),
        12: (("mps",), 2 * GIB),
        13: (("compute", "mps"), 3 * GIB),
    }


def test_a_list_that_fails_is_not_an_empty_one() -> None:
    """Where a list fails, who is on the device is unknown; a kind it lacks is nobody."""
    function = "nvmlDeviceGetGraphicsRunningProcesses_v3"
    with reading(FakeNode(1, processes=2)) as reader:
        reader.node.fail(function, "UNKNOWN")
        assert only(reader.read()).processes is None
        reader.node.heal()
        reader.node.fail(function, "NOT_SUPPORTED")
        found = only(reader.read())
        assert found.processes is not None
        assert len(found.processes) == 2
        assert found.failures == {}


@pytest.mark.parametrize("driver", ["535.43.02", "535.86.10", "470.82.01", "535.98", "580.1"])
def test_process_lists_by_driver(driver: str) -> None:
    """Old drivers without `_v3`, and those whose `_v3` lies, still tell pid and memory right."""
    gpu = FakeGpu(uuid="GPU-a")
    gpu.processes = {4021: FakeProcess(memory=GIB), 5000: FakeProcess(memory=3 * GIB)}
    with reading(FakeNode([gpu], driver=driver)) as reader:
        seen = only(reader.read())
    assert seen.processes is not None
    assert {p.pid: p.memory for p in seen.processes} == {4021: GIB, 5000: 3 * GIB}


def test_an_old_drivers_memory_is_not_taken_for_what_it_is_not() -> None:
    """Without version 2 nobody knows how much of `used` is the driver's reserve."""
    with reading(FakeNode(1, driver="470.82.01")) as reader:
        memory = only(reader.read()).memory
    assert memory is not None
    assert memory.used is None
    assert memory.total == reader.node.gpus[0].memory_total


def test_power_where_there_is_no_field() -> None:
    """Where the field for average power is missing the older call is asked, and is no failure."""
    with reading(FakeNode(1)) as reader:
        reader.node.gpus[0].power_milliwatts = 88_000
        reader.node.fail("nvmlDeviceGetFieldValues", "NOT_SUPPORTED")
        seen = only(reader.read())
    assert seen.power_milliwatts == 88_000
    assert seen.power_instant_milliwatts is None
    assert seen.failures == {"fields": "NOT_SUPPORTED"}


def test_samples_are_asked_since_the_newest_window() -> None:
    """Spans follow one another without hole or overlap, so no window counts twice or never."""
    gpu = FakeGpu(uuid="GPU-a")
    gpu.processes = {10: FakeProcess(share=0.6), 11: FakeProcess(share=0.3)}
    with reading(FakeNode([gpu])) as reader:
        reader.read(5)
        before: Gpu | None = None
        for pause in (5, 5, 1, 0.25, 7.3):
            seen = only(reader.read(pause))
            assert seen.windows is not None
            assert seen.samples is not None
            assert seen.samples_since is not None
            ends = [end for end, _, _ in seen.windows]
            assert ends == sorted(ends)
            assert all(end > seen.samples_since for end in ends)
            assert len(ends) == pytest.approx(pause / 0.2, abs=1)
            if before is not None and before.windows:
                assert seen.samples_since == before.windows[-1][0]
            if ends:
                mean = sum(busy for _, busy, _ in seen.windows) / len(ends)
                assert sum(s.sm or 0 for s in seen.samples) == pytest.approx(mean, abs=2)
                before = seen


def test_polls_further_apart_than_the_driver_remembers() -> None:
    """A look in between keeps what would be forgotten: one span, one sample a process."""
    gpu = FakeGpu(uuid="GPU-a")
    gpu.processes = {10: FakeProcess(share=0.25), 11: FakeProcess(share=0.5)}
    with reading(FakeNode([gpu]), interval=30) as reader:
        node = reader.node
        before = only(reader.read(5))
        for _ in range(3):
            node.advance(10)
            if _ < 2:
                reader.loop.run_until_complete(reader.source.glance())
        seen = only(reader.read())
        assert before.windows is not None
        assert seen.windows is not None
        assert seen.samples is not None
        assert seen.samples_since == before.windows[-1][0]
        assert len(seen.windows) == 150
        owned = {10: 0.25, 11: 0.5}
        assert {s.pid for s in seen.samples} == owned.keys()
        for sample in seen.samples:
            assert sample.sm == pytest.approx(99 * owned[sample.pid], abs=2)
        after = only(reader.read(5))
        assert after.samples_since == seen.windows[-1][0]


def test_a_look_in_between_that_fails_loses_nothing_more() -> None:
    """A look that failed leaves its span to the next one; one that hangs delays nobody."""
    gpu = FakeGpu(uuid="GPU-a")
    gpu.processes = {10: FakeProcess(share=0.5)}
    with reading(FakeNode([gpu]), interval=20) as reader:
        node = reader.node
        before = only(reader.read(5))
        assert before.windows is not None
        node.advance(5)
        node.fail("nvmlDeviceGetProcessUtilization", "UNKNOWN")
        reader.loop.run_until_complete(reader.source.glance())
        node.heal()
        seen = only(reader.read(5))
        assert seen.samples_since == before.windows[-1][0]
        assert seen.windows is not None
        assert len(seen.windows) == 50
        node.hang("nvmlDeviceGetProcessUtilization")
        begin = time.monotonic()
        reader.loop.run_until_complete(reader.source.glance())
        assert time.monotonic() - begin < 1
        assert only(reader.read(5)).failures == {"device": "TIMEOUT"}


def test_windows_without_samples() -> None:
    """Where samples are not supported each window still comes once."""
    with reading(FakeNode(1, processes=1)) as reader:
        reader.node.fail("nvmlDeviceGetProcessUtilization", "NOT_SUPPORTED")
        reader.read(5)
        reader.read(5)
        for _ in range(3):
            seen = only(reader.read(5))
            assert seen.samples is None
            assert seen.windows is not None
            assert len(seen.windows) == 25


def test_nothing_new_is_an_answer() -> None:
    """A poll shorter than a window, and a device without a context, give [], not a failure."""
    with reading(FakeNode(1)) as reader:
        reader.read(5)
        seen = only(reader.read(0.05))
        assert seen.samples == ()
        assert seen.windows == ()
        assert seen.failures == {}
        reader.node.gpus[0].quirk = "success-when-empty"
        seen = only(reader.read(5))
        assert seen.samples == ()
        assert seen.failures == {}


def test_without_windows_since_the_newest_sample() -> None:
    """A driver that has no windows is asked since its newest sample."""
    gpu = FakeGpu(uuid="GPU-a")
    gpu.processes = {10: FakeProcess(share=0.9)}
    with reading(FakeNode([gpu])) as reader:
        reader.node.fail("nvmlDeviceGetSamples", "NOT_SUPPORTED")
        seen = only(reader.read(5))
        assert seen.windows is None
        assert seen.samples
        newest = max(sample.at for sample in seen.samples)
        again = only(reader.read(5))
        assert again.samples_since == newest
        assert reader.node.calls("nvmlDeviceGetSamples") == 1


def test_a_window_that_ends_between_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples and windows of a reading are of the same span, even if a window ends in between."""
    gpu = FakeGpu(uuid="GPU-a")
    gpu.processes = {10: FakeProcess(share=1.0)}
    node = FakeNode([gpu])
    ask = Arrays.samples
    late = [0.2]

    def slow(arrays: Arrays, since: int) -> list[tuple[Any, ...]]:
        while late:
            node.advance(late.pop())
        return ask(arrays, since)

    with reading(node) as reader:
        reader.read(5)
        node.advance(1)
        monkeypatch.setattr(Arrays, "samples", slow)
        seen = only(reader.read())
    assert seen.windows is not None
    assert seen.samples is not None
    assert seen.samples[0].at == seen.windows[-1][0]
    assert len(seen.windows) == 6


def test_another_pid_namespace() -> None:
    """Where the lists are empty the samples still come, with the pids of the host."""
    gpu = FakeGpu(uuid="GPU-a")
    gpu.processes = {10: FakeProcess(share=0.9)}
    with reading(FakeNode([gpu])) as reader:
        reader.node.other_pid_namespace = True
        reader.read(5)
        seen = only(reader.read(5))
    assert seen.processes == ()
    assert seen.samples is not None
    assert [sample.pid for sample in seen.samples] == [10]


@pytest.mark.parametrize("step", [-3600, 3600])
def test_a_step_of_the_wall_clock(step: int) -> None:
    """After a step samples are asked afresh: a clock put back does not blind us for an hour."""
    with reading(FakeNode(1, processes=1)) as reader:
        reader.read(5)
        reader.read(5)
        # The driver tells times on the same clock, and keeps those that it told before.
        reader.node._now_us += step * 1_000_000
        reader.clock.stepped -= step
        stepped = only(reader.read(5))
        assert stepped.samples_since == pytest.approx((reader.clock.wall() - 5) * 1e6, abs=1)
        for _ in range(3):
            seen = only(reader.read(5))
            assert seen.windows is not None
            assert len(seen.windows) == 25
            assert seen.samples
            assert seen.windows[-1][0] == pytest.approx(reader.clock.wall() * 1e6, abs=200_000)


def test_no_driver_then_a_driver() -> None:
    """A driver that comes late is found by itself; until then the reading says what is missing."""
    with reading(FakeNode(2)) as reader:
        reader.node.fail("nvmlInitWithFlags", "DRIVER_NOT_LOADED")
        reader.node.fail("nvmlInit_v2", "DRIVER_NOT_LOADED")
        found = reader.read()
        assert found.gpus == ()
        assert found.failures == {"init": "DRIVER_NOT_LOADED"}
        reader.node.heal()
        found = reader.read(5)
        assert [gpu.answered for gpu in found.gpus] == [True, True]
        assert found.failures == {}


def test_a_driver_that_reloads() -> None:
    """After a reload we connect anew by ourselves; in between the devices are known, and silent."""
    with reading(FakeNode(2, processes=1)) as reader:
        reader.read(5)
        reader.node.reload_driver()
        found = reader.read(5)
        assert [gpu.answered for gpu in found.gpus] == [False, False]
        assert [gpu.model for gpu in found.gpus] == ["NVIDIA H200", "NVIDIA H200"]
        assert found.gpus[0].failures == {"device": "UNINITIALIZED"}
        found = reader.read(5)
        assert [gpu.answered for gpu in found.gpus] == [True, True]


def test_a_lost_gpu_and_its_neighbour() -> None:
    """A GPU that fell off the bus says nothing; the one beside it misses nothing."""
    with reading(FakeNode(2, processes=1)) as reader:
        reader.read(5)
        reader.node.fail("*", "GPU_IS_LOST", gpu=0)
        lost, there = reader.read(5).gpus
        assert not lost.answered
        assert (lost.failures, lost.index) == ({"device": "GPU_IS_LOST"}, 0)
        assert there.answered
        assert there.failures == {}


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("nvmlDeviceGetName", "GPU_IS_LOST"),
        ("nvmlDeviceGetArchitecture", "RESET_REQUIRED"),
        ("nvmlDeviceGetUUID", "GPU_IS_LOST"),
        ("nvmlDeviceGetHandleByIndex_v2", "GPU_IS_LOST"),
    ],
)
def test_a_gpu_that_is_lost_when_we_come(function: str, error: str) -> None:
    """A GPU that cannot be opened costs nobody else, and is found when it is back."""
    with reading(FakeNode(2, processes=1)) as reader:
        reader.node.fail(function, error, gpu=0)
        for _ in range(2):
            (there,) = reader.read(5).gpus
            assert (there.index, there.answered) == (1, True)
        reader.node.heal()
        assert [gpu.answered for gpu in reader.read(30).gpus] == [True, True]


def test_lost_gpus_are_looked_for_ever_more_rarely() -> None:
    """To look is to start the library anew: soon at first, at most every ten minutes later."""
    with reading(FakeNode(2)) as reader:
        reader.read(5)
        reader.node.fail("nvmlDeviceGetMemoryInfo_v2", "GPU_IS_LOST", gpu=0)
        begun = []
        for poll in range(800):
            before = reader.node.calls("nvmlInitWithFlags")
            found = reader.read(5)
            assert [gpu.answered for gpu in found.gpus] == [False, True]
            if reader.node.calls("nvmlInitWithFlags") > before:
                begun.append(poll * 5)
        pauses = [later - sooner for sooner, later in pairwise(begun)]
        assert begun[0] <= 35
        assert pauses == sorted(pauses)
        assert (pauses[0], pauses[-1]) == (60, 600)
        reader.node.heal()
        assert all(gpu.answered for gpu in reader.read(5).gpus)


@pytest.mark.parametrize("function", ["nvmlDeviceGetUUID", "nvmlDeviceGetName"])
def test_names_that_are_no_text(monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    """A name that is no UTF-8 blinds us for no other device, and for its own only if it must."""
    ask = getattr(pynvml, function)

    def broken(handle: object) -> object:
        if pynvml.nvmlDeviceGetIndex(handle) == 0:
            return b"\xff\xfe".decode()
        return ask(handle)

    monkeypatch.setattr(pynvml, function, broken)
    with reading(FakeNode(2)) as reader:
        found = reader.read(5).gpus
        assert found[-1].model == "NVIDIA H200"
        if function == "nvmlDeviceGetName":
            assert (found[0].model, found[0].answered) == (None, True)
            assert found[0].failures == {"name": "UNREADABLE"}
        else:
            assert len(found) == 1


def test_no_gpus(caplog: pytest.LogCaptureFixture) -> None:
    """A node without GPUs gives an empty reading, and a sentence with what to look at, once."""
    with reading(FakeNode(0)) as reader:
        for _ in range(3):
            found = reader.read(5)
            assert (found.gpus, found.failures) == ((), {})
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == 1
    assert "has no GPU" in said[0]


def test_a_hanging_device_delays_nobody() -> None:
    """A call that hangs costs its own device; the others are read on, and it comes back."""
    with reading(FakeNode(3, processes=1)) as reader:
        reader.read(5)
        reader.node.hang("nvmlDeviceGetTotalEnergyConsumption", gpu=1)
        begin = time.monotonic()
        found = reader.read(5)
        assert time.monotonic() - begin < 1.0
        assert [gpu.answered for gpu in found.gpus] == [True, False, True]
        assert found.gpus[1].failures == {"device": "TIMEOUT"}
        begin = time.monotonic()
        for _ in range(5):
            found = reader.read(5)
            assert [gpu.answered for gpu in found.gpus] == [True, False, True]
        assert time.monotonic() - begin < 0.5, "a device that hangs is waited for once"
        reader.node.heal()
        wait_for(lambda: all(gpu.answered for gpu in reader.read(1).gpus))


def test_a_driver_that_hangs_altogether() -> None:
    """A call that holds the library's lock makes all hang: readings still come in bounded time."""
    with reading(FakeNode(8)) as reader:
        reader.read(5)
        threads = threading.active_count()
        reader.node.hang("nvmlDeviceGetUtilizationRates", hold_lock=True)
        begin = time.monotonic()
        found = reader.read(5)
        assert time.monotonic() - begin < 2.0
        assert not any(gpu.answered for gpu in found.gpus)
        assert found.failures == {"driver": "TIMEOUT"}, "the source as a whole is down"
        for _ in range(20):
            reader.read(5)
        assert threading.active_count() <= threads + 8, "threads do not pile up"
        reader.node.heal()
        wait_for(lambda: all(gpu.answered for gpu in reader.read(1).gpus))
        wait_for(lambda: threading.active_count() <= threads)


def test_an_answer_that_comes_too_late_loses_no_window() -> None:
    """What a late answer had is in the next reading: its span, and all windows since."""
    gpu = FakeGpu(uuid="GPU-a")
    gpu.processes = {10: FakeProcess(share=1.0)}
    with reading(FakeNode([gpu])) as reader:
        before = only(reader.read(5))
        reader.node.hang("nvmlDeviceGetTotalEnergyConsumption")
        assert only(reader.read(5)).failures == {"device": "TIMEOUT"}
        reader.node.heal()
        late = reader.source._late["GPU-a"]
        wait_for(lambda: bool(reader.loop.run_until_complete(settled(late, 1))))
        seen = only(reader.read(5))
        assert before.windows is not None
        assert seen.windows is not None
        assert seen.samples_since == before.windows[-1][0]
        assert len(seen.windows) == 50
        after = only(reader.read(5))
        assert after.windows is not None
        assert len(after.windows) == 25


def test_a_slow_start() -> None:
    """A start that takes its time, as it does on many GPUs, is waited for."""
    with reading(FakeNode(2)) as reader:
        reader.node.cost("nvmlInitWithFlags", wait_us=900_000)
        found = reader.read(5)
        assert [gpu.answered for gpu in found.gpus] == [True, True]
        assert found.failures == {}


def test_a_start_that_hangs() -> None:
    """A library that hangs at its start is not started twice, and is taken when it comes."""
    with reading(FakeNode(1)) as reader:
        reader.node.hang("nvmlInitWithFlags")
        for _ in range(2):
            found = reader.read(5)
            assert (found.gpus, found.failures) == ((), {"init": "TIMEOUT"})
        assert reader.node.calls("nvmlInitWithFlags") == 1
        reader.node.heal()
        wait_for(lambda: len(reader.read(1).gpus) == 1)


def test_a_sample_is_kept_as_it_came() -> None:
    """Garbage is evidence too: what a zombie shows over 100 % is for the books to reject."""
    gpu = FakeGpu(uuid="GPU-a")
    gpu.samples = (Sample(pid=1, at=1_763_000_000_000_000, sm=4_000_000_000),)
    with reading(FakeNode([gpu])) as reader:
        seen = only(reader.read())
    assert seen.samples is not None
    assert seen.samples[0].sm == 4_000_000_000


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
