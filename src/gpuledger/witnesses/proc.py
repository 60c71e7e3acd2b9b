"""Processes as /proc shows them: looked up once, and remembered until they end."""

from __future__ import annotations

import os
import resource
import select
from pathlib import Path
from typing import TYPE_CHECKING

from gpuledger.readings import Process

if TYPE_CHECKING:
    from collections.abc import Iterable

HOST_PROC = "/host/proc"
OWN_PROC = "/proc"
HOST_NAMESPACE = "pid:[4026531836]"
KEPT_LOOKS = 24
TICKS = os.sysconf("SC_CLK_TCK")


class ProcWitness:
    """Knows processes by pid and start.

    A file descriptor of each process says when it ended, so that a pid that is given to another
    process is noticed at the cost of one call for all of them. Where there is none (another pid
    namespace, no descriptors left) the start is read again each time.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._known: dict[int, Process] = {}
        self._descriptors: dict[int, int] = {}
        self._unwanted: dict[int, int] = {}  # how many looks ago they were asked for
        self._most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4
        self._ended = select.epoll()
        self._may_look = root != OWN_PROC or _namespace() == HOST_NAMESPACE
        self._watches = root == OWN_PROC and hasattr(os, "pidfd_open")

    def look(self, pids: Iterable[int]) -> dict[int, Process]:
        """Give what is known of these processes; one that is not there any more is left out."""
        if not self._may_look:
            return {}
        wanted = set(pids)
        for descriptor, _ in self._ended.poll(0):
            self._forget(self._of(descriptor))
        self._forget_unwanted(wanted)
        return {pid: found for pid in wanted if (found := self._process(pid)) is not None}

    def _forget_unwanted(self, wanted: set[int]) -> None:
        """Forget who was not asked for in a while: one failed list makes no new name."""
        for pid in self._known.keys() & wanted:
            self._unwanted.pop(pid, None)
        for pid in self._known.keys() - wanted:
            looks = self._unwanted[pid] = self._unwanted.get(pid, 0) + 1
            if looks > KEPT_LOOKS:
                self._forget(pid)

    def close(self) -> None:
        for pid in list(self._known):
            self._forget(pid)
        self._ended.close()

    def _process(self, pid: int) -> Process | None:
        known = self._known.get(pid)
        if known is not None and pid in self._descriptors:
            return known
        # The descriptor first: a process that ends in between is noticed by it.
        if known is None and self._watches:
            self._watch(pid)
        found = self._read(pid)
        if found is None:
            self._forget(pid)
        elif known is None or found.start != known.start:
            self._known[pid] = found
        return self._known.get(pid)

    def _watch(self, pid: int) -> None:
        if len(self._descriptors) >= self._most:
            return
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return  # it ended, or there is none to be had: read each time instead
        self._descriptors[pid] = descriptor
        self._ended.register(descriptor, select.EPOLLIN)

    def _read(self, pid: int) -> Process | None:
        try:
            with open(f"{self._root}/{pid}/stat", "rb") as file:  # noqa: PTH123  asked for many processes
                head, _, tail = file.read().rpartition(b")")
            start = int(tail.split()[19]) / TICKS
        except (OSError, ValueError, IndexError):
            return None  # it ended, or this is no /proc
        name = head.partition(b"(")[2].decode("utf-8", "backslashreplace")
        return Process(start=start, name=name)

    def _of(self, descriptor: int) -> int:
        return next(pid for pid, other in self._descriptors.items() if other == descriptor)

    def _forget(self, pid: int) -> None:
        self._known.pop(pid, None)
        self._unwanted.pop(pid, None)
        descriptor = self._descriptors.pop(pid, None)
        if descriptor is not None:
            self._ended.unregister(descriptor)
            os.close(descriptor)


def proc_root() -> str:
    """Give where the host's processes are: its /proc, if it is mounted here."""
    return HOST_PROC if Path(HOST_PROC, "stat").exists() else OWN_PROC


def _namespace() -> str:
    try:
        return os.readlink(f"{OWN_PROC}/self/ns/pid")  # noqa: PTH115
    except OSError:
        return ""
