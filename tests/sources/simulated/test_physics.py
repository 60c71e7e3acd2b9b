"""The simulated GPU does what a real one was seen to do (docs/scenario.md lists it)."""

from __future__ import annotations

from itertools import pairwise
from statistics import mean, stdev
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.sources.simulated.worlds import PLAIN, run, tenant, text

if TYPE_CHECKING:
    from gpuledger.readings import Gpu

STEADY = "kernels: arithmetic, wander: 0"


def share(gpu: Gpu, pid: int) -> float:
    return next((s.sm or 0 for s in gpu.samples or () if s.pid == pid), 0)


@settings(max_examples=15, deadline=None)
@example(546, ["notebook"], 1)
@given(
    st.integers(0, 999),
    st.lists(
        st.sampled_from(["steady", "training", "serving", "notebook"]), min_size=1, max_size=6
    ),
    st.sampled_from([1, 5, 12]),
)
def test_samples_add_up_to_the_mean_of_the_windows(
    seed: int, patterns: list[str], poll: int
) -> None:
    """All samples of a reply cover one span; rounding apart they are the windows' mean."""
    processes = [f"start: -1m, busy: {{pattern: {p}, level: 0.7}}" for p in patterns]
    world = run(text(tenant(*processes), top=f"seed: {seed}\nduration: 2m"), poll)
    ran = bool(world.gpu()[0].samples)
    for gpu in world.gpu()[1:]:
        assert gpu.windows
        assert gpu.samples is not None
        busy = mean(window[1] for window in gpu.windows)
        if ran:  # windows before anybody ever ran have no owner, and count for nobody
            assert sum(s.sm or 0 for s in gpu.samples) == pytest.approx(busy, abs=4)
        ran = ran or bool(gpu.samples)
        assert len({s.pid for s in gpu.samples}) == len(gpu.samples)
        assert gpu.samples_since is not None
        assert all(gpu.samples_since < s.at <= gpu.windows[-1][0] for s in gpu.samples)


def test_windows_have_one_owner_each() -> None:
    """A share is a poll of who was there, with the noise of one: sqrt(p(1-p)/n)."""
    both = tenant(f"start: -1m, {STEADY}", f"start: -1m, {STEADY}")
    world = run(text(both, top="duration: 1h"), 5)
    first = world.gpu()[0].processes
    assert first is not None
    shares = [share(gpu, first[0].pid) / 99 for gpu in world.gpu()[1:]]
    assert mean(shares) == pytest.approx(0.5, abs=0.02)
    assert stdev(shares) == pytest.approx((0.5 * 0.5 / 25) ** 0.5, rel=0.15)


def test_windows_are_the_drivers_own() -> None:
    """Their ends are 200 ms apart, not aligned with the polls, and each is told once."""
    world = run(text(tenant(f"{STEADY}"), top="duration: 30s"), 1)
    ends = [w[0] for gpu in world.gpu() for w in gpu.windows or ()]
    assert all(195_000 < b - a < 205_000 for a, b in pairwise(ends))
    assert ends[0] % 1_000_000 not in range(990_000, 1_000_000)
    for before, after in pairwise(world.gpu()):
        assert before.windows
        assert after.samples_since == before.windows[-1][0]


def test_only_71_windows_are_kept() -> None:
    """Where nobody asked for a while, the answer is of the last 14.2 s."""
    asleep = "at: 5s, for: 50s, what: missed_polls"
    world = run(text(tenant(STEADY), faults=[asleep]))
    assert [len(gpu.windows or ()) for gpu in world.gpu()] == [25, 71, 25]


def test_long_polls_forget_no_window() -> None:
    """As a real agent, it looks in between, and tells all as one span."""
    both = tenant(f"start: -1m, {STEADY}", f"start: -1m, {STEADY}")
    for gpu in run(text(both, top="duration: 10m"), 60).gpu()[1:]:
        assert len(gpu.windows or ()) in range(299, 302)
        assert gpu.samples is not None
        assert gpu.samples_since is not None
        assert gpu.windows
        assert gpu.windows[0][0] - gpu.samples_since == pytest.approx(200_000, abs=5_000)
        assert len(gpu.samples) == 2
        assert sum(s.sm or 0 for s in gpu.samples) == pytest.approx(99, abs=1)


