"""The idle machine, row by row of its table, and what must never make or unmake idleness."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from gpuledger.ledger.idle import Idleness, Watched
from gpuledger.readings import Gpu, GpuProcess, Process, Reading, Sample, Window
from gpuledger.sources.simulated import Run
from gpuledger.sources.simulated.scenario import loads

GIB = 1 << 30
START = 1_763_000_000.0


@dataclass
class Story:
    """A device with a process, told poll by poll in letters.

    z: it owned no window; b: it owned some; f: the call failed; g: garbage; s: stale; m: it is
    missed in the list; l: the list failed; 0: no memory, no window; u: memory unknown, no window.
    """

    idle_polls: int = 2
    interval: float = 5.0
    at: float = START
    monotonic: float = 1000.0
    start: float = 1.0
    windows: bool = True
    machine: Idleness = field(init=False)
    newest: int = 0

    def __post_init__(self) -> None:
        self.machine = Idleness(self.idle_polls)
        self.newest = int((self.at - self.interval) * 1e6)

    def tell(self, letters: str) -> list[float | None]:
        """Give idle_seconds after each poll; None: not shown."""
        return [self.poll(letter) for letter in letters]

    def poll(self, letter: str) -> float | None:
        self.at += self.interval
        self.monotonic += self.interval
        since = self.newest
        ends = range(since + 200_000, int(self.at * 1e6) + 1, 200_000)
        busy = letter == "b"
        samples: tuple[Sample, ...] | None = ()
        if ends:
            self.newest = ends[-1]
        if busy and ends:
            samples = (Sample(pid=7, at=self.newest, sm=37),)
        elif letter == "f":
            samples, self.newest = None, since
        elif letter == "g":
            samples = (Sample(pid=7, at=self.newest, sm=3_000_000),)
        elif letter == "s":
            samples = (Sample(pid=7, at=since - 1, sm=50),)
        memory = {"0": 0, "u": None}.get(letter, GIB)
        windows: tuple[Window, ...] = tuple((end, 37 if busy else 0, 0) for end in ends)
        gpu = Gpu(
            index=0,
            uuid="a",
            processes=() if letter == "m" else (GpuProcess(pid=7, memory=memory),),
            samples=samples,
            samples_since=since,
            windows=windows if self.windows else None,
        )
        if letter == "l":
            gpu = replace(gpu, processes=None)
        processes = {7: Process(start=self.start, name="python")}
        self.machine.step(
            Reading(at=self.at, monotonic=self.monotonic, gpus=(gpu,), processes=processes)
        )
        found = list(self.machine.of(gpu))
        return found[0].idle_seconds(self.monotonic) if found else None

    def watched(self) -> Watched:
        return self.machine._watched["a"][7]


@pytest.mark.parametrize(
    ("letters", "seconds"),
    [
        # new: zero counts, and at two it is idle, since the first
        ("zz", [0, 5]),
        ("zzz", [0, 5, 10]),
        # new: busy makes it active
        ("b", [0]),
        ("zbzz", [0, 0, 0, 5]),
        # new: blind leaves it new, its count kept
        ("f", [None]),
        ("fzfz", [None, 0, 0, 10]),
        # active: zero counts from this poll
        ("bz", [0, 0]),
        ("bzz", [0, 0, 5]),
        # active: busy begins the count anew
        ("bzbzz", [0, 0, 0, 0, 5]),
        # active: blind keeps the count
        ("bzfz", [0, 0, 0, 10]),
        # idle: zero goes on
        ("zzzz", [0, 5, 10, 15]),
        # idle: busy ends it
        ("zzbz", [0, 5, 0, 0]),
        # idle: blind, the clock runs
        ("zzfff", [0, 5, 10, 15, 20]),
    ],
)
def test_each_row(letters: str, seconds: list[float | None]) -> None:
    """The table of transitions, a golden trace for each of its cells."""
    assert Story().tell(letters) == seconds


@pytest.mark.parametrize("blind", ["f", "g", "s"])
def test_what_tells_nothing_changes_nothing(blind: str) -> None:
    """Failed, garbage and stale samples never make and never unmake idleness."""
    assert Story().tell(blind * 6) == [None] * 6
    assert Story().tell("b" + blind * 6) == [0] * 7
    assert Story().tell("zz" + blind * 3 + "z") == [0, 5, 10, 15, 20, 25]


@pytest.mark.parametrize("polls", [1, 2, 3, 10])
def test_idle_polls(polls: int) -> None:
    """--idle-polls is the number of zero polls in a row that it takes."""
    seconds = Story(idle_polls=polls).tell("b" + "z" * (polls + 1))
    assert seconds == [0] * polls + [5.0 * (polls - 1), 5.0 * polls]


def test_memory() -> None:
    """Who is known to hold nothing is not idle; whose memory is not known may be."""
    assert Story().tell("000") == [0, 0, 0]
    assert Story().tell("zz0zz") == [0, 5, 0, 0, 5]
    assert Story().tell("uu") == [0, 5]


def test_polls_closer_than_windows() -> None:
    """A busy process that is polled every 250 ms never looks idle: no window yet is no zero."""
    story = Story(interval=0.25)
    # It owns every other window, so half of the polls have no sample of it.
    assert set(story.tell("b" + "zb" * 100)) == {0}
    story = Story(interval=0.25)
    assert set(story.tell("b" + "zzb" * 100)) == {0}
    # One that stopped is idle soon all the same.
    seconds = story.tell("z" * 40)
    assert seconds[-1] is not None
    assert 5 <= seconds[-1] <= 10


def test_polls_closer_than_windows_without_windows() -> None:
    """The same where the driver does not list its windows."""
    story = Story(interval=0.25, windows=False)
    assert set(story.tell("b" + "zzb" * 100)) == {0}
    seconds = story.tell("z" * 40)
    assert seconds[-1] is not None
    assert 5 <= seconds[-1] <= 10


def test_missed_for_a_short_while() -> None:
    """A process that a list missed for up to 30 s goes on; its series are gone meanwhile."""
    story = Story()
    assert story.tell("zzmmmzz") == [0, 5, None, None, None, 25, 30]
    assert story.tell("m" * 8 + "zz") == [None] * 8 + [0, 5]


def test_a_list_that_fails_for_long() -> None:
    """A list that fails says of nobody that it went, however long it fails."""
    story = Story()
    assert story.tell("zz" + "l" * 20 + "z") == [0, 5, *[None] * 20, 110]


def test_a_pid_of_another_process() -> None:
    """A pid that was given to another process begins anew."""
    story = Story()
    assert story.tell("zzz") == [0, 5, 10]
    story.start = 1010.0
    assert story.tell("zz") == [0, 5]


def test_a_start_that_is_known_late() -> None:
    """That the start was learned later makes no other process of it."""
    story = Story()
    story.tell("zz")
    story.watched().start = None
    assert story.poll("z") == 10


@pytest.mark.parametrize("step", [3600.0, -3600.0, 0.6])
def test_a_step_of_the_wall_clock(step: float) -> None:
    """A stepped clock makes that interval blind, and moves no idle clock."""
    story = Story()
    story.tell("zz")
    story.at += step
    assert story.poll("b") == 10, "what came with the step is not believed"
    story.newest = int(story.at * 1e6)
    assert story.poll("z") == 15


def test_a_gpu_that_is_lost() -> None:
    """Nobody is shown on a lost GPU; when it is back, clocks go on."""
    story = Story()
    story.tell("zz")
    story.monotonic += 5
    story.at += 5
    lost = Gpu(index=0, uuid="a", failures={"device": "GPU_IS_LOST"})
    story.machine.step(Reading(at=story.at, monotonic=story.monotonic, gpus=(lost,)))
    assert list(story.machine.of(lost)) == []
    assert story.poll("z") == 15


SHARED = """
seed: {number}
duration: 10m
driver: {{window: {window}}}
gpus: [{{model: NVIDIA H200}}]
tenants:
  - user: ann
    gpus: [0]
    processes:
      - {{name: busy, count: {number}, start: -1h, memory: 1GiB, kernels: gemm}}
      - {{name: quiet, start: -1h, memory: 1GiB, busy: {{pattern: parked}}}}
"""


@pytest.mark.parametrize("window", ["200ms", "500ms"])
@pytest.mark.parametrize("number", [1, 2, 3, 8])
@pytest.mark.parametrize("interval", [0.25, 1.0, 5.0])
def test_who_shares_a_gpu_does_not_look_idle(interval: float, number: int, window: str) -> None:
    """The driver looks at one process at a time: that it saw others is no idleness yet."""
    machine = Idleness(2)
    quiet: list[float] = []
    for reading in Run(loads(SHARED.format(number=number, window=window), "shared"), interval):
        machine.step(reading)
        for watched in machine.of(reading.gpus[0]):
            seconds = watched.idle_seconds(machine.now)
            if reading.processes[watched.pid].name == "busy":
                assert not seconds
            else:
                quiet.append(seconds or 0.0)
    assert quiet[-1] > 480, "who does nothing is found all the same"
