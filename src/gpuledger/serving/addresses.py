"""Turns what a user says of where to listen into open sockets, or into a sentence that helps."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BACKLOG = 128

_ALLOWED = (
    "allowed are PORT, :PORT, ADDRESS:PORT, NAME:PORT and [IPV6]:PORT, with a port from 0 to 65535"
)
_NAME = re.compile(r"(?!-)[A-Za-z0-9_.-]{1,253}")
_NO_SUCH_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)


class ListenError(Exception):
    """An address that cannot be listened on: which, why, and what to do."""


@dataclass(frozen=True)
class Address:
    """A place to listen: a host (empty: every address of this host, IPv4 and IPv6) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return shown(self.host, self.port)


@dataclass(frozen=True)
class _Place:
    """What one socket is bound to; `dual` takes IPv4 too."""

    family: socket.AddressFamily
    host: str
    port: int
    scope: int = 0
    dual: bool = False

    def covers(self, other: _Place) -> bool:
        if not self.port or self.port != other.port:
            return False
        if self.dual:
            return True
        if self.family != other.family:
            return False
        return self.host in ("0.0.0.0", "::") or (self.host, self.scope) == (  # noqa: S104
            other.host,
            other.scope,
        )


def shown(host: str, port: int) -> str:
    """Write an address as it is written in a URL: an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse(text: str) -> Address:
    """Read a listen address; a ValueError says what is allowed."""
    text = text.strip()
    if text.startswith("tcp://"):
        raise ValueError(
            f"{text!r} is no listen address. Kubernetes sets a variable like this for a Service "
            "whose name it begins with (HTTP_PORT for one called http): set the variable in the "
            f"pod, or enableServiceLinks: false; {_ALLOWED}"
        )
    host, colon, port = text.rpartition(":")
    if "/" in text or not (port.isascii() and port.isdigit() and len(port) <= 5):
        raise ValueError(f"{text!r} is no listen address: {_ALLOWED}")
    if int(port) > 65535:
        raise ValueError(f"{text!r} has a port above 65535: {_ALLOWED}")
    if not colon:
        return Address("", int(port))
    return Address(_host(host, text), int(port))


def listen(addresses: Sequence[Address]) -> list[socket.socket]:
    """Open a socket, or several for a name, for each address: all of them or a ListenError."""
    sockets: list[socket.socket] = []
    taken: list[tuple[Address, _Place]] = []
    try:
        for address in addresses:
            places = _places(address)
            _refuse_overlap(address, places, taken)
            sockets.extend(_open_all(address, places))
            taken.extend((address, place) for place in places)
    except BaseException:
        _close(sockets)
        raise
    return sockets


def _refuse_overlap(
    address: Address, places: Sequence[_Place], taken: Sequence[tuple[Address, _Place]]
) -> None:
    for other, earlier in taken:
        if any(earlier.covers(place) or place.covers(earlier) for place in places):
            raise ListenError(
                f"the listen addresses {other} and {address} overlap: leave one of them out "
                f"(:{address.port} takes all addresses of this host, IPv4 and IPv6)"
            )


def _host(host: str, text: str) -> str:
    """Check the host of an address, and take an IPv6 one out of its brackets."""
    if host.startswith("[") and host.endswith("]"):
        try:
            return str(ipaddress.IPv6Address(host[1:-1]))
        except ValueError:
            raise ValueError(f"{text!r} has no IPv6 address in its brackets: {_ALLOWED}") from None
    if ":" in host:
        raise ValueError(f"{text!r} has an IPv6 address without brackets: {_ALLOWED}")
    if re.fullmatch(r"[0-9.]+", host):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise ValueError(f"{text!r} has no IPv4 address before its port: {_ALLOWED}") from None
    if host and not _NAME.fullmatch(host):
        raise ValueError(f"{text!r} has no address or name before its port: {_ALLOWED}")
    return host


def _places(address: Address) -> list[_Place]:
    """Say what to bind for an address, asking the resolver for a name."""
    if address.host in ("", "::"):
        return [_Place(socket.AF_INET6, "::", address.port, dual=True)]
    try:
        answers = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise ListenError(
            f"cannot listen on {address}: {address.host!r} is not a name that this host can "
            f"resolve ({error}); give an address of this host, or :{address.port} for all"
        ) from error
    return list(dict.fromkeys(_resolved(answers)))


def _resolved(answers: Sequence[tuple[object, ...]]) -> Iterator[_Place]:
    for family, _, _, _, where in answers:
        assert isinstance(where, tuple)
        if family == socket.AF_INET:
            yield _Place(socket.AF_INET, where[0], where[1])
        elif family == socket.AF_INET6:
            yield _Place(socket.AF_INET6, where[0], where[1], where[3])


def _open_all(address: Address, places: Sequence[_Place]) -> list[socket.socket]:
    """Open an address's sockets; of a name's, those that this host has."""
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for place in places:
            try:
                sockets.append(_open(place))
            except OSError as error:
                if error.errno not in _NO_SUCH_FAMILY:
                    raise
                missing = error
        if not sockets and address.host == "":
            sockets.append(_open(_Place(socket.AF_INET, "0.0.0.0", address.port)))  # noqa: S104
        elif missing is not None and not sockets:
            raise missing
    except OSError as error:
        _close(sockets)
        raise ListenError(_sentence(address, error)) from error
    return sockets


def _open(place: _Place) -> socket.socket:
    sock = socket.socket(place.family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if place.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if place.dual else 1)
            sock.bind((place.host, place.port, 0, place.scope))
        else:
            sock.bind((place.host, place.port))
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _close(sockets: Sequence[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


def _sentence(address: Address, error: OSError) -> str:
    port, host = address.port, address.host or "all addresses"
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is in use by another process: choose another with "
            f"--listen-address, or stop the other one (`ss -ltnp 'sport = :{port}'` names it)"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            f"port {port} on {host} is not permitted: ports below 1024 need root or the "
            "capability NET_BIND_SERVICE; choose one above with --listen-address"
        )
    if error.errno in _NO_SUCH_FAMILY:
        return (
            f"{host} is not an address of this host, so nothing can listen on {address}: "
            f"`ip address` lists those it has, and --listen-address :{port} takes all"
        )
    return f"cannot listen on {address}: {error.strerror or error}; see --listen-address"