def test_polls_closer_than_a_window_see_nothing_new() -> None:
    """Until a window has passed: no windows, no samples, and the question stays the same."""
    top = "duration: 10s\ndriver: {window: 1s}"
    gpus = run(text(tenant(f"start: -1m, {STEADY}"), top=top), 0.25).gpu()
    blind = [(a, b) for a, b in pairwise(gpus) if not b.windows]
    assert len(blind) > 20
    assert all(b.samples == () for _, b in blind)
    assert sum(len(gpu.windows or ()) for gpu in gpus[1:]) == 10


def test_the_dead_vanish_from_samples_and_denominator() -> None:
    """The living look busier at once, while the list of windows still has the dead one's."""
    dying = f"name: dying, start: -1m, stop: 29s, {STEADY}"
    living = f"name: living, start: -1m, {STEADY}, busy: {{level: 0.2}}"
    world = run(text(tenant(dying, living)), 5)
    pid = world.process("living")["pid"]
    before, after = world.gpu()[5], world.gpu()[6]
    assert before.processes is not None
    assert after.processes is not None
    assert len(before.processes) == 2
    assert [p.pid for p in after.processes] == [pid]
    assert {s.pid for s in after.samples or ()} == {pid}
    assert after.windows
    busy = [w[1] for w in after.windows]
    assert sum(b >= 98 for b in busy) > 15, "the windows of the dead are listed"
    assert share(after, pid) > 1.3 * mean(share(gpu, pid) for gpu in world.gpu()[1:6])
    assert sum(s.sm or 0 for s in after.samples or ()) > 15


def test_nobody_computes() -> None:
    """The last one that did has a sample of 0; before anybody did there is none."""
    trace = "busy: {trace: [[0s, 0], [12s, 1], [21s, 0]]}, wander: 0"
    gpus = run(text(tenant(trace)), 5).gpu()
    assert [len(gpu.samples or ()) for gpu in gpus] == [0, 0, 0] + [1] * 10
    assert [share(gpu, (gpu.processes or ())[0].pid) for gpu in gpus[6:]] == [0] * 7
    assert gpus[4].samples is not None
    assert gpus[4].samples[0].sm == 99


def test_a_kernel_of_one_block_is_busy_at_no_watts() -> None:
    """Utilization is time, not work: 98 % of the windows at 0 W above the floor."""
    few = run(text(tenant("start: -1m, kernels: few"))).gpu()[-1]
    none = run(text(tenant("start: -1m, busy: {pattern: parked}"))).gpu()[-1]
    assert few.samples
    assert few.samples[0].sm in {97, 98}
    assert few.power_milliwatts == none.power_milliwatts == 120_000


@pytest.mark.parametrize(
    ("kernels", "watts"), [("few", 0), ("half", 100), ("arithmetic", 211), ("stream", 294)]
)
def test_what_kernels_draw(kernels: str, watts: float) -> None:
    """Each kind draws what was measured, above bare device and contexts."""
    world = run(text(tenant(f"start: -1m, kernels: {kernels}, wander: 0")))
    assert world.grown() / 60 == pytest.approx(120 + watts, abs=0.1)


def test_the_power_limit_lowers_the_clock() -> None:
    """Tensor work wants 819 W; the limit of 700 W holds it at about 1520 MHz."""
    world = run(text(tenant("start: -1m, kernels: gemm, wander: 0")))
    last = world.gpu()[-1]
    assert last.power_milliwatts == pytest.approx(700_000, abs=2)
    assert 1500 <= last.extra["clocks.sm"] <= 1545  # type: ignore[operator]
    assert world.grown() == pytest.approx(700 * 60, rel=1e-6)
    bare = run(text()).gpu()[-1]
    assert (bare.extra["clocks.sm"], bare.power_milliwatts) == (345, 80_000)


