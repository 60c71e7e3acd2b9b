"""A page must say what the views said, to whoever reads it, whatever names come from outside."""

import math
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families as text_families

from gpuledger.health import Histogram
from gpuledger.serving.exposition import (
    LONGEST_VALUE,
    Exposition,
    Format,
    escaped,
    negotiated,
    wants_gzip,
)
from gpuledger.views import Family, Labels, Value

hostile = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\\n\r\t{}=,# \u202e\u200f\x00'),
    max_size=40,
)
surrogates = st.binary(max_size=12).map(lambda b: b.decode("utf-8", "surrogateescape"))
long_names = st.builds(
    lambda c, n: c * n, st.sampled_from('ax"\\é\u202e'), st.integers(1000, 10000)
)
values = st.floats() | st.integers(-(2**60), 2**60)
GAUGE = Family("gpu_thing_bytes", "gauge", 'Help with "quotes", a \\ and\na line.', ("one", "two"))
COUNTER = Family("gpu_thing_seconds_total", "counter", "Ends in total.", ("one", "two"))
BARE_COUNTER = Family("my_gpu_process_energy_joules", "counter", "A seed's own name.", ("one",))

Row = tuple[Labels, Value]


def parsed(text: str, form: Format) -> list[Metric]:
    parse: Any = openmetrics_families if form == "openmetrics" else text_families
    return list(parse(text))


def series(text: str, form: Format) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    found = {}
    for family in parsed(text, form):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, "a series stands twice"
            found[key] = float(sample.value)
    return found


def page(form: Format, *made: tuple[Family, Iterable[Row]], node: str = "") -> str:
    text = Exposition({"node": node} if node else {}).render(made, form)
    return text + "# EOF\n" if form == "openmetrics" else text


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def shown(value: str) -> str:
    """Give the value that a reader sees, by the rules of both formats for escapes."""
    meant = {"n": "\n", "\\": "\\", '"': '"'}
    rest = iter(escaped(value))
    return "".join(meant[next(rest)] if char == "\\" else char for char in rest)


@pytest.mark.parametrize("form", ["text", "openmetrics"])
@given(rows=st.dictionaries(st.tuples(hostile, hostile), values, max_size=6))
def test_round_trip(form: Format, rows: dict[Labels, float]) -> None:
    """Every value and every label that is text comes back exactly as it was."""
    found = series(page(form, (GAUGE, rows.items())), form)
    expected = {
        ("gpu_thing_bytes", frozenset(zip(("one", "two"), labels, strict=True))): float(value)
        for labels, value in rows.items()
    }
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key] == value or (math.isnan(found[key]) and math.isnan(value))


@pytest.mark.parametrize("form", ["text", "openmetrics"])
@given(names=st.sets(surrogates | long_names | hostile, min_size=1, max_size=6))
def test_hostile_names(form: Format, names: set[str]) -> None:
    """What is no UTF-8, or far too long, is made fit; it breaks no page and stays distinct."""
    rows = [((name, "x"), 1.0) for name in names]
    text = page(form, (GAUGE, rows))
    text.encode()
    found = {dict(labels)["one"] for _, labels in series(text, form)}
    assert found == {shown(name) for name in names}
    assert all(len(name) <= LONGEST_VALUE for name in found)


def test_two_long_names_stay_two() -> None:
    """Two names that differ only past the limit are two series still."""
    one, two = "a" * 5000 + "1", "a" * 5000 + "2"
    assert escaped(one) != escaped(two)
    assert len(escaped(one)) == LONGEST_VALUE


def test_names_are_the_same_in_both_formats() -> None:
    """A query works whichever format Prometheus negotiated."""
    made: list[tuple[Family, Iterable[Row]]] = [
        (GAUGE, [(("a", "b"), 1)]),
        (COUNTER, [(("a", "b"), 2)]),
        (BARE_COUNTER, [(("a",), 3)]),
    ]
    text, strict = page("text", *made, node="n"), page("openmetrics", *made, node="n")
    assert lines(text) == lines(strict)
    assert len(series(strict, "openmetrics")) == 3
    assert "# TYPE my_gpu_process_energy_joules counter\n" in text
    assert "# TYPE my_gpu_process_energy_joules unknown\n" in strict
    assert "# TYPE gpu_thing_seconds_total counter\n" in text
    assert "# TYPE gpu_thing_seconds counter\n" in strict


