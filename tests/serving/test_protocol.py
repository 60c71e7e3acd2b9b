"""No client can hold a connection, or a place, for longer than it is given."""

import contextlib
import socket
import time

import pytest

from gpuledger.serving.http import Limited
from gpuledger.serving.protocol import HEADER_BYTES, Limits
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

HEADER, IDLE, TAKING = 0.3, 1.0, 0.4
QUICK = Limits(header=HEADER, idle=IDLE, taking=TAKING)


def _answer(sock: socket.socket, body: bytes = b"up 1\n") -> bytes:
    """Read one answer, without what may follow."""
    read = b""
    while not read.endswith(b"\r\n\r\n" + body):
        piece = sock.recv(65536)
        assert piece, f"the connection ended after {read!r}"
        read += piece
    return read


def _seconds_to_end(sock: socket.socket) -> float:
    begin = time.monotonic()
    everything(sock)
    return time.monotonic() - begin


@pytest.mark.parametrize("sent", [b"", b"G", b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: y\r\n"])
def test_a_header_must_be_whole_in_time(sent: bytes) -> None:
    """A new connection that says nothing, or not enough, is dropped after the header's time."""
    with serving_pages(FakePages(), QUICK) as running, running.client(sent) as sock:
        assert HEADER * 0.9 < _seconds_to_end(sock) < HEADER + 0.4


def test_bytes_that_trickle_buy_no_time() -> None:
    """A client that sends its header byte by byte has the same time as another."""
    with serving_pages(FakePages(), QUICK) as running, running.client() as sock:
        begin = time.monotonic()
        with contextlib.suppress(ConnectionError):
            for byte in (GET[:-1] * 10)[:100]:
                sock.sendall(bytes([byte]))
                time.sleep(0.02)
        assert time.monotonic() - begin < HEADER + 0.5
        assert everything(sock) == b""


def test_a_kept_connection_ends_when_idle() -> None:
    """A connection that is kept for a next request is ended after the idle time."""
    with serving_pages(FakePages(), QUICK) as running, running.client(GET) as sock:
        _answer(sock)
        assert IDLE * 0.9 < _seconds_to_end(sock) < IDLE + 0.5


@pytest.mark.parametrize("after", [b"G", b"GET /metrics HTTP/1.1\r\n"])
def test_a_kept_connection_with_a_byte_has_the_headers_time(after: bytes) -> None:
    """The first byte alone ends every timer of uvicorn's; ours starts then."""
    with serving_pages(FakePages(), QUICK) as running, running.client(GET) as sock:
        _answer(sock)
        sock.sendall(after)
        assert HEADER * 0.9 < _seconds_to_end(sock) < HEADER + 0.4


def test_a_byte_behind_a_request_has_the_headers_time() -> None:
    """The beginning of a next request that came with the last one starts its time too."""
    with serving_pages(FakePages(), QUICK) as running, running.client(GET + b"GET") as sock:
        _answer(sock)
        assert HEADER * 0.9 < _seconds_to_end(sock) < HEADER + 0.4


def test_a_body_that_never_comes_has_the_headers_time() -> None:
    """Who promises a body is answered, and cannot hold the connection with it."""
    post = b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\n"
    with serving_pages(FakePages(), QUICK) as running, running.client(post) as sock:
        begin = time.monotonic()
        assert sock.recv(100).startswith(b"HTTP/1.1 405")
        with contextlib.suppress(ConnectionError):
            for _ in range(50):
                sock.sendall(b"x")
                time.sleep(0.02)
        everything(sock)
        assert time.monotonic() - begin < HEADER + 0.5


def test_a_body_that_comes_late_is_skipped() -> None:
    """After a body that nobody wanted, the connection serves on, with its idle time."""
    post = b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n"
    with serving_pages(FakePages(), QUICK) as running, running.client(post) as sock:
        _answer(sock, b"Method Not Allowed")
        sock.sendall(b"x" * 20000)
        time.sleep(HEADER * 1.5)
        sock.sendall(GET)
        _answer(sock)


def test_a_request_in_work_has_no_timer() -> None:
    """Who waits for an answer is not dropped, however long it takes."""
    gate = Gate()
    limits = Limits(header=0.1, idle=0.1, taking=0.1)
    with serving(Limited(gate), limits) as running, running.client(GET) as sock:
        time.sleep(0.5)
        running.soon(gate.opened.set)
        _answer(sock, b"through\n")


def test_many_requests_on_one_connection() -> None:
    """A kept connection serves on for longer than any one of its times."""
    with serving_pages(FakePages(), QUICK) as running, running.client() as sock:
        for _ in range(8):
            sock.sendall(GET)
            _answer(sock)
            time.sleep(HEADER * 0.7)


def test_pipelined_requests_are_answered_in_turn() -> None:
    """Requests that come together are answered one after the other."""
    paths = ["metrics", "healthz", "nothing", "-/ready"] * 10
    asked = b"".join(b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n" % path.encode() for path in paths[:-1])
    last = b"GET /-/ready HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    with serving_pages(FakePages(), QUICK) as running, running.client(asked + last) as sock:
        answers = everything(sock)
    bodies = [each.partition(b"\r\n\r\n")[2] for each in answers.split(b"HTTP/1.1 ")[1:]]
    nothing = b"no such page; the metrics are at /metrics\n"
    assert bodies == [b"up 1\n", b"OK\n", nothing, b"ready\n"] * 10


@pytest.mark.parametrize("dribble", [False, True])
def test_a_client_that_does_not_read_is_dropped(*, dribble: bool) -> None:
    """A client that takes nothing, or little by little, gives its place back in time."""
    pages = FakePages(body=bytes(64 << 20))
    with (
        serving_pages(pages, QUICK) as running,
        running.client(GET, receive_buffer=1 << 18 if dribble else 8192) as sock,
    ):
        assert until(lambda: limited(running).in_work == 1)
        begin = time.monotonic()
        while limited(running).in_work and time.monotonic() - begin < 3:
            if dribble:
                with contextlib.suppress(ConnectionError):
                    sock.recv(1 << 18)
            time.sleep(0.01)
        assert TAKING * 0.9 < time.monotonic() - begin < TAKING + 0.5
        assert until(lambda: not running.server.connections.connections)


def test_a_client_that_does_not_read_holds_little() -> None:
    """Of an answer that is not taken, one piece is held for the client and not the whole."""
    with (
        serving_pages(FakePages(body=bytes(64 << 20))) as running,
        running.client(GET, receive_buffer=8192),
    ):
        assert until(lambda: limited(running).in_work == 1)
        (connection,) = running.server._open()
        assert until(lambda: connection.flow.write_paused)
        time.sleep(0.1)
        assert 0 < connection.transport.get_write_buffer_size() <= 65536


def test_an_unread_answer_on_its_way_out_is_dropped() -> None:
    """A client that asks to close and never reads does not keep the last piece for ever."""
    asked = b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    with (
        serving_pages(FakePages(body=bytes(64 << 20)), QUICK) as running,
        running.client(asked, receive_buffer=8192),
    ):
        assert until(lambda: limited(running).in_work == 1)
        assert until(lambda: not running.server.connections.connections, TAKING + 1)


def test_the_longest_waiting_goes_for_the_newest() -> None:
    """When all connections are taken, the one that waited longest makes room."""
    limits = Limits(connections=5)
    with contextlib.ExitStack() as crowd:
        running = crowd.enter_context(serving_pages(FakePages(), limits))
        first = crowd.enter_context(running.client(GET))
        _answer(first)
        second = crowd.enter_context(running.client(b"GET"))
        others = [crowd.enter_context(running.client()) for _ in range(3)]
        assert until(lambda: len(running.server.connections.connections) == 5)
        # The first is the oldest connection, but has just asked: the second waited longest.
        first.sendall(GET)
        _answer(first)
        assert running.ask("/metrics")[0].status == 200
        assert everything(second) == b""
        for sock in (first, *others):
            sock.sendall(GET)
            _answer(sock)


def test_a_request_in_work_is_never_the_one_to_go() -> None:
    """When all connections have a request in work, the new one is refused."""
    gate = Gate()
    limits = Limits(connections=3)
    with contextlib.ExitStack() as crowd:
        running = crowd.enter_context(serving(Limited(gate), limits))
        busy = [crowd.enter_context(running.client(GET)) for _ in range(3)]
        assert until(lambda: gate.came == 3)
        for _ in range(3):
            assert everything(crowd.enter_context(running.client())) == b""
        running.soon(gate.opened.set)
        for sock in busy:
            _answer(sock, b"through\n")


def test_a_flood_of_connections_leaves_scrapes() -> None:
    """Far more connections than there may be neither pile up nor keep a scrape away."""
    limits = Limits(connections=50)
    with contextlib.ExitStack() as crowd:
        running = crowd.enter_context(serving_pages(FakePages(), limits))
        for _ in range(300):
            crowd.enter_context(running.client())
        assert running.ask("/metrics")[0].status == 200
        assert until(lambda: len(running.server.connections.connections) <= 50)
        assert len(running.server.connections.waiting) <= 50


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) + b"\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET /metrics\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
    ],
)
def test_nonsense_is_a_400(sent: bytes) -> None:
    """What is not HTTP gets a 400 and the end of its connection, and no line in the log."""
    with serving_pages(FakePages(), QUICK) as running, running.client(sent) as sock:
        read = everything(sock)
        assert read.startswith(b"HTTP/1.1 400 ")
        assert b"connection: close" in read.lower()
        assert running.ask("/metrics")[0].status == 200