def test_contexts_draw_whatever_their_number() -> None:
    """40 W as soon as any context is open, the same for one and for four."""
    for count, watts in ((0, 80), (1, 120), (4, 120)):
        parked = f"start: -1m, count: {count}, busy: {{pattern: parked}}"
        world = run(text(tenant(parked)) if count else text())
        assert world.grown() == pytest.approx(watts * 60, abs=0.1)


def test_leakage() -> None:
    """A hot GPU draws more when it rests: a tenth for each 30 °C; it cools within a minute."""
    gpu = PLAIN.replace("leakage: 0", "leakage: 0.1")
    hot = "start: -1m, kernels: gemm, wander: 0, busy: {trace: [[0s, 1], [62s, 0]]}"
    gpus = run(text(tenant(hot), gpus=[gpu], top="duration: 2m"), 1).gpu()
    powers = [gpu.power_milliwatts or 0 for gpu in gpus]
    temperatures = [gpu.temperature_celsius or 0 for gpu in gpus]
    assert temperatures[1] >= 57
    assert temperatures[-1] == pytest.approx(37, abs=1)
    assert powers[5] > powers[20] > powers[60]
    floor = 120 * (1 + 0.1 * (temperatures[-1] - 35) / 30)
    assert powers[-1] / 1000 == pytest.approx(floor, rel=0.003)


def test_the_counter_refreshes_and_only_grows() -> None:
    """Between refreshes it stands still; it is the integral of the power that was."""
    top = "duration: 60s\ndriver: {energy_refresh: 2s}"
    process = "start: -1m, kernels: stream, busy: {pattern: serving, level: 1, period: 3s}"
    gpus = run(text(tenant(process), top=top), 0.5).gpu()
    counter = [gpu.energy_millijoules or 0 for gpu in gpus]
    steps = [b - a for a, b in pairwise(counter)]
    assert min(steps) == 0
    assert sum(step > 0 for step in steps) == 30
    instants = [gpu.power_milliwatts or 0 for gpu in gpus][1:]
    assert sum(instants) / 2 == pytest.approx(counter[-1] - counter[0], rel=0.04)


def test_power_is_a_mean_over_a_second_where_the_driver_says_so() -> None:
    """Averaged on a H200, with the instant beside it; instantaneous on an A100."""
    process = "busy: {trace: [[0s, 0], [10s, 1]]}, watts: 200, wander: 0"
    h200 = run(text(tenant(process)), 0.25).gpu()[42]  # at 10.5 s
    assert h200.power_milliwatts == pytest.approx(220_000, abs=20_000)
    assert h200.power_instant_milliwatts == 320_000
    a100 = "{model: NVIDIA A100-SXM4-80GB, idle_watts: 80, context_watts: 40, leakage: 0}"
    old = run(text(tenant(process), gpus=[a100]), 0.25).gpu()[42]
    assert old.power_milliwatts == 320_000
    assert old.power_instant_milliwatts is None
    assert old.failures == {"power_instant_milliwatts": "NOT_SUPPORTED"}
    assert old.profile is None


def test_watts_wander_and_change_by_phases() -> None:
    """By a tenth over 20 s or so, and by the factor of the phase."""
    process = "start: -1m, watts: 200, phases: [[31m, 2]]"
    world = run(text(tenant(process), top="duration: 1h"), 1)
    watts = [(gpu.power_instant_milliwatts or 0) / 1000 - 120 for gpu in world.gpu()]
    early, late = watts[:1790], watts[1810:]
    assert mean(early) == pytest.approx(200, rel=0.06)
    assert mean(late) == pytest.approx(400, rel=0.06)
    assert 0.05 < stdev(early) / mean(early) < 0.15
    assert stdev([b - a for a, b in pairwise(early)]) < 0.5 * stdev(early)


