"""The simulated node as an agent meets it: the same again, its witnesses, its faults, its ends."""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
from typing import TYPE_CHECKING

import pytest

from gpuledger.clock import Clock
from gpuledger.sources.simulated import EPOCH, Run, SimulatedSource
from gpuledger.sources.simulated.scenario import load, loads, locate
from gpuledger.traces import TraceReader, TraceWriter
from tests.sources.simulated.worlds import PLAIN, World, run, tenant, text, written

if TYPE_CHECKING:
    from pathlib import Path

    from gpuledger.readings import Reading

POD = "pod: {namespace: ml, name: train-a, container: main, workload: train}"
OTHER_POD = "pod: {namespace: ml, name: other-b}"
BUSY = "start: -1m, busy: {pattern: serving, level: 1}"


class FakeClock(Clock):
    """Clocks that a test moves, late by a little as real ones are."""

    def __init__(self) -> None:
        self.passed = 0.0

    def wall(self) -> float:
        return EPOCH + self.passed

    def monotonic(self) -> float:
        return 777.0 + self.passed


def served(scenario: Path, seconds: float, late: float = 0.0) -> list[Reading]:
    """Serve a scenario in real time, on a clock of ours, at its own interval."""
    clock = FakeClock()
    source = SimulatedSource(scenario, clock=clock)
    interval = source.interval
    assert interval

    async def play() -> list[Reading]:
        readings = []
        while clock.passed <= seconds:
            readings.append(await source.read())
            await source.glance()
            clock.passed = len(readings) * interval + late
        await source.close()
        return readings

    return asyncio.run(play())


def test_the_same_file_and_seed_give_the_same() -> None:
    """Byte for byte; another seed gives another node."""
    scenario = text(tenant(BUSY, BUSY, who=POD))
    assert written(run(scenario).readings) == written(run(scenario).readings)
    other = run(f"seed: 5\n{scenario}").readings
    assert written(other) != written(run(scenario).readings)
    assert other[0].gpus[0].uuid != run(scenario).readings[0].gpus[0].uuid


def test_real_time_gives_the_same_as_virtual(tmp_path: Path) -> None:
    """Polls that come a little late, as they do, are those of their ticks."""
    path = tmp_path / "s.yaml"
    path.write_text(text(tenant(BUSY, BUSY, who=POD)))
    virtual = run(path.read_text()).readings
    assert served(path, 60) == virtual
    assert served(path, 60, late=0.02) == virtual[:-1]


def test_how_often_it_is_looked_at_changes_nothing() -> None:
    """The physics does not know of polls: counters at one moment are the same."""
    scenario = text(tenant(BUSY, BUSY), tenant(BUSY, who="user: ann"))
    often, rarely = run(scenario, 0.25).gpu(), run(scenario, 20).gpu()
    assert [gpu.energy_millijoules for gpu in often[::80]] == [g.energy_millijoules for g in rarely]
    assert [gpu.power_milliwatts for gpu in often[::80]] == [g.power_milliwatts for g in rarely]


def test_an_early_or_a_second_look(tmp_path: Path) -> None:
    """Time of the readings goes forward always, whoever asks and when."""
    path = tmp_path / "s.yaml"
    path.write_text(text(tenant(BUSY)))
    clock = FakeClock()
    source = SimulatedSource(path, 1.0, clock=clock)

    async def look() -> list[float]:
        times = []
        for passed in (0, 0, 0.6, 0.999, 2, 2.5, 9):
            clock.passed = passed
            times.append((await source.read()).monotonic)
        return times

    times = asyncio.run(look())
    begin = times[0]
    assert [t - begin for t in times] == pytest.approx([0, 0.001, 0.6, 1, 2, 2.5, 9])


def test_the_trace_can_be_read_again(tmp_path: Path) -> None:
    """What is written down is what was seen, header and all."""
    made = Run(loads(text(tenant(BUSY, who=POD)), "x"))
    with TraceWriter(tmp_path / "t.jsonl.gz", made.header) as writer:
        for reading in made:
            writer.write(reading)
    with TraceReader(tmp_path / "t.jsonl.gz") as trace:
        assert trace.header == made.header
        assert trace.header.source == "simulated"
        assert list(trace) == run(text(tenant(BUSY, who=POD))).readings


