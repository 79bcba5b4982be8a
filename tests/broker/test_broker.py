"""Leases, tickets, events: the broker without HTTP."""

from __future__ import annotations

import json
import random
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from siftline import Store
from siftline.broker import matching
from siftline.broker.broker import Broker
from siftline.broker.keys import Keys
from siftline.broker.limits import Limits
from siftline.broker.notifications import START, Everybody, Position
from siftline.broker.recent import Recent
from siftline.errors import (
    BusyError,
    EventError,
    LimitError,
    SubscriptionError,
    UnknownIdError,
    WrongTicketError,
)
from siftline.storage.rows import COLUMNS, row_checksum

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **time: float) -> None:
        self.now += timedelta(**time)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def broker(tmp_path: Path, clock: Clock) -> Iterator[Broker]:
    with Broker(tmp_path / "store.db", clock=clock) as broker:
        yield broker


def payloads(broker: Broker, id: int | str, ticket: str | None = None) -> list[bytes]:
    return [each.payload for each in broker.notifications(id, ticket)]


def test_subscribe_and_publish(broker: Broker) -> None:
    ann, bob = broker.subscribe("price < 5"), broker.subscribe({"price": [4]}, dialect="eventbridge")
    assert broker.publish({"price": 4}).events == 1
    assert broker.publish_many([{"price": 3}, '{"price":\n 9}', b'{"price": 2}']).events == 3
    assert payloads(broker, ann.id, ann.ticket) == [b'{"price": 4}', b'{"price": 3}', b'{"price": 2}']
    assert payloads(broker, bob.id, bob.ticket) == [b'{"price": 4}']


def test_a_lease_ends_unless_it_is_renewed(broker: Broker, clock: Clock) -> None:
    short, long = broker.subscribe("a = 1", "2h"), broker.subscribe("a = 1", "2h")
    assert short.expires == clock.now + timedelta(hours=2)
    clock.forward(hours=1)
    assert broker.renew(long.id, long.ticket, 7200) == clock.now + timedelta(hours=2)
    clock.forward(hours=1)  # the end itself is over
    assert broker.match({"a": 1}) == [long.id]
    for call in (broker.renew, broker.unsubscribe, broker.get):
        with pytest.raises(UnknownIdError):
            call(short.id, short.ticket)
    broker.purge()  # unless the broker has just done it
    assert broker.store.select("SELECT id FROM subscriptions") == [(long.id,)]
    assert broker.store.select("SELECT id FROM leases") == [(long.id,)]


def test_a_day_is_the_default(broker: Broker, clock: Clock) -> None:
    assert broker.subscribe("a = 1").expires == clock.now + timedelta(days=1)


def test_time_does_not_run_backwards(broker: Broker, clock: Clock) -> None:
    lease = broker.subscribe("a = 1", 10)
    clock.forward(seconds=10)
    assert broker.match({"a": 1}) == []
    clock.forward(seconds=-60)
    assert broker.match({"a": 1}) == []
    with pytest.raises(UnknownIdError):
        broker.renew(lease.id, lease.ticket)


def test_replace_and_unsubscribe(broker: Broker) -> None:
    lease = broker.subscribe("a = 1")
    broker.replace(lease.id, lease.ticket, "a = 2")
    assert broker.match({"a": 1}) == []
    assert broker.match({"a": 2}) == [lease.id]
    assert broker.get(lease.id, lease.ticket).expires == lease.expires
    broker.unsubscribe(lease.id, lease.ticket)
    assert broker.match({"a": 2}) == []
    with pytest.raises(UnknownIdError):
        broker.unsubscribe(lease.id, lease.ticket)