def test_waits_leave_slices_empty_and_windows_owned() -> None:
    """Who waits owns as many windows as the other, and does less work, only when shared."""
    waiting = "name: waiting, start: -1m, waits: 0.5, wander: 0"
    filling = "name: filling, start: -1m, wander: 0"
    world = run(text(tenant(waiting, filling), top="duration: 10m"))
    wait, fill = world.process("waiting"), world.process("filling")
    assert wait["busy_seconds"] == pytest.approx(300)
    assert fill["busy_seconds"] == pytest.approx(300)
    assert fill["energy_joules"]["active"] == pytest.approx(300 * 211)
    assert wait["energy_joules"]["active"] == pytest.approx(300 * 211 / 2)
    owned = mean(share(gpu, wait["pid"]) for gpu in world.gpu()[1:])
    assert owned == pytest.approx(99 / 2, abs=3)
    alone = run(text(tenant(waiting), top="duration: 10m")).process("waiting")
    assert alone["energy_joules"]["active"] == pytest.approx(600 * 211)


def test_time_slices_are_fair() -> None:
    """Who wants little gets it; those who want all divide the rest."""
    processes = [f"name: p{level}, start: -1m, busy: {{level: {level}}}" for level in (0.2, 1, 0.9)]
    world = run(text(tenant(*processes)))
    busy = [world.process(f"p{level}")["busy_seconds"] for level in (0.2, 1, 0.9)]
    assert busy == pytest.approx([12, 24, 24])


def test_a_profile_is_the_sum_of_what_each_computes() -> None:
    """Each process's figures alone times the GPU time that it really got."""
    tensor = "kernels: {sm_active: 0.9, tensor_active: 0.8}, waits: 0.4, watts: 200"
    stream = "kernels: {sm_active: 0.5, dram_active: 0.6}, watts: 200"
    both = [f"start: -1m, wander: 0, {kernels}" for kernels in (tensor, stream)]
    gpus = run(text(tenant(*both))).gpu()
    assert gpus[0].profile is None, "there is no reading before the first"
    assert gpus[3].profile == pytest.approx(
        {
            "graphics_active": 0.8,
            "sm_active": 0.5 * 0.6 * 0.9 + 0.5 * 0.5,
            "sm_occupancy": 0,
            "tensor_active": 0.5 * 0.6 * 0.8,
            "fp32_active": 0,
            "integer_active": 0,
            "dram_active": 0.5 * 0.6,
        },
        abs=1e-4,
    )


def test_mps() -> None:
    """All windows are the server's; its clients are listed as MPS's and have no samples."""
    gpu = PLAIN.replace("leakage: 0", "leakage: 0, mps: true")
    clients = "start: -1m, count: 2, watts: 100, wander: 0, waits: 0.5, busy: {level: 0.4}"
    world = run(text(tenant(clients), gpus=[gpu]))
    last, processes = world.gpu()[-1], world.readings[-1].processes
    assert last.processes is not None
    kinds = {processes[p.pid].name: p.kinds for p in last.processes}
    assert kinds == {"nvidia-cuda-mps": ("compute",), "python": ("compute", "mps")}
    (sample,) = last.samples or ()
    assert processes[sample.pid].name == "nvidia-cuda-mps"
    assert sample.sm == pytest.approx(79, abs=1)
    account = world.account("bob")
    assert account["energy_joules"] == pytest.approx({"active": 4800, "parked": 2400, "idle": 4800})
    server = world.account("nvidia-mps.service")
    assert server["held_seconds"] == 0, "it holds nothing while it has a client"
    assert sum(server["energy_joules"].values()) == 0


def test_hidden_processes() -> None:
    """In no list and in no sample; in memory, windows, /proc, and in the truth."""
    hidden = "name: ollama, start: -1m, memory: 20GiB, visible: false, wander: 0"
    seen = "name: seen, start: -1m, memory: 10GiB, wander: 0"
    world = run(text(tenant(hidden, seen), top="duration: 10m"))
    last = world.gpu()[-1]
    assert last.processes is not None
    assert last.memory is not None
    assert [p.memory for p in last.processes] == [10 << 30]
    assert (last.memory.used or 0) >> 30 == 30
    assert mean(share(gpu, last.processes[0].pid) for gpu in world.gpu()) == pytest.approx(
        50, abs=4
    )
    assert all(w[1] == 99 for w in last.windows or ())
    assert "ollama" in {p.name for p in world.readings[-1].processes.values()}
    assert world.process("ollama")["busy_seconds"] == pytest.approx(300)
    assert world.account("bob")["memory_bytes"] == {"reported": 10 << 30, "inferred": 20 << 30}


