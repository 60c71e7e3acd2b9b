"""What a scenario may ask for has bounds: in time, in bytes, in what a trace can say."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuledger.sources.simulated import Run, SimulatedSource
from gpuledger.sources.simulated.scenario import ScenarioError, load, loads
from gpuledger.traces import TraceReader, TraceWriter
from tests.sources.simulated.test_node import FakeClock, served
from tests.sources.simulated.worlds import run, tenant, text

if TYPE_CHECKING:
    from pathlib import Path

    from gpuledger.readings import Reading

GPU = "gpus: [{}]\n"
LONG = "1" * 400


def process(says: str) -> str:
    return text(tenant(says), gpus=["{}"])


def bomb(first: str, form: str) -> str:
    """Write aliases of aliases, nine times as many on each line."""
    lines = (f"_a{i}: &a{i} {form % ', '.join([f'*a{i - 1}'] * 9)}\n" for i in range(1, 12))
    return f"_a0: &a0 {first}\n" + "".join(lines)


def fits(readings: list[Reading]) -> bool:
    memories = [gpu.memory for reading in readings for gpu in reading.gpus if gpu.memory]
    assert memories
    return all((m.used or 0) + (m.reserved or 0) + (m.free or 0) == m.total for m in memories)


def test_what_outlives_the_scenario_comes_once(tmp_path: Path) -> None:
    """A process that stops after `duration` has no second copy beside it, nor too much memory."""
    path = tmp_path / "s.yaml"
    path.write_text(process("start: 5s, stop: 100s, memory: 60GiB"))
    readings = served(path, 200)
    assert fits(readings)
    assert {len(reading.processes) for reading in readings} == {0, 1}
    assert len({pid for reading in readings for pid in reading.processes}) == 1


def test_what_goes_with_its_tenant_comes_with_it_only(tmp_path: Path) -> None:
    """A process of a tenant that is gone for good does not come once more."""
    path = tmp_path / "s.yaml"
    path.write_text(text(tenant("stop: 20s", more="    stop: 30s\n"), gpus=["{}"]))
    assert not any(reading.processes for reading in served(path, 150)[5:])


def test_the_last_reading_is_in_the_truth() -> None:
    """No round begins with the last reading: every pid that was read is in the truth."""
    world = run(process("start: 0s, stop: 30s"))
    told = {p["pid"] for p in world.truth["processes"]}
    assert {pid for reading in world.readings for pid in reading.processes} == told


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("stop: 30s, memory: 60GiB", "start: 40s, memory: 60GiB"),
        ("memory: [[0s, 1GiB], [2h, 60GiB]]", "stop: 9s, memory: 60GiB"),
        ("memory: [[0s, 60GiB], [1s, 1GiB]]", "start: 2s, memory: [[0s, 60GiB], [1s, 1GiB]]"),
        ("stop: 9s, memory: [[0s, 1GiB], [10s, 80GiB]]", ""),
    ],
)
def test_memory_is_there_in_all_rounds(one: str, two: str) -> None:
    """Who meets only in a later round, or after a reload, or grows until its end, counts too."""
    processes = [one, two] if two else [one.replace("80", "200")]
    with pytest.raises(ScenarioError, match=r"memory: on GPU 0 .* are used at"):
        loads(
            text(
                tenant(*processes),
                gpus=["{}"],
                faults=["at: 30s, for: 5s, what: driver_reload"],
            ),
            "x",
        )


def test_memory_that_is_full_fits() -> None:
    """To the last byte, and one process after another."""
    room = (80 << 30) - (550 << 20) - (9 << 20)
    world = run(
        text(tenant(f"stop: 30s, memory: {room}", f"start: 30s, stop: 60s, memory: {room}"),
             gpus=["{}"])
    )  # fmt: skip
    assert fits(world.readings)
    with pytest.raises(ScenarioError, match=r"GPU 0 79\.5 GiB are used"):
        loads(process(f"memory: {room + 2}"), "x")


@pytest.mark.parametrize(
    ("scenario", "line", "says"),
    [
        (f"duration: {LONG}\n{GPU}", 1, "…' is too long for a duration"),
        (f"duration: 999999h\n{GPU}", 1, "out of range: allowed: at least 1s, at most 100 years"),
        (f"poll_interval: 25h\n{GPU}", 1, "out of range: allowed: 250ms to 24h"),
        (f"seed: {LONG}\n{GPU}", 1, "seed: '1111"),
        (f"seed: !foo 7\n{GPU}", 1, "seed: a tag ('!foo') may not be here"),
        (f"? [a, b]\n: 1\n{GPU}", 1, "a key has to be a word"),
        (f"<<: 7\n{GPU}", 1, "`<<` merges mappings only"),
        (process(f"memory: {LONG}GiB"), 8, "…' is out of range: at most 1024TiB"),
        (process(f"start: -{LONG}"), 8, "is too long for a duration"),
        (process('name: "\\ud800"'), 8, r"'\ud800' is not allowed: a name of a process"),
        (process('name: "\\U00110000"'), 8, "not YAML: an escape or a number"),
        (process("waits: 0_1"), 8, "'0_1' is not allowed: a number from"),
        (process("waits: ٠"), 8, "is not allowed: a number from"),  # noqa: RUF001
        (process(f"name: {'x' * 5000}"), 8, f"'{'x' * 59}…' is not allowed"),
        (process("gpus: [0, 0]"), 8, "gpus[1]: a process is on GPU 0 once, not twice"),
        (text(tenant("gpus: ['0:0', '0:1']", gpus="['0:0', '0:1']"),
              gpus=["{mig: [1g.10gb, 1g.10gb]}"]), 8, "a process is on GPU 0 once"),
        (text(gpus=["{}"], faults=[f"at: 0s, clock_step: {LONG}"]), 5, "too long for a dur"),
        (text(gpus=["{}"], faults=["at: 0s, clock_step: -400000h"] * 2), 5, "more than 50 years"),
        (text(gpus=["{}"], faults=["at: 0s, what: lost"] * 10_001), 1, "points and faults are"),
        (text(gpus=["{count: 64}"] * 17), 3, "gpus: there are 1088: at most 1024"),
        (text(tenant(*["count: 64"] * 65), gpus=["{}"]), 5, "have 4160 processes: at most 4096"),
        (text(tenant(*["count: 64"] * 9), gpus=["{count: 64}"] * 8), 12, "GPUs times processes"),
        (text(*[tenant(who=f"user: u{i}") for i in range(1025)], gpus=["{}"]), 5, "there are 1025"),
        ("poll_interval: 24h\nduration: 24h\ngpus: [{count: 8}]", 1, "of 3456000 windows: at m"),
        (bomb("[0, 0]", "[%s]") + "gpus: &g [{mig: *a11}]\n", 11, "a list: a MIG profile"),
        (GPU + "_m: &m [" + "[0, 1], " * 60 + "]\ntenants:\n - {user: bob, gpus: [0], processes: "
         "&p [" + "{phases: *m}, " * 60 + "]}\n" + " - {user: a, gpus: [0], processes: *p}\n" * 40,
         2, "too large: more than 200000 values"),
        ("#" * (1 << 20) + GPU, 1, "too large"),
        (text(gpus=["{idle_watts: 60, context_watts: 40, limit_watts: 90}"]), 3,
         "limit_watts: 90 leaves nothing above idle and context watts (100)"),
        (text(tenant(who="job: {id: 1}"), tenant(who="container: {name: a}"), gpus=["{}"]), 8,
         "tenants[1].gpus: GPU 0 is allocated to tenants[0] too: give both `sharing: true`"),
        (text(tenant("stop: 9s", more="    sharing: true\n"), gpus=["{}"]), 7, "allocated no GPU"),
    ],
)  # fmt: skip
def test_bounds(scenario: str, line: int, says: str) -> None:
    """What is out of bounds is told at once, with its line, and without repeating all of it."""
    begin = time.monotonic()
    with pytest.raises(ScenarioError) as error:
        loads(scenario, "x")
    assert says in str(error.value)
    assert re.match(rf"x: line {line}: ", str(error.value))
    assert len(str(error.value)) < 400
    assert time.monotonic() - begin < 10


def test_merges_of_merges() -> None:
    """A merge brings a key once, however often it is named; one of itself brings nothing."""
    begin = time.monotonic()
    scenario = loads(bomb("{name: x}", "{<<: [%s]}") + process("<<: *a11"), "x")
    assert scenario.tenants[0].processes[0].name == "x"
    assert loads("gpus: [&a {<<: *a, count: 2}]", "x").gpus[0].count == 2
    assert time.monotonic() - begin < 5


def test_many_points_are_checked_quickly() -> None:
    """Memory is looked at once a point, not at each point for each process."""
    points = ", ".join(f"[{i}s, {i}MiB]" for i in range(150))
    many = [f"count: 64, memory: [{points}]"] * 60
    begin = time.monotonic()
    loads(text(tenant(*many), gpus=["{memory: 900TiB}"]), "x")
    assert time.monotonic() - begin < 10


def test_an_endless_file(tmp_path: Path) -> None:
    """A file without an end is not read to it."""
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    with pytest.raises(ScenarioError, match="line 1: too large for a scenario"):
        load(tmp_path / "zero.yaml")


def test_one_after_the_other_is_allocated() -> None:
    """Jobs that follow one another on a GPU need not share it; those that share may meet."""
    one, two = (
        tenant(who=f"job: {{id: {i}}}", more=f"    start: {i}0s\n    stop: {i + 1}0s\n")
        for i in (1, 2)
    )
    assert loads(text(one, two, gpus=["{}"]), "x").tenants
    shared = [tenant(who=f"job: {{id: {i}}}", more="    sharing: true\n") for i in (1, 2)]
    assert loads(text(*shared, gpus=["{}"]), "x").tenants


def test_replicas_are_given_again(tmp_path: Path) -> None:
    """Who comes once more gets a replica that is free, not a number that grows for ever."""
    path = tmp_path / "s.yaml"
    more = "    sharing: true\n    start: 10s\n    stop: 50s\n"
    pods = (tenant(who=f"pod: {{namespace: a, name: p{i}}}", more=more) for i in range(2))
    path.write_text(text(*pods, gpus=["{}"]))
    ids = {
        ids[-3:]
        for reading in served(path, 200)
        for pod in reading.pod_resources or ()
        for devices in pod.containers[0].devices
        for ids in devices.ids
    }
    assert ids == {"::0", "::1"}


def test_lengths_that_floats_miss() -> None:
    """0.3 s are three times 0.1 s: the last reading is not lost to a rounding."""
    assert len(list(Run(loads("duration: 5.1\npoll_interval: 0.3\n" + GPU, "x")))) == 18


def test_short_windows_are_not_lost() -> None:
    """However short the driver's windows, they are asked for before it forgets them."""
    world = run(text(tenant("start: -1m"), gpus=["{}"],
                     top="duration: 20s\ndriver: {window: 20ms}"))  # fmt: skip
    assert [len(gpu.windows or ()) for gpu in world.gpu()[1:]] == pytest.approx([250] * 4, abs=2)