@pytest.mark.parametrize("whole", [False, True])
def test_a_header_that_is_too_large_is_refused(*, whole: bool) -> None:
    """A header has a limit, whether it comes in one go or never ends."""
    sent = b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: " + b"x" * (HEADER_BYTES + 8192)
    with serving_pages(FakePages()) as running, running.client() as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(sent + (b"\r\n\r\n" if whole else b""))
        assert everything(sock)[:10] in (b"HTTP/1.1 4", b"")
        assert running.ask("/metrics", headers={"X": "x" * (HEADER_BYTES - 500)})[0].status == 200


@pytest.mark.parametrize("method", [b"GET", b"POST"])
def test_nonsense_after_a_request_does_not_spoil_its_answer(method: bytes) -> None:
    """A request whose body is nonsense is answered once, then the connection ends."""
    sent = method + b" /metrics HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n"
    with serving_pages(FakePages(), QUICK) as running, running.client(sent) as sock:
        read = everything(sock)
    assert read.count(b"HTTP/1.1 ") == 1
    assert read.startswith(b"HTTP/1.1 200" if method == b"GET" else b"HTTP/1.1 405")


def test_nonsense_after_an_answer_ends_the_connection() -> None:
    """A body that turns to nonsense after its answer ends the connection, without a noise."""
    sent = b"POST /metrics HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    with serving_pages(FakePages(), QUICK) as running, running.client(sent) as sock:
        _answer(sock, b"Method Not Allowed")
        begin = time.monotonic()
        sock.sendall(b"ZZ\r\n")
        assert everything(sock) == b""
        assert time.monotonic() - begin < HEADER


