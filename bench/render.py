"""What a render costs, beside prometheus_client's of the same series; and what a poll costs."""

from __future__ import annotations

import asyncio
import gzip
import time
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from tests.fakes.nvml import FakeNode

from gpuledger.agent import Agent
from gpuledger.health import Histogram
from gpuledger.serving.exposition import Exposition
from gpuledger.sources.nvml import NvmlSource
from gpuledger.views.registry import VIEWS
from gpuledger.witnesses.proc import ProcWitness

if TYPE_CHECKING:
    from gpuledger.views import Family, Labels, Node

ROUNDS = 60


def costs(processes: int) -> dict[str, Any]:
    """Measure on a node of 8 GPUs with so many processes each, in CPU of this process."""
    with FakeNode(gpus=8, processes=processes, start=time.time()) as node, node.in_process():
        agent = Agent(NvmlSource(5.0), 5.0, processes=ProcWitness("/proc"))
        return asyncio.run(measured(node, agent))


async def measured(node: FakeNode, agent: Agent) -> dict[str, Any]:
    exposition = Exposition({"node": "n-1"})
    poll_seconds = render_seconds = latest_seconds = 0.0
    series = 0
    gauges: dict[str, Gauge] = {}
    registry = CollectorRegistry()
    for _ in range(ROUNDS):
        node.advance(5)
        begin = time.process_time()
        shown = await agent.poll()
        poll_seconds += time.process_time() - begin

        begin = time.process_time()
        page = "".join(exposition.render(view.show(shown), "text") for view in VIEWS.values())
        gzip.compress(page.encode(), compresslevel=1)
        exposition.evict()
        render_seconds += time.process_time() - begin

        series = fill(gauges, registry, shown)
        begin = time.process_time()
        gzip.compress(generate_latest(registry))
        latest_seconds += time.process_time() - begin
    return {
        "series": series,
        "poll_ms": poll_seconds / ROUNDS * 1000,
        "render_ms_per_1000": render_seconds / ROUNDS / series * 1e6,
        "generate_latest_ms_per_1000": latest_seconds / ROUNDS / series * 1e6,
    }


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
