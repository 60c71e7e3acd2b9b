"""Serves an application on open sockets, on the daemon's own loop.

uvicorn's own server wakes ten times a second and takes the signals over; this one sleeps until
somebody asks, and leaves signals to the agent.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from uvicorn.config import Config

from gpuledger.serving.addresses import BACKLOG
from gpuledger.serving.protocol import HEADER_BYTES, BoundedProtocol, Connections, Limits

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from starlette.types import ASGIApp

_AFTER_ABORT = 0.1
"""Seconds for requests to notice that they were ended."""


class Server:
    """An application at work on some sockets; it owns the sockets from the beginning."""

    def __init__(
        self, app: ASGIApp, sockets: Sequence[socket.socket], limits: Limits | None = None
    ) -> None:
        self.connections = Connections(limits or Limits())
        self._sockets = list(sockets)
        self.addresses: list[tuple[str, int]] = [sock.getsockname()[:2] for sock in sockets]
        """Host and port of every socket, with the port that the system chose for a 0."""
        self._servers: list[asyncio.Server] = []
        self._config = Config(
            app,
            interface="asgi3",
            http=BoundedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level=logging.ERROR,  # a client's nonsense is no news
            access_log=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=HEADER_BYTES,
        )
        self._config.load()

    async def start(self) -> None:
        """Begin to accept."""
        loop = asyncio.get_running_loop()
        # So many are taken at once, before any can be dropped for being too many.
        backlog = max(1, min(BACKLOG, self.connections.limits.connections // 2))
        for sock in self._sockets:
            server = await loop.create_server(self._connection, sock=sock, backlog=backlog)
            self._servers.append(server)

    async def stop(self, grace: float = 0.5) -> None:
        """Accept no more, end what waits, give requests in work `grace` seconds, end them too."""
        self.connections.closed = True
        if self._servers:
            loop = asyncio.get_running_loop()
            for sock in self._sockets:
                loop.remove_reader(sock)
            # Whoever was just accepted becomes a connection first: a closed asyncio server would
            # leave their sockets open.
            await asyncio.sleep(0)
        for server in self._servers:
            server.close()
        self._servers.clear()
        for sock in self._sockets:
            sock.close()
        for connection in self._open():
            connection.end()
        await self._requests(grace)
        for connection in self._open():
            connection.drop()
        await self._requests(_AFTER_ABORT)
        for task in self.connections.tasks:
            task.cancel()
        await self._requests(_AFTER_ABORT)

    def _connection(self) -> BoundedProtocol:
        return BoundedProtocol(self._config, self.connections)

    def _open(self) -> list[BoundedProtocol]:
        return [each for each in self.connections.connections if isinstance(each, BoundedProtocol)]

    async def _requests(self, seconds: float) -> None:
        """Wait for the requests in work; at least one turn of the loop, to see connections end."""
        if self.connections.tasks:
            await asyncio.wait(set(self.connections.tasks), timeout=seconds)
        await asyncio.sleep(0)
