"""The forms that a value in a scenario may have, each with its parser and a way to spell it."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuledger.durations import duration

if TYPE_CHECKING:
    from collections.abc import Callable

UNITS = {
    "": 1,
    "B": 1,
    "kB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
YEARS = 365 * 86_400.0
LONGEST = 100 * YEARS
LARGEST = 1 << 50
SHOWN = 60  # characters of a text that an error repeats
NUMBER_TEXT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
SIZE_TEXT = re.compile(r"(\d+\.?\d*|\.\d+) ?([kKMGT]?i?B|)", re.ASCII)


class Form(NamedTuple):
    """What a scalar has to look like."""

    name: str  # as documents and errors call it
    parse: Callable[[str], Any]  # a ValueError says what is allowed
    spell: Callable[[Any], str] = str


class Place(NamedTuple):
    """A GPU, or an instance of it where MIG has cut it."""

    gpu: int
    instance: int | None = None

    def __str__(self) -> str:
        return str(self.gpu) if self.instance is None else f"{self.gpu}:{self.instance}"


def quoted(text: str) -> str:
    """Repeat what somebody wrote, in an error: its beginning, if it is long."""
    return repr(text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…")


def seconds(least: float = 0.0, most: float = LONGEST, *, signed: bool = False) -> Form:
    """Give the form of a duration, or of a moment if it may lie before the first reading."""

    def parse(text: str) -> float:
        negative = signed and text.startswith("-")
        if len(text) > SHOWN:
            raise ValueError(f"{quoted(text)} is too long for a duration")
        value = duration(text.removeprefix("-") if negative else text)
        if not least <= value <= most:
            raise ValueError(f"{text!r} is out of range: allowed: {_between(least, most)}")
        return -value if negative else value

    return Form("moment" if signed else "duration", parse, spelled)


def number(least: float, most: float) -> Form:
    """Give the form of a number in a range, both ends included."""

    def parse(text: str) -> float:
        value = float(text) if NUMBER_TEXT.fullmatch(text) else math.nan
        if not least <= value <= most:
            raise ValueError(f"{quoted(text)} is not allowed: a number from {least:g} to {most:g}")
        return value

    return Form(f"number, {least:g} to {most:g}", parse, "{:g}".format)


def count(least: int, most: int) -> Form:
    """Give the form of a whole number in a range, both ends included."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,18}", text, re.ASCII) or not least <= int(text) <= most:
            raise ValueError(
                f"{quoted(text)} is not allowed: a whole number from {least} to {most}"
            )
        return int(text)

    return Form("whole number", parse)


def pattern(name: str, expression: str, example: str) -> Form:
    """Give the form of a text that has to match an expression whole."""
    compiled = re.compile(expression, re.ASCII)

    def parse(text: str) -> str:
        if not text.isprintable() or not compiled.fullmatch(text):
            raise ValueError(f"{quoted(text)} is not allowed: a {name} like `{example}`")
        return text

    return Form(name, parse)


def spelled(value: float) -> str:
    """Spell seconds as people write them."""
    for unit, size in (("h", 3600), ("m", 60), ("s", 1)):
        if value and value % size == 0:
            return f"{value / size:g}{unit}"
    return f"{value * 1000:g}ms" if value else "0s"


def size_text(value: int) -> str:
    """Spell bytes in the largest unit that they are a whole number of."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if value and value % UNITS[unit] == 0:
            return f"{value // UNITS[unit]}{unit}"
    return str(value)


def _size(text: str) -> int:
    found = SIZE_TEXT.fullmatch(text)
    if not found or found[2] not in UNITS:
        says = "is not a size: give bytes, or a unit as in `550MiB`, `40GiB`"
        raise ValueError(f"{quoted(text)} {says}")
    size = float(found[1]) * UNITS[found[2]]
    if size > LARGEST:
        raise ValueError(f"{quoted(text)} is out of range: at most {size_text(LARGEST)}")
    return int(size)


def _place(text: str) -> Place:
    found = re.fullmatch(r"(\d{1,4})(?::(\d{1,2}))?", text, re.ASCII)
    if not found:
        raise ValueError(
            f"{quoted(text)} is no GPU: give its index (`0`), and behind a colon that of an "
            "instance where MIG has cut it (`7:0`)"
        )
    return Place(int(found[1]), None if found[2] is None else int(found[2]))


def _between(least: float, most: float) -> str:
    if most == LONGEST:
        return f"at least {spelled(least)}, at most 100 years"
    return f"{spelled(least)} to {spelled(most)}"


SIZE = Form("size", _size, size_text)
PLACE = Form("GPU", _place)
