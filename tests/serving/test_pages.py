"""A page is rendered once a reading and when asked, and one view's fault does not cost the rest."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from gpuledger.health import Health
from gpuledger.ledger.idle import Idleness
from gpuledger.readings import Gpu, Reading
from gpuledger.serving.pages import NodePages
from gpuledger.views import Family, Node, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator

GPU = Gpu(index=0, uuid="GPU-a", temperature_celsius=30)


class Counting:
    """A view that counts how often it is made."""

    FAMILIES = (Family("counted", "gauge", "How often."),)

    def __init__(self) -> None:
        self.made = 0
        self.fails = False

    def show(self, node: Node) -> Iterator[tuple[Family, Rows]]:  # noqa: ARG002
        self.made += 1
        yield self.FAMILIES[0], [((), self.made)]
        if self.fails:
            raise ValueError("a fault")


class Outcomes:
    """A view that shows what became of the others."""

    FAMILIES = (Family("outcome", "gauge", "Success.", ("view",)),)

    def show(self, node: Node) -> Iterator[tuple[Family, Rows]]:
        rows = [((view,), int(made.success)) for view, made in node.outcomes.items()]
        yield self.FAMILIES[0], rows


@pytest.fixture
def view() -> Counting:
    return Counting()


@pytest.fixture
def pages(view: Counting) -> NodePages:
    made = NodePages({"counting": view, "self": Outcomes()}, "/metrics", {}, {}, lambda: None)
    made.renew(Node(Reading(at=1, monotonic=1, gpus=(GPU,)), Health("nvml"), Idleness(2)))
    return made


def body(pages: NodePages, accept: str = "", encoding: str = "", *collect: str) -> str:
    answer = pages.metrics(accept, encoding, collect)
    assert answer.status == 200
    content = answer.body
    assert (answer.headers.get("content-encoding") == "gzip") == (encoding == "gzip")
    return (gzip.decompress(content) if encoding else content).decode()


def test_once_a_reading(pages: NodePages, view: Counting) -> None:
    """Scrapes between two readings are copies of bytes; a new reading makes them anew."""
    assert view.made == 0, "nobody asked"
    first = body(pages)
    for _ in range(5):
        assert body(pages) == first
        assert body(pages, "", "gzip") == first
        body(pages, "", "", "counting")
    assert view.made == 1
    strict = body(pages, "application/openmetrics-text")
    assert strict.endswith("# EOF\n")
    assert view.made == 2
    pages.renew(Node(Reading(at=2, monotonic=2), Health("nvml"), Idleness(2)))
    assert view.made == 2
    assert body(pages) != first
    assert view.made == 3


def test_collect(pages: NodePages) -> None:
    """collect[] chooses views, and the agent's own tells of those that were made."""
    assert "counted" in body(pages, "", "", "counting")
    assert "outcome" not in body(pages, "", "", "counting")
    assert body(pages, "", "", "self") == ""
    assert 'outcome{view="counting"} 1' in body(pages, "", "", "counting", "self")
    assert body(pages, "", "", "self") == ""


def test_an_unknown_view_is_refused(pages: NodePages) -> None:
    """A misspelt view is an error with the nearest, not an empty page."""
    answer = pages.metrics("", "", ["countin"])
    assert answer.status == 400
    assert b"did you mean counting? there are counting, self" in answer.body


def test_a_failing_view_is_left_out_and_said(
    pages: NodePages, view: Counting, caplog: pytest.LogCaptureFixture
) -> None:
    """Half of a view is never shown; that it failed is, and in the log once."""
    view.fails = True
    for at in range(3):
        pages.renew(Node(Reading(at=at, monotonic=at), Health("nvml"), Idleness(2)))
        text = body(pages)
        assert "counted" not in text
        assert 'outcome{view="counting"} 0' in text
    assert len(caplog.records) == 1
    view.fails = False
    pages.renew(Node(Reading(at=9, monotonic=9), Health("nvml"), Idleness(2)))
    assert 'outcome{view="counting"} 1' in body(pages)


def test_pages_do_not_pile_up(pages: NodePages) -> None:
    """Asking in ever other ways takes no more memory."""
    for choice in range(50):
        body(pages, "", "", *["counting"] * (choice + 1))
    for form in ("text/plain", "application/openmetrics-text"):
        for encoding in ("", "gzip"):
            for collect in ((), ("self",), ("counting",)):
                body(pages, form, encoding, *collect)
    assert len(pages._pages) <= 8
