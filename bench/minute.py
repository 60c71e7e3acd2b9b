"""A minute of life: a poll every 5 s, a compressed scrape every 15 s, and a peer beside us."""

from __future__ import annotations

import statistics
import time
from typing import Any

from tests.fakes.nvml import FakeNode

from bench.programs import Subject, free_port, running, series_in, sleepers

POLL, SCRAPE = 5, 15
SETTLE = 5
LATENCY_SCRAPES = 40


def command_of(name: str, port: int, interval: float) -> list[str]:
    if name == "gpuledger":
        where = f"127.0.0.1:{port}"
        return ["gpuledger", "serve", "--listen-address", where, "--poll-interval", f"{interval}"]
    return ["nvitop_exporter", "--port", str(port), "--interval", str(interval)]


def minute(processes: int, seconds: int) -> dict[str, dict[str, Any]]:
    """Measure both on one node of 8 GPUs with so many processes each, at the same time."""
    with sleepers(8 * processes) as pids:
        start = time.time()
        with FakeNode(gpus=8, processes=processes, pids=pids, start=start) as node:
            node.advance(0)
            lived = {name: life(node, name, seconds) for name in ("gpuledger", "nvitop-exporter")}
            for name, of in lived.items():
                of.update(latency(node, name))
    return lived


def life(node: FakeNode, name: str, seconds: int) -> dict[str, Any]:
    port = free_port()
    with running(command_of(name, port, POLL), port, node.environ()) as subject:
        pass_time(node, SETTLE)
        # Just after a poll, so that each scrape meets a new reading and none is a copy.
        time.sleep(0.3)
        subject.scrape()
        before = subject.cpu_seconds()
        readings = set()
        page = ""
        for _ in range(seconds // SCRAPE):
            pass_time(node, SCRAPE)
            _, page = subject.scrape()
            readings.add(reading_of(page))
        used = subject.cpu_seconds() - before
        if name == "gpuledger" and len(readings) != seconds // SCRAPE:
            raise RuntimeError("a scrape was a copy of the one before it")
        series = series_in(page)
        per_minute = used * 60 / seconds
        return {
            "cpu_seconds_per_minute": per_minute,
            "series": series,
            "cpu_per_1000_series": per_minute / series * 1000,
            "resident_mebibytes": subject.resident_mebibytes(),
            "started_in_seconds": subject.started_in,
        }


def latency(node: FakeNode, name: str) -> dict[str, Any]:
    """Scrape a subject that polls every 250 ms, each time after a new reading."""
    port = free_port()
    with running(command_of(name, port, 0.25), port, node.environ()) as subject:
        took = [one(node, subject) for _ in range(LATENCY_SCRAPES)]
    took.sort()
    return {
        "scrape_p50_ms": statistics.median(took) * 1000,
        "scrape_p99_ms": took[int(len(took) * 0.99)] * 1000,
    }


def one(node: FakeNode, subject: Subject) -> float:
    pass_time(node, 0.3)
    return subject.scrape()[0]


def pass_time(node: FakeNode, seconds: float) -> None:
    """Let real time pass on the fake node."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(1.0, left))
        node.advance(time.time() - node.now)


def reading_of(page: str) -> str:
    name = "gpuledger_last_reading_timestamp_seconds"
    return next((line for line in page.splitlines() if line.startswith(name)), "")
