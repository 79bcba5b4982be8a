"""`siftline serve` as a process: it starts, prints its URL, stops on a signal, and survives a kill."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import httpx

from server.serving import bearer, wait_for
from siftline.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest


@contextlib.contextmanager
def served(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """Start the command, and give the process and a client."""
    command = [sys.executable, "-m", "siftline", "serve", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        try:
            with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
                yield process, client
        finally:
            if process.poll() is None:
                process.kill()


def test_it_stops_on_a_signal(tmp_path: Path) -> None:
    with served("--store", str(tmp_path / "store.db")) as (process, client):
        assert client.get("/readyz").status_code == 200
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
        assert process.returncode == 0
        assert said.startswith("there is no admin key")
        assert said.endswith("\nstopped\n")


def test_requests_of_strangers_are_not_logged(tmp_path: Path) -> None:
    """Broken requests of all kinds: there is no end of them, so the log must not have them."""
    head = b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
    upgrade = b"GET /ws?first-message HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    upgrade += b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    with served("--store", str(tmp_path / "store.db")) as (process, client):
        for sent in (head, head + b"x", b"\x00\xff", b"GET / HTTP/9\r\n\r\n", upgrade, upgrade + b"\xff\xff\xff",
                     upgrade + b"\x81\x82\x00\x00\x00\x00\xff\xff", b"GET /%ff%fe HTTP/1.1\r\nHost: a\r\n\r\n",
                     b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"):  # fmt: skip
            with socket.create_connection(("127.0.0.1", client.base_url.port or 0), timeout=30) as peer:
                peer.sendall(sent)
                peer.shutdown(socket.SHUT_WR)
                with contextlib.suppress(OSError):
                    peer.settimeout(1)
                    peer.recv(1000)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
        assert len(said.splitlines()) == 2, said


def test_a_key_revoked_by_the_command_ends_streams_of_the_server(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    with served("--store", path) as (_, client):
        made = [sys.executable, "-m", "siftline", "serve", "--store", path]
        key = subprocess.run([*made, "--new-key", "admin"], capture_output=True, text=True, check=True).stdout.strip()
        wait_for(lambda: client.get("/stats", headers=bearer(key)).status_code == 200)
        with client.stream("GET", "/stream", headers=bearer(key)) as stream:
            lines = stream.iter_lines()
            next(lines)
            subprocess.run([*made, "--revoke-key", key.partition(".")[0]], capture_output=True, check=True)
            assert "event: end" in list(lines)
        assert client.get("/stats", headers=bearer(key)).status_code == 401
        assert client.get("/stats").status_code == 401


def test_the_demonstration_publishes(tmp_path: Path) -> None:
    with served("--demo") as (process, client), client.stream("GET", "/stream", params={"after": "0-0"}) as response:
        line = next(line for line in response.iter_lines() if line.startswith("data: "))
        assert "brand" in json.loads(line.removeprefix("data: "))["data"]
        process.send_signal(signal.SIGINT)


def test_a_kill_in_the_midst_of_subscribing_and_streaming(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    leases: list[dict[str, Any]] = []
    published: list[int] = []

    def storm(client: httpx.Client) -> None:
        with contextlib.suppress(httpx.HTTPError):
            while True:
                answer = client.post("/subscriptions", json={"expression": "n >= 0"})
                if answer.status_code == 201:
                    leases.append(answer.json())
                n = len(published)
                if client.post("/events", json={"n": n}).status_code == 202:
                    published.append(n)

    with served("--store", path) as (process, client):
        first = client.post("/subscriptions", json={"expression": "n >= 0"}).json()
        thread = threading.Thread(target=storm, args=(client,))
        thread.start()
        got: list[dict[str, Any]] = []
        stream = f"/subscriptions/{first['id']}/stream"
        with (
            contextlib.suppress(httpx.HTTPError),
            client.stream("GET", stream, headers=bearer(first["ticket"])) as lines,
        ):
            for line in lines.iter_lines():
                if line.startswith("data: "):
                    got.append(json.loads(line.removeprefix("data: ")))
                if len(got) == 10:
                    process.kill()
        thread.join()
    with served("--store", path) as (_, client):
        for lease in leases:
            assert client.get(f"/subscriptions/{lease['id']}", headers=bearer(lease["ticket"])).status_code == 200
        answer = client.get(
            f"/subscriptions/{first['id']}/notifications",
            params={"after": got[-1]["id"], "limit": 1000},
            headers=bearer(first["ticket"]),
        )
        numbers = [each["data"]["n"] for each in [*got, *answer.json()["notifications"]]]
        assert set(published) - set(range(got[0]["data"]["n"])) <= set(numbers)
        ids = [each["id"] for each in [*got, *answer.json()["notifications"]]]
        assert len(ids) == len(set(ids))


def test_keys_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ["serve", "--store", str(tmp_path / "store.db")]
    assert main([*store, "--new-key", "subscribe:ann"]) == 0
    key = capsys.readouterr().out.strip()
    assert main([*store, "--list-keys"]) == 0
    listed = capsys.readouterr().out
    assert listed.split() == [key.partition(".")[0], "subscribe:ann"]
    assert main([*store, "--revoke-key", listed.split()[0]]) == 0
    assert main([*store, "--revoke-key", listed.split()[0]]) == 2
    assert main([*store, "--new-key", "root"]) == 2
    assert main(["serve"]) == 2


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with served("--store", str(tmp_path / "store.db")) as (_, client):
        command = ["serve", "--store", str(tmp_path / "other.db"), "--port", str(client.base_url.port)]
        ended = subprocess.run([sys.executable, "-m", "siftline", *command], capture_output=True, text=True, timeout=60)
        assert ended.returncode == 2
        assert "cannot listen" in ended.stderr
