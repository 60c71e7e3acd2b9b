"""A process is who it was when it was first seen, until it ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpuledger.witnesses import proc
from gpuledger.witnesses.proc import ProcWitness

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def witness(root: str = "/proc") -> Iterator[ProcWitness]:
    made = ProcWitness(root)
    made._may_look = True  # also where the tests have a pid namespace of their own
    try:
        yield made
    finally:
        made.close()


@contextmanager
def sleeping(name: str = "sleep") -> Iterator[int]:
    with subprocess.Popen([name, "60"], executable=shutil.which("sleep")) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def test_a_process() -> None:
    """Its name and its start, on the clock of the readings."""
    begin = time.clock_gettime(time.CLOCK_BOOTTIME)
    with sleeping() as pid, witness() as known:
        found = known.look([pid])[pid]
        assert found.name == "sleep"
        assert found.start == pytest.approx(begin, abs=1)
        assert known.look([pid])[pid] is found


def test_one_that_ended_is_left_out() -> None:
    """A pid that is no more, or never was, is no error."""
    with witness() as known:
        with sleeping() as pid:
            assert pid in known.look([pid])
        assert known.look([pid, 2**22 + 5]) == {}


def test_a_name_that_changes(tmp_path: Path) -> None:
    """A name is read once: one list that failed, and a process that renamed itself, change none."""
    with sleeping() as pid, witness() as known:
        known._root = str(tmp_path)
        stat(tmp_path, pid, "python", 100)
        known.look([pid])
        stat(tmp_path, pid, "pt_main_thread", 100)
        known.look([])
        assert known.look([pid])[pid].name == "python"


@pytest.mark.parametrize("text", ["", "77 (x", "77 (x) S 1", "77 (x) " + "word " * 30])
def test_what_is_no_proc(tmp_path: Path, text: str) -> None:
    """A file that is no `stat` names nobody, and stops no poll."""
    (tmp_path / "77").mkdir()
    (tmp_path / "77" / "stat").write_text(text)
    with witness(str(tmp_path)) as known:
        assert known.look([77]) == {}


def test_descriptors_are_bounded() -> None:
    """Past a quarter of what we may open, processes are looked at without a descriptor."""
    with sleeping() as one, sleeping() as other, witness() as known:
        known._most = 1
        before = open_files()
        assert known.look([one, other]).keys() == {one, other}
        assert open_files() == before + 1
        assert known.look([one, other]).keys() == {one, other}


def test_what_is_not_asked_for_is_forgotten() -> None:
    """No descriptor is kept for long of a process that holds no GPU any more."""
    before = open_files()
    with witness() as known, sleeping() as one, sleeping() as other:
        known.look([one, other])
        assert open_files() == before + 3
        for _ in range(proc.KEPT_LOOKS + 1):
            known.look([other])
        assert open_files() == before + 2
    assert open_files() == before


@pytest.mark.parametrize("watches", [True, False])
def test_a_pid_that_another_process_got(tmp_path: Path, watches: bool) -> None:
    """With and without descriptors, a pid's new process is not taken for the old one."""
    with sleeping() as pid, witness() as known:
        known._watches = watches
        known._root = str(tmp_path)
        stat(tmp_path, pid, "old", 100)
        old = known.look([pid])[pid]
        assert (old.name, old.start) == ("old", 100 / proc.TICKS)
        stat(tmp_path, pid, "new", 200)
        if watches:
            assert known.look([pid])[pid] is old, "as long as it lives nothing is read"
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert known.look([pid])[pid].name == "new"


def test_known_ones_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Naming who is known already opens no file."""
    with sleeping() as pid, witness() as known:
        known.look([pid])
        monkeypatch.setattr(known, "_read", lambda _: pytest.fail("a file was read"))
        for _ in range(10):
            assert pid in known.look([pid])


@pytest.mark.parametrize("name", ["a b", "a) R 1 1 (b", "(", "\u202eevil", "x" * 15])
def test_hostile_names(tmp_path: Path, name: str) -> None:
    """A name that looks like the rest of the line is a name."""
    stat(tmp_path, 77, name, 300)
    with witness(str(tmp_path)) as known:
        found = known.look([77])[77]
        assert (found.name, found.start) == (name, 300 / proc.TICKS)


def test_another_pid_namespace() -> None:
    """Outside the host's namespace, without its /proc, the driver's pids name other processes."""
    with witness() as known:
        known._may_look = False
        assert known.look([os.getpid()]) == {}


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def stat(root: Path, pid: int, name: str, start: int) -> None:
    folder = root / str(pid)
    folder.mkdir(exist_ok=True)
    rest = ["S", *["0"] * 18, str(start), *["0"] * 30]
    (folder / "stat").write_text(f"{pid} ({name}) {' '.join(rest)}\n")
