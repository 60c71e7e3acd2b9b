"""A minute of life: a poll every 5 s, a compressed scrape every 15 s, and a peer beside us."""

from __future__ import annotations

import statistics
import time

from tests.fakes.nvml import FakeNode

from bench.programs import Subject, free_port, running, series_in, sleepers
from bench.table import Goal, Row, Table

POLL, SCRAPE = 5, 15
SETTLE = 5
LATENCY_SCRAPES = 100
ROWS = (
    ("cpu_seconds_per_minute", "CPU a minute, s", 3),
    ("series", "series", 0),
    ("cpu_per_1000_series", "CPU a minute and 1,000 series, s", 3),
    ("resident_mebibytes", "resident memory, MiB", 1),
    ("started_in_seconds", "start to first scrape, s", 2),
    ("scrape_p50_ms", f"scrape, median of {LATENCY_SCRAPES}, ms", 1),
    ("scrape_p99_ms", f"scrape, second slowest of {LATENCY_SCRAPES} (p99), ms", 1),
)
# Issue 3 sets them for this size.
GOALS = {
    16: {
        "cpu_seconds_per_minute": (Goal("ratio", 0.25),),
        "series": (Goal("ratio", 1, least=True),),
        "cpu_per_1000_series": (Goal("ratio", 0.10),),
    }
}


def command_of(name: str, port: int, interval: float) -> list[str]:
    if name == "gpuledger":
        where = f"127.0.0.1:{port}"
        return ["gpuledger", "serve", "--listen-address", where, "--poll-interval", f"{interval}"]
    return ["nvitop_exporter", "--port", str(port), "--interval", str(interval)]


def minute(processes: int, seconds: int) -> Table:
    """Measure both on one node of 8 GPUs with so many processes each, one after the other."""
    with sleepers(8 * processes) as pids:
        start = time.time()
        with FakeNode(gpus=8, processes=processes, pids=pids, start=start) as node:
            node.advance(0)
            ours, theirs = (
                life(node, name, seconds) | latency(node, name)
                for name in ("gpuledger", "nvitop-exporter")
            )
    goals = GOALS.get(processes, {})
    rows = tuple(Row(k, label, n, ours[k], theirs[k], goals.get(k, ())) for k, label, n in ROWS)
    name = f"8x{processes}"
    return Table(f"minute {name}", f"A minute of life, {name} processes", "nvitop-exp.", rows)


def life(node: FakeNode, name: str, seconds: int) -> dict[str, float]:
    port = free_port()
    with running(command_of(name, port, POLL), port, node.environ()) as subject:
        pass_time(node, SETTLE)
        # Just after a poll, so that each scrape meets a new reading and none is a copy.
        time.sleep(0.3)
        subject.scrape()
        begin, before = time.monotonic(), subject.cpu_seconds()
        readings = set()
        page = ""
        for _ in range(seconds // SCRAPE):
            pass_time(node, SCRAPE)
            _, page = subject.scrape()
            readings.add(reading_of(page))
        used, lived = subject.cpu_seconds() - before, time.monotonic() - begin
        if name == "gpuledger" and len(readings) != seconds // SCRAPE:
            raise RuntimeError("a scrape was a copy of the one before it")
        series = series_in(page)
        per_minute = used * 60 / lived
        return {
            "cpu_seconds_per_minute": per_minute,
            "series": series,
            "cpu_per_1000_series": per_minute / series * 1000,
            "resident_mebibytes": subject.resident_mebibytes(),
            "started_in_seconds": subject.started_in,
        }


def latency(node: FakeNode, name: str) -> dict[str, float]:
    """Scrape a subject that polls every 250 ms, each time after a new reading."""
    port = free_port()
    with running(command_of(name, port, 0.25), port, node.environ()) as subject:
        took = [one(node, subject) for _ in range(LATENCY_SCRAPES)]
    took.sort()
    return {
        "scrape_p50_ms": statistics.median(took) * 1000,
        "scrape_p99_ms": took[-2] * 1000,
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
