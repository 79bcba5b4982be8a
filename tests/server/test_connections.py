"""The limits of a peer before its request is accepted: bytes, time, connections."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING

import pytest

from server.serving import Service, serving, wait_for
from siftline.broker.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUICK = Limits(header_seconds=1.0, request_seconds=1.0, idle_seconds=1.0, send_seconds=1.0)
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
GET = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("connections") / "store.db", limits=QUICK) as service:
        service.broker.keys.add("admin")
        service.broker.keys.add("publish")
        service.client.close()
        yield service


def connected(service: Service) -> socket.socket:
    return socket.create_connection(("127.0.0.1", service.server.port), timeout=30)


def everything(peer: socket.socket) -> bytes:
    """Return what comes until the server closes the connection."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while chunk := peer.recv(65536):
            found += chunk
    return found


# What is sent at once, and a moment later.
ENDLESS = [
    (b"", b""),
    (b"\r\n", b"\r\n"),
    (b"GET /healthz HTTP/1.1\r\nHost:", b" a"),
    (GET, b""),
    (GET, b"\r\n"),
    (GET + GET, b"\r\nGET"),
    (b"POST /events HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n", b"x"),
    (b"POST /events HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    (b"POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n", b"x"),
    (b"PUT /subscriptions/x HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\nContent-Length: 99\r\n\r\n", b"x"),
    (b"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n", b"x"),
    (b"GET /healthz HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", b"x"),
    (UPGRADE, b""),
    (UPGRADE, b"\x00\x01\x02"),
    (UPGRADE.replace(b"/ws", b"/ws?first-message"), b""),
    (b"\x16\x03\x01\x02\x00", b"\x01\x00"),
]


def test_every_connection_ends(service: Service) -> None:
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(connected(service)) for _ in ENDLESS]
        for peer, (first, _) in zip(peers, ENDLESS, strict=True):
            peer.sendall(first)
        time.sleep(0.2)
        for peer, (_, then) in zip(peers, ENDLESS, strict=True):
            with contextlib.suppress(ConnectionError):
                peer.sendall(then)
        for peer in peers:
            everything(peer)  # one that stays open would take the 30 s of the socket, and raise
    wait_for(lambda: not len(service.server.connections))


def test_bytes_that_are_no_request_do_not_keep_a_connection(service: Service) -> None:
    with connected(service) as peer, contextlib.suppress(ConnectionError):
        peer.sendall(GET)
        end = time.monotonic() + 20
        while time.monotonic() < end:
            peer.sendall(b"\r\n")
            time.sleep(0.1)
        pytest.fail("the connection is still open")


@pytest.mark.parametrize(
    "part", [b"x-a: " + b"y" * 60_000 + b"\r\n", b"x-a: y\r\n" * 2000, b"x" * 60_000, b"x-a: " + b"y" * 60_000]
)
def test_heads_are_limited(service: Service, part: bytes) -> None:
    with connected(service) as peer:
        n_bytes = 0
        with contextlib.suppress(ConnectionError):
            peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n")
            while n_bytes < 64 << 20:
                peer.sendall(part)
                n_bytes += len(part)
        assert n_bytes < 64 << 20
    assert service.server.connections.limits.headers == 100


@pytest.mark.parametrize("head", [b"x-a: " + b"y" * 40_000 + b"\r\n", b"x: y\r\n" * 200, b"x-b: " + b"y" * 900_000])
def test_a_head_that_is_too_large_is_answered(service: Service, head: bytes) -> None:
    with connected(service) as peer:
        peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n" + head)
        if head.endswith(b"\n"):
            peer.sendall(b"\r\n")
        answer = everything(peer)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"at most 32,768 bytes and 100 headers" in answer


def test_a_long_address_is_refused(service: Service) -> None:
    with connected(service) as peer:
        peer.sendall(b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n")
        assert everything(peer).startswith(b"HTTP/1.1 431 ")


def test_two_hosts_are_refused(service: Service) -> None:
    with connected(service) as peer:
        peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        assert everything(peer).startswith(b"HTTP/1.1 400 ")


def test_an_early_answer_reaches_who_sends_the_body_first(service: Service) -> None:
    with connected(service) as peer:
        n_bytes = 8 << 20
        peer.sendall(b"POST /events HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % n_bytes)
        peer.sendall(b"x" * n_bytes)
        assert peer.recv(1000).startswith(b"HTTP/1.1 401 ")
        peer.sendall(GET)  # and the connection is good for more
        assert b"200 OK" in peer.recv(1000)


def test_requests_in_a_row_on_one_connection(service: Service) -> None:
    with connected(service) as peer:
        peer.sendall(GET * 50)
        assert everything(peer).count(b"200 OK") == 50


def test_who_does_not_read_an_answer_is_cut_off(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db", limits=QUICK) as service:
        with service.broker.store.batch() as batch:
            for n in range(400):
                batch.add(f"a = '{'x' * 40_000}' and b = {n}", f"s{n}")
        service.broker.follow()
        with socket.socket() as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.connect(("127.0.0.1", service.server.port))
            peer.sendall(b"GET /changes?limit=400 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            wait_for(lambda: len(service.server.connections) == 1)
            wait_for(lambda: not len(service.server.connections))


def test_connections_are_limited_in_all_and_by_address(tmp_path: Path) -> None:
    limits = Limits(connections=4, connections_per_address=1000)
    with serving(tmp_path / "all.db", limits=limits) as service, contextlib.ExitStack() as stack:
        service.client.close()
        busy = [stack.enter_context(connected(service)) for _ in range(3)]
        for peer in busy:
            peer.sendall(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200 OK" in peer.recv(1000)
        idle = stack.enter_context(connected(service))
        idle.sendall(GET)
        assert b"200 OK" in idle.recv(1000)
        last = stack.enter_context(connected(service))  # takes the place of the idle one
        assert everything(idle) == b""
        last.sendall(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in last.recv(1000)
        answer = everything(stack.enter_context(connected(service)))
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in answer
        busy[0].close()
        wait_for(lambda: len(service.server.connections) == 3)
        with connected(service) as peer:
            peer.sendall(GET)
            assert b"200 OK" in peer.recv(1000)
    limits = Limits(connections=1000, connections_per_address=2)
    with serving(tmp_path / "address.db", limits=limits) as service, contextlib.ExitStack() as stack:
        service.client.close()
        for _ in range(2):
            stack.enter_context(connected(service)).sendall(b"GET ")
        wait_for(lambda: len(service.server.connections) == 2)
        assert everything(stack.enter_context(connected(service))).startswith(b"HTTP/1.1 503 ")


def test_far_too_many_connections_at_once(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db", limits=Limits(connections=20)) as service, contextlib.ExitStack() as stack:
        service.client.close()
        for _ in range(300):
            with contextlib.suppress(ConnectionError):
                stack.enter_context(connected(service)).sendall(b"GET /")
        stack.close()
        wait_for(lambda: not len(service.server.connections))
        wait_for(lambda: not service.server.connections.n_refused)
        with connected(service) as peer:
            peer.sendall(GET)
            assert b"200 OK" in peer.recv(1000)
