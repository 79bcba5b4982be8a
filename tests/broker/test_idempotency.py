"""A publish that is repeated with its idempotency key is delivered once, whatever happens in between."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from server.serving import wait_for

from siftline.broker.broker import Broker
from siftline.broker.limits import Limits
from siftline.broker.remembered import event_name
from siftline.errors import BusyError, EventError, IdempotencyError, LimitError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "store.db") as broker:
        yield broker


def values(broker: Broker, id: int | str) -> list[Any]:
    return [each.event["a"] for each in broker.notifications(id, None)]


def test_the_same_again_gets_the_first_answer(broker: Broker) -> None:
    lease = broker.subscribe("a > 0")
    first = broker.publish({"a": 1}, idempotency="order 7", scope="key_1")
    broker.publish({"a": 2})
    assert broker.publish({"a": 1}, idempotency="order 7", scope="key_1") == first._replace(repeated=True)
    assert values(broker, lease.id) == [1, 2]
    broker.publish({"a": 1}, idempotency="order 7", scope="key_2")
    broker.publish({"a": 1}, idempotency="order 8", scope="key_1")
    assert values(broker, lease.id) == [1, 2, 1, 1]


def test_another_body_is_an_error(broker: Broker) -> None:
    lease = broker.subscribe("a > 0")
    broker.publish_many([{"a": 1}, {"a": 2}], idempotency="x")
    for events in ([{"a": 1}], [{"a": 2}, {"a": 1}], [{"a": 1}, {"a": 2}, {"a": 3}], []):
        with pytest.raises(IdempotencyError):
            broker.publish_many(events, idempotency="x")
    assert values(broker, lease.id) == [1, 2]


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_invalid_names(broker: Broker, name: str) -> None:
    with pytest.raises(LimitError):
        broker.publish({"a": 1}, idempotency=name)


def test_a_refused_publish_is_not_remembered(broker: Broker) -> None:
    lease = broker.subscribe("a > 0")
    with pytest.raises(EventError):
        broker.publish_many([{"a": 1}, b"[]"], idempotency="x")
    broker.publish_many([{"a": 1}, {"a": 2}], idempotency="x")
    assert values(broker, lease.id) == [1, 2]


def test_a_publish_without_matches_is_remembered_too(tmp_path: Path) -> None:
    with Broker(tmp_path / "store.db") as broker:
        first = broker.publish({"a": 1}, idempotency="x")
    with Broker(tmp_path / "store.db") as broker:
        lease = broker.subscribe("a > 0")
        assert broker.publish({"a": 1}, idempotency="x") == first._replace(repeated=True)
        assert values(broker, lease.id) == []
        with pytest.raises(IdempotencyError):
            broker.publish({"a": 2}, idempotency="x")


def test_events_with_names_of_their_own(broker: Broker) -> None:
    lease = broker.subscribe("a > 0")
    names = [event_name("/shop", str(n)) for n in range(4)]
    broker.publish_many([{"a": 1}, {"a": 2}], names=names[:2], scope="k")
    several = [{"a": 2}, {"a": 3}, {"a": 3}, {"a": 9}]
    again = broker.publish_many(several, names=[names[1], names[2], names[2], None], scope="k")
    assert (again.events, again.repeated) == (4, False)
    assert values(broker, lease.id) == [1, 2, 3, 9]
    assert broker.publish_many([{"a": 3}, {"a": 1}], names=[names[2], names[0]], scope="k").repeated
    for events in ([{"a": 5}], [{"a": 5}, {"a": 6}]):  # known with another body; twice with two bodies
        with pytest.raises(IdempotencyError):
            broker.publish_many(events, names=[names[0]] if len(events) == 1 else [names[3]] * 2, scope="k")
    assert values(broker, lease.id) == [1, 2, 3, 9]
    with pytest.raises(EventError, match="event 2"):  # the position among all, not among those that are new
        broker.publish_many([{"a": 1}, {"a": 7}, b"[]"], names=[names[0], None, None], scope="k")


def test_two_at_the_same_moment(broker: Broker) -> None:
    lease = broker.subscribe("a > 0")
    gate = threading.Event()
    match = broker._publisher._match
    broker._publisher._match = lambda events: (gate.wait(), match(events))[1]
    same = [broker.publish_later([{"a": 1}], idempotency="x") for _ in range(5)]
    other = broker.publish_later([{"a": 2}], idempotency="x")
    events = [broker.publish_later([{"a": 3}], names=["y"]) for _ in range(3)]
    gate.set()
    assert sorted(each.result().repeated for each in same) == [False, True, True, True, True]
    assert sorted(each.result().repeated for each in events) == [False, True, True]
    with pytest.raises(IdempotencyError):
        other.result()
    assert values(broker, lease.id) == [1, 3]


def test_names_are_bounded(tmp_path: Path) -> None:
    with Broker(tmp_path / "store.db", limits=Limits(publish_names=10, log_events=20)) as broker:
        lease = broker.subscribe("a > 0")
        for n in range(30):
            broker.publish({"a": n + 1}, idempotency=f"matched {n}")
            broker.publish({"b": n}, idempotency=f"nobody {n}")
        broker.log.tend()
        assert len(broker.log.remembered) == 30
        assert broker.publish({"a": 11}, idempotency="matched 10").repeated  # the oldest that the log has
        assert not broker.publish({"a": 1}, idempotency="matched 0").repeated
        assert len(values(broker, lease.id)) == 20
    with Broker(tmp_path / "store.db") as broker:
        assert len(broker.log.remembered) == 31


def n_names(path: Path) -> int:
    with closing(sqlite3.connect(f"{path}-notifications")) as connection:
        return int(connection.execute("SELECT count(*) FROM remembered").fetchone()[0])


def test_one_match_keeps_one_name(tmp_path: Path) -> None:
    """Of a batch, the names of events that matched nobody are bounded, whoever matched the others."""
    path = tmp_path / "store.db"
    with Broker(path, limits=Limits(publish_names=100)) as broker:
        lease = broker.subscribe("a = 7")
        events = [{"a": n} for n in range(3000)]
        names = [str(n) for n in range(3000)]
        broker.publish_many(events, names=names, idempotency="all")
        broker.log.tend()
        assert len(broker.log.remembered) == n_names(path) == 102
        assert broker.publish_many(events, names=names, idempotency="all").repeated
        assert broker.publish({"a": 7}, idempotency=None).repeated is False
        assert broker.publish_many([{"a": 7}], names=["7"]).repeated
        assert values(broker, lease.id) == [7, 7]
    with Broker(path, limits=Limits(publish_names=100)) as broker:
        assert broker.log.remembered.n_over(broker.log._recent.n_names) == 0


def test_names_count_in_the_bytes_of_the_log(tmp_path: Path) -> None:
    path, limits = tmp_path / "store.db", Limits(publish_names=10, log_bytes=1 << 20)
    with Broker(path, limits=limits) as broker:
        broker.subscribe("a >= 0")
        for first in range(0, 20_000, 500):
            names = [str(n) for n in range(first, first + 500)]
            broker.publish_many([{"a": n} for n in range(first, first + 500)], names=names)
        broker.log.tend()
        stats = broker.log.stats()
        assert stats["log_bytes"] <= 1 << 20
        assert len(broker.log.remembered) == n_names(path) == stats["log_events"] + 10
        assert 150 * n_names(path) < 1 << 20
    with Broker(path, limits=limits) as broker:
        assert broker.log.stats() | {"publish_names": 0} == stats | {"publish_names": 0}
        with pytest.raises(LimitError, match="too much"):
            broker.publish_many([{"a": n} for n in range(2000)], names=[f"x {n}" for n in range(2000)])


def test_names_are_bounded_without_those_who_tend(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Broker(path, limits=Limits(publish_names=100)) as broker:
        broker._upkeep.stop()
        for batch in range(20):
            broker.publish_many([{"a": n} for n in range(300)], names=[f"{batch} {n}" for n in range(300)])
        assert len(broker.log.remembered) == n_names(path) <= 1000 + 100 + 300


def test_empty_publishes_wait_like_events(broker: Broker) -> None:
    broker._publisher._limits = Limits(waiting_events=10)
    gate, match = threading.Event(), broker._publisher._match
    broker._publisher._match = lambda events: (gate.wait(), match(events))[1]
    try:
        broker.publish_later([{"a": 0}])  # the publisher takes it, and waits
        wait_for(lambda: not broker.n_waiting)
        for n in range(10):
            broker.publish_later([], idempotency=str(n))
        with pytest.raises(BusyError):
            broker.publish_later([], idempotency="one more")
    finally:
        gate.set()


def test_a_cluster_gets_it_once(tmp_path: Path) -> None:
    with Broker(tmp_path / "s.db", matches_here=False) as broker:
        assert broker.cluster is not None
        first = broker.publish({"a": 1}, idempotency="x")
        assert broker.publish({"a": 1}, idempotency="x") == first._replace(repeated=True)
        assert len(broker.cluster.read(0, 10)) == 1
    with Broker(tmp_path / "s.db", matches_here=False) as broker:
        assert broker.publish({"a": 1}, idempotency="x").repeated


# Publishes under one name from several threads, and says what was acknowledged.
KILLED = """
import os, sys, threading
from siftline.broker.broker import Broker

broker = Broker(sys.argv[1])
n = 0
while True:
    n += 1
    os.write(1, b"%d\\n" % n)  # it may be published from now on
    broker.publish({"a": n}, idempotency=f"n {n}")
"""


def test_a_publish_is_repeated_after_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Broker(path) as broker:
        lease = broker.subscribe("a > 0")
    with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(20):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        begun = 20 + len(process.stdout.read().splitlines())
    with Broker(path) as broker:
        repeated = [broker.publish({"a": n}, idempotency=f"n {n}").repeated for n in range(1, begun + 1)]
        assert repeated[:-1] == [True] * (begun - 1)
        assert values(broker, lease.id) == list(range(1, begun + 1))
