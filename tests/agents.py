"""Runs the real command as a user would, for the tests that need it whole."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

COMMAND: Final = (sys.executable, "-m", "gpuledger")
PATIENCE: Final = 10.0


class RunningAgent:
    """A `gpuledger serve` on a port of its own."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._log = log
        self.url = ""

    @property
    def log(self) -> str:
        return self._log.read_text()

    def get(self, path: str = "/metrics", headers: Mapping[str, str] | None = None) -> str:
        request = urllib.request.Request(self.url + path, headers=dict(headers or {}))
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return str(answer.read().decode())

    def value(self, series: str) -> float | None:
        """Give a series' value on the page, by its name and the begin of its labels."""
        found = re.search(rf"^{re.escape(series)}.* (\S+)$", self.get(), re.MULTILINE)
        return None if found is None else float(found[1])

    def wait_for_log(self, pattern: str) -> re.Match[str]:
        deadline = time.monotonic() + PATIENCE
        while (found := re.search(pattern, self.log)) is None:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.01)
        return found

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Give a clean environment: no setting of the machine that runs the tests gets in."""
    kept = {"PATH", "HOME", "LANG", "TMPDIR", "SYSTEMROOT", "VIRTUAL_ENV"}
    ours = {name: text for name, text in os.environ.items() if name in kept}
    return ours | dict(extra or {})


@contextmanager
def running(
    folder: Path,
    *flags: str,
    environ: Mapping[str, str] | None = None,
    limit: tuple[int, tuple[int, int]] | None = None,
) -> Iterator[RunningAgent]:
    """Run `gpuledger serve` until the block ends; it listens when the block begins."""
    log = folder / f"agent-{time.monotonic_ns()}.log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [*COMMAND, "serve", "--listen-address", "127.0.0.1:0", *flags],
            env=environment(environ),
            stderr=stderr,
            stdout=subprocess.DEVNULL,
            text=True,
            preexec_fn=None if limit is None else partial(resource.setrlimit, *limit),  # noqa: PLW1509
        )
    agent = RunningAgent(process, log)
    try:
        agent.url = agent.wait_for_log(r"listening on (http://127.0.0.1:\d+)")[1]
        yield agent
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE)


def run(
    *arguments: str, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of ours that ends by itself."""
    return subprocess.run(
        [*COMMAND, *arguments],
        env=environment(environ),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
