"""The idle machine: which processes hold memory and compute nothing, by a table of transitions.

A poll of a process is *zero* (its part is known to be 0 and it holds memory), *busy* (its part is
above 0) or *blind* (its part is not known, or too little time has passed to tell). Only zero polls
in a row make a process idle; only a busy one makes it active; a blind one changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from gpuledger.ledger.seconds import newest_time, parts
from gpuledger.readings import CLOCK_STEP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuledger.ledger.seconds import Parts
    from gpuledger.readings import Gpu, Reading

State: TypeAlias = Literal["new", "active", "idle"]
Poll: TypeAlias = Literal["zero", "busy", "blind"]
Step: TypeAlias = Literal["count", "wake", "stay"]

TRANSITIONS: dict[tuple[State, Poll], Step] = {
    ("new", "zero"): "count",  # one more; at the number that is set: idle, since the first
    ("new", "busy"): "wake",  # active, and the count begins anew
    ("new", "blind"): "stay",
    ("active", "zero"): "count",
    ("active", "busy"): "wake",
    ("active", "blind"): "stay",
    ("idle", "zero"): "stay",
    ("idle", "busy"): "wake",
    ("idle", "blind"): "stay",  # the clock runs on
}

USUAL_WINDOW, LONGEST_WINDOW = 0.2, 5.0  # seconds
TURNS_ALONE, TURNS_SHARED = 4, 8  # windows without it that it takes to tell that it had none
KEPT_WHILE_MISSED = 30.0  # seconds


@dataclass
class Watched:
    """A process on a device, as the machine knows it."""

    pid: int
    start: float | None
    state: State = "new"
    zeros: int = 0
    first_zero: float = 0.0  # of the run of zero polls, on the readings' clock
    told: bool = False  # whether any poll was not blind
    part: float | None = None  # of the newest span that told, in percent
    busy_lately: bool = False  # since the last poll that could tell a zero
    missed_since: float | None = None

    def poll(self, kind: Poll, now: float, idle_polls: int) -> None:
        """Go one step by the table."""
        self.told = self.told or kind != "blind"
        step = TRANSITIONS[self.state, kind]
        if step == "wake":
            self.state, self.zeros = "active", 0
        elif step == "count":
            if self.zeros == 0:
                self.first_zero = now
            self.zeros += 1
            if self.zeros >= idle_polls:
                self.state = "idle"

    def forget(self) -> None:
        """Begin anew: who holds no memory is neither idle nor counted."""
        self.state, self.zeros, self.told, self.part = "new", 0, True, 0.0

    def idle_seconds(self, now: float) -> float | None:
        """Give for how long it has been idle: 0 while it is not, None while nobody can tell."""
        if not self.told:
            return None
        return now - self.first_zero if self.state == "idle" else 0.0


class Idleness:
    """All processes of a node, watched from reading to reading."""

    def __init__(self, idle_polls: int) -> None:
        self._idle_polls = idle_polls
        self._watched: dict[str, dict[int, Watched]] = {}
        self._told_at: dict[str, float] = {}
        self._newest: dict[str, int | None] = {}
        self._ends: dict[str, int] = {}  # of the newest windows
        self._windows: dict[str, float] = {}  # their length
        self._rivals: dict[str, set[int]] = {}  # who was busy since the last poll that could tell
        self._clocks: tuple[float, float] | None = None
        self._at = 0.0
        self.now = 0.0

    def step(self, reading: Reading) -> None:
        """Take the next reading."""
        self.now = reading.monotonic
        stepped = self._stepped(reading)
        for gpu in reading.gpus:
            watched = self._watched.setdefault(gpu.uuid, {})
            self._meet(gpu, watched, reading)
            before = self._newest.get(gpu.uuid)
            found = None if stepped else parts(gpu, reading.processes, before)
            self._newest[gpu.uuid] = newest_time(gpu) or before
            self._poll(gpu, watched, found)

    def of(self, gpu: Gpu) -> Iterator[Watched]:
        """Give the processes that the newest reading lists on a device."""
        for process in gpu.processes or ():
            watched = self._watched.get(gpu.uuid, {}).get(process.pid)
            if watched is not None:
                yield watched

    def _meet(self, gpu: Gpu, watched: dict[int, Watched], reading: Reading) -> None:
        """Find out who is there; who is missed for a while is remembered, who was replaced not."""
        if gpu.processes is None:
            return
        listed = {process.pid for process in gpu.processes}
        for pid in listed:
            process = reading.processes.get(pid)
            start = process.start if process else None
            old = watched.get(pid)
            if old is None or (None not in (start, old.start) and start != old.start):
                watched[pid] = Watched(pid, start)
            else:
                old.start = start if old.start is None else old.start
                old.missed_since = None
        for pid in list(watched.keys() - listed):
            gone = watched[pid]
            if gone.missed_since is None:
                gone.missed_since = self.now
            if self.now - gone.missed_since > KEPT_WHILE_MISSED:
                del watched[pid]

    def _poll(self, gpu: Gpu, watched: dict[int, Watched], found: Parts | None) -> None:
        """Say what kind of poll this was for each process, and go a step."""
        enough = found is not None and self._is_enough(gpu, found)
        for process in gpu.processes or ():
            of = watched[process.pid]
            part = None if found is None else found[process.pid]
            kind: Poll = "blind"
            if part is None:
                of.part = None
            elif part > 0:
                kind, of.part = "busy", part
            elif process.memory == 0:
                of.forget()
            elif enough and not of.busy_lately:
                kind, of.part = "zero", 0.0
            of.poll(kind, self.now, self._idle_polls)
            of.busy_lately = not enough and (of.busy_lately or kind == "busy")

    def _is_enough(self, gpu: Gpu, found: Parts) -> bool:
        """Tell whether a lack of windows means anything yet.

        The driver gives each window to one process, so that of a process which shares the GPU with
        others that compute, it may see nothing for a while: it takes time for eight of its turns.
        """
        if gpu.windows is not None and not gpu.windows:
            return False
        rivals = self._rivals.setdefault(gpu.uuid, set())
        rivals.update(pid for pid, part in found.items() if part)
        covered = self._at - gpu.samples_since / 1e6 if gpu.samples_since else TURNS_ALONE
        told_at = self._told_at.setdefault(gpu.uuid, self.now - covered)
        turns = TURNS_SHARED * (len(rivals) + 1) if rivals else TURNS_ALONE
        if self.now - told_at < turns * self._window(gpu):
            return False
        self._told_at[gpu.uuid] = self.now
        rivals.clear()
        return True

    def _window(self, gpu: Gpu) -> float:
        """Give the length of the driver's windows here, in seconds, as learned."""
        if gpu.windows:
            first, last, more = gpu.windows[0][0], gpu.windows[-1][0], len(gpu.windows) - 1
            if not more:
                first, more = self._ends.get(gpu.uuid, last), 1
            self._ends[gpu.uuid] = last
            if 0 < (length := (last - first) / more / 1e6) <= LONGEST_WINDOW:
                self._windows[gpu.uuid] = length
        return self._windows.get(gpu.uuid, USUAL_WINDOW)

    def _stepped(self, reading: Reading) -> bool:
        """Tell whether the wall clock, in which samples are told, went another way than ours."""
        before, self._at = self._clocks, reading.at
        self._clocks = (reading.at, reading.monotonic)
        if before is None:
            return False
        return abs((reading.at - before[0]) - (reading.monotonic - before[1])) > CLOCK_STEP
