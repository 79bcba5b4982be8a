"""Deltas: the effect of changes in every state of an index, before and after they are merged; without Spark."""

from __future__ import annotations

import json
import os
import random
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from siftline import Store
from siftline.errors import SnapshotError, SparkError
from siftline.model import Timestamp
from siftline.spark.changes import apply, compact
from siftline.spark.directory.claims import claim
from siftline.spark.directory.deltas import read_delta
from siftline.spark.directory.draft import Draft
from siftline.spark.directory.layout import delta_file, delta_numbers
from siftline.spark.directory.state import State, state_of
from siftline.spark.directory.versions import IndexDirectory
from siftline.spark.worker.live import engines_of
from spark.changing import Model, expression, tree
from spark.directories import directory

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_000_000


def found(path: Any, state: State, trees: list[dict[str, Any]]) -> list[list[Any]]:
    """Return the ids that the engines of a state find for each event."""
    ids: list[list[Any]] = [[] for _ in trees]
    for engine in engines_of(str(path), state):
        now = Timestamp(state.time * 1000)
        events = engine.encode([json.dumps(each) for each in trees], now=now)
        table = engine.match_batch(events, top=None, threads=1, weights=False, now=now)
        for event, id in zip(table["event"].to_pylist(), table["subscription"].to_pylist(), strict=True):
            ids[event].append(id)
    return [sorted(each) for each in ids]


def first_rows(chance: random.Random, n: int = 15) -> list[tuple[int, str, float]]:
    return [(id, expression(chance), float(chance.randrange(4))) for id in range(n)]