def test_what_witnesses_see() -> None:
    """Owners of every kind leave the traces that real ones leave, each by its own witness."""
    world = run(
        text(
            tenant(BUSY, who=POD, more="    sharing: true\n"),
            tenant(who="pod: {namespace: ml, name: b}", more="    sharing: true\n"),
            tenant(BUSY, who="container: {name: ollama, access: all, workload: chat}", gpus="[1]"),
            tenant(BUSY, who="container: {name: app}", gpus="[1]"),
            tenant(BUSY, who="job: {id: 17, user: ann, name: fold}", gpus="[2]"),
            tenant(BUSY, who="user: bob", gpus="[2]"),
            tenant(BUSY, who="unit: x.service", gpus="[2]"),
            gpus=["{count: 3}"],
        )
    )
    reading = world.readings[0]
    uuids = [gpu.uuid for gpu in reading.gpus]
    assert reading.pod_resources is not None
    assert [
        (p.name, d.resource, d.ids) for p in reading.pod_resources for d in p.containers[0].devices
    ] == [
        ("train-a", "nvidia.com/gpu.shared", (f"{uuids[0]}::0",)),
        ("b", "nvidia.com/gpu.shared", (f"{uuids[0]}::1",)),
    ]
    assert reading.containers is not None
    main, idle, ollama, app = reading.containers
    assert main.pod is not None
    assert (main.name, main.pod.name, main.runtime) == ("main", "train-a", "containerd")
    assert idle.pod is not None
    assert ollama.gpu_access is not None
    assert app.gpu_access is not None
    assert (ollama.gpu_access.all, ollama.gpu_access.devices) == (True, ())
    assert (app.gpu_access.all, app.gpu_access.devices) == (False, (uuids[1],))
    assert ollama.labels == {"com.docker.compose.service": "chat"}
    assert reading.jobs is not None
    (job,) = reading.jobs
    assert (job.id, job.user, job.name, job.gpus) == ("17", "ann", "fold", (2,))
    pod, every, given, slurm, user, unit = reading.processes.values()
    assert pod.cgroup == (
        "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"
        f"{(main.pod.uid or '').replace('-', '_')}.slice/cri-containerd-{main.id}.scope\n"
    )
    assert every.cgroup == f"0::/system.slice/docker-{ollama.id}.scope\n"
    assert every.environ == {"NVIDIA_VISIBLE_DEVICES": "all"}
    assert every.device_files == {
        "/dev/nvidia0": 1,
        "/dev/nvidia1": 18,
        "/dev/nvidia2": 1,
        "/dev/nvidia-uvm": 2,
        "/dev/nvidiactl": 1,
    }
    assert given.environ == {"NVIDIA_VISIBLE_DEVICES": uuids[1]}
    assert "/dev/nvidia0" not in (given.device_files or {})
    assert slurm.cgroup == "0::/system.slice/slurmstepd.scope/job_17/step_batch/user/task_0\n"
    assert (slurm.user, slurm.environ) == (
        "ann",
        {"CUDA_VISIBLE_DEVICES": "2", "SLURM_JOB_ID": "17"},
    )
    assert (user.user, user.uid) == ("bob", 1001)
    assert user.cgroup == "0::/user.slice/user-1001.slice/session-3.scope\n"
    assert (unit.cgroup, unit.user) == ("0::/system.slice/x.service\n", "root")
    owners = [a["owner"]["name"] for a in world.truth["accounts"]]
    assert sorted(owners) == sorted(
        ["ml/train-a/main", "ml/b/main", "ollama", "app", "job_17", "bob", "x.service"]
    )
    assert world.account("ml/b/main")["idle_seconds"]["no_process"] == pytest.approx(60)


def test_what_is_not_there_is_not_known() -> None:
    """No pods: no kubelet; no containers: no Docker; no jobs: no Slurm."""
    reading = run(text(tenant(BUSY))).readings[0]
    assert (reading.pod_resources, reading.containers, reading.jobs) == (None, None, None)


