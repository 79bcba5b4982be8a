"""Expensive and malicious requests must not delay others: the real server, as its own process."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from server.serving import bearer
from server.test_serve_command import served
from siftline.broker.keys import Keys
from siftline.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

# For machines that have much else to do; on one that has not, the longest answers take less than 100 ms. Without limits
# it was 17 to 21 s.
MOST_SECONDS = 2.0
PATTERN = b'{"pattern":{' + b",".join(b'"a%d":[1]' % n for n in range(1_000_000)) + b"}}"
LISTS = b'{"expression":[' + b"[]," * 5_000_000 + b"[]]}"


class Attacked:
    """A server with keys for everything, and what can be done to it."""

    def __init__(self, process: subprocess.Popen[str], url: str, keys: dict[str, str]) -> None:
        self.process, self.url, self.keys = process, url, keys
        self.port = int(url.rstrip("/").rpartition(":")[2])

    def send(self, method: str, path: str, body: bytes, token: str, kind: str = "application/json") -> int:
        headers = bearer(token) | {"Content-Type": kind}
        with httpx.Client(base_url=self.url, timeout=300, trust_env=False) as http:
            return http.request(method, path, content=body, headers=headers).status_code

    def memory_mb(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) // 1024

    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# Asks for the health of a server all the time, on new connections, and tells how long each answer takes: in a process
# of its own, because the threads that attack would delay it.
POLLER = """
import socket, sys, time

while True:
    start = time.monotonic()
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60) as peer:
        peer.sendall(b"GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n")
        assert b"200 OK" in peer.recv(1000)
    print(time.monotonic() - start, flush=True)
    time.sleep(0.01)
