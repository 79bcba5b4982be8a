"""`/readyz` reports whether the service can do its work, by trying it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from server.serving import serving, wait_for
from siftline.broker import health

if TYPE_CHECKING:
    from collections.abc import Iterator

    from server.serving import Service


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(health, "_AGE_SECONDS", 0.0)
    monkeypatch.setattr(health, "WAIT_SECONDS", 0.1)
    with serving(tmp_path / "store.db") as service:
        yield service


def is_ready(service: Service) -> bool:
    return service.client.get("/readyz").status_code == 200


def test_it_is_ready(service: Service) -> None:
    service.subscribe()
    assert service.client.get("/readyz").json() == {"status": "ok", "change": 1}
    assert service.broker.problems() == []


@pytest.mark.parametrize(("suffix", "name"), [("", "the store"), ("-notifications", "the log of notifications")])
def test_a_file_that_cannot_be_written(service: Service, suffix: str, name: str) -> None:
    path = service.broker.store.path
    other = sqlite3.connect(path + suffix, isolation_level=None, timeout=30)
    other.execute("BEGIN IMMEDIATE")
    answer = service.client.get("/readyz")
    assert answer.status_code == 503
    assert f"{name} is locked" in answer.json()["error"]["reason"]
    assert path not in answer.text
    assert "retry-after" in answer.headers
    other.execute("ROLLBACK")
    other.close()
    wait_for(lambda: is_ready(service))


def test_a_file_that_is_gone(service: Service) -> None:
    path = Path(service.broker.log.path)
    path.rename(f"{path}-elsewhere")
    reason = service.client.get("/readyz").json()["error"]["reason"]
    assert "the log of notifications: the file was removed or replaced" in reason
    assert not path.exists()  # looking does not make it
    Path(f"{path}-elsewhere").rename(path)
    assert is_ready(service)


def test_a_disk_that_is_nearly_full(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "LEAST_FREE_BYTES", 1 << 60)
    assert "the disk is full but for" in service.client.get("/readyz").json()["error"]["reason"]


def test_a_failing_tick_is_reported(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine cannot follow the store: matches would be of the past."""
    with sqlite3.connect(service.broker.store.path) as other:
        other.execute("UPDATE facts SET value = 7 WHERE name = 'compacted'")
    other.close()
    wait_for(lambda: not is_ready(service))
    assert "the store is damaged" in service.client.get("/readyz").json()["error"]["reason"]
    with sqlite3.connect(service.broker.store.path) as other:
        other.execute("UPDATE facts SET value = 0 WHERE name = 'compacted'")
    other.close()
    wait_for(lambda: is_ready(service))


# Runs on a file system of its own, of 40 MB, which it fills.
FULL = """
import contextlib, os, sys, time
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from server.serving import serving, wait_for
from siftline.broker import health

folder = Path(sys.argv[1])
health._AGE_SECONDS = 0.0
with serving(folder / "store.db") as service:
    id, ticket = service.subscribe("n >= 0")
    assert service.client.get("/readyz").status_code == 200
    service.publish({"n": 0})
    with open(folder / "filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(1 << 16))
    answer = service.client.get("/readyz")
    assert answer.status_code == 503, answer.text
    assert "the disk is full" in answer.text, answer.text
    assert service.client.get("/healthz").status_code == 200
    accepted, refused = [0], 0
    for n in range(1, 200):
        status = service.client.post("/events", json={"n": n, "pad": "x" * 100_000}).status_code
        if status == 202:
            accepted.append(n)
        else:
            refused += 1
            assert status == 503, status
    assert refused
    assert service.client.get("/readyz").status_code == 503
    os.unlink(folder / "filler")
    wait_for(lambda: service.client.get("/readyz").status_code == 200, 60)
    service.publish({"n": 1000})
    service.subscribe()
    found = service.client.get(f"/subscriptions/{id}/notifications", params={"limit": 1000}, headers=ticket).json()
    numbers = [each["data"]["n"] for each in found["notifications"]]
    assert set(numbers) == {*accepted, 1000}, (numbers, accepted)
print("fine")
"""


def can_mount() -> bool:
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    is_possible = os.geteuid() == 0 and shutil.which("unshare") is not None
    return is_possible and subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="only root can mount a small file system")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    script, folder = tmp_path / "full.py", tmp_path / "disk"
    script.write_text(FULL)
    folder.mkdir()
    mounting = 'mount -t tmpfs -o size=40m tmpfs "$1" && exec "$2" "$3" "$1" "$4"'
    tests = str(Path(__file__).parents[1])
    command = ["unshare", "-m", "sh", "-c", mounting, "sh", str(folder), sys.executable, str(script), tests]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (ended.stdout, ended.returncode) == ("fine\n", 0), ended.stderr
