"""The truth written as contract.md's books, so that books and truth can be laid side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuledger.sources.simulated.tenants import BOOTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuledger.readings import Memory
    from gpuledger.sources.simulated.truth import Account, Ledger, Row, Share

FORMAT, VERSION = "gpuledger-books", 1


def books(
    ledgers: Sequence[Ledger],
    uuids: Sequence[str],
    memories: Sequence[Memory],
    span: tuple[float, float],
    at: float,
) -> dict[str, Any]:
    """Write down the ledgers of all devices; `span` is of wall clock, `at` the scenario's end."""
    gpus: list[dict[str, Any]] = []
    accounts: list[dict[str, Any]] = []
    processes: list[dict[str, Any]] = []
    for index, (ledger, uuid, memory) in enumerate(zip(ledgers, uuids, memories, strict=True)):
        gpus += _devices(ledger, uuid, index, memory)
        for row, part in zip(ledger.rows, ledger.device.parts, strict=True):
            accounts += [_account(a, uuid, part.gi) for a in row.accounts.values()]
            processes += [
                {
                    "gpu": uuid,
                    "mig": part.gi,
                    "pid": context.life.pid,
                    "start": BOOTED + context.start,
                    "name": context.life.spec.name,
                    "owner": context.life.tenancy.owner.name,
                    "active": context.alive(at),
                    "idle_seconds": _idle(share, min(at, context.stop)),
                    "busy_seconds": share.busy,
                    **_energy(share),
                }
                for context, share in row.processes.items()
            ]
    return {
        "format": FORMAT,
        "version": VERSION,
        "from": span[0],
        "to": span[1],
        "gpus": gpus,
        "accounts": accounts,
        "processes": processes,
    }


def _devices(ledger: Ledger, uuid: str, index: int, memory: Memory) -> list[dict[str, Any]]:
    """Give the rows of a GPU: under MIG its own has only what nobody holds."""
    rows = []
    if ledger.device.parts[0].gi is not None:
        free = ledger.parent_free + sum(row.free_joules for row in ledger.rows)
        rows.append(_device(uuid, index, None, free, free))
    for row, part in zip(ledger.rows, ledger.device.parts, strict=True):
        free = row.free_joules if part.gi is None else 0.0
        booked = sum(a.joules.total for a in row.accounts.values())
        rows.append(
            _device(uuid, index, part.gi, booked + free, free)
            | {
                "seconds": {
                    "held": row.held_seconds,
                    "free": row.free_seconds,
                    "gap": 0.0,
                    "pending": 0.0,
                }
            }
        )
        if part.gi is None:
            rows[-1]["memory_bytes"] = _memory(row, memory)
    return rows


def _device(uuid: str, index: int, mig: int | None, joules: float, free: float) -> dict[str, Any]:
    return {
        "uuid": uuid,
        "index": index,
        "mig": mig,
        "energy_joules": joules,
        "unattributed_joules": {"free": free, "unknown": 0.0, "gap": 0.0},
        "pending_joules": 0.0,
    }


def _memory(row: Row, memory: Memory) -> dict[str, int]:
    known = sum(account.now["reported"] for account in row.accounts.values())
    inferred = sum(account.now["inferred"] for account in row.accounts.values())
    return {
        "known": known,
        "inferred": inferred,
        "unattributed": (memory.used or 0) - known - inferred,
        "reserved": memory.reserved or 0,
        "free": memory.free or 0,
        "total": memory.total or 0,
    }


def _account(account: Account, uuid: str, gi: int | None) -> dict[str, Any]:
    return {
        "gpu": uuid,
        "mig": gi,
        "owner": account.tenancy.owner._asdict(),
        "held_seconds": account.held,
        "charged_seconds": account.charged,
        "busy_seconds": account.busy,
        "idle_seconds": {
            "no_process": account.no_process,
            "no_kernel": account.no_kernel,
            "gaps": account.gaps,
        },
        "unknown_seconds": 0.0,
        **_energy(account.joules),
        "memory_bytes": dict(account.now),
        "memory_byte_seconds": dict(account.bytes),
    }


def _idle(share: Share, end: float) -> float:
    """Give for how long it has run nothing, at the end of it or of the scenario."""
    return 0.0 if share.quiet_since is None else max(0.0, end - share.quiet_since)


def _energy(share: Share) -> dict[str, Any]:
    split = {"active": share.active, "parked": share.parked, "idle": share.idle}
    return {"energy_joules": split, "measured_joules": share.measured}
