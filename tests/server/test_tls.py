"""TLS: a connection is counted and timed from the start of its handshake."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import time
from typing import TYPE_CHECKING

import httpx
import pytest
from websockets.sync.client import connect

from server.serving import Service, bearer, serving, wait_for
from server.test_connections import GET, everything
from siftline.broker.limits import Limits
from siftline.errors import ServerError
from siftline.server.run import Tls

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FEW = Limits(header_seconds=1.0, request_seconds=1.0, idle_seconds=1.0, send_seconds=1.0, connections=8)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    openssl, folder = shutil.which("openssl"), tmp_path_factory.mktemp("tls")
    if openssl is None:
        pytest.skip("no openssl here to make a certificate")
    certificate, key = str(folder / "certificate.pem"), str(folder / "key.pem")
    made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
    subprocess.run([openssl, *made, *names], check=True, capture_output=True)
    return Tls(certificate, key)


@pytest.fixture
def context(tls: Tls) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=tls.certificate)


@pytest.fixture
def service(tmp_path: Path, tls: Tls) -> Iterator[Service]:
    with serving(tmp_path / "store.db", tls=tls, limits=FEW) as service:
        yield service


def plain(service: Service) -> socket.socket:
    return socket.create_connection(("127.0.0.1", service.server.port), timeout=30)


def hello(context: ssl.SSLContext) -> bytes:
    """Return the first message of a client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def asked(service: Service, context: ssl.SSLContext) -> bytes:
    with plain(service) as peer, context.wrap_socket(peer, server_hostname="127.0.0.1") as secure:
        secure.sendall(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        return everything(secure)


def test_handshakes_without_end_count_and_are_ended(service: Service, context: ssl.SSLContext) -> None:
    first = hello(context)
    beginnings = [b"", b"\x16", first[: len(first) // 2], first, GET, b"\x16\x03\x01\xff\xff"]
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(plain(service)) for _ in beginnings]
        for peer, beginning in zip(peers, beginnings, strict=True):
            peer.sendall(beginning)
        wait_for(lambda: len(service.server.connections) >= 4)  # what is no TLS at all may be gone already
        start = time.monotonic()
        for peer in peers:
            with contextlib.suppress(TimeoutError):
                everything(peer)
        assert time.monotonic() - start < 15  # one second, and what a busy machine needs
    wait_for(lambda: not len(service.server.connections))
    assert b"200 OK" in asked(service, context)


def test_bytes_that_drip_do_not_keep_a_handshake(service: Service, context: ssl.SSLContext) -> None:
    first, end = hello(context), time.monotonic() + 20
    with plain(service) as peer, contextlib.suppress(ConnectionError):
        for byte in first:
            peer.sendall(bytes([byte]))
            time.sleep(0.1)
            assert time.monotonic() < end
        pytest.fail("the connection is still open")


def test_handshakes_are_limited_in_number_and_make_room(tmp_path: Path, tls: Tls, context: ssl.SSLContext) -> None:
    patient = Limits(connections=8)  # ten seconds for a handshake: room is made, not waited for
    with serving(tmp_path / "store.db", tls=tls, limits=patient) as service, contextlib.ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(plain(service))
        wait_for(lambda: len(service.server.connections) == 8)
        assert b"200 OK" in asked(service, context)
        assert len(service.server.connections) <= 8


def test_handshakes_count_for_their_address(tmp_path: Path, tls: Tls, context: ssl.SSLContext) -> None:
    with (
        serving(
            tmp_path / "store.db", tls=tls, limits=Limits(connections_per_address=5, header_seconds=3.0)
        ) as service,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(5):
            stack.enter_context(plain(service))
        wait_for(lambda: len(service.server.connections) == 5)
        refused = asked(service, context)
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"too many connections" in refused
        wait_for(lambda: not len(service.server.connections))
        assert b"200 OK" in asked(service, context)
        wait_for(lambda: not service.server.connections.n_refused)


def test_a_server_that_stops_waits_for_no_handshake(tmp_path: Path, tls: Tls) -> None:
    with contextlib.ExitStack() as stack:
        with serving(tmp_path / "store.db", tls=tls) as service:
            for _ in range(5):
                stack.enter_context(plain(service))
            wait_for(lambda: len(service.server.connections) == 5)
            start = time.monotonic()
        assert time.monotonic() - start < 8


def test_everything_else_is_as_without(tmp_path: Path, tls: Tls, context: ssl.SSLContext) -> None:
    with (
        serving(tmp_path / "store.db", tls=tls) as service,
        httpx.Client(base_url=service.url, verify=context, trust_env=False, timeout=30) as http,
    ):
        assert service.url.startswith("https://")
        lease = http.post("/subscriptions", json={"expression": "n >= 0"}).json()
        token = bearer(lease["ticket"])
        for n in range(3):
            assert http.post("/events", json={"n": n, "text": "x" * 500_000}).status_code == 202
        with http.stream("GET", f"/subscriptions/{lease['id']}/stream?after=0-0", headers=token) as stream:
            received = 0
            for chunk in stream.iter_bytes():
                received += len(chunk)
                if received > 1_500_000:
                    break
        address = f"wss://127.0.0.1:{service.server.port}/subscriptions/{lease['id']}/ws?after=0-0"
        with connect(address, ssl=context, proxy=None, additional_headers=token) as channel:
            assert len(channel.recv(timeout=30)) > 500_000


def test_files_that_are_no_certificate(tmp_path: Path, tls: Tls) -> None:
    for wrong in (
        Tls(str(tmp_path / "none")),
        Tls(tls.certificate, tls.certificate),
        Tls(tls.certificate, tls.key, "none"),
    ):
        with pytest.raises(ServerError, match="cannot be used"):
            wrong.context()
