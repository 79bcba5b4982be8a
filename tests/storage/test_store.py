"""Durable subscriptions: they are kept as written and in order, and can be loaded into any engine."""

from __future__ import annotations

import sqlite3
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from strategies import events, subscriptions

from siftline import Engine, Store, SubscriptionError, parse
from siftline.errors import DuplicateIdError, StoreError, UnknownIdError
from siftline.storage.migrations import APPLICATION_ID, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from siftline.model import Expression

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "subscriptions.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store(path) as store:
        yield store


def kinds(store: Store, since: int = 0) -> list[tuple[int, str, Any]]:
    return [(change.sequence, change.kind, change.id) for change in store.changes(since)]


def add_all(store: Store, ids: list[Any], removed: tuple[Any, ...] | list[Any] = ()) -> None:
    with store.batch() as batch:
        for id in removed:
            batch.remove(id)
        for id in ids:
            batch.add("a = 2", id)


def test_everything_is_kept_as_written(store: Store, path: Path) -> None:
    sources = {
        "spaces": ("text", "  price   <=  580 AND\n\tname = 'Zo\u00eb \U0001f600 \0 \ud800'"),
        "pattern": ("eventbridge", '{ "size": [ {"numeric": [">", 9.0]} ],\n "size": ["x"] }'),
        "policy": ("sns", '{"store":["a"]}'),
        "filters": ("cloudevents", '[{"prefix": {"type": "com."}}]'),
    }
    for id, (dialect, text) in sources.items():
        store.add(text, id, weight=2.5, owner="ann", expires=NOON + 9000 * HOUR, dialect=dialect)
    store.close()
    with Store(path) as again:
        for id, (dialect, text) in sources.items():
            found = again.get(id)
            assert (found.id, found.written) == (id, (dialect, text))
            assert (found.weight, found.owner, found.expires) == (2.5, "ann", NOON + 9000 * HOUR)
        assert [each.id for each in again.subscriptions(owner="ann")] == list(sources)
        assert list(again.subscriptions(owner="bob")) == []
        assert again.verify() == []


def test_expressions_and_parsed_json_are_written_out(store: Store) -> None:
    store.add(parse("a = 1 and b > 2"), 1)
    store.add({"a": ["x"]}, 2, dialect="eventbridge")
    store.add([{"exact": {"type": "x"}}], 3, dialect="cloudevents")
    assert [each.written.text for each in store] == ["a = 1 and b > 2", '{"a": ["x"]}', '[{"exact": {"type": "x"}}]']


