"""Runs a program as the bench's subject: its CPU, its memory, its answers."""

from __future__ import annotations

import gzip
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PATIENCE = 60.0


class Subject:
    """A program that serves metrics."""

    def __init__(self, pid: int, url: str, started_in: float) -> None:
        self.pid = pid
        self.url = url
        self.started_in = started_in

    def cpu_seconds(self) -> float:
        """Give the CPU time that its threads have had so far, to the nanosecond."""
        threads = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    def resident_mebibytes(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def scrape(self) -> tuple[float, str]:
        """Scrape once as Prometheus does, compressed; give the seconds it took, and the page."""
        request = urllib.request.Request(self.url, headers={"Accept-Encoding": "gzip"})
        begin = time.perf_counter()
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            body = answer.read()
            took = time.perf_counter() - begin
            zipped = answer.headers.get("Content-Encoding") == "gzip"
        return took, (gzip.decompress(body) if zipped else body).decode()


def series_in(page: str) -> int:
    return sum(1 for line in page.splitlines() if line and not line.startswith("#"))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextmanager
def running(command: Sequence[str], port: int, environ: Mapping[str, str]) -> Iterator[Subject]:
    """Run a program until the block ends; it has answered a first scrape when the block begins."""
    url = f"http://127.0.0.1:{port}/metrics"
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        env=os.environ | dict(environ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while True:
            if process.poll() is not None:
                raise RuntimeError(f"{command[0]} ended with {process.returncode}")
            try:
                with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                    answer.read()
                break
            except urllib.error.URLError:
                time.sleep(0.005)
            if time.perf_counter() - begin > PATIENCE:
                raise TimeoutError(f"{command[0]} does not answer at {url}")
        yield Subject(process.pid, url, time.perf_counter() - begin)
    finally:
        process.terminate()
        process.wait(PATIENCE)


@contextmanager
def sleepers(number: int) -> Iterator[list[int]]:
    """Start processes that exist, since tools look up those that the driver names."""
    started = [subprocess.Popen(["sleep", "3600"]) for _ in range(number)]
    try:
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()
