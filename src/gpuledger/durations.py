"""Durations as people write them: Go's form (`1m30s`, `250ms`) or plain seconds."""

from __future__ import annotations

import re

SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)", re.ASCII)
PLAIN = re.compile(r"\d+\.?\d*|\.\d+", re.ASCII)


def duration(text: str) -> float:
    """Give the seconds that a text names; ValueError says what is allowed."""
    text = text.strip()
    if PLAIN.fullmatch(text):
        return float(text)
    parts = PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(
            f"{text!r} is not a duration: give seconds (`5`) or Go's form (`250ms`, `5s`, `1m30s`)"
        )
    return sum(float(number) * SECONDS[unit] for number, unit in parts)
