"""The example queries of gpu-idle-exporter's README, on a real Prometheus that scrapes the demo."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agents import running
from tests.real.prometheus import scraping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.real.prometheus import Prometheus

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
GIB = 1 << 30
# What the demo says: one notebook holds 33 GiB of the 80 GiB of GPU 2 and computes nothing.
NOTEBOOK = {"gpu": "2", "process": "python3"}
IDLE, TOTAL = 33 * GIB, 80 * GIB
MINUTE = 60


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("seed-000")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    with (
        running(folder, "--source", "simulated") as agent,
        scraping(folder, agent.url, port, interval="5s") as made,
    ):
        assert 'gpuledger_source_info{source="simulated"} 1' in agent.get()
        time.sleep(MINUTE)
        # The training job pauses for some seconds now and then, and then it is idle too.
        made.wait_for(lambda p: p.value("sum(gpu_idle_memory_total_bytes)") == IDLE)
        made.at = time.time()
        yield made


def labels_of(found: dict[str, str]) -> dict[str, str]:
    return {name: found[name] for name in NOTEBOOK}


def test_the_queries_of_the_seed(prometheus: Prometheus) -> None:
    """Each query gives what the scenario says, after a minute of the demo."""
    assert prometheus.value("sum(gpu_idle_memory_total_bytes)") == IDLE

    # Nobody was seen idle for ten minutes yet; the notebook for most of this one.
    assert prometheus.query("gpu_idle_process_idle_seconds > 600") == []
    (longest,) = prometheus.query(f"gpu_idle_process_idle_seconds > {MINUTE * 0.8}")
    assert labels_of(longest.labels) == NOTEBOOK
    assert longest.value < MINUTE * 2

    top = prometheus.query("topk(10, gpu_idle_process_idle_memory_bytes > 0)")
    assert [(labels_of(each.labels), each.value) for each in top] == [(NOTEBOOK, IDLE)]

    wasted = prometheus.query(
        "sum(gpu_idle_memory_total_bytes) by (gpu)"
        " / sum(gpu_idle_device_memory_total_bytes) by (gpu) * 100"
    )
    of = {each.labels["gpu"]: each.value for each in wasted}
    assert of.keys() == {str(index) for index in range(8)}
    assert of.pop("2") == pytest.approx(IDLE / TOTAL * 100)
    assert set(of.values()) == {0.0}


def test_the_alert_of_the_seed(prometheus: Prometheus) -> None:
    """The alert's expression is silent within the hour, and fires for who holds a gigabyte idly."""
    alert = "gpu_idle_process_idle_seconds > 3600 and gpu_idle_process_idle_memory_bytes > 1e9"
    assert prometheus.query(alert) == []
    (found,) = prometheus.query(alert.replace("3600", "30"))
    assert labels_of(found.labels) == NOTEBOOK


def test_the_minute_holds_together(prometheus: Prometheus) -> None:
    """Over the whole minute a computing process was never idle, and no scrape was missed."""
    idle = prometheus.query("max_over_time(gpu_idle_process_idle_seconds[1m]) > 30")
    assert [labels_of(each.labels) for each in idle] == [NOTEBOOK]
    assert prometheus.value("min_over_time(up[1m])") == 1
    busy = prometheus.query("max_over_time(gpu_idle_process_compute_utilization_percent[1m]) > 20")
    assert {each.labels["gpu"] for each in busy} >= {"0", "1", "3"}


def queries_of_the_readme() -> list[str]:
    (block,) = re.findall(r"```promql\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return [line.partition("#")[0].strip() for line in block.splitlines() if line.strip()]


def test_the_queries_of_the_readme(prometheus: Prometheus) -> None:
    """What our README offers can be asked, and tells of a node in health: no alert has a series."""
    queries = queries_of_the_readme()
    assert len(queries) >= 5
    for query in queries:
        found = prometheus.query(query)
        tells = query.startswith(("sum(", "avg(", "topk("))  # the others are alerts
        assert bool(found) is tells, query
