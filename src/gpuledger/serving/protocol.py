"""One HTTP connection that nobody can hold for ever: uvicorn's, with the limits that it lacks.

uvicorn has no timeout for a request's header, ends its keep-alive timer at the first byte of
whatever comes next, and waits without end for a client that does not read. Here a connection
always has a timer, but while a request is in work that is not being sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

if TYPE_CHECKING:
    import asyncio

    from uvicorn.config import Config
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

HEADER_BYTES = 16 * 1024
_STEP = 4 * 1024

Waiting: TypeAlias = Literal["header", "idle"]


@dataclass(frozen=True)
class Limits:
    """How long a connection may keep us waiting, in seconds, and how many there may be."""

    header: float = 5.0
    """until a request's header is whole, from when it could have begun"""
    idle: float = 65.0
    """between two requests: longer than the usual scrape interval of a minute"""
    taking: float = 30.0
    """until a client has taken what was written for it"""
    connections: int = 512


class Connections(ServerState):
    """All connections of a server, and which of them wait for their client, the longest first."""

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self.limits = limits
        self.waiting: dict[BoundedProtocol, None] = {}
        self.closed = False

    def has_room(self) -> bool:
        """Say whether the newest connection may stay; the longest waiting one goes for it."""
        if self.closed:
            return False
        if len(self.connections) <= self.limits.connections:
            return True
        oldest = next(iter(self.waiting), None)
        if oldest is None:
            return False
        oldest.drop()
        return True


class BoundedProtocol(H11Protocol):
    """A connection of HTTP/1.1 whose client must say, and take, everything in time."""

    def __init__(self, config: Config, connections: Connections) -> None:
        super().__init__(config, connections, {"long_lived": self.long_lived})
        self._all = connections
        self._limits = connections.limits
        self._waiting: Waiting | None = None
        self._waiting_timer: asyncio.TimerHandle | None = None
        self._taking_timer: asyncio.TimerHandle | None = None
        self._long_lived = False

    def long_lived(self) -> None:
        """Let the response in work last: its client must take each piece in time, not the whole.

        An application finds this in `scope["state"]["long_lived"]`.
        """
        self._long_lived = True

    def drop(self) -> None:
        """End the connection at once, whatever is unsent."""
        self._forget()
        self._all.connections.discard(self)
        self.transport.abort()

    def end(self) -> None:
        """End the connection, after the response if a request is in work."""
        cycle = self._in_work()
        if cycle is None:
            self.drop()
        else:
            cycle.keep_alive = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a new connection, if there is room."""
        super().connection_made(transport)
        # So that pause_writing and resume_writing tell of anything unsent at all.
        transport.set_write_buffer_limits(high=1, low=0)
        if self._all.has_room():
            self._wait("header")
        else:
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._forget()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer a client that has closed its half after asking, as `nc -N` does, then close."""
        cycle = self._in_work()
        # TLS has no half that could stay open.
        if cycle is None or self._long_lived or self.scheme != "http":
            return False
        cycle.keep_alive = False
        return True

    def data_received(self, data: bytes) -> None:
        """Take what came; in small steps, since h11 limits only a header that is not yet whole."""
        for begin in range(0, len(data), _STEP):
            if self.transport.is_closing():
                return
            super().data_received(data[begin : begin + _STEP])
        self._settle()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, if the client can still be told."""
        cycle = self._in_work()
        if cycle is not None:
            # The nonsense came after a request: that one is answered, then it is over.
            cycle.keep_alive = False
            self.flow.pause_reading()
        elif self.conn.our_state is h11.IDLE:
            super().send_400_response(msg)
        else:
            self.drop()

    def on_response_complete(self) -> None:
        """Wait for the next request, or go on with one that came already."""
        self._long_lived = False
        if not self.flow.write_paused:
            self._stop_taking()
        super().on_response_complete()
        self._unset_keepalive_if_required()
        self._settle()

    def pause_writing(self) -> None:
        """Begin to wait for the client to take what was written."""
        super().pause_writing()
        if self._taking_timer is None:
            self._taking_timer = self.loop.call_later(self._limits.taking, self.drop)

    def resume_writing(self) -> None:
        """Go on; a response in work has the same time for all of it, unless it is long-lived."""
        super().resume_writing()
        if self._long_lived or self._in_work() is None:
            self._stop_taking()

    def _in_work(self) -> RequestResponseCycle | None:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete or cycle.disconnected:
            return None
        return cycle

    def _settle(self) -> None:
        """Set the timer for what the connection waits for now."""
        if self.transport.is_closing():
            return
        if self._in_work() is not None:
            self._stop_waiting()
        elif self.conn.their_state is not h11.IDLE or self.conn.trailing_data[0]:
            self._wait("header")
        elif cast("RequestResponseCycle | None", self.cycle) is not None:
            self._wait("idle")

    def _wait(self, what: Waiting) -> None:
        # More of the same is no reason to wait longer.
        if self._waiting == what:
            return
        self._stop_waiting()
        self._waiting = what
        seconds = self._limits.header if what == "header" else self._limits.idle
        self._waiting_timer = self.loop.call_later(seconds, self.drop)
        self._all.waiting[self] = None

    def _stop_waiting(self) -> None:
        self._waiting = None
        self._all.waiting.pop(self, None)
        if self._waiting_timer is not None:
            self._waiting_timer.cancel()
            self._waiting_timer = None

    def _stop_taking(self) -> None:
        if self._taking_timer is not None:
            self._taking_timer.cancel()
            self._taking_timer = None

    def _forget(self) -> None:
        self._stop_waiting()
        self._stop_taking()
