"""Where to listen: what may be said, and a sentence that helps where it cannot be done."""

import errno
import socket
from collections.abc import Iterator

import pytest

from gpuledger.serving import addresses
from gpuledger.serving.addresses import Address, ListenError, listen, parse


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this host has no IPv6")


@pytest.fixture
def taken() -> Iterator[int]:
    """Give a port on 127.0.0.1 that another socket listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield sock.getsockname()[1]


def _ports(*said: str) -> list[tuple[str, int]]:
    sockets = listen([parse(each) for each in said])
    where: list[tuple[str, int]] = [sock.getsockname()[:2] for sock in sockets]
    for sock in sockets:
        sock.close()
    return where


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("9835", Address("", 9835)),
        (":9835", Address("", 9835)),
        (" :9835 ", Address("", 9835)),
        ("0.0.0.0:9835", Address("0.0.0.0", 9835)),
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("[::1]:65535", Address("::1", 65535)),
        ("[::]:0", Address("::", 0)),
        ("[0:0:0:0:0:0:0:1]:80", Address("::1", 80)),
        ("localhost:9835", Address("localhost", 9835)),
        ("gpu-node-3.example:9835", Address("gpu-node-3.example", 9835)),
    ],
)
def test_what_is_allowed(said: str, meant: Address) -> None:
    """Every form that node_exporter's users write is understood."""
    assert parse(said) == meant


@pytest.mark.parametrize(
    "said",
    [
        "", ":", "localhost", "localhost:", "127.0.0.1", "[::1]", "::1:9835", ":65536", ":-1",
        ":99999999999999999999", ":http", ":٩٨٣٥", ": 9835", "[]:1", "[::1:1", "[127.0.0.1]:1",
        "1.2.3:80", "1.2.3.4.5:80", "999.1.1.1:80", "*:80", "-a:80", "a b:80", "a\n:80",
        "http://localhost:80", "unix:/run/x.sock", "a/b:80", "9835.0", "0x10", "1_0",
    ],
)  # fmt: skip
def test_what_is_not_allowed(said: str) -> None:
    """Everything else is an error that says what was given and what is allowed."""
    with pytest.raises(ValueError, match="with a port from 0 to 65535") as caught:
        parse(said)
    assert repr(said.strip()) in str(caught.value)


def test_kubernetes_service_variables_are_explained() -> None:
    """A Service called http sets HTTP_PORT in every pod: who meets that is told so."""
    with pytest.raises(ValueError, match=r"Kubernetes .* a Service .* enableServiceLinks"):
        parse("tcp://10.0.0.1:80")


def test_addresses_are_shown_as_they_are_written() -> None:
    """Messages show what the user can copy back."""
    for said in (":9835", "[::1]:9835", "127.0.0.1:9835", "localhost:9835"):
        assert str(parse(said)) == said


def _answers(where: socket.socket, host: str) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as client:
        client.settimeout(5)
        return client.connect_ex((host, where.getsockname()[1])) == 0


@needs_ipv6
@pytest.mark.parametrize("said", [":0", "[::]:0"])
def test_all_addresses_are_both_families(said: str) -> None:
    """One socket answers on IPv4 and IPv6, as with node_exporter."""
    (sock,) = listen([parse(said)])
    with sock:
        assert not sock.getblocking()
        assert _answers(sock, "127.0.0.1")
        assert _answers(sock, "::1")


@needs_ipv6
def test_one_family_alone() -> None:
    """An address of one family takes nothing of the other."""
    four, six = listen([parse("0.0.0.0:0"), parse("[::1]:0")])
    with four, six:
        assert _answers(four, "127.0.0.1")
        assert not _answers(four, "::1")
        assert _answers(six, "::1")
        assert not _answers(six, "127.0.0.1")


@pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_all_addresses_without_ipv6(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Where the kernel has no IPv6, all addresses are those of IPv4."""
    opened = addresses._open

    def no_ipv6(place: addresses._Place) -> socket.socket:
        if place.family == socket.AF_INET6:
            raise OSError(number, "no")
        return opened(place)

    monkeypatch.setattr(addresses, "_open", no_ipv6)
    assert [host for host, _ in _ports(":0")] == ["0.0.0.0"]
    with pytest.raises(ListenError, match="not an address of this host"):
        _ports("[::]:0")
    with pytest.raises(ListenError, match="not an address of this host"):
        _ports("[::1]:0")


def test_a_name_is_every_address_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name takes each of its addresses once, and leaves those that this host lacks."""

    def resolve(*_: object, **__: object) -> list[tuple[object, ...]]:
        hosts = ("127.0.0.1", "127.0.0.2", "203.0.113.9", "127.0.0.1")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0)) for host in hosts]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert [host for host, _ in _ports("node:0")] == ["127.0.0.1", "127.0.0.2"]


def test_localhost() -> None:
    """The name that everybody has can be listened on."""
    assert {host for host, _ in _ports("localhost:0")} <= {"127.0.0.1", "::1"}


def test_a_port_in_use_names_the_remedy(taken: int) -> None:
    """Who starts a second one learns how to find the first."""
    with pytest.raises(ListenError) as caught:
        _ports(f"127.0.0.1:{taken}")
    assert str(caught.value) == (
        f"port {taken} on 127.0.0.1 is in use by another process: choose another with "
        f"--listen-address, or stop the other one (`ss -ltnp 'sport = :{taken}'` names it)"
    )
    with pytest.raises(ListenError, match=f"port {taken} on all addresses is in use"):
        _ports(f":{taken}")


def test_a_failure_closes_what_was_open(taken: int) -> None:
    """All of the addresses or none: a second try finds the first ones free."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        free = sock.getsockname()[1]
    for _ in range(2):
        with pytest.raises(ListenError, match=f"port {taken}"):
            _ports(f"127.0.0.1:{free}", f"127.0.0.1:{taken}")
    assert _ports(f"127.0.0.1:{free}") == [("127.0.0.1", free)]


@pytest.mark.parametrize(
    "said",
    [
        (":{port}", ":{port}"),
        (":{port}", "127.0.0.1:{port}"),
        ("127.0.0.1:{port}", "[::]:{port}"),
        ("0.0.0.0:{port}", "127.0.0.1:{port}"),
        ("127.0.0.1:{port}", "0.0.0.0:{port}"),
        ("127.0.0.1:{port}", "127.0.0.1:{port}"),
    ],
)
def test_addresses_that_overlap_are_an_error(said: tuple[str, str]) -> None:
    """Two addresses of which one holds the other are named, both of them."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    one, two = (each.format(port=port) for each in said)
    with pytest.raises(ListenError) as caught:
        _ports(one, two)
    assert f"the listen addresses {one} and {two} overlap" in str(caught.value)


def test_several_ports_do_not_overlap() -> None:
    """Port 0 is another one each time, and one host may have several."""
    ports = _ports("127.0.0.1:0", "127.0.0.1:0", "127.0.0.2:0")
    assert len(set(ports)) == 3


def test_an_address_of_another_host() -> None:
    """An address that this host lacks is named, with the way to find those it has."""
    with pytest.raises(ListenError, match=r"203\.0\.113\.9 is not an address .* `ip address`"):
        _ports("203.0.113.9:0")


def test_a_name_that_nobody_knows() -> None:
    """A name that does not resolve is named."""
    with pytest.raises(ListenError, match=r"'nobody\.invalid' is not a name"):
        _ports("nobody.invalid:0")


def test_a_port_that_is_not_permitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A low port without the right to it says which right that is."""

    def refused(_: addresses._Place) -> socket.socket:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(addresses, "_open", refused)
    with pytest.raises(ListenError, match="below 1024 need root or the capability"):
        _ports("127.0.0.1:80")
