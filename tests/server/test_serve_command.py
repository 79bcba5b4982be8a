"""`siftline serve` as a process: it starts, says where it is, stops by a signal, and survives a kill."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import httpx

from server.serving import bearer
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


def test_it_stops_when_it_is_told_to(tmp_path: Path) -> None:
    with served("--store", str(tmp_path / "store.db")) as (process, client):
        assert client.get("/readyz").status_code == 200
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
        assert process.returncode == 0
        assert said.startswith("there is no admin key")
        assert said.endswith("\nstopped\n")


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
