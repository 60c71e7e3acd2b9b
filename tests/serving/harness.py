"""A server on a loop in a thread, pages for it, and clients that behave badly."""

import asyncio
import contextlib
import http.client
import logging
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from gpuledger.serving.addresses import listen, parse
from gpuledger.serving.http import Answer, Limited, application
from gpuledger.serving.protocol import Limits
from gpuledger.serving.server import Server

T = TypeVar("T")

GET = b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n"
PATIENCE = 5.0


@dataclass
class FakePages:
    """Pages that show what they were asked."""

    metrics_path: str = "/metrics"
    body: bytes = b"up 1\n"
    reason: str | None = None
    error: Exception | None = None
    asked: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)

    def metrics(self, accept: str, accept_encoding: str, collect: Sequence[str]) -> Answer:
        """Give the body, or fail."""
        self.asked.append((accept, accept_encoding, tuple(collect)))
        if self.error is not None:
            raise self.error
        return Answer(200, "text/plain; version=0.0.4", self.body, {"X-Of": "the page"})

    def ready(self) -> str | None:
        """Give the reason."""
        return self.reason

    def landing(self) -> str:
        """Give some HTML."""
        return "<title>gpuledger</title>"


class Gate:
    """An application whose requests stay in work until the gate opens."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.came = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait, then answer."""
        self.came += 1
        await self.opened.wait()
        await Answer(200, "text/plain", b"through\n")(scope, receive, send)


class _Errors(logging.Handler):
    """What asyncio and uvicorn complain of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@dataclass
class Running:
    """A server at work, and ways to ask it."""

    loop: asyncio.AbstractEventLoop
    server: Server

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self.server.addresses[0]

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on its loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    def soon(self, work: Callable[[], object]) -> None:
        """Call something on its loop."""
        self.loop.call_soon_threadsafe(work)

    @contextlib.contextmanager
    def client(self, sent: bytes = b"", receive_buffer: int = 0) -> Iterator[socket.socket]:
        """Connect, and say something."""
        family = socket.AF_INET6 if ":" in self.address[0] else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.settimeout(PATIENCE)
            if receive_buffer:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            sock.connect(self.address)
            if sent:
                sock.sendall(sent)
            yield sock

    def ask(
        self, path: str, method: str = "GET", headers: dict[str, str] | None = None
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Ask for a path on a connection of its own."""
        connection = http.client.HTTPConnection(*self.address, timeout=PATIENCE)
        try:
            connection.request(method, path, headers=headers or {})
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()


@contextlib.contextmanager
def serving(
    app: ASGIApp, limits: Limits | None = None, address: str = "127.0.0.1:0"
) -> Iterator[Running]:
    """Serve an application while the block runs; nothing may go wrong unseen."""
    errors = _Errors()
    loggers = [logging.getLogger(name) for name in ("asyncio", "uvicorn.error")]
    for each in loggers:
        each.addHandler(errors)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        running = Running(loop, Server(app, listen([parse(address)]), limits))
        running.do(running.server.start())
        try:
            yield running
        finally:
            running.do(running.server.stop(0.05))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()
        for each in loggers:
            each.removeHandler(errors)
    assert errors.said == []


@contextlib.contextmanager
def serving_pages(pages: FakePages, limits: Limits | None = None) -> Iterator[Running]:
    """Serve pages."""
    with serving(application(pages), limits) as running:
        yield running


def limited(running: Running) -> Limited:
    """Find the limiter of what is served."""
    app = running.server._config.app
    assert isinstance(app, Limited)
    return app


def everything(sock: socket.socket) -> bytes:
    """Read until the server ends the connection, however it does."""
    read = bytearray()
    with contextlib.suppress(ConnectionError):
        while piece := sock.recv(65536):
            read += piece
    return bytes(read)


def until(what: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True