def test_processes_come_and_go() -> None:
    """From start to stop a process is in /proc and in the lists, its tenant by its own times."""
    short = tenant("start: 7s, stop: 22s", who=POD, more="    start: 6s\n    stop: 31s\n")
    world = run(text(short))
    at = [reading.monotonic - world.readings[0].monotonic for reading in world.readings]
    there = [t for t, r in zip(at, world.readings, strict=True) if r.processes]
    assert there == [10, 15, 20]
    assert [t for t, g in zip(at, world.gpu(), strict=True) if g.processes] == there
    pods = [t for t, r in zip(at, world.readings, strict=True) if r.pod_resources]
    assert pods == [10, 15, 20, 25, 30]
    (process,) = world.readings[2].processes.values()
    assert process.start == world.readings[0].monotonic + 7
    account = world.account("ml/train-a/main")
    assert account["held_seconds"] == pytest.approx(25)
    assert account["idle_seconds"]["no_process"] == pytest.approx(10)
    assert world.truth["gpus"][0]["seconds"]["free"] == pytest.approx(35)


def test_mig() -> None:
    """Instances have their own processes, memory and activity; shares are not supported."""
    scenario = text(
        tenant("start: -1m, memory: 3GiB, wander: 0, watts: 350", who=POD, gpus="['0:1']"),
        gpus=[PLAIN.replace("leakage", "mig: [3g.71gb, 1g.18gb], leakage")],
    )
    world = run(scenario)
    gpu = world.gpu()[-1]
    assert gpu.mig is True
    assert (gpu.samples, gpu.windows, gpu.utilization, gpu.profile) == (None, None, None, None)
    assert gpu.failures["samples"] == gpu.failures["utilization.device"] == "NOT_SUPPORTED"
    three, one = gpu.instances
    assert (three.gi, three.slices, three.activity) == (1, 3, 0.0)
    assert (one.gi, one.slices, one.activity) == (7, 1, 1.0)
    assert one.memory is not None
    assert one.memory.used == 3 << 30
    assert [p.instance for p in gpu.processes or ()] == [7]
    pods = world.readings[-1].pod_resources
    assert pods is not None
    (devices,) = pods[0].containers[0].devices
    assert (devices.resource, devices.ids) == ("nvidia.com/mig-1g.18gb", (one.uuid,))
    assert world.grown() == pytest.approx(60 * (120 + 350 / 7), abs=0.1)
    account = world.account("ml/train-a/main")
    assert account["mig"] == 7
    assert account["energy_joules"] == pytest.approx(
        {"active": 60 * 50, "parked": 60 * 40 / 7, "idle": 60 * 80 / 7}
    )
    parent = next(g for g in world.truth["gpus"] if g["mig"] is None)
    assert parent["unattributed_joules"]["free"] == pytest.approx(60 * 120 * 6 / 7)


