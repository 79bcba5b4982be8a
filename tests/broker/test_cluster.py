"""Matching by a cluster: events are kept for it, and its matches are delivered once."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from siftline.broker.broker import Broker
from siftline.broker.limits import Limits
from siftline.errors import EventError, LimitError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_events_wait_and_matches_come_back(tmp_path: Path) -> None:
    with Broker(tmp_path / "s.db", matches_here=False) as broker:
        assert broker.cluster is not None
        lease, other = broker.subscribe("a > 0"), broker.subscribe("a > 1")
        one = broker.cluster.first
        assert broker.publish_many([{"a": 1}, {"a": 2}]).sequence == one + 1
        assert broker.notifications(lease.id, lease.ticket) == []
        for after in (0, one - 1):
            assert [(each.sequence, each.payload) for each in broker.cluster.read(after, 10)] == [
                (one, b'{"a": 1}'),
                (one + 1, b'{"a": 2}'),
            ]
        assert broker.cluster.read(one, 10)[0].sequence == one + 1
        assert broker.deliver([(one, [lease.id]), (one + 1, [lease.id, other.id, "nobody"])]) == (3, 0, 1)
        repeated = [(one + 1, [other.id]), (one + 1, [other.id, lease.id]), (one + 8, [lease.id])]
        assert broker.deliver(repeated) == (0, 2, 1)
        assert [each.event for each in broker.notifications(lease.id, lease.ticket)] == [{"a": 1}, {"a": 2}]
    with Broker(tmp_path / "s.db", matches_here=False) as broker:
        assert broker.cluster is not None
        # The mark shows that nothing was lost, so numbers go on where they ended.
        assert (broker.cluster.first, broker.cluster.last) == (one, one + 1)
        assert broker.deliver([(one, [lease.id])]) == (0, 1, 0)
        assert broker.publish({"a": 3}).sequence == one + 2
        broker.unsubscribe(lease.id, lease.ticket)
        assert broker.deliver([(one + 2, [lease.id, other.id])]) == (1, 0, 1)


def test_bad_events_are_refused(tmp_path: Path) -> None:
    with Broker(tmp_path / "s.db", matches_here=False) as broker:
        for event in (b"[1]", b"{", b"1" * 10_000):
            with pytest.raises(EventError):
                broker.publish(event)
        with pytest.raises(EventError, match="event 1"):
            broker.publish_many([{}, b"null"])
        assert broker.cluster is not None
        assert broker.publish({}).sequence == broker.cluster.first


def test_the_past_is_bounded(tmp_path: Path) -> None:
    limits = Limits(log_events=10, log_bytes=10_000)
    with Broker(tmp_path / "s.db", matches_here=False, limits=limits) as broker:
        assert broker.cluster is not None
        lease = broker.subscribe("a > 0")
        before = broker.cluster.last
        for n in range(1, 31):
            broker.publish({"a": n})
            broker.deliver([(before + n, [lease.id])])
        assert (broker.cluster.first, broker.cluster.last) == (before + 21, before + 30)
        assert len(broker.cluster.read(before + 20, 100)) == 10
        for after in (0, before + 19, before + 31):
            with pytest.raises(LimitError, match=f"{before + 21} to {before + 30}"):
                broker.cluster.read(after, 1)
        assert broker.deliver([(before + 20, [lease.id]), (before + 21, [lease.id])]) == (0, 1, 1)
        broker.publish({"a": "x" * 9_900})
        assert broker.cluster.first > before + 21


def test_matches_make_room_too(tmp_path: Path) -> None:
    """What is known of matches counts when it comes, and not only when the next event is published."""
    limits = Limits(log_bytes=20_000, subscribes_per_second=None)
    with Broker(tmp_path / "s.db", matches_here=False, limits=limits) as broker:
        assert broker.cluster is not None
        ids = [broker.subscribe("a > 0").id for _ in range(20)]
        last = broker.publish_many([{"a": n} for n in range(100)]).sequence
        for number in range(broker.cluster.first, last + 1):
            broker.deliver([(number, ids)])
        with closing(sqlite3.connect(tmp_path / "s.db-notifications")) as connection:
            (n_matched,) = connection.execute("SELECT count(*) FROM matched").fetchone()
        assert n_matched * 80 <= 20_000
        assert broker.cluster.last == last


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


# files that are lost or replaced


def hours_ago(hours: float) -> Callable[[], datetime]:
    """Return a clock that is slow: what it dates was written long before the files were changed."""
    return lambda: datetime.now(UTC) - timedelta(hours=hours)


@pytest.mark.parametrize("kept", [(), ("",), ("-published-mark",), ("", "-published-mark", "-mark")])
def test_numbers_are_not_used_again_after_a_loss(tmp_path: Path, kept: tuple[str, ...]) -> None:
    """The file, its marks, or all of them are gone or of an earlier time: positions of readers are not mistaken."""
    path, backup = tmp_path / "s.db", tmp_path / "backup"
    with Broker(path, matches_here=False, clock=hours_ago(2)) as broker:
        assert broker.cluster is not None
        lease = broker.subscribe("a > 0")
        broker.publish_many([{"a": n} for n in range(5)])
        known = broker.cluster.last
    backup.mkdir()
    for suffix in kept:
        shutil.copy(f"{path}-notifications{suffix}", backup)
    with Broker(path, matches_here=False, clock=hours_ago(1)) as broker:
        assert broker.cluster is not None
        last = broker.publish_many([{"a": n} for n in range(5, 20)]).sequence
        assert [each.sequence for each in broker.cluster.read(known, 100)][-1] == last
    for file in tmp_path.glob("s.db-notifications*"):
        file.unlink()
    for file in backup.iterdir():
        shutil.copy(file, tmp_path)
    with Broker(path, matches_here=False) as broker:
        assert broker.cluster is not None
        begin = broker.cluster.last
        new = broker.publish_many([{"a": n} for n in range(20, 60)]).sequence
        assert last < begin < new
        for lost in (last, last - 1):
            with pytest.raises(LimitError, match=f"{new} are kept, and those after {lost}"):
                broker.cluster.read(lost, 10)
        assert broker.deliver([(last, [lease.id])]) == (0, 0, 1)
        assert len(broker.cluster.read(begin, 100)) == 40
        if "" in kept:
            assert [each.sequence for each in broker.cluster.read(known - 1, 1)] == [known]
            assert broker.deliver([(known, [lease.id])]) == (1, 0, 0)


def test_a_mark_reveals_an_older_file(tmp_path: Path) -> None:
    """A reader that has not yet read what is lost is told before it goes on."""
    path, log = tmp_path / "s.db", tmp_path / "s.db-notifications"
    with Broker(path, matches_here=False) as broker:
        known = broker.publish({"a": 1}).sequence
    copy = log.read_bytes()
    with Broker(path, matches_here=False) as broker:
        assert broker.publish({"a": 2}).sequence == known + 1
    log.write_bytes(copy)
    for _ in range(2):
        with Broker(path, matches_here=False) as broker:
            assert broker.cluster is not None
            new = broker.publish({"a": 3}).sequence
            assert [each.sequence for each in broker.cluster.read(known - 1, 10)] == [known]
            with pytest.raises(LimitError, match=f"up to {known + 1} some are lost"):
                broker.cluster.read(known, 10)
            assert broker.cluster.read(known + 1, 10)[-1].sequence == new > known + 1


def test_a_damaged_event_is_reported(tmp_path: Path) -> None:
    with Broker(tmp_path / "s.db", matches_here=False) as broker:
        last = broker.publish_many([{"a": n} for n in range(10)]).sequence
    with closing(sqlite3.connect(tmp_path / "s.db-notifications", isolation_level=None)) as connection:
        connection.execute("UPDATE published SET payload = ? WHERE sequence = ?", (b"{}", last - 4))
    with Broker(tmp_path / "s.db", matches_here=False) as broker:
        assert broker.cluster is not None
        assert broker.cluster.last == last
        assert [each.sequence for each in broker.cluster.read(last - 8, 10)] == [last - 7, last - 6, last - 5]
        with pytest.raises(LimitError, match=f"up to {last - 4} some are lost"):
            broker.cluster.read(last - 5, 10)
        assert [each.sequence for each in broker.cluster.read(last - 4, 10)] == list(range(last - 3, last + 1))


def test_damage_at_run_time_is_reported(tmp_path: Path) -> None:
    with Broker(tmp_path / "s.db", matches_here=False) as broker:
        assert broker.cluster is not None
        last = broker.publish_many([{"a": n} for n in range(10)]).sequence
        with closing(sqlite3.connect(tmp_path / "s.db-notifications", isolation_level=None)) as connection:
            connection.execute("UPDATE published SET payload = ? WHERE sequence = ?", (b"{}", last - 4))
        assert [each.sequence for each in broker.cluster.read(last - 7, 10)] == [last - 6, last - 5]
        with pytest.raises(LimitError, match=f"up to {last - 4} some are lost"):
            broker.cluster.read(last - 5, 10)
        assert len(broker.cluster.read(last - 4, 10)) == 4


def test_a_loss_behind_numbers_that_were_never_used(tmp_path: Path) -> None:
    """A reader at the end of a run is told of what is lost of the next one; it does not wait for it for ever."""
    path = tmp_path / "s.db"
    with Broker(path, matches_here=False, clock=hours_ago(2)) as broker:
        known = broker.publish({"a": 1}).sequence
    with Broker(path, matches_here=False, clock=hours_ago(1)) as broker:
        lost = broker.publish({"a": 2}).sequence
        assert lost > known + 1
    with closing(sqlite3.connect(f"{path}-notifications", isolation_level=None)) as connection:
        connection.execute("DELETE FROM published WHERE sequence = ?", (lost,))
    with Broker(path, matches_here=False) as broker:
        assert broker.cluster is not None
        with pytest.raises(LimitError, match=f"up to {lost} some are lost"):
            broker.cluster.read(known, 10)
        new = broker.publish({"a": 3}).sequence
        assert [each.sequence for each in broker.cluster.read(lost, 10)] == [new]


def test_starts_without_events_are_no_gap(tmp_path: Path) -> None:
    ends = []
    for hours in (4, 3, 2):
        with Broker(tmp_path / "s.db", matches_here=False, clock=hours_ago(hours)) as broker:
            assert broker.cluster is not None
            ends.append(broker.cluster.last)
            if hours == 3:
                ends.append(broker.publish({"a": 1}).sequence)
    with Broker(tmp_path / "s.db", matches_here=False, limits=Limits(log_events=1)) as broker:
        assert broker.cluster is not None
        assert [len(broker.cluster.read(end, 10)) for end in ends] == [1, 1, 0, 0]
        new = broker.publish({"a": 2}).sequence
        # The first one made room; whoever has read it has missed nothing.
        assert [[each.sequence for each in broker.cluster.read(end, 10)] for end in ends[2:]] == [[new], [new]]
        with pytest.raises(LimitError):
            broker.cluster.read(ends[0], 10)
