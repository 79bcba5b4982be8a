"""No response contains a path of the server's files, whatever error they have."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from server.serving import Service, serving, wait_for
from server.test_event_loop import requests_of
from siftline import errors
from siftline.broker import health
from siftline.server.problems import problem_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def damage(service: Service, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(service.broker.store.path, isolation_level=None, timeout=30)) as other:
        other.execute(statement)


def lock(service: Service) -> None:
    other = sqlite3.connect(service.broker.store.path, isolation_level=None, check_same_thread=False, timeout=30)
    other.execute("BEGIN IMMEDIATE")
    service.broker.end_observers.append(lambda _: other.close())  # so that it lives as long


def remove(service: Service) -> None:
    for path in (service.broker.store.path, service.broker.log.path):
        os.remove(path)


FAULTS: dict[str, Callable[[Service], object]] = {
    "nothing": lambda service: None,
    "the store is closed": lambda service: service.broker.store.close(),
    "the log is closed": lambda service: service.broker.log.close(),
    "facts are damaged": lambda service: damage(service, "UPDATE facts SET value = 7"),
    "changes are damaged": lambda service: damage(service, "UPDATE changes SET text = 'a = 2'"),
    "tables are gone": lambda service: damage(service, "DROP TABLE changes"),
    "the files are gone": remove,
    "another process writes": lock,
}


def answered(service: Service, method: str, path: str, body: Any) -> bytes:
    """Return what a request is answered, of a stream the beginning; headers as well."""
    with (
        httpx.Client(base_url=service.url, timeout=60, trust_env=False) as http,
        http.stream(method, path, json=body) as answer,
    ):
        head = b"%d %r" % (answer.status_code, answer.headers.raw)
        if "event-stream" in answer.headers.get("content-type", ""):
            return head + next(answer.iter_bytes(), b"")
        return head + answer.read()


def closed(service: Service, path: str) -> bytes:
    """Return why a WebSocket is closed or refused."""
    address = service.url.replace("http", "ws", 1) + path
    try:
        with connect(address, proxy=None) as socket, contextlib.suppress(TimeoutError):
            while True:
                socket.recv(timeout=0.5)
    except ConnectionClosed as error:
        return str(error).encode()
    except InvalidStatus as error:
        return bytes(error.response.body or b"")
    return b""


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("is_relative", [False, True], ids=["absolute", "relative"])
def test_no_answer_has_a_path(tmp_path: Path, fault: str, is_relative: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_AGE_SECONDS", 0.0)
    monkeypatch.setattr(health, "WAIT_SECONDS", 0.1)
    monkeypatch.chdir(tmp_path)
    path: Any = "hidden.db" if is_relative else tmp_path / "hidden.db"
    server = serving(path)
    service = server.__enter__()
    try:
        check(service, fault, (str(tmp_path), os.path.realpath(tmp_path), "hidden"))
    finally:
        with contextlib.suppress(errors.SiftlineError, sqlite3.Error, OSError):  # of files that are broken by now
            server.__exit__(None, None, None)


def check(service: Service, fault: str, secrets: tuple[str, ...]) -> None:
    """Break something, and look at all answers."""
    writer = service.broker.store._writer
    assert writer is not None
    writer._connection.execute("PRAGMA busy_timeout = 100")
    lease = service.subscribe("a > 0", owner="ann")
    service.publish({"a": 1})
    requests = requests_of(service, lease)
    requests += [("GET", "/recent", None), ("GET", "/changes?after=900", None), ("GET", "/nowhere", None)]
    FAULTS[fault](service)
    if fault == "facts are damaged":
        wait_for(lambda: service.client.get("/readyz").status_code == 503)
    texts = {request[:2]: answered(service, *request) for request in requests}
    texts |= {("WS", path): closed(service, path) for path in ("/ws", f"/subscriptions/{lease[0]}/ws?after=0-0")}
    for request, text in texts.items():
        assert not any(secret.encode() in text for secret in secrets), (request, text[:500])
    assert len(texts) > 25
    if fault != "nothing":
        assert any(text.startswith((b"503", b"500")) for text in texts.values())


def test_messages_of_errors_with_paths() -> None:
    """Whatever error of the library has a path in it: a file of the server is not the business of who asks."""
    kinds = [kind for name in errors.__all__ if issubclass(kind := getattr(errors, name), errors.StorageError)]
    kinds += [errors.SnapshotError, errors.FileError, errors.SparkError]
    for kind in kinds:
        assert "/srv" not in problem_of(kind("/srv/hidden.db is damaged")).reason, kind