@pytest.mark.parametrize(
    ("arguments", "options", "reason"),
    [
        (("price <", 1), {}, "expected"),
        (("a = 1", True), {}, "an id must be"),
        (("a = 1", 2**63), {}, "64 bits"),
        (("a = 1", "\ud800"), {}, "surrogate"),
        (("a = 1", 1), {"weight": float("nan")}, "finite"),
        (("a = 1", 1), {"weight": 10**400}, "finite"),
        (("a = 1", 1), {"owner": 5}, "an owner must be"),
        (("a = 1", 1), {"expires": datetime(2030, 1, 1)}, "time zone"),
        (("a = 1", 1), {"dialect": "sql"}, "unknown dialect"),
        (('{"a": 1}', 1), {"dialect": "eventbridge"}, "expected an array"),
        ((7, 1), {}, "must be text"),
    ],
)
def test_refused_changes_leave_no_trace(
    store: Store, arguments: tuple[Any, ...], options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(SubscriptionError, match=reason):
        store.add(*arguments, **options)
    assert (len(store), store.sequence) == (0, 0)


def test_ids_are_of_one_kind_for_ever(store: Store) -> None:
    store.add("a = 1", 1)
    with pytest.raises(SubscriptionError, match="is a string"):
        store.add("a = 1", "x")
    store.remove(1)
    with pytest.raises(SubscriptionError, match="is a string"):
        add_all(store, [2, "x"])
    assert len(store) == 0


def test_the_feed_has_all_changes(store: Store) -> None:
    assert store.add("a = 1", 1, expires=NOON) == 1
    assert store.add("a = 2", 2) == 2
    assert store.replace(1, "a = 3", weight=7.0) == 3
    assert store.renew(1, NOON + HOUR) == 4
    assert store.remove(2) == 5
    assert store.expire(NOON + HOUR) == 1
    assert kinds(store) == [
        (1, "added", 1),
        (2, "added", 2),
        (3, "replaced", 1),
        (4, "renewed", 1),
        (5, "removed", 2),
        (6, "expired", 1),
    ]
    third = next(iter(store.changes(2)))
    assert third.subscription is not None
    assert (third.subscription.written.text, third.subscription.weight, third.subscription.expires) == (
        "a = 3",
        7,
        NOON,
    )
    assert kinds(store, 6) == []


def test_expired_subscriptions_are_hidden(store: Store) -> None:
    past = datetime.now(UTC) - HOUR
    store.add("a = 1", 1, expires=past)
    store.add("a = 1", 2)
    engine = Engine()
    store.load_into(engine)
    assert (len(store), 1 in store, engine.ids(), [each.id for each in store]) == (1, False, [2], [2])
    assert store.next_expiry() == past
    for attempt in (store.get, store.remove, lambda id: store.replace(id, "a = 2")):
        with pytest.raises(UnknownIdError):
            attempt(1)
    store.add("a = 5", 1)  # the id is free again
    assert kinds(store, 2) == [(3, "expired", 1), (4, "added", 1)]
    assert store.expire() == 0


def test_batches_are_atomic(store: Store) -> None:
    store.add("a = 1", 1)
    with pytest.raises(DuplicateIdError):
        add_all(store, [2, 3, 2], removed=[1])
    with pytest.raises(UnknownIdError):
        add_all(store, [2], removed=[3])
    with pytest.raises(SubscriptionError):
        add_all(store, [2, None])
    with store.batch():
        pass
    assert kinds(store) == [(1, "added", 1)]
    with store.batch() as batch:
        batch.remove(1)
        batch.add("a = 9", 1, owner="new")
        batch.renew(1, NOON)
        batch.replace(1, "a = 8", expires=None)
    assert [kind for _, kind, _ in kinds(store)] == ["added", "removed", "added", "renewed", "replaced"]
    assert (store.get(1).owner, store.get(1).expires) == ("new", None)


def test_engines_follow(store: Store) -> None:
    store.add("a = 1", "x", weight=3.0, owner="ann")
    store.add("a > 0", "y")
    engine = Engine("sift")
    sequence = store.load_into(engine, by_owner=True)
    assert engine.match({"a": 1}, top=1) == ["x"]
    assert engine.match({"a": 1}, tenant="ann") == ["x"]
    store.replace("y", "a > 5")
    store.remove("x")
    store.add("a = 1", "z", owner="bob")
    store.add("a = 1", "gone")
    store.remove("gone")
    assert store.follow(engine, sequence, by_owner=True) == 7
    assert engine.match({"a": 1}) == ["z"] == engine.match({"a": 1}, tenant="bob")
    # Twice, or from the beginning, is the same.
    assert store.follow(engine, 7) == 7
    assert store.follow(engine, sequence) == 7
    assert sorted(engine.ids()) == ["y", "z"]
    fresh = Engine()
    assert store.follow(fresh, 0) == 7
    assert sorted(fresh.ids()) == ["y", "z"]


def test_compaction_keeps_what_readers_need(store: Store) -> None:
    engine = Engine()
    for id in range(4):
        store.add(f"a = {id}", id)
    sequence = store.load_into(engine)
    store.acknowledge("pipeline", sequence)
    store.remove(0)
    store.replace(1, "a = 10")
    store.remove(2)
    store.add("a = 5", 5)
    assert store.compact() == 0 + 3  # the additions of 0, 1 and 2 are superseded, and the reader has seen them
    assert store.readers() == {"pipeline": 4}
    assert store.follow(engine, sequence) == 8
    fresh = Engine()
    store.follow(fresh, 0)
    assert sorted(engine.ids()) == sorted(fresh.ids()) == [1, 3, 5]
    store.acknowledge("pipeline", 8)
    assert store.compact() == 2
    assert kinds(store) == [(4, "added", 3), (6, "replaced", 1), (8, "added", 5)]
    with pytest.raises(StoreError, match="compacted"):
        store.follow(engine, 3)
    with pytest.raises(StoreError, match="a reader can be at"):
        store.acknowledge("pipeline", 7)
    with pytest.raises(StoreError, match="changes were lost"):
        store.follow(engine, 9)
    store.forget_reader("pipeline")
    with pytest.raises(UnknownIdError):
        store.forget_reader("pipeline")
    store.remove(5)
    assert store.compact() == 2
    store.add("a = 1", 9)
    assert kinds(store)[-1] == (10, "added", 9)  # numbers are never given out again
    assert store.verify() == []


def size(path: Path) -> int:
    return sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))