def faulty(fault: str) -> World:
    return run(text(tenant(BUSY, who=POD), gpus=["{count: 2}"], faults=[fault]))


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("what: lost", "GPU_IS_LOST"),
        ("hang: memory", "TIMEOUT"),
        ("error: RESET_REQUIRED", "RESET_REQUIRED"),
    ],
)
def test_a_silent_gpu(fault: str, error: str) -> None:
    """It tells nothing but who it is, the other goes on; afterwards its counter has gone on."""
    world = faulty(f"at: 10s, for: 20s, gpu: 0, {fault}")
    lost = [not gpu.answered for gpu in world.gpu()]
    assert lost == [False, False, True, True, True, True, *[False] * 7]
    for gpu in world.gpu()[2:6]:
        assert gpu.failures == {"device": error}
        assert gpu.uuid == world.gpu()[0].uuid
        assert (gpu.memory, gpu.processes, gpu.samples, gpu.windows) == (None, None, None, None)
    assert all(gpu.answered for gpu in world.gpu(1))
    assert world.grown() == pytest.approx(
        sum(g["energy_joules"] for g in world.truth["gpus"] if g["index"] == 0), abs=0.002
    )
    assert len(world.gpu()[6].windows or ()) == 71, "since it was last asked"


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ("memory", "memory"),
        ("energy_millijoules", "energy_millijoules"),
        ("processes", "processes"),
        ("samples", "samples"),
        ("windows", "windows"),
        ("profile", "profile"),
        ("power_milliwatts", "power_milliwatts"),
    ],
)
def test_a_call_that_fails(call: str, field: str) -> None:
    """What fails is not known, never zero, and the failure has the call's name."""
    unsupported = faulty(f"at: 0s, unsupported: {call}")
    for gpu in unsupported.gpu():
        assert getattr(gpu, field) is None
        assert gpu.failures == {call: "NOT_SUPPORTED"}
        assert gpu.answered
    error = faulty(f"at: 12s, for: 10s, gpu: 1, error: UNKNOWN, call: {call}")
    failing = [bool(gpu.failures) for gpu in error.gpu(1)]
    assert failing == [False, False, False, True, True, *[False] * 8]
    assert error.gpu(1)[3].failures == {call: "UNKNOWN"}
    assert not any(gpu.failures for gpu in error.gpu(0))


def test_calls_with_dots() -> None:
    """Figures in `extra` go, and of the utilization the part that failed."""
    assert "clocks.sm" not in faulty("at: 0s, unsupported: clocks.sm").gpu()[3].extra
    gpu = faulty("at: 0s, unsupported: utilization.device").gpu()[3]
    assert gpu.utilization is not None
    assert (gpu.utilization.gpu, gpu.utilization.encoder) == (None, 0)


def test_samples_that_failed_are_asked_for_again() -> None:
    """The question goes back to where the last answer ended; without windows, to samples."""
    gpus = faulty("at: 12s, for: 5s, error: UNKNOWN, call: samples").gpu()
    assert gpus[3].samples_since == gpus[4].samples_since
    assert len(gpus[4].windows or ()) == 50
    blind = faulty("at: 0s, unsupported: windows").gpu()
    newest = [max(s.at for s in gpu.samples) for gpu in blind if gpu.samples]
    assert [gpu.samples_since for gpu in blind[1:]] == newest[:-1]


def test_a_counter_reset() -> None:
    """The counter is about 0 again, once, and counts on."""
    counters = [gpu.energy_millijoules or 0 for gpu in faulty("at: 31s, what: counter_reset").gpu()]
    falls = [b < a for a, b in itertools.pairwise(counters)]
    assert falls == [False] * 6 + [True] + [False] * 5
    assert 0 <= counters[7] < 700_000 * 4


def test_a_driver_reload() -> None:
    """The whole driver is gone, processes die with it; then others, and counters from 0."""
    world = faulty("at: 20s, for: 12s, what: driver_reload")
    away = [r.failures for r in world.readings]
    assert away == [{}] * 4 + [{"init": "DRIVER_NOT_LOADED"}] * 3 + [{}] * 6
    assert {g.failures.get("device") for g in world.readings[5].gpus} == {"DRIVER_NOT_LOADED"}
    before, after = world.gpu()[3], world.gpu()[7]
    assert (after.energy_millijoules or 0) < 700_000 * 4 < (before.energy_millijoules or 0)
    assert len(after.windows or ()) in range(13, 17)
    assert before.processes
    assert after.processes
    assert before.processes[0].pid != after.processes[0].pid
    assert not world.readings[5].processes
    assert [p["active"] for p in world.truth["processes"]] == [False, True]


def test_witnesses_that_are_down() -> None:
    """What a witness would say is not known meanwhile, and all the rest is."""
    kubelet = faulty("at: 10s, for: 10s, what: kubelet_down").readings
    assert [r.pod_resources is None for r in kubelet[:6]] == [
        False,
        False,
        True,
        True,
        False,
        False,
    ]
    assert all(r.containers for r in kubelet)
    docker = faulty("at: 10s, for: 10s, what: docker_down").readings
    assert [r.containers is None for r in docker[:6]] == [False, False, True, True, False, False]


