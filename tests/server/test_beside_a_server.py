"""Other processes change the store of a running server under load: nothing is lost, and the server follows."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import httpx

from server.serving import bearer, wait_for
from server.test_serve_command import served

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "siftline", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


class Load:
    """Subscribes and publishes all the time, and remembers what was acknowledged."""

    def __init__(self, client: httpx.Client, admin: str) -> None:
        self._client, self._headers = client, bearer(admin)
        self.leases: list[dict[str, Any]] = []
        self.published: list[int] = []
        self.refusals: list[str] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        n = 0
        with contextlib.suppress(httpx.HTTPError):
            while not self._is_over.is_set():
                answer = self._client.post("/subscriptions", json={"expression": f"m = {n}"}, headers=self._headers)
                if answer.status_code == 201:
                    self.leases.append(answer.json())
                else:
                    self.refusals.append(answer.text)
                answer = self._client.post("/events", json={"n": n}, headers=self._headers)
                if answer.status_code == 202:
                    self.published.append(n)
                else:
                    self.refusals.append(answer.text)
                n += 1

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def go_on(self) -> None:
        """Wait until more was acknowledged."""
        n = len(self.leases)
        wait_for(lambda: len(self.leases) > n + 3, 60)


def by_sqlite(path: str) -> None:
    """Open, read, write and close, as any program with SQLite's defaults would."""
    for name in (path, f"{path}-notifications"):
        connection = sqlite3.connect(name, timeout=60)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        connection.execute("CREATE TABLE IF NOT EXISTS others (x)")
        connection.execute("INSERT INTO others VALUES (1)")
        connection.commit()
        connection.execute("DROP TABLE others")
        connection.commit()
        connection.close()


def backed_up(path: str) -> None:
    for name in (path, f"{path}-notifications"):
        source, target = sqlite3.connect(name, timeout=60), sqlite3.connect(f"{name}-backup")
        source.backup(target)
        target.close()
        source.close()


def test_everything_beside_a_live_server_and_then_a_kill(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    rules = tmp_path / "rules.jsonl"
    rules.write_text('{"id": "imported", "expression": "n = -1"}\n')
    admin = run("serve", "--store", path, "--new-key", "admin").stdout.strip()
    spare = run("serve", "--store", path, "--new-key", "admin").stdout.strip()
    with served("--store", path, "--subscribe-rate", "100000") as (process, client):
        first = client.post("/subscriptions", json={"expression": "n >= 0"}, headers=bearer(admin)).json()
        assert client.get("/stats", headers=bearer(spare)).status_code == 200
        steps: list[Callable[[], Any]] = [
            lambda: run("serve", "--store", path, "--list-keys"),
            lambda: run("store", "import", path, str(rules)),
            lambda: run("store", "export", path, "--output", str(tmp_path / "out.jsonl")),
            lambda: run("store", "list", path),
            lambda: run("store", "verify", path),
            lambda: run("serve", "--store", path, "--revoke-key", spare.partition(".")[0]),
            lambda: by_sqlite(path),
            lambda: backed_up(path),
        ]
        with Load(client, admin) as load:
            for step in steps:
                load.go_on()
                ended = step()
                assert ended is None or ended.returncode == 0, ended.stderr
            late = run("serve", "--store", path, "--new-key", "publish").stdout.strip()
            wait_for(lambda: client.post("/events", json={}, headers=bearer(late)).status_code == 202)
            wait_for(lambda: client.get("/stats", headers=bearer(spare)).status_code == 401)
            tried: dict[str, Any] = {"headers": bearer(admin), "json": {"n": -1}}
            wait_for(lambda: client.post("/match", **tried).json()["subscriptions"] == ["imported"])
            second = run("serve", "--store", path, "--port", "0")
            assert second.returncode == 2
            assert f"is owned by process {process.pid} on" in second.stderr
            assert second.stderr.count("\n") == 1
            load.go_on()
            for suffix in ("-wal", "-shm"):  # the ones that are open are the ones that are there
                assert os.path.exists(path + suffix)
            links = [os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{process.pid}/fd")]
            assert not [link for link in links if link.endswith("(deleted)") and "store.db" in link]
            process.send_signal(signal.SIGKILL)
        assert load.refusals == []
    with served("--store", path) as (_, client):
        for lease in load.leases:
            found = client.get(f"/subscriptions/{lease['id']}", headers=bearer(lease["ticket"]))
            assert found.status_code == 200
        numbers: set[int] = set()
        after = "0-0"
        while True:
            answer = client.get(
                f"/subscriptions/{first['id']}/notifications",
                params={"limit": 1000, "after": after},
                headers=bearer(first["ticket"]),
            )
            page = answer.json()["notifications"]
            if not page:
                break
            numbers |= {each["data"]["n"] for each in page}
            after = page[-1]["id"]
        assert set(load.published) <= numbers
        assert client.get("/subscriptions/imported", headers=bearer(admin)).status_code == 200
    assert run("store", "verify", path).returncode == 0
    assert json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])["id"] == first["id"]
