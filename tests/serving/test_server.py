"""How the server begins, bears a crowd, sleeps and ends."""

import asyncio
import contextlib
import time

import pytest
from starlette.types import Receive, Scope, Send

from gpuledger.serving.addresses import ListenError, listen, parse
from gpuledger.serving.http import Limited, application
from gpuledger.serving.protocol import Limits
from gpuledger.serving.server import Server
from tests.serving.harness import (
    GET,
    PATIENCE,
    FakePages,
    Gate,
    Running,
    everything,
    limited,
    serving,
    serving_pages,
    until,
)


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
    """A request in work at the end gets its answer; who waits is ended before that."""
    gate = Gate()
    with serving(Limited(gate)) as running, running.client(GET) as sock, running.client() as idle:
        assert until(lambda: gate.came == 1)
        begin = time.monotonic()
        stopped = asyncio.run_coroutine_threadsafe(running.server.stop(3), running.loop)
        assert everything(idle) == b""
        assert not stopped.done()
        running.soon(gate.opened.set)
        stopped.result(PATIENCE)
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
            await send({"type": "http.response.body", "body": bytes(1 << 22), "more_body": True})
            await asyncio.sleep(0.05)
        await send({"type": "http.response.body", "body": b"end"})

    with serving(stream, Limits(taking=0.2)) as running:
        _, body = running.ask("/")
    assert len(body) == (12 << 22) + 3
