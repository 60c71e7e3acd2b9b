"""Scenarios from files: read, parsed and checked, with errors that name file and line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from gpuledger.sources.simulated.checks import Misfits, check
from gpuledger.sources.simulated.parser import MOST_TEXT, Misfit, parse

if TYPE_CHECKING:
    from gpuledger.sources.simulated.schema import Scenario

SHIPPED = Path(__file__).parents[2] / "scenarios"
DEMO = "demo"


class ScenarioError(Exception):
    """A scenario that cannot be; names the file, the line, and what is allowed."""


class ScenarioMissingError(ScenarioError):
    """There is no such file, or it cannot be read."""


def locate(name: str | Path | None) -> Path:
    """Find a scenario: a file, or by its name alone one that ships with the package."""
    if name is None:
        return SHIPPED / f"{DEMO}.yaml"
    shipped = SHIPPED / f"{name}.yaml"
    return shipped if str(name) in names() else Path(name)


def names() -> list[str]:
    """Give the names of the scenarios that ship with the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def load(path: Path) -> Scenario:
    """Read a scenario from its file."""
    try:
        with path.open("rb") as file:
            raw = file.read(4 * MOST_TEXT + 1)
    except OSError as error:
        shipped = ", ".join(names())
        raise ScenarioMissingError(
            f"{path}: {error.strerror or error}; scenarios that ship with gpuledger: {shipped}"
        ) from error
    if len(raw) > 4 * MOST_TEXT:
        raise ScenarioError(f"{path}: line 1: too large for a scenario")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ScenarioError(f"{path}: line {line}: not a text in UTF-8") from error
    return loads(text, str(path))


def loads(text: str, name: str) -> Scenario:
    """Make a scenario of a text; its name is for errors."""
    try:
        parsed = parse(text)
    except Misfit as error:
        raise ScenarioError(f"{name}: {error}") from error
    try:
        check(parsed.scenario)
    except Misfits as error:
        path = error.path
        while path and path not in parsed.lines:  # a value that is left out: its parent's line
            path = re.sub(r"\.?[^.\[]*(\[\d+\])?$", "", path)
        line = parsed.lines.get(path, 1)
        raise ScenarioError(f"{name}: line {line}: {error.path}: {error}") from error
    return parsed.scenario
