"""Matching elsewhere: events are kept for a cluster, and its matches delivered once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from siftline.broker.broker import Broker
from siftline.broker.limits import Limits
from siftline.errors import EventError, LimitError

if TYPE_CHECKING:
    from pathlib import Path


def test_events_wait_and_matches_come_back(tmp_path: Path) -> None:
    with Broker(tmp_path / "s.db", matches_here=False) as broker:
        assert broker.cluster is not None
        lease, other = broker.subscribe("a > 0"), broker.subscribe("a > 1")
        assert broker.publish_many([{"a": 1}, {"a": 2}]).sequence == 2
        assert broker.notifications(lease.id, lease.ticket) == []
        assert [(each.sequence, each.payload) for each in broker.cluster.read(0, 10)] == [
            (1, b'{"a": 1}'),
            (2, b'{"a": 2}'),
        ]
        assert broker.cluster.read(1, 10)[0].sequence == 2
        assert broker.deliver([(1, [lease.id]), (2, [lease.id, other.id, "nobody"])]) == (3, 0, 1)
        assert broker.deliver([(2, [other.id]), (2, [other.id, lease.id]), (9, [lease.id])]) == (0, 2, 1)
        assert [each.event for each in broker.notifications(lease.id, lease.ticket)] == [{"a": 1}, {"a": 2}]
    with Broker(tmp_path / "s.db", matches_here=False) as broker:
        assert broker.cluster is not None
        assert (broker.cluster.first, broker.cluster.last) == (1, 2)
        assert broker.deliver([(1, [lease.id])]) == (0, 1, 0)
        assert broker.publish({"a": 3}).sequence == 3
        broker.unsubscribe(lease.id, lease.ticket)
        assert broker.deliver([(3, [lease.id, other.id])]) == (1, 0, 1)


def test_bad_events_are_refused(tmp_path: Path) -> None:
    with Broker(tmp_path / "s.db", matches_here=False) as broker:
        for event in (b"[1]", b"{", b"1" * 10_000):
            with pytest.raises(EventError):
                broker.publish(event)
        with pytest.raises(EventError, match="event 1"):
            broker.publish_many([{}, b"null"])
        assert broker.publish({}).sequence == 1


def test_the_past_is_bounded(tmp_path: Path) -> None:
    limits = Limits(log_events=10, log_bytes=10_000)
    with Broker(tmp_path / "s.db", matches_here=False, limits=limits) as broker:
        assert broker.cluster is not None
        lease = broker.subscribe("a > 0")
        for n in range(1, 31):
            broker.publish({"a": n})
            broker.deliver([(n, [lease.id])])
        assert (broker.cluster.first, broker.cluster.last) == (21, 30)
        assert len(broker.cluster.read(20, 100)) == 10
        for after in (19, 31):
            with pytest.raises(LimitError, match="21 to 30"):
                broker.cluster.read(after, 1)
        assert broker.deliver([(20, [lease.id]), (21, [lease.id])]) == (0, 1, 1)
        broker.publish({"a": "x" * 9_900})
        assert broker.cluster.first > 21


def test_large_events_make_room_for_as_much_as_they_took(tmp_path: Path) -> None:
    limits = Limits(log_bytes=1 << 20)
    with Broker(tmp_path / "s.db", matches_here=False, limits=limits) as broker:
        assert broker.cluster is not None
        for _ in range(40):
            broker.publish_many([{"a": "x" * 5_000}] * 10)
        n_kept = broker.cluster.last - broker.cluster.first + 1
        assert n_kept > 60
    with Broker(tmp_path / "s.db", matches_here=False, limits=limits) as broker:
        assert broker.cluster is not None
        broker.publish_many([{"a": "x" * 5_000}] * 10)
        assert broker.cluster.last - broker.cluster.first + 1 > 60


def test_a_broker_that_matches_takes_no_matches(tmp_path: Path) -> None:
    with Broker(tmp_path / "s.db") as broker, pytest.raises(LimitError):
        broker.deliver([(1, ["ann"])])
