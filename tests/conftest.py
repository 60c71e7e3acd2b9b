"""What holds for all tests: on CI none may be skipped, but those that need a real GPU."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from _pytest.terminal import TerminalReporter

skipped = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[skipped] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and not item.get_closest_marker("gpu"):
        item.config.stash[skipped].append(item.nodeid)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.stash[skipped] and os.environ.get("CI") == "true":
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    if config.stash[skipped] and os.environ.get("CI") == "true":
        terminalreporter.write_line("on CI a skipped test is a failure", red=True)
