"""What the paths answer, and how the server begins, bears a crowd and ends."""

import asyncio
import contextlib
import http.client
import logging
import re
import subprocess
import sys
import time

import pytest
from starlette.types import Receive, Scope, Send

from gpuledger.serving.addresses import ListenError, listen, parse
from gpuledger.serving.http import Answer, Limited, application
from gpuledger.serving.page import landing_page
from gpuledger.serving.protocol import Limits
from gpuledger.serving.server import Server
from tests.serving.harness import (
    GET,
    FakePages,
    Gate,
    Running,
    everything,
    limited,
    serving,
    serving_pages,
    until,
)


def test_each_path_answers() -> None:
    """The contract's paths are there, with the bodies that probes and people look for."""
    with serving_pages(FakePages()) as running:
        for path, body in (
            ("/metrics", b"up 1\n"),
            ("/gpu/metrics", b"up 1\n"),
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
        running.ask("/gpu/metrics", headers={"Accept-Encoding": "identity"})
    assert response.headers["X-Of"] == "the page"
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4"
    assert pages.asked == [
        ("application/openmetrics-text", "gzip", ("idle", "energy")),
        ("", "identity", ("pods",)),
    ]


def test_another_metrics_path() -> None:
    """With --metrics-path the metrics are there, and /metrics is not."""
    pages = FakePages(metrics_path="/gpu/metrics")
    with serving_pages(pages) as running:
        assert running.ask("/gpu/metrics")[0].status == 200
        assert running.ask("/metrics")[0].status == 404
    assert pages.asked[0][2] == ()


@pytest.mark.parametrize("path", ["metrics", "/", "/healthz", "/-/ready", "/{a}", "/a b", ""])
def test_a_metrics_path_that_collides_is_refused(path: str) -> None:
    """A path that would hide another, or mean something to the router, is an error at once."""
    with pytest.raises(ValueError, match="metrics path"):
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


def _idle(running: Running, crowd: contextlib.ExitStack) -> None:
    """Leave a connection behind that has had an answer and waits."""
    sock = crowd.enter_context(running.client(GET))
    assert sock.recv(100)


def test_forty_requests_in_work_and_no_more() -> None:
    """The 41st request is told to come again, by a 503; those who only wait are not counted."""
    gate = Gate()
    with contextlib.ExitStack() as crowd:
        running = crowd.enter_context(serving(Limited(gate)))
        app = limited(running)
        for _ in range(60):
            crowd.enter_context(running.client(b"GET /metrics HT"))
        slow = [crowd.enter_context(running.client(GET)) for _ in range(40)]
        assert until(lambda: gate.came == 40)
        assert (app.in_work, app.refused) == (40, 0)
        response, body = running.ask("/metrics")
        assert (response.status, body) == (503, b"too many requests at once\n")
        assert response.headers["Retry-After"] == "1"
        assert app.refused == 1
        running.soon(gate.opened.set)
        assert all(sock.recv(100).startswith(b"HTTP/1.1 200") for sock in slow)
        assert until(lambda: app.in_work == 0)
        assert running.ask("/metrics")[0].status == 200
        assert app.refused == 1


def test_idle_connections_take_no_place() -> None:
    """A hundred clients that keep their connection leave every place to requests."""
    with contextlib.ExitStack() as crowd:
        running = crowd.enter_context(serving_pages(FakePages()))
        for _ in range(100):
            _idle(running, crowd)
        assert until(lambda: limited(running).in_work == 0)
        assert running.ask("/metrics")[0].status == 200
        assert limited(running).refused == 0


def test_who_leaves_gives_the_place_back() -> None:
    """Clients that go away while they are answered do not use up the places."""
    with serving_pages(FakePages(body=bytes(32 << 20))) as running:
        for _ in range(3):
            with contextlib.ExitStack() as crowd:
                for _ in range(30):
                    sock = crowd.enter_context(running.client(GET, receive_buffer=4096))
                    assert sock.recv(10)
                assert until(lambda: limited(running).in_work == 30)
            assert until(lambda: limited(running).in_work == 0)
        assert limited(running).refused == 0


def test_half_open_clients_do_not_delay_a_scrape() -> None:
    """200 clients that never end their request leave a scrape under 100 ms."""
    with contextlib.ExitStack() as crowd:
        running = crowd.enter_context(serving_pages(FakePages(body=b"up 1\n" * 100_000)))
        for number in range(200):
            crowd.enter_context(
                running.client(b"GET /metrics HTTP/1.1\r\nHo" if number % 2 else b"")
            )
        took = []
        for _ in range(50):
            begin = time.perf_counter()
            _, body = running.ask("/metrics")
            took.append(time.perf_counter() - begin)
            assert len(body) == 500_000
        assert max(took) < 0.1


def test_ipv6() -> None:
    """A server on an IPv6 address answers there."""
    try:
        with serving(application(FakePages()), address="[::1]:0") as running:
            assert running.ask("/metrics")[1] == b"up 1\n"
    except ListenError:
        pytest.skip("this host has no IPv6")


def test_stop_ends_with_a_request_outstanding() -> None:
    """A request that hangs delays the end by the grace and no more."""
    gate = Gate()
    with serving(Limited(gate)) as running, running.client(GET) as sock, running.client() as idle:
        assert until(lambda: gate.came == 1)
        begin = time.monotonic()
        running.do(running.server.stop(0.2))
        took = time.monotonic() - begin
        assert 0.2 <= took < 0.5
        assert everything(sock) == everything(idle) == b""
        assert limited(running).in_work == 0
        assert not running.server.connections.tasks


def test_stop_lets_a_request_finish() -> None:
    """A request in work at the end gets its answer, and the end does not wait longer."""
    gate = Gate()
    with serving(Limited(gate)) as running, running.client(GET) as sock:
        assert until(lambda: gate.came == 1)
        running.loop.call_soon_threadsafe(running.loop.call_later, 0.1, gate.opened.set)
        begin = time.monotonic()
        running.do(running.server.stop(3))
        assert time.monotonic() - begin < 1
        assert everything(sock).endswith(b"\r\n\r\nthrough\n")


def test_stop_with_nothing_in_work_is_immediate() -> None:
    """Connections that wait are ended at once, and nobody can connect any more."""
    with contextlib.ExitStack() as crowd:
        running = crowd.enter_context(serving_pages(FakePages()))
        for _ in range(5):
            _idle(running, crowd)
        begin = time.monotonic()
        running.do(running.server.stop(3))
        assert time.monotonic() - begin < 0.5
        with pytest.raises(ConnectionRefusedError), running.client():
            pass


def test_a_server_that_never_started_gives_its_sockets_back() -> None:
    """A daemon that fails between opening and serving leaves no port taken."""
    (sock,) = listen([parse("127.0.0.1:0")])
    server = Server(application(FakePages()), [sock])
    asyncio.run(server.stop())
    asyncio.run(server.stop())
    host, port = server.addresses[0]
    (again,) = listen([parse(f"{host}:{port}")])
    again.close()


def test_the_loop_sleeps_while_nobody_asks() -> None:
    """A waiting server does not wake the processor, whatever connections are open."""
    with serving_pages(FakePages()) as running, running.client(GET) as sock, running.client():
        assert sock.recv(100)
        woken = 0
        once = running.loop._run_once  # type: ignore[attr-defined]

        def counted() -> None:
            nonlocal woken
            woken += 1
            once()

        running.loop._run_once = counted  # type: ignore[attr-defined]
        time.sleep(0.1)
        before = woken
        time.sleep(0.5)
        assert woken == before


def test_a_long_lived_response_may_last() -> None:
    """An application can stream for longer than a response may take, piece by piece."""

    async def stream(scope: Scope, _: Receive, send: Send) -> None:
        scope["state"]["long_lived"]()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _piece in range(12):
            await send({"type": "http.response.body", "body": bytes(1 << 18), "more_body": True})
            await asyncio.sleep(0.05)
        await send({"type": "http.response.body", "body": b"end"})

    with serving(stream, Limits(taking=0.2)) as running:
        _, body = running.ask("/")
    assert len(body) == (12 << 18) + 3


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
