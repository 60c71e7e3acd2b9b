"""A real Prometheus scrapes us, and has every series as we said it."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.agents import running
from tests.fakes.nvml import FakeNode
from tests.real.prometheus import promtool_check, scraping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.agents import RunningAgent

pytestmark = pytest.mark.real

ALLOWED = Path(__file__).parent / "promtool_allowed.txt"
OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}


@pytest.fixture
def node() -> Iterator[FakeNode]:
    with FakeNode(gpus=2, processes=3, start=time.time()) as made:
        made.advance(10)
        yield made


@pytest.fixture
def agent(node: FakeNode, tmp_path: Path) -> Iterator[RunningAgent]:
    environ = node.environ() | {"NODE_NAME": 'n-1 "quoted" \\ äöü'}
    with running(tmp_path, environ=environ) as made:
        yield made


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def test_promtool(agent: RunningAgent) -> None:
    """`promtool check metrics` has nothing to say but of the names that the seeds gave."""
    allowed = {line for line in ALLOWED.read_text().splitlines() if not line.startswith("#")}
    assert set(promtool_check(agent.get())) == allowed


def test_every_series_arrives(agent: RunningAgent, tmp_path: Path, port: int) -> None:
    """What stands on the page stands in Prometheus: names, labels and values, none lost."""
    with scraping(tmp_path, agent.url, port) as prometheus:
        prometheus.wait_for(lambda p: p.value('up{job="gpuledger"}') == 1)
        page = agent.get(headers=OPENMETRICS)
        stored = {
            (name, frozenset(labels.items()))
            for each in prometheus.query('{job="gpuledger"}')
            if not (name := (labels := dict(each.labels)).pop("__name__")).startswith("scrape_")
            and name != "up"
            and labels.pop("job")
            and labels.pop("instance")
        }
        ours = {
            (sample.name, frozenset((k, v) for k, v in sample.labels.items() if v))
            for family in text_string_to_metric_families(page)  # type: ignore[no-untyped-call]
            for sample in family.samples
        }
        assert ours == stored
        assert len(ours) > 50
        targets = prometheus.get("/api/v1/targets")["activeTargets"]
        assert [target["lastError"] for target in targets] == [""]
        # It does ask for OpenMetrics: types are known, counters by their base name.
        metadata = prometheus.get("/api/v1/metadata")
        assert metadata["gpuledger_polls_missed"][0]["type"] == "counter"
        watts = 'gpuledger_device_power_watts{gpu="1"}'
        assert prometheus.value(watts) == agent.value('gpuledger_device_power_watts{gpu="1"')


def test_scrapes_go_on_while_the_driver_hangs(node: FakeNode, tmp_path: Path, port: int) -> None:
    """A hanging driver shows as devices that are down, never as a target that is."""
    flags = ("--poll-interval", "500ms")
    with (
        running(tmp_path, *flags, environ=node.environ()) as agent,
        scraping(tmp_path, agent.url, port) as prometheus,
    ):
        prometheus.wait_for(lambda p: p.value("sum(gpuledger_device_up)") == 2)
        node.hang("nvmlDeviceGetMemoryInfo_v2", hold_lock=True)
        prometheus.wait_for(lambda p: p.value("sum(gpuledger_device_up)") == 0)
        time.sleep(3)
        assert prometheus.value('min_over_time(up{job="gpuledger"}[10s])') == 1
        assert prometheus.value("max_over_time(scrape_duration_seconds[10s])") < 0.5  # type: ignore[operator]
        assert prometheus.query("gpuledger_device_power_watts") == []
        node.heal()
        prometheus.wait_for(lambda p: p.value("sum(gpuledger_device_up)") == 2)


def test_both_formats_have_the_same_series(agent: RunningAgent) -> None:
    """Whichever format Prometheus negotiates, the series are the same."""
    text, strict = agent.get(), agent.get(headers=OPENMETRICS)
    assert series(text) == series(strict)
    assert strict.endswith("# EOF\n")


def series(page: str) -> list[str]:
    """Give the series without their values: those of the agent's own cost differ by page."""
    return re.findall(r"^([^#\n]+) \S+$", page, re.MULTILINE)
