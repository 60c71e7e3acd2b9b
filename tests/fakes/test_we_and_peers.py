"""On one node, unmodified tools and we say the same."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests.agents import running
from tests.fakes.nvml import FakeNode, FakeProcess
from tests.fakes.peers import gpustat_sees, nvitop_sees

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fakes.peers import SeenGpu


@pytest.fixture
def node() -> Iterator[FakeNode]:
    with (
        subprocess.Popen(["sleep", "600"]) as sleeper,
        FakeNode(gpus=2, start=time.time()) as made,
    ):
        made.start(sleeper.pid, FakeProcess(share=0.7, memory=5 << 30))
        made.gpus[0].power_milliwatts, made.gpus[0].temperature_celsius = 431_000, 61
        made.gpus[1].power_milliwatts, made.gpus[1].temperature_celsius = 80_000, 35
        made.advance(10)
        made.gpus[0].gpu_percent = 57
        yield made
        sleeper.kill()


@pytest.mark.parametrize("sees", [nvitop_sees, gpustat_sees])
def test_we_say_what_they_say(
    node: FakeNode, tmp_path: Path, sees: Callable[[FakeNode], dict[int, SeenGpu]]
) -> None:
    """Power, temperature and utilization on our page are those that the others show."""
    theirs = sees(node)
    assert theirs.keys() == {0, 1}
    with running(tmp_path, environ=node.environ()) as agent:
        for index, gpu in theirs.items():
            watts = agent.value(f'gpuledger_device_power_watts{{gpu="{index}"')
            celsius = agent.value(f'gpuledger_device_temperature_celsius{{gpu="{index}"')
            ratio = agent.value(f'gpuledger_device_utilization_ratio{{gpu="{index}"')
            assert (watts, celsius) == (gpu.power, gpu.temperature)
            assert ratio == pytest.approx((gpu.utilization or 0) / 100)
