"""What really happened: seconds, bytes and joules of each owner and process, as books are kept.

books.md's rules of holding, parking and sharing are used on what really was, moment by moment;
active joules are what the kernels drew. What nobody could see (hidden processes) is here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuledger.sources.simulated.context import Context
    from gpuledger.sources.simulated.device import Device, Piece
    from gpuledger.sources.simulated.tenants import Tenancy


class Share:
    """Joules of an owner or a process, and of the latter when it ran."""

    __slots__ = ("active", "busy", "idle", "measured", "parked", "quiet_since")

    def __init__(self) -> None:
        self.active = self.parked = self.idle = self.measured = 0.0
        self.busy = 0.0  # seconds, of a process
        self.quiet_since: float | None = None

    def add(self, active: float, parked: float, idle: float, alone: bool) -> None:
        self.active += active
        self.parked += parked
        self.idle += idle
        if alone:
            self.measured += active + parked + idle

    @property
    def total(self) -> float:
        return self.active + self.parked + self.idle


class Account:
    """One owner on one device."""

    __slots__ = (
        "busy",
        "bytes",
        "charged",
        "gaps",
        "held",
        "in_context",
        "joules",
        "no_kernel",
        "no_process",
        "now",
        "ran",
        "tenancy",
    )

    def __init__(self, tenancy: Tenancy) -> None:
        self.tenancy = tenancy  # the latest of the owner
        self.joules = Share()
        self.held = self.charged = self.busy = 0.0
        self.no_process = self.no_kernel = self.gaps = 0.0
        self.in_context = self.ran = 0.0  # of the interval in work, seconds
        self.bytes = {"reported": 0.0, "inferred": 0.0}
        self.now = {"reported": 0, "inferred": 0}

    def close_interval(self) -> None:
        idle = self.in_context - self.ran
        if self.ran:
            self.gaps += idle
        else:
            self.no_kernel += idle
        self.busy += self.ran
        self.in_context = self.ran = 0.0


class Row:
    """A device of the books: a GPU, or an instance of one."""

    __slots__ = ("accounts", "free_joules", "free_seconds", "held_seconds", "processes")

    def __init__(self) -> None:
        self.free_joules = self.free_seconds = self.held_seconds = 0.0
        self.accounts: dict[tuple[str, str], Account] = {}
        self.processes: dict[Context, Share] = {}

    def account(self, tenancy: Tenancy) -> Account:
        key = tenancy.owner.kind, tenancy.owner.name
        account = self.accounts.get(key)
        if account is None:
            account = self.accounts[key] = Account(tenancy)
        account.tenancy = tenancy
        return account

    def process(self, context: Context) -> Share:
        return self.processes.setdefault(context, Share())


class Ledger:
    """The truth of one device."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.rows = [Row() for _ in device.parts]
        self.parent_free = 0.0  # joules of slices that no instance has
        self._seconds: float | None = None
        self._joules: float | None = None

    def book(self, until: float, counted: float) -> None:
        """Book seconds and bytes up to a moment, joules up to what the counter has counted."""
        if self._seconds is not None:
            for piece, seconds in self.device.between(self._seconds, until):
                self._book_seconds(piece, seconds, until)
        if self._joules is not None:
            for piece, seconds in self.device.between(self._joules, counted):
                self._book_joules(piece, seconds)
        self._seconds, self._joules = until, counted

    def close_interval(self, at: float) -> None:
        for row in self.rows:
            for account in row.accounts.values():
                account.close_interval()
                account.now = {"reported": 0, "inferred": 0}
        for row, part in zip(self.rows, self.device.parts, strict=True):
            for context in part.contexts:
                if context.alive(at):
                    row.process(context)  # who has just come, too
                    now = row.account(context.life.tenancy).now
                    now[_method(context)] += context.memory(at)

    def _book_seconds(self, piece: Piece, seconds: float, until: float) -> None:
        middle = (piece.begin + piece.end) / 2
        for row, roster, runs in zip(self.rows, piece.rosters, piece.runs, strict=True):
            if not roster.holders:
                row.free_seconds += seconds
                continue
            row.held_seconds += seconds
            inside = {context.life.tenancy for context in roster.contexts}
            ran: dict[Tenancy, float] = {}
            for context, part, _, _, _ in runs:
                tenancy = context.life.tenancy
                ran[tenancy] = ran.get(tenancy, 0.0) + part
                share = row.process(context)
                share.busy += part * seconds
                if part:
                    share.quiet_since = min(piece.end, until)
            for tenancy in roster.holders:
                account = row.account(tenancy)
                account.held += seconds
                account.charged += seconds / len(roster.holders)
                if tenancy in inside:
                    account.in_context += seconds
                    account.ran += min(1.0, ran.get(tenancy, 0.0)) * seconds
                else:
                    account.no_process += seconds
            for context in roster.contexts:
                share = row.process(context)
                if share.quiet_since is None:
                    share.quiet_since = min(piece.end, until) - seconds
                account = row.account(context.life.tenancy)
                account.bytes[_method(context)] += context.memory(middle) * seconds

    def _book_joules(self, piece: Piece, seconds: float) -> None:
        holders = {tenancy for roster in piece.rosters for tenancy in roster.holders}
        contexts = sum(len(roster.contexts) for roster in piece.rosters)
        alone = len(holders) == 1
        whole = 0.0
        for row, roster, runs, part in zip(
            self.rows, piece.rosters, piece.runs, self.device.parts, strict=True
        ):
            whole += part.fraction
            idle = piece.idle * seconds * part.fraction
            parked = piece.parked * seconds * part.fraction
            if not roster.holders:
                row.free_joules += idle + parked
                continue
            open_there: dict[Tenancy, list[Context]] = {}
            for context in roster.contexts:
                if context is not part.server or len(roster.contexts) == 1:
                    open_there.setdefault(context.life.tenancy, []).append(context)
            drawn = {c: watts * piece.scale * seconds for c, _, watts, _, _ in runs}
            for tenancy in roster.holders:
                mine = open_there.get(tenancy, ())
                has_idle = idle / len(roster.holders)
                has_parked = 0.0
                if mine:
                    has_parked = parked / len(open_there)
                elif not open_there:
                    has_parked = parked / len(roster.holders)
                active = sum(drawn.get(c, 0.0) for c in mine)
                row.account(tenancy).joules.add(active, has_parked, has_idle, alone)
                for context in mine:
                    row.process(context).add(
                        drawn.get(context, 0.0),
                        has_parked / len(mine),
                        has_idle / len(mine),
                        alone and len(mine) == contexts == 1,
                    )
        self.parent_free += (piece.idle + piece.parked) * seconds * (1 - whole)


def _method(context: Context) -> str:
    return "reported" if context.life.spec.visible else "inferred"
