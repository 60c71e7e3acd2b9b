"""What a setting's text may be: each function gives the value, or a ValueError that helps."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpuledger.durations import duration
from gpuledger.views.registry import VIEWS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SHORTEST_POLL, LONGEST_POLL = 0.25, 3600.0
SOURCES = ("nvml", "simulated[:FILE]", "recorded:FILE")


class SourceSpec(NamedTuple):
    """Which source, and its file where it has one."""

    kind: str
    file: str | None = None


def poll_interval(text: str) -> float:
    seconds = duration(text)
    if seconds < SHORTEST_POLL:
        raise ValueError(f"{text!r} is too short: at least 250ms")
    if seconds > LONGEST_POLL:
        raise ValueError(f"{text[:40]!r} is too long: at most 1h")
    return seconds


def source(text: str) -> SourceSpec:
    kind, _, file = text.partition(":")
    if kind == "nvml" and not file:
        return SourceSpec("nvml")
    if kind == "simulated":
        return SourceSpec("simulated", file or None)
    if kind == "recorded":
        if not file:
            raise ValueError("recorded needs the trace's file: recorded:FILE")
        return SourceSpec("recorded", file)
    raise ValueError(f"{text!r} is no source: {allowed(text, SOURCES)}")


def view(text: str) -> str:
    if text not in VIEWS:
        raise ValueError(f"{text!r} is no view: {allowed(text, tuple(VIEWS))}")
    return text


def count(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,5}", text):
        raise ValueError(f"{text!r} is no count: give a whole number from 1")
    return int(text)


def proc(text: str) -> str:
    if not Path(text, "stat").is_file():
        raise ValueError(f"{text!r} is no /proc: it has no file `stat`")
    return text.rstrip("/") or "/"


def one_of(choices: Sequence[str]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"{text!r} is not allowed: {allowed(text, choices)}")
        return text.lower()

    return parse


def allowed(text: str, choices: Sequence[str]) -> str:
    near = get_close_matches(text, choices, n=1)
    return (f"did you mean {near[0]}? " if near else "") + f"allowed: {', '.join(choices)}"
