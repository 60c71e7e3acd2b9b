"""What the demo costs: served at a poll a second, and lived for a day in virtual time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from bench.programs import free_port, running
from bench.table import Goal, Row, Table
from gpuledger.health import Health
from gpuledger.ledger.idle import Idleness
from gpuledger.serving.pages import NodePages
from gpuledger.sources.simulated import Run
from gpuledger.sources.simulated.scenario import load, locate
from gpuledger.views import Node
from gpuledger.views.registry import VIEWS

HOUR, DAY = 3600.0, 24 * 3600.0
SERVED = 60
RESIDENT = "resident memory, MiB"


def served() -> Table:
    """Serve the demo at a poll a second, scraped every 15 s: part of a core, and memory."""
    port = free_port()
    where = f"127.0.0.1:{port}"
    flags = ["serve", "--source", "simulated", "--poll-interval", "1s", "--listen-address", where]
    with running(["gpuledger", *flags], port, {}) as subject:
        time.sleep(5)
        begin, before = time.monotonic(), subject.cpu_seconds()
        for _ in range(SERVED // 15):
            time.sleep(15)
            subject.scrape()
        used, lived = subject.cpu_seconds() - before, time.monotonic() - begin
        percent, resident = used / lived * 100, subject.resident_mebibytes()
    rows = (
        Row("percent_of_a_core", "CPU, % of a core", 2, percent, None, (Goal("figure", 2.5),)),
        Row("resident_mebibytes", RESIDENT, 1, resident, None, (Goal("figure", 40),)),
    )
    return Table("demo", "The demo, a poll a second", "", rows)


def day() -> Table:
    """Live a day of polls in a process of its own: what it holds at the end, and after an hour."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.demo"], check=True, stdout=subprocess.PIPE, text=True
    )
    lived: dict[str, float] = json.loads(done.stdout)
    rows = (
        Row("poll_and_render_ms", "CPU of a poll and what follows, ms", 1, lived["ms_per_poll"]),
        Row(
            "resident_mebibytes",
            RESIDENT,
            1,
            lived["mebibytes_at_the_end"],
            lived["mebibytes_after_an_hour"],
            (Goal("ratio", 1.05),),
        ),
    )
    return Table("day", "A day of the demo's polls, virtual time", "first hour", rows)


def live() -> dict[str, float]:
    health, idleness = Health("simulated"), Idleness(2)
    pages = NodePages(VIEWS, "/metrics", {"node": "demo"}, {}, lambda: None)
    first_hour = 0.0
    polls = 0
    begin = time.process_time()
    for polls, reading in enumerate(Run(load(locate("demo")), duration=DAY), start=1):
        health.saw(reading)
        idleness.step(reading)
        pages.renew(Node(reading, health, idleness))
        if polls % 3 == 0:
            pages.metrics("", "gzip", ())
        if polls * 5.0 == HOUR:
            first_hour = resident_mebibytes()
    return {
        "polls": polls,
        "ms_per_poll": (time.process_time() - begin) / polls * 1000,
        "mebibytes_after_an_hour": first_hour,
        "mebibytes_at_the_end": resident_mebibytes(),
    }


def resident_mebibytes() -> float:
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


if __name__ == "__main__":
    print(json.dumps(live()))