def test_nonsense_while_a_request_is_in_work() -> None:
    """Bytes of all kinds behind a request in work are kept back until it is answered."""
    gate = Gate()
    with serving(Limited(gate), QUICK) as running, running.client(GET) as sock:
        assert until(lambda: gate.came == 1)
        sock.sendall(b"\x00\xff nonsense\r\n\r\n")
        time.sleep(0.1)
        running.soon(gate.opened.set)
        read = everything(sock)
    assert b"\r\n\r\nthrough\nHTTP/1.1 400 " in read


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /metrics HTTP/1.0\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade, close\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n",
    ],
)
def test_who_wants_to_close_is_answered_whole(sent: bytes) -> None:
    """HTTP/1.0, Connection: close and offers to upgrade get the whole answer, then the end."""
    body = bytes(3 << 20)
    with serving_pages(FakePages(body=body), QUICK) as running, running.client(sent) as sock:
        read = everything(sock)
    assert read.startswith(b"HTTP/1.1 200 ")
    assert read.endswith(b"\r\n\r\n" + body)


def test_a_closed_half_is_answered() -> None:
    """A client that closes its half after asking, as netcat does, gets its whole answer."""
    body = bytes(3 << 20)
    with serving_pages(FakePages(body=body), QUICK) as running, running.client(GET) as sock:
        sock.shutdown(socket.SHUT_WR)
        assert everything(sock).endswith(b"\r\n\r\n" + body)
        assert until(lambda: not running.server.connections.connections)


def _leftovers(running: Running) -> tuple[int, int, int]:
    state = running.server.connections
    return len(state.connections), len(state.waiting), len(state.tasks)


def test_nothing_is_left_of_those_who_went() -> None:
    """A server that has served many remembers none of them."""
    with serving_pages(FakePages()) as running:
        for sent in (b"", b"G", GET, GET + b"G", b"nonsense\r\n\r\n") * 20:
            with running.client(sent):
                pass
        assert until(lambda: _leftovers(running) == (0, 0, 0))
