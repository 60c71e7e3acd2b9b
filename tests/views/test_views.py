"""Each view shows what its table says, from what is known, and nothing that is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuledger.health import Health, Usage
from gpuledger.ledger.idle import Idleness
from gpuledger.readings import Gpu, GpuProcess, Memory, Process, Reading, Sample, Utilization
from gpuledger.serving.exposition import Exposition
from gpuledger.traces import TraceReader
from gpuledger.views import Node, Outcome
from gpuledger.views.registry import VIEWS

DATA = Path(__file__).parents[1] / "data"
WHOLE = Gpu(
    index=1,
    uuid="GPU-b",
    model="NVIDIA H200",
    minor=4,
    pci_bus_id="00000000:06:00.0",
    driver="580.1",
    memory=Memory(total=100, used=10, reserved=5, free=85),
    power_milliwatts=70_123,
    power_limit_milliwatts=700_000,
    utilization=Utilization(gpu=41, memory=12, encoder=0, decoder=None),
    temperature_celsius=33,
    mig=False,
    processes=(GpuProcess(pid=7, kinds=("compute",), memory=10),),
    samples_since=999_999_990_000_000,
    samples=(),
    extra={
        "arch": "hopper",
        "clocks.sm": 1980,
        "clocks.memory": 3201,
        "temperature.memory": 44,
        "version.cuda": "13.0",
        "version.nvml": "13.580.1",
    },
)


def page(view: str, node: Node) -> str:
    return Exposition().render(VIEWS[view].show(node), "text")


def node_of(*gpus: Gpu, source: str = "nvml", **facts: object) -> Node:
    reading = Reading(at=1e9, monotonic=5, gpus=gpus, **facts)  # type: ignore[arg-type]
    health = Health(source)
    health.saw(reading)
    idleness = Idleness(2)
    idleness.step(reading)
    return Node(reading, health, idleness)


def samples(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_devices() -> None:
    """Every figure of the device's own, in base units."""
    device = 'gpu="1",uuid="GPU-b",mig=""'
    versions = 'driver="580.1",cuda="13.0",nvml="13.580.1"'
    place = 'pci_bus_id="00000000:06:00.0",minor="4",mig_profile="",arch="hopper"'
    assert samples(page("devices", node_of(WHOLE))) == [
        f'gpuledger_device_info{{{device},model="NVIDIA H200",{versions},{place}}} 1',
        f"gpuledger_device_up{{{device}}} 1",
        f"gpuledger_device_last_reading_timestamp_seconds{{{device}}} 1000000000.0",
        f'gpuledger_device_utilization_ratio{{{device},engine="gpu"}} 0.41',
        f'gpuledger_device_utilization_ratio{{{device},engine="memory"}} 0.12',
        f'gpuledger_device_utilization_ratio{{{device},engine="encoder"}} 0.0',
        f"gpuledger_device_power_watts{{{device}}} 70.123",
        f"gpuledger_device_power_limit_watts{{{device}}} 700.0",
        f'gpuledger_device_temperature_celsius{{{device},sensor="gpu"}} 33',
        f'gpuledger_device_temperature_celsius{{{device},sensor="memory"}} 44',
        f'gpuledger_device_clock_hertz{{{device},clock="sm"}} 1980000000',
        f'gpuledger_device_clock_hertz{{{device},clock="memory"}} 3201000000',
    ]


def test_a_lost_device_has_no_gauges() -> None:
    """What a silent device last said is not shown as if it said it now."""
    node = node_of(WHOLE)
    lost = Gpu(index=1, uuid="GPU-b", model="NVIDIA H200", failures={"device": "GPU_IS_LOST"})
    reading = Reading(at=1e9 + 5, monotonic=10, gpus=(lost,))
    node.health.saw(reading)
    text = page("devices", Node(reading, node.health, node.idleness))
    names = {line.partition("{")[0] for line in samples(text)}
    assert names == {
        "gpuledger_device_info",
        "gpuledger_device_up",
        "gpuledger_device_last_reading_timestamp_seconds",
    }
    assert 'gpuledger_device_up{gpu="1",uuid="GPU-b",mig=""} 0\n' in text
    assert text.rstrip().endswith(" 1000000000.0")


def test_idle() -> None:
    """The words of gpu-idle-exporter: processes by gpu, pid and name; devices by model and uuid."""
    names = {7: Process(start=1, name='py"thon'), 8: Process(start=2, name="train")}
    gpu = replace(
        WHOLE,
        processes=(
            GpuProcess(pid=7, memory=3 << 30),
            GpuProcess(pid=8, memory=1 << 30),
            GpuProcess(pid=9, memory=None),
        ),
        samples=(Sample(pid=8, at=999_999_999_000_000, sm=41),),
    )
    idleness = Idleness(2)
    for at in (1e9, 1e9 + 5, 1e9 + 10):
        reading = Reading(at=at, monotonic=at, gpus=(gpu,), processes=names)
        idleness.step(reading)
    node = Node(reading, Health("nvml"), idleness)
    device = 'gpu="1",model="NVIDIA H200",uuid="GPU-b"'
    kernel = r'gpu="1",pid="7",process="py\"thon"'
    train, nameless = 'gpu="1",pid="8",process="train"', 'gpu="1",pid="9",process=""'
    assert samples(page("idle", node)) == [
        f"gpu_idle_process_compute_utilization_percent{{{kernel}}} 0.0",
        f"gpu_idle_process_compute_utilization_percent{{{train}}} 41.0",
        f"gpu_idle_process_compute_utilization_percent{{{nameless}}} 0.0",
        f"gpu_idle_process_memory_used_bytes{{{kernel}}} {3 << 30}",
        f"gpu_idle_process_memory_used_bytes{{{train}}} {1 << 30}",
        f"gpu_idle_process_idle_seconds{{{kernel}}} 10.0",
        f"gpu_idle_process_idle_seconds{{{train}}} 0.0",
        f"gpu_idle_process_idle_seconds{{{nameless}}} 10.0",
        f"gpu_idle_process_idle_memory_bytes{{{kernel}}} {3 << 30}",
        f"gpu_idle_process_idle_memory_bytes{{{train}}} 0",
        f"gpu_idle_device_utilization_percent{{{device}}} 41",
        f"gpu_idle_device_memory_used_bytes{{{device}}} 10",
        f"gpu_idle_device_memory_total_bytes{{{device}}} 100",
        f"gpu_idle_device_power_watts{{{device}}} 70.123",
        f"gpu_idle_device_temperature_celsius{{{device}}} 33",
        f'gpu_idle_memory_total_bytes{{gpu="1"}} {3 << 30}',
    ]