def test_missed_polls(tmp_path: Path) -> None:
    """In virtual time they are left out; in real time the reading comes when it is over."""
    world = faulty("at: 10s, for: 20s, what: missed_polls")
    begin = world.readings[0].monotonic
    assert [r.monotonic - begin for r in world.readings] == [0, 5, *range(30, 61, 5)]
    path = tmp_path / "s.yaml"
    path.write_text(text(tenant(BUSY), faults=["at: 1s, for: 200ms, what: missed_polls"]))
    source = SimulatedSource(path, 1.0)
    readings: list[Reading] = []

    async def look() -> None:
        readings.append(await source.read())
        await asyncio.sleep(1)
        readings.append(await source.read())

    asyncio.run(look())
    assert readings[1].monotonic - readings[0].monotonic == pytest.approx(1.2, abs=0.1)


def test_a_clock_step() -> None:
    """Only the wall clock steps; samples are asked for afresh, in the new time."""
    world = faulty("at: 20s, clock_step: -1h")
    at = [reading.at for reading in world.readings]
    monotonic = [reading.monotonic for reading in world.readings]
    assert at[3] - at[0] == monotonic[3] - monotonic[0] == 15
    assert at[4] - at[3] == 5 - 3600
    assert monotonic[4] - monotonic[3] == 5
    stepped = world.gpu()[4]
    assert stepped.samples_since == int((at[4] - 5) * 1e6)
    assert not stepped.windows
    assert len(world.gpu()[5].windows or ()) in {24, 25}
    forward = faulty("at: 20s, clock_step: 1h").gpu()
    assert not forward[4].windows
    assert all(end > (at[0] + 3600) * 1e6 for end, _, _ in forward[5].windows or [(0, 0, 0)])


def test_served_it_goes_on(tmp_path: Path) -> None:
    """After its duration, what comes and goes comes once more, as another process."""
    path = tmp_path / "s.yaml"
    path.write_text(
        text(
            tenant("name: stays, start: -1m", "name: eval, start: 10s, stop: 30s", who=POD),
            tenant(
                "start: 35s, stop: 55s",
                who=OTHER_POD,
                gpus="[1]",
                more="    start: 31s\n    stop: 58s\n",
            ),
            gpus=["{count: 2}"],
        )
    )
    readings = served(path, 175)
    pids: dict[str, list[int]] = {}
    for reading in readings:
        for pid, process in reading.processes.items():
            if pid not in (of := pids.setdefault(process.name or "", [])):
                of.append(pid)
    assert {name: len(of) for name, of in pids.items()} == {"stays": 1, "eval": 3, "python": 3}
    others = [c for r in readings for c in r.containers or () if c.pod and c.pod.name == "other-b"]
    assert len({container.id for container in others}) == 3
    counters = [r.gpus[0].energy_millijoules or 0 for r in readings]
    assert counters == sorted(counters)


def test_how_long_a_process_ran_nothing() -> None:
    """The truth has each process that was seen, and since when it is quiet."""
    world = run(
        text(
            tenant(
                "name: once, start: -1m, busy: {trace: [[0s, 1], [80s, 0]]}",
                "name: never, start: 10s, busy: {pattern: parked}",
                "name: gone, start: 10s, stop: 30s, busy: {pattern: parked}",
                "name: always, start: -1m",
                "name: last, start: 60s",
            )
        )
    )
    idle = {p["name"]: p["idle_seconds"] for p in world.truth["processes"]}
    assert idle == pytest.approx(
        {"once": 40, "never": 50, "gone": 20, "always": 0, "last": 0}, abs=0.25
    )


def test_memory_stays_bounded() -> None:
    """Of what is past nothing is kept but sums: not even half an object a reading."""
    made = iter(Run(load(locate(None)), duration=4 * 3600))
    held = []
    for readings in (200, 600):
        for _ in range(readings):
            next(made)
        gc.collect()  # free lists too: what they hold differs between versions of Python
        held.append(sys.getallocatedblocks())
    assert held[1] - held[0] < 300
