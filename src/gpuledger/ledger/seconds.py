"""Whose the windows of time were: each process's part of the span that a reply covers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuledger.readings import Gpu, Process, Sample

MPS_SERVER = "nvidia-cuda-mps"  # comm is cut at 15 characters
FULL = 100  # percent; more is garbage

Parts = dict[int, float | None]


def newest_time(gpu: Gpu) -> int | None:
    """Give the newest time that a reply names, where the next one's span begins."""
    times = [end for end, _, _ in gpu.windows or ()] or [s.at for s in gpu.samples or ()]
    return max(times, default=None)


def parts(gpu: Gpu, known: Mapping[int, Process], before: int | None = None) -> Parts | None:
    """Give each listed process's part of the span in percent, None where it cannot be told.

    None altogether: the driver did not say. A process without a sample in a reply that succeeded
    owned no window, so its part is 0. `before` is the newest time of the reading before, where the
    span begins if the reading itself does not say.
    """
    if gpu.samples is None or gpu.processes is None:
        return None
    since = before if gpu.samples_since is None else gpu.samples_since
    of: dict[int, list[Sample]] = {}
    for sample in gpu.samples:
        of.setdefault(sample.pid, []).append(sample)
    found: Parts = {
        process.pid: _part(of[process.pid], since) if process.pid in of else 0.0
        for process in gpu.processes
    }
    _give_clients_what_is_theirs(found, gpu, known)
    return found


def _part(samples: list[Sample], since: int | None) -> float | None:
    """Give the mean of a process's samples, each of which goes back to the one before it."""
    busy = covered = 0.0
    begin = since
    for sample in sorted(samples, key=lambda sample: sample.at):
        # Garbage, or of another time: a sample of 0 may be old, it says when the last window was.
        if sample.sm is None or sample.sm > FULL:
            return None
        if sample.sm and since is not None and sample.at <= since:
            return None
        if begin is None:
            begin = sample.at - 1  # nobody knows how far back the first of all goes
        length = max(sample.at - begin, 1)
        busy += sample.sm * length
        covered += length
        begin = max(begin, sample.at)
    return busy / covered


def _give_clients_what_is_theirs(found: Parts, gpu: Gpu, known: Mapping[int, Process]) -> None:
    """Give what the driver books to the MPS server to its client; among several nobody knows."""
    servers = [pid for pid in found if pid in known and is_mps_server(known[pid])]
    if not servers:
        return
    clients = [
        process.pid
        for process in gpu.processes or ()
        if "mps" in process.kinds and process.pid not in servers
    ]
    server = sum(found[pid] or 0.0 for pid in servers)
    unknown = any(found[pid] is None for pid in servers)
    for pid in clients:
        if unknown or (server > 0 and len(clients) > 1):
            found[pid] = None
        else:
            found[pid] = server


def is_mps_server(process: Process) -> bool:
    return process.name is not None and process.name.startswith(MPS_SERVER)
