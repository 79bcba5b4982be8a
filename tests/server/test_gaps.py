"""A stream reports missing notifications: after a break, and while it is connected."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

import siftline
from server.serving import serving, wait_for
from siftline.broker.leases import Webhook
from siftline.broker.limits import Limits
from siftline.broker.notifications import Position

if TYPE_CHECKING:
    from pathlib import Path


def items(text: bytes) -> list[Any]:
    """Return the values of `a` that server-sent events have, and "gap" for gaps."""
    found: list[Any] = []
    for block in text.split(b"\n\n")[:-1]:
        fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line)
        if fields.get(b"event") == b"gap":
            found.append("gap")
        elif fields.get(b"event") == b"match":
            found.append(json.loads(fields[b"data"])["data"]["a"])
    return found


def test_a_slow_reader_gets_the_gap_while_it_is_connected(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db", limits=Limits(log_events=50, stream_items=20)) as service:
        id, ticket = service.subscribe()
        head = f"GET /subscriptions/{id}/stream HTTP/1.1\r\nHost: x\r\nAuthorization: {ticket['Authorization']}\r\n\r\n"
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", service.server.port))
        with slow:
            slow.sendall(head.encode())
            wait_for(lambda: len(service.broker.hub))
            n = 3000
            for first in range(1, n, 100):
                service.broker.publish_many([{"a": first + i, "pad": "x" * 5000} for i in range(100)])
            slow.settimeout(20)
            text = b""
            while b'{"a": %d,' % n not in text[-10_000:] or b"\n\n" not in text[-10:]:
                received = slow.recv(1 << 20)
                assert received
                text += received
        found = items(text)
        # Wherever a number is missing, a gap was told before the next one, and nowhere else.
        jumps = [(a, b) for a, b in zip([0, *found], found, strict=False) if a != "gap" and b != "gap" and b != a + 1]
        assert jumps == []
        assert "gap" in found
        assert len(found) < n


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_log_that_was_lost_or_restored(tmp_path: Path, is_lost: bool) -> None:
    store, log = tmp_path / "store.db", tmp_path / "store.db-notifications"
    with serving(store) as service:
        lease = service.broker.subscribe("a > 0")
        service.broker.publish({"a": 1})
    copy = log.read_bytes()
    with serving(store) as service:
        service.broker.publish_many([{"a": n} for n in range(2, 50)])
        last = service.broker.notifications(lease.id, None)[-1]
    for file in tmp_path.glob("store.db-notifications*"):
        file.unlink()
    if not is_lost:
        log.write_bytes(copy)
    with serving(store) as service:
        service.broker.publish_many([{"a": n} for n in range(50, 90)])
        with siftline.Client(service.url, use_proxies=False) as client:
            gaps: list[str] = []
            stream = client.stream(lease.id, lease.ticket, after=last.id, on_gap=gaps.append)
            assert [next(stream).event["a"] for _ in range(40)] == list(range(50, 90))
            assert len(gaps) == 1
            assert "lost" in gaps[0]
            page = client.notifications(lease.id, lease.ticket, after=last.id)
            assert [each.event["a"] for each in page] == list(range(50, 90))
            assert page.gap is not None
            assert client.notifications(lease.id, lease.ticket, after=page[0].id).gap is None


def test_a_dead_webhook_hides_no_gap(tmp_path: Path) -> None:
    limits = Limits(log_events=10)
    with serving(tmp_path / "store.db", limits=limits, allow_private=True) as service:
        service.broker.subscribe("dead = 1", deliver=Webhook("http://127.0.0.1:9/x"))
        lease = service.broker.subscribe("a > 0")
        first = service.broker.publish({"a": 1, "dead": 1}).sequence
        for n in range(2, 40):
            service.broker.publish({"a": n})
    with serving(tmp_path / "store.db", limits=limits, allow_private=True) as service:
        page = service.broker.notifications(lease.id, lease.ticket, Position(first + 5, 0))
        assert page.gap is not None
        assert [each.event["a"] for each in page] == list(range(30, 40))
        assert [json.loads(each.payload) for each in service.broker.log.deliveries.dead_letters()] == [
            {"a": 1, "dead": 1}
        ]


def test_events_of_others_are_no_gap(tmp_path: Path) -> None:
    """A stream that has been live all the time has missed nothing, however long ago its last notification was."""
    with serving(tmp_path / "store.db", limits=Limits(log_events=10, stream_items=3)) as service:
        rare, _ = service.broker.subscribe("a > 0 and rare = 1"), service.broker.subscribe("a > 0")
        with siftline.Client(service.url, use_proxies=False) as client:
            gaps: list[str] = []
            stream = client.stream(rare.id, rare.ticket, after="0-0", on_gap=gaps.append)
            service.broker.publish({"a": 1, "rare": 1})
            assert next(stream).event["a"] == 1
            for n in range(2, 60):
                service.broker.publish({"a": n})
            # Five at once are more than the queue takes, so the stream goes back to the log.
            service.broker.publish_many([{"a": n, "rare": 1} for n in range(60, 65)])
            assert [next(stream).event["a"] for _ in range(5)] == list(range(60, 65))
            assert gaps == []


@pytest.mark.parametrize("path", ["/subscriptions/{id}/stream", "/owners/ann/stream"])
def test_unread_notifications_count(tmp_path: Path, path: str) -> None:
    """Bytes that a stream has read, from the log or its queue, count until they are sent or the stream is over."""
    with serving(tmp_path / "store.db") as service:
        lease = service.broker.subscribe("a > 0", owner="ann")
        key = service.broker.keys.add("subscribe", "ann")
        head = f"GET {path.format(id=lease.id)}?after=0-0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n"
        events = [{"a": n, "pad": "x" * 200_000} for n in range(1, 40)]
        service.broker.publish_many(events)
        stuck = socket.socket()
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect(("127.0.0.1", service.server.port))
        load = service.broker.hub._load
        with stuck:
            stuck.sendall(head.encode())
            wait_for(lambda: load._n >= 200_000)  # of the log, and in nobody's queue
            stuck.settimeout(20)
            text = b""
            while b'"a": 39' not in text:
                text += stuck.recv(1 << 20)
            wait_for(lambda: load._n == 0)  # it waits for more, and has nothing
            service.broker.publish_many(events)
            wait_for(lambda: load._n >= 200_000)
        wait_for(lambda: not len(service.broker.hub))
        assert load._n == 0


def test_a_position_that_is_yet_to_come_is_one_gap(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db") as service:
        lease = service.broker.subscribe("a > 0")
        service.broker.publish({"a": 1})
        with siftline.Client(service.url, use_proxies=False) as client:
            gaps: list[str] = []
            stream = client.stream(lease.id, lease.ticket, after="999999999999999999-0", on_gap=gaps.append)
            assert next(stream).event["a"] == 1
            service.broker.publish({"a": 2})
            assert next(stream).event["a"] == 2
            assert len(gaps) == 1