def test_renewals_do_not_copy_the_expression(store: Store, path: Path) -> None:
    text = " or ".join(f"a{n} = '{'v' * 40}'" for n in range(1000))
    store.add(text, 1, weight=3.0, owner="ann", expires=NOON)
    before = size(path)
    for n in range(300):
        store.renew(1, NOON + n * HOUR)
    assert size(path) - before < 10 << 20  # mostly SQLite's log, of pages; the texts alone would be 15 MB
    assert store.select("SELECT sum(length(text)) FROM changes") == [(len(text),)]
    *_, last = store.changes()
    assert (last.kind, last.subscription) == ("renewed", store.get(1, NOON))
    assert last.subscription is not None
    assert (last.subscription.written.text, last.subscription.expires) == (text, NOON + 299 * HOUR)
    assert (last.subscription.weight, last.subscription.owner) == (3.0, "ann")
    assert store.verify() == []
    assert store.compact() == 299
    assert kinds(store) == [(1, "added", 1), (301, "renewed", 1)]
    store.replace(1, "a = 1")
    assert store.compact() == 2
    assert store.get(1, NOON).written.text == "a = 1"


def test_a_reader_gets_the_content_of_a_renewal_that_it_has_not_seen(store: Store) -> None:
    store.add("a = 1", 1)
    store.acknowledge("slow", 1)
    store.renew(1, NOON)
    store.renew(1, NOON + HOUR)
    store.replace(1, "a = 2")
    store.remove(1)
    for compact in (store.compact, lambda: store.compact_some(100, reader="broker", seen=5, n_kept=0)):
        assert compact() == 0
        assert [each.subscription.written.text for each in store.changes(1) if each.subscription] == [
            "a = 1",
            "a = 1",
            "a = 2",
        ]
    store.acknowledge("slow", 3)
    assert store.compact() == 2 + 1  # both renewals, and the content
    assert kinds(store, 3) == [(4, "replaced", 1), (5, "removed", 1)]
    assert store.verify() == []


def test_a_running_broker_drops_superseded_changes(store: Store) -> None:
    for id in range(6):
        store.add(f"a = {id}", id)
    store.acknowledge("broker", 6)
    for id in range(3):
        store.replace(id, "a = 7")
    store.remove(3)
    store.add("a = 8", 3)

    def compacted(**options: Any) -> int:
        return store.compact_some(100, **{"reader": "broker", "seen": 11, "n_kept": 0, **options})

    assert compacted(seen=0) == 0
    assert compacted() == 4  # superseded content, also beyond the snapshot: whoever follows gets what came after
    engine = Engine()
    assert store.follow(engine, 0) == 11
    assert sorted(engine.ids()) == [0, 1, 2, 3, 4, 5]
    assert (10, "removed", 3) in kinds(store, 6)  # the snapshot needs it
    store.acknowledge("broker", 11)
    assert compacted(n_kept=5) == 0  # others may still want it
    assert compacted(n_kept=1) == 1
    with pytest.raises(StoreError, match="compacted"):
        store.follow(engine, 6)
    assert store.follow(engine, 11) == 11
    assert store.verify() == []


def test_a_store_is_whole_between_two_steps_of_compaction(tmp_path: Path) -> None:
    """A renewal refers to the change with the text: both go in the same step."""
    with Store(tmp_path / "store.db") as store:
        for id in range(5):
            store.add("a = 1", id)
            store.renew(id, NOON)
            store.replace(id, "a = 2")
        while store.compact_some(1, reader="broker", seen=store.sequence, n_kept=0):
            assert store.verify() == []
            assert {change.id for change in store.changes(0)} == set(range(5))