def test_idle_where_utilization_cannot_be_known() -> None:
    """Without samples a process keeps its memory, and nobody says that it is idle or is not."""
    gpu = replace(WHOLE, samples=None, failures={"samples": "NOT_SUPPORTED"})
    names = {line.partition("{")[0] for line in samples(page("idle", node_of(gpu)))}
    assert "gpu_idle_process_memory_used_bytes" in names
    assert not names & {
        "gpu_idle_process_compute_utilization_percent",
        "gpu_idle_process_idle_seconds",
        "gpu_idle_process_idle_memory_bytes",
    }
    assert 'gpu_idle_memory_total_bytes{gpu="1"} 0\n' in page("idle", node_of(gpu))


def test_idle_where_the_process_list_failed() -> None:
    """Nobody is shown, and no total of 0 either, when who is there is not known."""
    gpu = replace(WHOLE, processes=None)
    names = {line.partition("{")[0] for line in samples(page("idle", node_of(gpu)))}
    assert names == {family.name for family in VIEWS["idle"].FAMILIES if "device" in family.name}


def test_self() -> None:
    """The agent says what it reads with, and counts what failed by call and error."""
    node = node_of(
        Gpu(index=0, uuid="a", failures={"memory": "UNKNOWN"}),
        source="recorded",
        failures={"init": "DRIVER_NOT_LOADED"},
    )
    node.health.poll_seconds.observe(0.2)
    node = node._replace(outcomes={"devices": Outcome(success=False, seconds=0.5)})
    text = page("self", node)
    for line in (
        'gpuledger_source_info{source="recorded"} 1',
        'gpuledger_source_up{source="recorded"} 0',
        'gpuledger_source_errors_total{source="recorded",call="memory",error="UNKNOWN"} 1',
        'gpuledger_source_errors_total{source="recorded",call="init",error="DRIVER_NOT_LOADED"} 1',
        "gpuledger_poll_duration_seconds_count 1",
        "gpuledger_polls_missed_total 0",
        "gpuledger_last_reading_timestamp_seconds 1000000000.0",
        'gpuledger_view_success{view="devices"} 0',
        'gpuledger_view_duration_seconds{view="devices"} 0.5',
    ):
        assert f"{line}\n" in text


@pytest.mark.parametrize("name", VIEWS)
def test_tables_are_in_order(name: str) -> None:
    """Names follow Prometheus's rules, are there once, and their help is a sentence."""
    for family in VIEWS[name].FAMILIES:
        assert re.fullmatch(r"[a-z][a-zA-Z0-9_]*", family.name)
        assert family.help.endswith(".")
        assert len(set(family.labels)) == len(family.labels)
        assert family.kind != "histogram" or "le" not in family.labels
    names = [f.name for view in VIEWS.values() for f in view.FAMILIES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", VIEWS)
def test_what_is_shown_is_in_the_table(name: str) -> None:
    """A view shows no metric that its table, and so the documentation, does not have."""
    table, idleness = VIEWS[name].FAMILIES, Idleness(2)
    with TraceReader(DATA / "h200-5-5s.jsonl.gz") as trace:
        for reading in trace:
            idleness.step(reading)
            node = Node(reading, Health("recorded"), idleness, {"devices": Outcome(True, 0.1)})
            shown = [family for family, _ in VIEWS[name].show(node)]
            assert [family for family in table if family in shown] == shown
            for family, rows in VIEWS[name].show(node):
                assert all(len(labels) == len(family.labels) for labels, _ in rows)
    assert list(VIEWS[name].show(Node(None, Health("nvml"), Idleness(2))))


@pytest.mark.parametrize("name", VIEWS)
def test_what_is_in_the_table_can_appear(name: str) -> None:
    """Every documented metric is shown by a node that has all there is to know."""
    node = node_of(WHOLE, failures={"init": "UNKNOWN"})
    node.health.usage = Usage(1.5, 2, 3, 4.5, 5, 6)
    node = node._replace(outcomes={"devices": Outcome(success=True, seconds=0.1)})
    shown = {family.name for family, rows in VIEWS[name].show(node) if list(rows)}
    values = {
        family.name
        for family, rows in VIEWS[name].show(node)
        if any(value is not None for _, value in rows)
    }
    assert shown == values == {family.name for family in VIEWS[name].FAMILIES}