def test_wrong_and_stolen_tickets_change_nothing(broker: Broker) -> None:
    lease, other = broker.subscribe("a = 1"), broker.subscribe("a = 1")
    for ticket in ("", "ticket_guess", other.ticket, lease.ticket + "x", lease.ticket[:-1], "\ud800"):
        with pytest.raises(WrongTicketError):
            broker.renew(lease.id, ticket)
        with pytest.raises(WrongTicketError):
            broker.replace(lease.id, ticket, "a = 2")
        with pytest.raises(WrongTicketError):
            broker.unsubscribe(lease.id, ticket)
        with pytest.raises(WrongTicketError):
            broker.notifications(lease.id, ticket)
    assert sorted(broker.match({"a": 1})) == sorted([lease.id, other.id])


def test_secrets_are_not_in_the_file(broker: Broker, tmp_path: Path) -> None:
    lease, key = broker.subscribe("a = 1"), broker.keys.add("admin")
    broker.close()
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for secret in (lease.ticket, key.partition(".")[2]):
        assert secret.encode() not in kept
        assert secret.removeprefix("ticket_").encode() not in kept


def test_bad_input_changes_nothing(broker: Broker) -> None:
    lease = broker.subscribe("a = 1")
    with pytest.raises(SubscriptionError, match="hint"):
        broker.subscribe("price betwen 1 and 2")
    with pytest.raises(SubscriptionError):
        broker.replace(lease.id, lease.ticket, "a ==")
    with pytest.raises(EventError, match="event 1: not a JSON object"):
        broker.publish_many([{"a": 1}, b"[]"])
    with pytest.raises(EventError, match="NaN"):
        broker.publish(b'{"a": NaN}')
    for bad in (b"", b"{", b"\xff", b'{"a": "\xed\xa0\x80"}', "null", [1], {"a": float("inf")}, {"a": object()}):
        with pytest.raises(EventError):
            broker.publish(bad)
    assert payloads(broker, lease.id, lease.ticket) == []


@pytest.mark.parametrize(
    "validity", [0, -1, float("nan"), "1w", "", None, True, timedelta(days=400), 1e300, "9" * 12 + "d"]
)
def test_invalid_validities(broker: Broker, validity: object) -> None:
    with pytest.raises(LimitError):
        broker.subscribe("a = 1", validity)


def test_limits(tmp_path: Path) -> None:
    limits = Limits(expression_bytes=20, event_bytes=30, batch_events=2, subscriptions_per_owner=2, subscriptions=3)
    with Broker(tmp_path / "store.db", limits=limits) as broker:
        with pytest.raises(SubscriptionError, match="bytes"):
            broker.subscribe("a = 'a long text of many characters'")
        with pytest.raises(LimitError):
            broker.publish({"a": "x" * 40})
        with pytest.raises(LimitError):
            broker.publish_many([{}, {}, {}])
        for _ in range(2):
            broker.subscribe("a = 1", owner="ann")
        with pytest.raises(LimitError, match="owner"):
            broker.subscribe("a = 1", owner="ann")
        broker.subscribe("a = 1", owner="bob")
        with pytest.raises(LimitError, match="the limit"):
            broker.subscribe("a = 1")


def test_a_full_queue_is_busy(tmp_path: Path) -> None:
    with Broker(tmp_path / "store.db", limits=Limits(waiting_events=3)) as broker:
        gate = threading.Event()
        match = broker._publisher._match
        broker._publisher._match = lambda events: (gate.wait(), match(events))[1]
        first = broker.publish_later([{}])
        while broker.n_waiting:
            pass
        waiting = [broker.publish_later([{}, {}])]
        with pytest.raises(BusyError):
            broker.publish_later([{}, {}])
        gate.set()
        assert [each.result().events for each in (first, *waiting)] == [1, 2]


def test_a_cancelled_caller_does_not_disturb_others(tmp_path: Path) -> None:
    with Broker(tmp_path / "store.db") as broker:
        gate = threading.Event()
        match = broker._publisher._match
        broker._publisher._match = lambda events: (gate.wait(), match(events))[1]
        several = [broker.publish_later([{}]) for _ in range(3)]
        assert not any(each.cancel() for each in several[:2])
        gate.set()
        assert [each.result().events for each in several] == [1, 1, 1]


