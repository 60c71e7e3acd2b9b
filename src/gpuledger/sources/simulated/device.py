"""One GPU's physics: time slices, watts, heat, the clock, the energy counter, the windows.

It goes forward in pieces of even power, each within one window of the driver and always to the end
of one: readings look back into the newest pieces, so that when they are made changes nothing.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from random import Random

    from gpuledger.sources.simulated.context import Context
    from gpuledger.sources.simulated.part import Part, Roster, Run

BEGIN = -16.0  # seconds: at the first reading, windows, heat and power have a past
AMBIENT = 32.0  # °C
HEAT = 0.04  # °C a watt
HEAT_SECONDS = 10.0
COOL = 35.0  # leakage counts from here
LEAKAGE_SPAN = 30.0  # °C
CLOCK_POWER = 1.327  # watts follow the clock to this power (819 W at 1980 MHz, 577 at 1520)
WINDOWS_KEPT = 71
LOOK = 0.002  # a window's end is told as late or as early as this
FULL = 99  # percent
CONTROLLER = 130  # percent of its time that the memory's controller works, for each of `dram`
AVERAGED = 1.0  # seconds that a reading of power is the mean of


class Facts(NamedTuple):
    """What a device is, in numbers."""

    idle_watts: float
    context_watts: float
    limit_watts: float
    leakage: float
    window: float
    refresh: float
    resets: Sequence[float] = ()  # when the energy counter begins again


class Window(NamedTuple):
    """A window of the driver, given whole to one process."""

    end: int  # µs of wall clock
    busy: int  # percent
    memory: int
    owner: Context | None
    at: float


class Piece:
    """A span of even power; `energy` is the sum at its begin."""

    __slots__ = (
        "begin",
        "end",
        "energy",
        "idle",
        "parked",
        "rosters",
        "runs",
        "scale",
        "watts",
    )

    begin: float
    end: float
    energy: float
    watts: float
    idle: float
    parked: float
    scale: float
    runs: list[list[Run]]
    rosters: list[Roster]


class Device:
    """A GPU that goes on by itself, and is looked at."""

    def __init__(
        self,
        facts: Facts,
        parts: list[Part],
        wall: Callable[[float], int],
        chance: Random,
    ) -> None:
        """Begin before the scenario does; `wall` gives µs of wall clock."""
        self.facts = facts
        self.parts = parts
        self.windows: deque[Window] = deque(maxlen=WINDOWS_KEPT + 2)
        self.pieces: deque[Piece] = deque()
        self.joules_at: dict[float, float] = {}  # of the resets that were
        self.temperature = AMBIENT + HEAT * (facts.idle_watts + facts.context_watts)
        self._chance = chance
        self._wall = wall
        self._at = BEGIN
        self._energy = 0.0
        self._window_begin = BEGIN
        self._window_end = BEGIN + facts.window * chance.uniform(0.1, 1)
        self._busy = self._dram = 0.0  # of the window in work, seconds
        self._last: Context | None = None
        self._heat_kept = 0.0  # of the first window: it has been so for long
        self._next_change = -math.inf

    def advance(self, until: float) -> None:
        """Go on until a moment at least."""
        if self._next_change <= self._at:
            self._change()
        while self._at < until:
            end = min(self._window_end, self._next_change)
            self._step(self._at, end)
            self._at = end
            if end == self._next_change:
                self._change()
            if end == self._window_end:
                self._close_window(end)

    def look_again(self) -> None:
        """Take note that somebody comes or goes."""
        self._next_change = -math.inf

    def forget(self, now: float) -> None:
        """Drop the pieces that a reading from now on will not look at."""
        before = now - max(AVERAGED, self.facts.refresh)
        while self.pieces[0].end < before:
            self.pieces.popleft()

    def energy(self, at: float) -> float:
        """Give the joules up to a moment of the newest pieces."""
        piece = self.piece(at)
        return piece.energy + piece.watts * (at - piece.begin)

    def between(self, begin: float, end: float) -> Iterator[tuple[Piece, float]]:
        """Give the pieces of a span that is not too long ago, and how much of each is in it."""
        for piece in self.pieces:
            seconds = min(piece.end, end) - max(piece.begin, begin)
            if seconds > 0:
                yield piece, seconds

    def clock(self, at: float) -> float:
        """Give the part of the full clock that the power limit leaves."""
        return float(self.piece(at).scale ** (1 / CLOCK_POWER))

    def piece(self, at: float) -> Piece:
        """Give the piece that a moment is in; it has to be one of the newest."""
        for piece in reversed(self.pieces):
            if piece.begin <= at:
                return piece
        return self.pieces[0]

    def contexts(self) -> Iterable[Context]:
        return (context for part in self.parts for context in part.contexts)

    def _change(self) -> None:
        if self._at in self.facts.resets:
            self.joules_at[self._at] = self._energy
        for part in self.parts:
            part.change(self._at)
        moments = [part.next_change(self._at) for part in self.parts]
        self._next_change = min(
            moments + [reset for reset in self.facts.resets if reset > self._at]
        )

    def _step(self, begin: float, end: float) -> None:
        """Go through a span in which nobody comes or goes."""
        seconds = end - begin
        facts = self.facts
        wanted = busy = dram = 0.0
        runs = []
        open_contexts = False
        for part in self.parts:
            shared, occupied = part.share(begin, end)
            open_contexts = open_contexts or part.roster.open
            busy += occupied * part.fraction
            for context, given, watts, useful, _ in shared:
                context.owned += given * seconds
                wanted += watts
                dram += useful * context.dram
            runs.append(shared)
        warmth = 1 + facts.leakage * (self.temperature - COOL) / LEAKAGE_SPAN
        piece = Piece()
        piece.begin, piece.end = begin, end
        piece.idle = facts.idle_watts * warmth
        piece.parked = facts.context_watts * warmth if open_contexts else 0.0
        room = max(facts.limit_watts - piece.idle - piece.parked, 0.0)
        piece.scale = 1.0 if wanted <= room else room / wanted
        piece.watts = piece.idle + piece.parked + wanted * piece.scale
        piece.energy = self._energy
        piece.runs = runs
        piece.rosters = [part.roster for part in self.parts]
        self.pieces.append(piece)
        self._energy += piece.watts * seconds
        self._busy += busy * seconds
        self._dram += dram * seconds

    def _close_window(self, end: float) -> None:
        """Give the window to the process that was there when the driver looked."""
        chance = self._chance
        length = end - self._window_begin
        told = end + max(-LOOK, min(LOOK, chance.gauss(0.0, LOOK / 2)))
        look, tremble = chance.random(), chance.random()
        self._last = self._owner(look, end)
        self.windows.append(
            Window(
                self._wall(told),
                int(FULL * min(self._busy / length, 1.0) + tremble),
                min(FULL, int(CONTROLLER * self._dram / length + tremble)),
                self._last,
                told,
            )
        )
        target = AMBIENT + HEAT * self.pieces[-1].watts
        self.temperature = target + (self.temperature - target) * self._heat_kept
        self._heat_kept = math.exp(-self.facts.window / HEAT_SECONDS)
        for context in self.contexts():
            context.owned = 0.0
            context.wander(end)
        self._busy = self._dram = 0.0
        self._window_begin = end
        self._window_end = end + self.facts.window

    def _owner(self, look: float, end: float) -> Context | None:
        """Choose by the time that each had; an empty window stays with who was there last."""
        part = self.parts[0]
        if part.server is not None and self._busy:
            return part.server
        had = [c for c in part.contexts if c.owned]
        had = [c for c in had if c.alive(end)] or had
        if not had:
            return self._last if self._last is not None and self._last.alive(end) else None
        left = look * sum(c.owned for c in had)
        for context in had:
            left -= context.owned
            if left <= 0:
                return context
        return had[-1]