def test_after_a_long_sleep_the_scenario_goes_on(tmp_path: Path) -> None:
    """A day's sleep costs nothing: the clocks have gone on, physics and processes have not."""
    path = tmp_path / "s.yaml"
    path.write_text(process("start: -1m}\n      - {start: 30s, stop: 50s"))
    clock = FakeClock()
    source = SimulatedSource(path, clock=clock)

    async def look() -> list[Reading]:
        readings = []
        for passed in (0, 5, 10, 86_400, 86_405, 86_430):
            clock.passed = passed
            readings.append(await source.read())
        return readings

    begin = time.monotonic()
    readings = asyncio.run(look())
    assert time.monotonic() - begin < 5
    first = readings[0]
    passed = [reading.monotonic - first.monotonic for reading in readings]
    assert passed == pytest.approx([0, 5, 10, 86_400, 86_405, 86_430], abs=0.6)
    assert [reading.at - first.at for reading in readings] == pytest.approx(passed)
    joules = [(reading.gpus[0].energy_millijoules or 0) / 1000 for reading in readings]
    assert joules[3] - joules[2] < 700 * 10
    newest = readings[4].gpus[0].windows or ()
    assert newest[-1][0] / 1e6 == pytest.approx(readings[4].at, abs=0.3)
    old, new = readings[-1].processes.values()
    assert old.start == first.monotonic - 60
    assert old.start is not None
    assert new.start is not None
    assert new.start == pytest.approx(first.monotonic + 86_400 - 5 + 20, abs=6)
    assert new.start < readings[-1].monotonic


