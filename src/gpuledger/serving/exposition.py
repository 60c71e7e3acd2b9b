"""Families to bytes: the Prometheus text format 0.0.4 and OpenMetrics 1.0, rendered by hand.

prometheus_client's renderer was measured 14 to 22 times dearer; its parser is the tests' oracle.
Every series has the same name in both formats, so a counter that is not called `_total` is of type
`unknown` in OpenMetrics, which knows no such counters.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING, Literal, TypeAlias

from gpuledger.health import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuledger.views import Family, Labels, Rows

Format: TypeAlias = Literal["text", "openmetrics"]

CONTENT_TYPES: dict[Format, str] = {
    "text": "text/plain; version=0.0.4; charset=utf-8",
    "openmetrics": "application/openmetrics-text; version=1.0.0; charset=utf-8",
}
LONGEST_VALUE = 1024
SPECIAL = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
LABEL_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
HELP_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n"})


class Exposition:
    """Renders families; keeps each entity's label block as long as the entity is shown."""

    def __init__(self, constant: Mapping[str, str | None] | None = None) -> None:
        self._constant = {name: value for name, value in (constant or {}).items() if value}
        self._blocks: dict[Labels, dict[Labels, str]] = defaultdict(dict)
        self._shown: dict[Labels, dict[Labels, str]] = defaultdict(dict)

    def render(self, made: Iterable[tuple[Family, Rows]], form: Format) -> str:
        """Give the page's part for these families; the end mark of OpenMetrics is not in it."""
        out: list[str] = []
        for family, rows in made:
            lines = (
                self._histograms(family, rows)
                if family.kind == "histogram"
                else self._samples(family, rows)
            )
            if lines:
                out.append(head(family, form))
                out += lines
        return "".join(out)

    def evict(self) -> None:
        """Forget the label blocks of entities that were not rendered since the last call."""
        self._blocks, self._shown = self._shown, defaultdict(dict)

    def _samples(self, family: Family, rows: Rows) -> list[str]:
        name = family.name
        known, shown = self._blocks[family.labels], self._shown[family.labels]
        lines: list[str] = []
        for labels, value in rows:
            if value is None:
                continue
            block = shown.get(labels)
            if block is None:
                block = known.get(labels)
                if block is None:
                    block = self._block(family.labels, labels)
                shown[labels] = block
            text = repr(value)
            if text[-1] in "fn":
                text = SPECIAL[text]
            lines.append(f"{name}{block} {text}\n")
        return lines

    def _histograms(self, family: Family, rows: Rows) -> list[str]:
        lines: list[str] = []
        for labels, value in rows:
            if not isinstance(value, Histogram):
                raise TypeError(f"{family.name}: a histogram's value has to be a Histogram")
            total = 0
            for bound, count in zip((*value.bounds, None), value.counts, strict=True):
                total += count
                le = "+Inf" if bound is None else repr(float(bound))
                block = self._block((*family.labels, "le"), (*labels, le))
                lines.append(f"{family.name}_bucket{block} {total}\n")
            block = self._block(family.labels, labels)
            lines.append(f"{family.name}_sum{block} {value.sum!r}\n")
            lines.append(f"{family.name}_count{block} {total}\n")
        return lines

    def _block(self, names: Labels, values: Labels) -> str:
        pairs = [f'{name}="{escaped(v)}"' for name, v in zip(names, values, strict=True)]
        pairs += [f'{n}="{escaped(v)}"' for n, v in self._constant.items() if n not in names]
        return "{" + ",".join(pairs) + "}" if pairs else ""


def head(family: Family, form: Format) -> str:
    """Give the HELP and TYPE lines."""
    name, kind = family.name, str(family.kind)
    text = family.help.translate(HELP_ESCAPES)
    if form == "openmetrics":
        text = text.replace('"', '\\"')
        if kind == "counter":
            name, total, rest = name.rpartition("_total")
            if not total or rest:
                name, kind = family.name, "unknown"
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def escaped(value: str) -> str:
    """Make a label's value fit for a page, wherever it came from.

    What is no UTF-8 shows in hexadecimal. A value past the limit is cut, and ends with a digest
    of the whole, so that two long names stay two series.
    """
    if not value.isascii():
        value = value.encode("utf-8", "backslashreplace").decode()
    if len(value) > LONGEST_VALUE:
        digest = hashlib.sha256(value.encode()).hexdigest()[:16]
        value = f"{value[: LONGEST_VALUE - 17]}…{digest}"
    return value.translate(LABEL_ESCAPES)


def negotiated(accept: str) -> Format:
    """Choose the format that a client asked for most, by the Accept header; text if in doubt."""
    best: tuple[float, Format] = (0.0, "text")
    for media, options in _entries(accept):
        form: Format
        if media == "application/openmetrics-text":
            if options.get("version", "1.0.0") != "1.0.0":
                continue
            form = "openmetrics"
        elif media in {"text/plain", "text/*", "*/*"}:
            form = "text"
        else:
            continue
        quality = _quality(options.get("q", "1"))
        if quality > best[0]:
            best = (quality, form)
    return best[1]


def wants_gzip(accept_encoding: str) -> bool:
    """Tell whether a client takes gzip: what it says of gzip counts before what it says of all."""
    said: dict[str, float] = {}
    for coding, options in _entries(accept_encoding):
        said[coding.removeprefix("x-")] = _quality(options.get("q", "1"))
    return said.get("gzip", said.get("*", 0.0)) > 0


def _entries(header: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Give what a list in a header names, each with its parameters."""
    for entry in header.lower().split(","):
        name, *parameters = (part.strip() for part in entry.split(";"))
        yield name, dict(p.replace(" ", "").partition("=")[::2] for p in parameters)


def _quality(text: str) -> float:
    try:
        return max(0.0, min(1.0, float(text)))
    except ValueError:
        return 0.0
