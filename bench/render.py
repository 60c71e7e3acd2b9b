"""What a render costs, beside prometheus_client's of the same series; and what a poll costs."""

from __future__ import annotations

import asyncio
import gc
import gzip
import time
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from tests.fakes.nvml import FakeNode

from bench.programs import sleepers
from bench.table import Goal, Row, Table
from gpuledger.agent import Agent
from gpuledger.health import Histogram
from gpuledger.serving.pages import NodePages
from gpuledger.sources.nvml import NvmlSource
from gpuledger.views.registry import VIEWS
from gpuledger.witnesses.proc import ProcWitness

if TYPE_CHECKING:
    from gpuledger.views import Family, Labels, Node

ROUNDS = 60


def costs(processes: int) -> Table:
    """Measure on a node of 8 GPUs with so many processes each, in CPU of this process."""
    with (
        sleepers(8 * processes) as pids,
        FakeNode(gpus=8, processes=processes, pids=pids, start=time.time()) as node,
        node.in_process(),
    ):
        known, poll, render, latest = asyncio.run(measured(node))
    name = f"8x{processes}"
    # Issue 3 sets the poll's for this size, and without the driver's part: this is the harder.
    goals = (Goal("figure", 25),) if processes == 64 else ()
    rows = (
        Row(
            "poll_ms",
            f"a poll ({known} processes known), fake driver included, ms",
            1,
            poll,
            None,
            goals,
        ),
        Row(
            "render_ms_per_1000",
            "1,000 series rendered and compressed, ms",
            2,
            render,
            latest,
            (Goal("figure", 2.5), Goal("ratio", 0.10)),
        ),
    )
    return Table(f"costs {name}", f"CPU, {name} processes", "prom._client", rows)


async def measured(node: FakeNode) -> tuple[int, float, float, float]:
    """Give how many processes a poll knows, its ms, and ours and theirs of 1,000 series."""
    source, processes = NvmlSource(5.0), ProcWitness("/proc")
    agent = Agent(source, 5.0, processes=processes)
    pages = NodePages(VIEWS, "/metrics", {"node": "n-1"}, {}, lambda: None)
    poll_seconds = render_seconds = latest_seconds = 0.0
    series = 0
    gauges: dict[str, Gauge] = {}
    registry = CollectorRegistry()
    for counted in (False, *[True] * ROUNDS):
        node.advance(5)
        begin = time.process_time()
        shown = await agent.poll()
        poll_seconds += counted * (time.process_time() - begin)

        begin = time.process_time()
        pages.renew(shown)
        pages.metrics("", "gzip", ())
        render_seconds += counted * (time.process_time() - begin)

        series = fill(gauges, registry, shown)
        begin = time.process_time()
        gzip.compress(generate_latest(registry))
        latest_seconds += counted * (time.process_time() - begin)
        if not counted:  # as the agent does once it serves
            gc.collect()
            gc.freeze()
    gc.unfreeze()
    await source.close()
    processes.close()
    of_1000 = 1e6 / ROUNDS / series
    return (
        0 if shown.reading is None else len(shown.reading.processes),
        poll_seconds / ROUNDS * 1000,
        render_seconds * of_1000,
        latest_seconds * of_1000,
    )


def fill(gauges: dict[str, Gauge], registry: CollectorRegistry, node: Node) -> int:
    """Put the same series into prometheus_client's registry; give how many there are."""
    series = 0
    for view in VIEWS.values():
        for family, rows in view.show(node):
            for labels, value in rows:
                if value is None or isinstance(value, Histogram):
                    continue
                child(gauges, registry, family, labels).set(value)
                series += 1
    return series


def child(
    gauges: dict[str, Gauge], registry: CollectorRegistry, family: Family, labels: Labels
) -> Gauge:
    gauge = gauges.get(family.name)
    if gauge is None:
        gauge = Gauge(family.name, family.help, ("node", *family.labels), registry=registry)
        gauges[family.name] = gauge
    return gauge.labels("n-1", *labels)