times = st.sampled_from(["0s", "1s", "29s", "30s", "61s", "2h", "876000h"])
sizes = st.sampled_from(["0", "1GiB", "30GiB", "79GiB"])
processes = st.builds(
    "{{start: {}{}, stop: {}, memory: [[0s, {}], [{}, {}]], gpus: {}, count: {}}}".format,
    st.sampled_from(["", "-"]),
    times,
    times | st.just("null"),
    sizes,
    times,
    sizes,
    st.sampled_from(["[]", "[0]", "[0, 1]", "[1, 0, 1]"]),
    st.integers(1, 3),
)
faults = st.builds(
    "{{at: {}, {}}}".format,
    times,
    st.sampled_from(["what: counter_reset", "what: lost", "for: 9s, what: driver_reload"])
    | st.builds("clock_step: {}{}".format, st.sampled_from(["", "-"]), times),
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(processes, min_size=1, max_size=4), st.lists(faults, max_size=3), st.integers(0, 1))
def test_what_is_accepted_reads_back(
    tmp_path: Path, some: list[str], wrong: list[str], mps: int
) -> None:
    """A scenario that passes the checks gives a trace that can be read, and memory that fits."""
    written = (
        f"duration: 1m\ngpus: [{{count: 2, mps: {str(bool(mps)).lower()}}}]\ntenants:\n"
        f"  - {{user: bob, gpus: [0, 1], processes: [{', '.join(some)}]}}\n"
        f"faults: [{', '.join(wrong)}]\n"
    )
    try:
        made = Run(loads(written, "x"), duration=130)
    except ScenarioError:
        return
    with TraceWriter(tmp_path / "t.jsonl", made.header) as writer:
        for reading in made:
            writer.write(reading)
    with TraceReader(tmp_path / "t.jsonl") as trace:
        readings = list(trace)
    for reading in readings:
        assert reading.at > 0
    assert any(gpu.memory for gpu in readings[0].gpus) is bool(readings[0].gpus[0].answered)
    if readings[0].gpus[0].answered:
        assert fits(readings)
