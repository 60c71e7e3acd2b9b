"""Writes the pages that are made from tables: metrics, settings, the trace, scenarios.

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
from gpuledger.sources.simulated import checks, parser, schema
from gpuledger.sources.simulated.forms import Form
from gpuledger.sources.simulated.kernels import KINDS
from gpuledger.sources.simulated.patterns import LEVELS
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
OF_SCENARIOS = (
    "A scenario is a node that is none, in YAML: its GPUs, who is on them, and what goes wrong. "
    "`gpuledger simulate FILE --trace F` runs one as fast as it can be computed and writes what "
    "an agent would have seen, and beside it what really happened; `gpuledger serve --source "
    "simulated:FILE` serves one in real time, and `simulated` alone the demo. The same file gives "
    "the same readings both ways. Every figure of it is simulated, and every scrape says so: "
    '`gpuledger_source_info{source="simulated"} 1`. An error names file, line and what is allowed.'
)
OF_FORMS = (
    "A duration is seconds (`5`) or in Go's form (`250ms`, `1m30s`); a moment is one since the "
    "first reading, or before it (`-9h`): a scenario can begin in the middle of its life. A size "
    "is bytes, or has a unit (`550MiB`, `40GiB`, `80GB`). A GPU is its index (`0`), under MIG with "
    'the place of the instance in `mig` (`"7:0"`). Keys that begin with `_` are ignored: a place '
    "for anchors, which `<<` merges. Served, the scenario goes on after its `duration`: what "
    "starts and stops within it starts once more in each round, everything else goes on (what "
    "stops later stops once); a fault comes once. All memory that may be in use at once, in any "
    "round, has to be there. Where nobody polled for more than a minute (the machine slept), that "
    "time did not exist for the scenario: clocks have gone on, it goes on from where it was."
)
OF_BOUNDS = (
    f"At most {checks.MOST_GPUS} GPUs, {checks.MOST_TENANTS} tenants and {checks.MOST_PROCESSES} "
    f"processes; GPUs times processes, for each start of these (a reload of the driver is one "
    f"more), at most {checks.MOST_PLACES}; {checks.MOST_POINTS} faults and points of `memory`, "
    f"`phases` and `trace` together; {checks.MOST_WINDOWS} windows in a reading (GPUs times "
    f"`poll_interval` by `window`); sizes to 1 PiB, times to 100 years, steps of the clock to 50 "
    f"years together; {parser.MOST_TEXT} characters, and {parser.MOST_VALUES} values, those of "
    f"aliases counted each time."
)
OF_PHYSICS = """The physics obeys what was measured on a real H200:

- Time is cut into windows, each given whole to the one process that was there when the driver \
looked; a share is the mean of a process's windows over those whose owner still lives, and 71 \
are kept.
- Who shares a GPU gets time slices, fairly. A process that waits for its kernels leaves a part \
of its slices empty, and owns their windows. Behind an MPS server all windows are the server's, \
and none of its clients has a sample.
- Power is the bare device, open contexts and what kernels draw, with heat (0.04 °C a watt above \
32 °C, in 10 s or so) raising the first two; at the limit the clock falls. A process's watts are \
of the whole GPU: an instance of MIG draws them by its compute slices.
- A profile is the sum of what each process computes, times the GPU time that it really got.

What a fault's call is named is the name that its failure has in the trace. A GPU that is lost, \
or hangs, goes on unseen."""
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
    for record in records(readings.Header, readings.Reading):
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


def scenario() -> str:
    """Give the schema of a scenario, from its records."""
    parts = ["# Scenarios", NOTICE, OF_SCENARIOS, OF_FORMS, OF_BOUNDS, OF_PHYSICS]
    for record in records(schema.Scenario):
        hints = get_type_hints(record, include_extras=True)
        parts += [f"## {record.__name__}", str(inspect.getdoc(record))]
        rows = (
            (f"`{f.encode_name}`", form_of(hints[f.name]), usual(f, hints), says(hints[f.name]))
            for f in msgspec.structs.fields(record)
        )
        parts.append(table(("key", "form", "default", "what it says"), rows))
        if record is schema.Busy:
            levels_of = (
                (f"`{name}`", ", ".join(f"`{k}: {v:g}`" for k, v in levels.items()) or "-")
                for name, levels in LEVELS.items()
            )
            parts.append(table(("pattern", "what it takes, and the default"), levels_of))
    kinds = ((f"`{name}`", f"{kernel.watts:g} W") for name, kernel in KINDS.items())
    parts += ["## Kernels", "Kinds that were measured.", table(("kind", "above the floor"), kinds)]
    return "\n\n".join(parts) + "\n"


def form_of(hint: Any) -> str:
    """Spell what a key's value has to look like."""
    arguments = get_args(hint)
    if get_origin(hint) is Annotated:
        form = next((a for a in arguments[1:] if isinstance(a, Form)), None)
        return form.name if form else form_of(arguments[0])
    if get_origin(hint) in {Union, types.UnionType}:
        kept = [a for a in arguments if a is not type(None)]
        return " or ".join(form_of(a) for a in kept)
    if get_origin(hint) is tuple and arguments[-1] is not ...:
        return f"pairs `[{', '.join(form_of(a) for a in arguments)}]`"
    if get_origin(hint) is tuple:
        inner = form_of(arguments[0])
        return inner if inner.startswith("pairs") else f"list of {inner}"
    return "true or false" if hint is bool else spelled(hint)


def usual(field: msgspec.structs.FieldInfo, hints: dict[str, Any]) -> str:
    """Spell a key's default."""
    if field.required:
        return "needed"
    value = field.default
    if value is None or value == () or isinstance(value, msgspec.Struct):
        return "-"
    forms = [a for a in flat(hints[field.name]) if isinstance(a, Form)]
    if isinstance(value, bool) or not forms:
        return f"`{str(value).lower()}`"
    return f"`{forms[0].spell(value)}`"


def flat(hint: Any) -> Iterator[Any]:
    """Give all arguments of a type, however deep."""
    for argument in get_args(hint):
        yield argument
        yield from flat(argument)


def records(*outermost: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    """Give the records, outermost first."""
    seen: list[type[msgspec.Struct]] = list(outermost)
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
    return next(
        str(meta.description) for meta in hint.__metadata__ if isinstance(meta, msgspec.Meta)
    )


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
    "scenario.md": scenario,
}


def main() -> None:
    for name, page in PAGES.items():
        (HERE / name).write_text(page())
        print(f"docs/{name}", file=sys.stderr)


if __name__ == "__main__":
    main()