def test_help_is_escaped() -> None:
    """HELP comes back as it was written."""
    (family,) = parsed(page("text", (GAUGE, [(("a", "b"), 1)])), "text")
    assert family.documentation == GAUGE.help
    (family,) = parsed(page("openmetrics", (GAUGE, [(("a", "b"), 1)])), "openmetrics")
    assert family.documentation == GAUGE.help


def test_unknown_is_absent() -> None:
    """None is no sample, and a family without samples does not show at all."""
    text = page("text", (GAUGE, [(("a", "b"), None)]), (COUNTER, [(("a", "b"), 0)]))
    assert "gpu_thing_bytes" not in text
    assert 'gpu_thing_seconds_total{one="a",two="b"} 0\n' in text


@pytest.mark.parametrize("form", ["text", "openmetrics"])
def test_histogram(form: Format) -> None:
    """Buckets are cumulative and end with all observations."""
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(seconds)
    family = Family("gpu_poll_seconds", "histogram", "Polls.")
    found = series(page(form, (family, [((), histogram)]), node="n"), form)
    node = ("node", "n")
    assert found == {
        ("gpu_poll_seconds_bucket", frozenset({node, ("le", "0.1")})): 2,
        ("gpu_poll_seconds_bucket", frozenset({node, ("le", "1.0")})): 3,
        ("gpu_poll_seconds_bucket", frozenset({node, ("le", "+Inf")})): 4,
        ("gpu_poll_seconds_sum", frozenset({node})): 7.65,
        ("gpu_poll_seconds_count", frozenset({node})): 4,
    }


def test_constant_label_yields_to_a_familys_own() -> None:
    """The node's constant label never doubles a label that the family has itself."""
    family = Family("gpu_x", "gauge", "Has a node.", ("node",))
    assert page("text", (family, [(("theirs",), 1)]), node="ours").endswith(
        'gpu_x{node="theirs"} 1\n'
    )


def test_label_blocks_are_evicted_with_their_entity() -> None:
    """What is no longer shown takes no memory: blocks live for one more page at most."""
    exposition = Exposition()
    for generation in range(50):
        rows = [((f"pod-{generation}", str(i)), 1) for i in range(20)]
        exposition.render([(GAUGE, rows)], "text")
        exposition.evict()
        assert sum(len(of) for of in exposition._blocks.values()) == 20


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", "text"),
        ("*/*", "text"),
        ("text/plain", "text"),
        ("application/openmetrics-text", "openmetrics"),
        # Prometheus 2.42, then 3
        (
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;"
                "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
            ),
            "openmetrics",
        ),
        (
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
                "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
            ),
            "openmetrics",
        ),
        ("text/plain;version=0.0.4;q=0.9, application/openmetrics-text; q=0.5", "text"),
        ("application/openmetrics-text;version=2.0.0,text/plain;q=0.3", "text"),
        ("application/openmetrics-text;version=0.0.1", "text"),
        ("text/html,application/xhtml+xml", "text"),
        ("application/openmetrics-text;q=banana", "text"),
        (";;;,,,=", "text"),
    ],
)
def test_negotiation(accept: str, form: Format) -> None:
    """A client gets the format that it asked for most, and text when in doubt."""
    assert negotiated(accept) == form


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("", False),
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("*", True),
        ("identity", False),
        ("br;q=1.0", False),
        ("*;q=1, gzip;q=0", False),
        ("*;q=0, gzip", True),
        ("x-gzip", True),
    ],
)
def test_gzip_negotiation(header: str, wanted: bool) -> None:
    """Compressed only for those who take it."""
    assert wants_gzip(header) is wanted
