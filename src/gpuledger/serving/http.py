"""The paths that the outside may ask for, each answered by a page that is handed in."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import TYPE_CHECKING, Protocol

from starlette.routing import Route, Router

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUESTS_AT_ONCE = 40

_PIECE = 64 * 1024
_PATH = re.compile(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._~-]+)+")
_OWN_PATHS = ("/", "/healthz", "/-/healthy", "/-/ready")
_API = "/api/"
_TEXT = "text/plain; charset=utf-8"
_HTML_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
}

logger = logging.getLogger("gpuledger.http")


@dataclass(frozen=True)
class Answer:
    """A whole response, which sends itself."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send it in pieces, so that a slow client holds one of them and not all.

        The last piece is empty: to send it is to wait until the client has taken the others, so
        that a request is in work until then.
        """
        headers = {
            "content-type": self.content_type,
            "content-length": str(len(self.body)),
            "x-content-type-options": "nosniff",
            **self.headers,
        }
        encoded = [
            (name.lower().encode(), text.encode("latin-1")) for name, text in headers.items()
        ]
        await send({"type": "http.response.start", "status": self.status, "headers": encoded})
        size = 0 if scope["method"] == "HEAD" else len(self.body)
        for begin in range(0, size, _PIECE):
            piece = self.body[begin : begin + _PIECE]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            # Others have their turn, and a client that has gone is noticed.
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Pages(Protocol):
    """What the paths show; each is asked on the loop, so it must be quick."""

    @property
    def metrics_path(self) -> str:
        """Where the metrics stand."""

    def metrics(self, accept: str, accept_encoding: str, collect: Sequence[str]) -> Answer:
        """Give the metrics in the format that is wanted, of the views in `collect` if any."""

    def ready(self) -> str | None:
        """Give the reason why the figures are not fresh, or None where they are."""

    def landing(self) -> str:
        """Give the page at `/`, in HTML."""


class Limited:
    """An application with at most so many requests in work; what is more is told to come again."""

    def __init__(self, app: ASGIApp, at_once: int = REQUESTS_AT_ONCE) -> None:
        self.in_work = 0
        self.refused = 0
        self._app = app
        self._at_once = at_once
        self._date = (0, b"")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def dated(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"date", self._now())]
            await send(message)

        if self.in_work >= self._at_once:
            self.refused += 1
            busy = _text(503, "too many requests at once", {"retry-after": "1"})
            await busy(scope, receive, dated)
            return
        self.in_work += 1
        try:
            await self._app(scope, receive, dated)
        except asyncio.CancelledError:
            # The server stops, and has ended the connection: there is nobody to tell.
            logger.debug("a request in work was ended")
        finally:
            self.in_work -= 1

    def _now(self) -> bytes:
        second = int(time.time())
        if self._date[0] != second:
            self._date = (second, formatdate(second, usegmt=True).encode())
        return self._date[1]


def metrics_path(text: str) -> str:
    """Give a path that the metrics may have; ValueError says what is allowed."""
    if text in _OWN_PATHS or text.startswith(_API) or not _PATH.fullmatch(text):
        raise ValueError(
            f"{text!r} cannot be the metrics' path: it begins with /, has letters, digits and "
            f"._~- between slashes, is none of {', '.join(_OWN_PATHS)} and not below {_API}"
        )
    return text


def application(pages: Pages) -> Limited:
    """Put the pages at their paths."""
    path = metrics_path(pages.metrics_path)

    def metrics(request: Request) -> Answer:
        return pages.metrics(*_wanted(request), request.query_params.getlist("collect[]"))

    def landing(_: Request) -> Answer:
        return Answer(
            200, "text/html; charset=utf-8", pages.landing().encode(), headers=_HTML_HEADERS
        )

    def healthy(_: Request) -> Answer:
        return _text(200, "OK")

    def ready(_: Request) -> Answer:
        reason = pages.ready()
        return _text(200, "ready") if reason is None else _text(503, reason)

    served = {
        "/": landing,
        "/healthz": healthy,
        "/-/healthy": healthy,
        "/-/ready": ready,
        path: metrics,
    }
    routes = [Route(where, _page(where, page), methods=["GET"]) for where, page in served.items()]
    nothing = _text(404, f"no such page; the metrics are at {path}")
    return Limited(Router(routes, redirect_slashes=False, default=nothing))


def _page(where: str, page: Callable[[Request], Answer]) -> Callable[[Request], Awaitable[Answer]]:
    """Keep what goes wrong in a page from its reader, and say it once in the log."""

    async def answer(request: Request) -> Answer:
        try:
            return page(request)
        except Exception as error:  # whatever it is, the other pages are served on
            traced = logger.isEnabledFor(logging.DEBUG)
            logger.log(logging.ERROR, "the page %s failed: %r", where, error, exc_info=traced)
            return _text(500, "this page failed; the log says why")

    return answer


def _text(status: int, line: str, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(status, _TEXT, f"{line}\n".encode(), headers or {})


def _wanted(request: Request) -> tuple[str, str]:
    """Give what the client accepts; a header that stands twice is one list."""
    accept, encoding = (
        ", ".join(request.headers.getlist(name)) for name in ("accept", "accept-encoding")
    )
    return accept, encoding