def test_the_change_of_a_live_subscription_is_never_dropped(store: Store) -> None:
    """Even if the list of what may go has been damaged."""
    store.add("a = 1", 1)
    store.renew(1, NOON + 9000 * HOUR)
    with sqlite3.connect(store.path) as connection:
        connection.executemany("INSERT INTO superseded VALUES (0, ?, ?)", [(1, 1), (2, 2)])
    connection.close()
    assert store.compact() == 0
    assert store.get(1, NOON).written.text == "a = 1"


def test_free_pages_are_given_back(store: Store, path: Path) -> None:
    text = f"a = '{'x' * 60_000}'"
    for id in range(300):
        store.add(text, id)
    with store.batch() as batch:
        for id in range(300):
            batch.remove(id)
    store.compact()
    store.close()
    large = size(path)
    with Store(path) as again:
        while again.compact_some(500, reader="broker", seen=600, n_kept=0):
            pass
        assert again.verify() == []
    assert large > 15 << 20
    assert size(path) < 6 << 20


def test_single_adds_of_many_threads_share_commits(store: Store) -> None:
    barrier = threading.Barrier(16)

    def add(first: int) -> None:
        barrier.wait()
        for id in range(first, first + 10):
            store.add(f"a = {id}", id)
            with pytest.raises(DuplicateIdError):
                store.add("a = 1", id)

    threads = [threading.Thread(target=add, args=(10 * n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.id for each in store) == list(range(160))
    assert store._writer is not None
    assert store._writer.n_transactions < 320


def test_readers_see_one_moment(store: Store) -> None:
    with store.batch() as batch:
        for id in range(10):
            batch.add("a = 1", id)
    reading = store.subscriptions()
    first = next(reading)
    store.remove(first.id)
    store.remove(9)
    assert 1 + len(list(reading)) == 10
    assert len(store) == 8


def made_by_version_1(path: Path, version: int = 1) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(
        "CREATE TABLE subscriptions (id PRIMARY KEY NOT NULL, dialect TEXT NOT NULL, text NOT NULL,"
        " weight REAL NOT NULL, owner TEXT, created INTEGER NOT NULL, expires INTEGER)"
    )
    rows = [
        ("b", "text", "a = 2", 1.0, None, 2_000_000, None),
        ("a", "text", "a  =  1", 2.0, "ann", 1_000_000, 4 * 10**15),
    ]
    connection.executemany("INSERT INTO subscriptions VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()


def test_a_store_of_version_1_becomes_a_new_one(path: Path) -> None:
    made_by_version_1(path)
    with pytest.raises(StoreError, match="older version"):
        Store(path, is_read_only=True)
    with Store(path) as store:
        assert kinds(store) == [(1, "added", "a"), (2, "added", "b")]
        assert store.get("a").written.text == "a  =  1"
        assert (store.get("a").owner, store.get("a").created) == ("ann", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
        assert store.verify() == []
        with pytest.raises(SubscriptionError, match="is an integer"):
            store.add("a = 1", 5)
        store.add("a = 3", "c")
    with Store(path) as store:
        assert len(store) == 3


def made_by_version_4(path: Path) -> None:
    """Leave a store as an older program does: without `content`, a renewal is a replacement by the same text."""
    with Store(path) as store:
        for id in range(50):
            store.add(f"a = {id} and t = '{'x' * 4000}'", id)
        for id in range(40):
            store.replace(id, f"a > {id}")
        store.remove(49)
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE superseded")
    connection.execute("ALTER TABLE changes DROP COLUMN content")
    connection.execute("PRAGMA user_version = 4")
    connection.execute("PRAGMA auto_vacuum = NONE")
    connection.execute("VACUUM")
    connection.close()


def test_a_store_of_version_4_is_migrated_and_can_shrink(path: Path) -> None:
    made_by_version_4(path)
    with Store(path) as store:
        assert store.select("PRAGMA auto_vacuum") == [(2,)]
        assert len(kinds(store)) == 91
        assert len(store) == 49
        store.renew(1, NOON + 9000 * HOUR)
        assert store.verify() == []
        assert store.compact() == 40 + 2
        assert store.get(1, NOON).written.text == "a > 1"
        assert store.verify() == []


def test_an_empty_file_is_a_store_of_version_0(path: Path) -> None:
    path.touch()
    with Store(path) as store:
        store.add("a = 1", 1)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
    connection.close()


def test_a_migration_that_fails_changes_nothing(path: Path) -> None:
    made_by_version_1(path)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE facts (x)")  # in the way
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match="facts"):
        Store(path)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    assert connection.execute("SELECT count(*) FROM subscriptions WHERE text = 'a = 2'").fetchone() == (1,)
    connection.close()


# Hypothesis writes strategies down now and then; these would be very long, but for their names.
@st.composite
def wanted(draw: st.DrawFn) -> Expression:
    return draw(subscriptions)


@st.composite
def happened(draw: st.DrawFn) -> dict[str, Any]:
    return draw(events)


class StoreMachine(RuleBasedStateMachine):
    """A store, an engine that follows it and one that is rebuilt, side by side with a dict."""

    folder: Path
    n = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).n += 1
        self.store = Store(self.folder / f"{self.n}.db")
        self.model: dict[int, Expression] = {}
        self.engine, self.sequence = Engine(), 0

    ids = st.integers(0, 5)

    @rule(id=ids, expression=wanted())
    def put(self, id: int, expression: Expression) -> None:
        if id in self.model:
            self.store.replace(id, expression)
        else:
            self.store.add(expression, id)
        self.model[id] = expression

    @rule(id=ids)
    def remove(self, id: int) -> None:
        if id in self.model:
            self.store.remove(id)
            del self.model[id]
        else:
            with pytest.raises(UnknownIdError):
                self.store.remove(id)

    @rule(chosen=st.dictionaries(ids, wanted(), max_size=4))
    def batch(self, chosen: dict[int, Expression]) -> None:
        with self.store.batch() as batch:
            for id, expression in chosen.items():
                if id in self.model:
                    batch.remove(id)
                batch.add(expression, id)
        self.model |= chosen

    @rule(is_acknowledged=st.booleans())
    def follow(self, is_acknowledged: bool) -> None:
        self.sequence = self.store.follow(self.engine, self.sequence)
        assert sorted(self.engine.ids()) == sorted(self.model)
        if is_acknowledged:
            self.store.acknowledge("engine", self.sequence)

    @rule()
    def compact(self) -> None:
        if "engine" not in self.store.readers():
            self.store.acknowledge("engine", self.sequence)
        self.store.compact()

    @rule(id=ids, expires=st.sampled_from([None, NOON, NOON + HOUR]))
    def renew(self, id: int, expires: datetime | None) -> None:
        if id in self.model:
            self.store.renew(id, expires)
            assert self.store.get(id, NOON - HOUR).expires == expires

    @rule(most=st.integers(1, 5), n_kept=st.integers(0, 6), is_exempt=st.booleans())
    def compact_some(self, most: int, n_kept: int, is_exempt: bool) -> None:
        reader = "engine" if is_exempt else "nobody"
        self.store.compact_some(most, reader=reader, seen=self.sequence, n_kept=n_kept)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = Store(self.store.path)

    @rule(event=happened())
    def match(self, event: dict[str, Any]) -> None:
        self.sequence = self.store.follow(self.engine, self.sequence)
        rebuilt, expected = Engine(), Engine("scan")
        assert self.store.load_into(rebuilt) == self.sequence == self.store.sequence
        expected.add_many(self.model.items())
        assert sorted(rebuilt.match(event)) == sorted(expected.match(event)) == sorted(self.engine.match(event))

    @invariant()
    def is_sound(self) -> None:
        assert self.store.verify() == []
        assert sorted(each.id for each in self.store) == sorted(self.model)

    def teardown(self) -> None:
        self.store.close()


def test_state_machine(tmp_path: Path) -> None:
    machine = type("Machine", (StoreMachine,), {"folder": tmp_path})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=15, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