def test_many_threads(broker: Broker) -> None:
    def work(n: int) -> None:
        for i in range(10):
            lease = broker.subscribe(f"a = {n} and b = {i}")
            broker.publish({"a": n, "b": i})
            assert payloads(broker, lease.id, lease.ticket) == [b'{"a": %d, "b": %d}' % (n, i)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(broker.engine) == broker.log.stats()["log_events"] == 40


def test_state_survives_a_restart(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "store.db"
    with Broker(path, clock=clock) as broker:
        kept, short = broker.subscribe("a = 1", "9h"), broker.subscribe("a = 1", "1h")
        first = broker.publish({"a": 1}).sequence
    with Broker(path, clock=clock) as broker:
        assert sorted(broker.match({"a": 1})) == sorted([kept.id, short.id])
        later = broker.subscribe("a = 1")
        clock.forward(hours=1)
        second = broker.publish({"a": 1}).sequence
        assert second > first
    with Broker(path, clock=clock) as broker:
        assert sorted(broker.match({"a": 1})) == sorted([kept.id, later.id])
        assert len(payloads(broker, kept.id, kept.ticket)) == 2
        assert [each.position.sequence for each in broker.notifications(later.id, later.ticket)] == [second]


def test_a_snapshot_that_is_damaged_or_too_old_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Broker(path) as broker:
        lease = broker.subscribe("a = 1")
    [snapshot] = tmp_path.glob("store.db-sift-*")
    for file in snapshot.rglob("*"):
        if file.is_file():
            file.write_bytes(b"nothing")
    with Broker(path) as broker:
        assert broker.match({"a": 1}) == [lease.id]
        broker.unsubscribe(lease.id, lease.ticket)
    with Broker(path) as broker:
        assert broker.match({"a": 1}) == []


def test_changes_of_another_process_are_followed(broker: Broker, clock: Clock) -> None:
    with Store(broker.store.path, is_guest=True) as other:
        other.add("a = 1", "imported", owner="ann")
        broker.follow()
        assert broker.match({"a": 1}) == ["imported"]
        with pytest.raises(WrongTicketError):  # it has none
            broker.renew("imported", "ticket")
        broker.unsubscribe("imported", None)
        assert "imported" not in other


def test_a_store_with_integers_for_ids(tmp_path: Path) -> None:
    with Store(tmp_path / "store.db") as store:
        store.add("a = 1", 7)
    with Broker(tmp_path / "store.db") as broker:
        lease = broker.subscribe("a = 1")
        broker.publish({"a": 1})
        assert isinstance(lease.id, int)
        assert broker.id_of("7") == 7
        assert payloads(broker, lease.id, lease.ticket) == payloads(broker, 7) == [b'{"a": 1}']


def test_the_log_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Broker(path, limits=Limits(log_events=3)) as broker:
        lease = broker.subscribe("a > 0")
        for n in range(1, 8):
            broker.publish({"a": n})
        assert payloads(broker, lease.id) == [b'{"a": 5}', b'{"a": 6}', b'{"a": 7}']
        assert broker.log.first == broker.log.last - 2
    with Broker(path, limits=Limits(log_bytes=300)) as broker:
        broker.publish({"a": 8})
        assert payloads(broker, lease.id) == [b'{"a": 7}', b'{"a": 8}']
        assert broker.log.read(Everybody(), Position(0, 0), 10) == broker.notifications(lease.id, None)


def test_positions_are_exact(broker: Broker) -> None:
    leases = [broker.subscribe("a > 0", owner="ann") for _ in range(3)]
    broker.publish_many([{"a": 1}, {"a": 2}])
    ids = {lease.id for lease in leases}
    everything = broker.log.read(ids, Position(0, 0), 10)
    assert len(everything) == 6
    for n, each in enumerate(everything):
        assert broker.log.read(ids, each.position, 10) == everything[n + 1 :]
        assert Position.of(str(each.position)) == each.position
    for bad in ("", "1", "1-", "-1-2", "a-b", "1-2-3", "٣-0", "1" * 30 + "-0"):
        with pytest.raises(LimitError):
            Position.of(bad)


def test_a_listener_that_falls_behind_reads_the_log(tmp_path: Path) -> None:
    with Broker(tmp_path / "store.db", limits=Limits(stream_items=4)) as broker:
        lease = broker.subscribe("a > 0", owner="ann")
        woken = threading.Event()
        listener = broker.listen(lease.id, wake=woken.set)
        listener.listen()
        broker.publish({"a": 1})
        assert woken.is_set()
        [message] = listener.take(9)
        [first] = message.after(START)
        assert (first.payload, list(message.after(first.position))) == (b'{"a": 1}', [])
        broker.publish_many([{"a": n} for n in range(1, 9)])
        assert listener.is_behind
        assert listener.take(9) == []
        assert len(broker.notifications(lease.id, None, first.position)) == 8
        broker.unsubscribe(lease.id, lease.ticket)
        assert listener.is_ended
        broker.hub.leave(listener)
        assert len(broker.hub) == 0


def test_an_owner_hears_of_new_subscriptions_too(broker: Broker) -> None:
    broker.subscribe("a = 1", owner="ann")
    listener = broker.listen(None, owner="ann", wake=lambda: None)
    listener.listen()
    new, other = broker.subscribe("a = 2", owner="ann"), broker.subscribe("a = 2", owner="bob")
    broker.publish({"a": 2})
    assert [each.subscription for message in listener.take(9) for each in message.after(START)] == [new.id]
    assert other.id != new.id
    broker.unsubscribe(new.id, new.ticket)
    assert not listener.is_ended


def test_keys(tmp_path: Path) -> None:
    with Store(tmp_path / "store.db") as store:
        keys = Keys(store)
        admin, ann = keys.add("admin"), keys.add("subscribe", "ann")
        found = Keys(store).of(ann)
        assert found is not None
        assert (found.role, found.owner) == ("subscribe", "ann")
        assert keys.of(admin[:-1]) is keys.of("") is keys.of("key_x.y") is None
        keys.revoke(admin.partition(".")[0])
        assert keys.of(admin) is None
        assert keys.has_role("admin")  # it needs a key from now on, though there is none
        for role, owner in (("root", None), ("admin", "ann"), ("subscribe", None)):
            with pytest.raises(LimitError):
                keys.add(role, owner)
        with pytest.raises(UnknownIdError):
            keys.revoke("key_x")


def test_a_large_store_gets_its_snapshot_at_the_first_start(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Store(path) as store, store.batch() as batch:
        for number in range(10_001):
            batch.add(f"a = {number}", f"s{number}")
    with Broker(path) as broker:
        assert list(tmp_path.glob("store.db-sift-*"))
        lease = broker.subscribe("a = 5")
        broker.unsubscribe("s6", None)
    with Broker(path) as broker:
        assert sorted(broker.match({"a": 5})) == sorted(["s5", lease.id])
        assert broker.match({"a": 6}) == []
        assert len(list(tmp_path.glob("store.db-sift-*"))) == 1


def test_unreadable_subscriptions_do_not_disturb_others(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Store(path) as store:
        store.add("a = 1", "good")
        store.add("a = 1", "bad")
        unreadable(store, "bad")
    with Broker(path) as broker:
        assert broker.unreadable == {"bad"}
        assert broker.match({"a": 1}) == ["good"]
        broker.store.add("a = 1", "other")
        broker.store.add("a = 1", "new")
        unreadable(broker.store, "new")
        broker.follow()
        assert broker.unreadable == {"bad", "new"}
        assert sorted(broker.match({"a": 1})) == ["good", "other"]
        broker.store.replace("bad", "a > 0")
        broker.store.remove("new")
        broker.follow()
        assert broker.unreadable == set()
        assert sorted(broker.match({"a": 1})) == ["bad", "good", "other"]


def unreadable(store: Store, id: str) -> None:
    """Make an expression one that this program does not know, as a newer one might write it."""

    def work(_: object, connection: sqlite3.Connection) -> None:
        row = connection.execute(f"SELECT {COLUMNS} FROM changes WHERE id = ?", (id,)).fetchone()
        changed = (*row[:5], "a frobs 1", *row[6:-1])
        query = "UPDATE changes SET text = ?, checksum = ? WHERE sequence = ?"
        connection.execute(query, ("a frobs 1", row_checksum(changed), row[0]))

    store.transact(work)


def test_a_renewal_leaves_the_index_alone(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = broker.subscribe("a > 0")
    replaced: list[object] = []
    monkeypatch.setattr(broker.engine, "replace", lambda *args: replaced.append(args))
    broker.renew(lease.id, lease.ticket, "2d")
    assert replaced == []
    broker.replace(lease.id, lease.ticket, "a > 1")
    assert len(replaced) == 1


def test_a_snapshot_of_another_store_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Broker(path) as broker:
        broker.subscribe("a > 0")
    for name in ("", "-mark"):
        (tmp_path / f"store.db{name}").unlink()
    with Broker(path) as broker:
        lease = broker.subscribe("a > 1")
    with Broker(path) as broker:
        assert broker.match({"a": 5}) == [lease.id]


def test_removed_subscriptions_leave_their_owner(broker: Broker) -> None:
    listener = broker.listen(None, owner="ann", wake=lambda: None)
    lease = broker.subscribe("a > 0", owner="ann")
    assert listener.wanted == {lease.id}
    broker.unsubscribe(lease.id, lease.ticket)
    assert listener.wanted == set()
    assert not listener.is_ended


def test_recent_events_by_subscription_against_lists() -> None:
    """Forgotten places are given back now and then; nobody sees when."""
    rng = random.Random(3)
    recent = Recent()
    kept: list[tuple[int, list[int]]] = []
    for sequence in range(100, 12_000, 2):
        numbers = rng.sample(range(40), rng.randrange(4))
        recent.add(sequence, 10 + len(numbers), np.array(numbers, np.uint32))
        kept.append((sequence, numbers))
        if len(kept) > 500:
            n = rng.randrange(1, 4)
            recent.forget(n)
            del kept[:n]
        if sequence % 97 == 0:
            after, until = Position(sequence - rng.randrange(900), rng.randrange(3)), sequence - rng.randrange(200)
            limit = rng.randrange(1, 90)
            pairs = [(s, place, n) for s, numbers in kept for place, n in enumerate(numbers)]
            later = [each for each in pairs if each[:2] > after and each[0] <= until]
            for number in range(-1, 40):
                wanted: Any = number if number >= 0 else None
                expected = [each for each in later if wanted in (None, each[2])][:limit]
                found = recent.snapshot().find(after, wanted, limit=limit, until=until)
                assert list(zip(*found, strict=True)) == expected
            mask = np.array([rng.random() < 0.3 for _ in range(40)])
            expected = [each for each in later if mask[each[2]]][:limit]
            found = recent.snapshot().find(after, mask, limit=limit, until=until)
            assert list(zip(*found, strict=True)) == expected
    assert (recent.first, len(recent)) == (kept[0][0], len(kept))
    assert recent.n_bytes == sum(10 + len(numbers) for _, numbers in kept)
    assert recent.n_matches == sum(len(numbers) for _, numbers in kept)


def test_now_is_the_time_of_the_clock(broker: Broker, clock: Clock) -> None:
    lease = broker.subscribe("at > now() - interval '1 hour'", validity=timedelta(days=9))
    event = {"at": "2026-01-01T01:30:00+01:00"}
    assert broker.match(event) == [lease.id]
    broker.publish(event)
    clock.forward(minutes=90)
    assert broker.match(event) == []
    later = {"at": "2026-01-01T01:00Z"}
    broker.publish_many([event, later])
    assert [json.loads(payload) for payload in payloads(broker, lease.id, lease.ticket)] == [event, later]


def test_pieces_of_a_batch_are_the_batch(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(9):
        broker.subscribe(f"a >= {n}")
    events = [b'{"a": %d}' % n if n % 7 else b"[%d]" % n for n in range(40)]

    def found() -> list[Any]:
        matches = matching.matched_ids(broker.engine, events, broker.now())
        return [str(each) if isinstance(each, EventError) else sorted(map(str, each)) for each in matches]

    whole = found()
    sizes: list[int] = []
    match_batch = broker.engine.match_batch

    def counted(source: Any, **options: Any) -> Any:
        sizes.append(len(source))
        return match_batch(source, **options)

    monkeypatch.setattr(broker.engine, "match_batch", counted)
    for most, least, size in ((100, 1, 10), (1, 3, 3), (1, 1, 1)):
        monkeypatch.setattr(matching, "_MOST_PAIRS", most)
        monkeypatch.setattr(matching, "_LEAST_EVENTS", least)
        sizes.clear()
        assert found() == whole
        assert all(n <= size for n in sizes)


def test_a_publish_that_would_fill_the_log_is_refused(tmp_path: Path) -> None:
    with Broker(tmp_path / "store.db", limits=Limits(log_bytes=100_000)) as broker:
        leases = [broker.subscribe("a > 0") for _ in range(100)]
        with pytest.raises(LimitError, match=r"match [0-9,]+ times or more.*--log-bytes"):
            broker.publish_many([{"a": n} for n in range(1, 200)])
        assert broker.log.stats()["log_events"] == 0
        refused = broker.publish_later([{"a": n} for n in range(1, 200)])
        fine = broker.publish_later([{"a": 1}])
        assert fine.result().events == 1
        assert isinstance(refused.exception(), LimitError)
        for n in range(1, 30):
            broker.publish_many([{"a": n}] * 10)
        assert broker.log.stats()["log_bytes"] <= 100_000
        assert len(payloads(broker, leases[0].id)) == broker.log.stats()["log_events"] > 100


def test_the_queue_is_bounded_in_bytes(tmp_path: Path) -> None:
    with Broker(tmp_path / "store.db", limits=Limits(waiting_bytes=2000)) as broker:
        gate = threading.Event()
        match = broker._publisher._match
        broker._publisher._match = lambda events: (gate.wait(), match(events))[1]
        event = {"a": "x" * 900}
        first = broker.publish_later([event])
        while broker.n_waiting:
            pass
        waiting = [broker.publish_later([event]), broker.publish_later([event])]
        with pytest.raises(BusyError, match="bytes"):
            broker.publish_later([event])
        gate.set()
        assert [each.result().events for each in (first, *waiting)] == [1, 1, 1]
        with pytest.raises(LimitError, match="bytes"):
            broker.publish_many([event] * 3)


def test_a_queue_is_bounded_in_bytes(tmp_path: Path) -> None:
    with Broker(tmp_path / "store.db", limits=Limits(stream_bytes=5000, hub_bytes=8500)) as broker:
        lease = broker.subscribe("a > 0")
        listeners = [broker.listen(lease.id, wake=lambda: None) for _ in range(3)]
        for listener in listeners:
            listener.listen()
        for n in range(1, 3):
            broker.publish({"a": n, "pad": "x" * 1000})
        assert [len(listener.take(9)) for listener in listeners] == [2, 2, 2]
        assert [listener.take(9) for listener in listeners] == [[], [], []]  # what was taken is sent by now
        for n in range(3, 6):
            broker.publish({"a": n, "pad": "x" * 1000})
        # Nine notifications are more than all may have together: who came last has to read the log.
        assert sum(listener.is_behind for listener in listeners) in (1, 2)
        listeners[0].listen()
        for n in range(6, 12):
            broker.publish({"a": n, "pad": "x" * 1000})
        assert all(listener.is_behind for listener in listeners)
        for listener in listeners:
            broker.hub.leave(listener)
        assert broker.hub._load._n == 0