@pytest.mark.parametrize("seed", range(8))
def test_every_state_is_that_of_the_model(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    rows = first_rows(chance)
    groups = [rows] if seed % 2 else [rows[:7], rows[7:]]
    path = directory(tmp_path / "index", *groups, pivots=None)
    model = Model(rows, seed)
    trees = [tree(chance) for _ in range(12)]
    states = [State(1, 0, NOW)]
    for step in range(25):
        now = NOW + step * 10
        if chance.random() < 0.8:
            model.change(path, now)
        if chance.random() < 0.2:
            compact(path, now=now)
        states.append(state_of(path)._replace(time=now + chance.randrange(10)))
        # The newest, and one that a stream may repeat; its version is still there.
        for state in (states[-1], chance.choice(states[-3:])):
            assert found(path, state, trees) == model.matches(state, trees)
    last = compact(path, now=now + 10)
    state = State(last.version, last.delta, now + 10)
    assert last.subscriptions == len(model.rows(state))
    assert found(path, state, trees) == model.matches(state, trees)


def test_a_shard_is_visited_for_added_subscriptions(tmp_path: Path) -> None:
    groups = [[(1, "a = 1", 1.0)], [(2, "b = 1 and c = 1", 1.0), (3, "b = 2", 1.0)]]
    path = directory(tmp_path / "index", *groups, pivots=[["a"], ["b"]])
    texts = ["b = 3 and a = 1", "d = 1 and e = 2", "not exists f", "a = 2 or b = 2"]
    apply(path, [{"subscription": 10 + number, "expression": text} for number, text in enumerate(texts)])
    new = compact(path)
    places = {id: shard for shard in new.shards for id in engine_ids(shard)}
    for id, attributes in {10: "ab", 11: "de", 13: "ab"}.items():
        assert places[id].is_always or set(places[id].pivots) & set(attributes)
    assert places[12].is_always
    assert sum(shard.subscriptions for shard in new.shards) == new.subscriptions == 7


def test_the_only_shard_is_visited_for_added_subscriptions(tmp_path: Path) -> None:
    path = directory(tmp_path / "index", [(1, "a = 1", 1.0)], pivots=[["a"]])
    apply(path, [{"subscription": 2, "expression": "b = 1"}])
    (shard,) = compact(path).shards
    assert (shard.pivots, shard.is_always) == (("a", "b"), False)
    apply(path, [{"subscription": 3, "expression": "a is null"}])
    assert compact(path).shards[0].is_always


def engine_ids(shard: Any) -> list[Any]:
    from siftline import Engine

    return Engine.open(shard.path).ids()


def test_invalid_changes_are_refused_with_the_reason(tmp_path: Path) -> None:
    path = directory(tmp_path / "index", [(1, "a = 1", 1.0)])
    rows: list[dict[str, Any]] = [
        {"subscription": "x", "expression": "a = 1"},
        {"subscription": None, "expression": "a = 1"},
        {"subscription": 2, "expression": "a ="},
        {"subscription": 3},
        {"subscription": 4, "expression": "a = 1", "weight": float("nan")},
        {"subscription": 5, "expression": "a = 1", "expires": datetime(2026, 1, 1)},
        {"subscription": 5, "expression": "a = 1", "expires": "tomorrow"},
        {"change": "rename", "subscription": 6},
        {"subscription": 7, "pattern": '{"a": [2]}'},
        {"subscription": 8, "expression": "a = 2", "expires": datetime.now(UTC) + timedelta(hours=1)},
        {"subscription": 9, "expression": "a = 2", "expires": "2126-01-01T00:00:00+01:00"},
        {"subscription": 10, "expression": "a = 2", "expires": "2016-01-01T00:00:00Z"},
    ]
    delta = apply(path, rows)
    reasons = [refused.reason for refused in delta.refused]
    for reason, words in zip(
        reasons, ["integers", "null", "column", "null", "weight", "time zone", "tomorrow", "rename"], strict=True
    ):
        assert words in reason
    assert [change[1] for change in delta.changes] == [7, 8, 9, 10]
    assert read_delta(tmp_path / "index", 1) == delta
    assert found(path, state_of(path), [{"a": 1}, {"a": 2}]) == [[1], [7, 8, 9]]


def test_ids_of_changes_may_stand_for_plain_ones(tmp_path: Path) -> None:
    path = directory(tmp_path / "index", [(1, "a = 1", 1.0)])
    apply(
        path, [{"subscription": np.int64(1), "change": "remove"}, {"subscription": np.int64(2), "expression": "a = 2"}]
    )
    state = state_of(path)
    assert found(path, state, [{"a": 1}, {"a": 2}]) == [[], [2]]


def test_nothing_to_apply_makes_no_delta(tmp_path: Path) -> None:
    path = directory(tmp_path / "index", [(1, "a = 1", 1.0)])
    assert apply(path, []).number == 0
    assert apply(path, pa.table({"subscription": [2], "expression": ["b = 1"]})).number == 1
    assert delta_numbers(tmp_path / "index") == [1]
    with pytest.raises(ValueError, match="go together"):
        apply(path, [], source="store")


def test_changes_of_a_store_are_applied_once(tmp_path: Path) -> None:
    path = directory(tmp_path / "index", [("old", "a = 1", 1.0)])
    with Store(tmp_path / "s.db") as store:
        store.add("a = 1", "ann")
        store.add({"a": [1]}, "bob", dialect="eventbridge")
        store.remove("ann")
        for _ in range(2):
            apply(path, list(store.changes(0)), source="store", sequence=store.sequence)
    assert delta_numbers(tmp_path / "index") == [1]
    assert found(path, state_of(path), [{"a": 1}]) == [["bob", "old"]]
    compact(path)
    assert apply(path, [{"subscription": "x", "expression": "a = 1"}], source="store", sequence=3).changes == []
    assert apply(path, [], source="store", sequence=4).number == 2


def test_of_changes_that_come_again_with_new_ones_the_new_ones_are_applied(tmp_path: Path) -> None:
    """As when a stream begins again without its checkpoint."""
    path = directory(tmp_path / "index", [("old", "a = 1", 1.0)])
    with Store(tmp_path / "s.db") as store:
        store.add("a = 1", "ann")
        apply(path, list(store.changes(0)), source="store", sequence=1)
        apply(path, [{"change": "remove", "subscription": "ann"}])
        store.add("a = 1", "bob")
        delta = apply(path, list(store.changes(0)), source="store", sequence=2)
    assert [change[1] for change in delta.changes] == ["bob"]
    bad = [{"sequence": 2, "expression": "a"}, {"sequence": 3, "expression": "a"}]
    assert len(apply(path, bad, source="store", sequence=3).refused) == 1
    assert len(apply(path, bad).refused) == 2
    assert found(path, state_of(path), [{"a": 1}]) == [["bob", "old"]]


def test_many_at_a_time(tmp_path: Path) -> None:
    """Every delta has a number of its own, and compacting meanwhile loses none."""
    path = directory(tmp_path / "index", [(0, "a = 1", 1.0)])

    def work(first: int) -> None:
        for number in range(10):
            apply(path, [{"subscription": first + number, "expression": "a = 1"}])

    threads = [threading.Thread(target=work, args=(first,)) for first in (100, 200, 300)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        compact(path)
    for thread in threads:
        thread.join()
    assert state_of(path).delta == 30
    assert len(found(path, state_of(path), [{"a": 1}])[0]) == 31
    assert compact(path).subscriptions == 31


def test_one_compaction_at_a_time(tmp_path: Path) -> None:
    path = directory(tmp_path / "index", [(0, "a = 1", 1.0)])
    with Draft(path), pytest.raises(SparkError, match="nothing was changed"):
        compact(path)
    assert compact(path).version == 1  # nothing to do


def test_compiling_anew_replaces_all_changes_before(tmp_path: Path) -> None:
    path = directory(tmp_path / "index", [(1, "a = 1", 1.0)])
    apply(path, [{"subscription": 2, "expression": "a = 1"}])
    directory(tmp_path / "index", [(3, "a = 1", 1.0)])
    apply(path, [{"subscription": 4, "expression": "a = 1"}])
    assert found(path, state_of(path), [{"a": 1}]) == [[3, 4]]
    assert found(path, State(1, 1, NOW), [{"a": 1}]) == [[1, 2]]


def test_versions_that_streams_need_are_kept(tmp_path: Path) -> None:
    path = directory(tmp_path / "index", [(1, "a = 1", 1.0)])
    apply(path, [{"subscription": 2, "expression": "a = 1"}])
    claimed = claim(path, "query", 7)
    for number in range(6):
        apply(path, [{"subscription": 10 + number, "expression": "a = 1"}])
        compact(path, keep=timedelta(0))
    assert claim(path, "query", 7) == claimed
    assert found(path, claimed, [{"a": 1}]) == [[1, 2]]
    assert sorted(int(each.name) for each in (tmp_path / "index" / "versions").iterdir()) == [1, 5, 6, 7]
    for batch in (8, 9):
        claim(path, "query", batch)
    apply(path, [{"subscription": 20, "expression": "a = 1"}])
    compact(path, keep=timedelta(0))
    assert sorted(int(each.name) for each in (tmp_path / "index" / "versions").iterdir()) == [6, 7, 8]
    assert delta_numbers(tmp_path / "index") == [7, 8]


def test_time_does_not_go_back_in_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = directory(tmp_path / "index", [(1, "a = 1", 1.0)])
    first = claim(path, "query", 1)
    monkeypatch.setattr("time.time_ns", lambda: 5000)
    assert claim(path, "query", 2) == first
    assert claim(path, "other", 1).time == 5


def test_subscriptions_do_not_go_back_in_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a mounted file system shows may be older than what another machine has seen."""
    path = directory(tmp_path / "index", [(1, "a = 1", 1.0)])
    before = state_of(path)
    apply(path, [{"subscription": 2, "expression": "a = 1"}])
    first = claim(path, "query", 1)
    monkeypatch.setattr("siftline.spark.directory.claims.state_of", lambda _: before._replace(time=first.time + 5))
    assert claim(path, "query", 2) == first._replace(time=first.time + 5)
    assert claim(path, "other", 1).delta == 0


def test_streams_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    path = directory(tmp_path / "index", [(1, "a = 1", 1.0)])
    claim(path, "query", 1)
    os.utime(tmp_path / "index" / "streams" / "query" / "1.json", (0, 0))
    apply(path, [{"subscription": 2, "expression": "a = 1"}])
    compact(path)
    assert list((tmp_path / "index" / "streams").iterdir()) == []


def test_damage_is_named(tmp_path: Path) -> None:
    path = directory(tmp_path / "index", [(1, "a = 1", 1.0)])
    apply(path, [{"subscription": 2, "expression": "a = 1"}, {"subscription": 3, "expression": "a = 1", "expires": 9}])
    file = delta_file(tmp_path / "index", 1)
    content = file.read_text()
    file.write_text(content.replace("a = 1", "a = 2"))
    with pytest.raises(SnapshotError, match=r"1\.json is damaged"):
        engines_of(path, State(1, 1, NOW))
    file.unlink()
    with pytest.raises(SnapshotError, match="lacks its delta 1"):
        engines_of(path, State(1, 1, NOW))
    file.write_text(content)
    new = compact(path, now=5)
    (new.folder / "ends.arrow").write_bytes(b"x")
    with pytest.raises(SnapshotError, match=r"ends\.arrow"):
        _ = IndexDirectory.open(path).ends


def test_the_best_are_found_among_the_remaining_ones(tmp_path: Path) -> None:
    path = directory(tmp_path / "index", [(id, "a = 1", float(id)) for id in range(10)])
    apply(path, [{"change": "remove", "subscription": id} for id in (9, 7)])
    engines = engines_of(path, state_of(path))
    now = Timestamp(0)
    table = engines[0].match_batch(engines[0].encode(['{"a": 1}'], now=now), top=2, threads=1, weights=True, now=now)
    assert table["subscription"].to_pylist()[:2] == [8, 6]
