"""The first page that a newcomer reads says what they will see."""

from __future__ import annotations

import re
import time
from pathlib import Path

from tests.agents import running

README = (Path(__file__).parents[1] / "README.md").read_text()
PATIENCE = 8.0


def example() -> dict[str, str]:
    """Give the series that the README shows of the demo, with their values."""
    (block,) = re.findall(r"^```\n(gpu_.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return dict(line.rsplit(" ", 1) for line in block.splitlines())


def test_the_example_is_what_the_demo_shows(tmp_path: Path) -> None:
    """No series more, none less, and bytes to the last one; only seconds depend on the moment."""
    command = re.search(r"curl -s localhost:9835/metrics \| grep '\^(\w+)'", README)
    assert command is not None
    shown = example()
    fixed = {series: value for series, value in shown.items() if "_bytes{" in series}
    assert {value != "0" for value in fixed.values()} == {True, False}
    deadline = time.monotonic() + PATIENCE
    seen: set[tuple[str, str]] = set()
    with running(tmp_path, "--source", "simulated", "--poll-interval", "250ms") as agent:
        # Polled so often, not all is known at first, and a server is idle between two bursts.
        while not fixed.items() <= seen:
            assert time.monotonic() < deadline, fixed.items() - seen
            page = agent.get().splitlines()
            now = dict(line.rsplit(" ", 1) for line in page if line.startswith(command[1]))
            assert now.keys() <= shown.keys()
            seen |= now.items()
            time.sleep(0.2)
        assert now.keys() == shown.keys()


def test_the_first_page_claims_nothing(tmp_path: Path) -> None:
    """Who was never watched before is idle for 0 s, as the README says."""
    with running(tmp_path, "--source", "simulated") as agent:
        for series in example():
            assert agent.value(series) == 0
