"""Webhooks: signatures, repeats, dead letters, and addresses that are refused."""

from __future__ import annotations

import asyncio
import base64
import hmac
import http.server
import json
import select
import socket
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from siftline.broker.addresses import check_url, chosen_address, is_public
from siftline.broker.broker import Broker
from siftline.broker.leases import Webhook
from siftline.broker.limits import Limits
from siftline.broker.resolver import Resolver
from siftline.broker.signatures import new_signing_secret, signature, signing_secret
from siftline.errors import LimitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Receiver:
    """An HTTP server that answers as it is told, and keeps what it got."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.statuses: dict[str, list[int]] = {}
        self.hanging = threading.Event()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((self.path, dict(self.headers), body))
                if self.path == "/hang":
                    receiver.hanging.wait(20)
                if self.path == "/close":
                    self.close_connection = True
                    return
                planned = receiver.statuses.get(self.path, [])
                self.send_response(planned.pop(0) if planned else 204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.hanging.set()
        self._server.shutdown()
        self._server.server_close()

    def bodies(self, path: str) -> list[Any]:
        return [json.loads(body) for where, _, body in self.got if where == path]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


KILLED = """
import sys
from siftline.broker.broker import Broker
from siftline.broker.leases import Webhook

broker = Broker(sys.argv[1], allow_private=True)
broker.subscribe("a > 0", deliver=Webhook(sys.argv[2]))
broker.publish({"a": 1})
print("published", flush=True)
sys.stdin.read()
"""


def test_kill_during_the_delivery_to_a_webhook(tmp_path: Path, receiver: Receiver) -> None:
    path, url = tmp_path / "store.db", f"{receiver.url}/hang"
    command = [sys.executable, "-c", KILLED, str(path), url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"published\n"
        wait_for(lambda: receiver.got, 60)
        process.kill()
    receiver.hanging.set()
    with Broker(path, allow_private=True) as broker:
        wait_for(lambda: len(receiver.got) == 2 and not broker.log.deliveries.n_waiting(), 60)
    ids = [body["id"] for body in receiver.bodies("/hang")]
    assert ids == [ids[0]] * 2
    assert len({headers["webhook-id"] for _, headers, _ in receiver.got}) == 1


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "store.db", allow_private=True, retry_seconds=[0.01, 0.01]) as broker:
        yield broker


def wait_for(condition: Callable[[], Any], seconds: float = 15) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def test_a_notification_is_signed_and_comes_once(broker: Broker, receiver: Receiver) -> None:
    lease = broker.subscribe("a > 0", deliver=Webhook(receiver.url + "/hook?x=1"))
    broker.publish_many([{"a": 1}, {"a": 2}])
    wait_for(lambda: broker.log.deliveries.n_waiting() == 0)
    assert [body["data"] for body in receiver.bodies("/hook?x=1")] == [{"a": 1}, {"a": 2}]
    _, headers, body = receiver.got[0]
    assert lease.secret is not None
    assert standardwebhooks.Webhook(lease.secret).verify(body, headers) == json.loads(body)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(lease.secret).verify(body + b" ", headers)
    assert headers["Content-Type"].startswith("application/cloudevents+json")
    document = json.loads(body)
    assert (document["id"], document["subject"], document["specversion"]) == (headers["webhook-id"], lease.id, "1.0")


def test_failures_are_repeated_and_then_given_up(broker: Broker, receiver: Receiver) -> None:
    receiver.statuses = {"/twice": [500, 302], "/always": [500] * 9, "/gone": [410]}
    for path in ("/twice", "/always", "/gone", "/close"):
        broker.subscribe("a > 0", deliver=Webhook(receiver.url + path))
    broker.publish({"a": 1})
    wait_for(lambda: broker.log.deliveries.n_waiting() == 0)
    assert [len(receiver.bodies(path)) for path in ("/twice", "/always", "/gone")] == [3, 3, 1]
    reasons = sorted((letter.attempts, letter.reason) for letter in broker.log.deliveries.dead_letters())
    assert [attempts for attempts, _ in reasons] == [1, 3, 3]
    assert "status 410" in reasons[0][1]


def test_a_hanging_receiver_delays_nobody_else(broker: Broker, receiver: Receiver) -> None:
    broker.subscribe("a > 0", deliver=Webhook(receiver.url + "/hang"))
    broker.subscribe("a > 0", deliver=Webhook(receiver.url + "/fine"))
    for n in range(1, 6):
        broker.publish({"a": n})
    wait_for(lambda: len(receiver.bodies("/fine")) == 5)
    assert len(receiver.bodies("/hang")) == 1


def test_undelivered_notifications_are_sent_after_the_next_start(tmp_path: Path, receiver: Receiver) -> None:
    path = tmp_path / "store.db"
    with Broker(path, allow_private=True) as broker:
        broker.subscribe("a > 0", deliver=Webhook(receiver.url + "/hang"))
        broker.publish({"a": 1})
        wait_for(lambda: receiver.bodies("/hang"))
    receiver.hanging.set()
    with Broker(path, allow_private=True) as broker:
        wait_for(lambda: broker.log.deliveries.n_waiting() == 0)
    first, again = [body["id"] for body in receiver.bodies("/hang")]
    assert first == again


def test_too_many_that_wait_are_given_up(tmp_path: Path, receiver: Receiver) -> None:
    with Broker(tmp_path / "store.db", allow_private=True) as broker:
        broker.subscribe("a > 0", deliver=Webhook(receiver.url + "/hang"))
        broker.publish_many([{"a": n} for n in range(1, 7)])
        broker.log.deliveries.bury_overflow(0, most=2)
        assert broker.log.deliveries.n_waiting() == 2
        assert [json.loads(letter.payload)["a"] for letter in broker.log.deliveries.dead_letters()] == [4, 3, 2, 1]


def test_a_webhook_that_is_gone_gets_nothing_more(broker: Broker, receiver: Receiver) -> None:
    lease = broker.subscribe("a > 0", deliver=Webhook(receiver.url + "/hang"))
    broker.publish_many([{"a": 1}, {"a": 2}])
    wait_for(lambda: receiver.bodies("/hang"))
    broker.unsubscribe(lease.id, lease.ticket)
    receiver.hanging.set()
    wait_for(lambda: broker.log.deliveries.n_waiting() == 0)
    assert len(receiver.bodies("/hang")) == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/", "http://localhost/x", "http://localhost./", "https://10.1.2.3/", "http://[::1]/", "http://169.254.169.254/latest",
        "http://[::ffff:10.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/", "http://0.0.0.0/",
        "http://[fec0::1]/", "http://[64:ff9b:1::1]/", "http://[::7f00:1]/",
        "http://100.64.0.1/", "http://224.0.0.1/", "ftp://example.com/", "https://", "https://user:pass@example.com/",
        "https://example.com:99999/", "https://example.com/\r\nX: y", "https://exämple.com/", "x" * 3000, "http://[::1",
    ],
)  # fmt: skip
def test_where_webhooks_may_not_go(url: str) -> None:
    with pytest.raises(LimitError):
        check_url(url, allow_private=False)


def test_a_name_with_a_private_address_is_refused_when_it_is_resolved() -> None:
    async def addresses() -> list[str]:
        return await Resolver().addresses("localhost", 80, "ann")

    found = asyncio.run(addresses())
    with pytest.raises(LimitError, match="private"):
        chosen_address(found, allow_private=False)
    assert not is_public(chosen_address(found, allow_private=True))
    assert is_public("1.1.1.1")


class Names:
    """Names that are looked up slowly, quickly, or not at all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = threading.Event()
        self.asked: list[str] = []
        monkeypatch.setattr(socket, "getaddrinfo", self._look_up)

    def _look_up(self, host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        self.asked.append(host)
        if host.startswith("slow"):
            self.gate.wait(60)
        if host.startswith("unknown"):
            raise socket.gaierror("no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]


def test_slow_names_of_one_owner_delay_nobody_else(
    broker: Broker, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(monkeypatch)
    port = receiver.url.rpartition(":")[2]
    for n in range(300):
        broker.subscribe("a > 0", owner="ann", deliver=Webhook(f"http://slow{n}.example:{port}/slow"))
    broker.publish({"a": 1})
    wait_for(lambda: any(host.startswith("slow") for host in names.asked))
    broker.subscribe("b > 0", owner="bob", deliver=Webhook(f"http://fast.example:{port}/fast"))
    for n in range(1, 4):
        broker.publish({"b": n})
    wait_for(lambda: len(receiver.bodies("/fast")) == 3, 60)
    assert not receiver.bodies("/slow")
    assert sum(host.startswith("slow") for host in names.asked) <= 2
    assert names.asked.count("fast.example") == 1  # used for some seconds
    names.gate.set()
    wait_for(lambda: receiver.bodies("/slow"), 60)


def test_concurrent_lookups_of_a_name_share_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(monkeypatch)

    async def ask() -> None:
        resolver = Resolver()
        waiting = [asyncio.create_task(resolver.addresses("slow.example", 80, owner)) for owner in "abcabc"]
        while not names.asked:
            await asyncio.sleep(0.01)
        waiting[0].cancel()  # who waits no longer ends nothing for the others
        names.gate.set()
        assert (await asyncio.gather(*waiting, return_exceptions=True))[1:] == [["127.0.0.1"]] * 5
        with pytest.raises(OSError, match="no such name"):
            await resolver.addresses("unknown.example", 80, "a")
        assert (resolver._running, resolver._counts, resolver._n_slow) == ({}, {}, 0)

    asyncio.run(ask())
    assert names.asked == ["slow.example", "unknown.example"]


def test_slow_names_of_many_owners_delay_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """More owners than there are places have slow names, and ask for ever more of them."""
    names = Names(monkeypatch)
    monkeypatch.setattr("siftline.broker.resolver._SLOW_SECONDS", 0.1)

    async def ask() -> None:
        resolver = Resolver()
        slow = [
            asyncio.create_task(resolver.addresses(f"slow{n}.of{owner}.example", 80, f"slow {owner}"))
            for n in range(20)
            for owner in range(100)
        ]
        for n in range(40):
            async with asyncio.timeout(20):
                assert await resolver.addresses(f"fast{n}.example", 80, f"quick {n % 4}") == ["127.0.0.1"]
            assert len(resolver._running) <= 3 * 100  # of each owner two, no more
        n_slow = sum(host.startswith("slow") for host in names.asked)
        assert 100 <= n_slow <= 200 + 32
        names.gate.set()
        await asyncio.gather(*slow)
        assert (resolver._running, resolver._counts, resolver._n_slow) == ({}, {}, 0)

    asyncio.run(ask())


def test_threads_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that has no more threads delays an owner until it has some again, and no longer."""
    Names(monkeypatch)
    start, n_refused = threading.Thread.start, 0

    def refuse(thread: threading.Thread) -> None:
        nonlocal n_refused
        if thread.name == "siftline-names" and n_refused < 5:
            n_refused += 1
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)

    async def ask() -> None:
        resolver = Resolver()
        for _ in range(5):
            with pytest.raises(OSError, match="new thread"):
                await resolver.addresses("fast.example", 80, "ann")
        async with asyncio.timeout(20):
            assert await resolver.addresses("fast.example", 80, "ann") == ["127.0.0.1"]
        assert (resolver._running, resolver._counts) == ({}, {})

    asyncio.run(ask())


def test_receivers_of_many_owners_that_hang_leave_room(broker: Broker, receiver: Receiver) -> None:
    for n in range(300):
        broker.subscribe("a > 0", owner=f"slow {n % 6}", deliver=Webhook(f"{receiver.url}/hang"))
    broker.publish({"a": 1})
    wait_for(lambda: len(receiver.bodies("/hang")) >= 120, 60)
    broker.subscribe("b > 0", owner="bob", deliver=Webhook(f"{receiver.url}/fast"))
    for n in range(5):
        broker.publish({"b": n + 1})
    wait_for(lambda: len(receiver.bodies("/fast")) == 5, 8)  # those that hang have ten seconds
    assert len(broker.webhooks._busy) < 200
    receiver.hanging.set()


def test_deliveries_are_bounded_in_bytes(tmp_path: Path, receiver: Receiver) -> None:
    """A hundred webhooks of ten owners hang, each with an event of a megabyte; then one owner's own hundred."""
    with Broker(tmp_path / "store.db", allow_private=True) as broker:
        for n in range(100):
            broker.subscribe(f"n = {n}", owner=f"large {n % 10}", deliver=Webhook(f"{receiver.url}/hang"))
        for n in range(100):
            broker.publish({"n": n, "text": "x" * 1_000_000})
        wait_for(lambda: len(receiver.bodies("/hang")) >= 16, 60)
        broker.subscribe("b > 0", owner="bob", deliver=Webhook(f"{receiver.url}/fast"))
        broker.publish({"b": 1})
        wait_for(lambda: receiver.bodies("/fast"), 60)
        assert 16 <= len(broker.webhooks._busy) <= 33
        receiver.hanging.set()
        wait_for(lambda: len(receiver.bodies("/hang")) >= 100, 60)
        wait_for(lambda: not broker.log.deliveries.n_waiting(), 60)
        assert (broker.webhooks._bytes.free, broker.webhooks._connections.free) == (32 << 20, 256)


def test_a_receiver_that_does_not_read_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the time is over the connection ends, with what is still to be sent."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Broker(tmp_path / "store.db", allow_private=True, limits=Limits(event_bytes=16 << 20)) as broker,
    ):
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        monkeypatch.setattr("siftline.broker.webhooks._TIMEOUT_SECONDS", 0.5)
        broker.subscribe("a > 0", deliver=Webhook(f"http://127.0.0.1:{server.getsockname()[1]}/"))
        broker.publish({"a": 1, "text": "x" * 12_000_000})
        peer, _ = server.accept()
        with peer:
            poll = select.poll()
            poll.register(peer, 0)
            assert poll.poll(30_000)  # reset: what was not sent was thrown away


def test_receivers_of_one_owner_that_hang_leave_room(broker: Broker, receiver: Receiver) -> None:
    for _ in range(300):
        broker.subscribe("a > 0", owner="ann", deliver=Webhook(f"{receiver.url}/hang"))
    broker.publish({"a": 1})
    wait_for(lambda: len(receiver.bodies("/hang")) >= 64, 60)
    broker.subscribe("b > 0", owner="bob", deliver=Webhook(f"{receiver.url}/fast"))
    broker.publish({"b": 1})
    wait_for(lambda: receiver.bodies("/fast"), 60)
    assert len(broker.webhooks._busy) <= 65
    receiver.hanging.set()


@given(st.binary(min_size=24, max_size=64), st.binary(), st.booleans())
def test_signatures_are_those_of_the_reference_library(key: bytes, body: bytes, is_padded: bool) -> None:
    given_secret = "whsec_" + base64.b64encode(key).decode()
    secret = signing_secret(given_secret if is_padded else given_secret.rstrip("="))
    now = datetime.now(UTC)
    reference = standardwebhooks.Webhook(secret)
    text = body.decode("latin-1")
    assert signature(secret, "417-0", int(now.timestamp()), text.encode()) == reference.sign("417-0", now, text)


@pytest.mark.parametrize(
    "secret",
    ["", "secret", "whsec_", "whsec_secret of mine", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_" + "A" * 30 + "="]
    + ["whsec_" + base64.b64encode(bytes(n)).decode() for n in (1, 23, 65)]
    + [
        "whsec_" + base64.urlsafe_b64encode(b"\xff" * 32).decode(),
        "whsec_" + "A" * 44 + "\n",
        "whsec_" + "A" * 43 + "é",
    ],
)
def test_invalid_secrets(broker: Broker, secret: str) -> None:
    with pytest.raises(LimitError, match="whsec_"):
        broker.subscribe("a > 0", deliver=Webhook("https://example.com", secret))


def test_secrets_of_version_0_1_go_on_as_they_were() -> None:
    for secret in ("whsec_" + "A" * 43, "whsec_-_" + "x" * 41, "a secret of 16 or more"):
        digest = hmac.digest(secret.encode(), b"417-0.1700000000.{}", "sha256")
        assert signature(secret, "417-0", 1_700_000_000, b"{}") == "v1," + base64.b64encode(digest).decode()
    assert signing_secret(new_signing_secret()).endswith("=")
