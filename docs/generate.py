"""Writes the pages that are made from tables: docs/metrics.md, docs/settings.md, docs/trace.md.

`make docs` runs it; a test fails while a page is not what it would write.
"""

from __future__ import annotations

import inspect
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from gpuledger import readings
from gpuledger.settings import TABLE
from gpuledger.views.registry import VIEWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

HERE = Path(__file__).parent
NOTICE = "<!-- Written by `make docs`; change the table that it is made from instead. -->\n"

OF_METRICS = (
    "Each view is a chapter: `--view NAME` shows only that one, `--no-view NAME` leaves it "
    "out, and `/metrics?collect[]=NAME` asks for one. Every series has the same name in the "
    "text format and in OpenMetrics. What could not be read is absent, never 0. With "
    "`NODE_NAME` set, every series carries the label `node` too."
)
OF_SETTINGS = (
    "A flag wins over the environment, the first environment name over those behind it, and "
    "all of them over the default; there is no other configuration file. Durations are "
    "seconds (`5`) or in Go's form (`250ms`, `5s`, `1m30s`). An empty variable counts as "
    "unset. A repeatable setting takes its flag several times, or a list with commas in its "
    "variable. A value that cannot be is an error that says what can, and exit code 2."
)
OF_TRACES = (
    "A trace is what a node saw, written down: JSON lines, plain or compressed (`.gz`, "
    "`.zst`). The first line is the header, each other line one reading. `null` and left out "
    "mean not known, an empty list means that there was nothing; unknown fields are ignored, "
    "so the format can grow. `gpuledger serve --source recorded:FILE` plays one. A damaged "
    "line is reported with its number, and what comes before it is kept."
)
OF_FAILURES = (
    "`failures` is by the name of the field, or of what is in `extra`; `device`: the "
    "device answered nothing at all. The errors are the driver's own names, and "
    "`TIMEOUT` (it did not answer in time) and `UNREADABLE` of ours."
)
EXTRA = {
    "arch": "architecture, in lower case",
    "clocks.sm, clocks.memory": "clocks at that moment, MHz",
    "temperature.memory": "temperature of the memory, °C",
    "version.cuda, version.nvml": "versions that the driver names",
}


def metrics() -> str:
    """Give the chapter of each view, from its table."""
    parts = [
        "# Metrics",
        NOTICE,
        OF_METRICS,
    ]
    for name, view in VIEWS.items():
        parts += [f"## {name}", str(inspect.getdoc(view))]
        rows = (
            (f"`{f.name}`", f.kind, " ".join(f"`{label}`" for label in f.labels), f.help)
            for f in view.FAMILIES
        )
        parts.append(table(("metric", "type", "labels", "what it says"), rows))
    return "\n\n".join(parts) + "\n"


def settings() -> str:
    """Give the settings table."""
    parts = [
        "# Settings of `gpuledger serve`",
        NOTICE,
        OF_SETTINGS,
    ]
    for group in dict.fromkeys(row.group for row in TABLE):
        rows = (
            (
                "<br>".join(f"`{flag} {row.metavar}`" for flag in row.flags) or "-",
                "<br>".join(f"`{name}`" for name in row.environ) or "-",
                "-" if row.default is None else f"`{row.default}`",
                row.help + (" Repeatable." if row.repeatable else ""),
            )
            for row in TABLE
            if row.group == group
        )
        parts += [f"## {group}", table(("flag", "environment", "default", "what it does"), rows)]
    return "\n\n".join(parts) + "\n"


def trace() -> str:
    """Give the schema of a trace, from the types of a reading."""
    parts = [
        "# The trace",
        NOTICE,
        OF_TRACES,
    ]
    for record in records():
        hints = get_type_hints(record, include_extras=True)
        parts += [f"## {record.__name__}", str(inspect.getdoc(record))]
        rows = (
            (f"`{field.name}`", spelled(hints[field.name]), default(field), says(hints[field.name]))
            for field in msgspec.structs.fields(record)
        )
        parts.append(table(("field", "type", "left out means", "what it says"), rows))
        if record is readings.Gpu:
            parts += [
                "`extra` holds:",
                table(("name", "what it says"), ((f"`{k}`", v) for k, v in EXTRA.items())),
                OF_FAILURES,
            ]
    parts += ["## Window", "A list of three: end in µs of wall clock, GPU %, memory-controller %."]
    return "\n\n".join(parts) + "\n"


def records() -> Iterator[type[msgspec.Struct]]:
    """Give the records, outermost first."""
    seen: list[type] = [readings.Header, readings.Reading]
    for record in seen:
        yield record
        for hint in get_type_hints(record).values():
            seen += [part for part in parts_of(hint) if part not in seen]


def parts_of(hint: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for argument in get_args(hint):
        yield from parts_of(argument)


def spelled(hint: Any) -> str:  # noqa: PLR0911  a table of cases
    """Spell a type as a reader of JSON would."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return spelled(arguments[0])
    if origin in {Union, types.UnionType}:
        names = dict.fromkeys(spelled(a) for a in arguments if a is not type(None))
        return " or ".join(n for n in names if n != "integer" or "number" not in names)
    if origin is tuple and arguments[-1] is ...:
        return f"list of {spelled(arguments[0])}"
    if origin is tuple:
        return "[window](#window)"
    if origin is dict:
        return f"object of {spelled(arguments[1])}"
    if hint in SPELLED:
        return SPELLED[hint]
    if isinstance(hint, type):
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    return " or ".join(f"`{value}`" for value in arguments)  # a Literal's


SPELLED: dict[Any, str] = {int: "integer", float: "number", str: "string", bool: "boolean"}


def says(hint: Any) -> str:
    return next(str(meta.description) for meta in hint.__metadata__ if meta.description)


def default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "an error"
    return "not known" if field.default is None else "none"


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in lines)


PAGES: dict[str, Callable[[], str]] = {
    "metrics.md": metrics,
    "settings.md": settings,
    "trace.md": trace,
}


def main() -> None:
    for name, page in PAGES.items():
        (HERE / name).write_text(page())
        print(f"docs/{name}", file=sys.stderr)


if __name__ == "__main__":
    main()
