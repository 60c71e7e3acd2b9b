"""Runs a real Prometheus, and asks it as a user would."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE = 30.0
CONFIGURATION = """\
global:
  scrape_interval: {interval}
  scrape_timeout: {interval}
scrape_configs:
  - job_name: gpuledger
    honor_labels: true
    metrics_path: {path}
    static_configs:
      - targets: ["{target}"]
"""


class Series(NamedTuple):
    """One series of an answer."""

    labels: dict[str, str]
    value: float


class Prometheus:
    """A running Prometheus."""

    def __init__(self, url: str, log: Path) -> None:
        self.url = url
        self.at: float | None = None  # the moment that is asked about; None: now
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    def get(self, path: str, **parameters: str) -> Any:
        url = f"{self.url}{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[Series]:
        when = {} if self.at is None else {"time": str(self.at)}
        result = self.get("/api/v1/query", query=expression, **when)["result"]
        return [Series(each["metric"], float(each["value"][1])) for each in result]

    def value(self, expression: str) -> float | None:
        """Give the value of a query that has one series, or None where it has none."""
        found = self.query(expression)
        assert len(found) <= 1, found
        return found[0].value if found else None

    def wait_for(self, condition: Callable[[Prometheus], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition(self):
            assert time.monotonic() < deadline, self.log[-2000:]
            time.sleep(0.2)


@contextmanager
def scraping(
    folder: Path, target: str, port: int, path: str = "/metrics", interval: str = "1s"
) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes a target, until the block ends."""
    configuration, log = folder / "prometheus.yml", folder / "prometheus.log"
    configuration.write_text(
        CONFIGURATION.format(target=target.removeprefix("http://"), path=path, interval=interval)
    )
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={configuration}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    prometheus = Prometheus(f"http://127.0.0.1:{port}", log)
    try:
        prometheus.wait_for(is_ready)
        yield prometheus
    finally:
        process.terminate()
        process.wait(PATIENCE)


def is_ready(prometheus: Prometheus) -> bool:
    try:
        with urllib.request.urlopen(f"{prometheus.url}/-/ready", timeout=PATIENCE) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def promtool_check(page: str) -> list[str]:
    """Give what `promtool check metrics` has to say of a page."""
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=page,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode in {0, 3}, done.stderr  # 3: it has something to say of style
    return [line for line in (done.stdout + done.stderr).splitlines() if line]
