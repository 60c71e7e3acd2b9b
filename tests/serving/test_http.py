"""What the paths answer, and to whom."""

import asyncio
import contextlib
import http.client
import logging
import re
import subprocess
import sys

import pytest

from gpuledger.serving.http import Answer, application
from gpuledger.serving.page import landing_page
from tests.serving.harness import (
    FakePages,
    serving_pages,
)


def test_each_path_answers() -> None:
    """The contract's paths are there, with the bodies that probes and people look for."""
    with serving_pages(FakePages()) as running:
        for path, body in (
            ("/metrics", b"up 1\n"),
            ("/healthz", b"OK\n"),
            ("/-/healthy", b"OK\n"),
            ("/-/ready", b"ready\n"),
            ("/", b"<title>gpuledger</title>"),
        ):
            response, read = running.ask(path)
            assert (response.status, read) == (200, body), path
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Date"].endswith(" GMT")
            assert response.headers["Server"] is None


def test_head_has_the_headers_alone() -> None:
    """HEAD tells the length and sends nothing, and the connection goes on."""
    with serving_pages(FakePages()) as running:
        connection = http.client.HTTPConnection(*running.address, timeout=5)
        with contextlib.closing(connection):
            for path in ("/metrics", "/healthz", "/"):
                connection.request("HEAD", path)
                response = connection.getresponse()
                assert response.status == 200
                assert response.read() == b""
                assert int(response.headers["Content-Length"]) > 0


def test_what_is_wanted_reaches_the_page() -> None:
    """Accept, Accept-Encoding and every collect[] arrive, and the page's headers go out."""
    pages = FakePages()
    wanted = {"Accept": "application/openmetrics-text", "Accept-Encoding": "gzip"}
    with serving_pages(pages) as running:
        response, _ = running.ask(
            "/metrics?collect[]=idle&collect%5B%5D=energy&x=1", headers=wanted
        )
    assert response.headers["X-Of"] == "the page"
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4"
    assert pages.asked == [
        ("application/openmetrics-text", "gzip", ("idle", "energy")),
    ]


def test_another_metrics_path() -> None:
    """With --metrics-path the metrics are there, and /metrics is not."""
    pages = FakePages(metrics_path="/gpu/metrics")
    with serving_pages(pages) as running:
        assert running.ask("/gpu/metrics")[0].status == 200
        assert running.ask("/metrics")[0].status == 404
    assert pages.asked[0][2] == ()


@pytest.mark.parametrize(
    "path", ["metrics", "/", "/healthz", "/-/ready", "/{a}", "/a b", "", "/api/x"]
)
def test_a_metrics_path_that_collides_is_refused(path: str) -> None:
    """A path that would hide another, or mean something to the router, is an error at once."""
    with pytest.raises(ValueError, match="metrics' path"):
        application(FakePages(metrics_path=path))


def test_unknown_paths_name_the_metrics() -> None:
    """Who asks at the wrong path is told the right one."""
    with serving_pages(FakePages()) as running:
        for path in ("/metric", "/metrics/", "//", "/%00", "/..%2f..%2fetc/passwd"):
            response, body = running.ask(path)
            assert (response.status, body) == (404, b"no such page; the metrics are at /metrics\n")
            assert response.headers["Content-Type"] == "text/plain; charset=utf-8"


def test_wrong_methods_are_refused() -> None:
    """Nothing here can be changed: other methods get 405 and are told what is allowed."""
    with serving_pages(FakePages()) as running:
        for path in ("/", "/metrics", "/healthz", "/-/ready"):
            for method in ("POST", "PUT", "DELETE", "OPTIONS", "BREW"):
                response, _ = running.ask(path, method)
                assert response.status == 405
                assert set(response.headers["Allow"].split(", ")) == {"GET", "HEAD"}


def test_ready_says_why_not() -> None:
    """A node whose figures are old is not ready, and says why."""
    with serving_pages(FakePages(reason="no reading for 20 s")) as running:
        response, body = running.ask("/-/ready")
    assert (response.status, body) == (503, b"no reading for 20 s\n")


def test_a_failing_page_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A client never sees a traceback, the log has one line, the other pages are served on."""
    pages = FakePages(error=RuntimeError("secret\nFORGED LINE"))
    caplog.set_level(logging.INFO)
    with serving_pages(pages) as running:
        response, body = running.ask("/metrics")
        assert running.ask("/healthz")[0].status == 200
    assert (response.status, body) == (500, b"this page failed; the log says why\n")
    (record,) = [each for each in caplog.records if each.name == "gpuledger.http"]
    assert record.getMessage() == r"the page /metrics failed: RuntimeError('secret\nFORGED LINE')"
    assert not record.exc_info


def test_the_landing_page_is_escaped_and_bare() -> None:
    """Paths and versions cannot become markup, and the page runs nothing."""
    page = landing_page("<1>", {'/a"><script>': "the & metrics"})
    assert "&lt;1&gt;" in page
    assert "the &amp; metrics" in page
    assert '<a href="/a&quot;&gt;&lt;script&gt;">' in page
    assert "<script" not in page
    assert "color-scheme: light dark" in page
    with serving_pages(FakePages()) as running:
        response, _ = running.ask("/")
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"


def test_header_names_of_an_answer_are_lower_case() -> None:
    """ASGI wants lower-case names, whatever the page wrote."""
    sent = []

    async def send(message: object) -> None:
        sent.append(message)

    async def run() -> None:
        answer = Answer(200, "text/plain", b"x", {"ETag": '"1"'})
        await answer({"method": "GET"}, None, send)  # type: ignore[arg-type]

    asyncio.run(run())
    assert (b"etag", b'"1"') in sent[0]["headers"]  # type: ignore[index]


def test_nothing_heavy_is_loaded() -> None:
    """The daemon's memory is the budget: no test client, no threads' backend, no templates."""
    code = "import sys, gpuledger.serving.http, gpuledger.serving.server; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert not {each for each in loaded if re.match(r"httpx|jinja2|rich|anyio\._backends", each)}
    assert not loaded & {
        "starlette.applications",
        "starlette.testclient",
        "starlette.staticfiles",
        "starlette.templating",
        "gpuledger.agent",
    }