"""


@contextlib.contextmanager
def polled(attacked: Attacked) -> Iterator[None]:
    """Let nobody else wait for long meanwhile."""
    command = [sys.executable, "-c", POLLER, str(attacked.port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as poller:
        assert poller.stdout is not None
        poller.stdout.readline()
        try:
            yield
            time.sleep(0.1)
        finally:
            poller.terminate()
        seconds = [float(line) for line in poller.stdout.read().splitlines()]
    print(f"healthz: {len(seconds)} answers, at most {1000 * max(seconds):.0f} ms")
    assert len(seconds) > 3
    assert max(seconds) < MOST_SECONDS


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    path = str(tmp_path_factory.mktemp("attacked") / "store.db")
    with Store(path) as store:
        made = Keys(store)
        keys = {"admin": made.add("admin"), "publish": made.add("publish"), "subscribe": made.add("subscribe", "ann")}
    with served("--store", path, "--port", "0", "--subscribe-rate", "1000000") as (process, http):
        yield Attacked(process, str(http.base_url), keys)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/subscriptions/x", PATTERN, 404),
        ("PUT", "/subscriptions/x", LISTS, 404),
        ("POST", "/subscriptions/x/renew", LISTS, 404),
        ("POST", "/subscriptions", PATTERN, 401),
        ("POST", "/events", LISTS, 401),
        ("POST", "/match", LISTS, 401),
    ],
)
def test_any_token(attacked: Attacked, method: str, path: str, body: bytes, status: int) -> None:
    used = attacked.processor_seconds()
    with polled(attacked), ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: attacked.send(method, path, body, "nonsense"), range(4)))
    assert found == [status] * 4
    assert attacked.processor_seconds() - used < 15.0  # it was 17 s for one


def test_a_ticket_does_not_make_it_cheaper_to_be_large(attacked: Attacked) -> None:
    with httpx.Client(base_url=attacked.url, trust_env=False, headers=bearer(attacked.keys["subscribe"])) as http:
        lease = http.post("/subscriptions", json={"expression": "a > 0"}).json()
    path = f"/subscriptions/{lease['id']}"
    used = attacked.processor_seconds()
    with polled(attacked):
        assert attacked.send("PUT", path, PATTERN, lease["ticket"]) == 413
        assert attacked.send("POST", f"{path}/renew", LISTS, lease["ticket"]) == 413
        assert attacked.send("POST", "/subscriptions", LISTS, attacked.keys["subscribe"]) == 413
    assert attacked.processor_seconds() - used < 15.0


def test_patterns_that_are_too_long_are_not_parsed(attacked: Attacked) -> None:
    """Documents of a size that is read, with expressions of one that is not."""
    pattern = b'{"pattern":{' + b",".join(b'"a%d":[1]' % n for n in range(30_000)) + b"}}"
    filters = b'{"filters":[' + b",".join([b'{"exact":{"a":"b"}}'] * 18_000) + b"]}"
    used = attacked.processor_seconds()
    with polled(attacked), ThreadPoolExecutor(4) as pool:
        bodies = [pattern, filters] * 8
        sent = pool.map(lambda body: attacked.send("POST", "/subscriptions", body, attacked.keys["subscribe"]), bodies)
        assert set(sent) == {422}
    assert attacked.processor_seconds() - used < 10.0  # it was a second for each


@pytest.mark.parametrize(
    ("body", "kind", "statuses"),
    [
        (b"[" + b"{}," * 5_000_000 + b"{}]", "application/json", {422}),
        (b"{}\n" * 5_000_000, "application/x-ndjson", {422}),
        (b"\n" * 16_000_000, "application/x-ndjson", {422}),
        (b"[" + b"[]," * 5_000_000 + b"[]]", "application/json", {422}),
        (b"[" * 16_000_000, "application/json", {400}),
        (b'[{"a":' + b"[" * 15_000_000, "application/json", {400}),
        (b'{"a": [' + b"1," * 7_000_000 + b"1]}", "application/json", {422}),
        (b"[" + b",".join([b'{"a":[' + b"[]," * 300_000 + b"[]]}"] * 16) + b"]", "application/json", {202, 422}),
        (b'[{"specversion":"1.0","x":[' + b"[]," * 5_000_000 + b"[]]}]", "application/cloudevents-batch+json", {422}),
    ],
    ids=["objects", "lines", "line ends", "lists", "open brackets", "deep", "one", "many values", "CloudEvents"],
)
def test_bodies_that_are_hard_to_read(attacked: Attacked, body: bytes, kind: str, statuses: set[int]) -> None:
    with polled(attacked), ThreadPoolExecutor(4) as pool:
        sent = [pool.submit(attacked.send, "POST", "/events", body, attacked.keys["publish"], kind) for _ in range(4)]
        assert {each.result() for each in sent} <= statuses | {503}


def test_expressions_that_are_hard_to_read(attacked: Attacked) -> None:
    bombs: list[dict[str, Any]] = [
        {"expression": " and ".join(f"(a{n}=1 or b{n}=1)" for n in range(2500))},
        {"expression": " or ".join(f"(a{n}=1 and b{n}=1)" for n in range(2500))},
        {"expression": "not " * 5000 + "a=1"},
        {"expression": "a in (" + ",".join(map(str, range(9000))) + ")"},
        {"pattern": {"t": [{"wildcard": "*a" * 20_000}]}},
        {"pattern": {"t": [{"anything-but": [str(n) for n in range(5000)]}]}},
        {"expression": " or ".join(f"t contains '{n}x{n}'" for n in range(2500))},
    ]
    bodies = [json.dumps(bomb).encode() for bomb in bombs * 2]
    with polled(attacked), ThreadPoolExecutor(8) as pool:
        sent = [
            pool.submit(attacked.send, "POST", "/subscriptions", body, attacked.keys["subscribe"]) for body in bodies
        ]
        assert {each.result() for each in sent} <= {201, 422, 503}


def test_heads_without_end(attacked: Attacked) -> None:
    before = attacked.memory_mb()

    def send(_: int) -> None:
        with (
            socket.create_connection(("127.0.0.1", attacked.port), timeout=60) as peer,
            contextlib.suppress(ConnectionError),
        ):
            peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
            for _ in range(400):
                peer.sendall(b"x-a: " + b"y" * 1_000_000 + b"\r\n")

    with polled(attacked), ThreadPoolExecutor(4) as pool:
        list(pool.map(send, range(8)))
    assert attacked.memory_mb() - before < 200


def test_large_bodies_together_are_limited(attacked: Attacked) -> None:
    """Forty connections send 15 of 16 MB each, and keep the rest: together they hold no more than all bodies may."""
    before, most = attacked.memory_mb(), 0
    head = (
        f"POST /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {attacked.keys['publish']}\r\n"
        "Content-Type: application/json\r\nContent-Length: 16000000\r\n\r\n"
    ).encode()
    with contextlib.ExitStack() as stack, polled(attacked):
        for _ in range(40):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", attacked.port), timeout=60))
            with contextlib.suppress(ConnectionError):
                peer.sendall(head + b" " * 15_000_000)
            most = max(most, attacked.memory_mb())
    assert most - before < 400