def test_memory_grows_from_point_to_point() -> None:
    """Evenly between points, known by process, and gone with it; the reserve stays apart."""
    process = "start: 10s, stop: 40s, memory: [[0s, 1GiB], [10s, 3GiB]]"
    gpus = run(text(tenant(process), gpus=["{memory: 80GiB, reserved: 1GiB}"])).gpu()
    seen = [gpu.processes[0].memory if gpu.processes else None for gpu in gpus]
    gib = 1 << 30
    assert seen == [None, None, gib, 2 * gib, *[3 * gib] * 4, *[None] * 5]
    for gpu in gpus:
        memory = gpu.memory
        assert memory is not None
        assert (memory.used or 0) + (memory.reserved or 0) + (memory.free or 0) == memory.total
    assert gpus[-1].memory is not None
    assert gpus[-1].memory.used == 0


worlds = st.builds(
    lambda seed, gpu, lives, poll, refresh, faults: (
        text(
            *(tenant(*of, who=f"user: u{i}", gpus=place) for i, (place, of) in enumerate(lives)),
            gpus=[gpu],
            top=f"seed: {seed}\nduration: 90s\ndriver: {{energy_refresh: {refresh}}}",
            faults=faults,
        ).replace("[0]", "['0:0']" if "mig" in gpu else "[0]"),
        poll,
    ),
    st.integers(0, 99),
    st.sampled_from(
        [
            "{}",
            "{model: NVIDIA H200, mps: true}",
            "{model: NVIDIA A100, leakage: 0.3}",
            "{mig: [3g.40gb, 1g.10gb]}",
        ]
    ),
    st.lists(
        st.tuples(
            st.just("[0]"),
            st.lists(
                st.builds(
                    "start: {}, stop: {}, kernels: {}, waits: {}, busy: {{pattern: {}}}".format,
                    st.sampled_from(["-1m", "0s", "7300ms", "31s"]),
                    st.sampled_from(["41s", "47.77s", "80s", "3m"]),
                    st.sampled_from(["gemm", "few", "stream", "half"]),
                    st.sampled_from(["0", "0.7"]),
                    st.sampled_from(["steady", "training", "serving", "notebook", "parked"]),
                ),
                min_size=1,
                max_size=3,
            ),
        ),
        max_size=3,
    ),
    st.sampled_from([0.7, 5, 31]),
    st.sampled_from(["20ms", "100ms", "7s"]),
    st.sampled_from([(), ("at: 30s, for: 10s, what: lost",), ("at: 9s, for: 9s, hang: memory",)]),
)


@settings(max_examples=40, deadline=None)
@given(worlds)
def test_the_truth_is_what_the_counter_counted(world: tuple[str, float]) -> None:
    """Active, parked, idle and free add up to the counter's growth; held and free to the time."""
    seen = run(*world)
    told = seen.truth["gpus"]
    assert sum(gpu["energy_joules"] for gpu in told) == pytest.approx(seen.grown(), abs=0.002)
    seconds = seen.readings[-1].monotonic - seen.readings[0].monotonic
    accounts = seen.truth["accounts"]
    for gpu in told:
        mine = [a for a in accounts if a["mig"] == gpu["mig"]]
        if "seconds" in gpu:
            assert gpu["seconds"]["held"] + gpu["seconds"]["free"] == pytest.approx(seconds)
            charged = sum(a["charged_seconds"] for a in mine)
            assert charged == pytest.approx(gpu["seconds"]["held"])
    for account in accounts:
        idle = sum(account["idle_seconds"].values())
        assert account["busy_seconds"] + idle == pytest.approx(account["held_seconds"])
        joules = sum(account["energy_joules"].values())
        assert account["measured_joules"] <= joules + 1e-6
        own = [
            sum(p["energy_joules"].values())
            for p in seen.truth["processes"]
            if p["owner"] == account["owner"]["name"] and p["mig"] == account["mig"]
        ]
        assert sum(own) == pytest.approx(joules), "an owner without allocation is its processes"
