"""Tells systemd, where it started us, that we are ready, alive, or about to stop."""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger("gpuledger.systemd")


def notify(message: str, environ: Mapping[str, str] = os.environ) -> None:
    """Send a message such as READY=1; nothing happens where nobody listens."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    try:
        with socket.socket(socket.AF_UNIX, kind) as sock:
            sock.connect(address)
            sock.send(message.encode())
    except OSError as error:
        # Whether systemd hears us is its affair; what we do must not hang on it.
        logger.warning("systemd was not told %r: %s", message.partition("\n")[0], error)


def watchdog_seconds(environ: Mapping[str, str] = os.environ) -> float | None:
    """Give how often systemd wants to hear of us, if it watches this process."""
    microseconds = environ.get("WATCHDOG_USEC", "")
    if not microseconds.isdigit() or environ.get("WATCHDOG_PID", str(os.getpid())) != str(
        os.getpid()
    ):
        return None
    return int(microseconds) / 1e6
