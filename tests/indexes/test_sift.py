"""`sift`: trees, blocks, and what stands in them."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import N_EXAMPLES
from hypothesis import HealthCheck, given, settings
from test_against_scan import check_property, lists_of_events, lists_of_subscriptions, run_machine

from siftline import Engine, Statistics
from siftline.errors import TooLargeError
from siftline.indexes.sift import index as sift
from siftline.indexes.sift.arrays import Cuts
from siftline.indexes.sift.layout_kernels import MORE, SLOT, guided_ordinal, lay_guides
from siftline.indexes.sift.list_kernels import N_WAITING

if TYPE_CHECKING:
    from siftline.model import Expression


def part_of(engine: Engine) -> Any:
    return engine._state.index._parts[0]  # type: ignore[attr-defined]


_ALL = 1 << 30


@pytest.fixture(params=[(0, 0, 254), (1, _ALL, 254), (0, 0, 2), (_ALL, 0, 254), (_ALL, 0, 2)])
def few_in_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make even small attributes get trees or pools, which else take many subscriptions; and let them share lanes."""
    n_flat, busy, n_lanes = request.param
    monkeypatch.setattr(sift, "_TREE_POSTINGS", n_flat)
    monkeypatch.setattr(sift, "_POOL_PASSING", busy)
    monkeypatch.setattr(sift, "_MOST_LANES", n_lanes)
    monkeypatch.setattr(sift, "_OWN_LANES", n_lanes // 2)


@pytest.mark.usefixtures("few_in_blocks")
@settings(max_examples=N_EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(expressions=lists_of_subscriptions, trees=lists_of_events)
def test_trees_find_what_scan_finds(expressions: list[Expression], trees: list[dict[str, Any]]) -> None:
    check_property("sift", expressions, trees)


@pytest.mark.usefixtures("few_in_blocks")
def test_state_machine_with_trees() -> None:
    run_machine("sift", 10, 30)


@pytest.mark.parametrize("n", [1, 29, 30, 31, 32, 61, 62, 63, 94, 95, 127])
def test_blocks_of_all_lengths(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signatures are looked at a cache line at a time; the first line has two less."""
    monkeypatch.setattr(sift, "_POOL_PASSING", _ALL)
    log = [{f"b{i}": 1 for i in range(n)}] * 20 + [{"a": 0}]
    subscriptions = [(i, f"a >= {i} and b{i} = 1") for i in range(n)] + [(n, "a is not null")]
    engine, reference = Engine("sift", statistics=Statistics.from_events(log)), Engine("fast-scan")
    for each in (engine, reference):
        each.add_many(subscriptions)
    engine.rebuild()
    arrays = part_of(engine).arrays
    assert arrays.flat[arrays.blocks.max()] == n + 1
    events: list[dict[str, int]] = [{"a": n}, {"a": n // 2, **log[0]}, {"a": n, **log[0]}, log[0]]
    events += [{"a": n, f"b{i}": 1} for i in range(n)]
    for event in events:
        assert sorted(engine.match(event)) == sorted(reference.match(event))


def test_more_lines_of_blocks_than_wait_together() -> None:
    n = 2 * N_WAITING + 3
    engine = Engine("sift")
    engine.add_many([(i, f"a{i} = 1 and b <= {i % 5}") for i in range(n)])
    engine.rebuild()
    assert np.count_nonzero(part_of(engine).arrays.blocks >= 0) == n
    event = {f"a{i}": 1 for i in range(n)}
    assert sorted(engine.match(event | {"b": 0})) == list(range(n))
    assert sorted(engine.match(event | {"b": 3})) == [i for i in range(n) if i % 5 >= 3]
    assert engine.match(event) == []


def test_more_values_in_trees_than_wait_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ordinals are found for 64 values at a time, lists collected for 256; alone and in batches."""
    monkeypatch.setattr(sift, "_TREE_POSTINGS", 0)
    monkeypatch.setattr(sift, "_POOL_PASSING", _ALL)
    n = 2 * N_WAITING + 3
    engine = Engine("sift")
    engine.add_many([(i, f"a{i % n} between {i // n} and {i // n + 2} and b <= {i % 5}") for i in range(4 * n)])
    engine.rebuild()
    assert np.count_nonzero(np.diff(part_of(engine).arrays.node_bases) > 2) == n
    events = [{f"a{k}": (k + turn) % 7 for k in range(n - turn)} | {"b": turn} for turn in range(5)]
    expected = [
        [i for i in range(4 * n) if event["b"] <= i % 5 and 0 <= event.get(f"a{i % n}", -1) - i // n <= 2]
        for event in events
    ]
    assert [sorted(engine.match(event)) for event in events] == expected
    found = engine.match_batch(events).to_pylist()
    assert [sorted(row["subscription"] for row in found if row["event"] == e) for e in range(5)] == expected


def test_more_groups_and_rows_than_wait_together() -> None:
    """One list of many entries, whose rows have none, one or several literals that are left."""
    n = 64 * N_WAITING + 70
    numbers = np.arange(n)
    literals = [("a", "=", numbers, np.full(n, 7)), ("b", "<=", numbers, numbers)]
    for k in range(3):
        with_it = numbers[numbers % 4 > k]
        literals.append((f"c{k}", "<=", with_it, np.full(len(with_it), k + 1)))
    table = pa.concat_tables(
        pa.table(
            {"subscription": owners, "attribute": [name] * len(owners), "op": [op] * len(owners), "number": bounds}
        )
        for name, op, owners, bounds in literals
    )
    log = [{"b": 0, "c0": 0, "c1": 0, "c2": 0}] * 20 + [{"a": 7}]
    engine, reference = Engine("sift", statistics=Statistics.from_events(log)), Engine("fast-scan")
    for each in (engine, reference):
        each.add_many(table)
    engine.rebuild()
    assert np.diff(part_of(engine).arrays.node_starts).max() == n
    events = [{"a": 7, "b": b, "c0": c, "c1": c, "c2": c} for b in (0, 1, n // 2, n - 1, n) for c in (0, 1, 2, 3)]
    for event in [*events, {"a": 7, "b": 3}, {"a": 8, "b": 0}]:
        assert sorted(engine.match(event)) == sorted(reference.match(event))


@pytest.mark.parametrize("busy", [0, _ALL])
@pytest.mark.parametrize("n_flat", [0, _ALL])
def test_clauses_longer_than_rows(n_flat: int, busy: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows end after ten literals; what is left is tested by the clause. In trees, in pools, in blocks."""
    monkeypatch.setattr(sift, "_TREE_POSTINGS", n_flat)
    monkeypatch.setattr(sift, "_POOL_PASSING", busy)
    engine, reference = Engine("sift"), Engine("fast-scan")
    n_literals = 20
    for each in (engine, reference):
        for n in range(n_literals):
            parts = [f"a{i} <= {i + 3}" for i in range(n)] + [f"s{i} in ({i}, {n}, 90, 95, 99)" for i in range(n)]
            each.add(" and ".join([f"k = {n % 3}", *parts, f"(z is null or z <> {n})"]), id=n)
        each.add(" and ".join(f"s{i} in ({', '.join(map(str, range(i, 200, 3)))})" for i in range(9)), id=100)
    engine.rebuild()
    engine._check()
    arrays = part_of(engine).arrays
    blocks = [sift._block(arrays.flat, start) for start in arrays.blocks.tolist() if start >= 0]
    slots = np.concatenate([arrays.rows[arrays.cold], *(block[SLOT] for block in blocks)])
    assert 0 < np.count_nonzero(slots & MORE) < len(slots)
    full = {f"a{i}": i for i in range(n_literals)} | {f"s{i}": i for i in range(n_literals)}
    events: list[dict[str, Any]] = [full | {"k": k} for k in range(3)]
    events += [full | {"k": k, f"a{i}": 50} for k in range(3) for i in range(n_literals)]
    events += [full | {"k": k, f"s{i}": 1000} for k in range(3) for i in range(n_literals)]
    events += [full | {"k": 1, "z": z} for z in range(n_literals)] + [full | {"k": [0, 1, 2], "a7": [100, 7]}]
    for event in events:
        assert sorted(engine.match(event)) == sorted(reference.match(event))
    batch = engine.match_batch(events)
    found = sorted(zip(batch["event"].to_pylist(), batch["subscription"].to_pylist(), strict=True))
    assert found == sorted((number, id) for number, event in enumerate(events) for id in reference.match(event))


def test_a_set_has_one_entry_in_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sift, "_POOL_PASSING", 0)
    engine = Engine("sift")
    engine.add_many((n, f"a in ({n}, {n + 2}, {n + 9}) and b > {n}") for n in range(40))
    engine.rebuild()
    engine._check()
    arrays = part_of(engine).arrays
    assert len(arrays.cold) == 40
    assert len(arrays.flat) == 0
    assert sorted(engine.match({"a": 11, "b": 99})) == [2, 9, 11]
    assert sorted(engine.match({"a": [11, 13], "b": 99})) == [2, 4, 9, 11, 13]
    assert engine.match({"a": 11, "b": 1}) == []
    assert "2 attributes with trees, 2 of them a single list: 40 entries" in engine.describe()


def test_many_values_look_at_a_pool_once() -> None:
    engine = Engine("sift")
    engine.add_many((n, f"tag = {7 * n} and b = 1") for n in range(100))
    engine.rebuild()
    assert len(part_of(engine).arrays.cold) == 100
    n_before = engine.stats()["candidates_examined"]
    assert len(engine.match({"tag": list(range(300)), "b": 1})) == 43
    assert engine.stats()["candidates_examined"] - n_before <= 100


def test_slots_without_room_for_flags_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sift, "N_SLOTS", 5)
    engine = Engine("sift")
    engine.add_many((n, "a = 1") for n in range(5))
    engine.rebuild()
    with pytest.raises(TooLargeError, match="5 subscriptions at most"):
        engine.add_many((n, f"b = {n}") for n in range(5, 5000))


@pytest.mark.parametrize("far", [(), (0,), (0, 2**31 - 3), (0, 1, 2**31 - 9, 2**31 - 8, 2**31 - 3)])
@pytest.mark.parametrize("n", [1, 2, 3, 50])
def test_guides_find_ordinals_however_cuts_are_spread(n: int, far: tuple[int, ...]) -> None:
    """Cuts of ranges without a bound are far away from the others."""
    rng = np.random.default_rng(n)
    for spacing in (1, 2, 4096):
        cuts = np.unique([*far, *(10**9 + spacing * rng.choice(2 * n, n, replace=False))]).astype(np.int32)
        starts = np.array([0, 0, len(cuts)])
        laid = Cuts(starts, cuts, *lay_guides(starts, cuts))
        if n == 50:
            assert np.diff(laid.guides[2:]).max() <= max(2, len(far))
        codes = np.unique([0, 1, 2**31 - 2, *(np.repeat(cuts.astype(np.int64), 3) + np.tile([-1, 0, 1], len(cuts)))])
        codes = codes[codes >= 0].astype(np.int32)
        found = [guided_ordinal(1, code, laid) for code in codes]
        assert found == np.searchsorted(cuts, codes, side="right").tolist()


def test_a_wide_range_is_posted_at_few_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sift, "_TREE_POSTINGS", 0)
    engine = Engine("sift")
    engine.add_many((n, f"a = {n}") for n in range(1000))
    engine.add("a between 1 and 998", id=5000)
    engine.rebuild()
    n_entries = len(part_of(engine).arrays.cold)
    assert n_entries < 1000 + 2 * np.log2(2048)
    assert sorted(engine.match({"a": 500})) == [500, 5000]
    assert engine.match({"a": 999}) == [999]


@pytest.mark.parametrize("n_values", [5, 20, 100, 70_000])
def test_marks_of_few_and_many_values(n_values: int) -> None:
    engine = Engine("sift")
    engine.add_many((n, f"a = {n % 5} and b > {n} and c in ({n}, {n + 2})") for n in range(n_values))
    engine.rebuild()
    engine._check()
    assert engine.match({"a": 3, "b": 4, "c": 3}) == [3]
    assert engine.match({"a": 3, "b": 4, "c": 4}) == []
    assert engine.match({"a": 3, "b": 3, "c": 3}) == []


def test_attributes_may_share_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sift, "_TREE_POSTINGS", 0)
    engine = Engine("sift")
    n_attributes = 1_000
    engine.add_many((n, f"a{n} = 1 and a{(n + 1) % n_attributes} > 5") for n in range(n_attributes))
    engine.rebuild()
    lanes = part_of(engine).arrays.lanes
    assert len(np.unique(lanes)) < 256 < n_attributes
    shared = 255
    assert sorted(engine.match({"a0": 1, "a1": 6, f"a{shared}": 1})) == [0]
    assert engine.match({"a0": 1, f"a{shared + 1}": 6}) == []
    assert sorted(engine.match({"a0": 1, "a1": 6, f"a{shared}": 1, f"a{shared + 1}": 7})) == [0, shared]


def test_a_clause_of_one_literal_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sift, "_TREE_POSTINGS", 64)
    engine = Engine("sift")
    engine.add_many((n, f"a > {n}") for n in range(100))
    engine.add("a > 3 or b = 1", id=1000)
    engine.rebuild()
    engine._check()
    assert len(part_of(engine).arrays.cold) == 0
    assert sorted(engine.match({"a": 10})) == [*range(10), 1000]
    assert sorted(engine.match({"a": [2, 10]})) == [*range(10), 1000]
    engine.remove(7)
    assert sorted(engine.match({"a": 10})) == [*range(7), 8, 9, 1000]


def test_statistics_choose_the_access_literal() -> None:
    log = [{"common": 1, "rare": n} for n in range(50)]
    engine = Engine("sift", statistics=Statistics.from_events(log))
    engine.add("common = 1 and rare = 3", id=1)
    engine.rebuild()
    assert part_of(engine).arrays.blocks.tolist() == [-1, 0]


def test_several_values_take_the_careful_way() -> None:
    engine = Engine("sift")
    engine.add("a > 3 and a < 5 and b = 1", id=1)
    assert engine.match({"a": [1, 9], "b": 1}) == [1]
    assert engine.match({"a": [1, 2], "b": 1}) == []
    assert engine.match({"a": 4, "b": [1, 1]}) == [1]


def test_more_values_than_there_is_room_for_take_the_careful_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attributes that only newer subscriptions ask for are unknown to a part."""
    monkeypatch.setattr(sift, "_MOST_UNKNOWN", 0)
    engine = Engine("sift")
    engine.add_many((n, f"a = {n % 3} and b <= {n}") for n in range(500))
    engine.rebuild()
    for n in range(20):
        engine.add(f"c{n} = 1", id=1000 + n)
    event = {"a": 1, "b": 490} | {f"c{n}": 1 for n in range(20)}
    expected = [490, 493, 496, 499, *range(1000, 1020)]
    assert sorted(engine.match(event)) == sorted(engine.match(engine.encode(event))) == expected
    assert sorted(engine.match_batch([event])["subscription"].to_pylist()) == expected


@pytest.mark.usefixtures("few_in_blocks")
@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 64, 97])
def test_a_batch_finds_what_its_events_find_wherever_they_stand(n: int) -> None:
    """Values are placed for groups of events, and an event is tested when the next one has been found."""
    engine = Engine("sift")
    engine.add_many((k, f"a = {k % 7} and b <= {k} and c between {k % 5} and {k % 5 + 3}") for k in range(300))
    engine.add_many([(1000, "a = 3"), (1001, "d = 1 and a > 3"), (1002, "a = 1 or b = 2"), (1003, "not (a = 1)")])
    engine.rebuild()
    events: list[dict[str, Any]] = [{"a": k % 7, "b": 290 - k, "c": k % 9, "d": k % 2} for k in range(n)]
    for k in {0, 30, 31, 32, 33, 63, 64, 96} & set(range(n)):
        events[k]["a"] = [k % 7, (k + 1) % 7]
    for k in {5, 29, 62} & set(range(n)):
        events[k] = {}
    table = engine.match_batch(events, threads=1)
    found = sorted(zip(table["event"].to_pylist(), table["subscription"].to_pylist(), strict=True))
    assert found == sorted((k, id) for k, event in enumerate(events) for id in engine.match(event))


def test_sets_and_vetoes_in_rows() -> None:
    engine = Engine("sift")
    engine.add("a = 1 and b in (1, 5, 9) and c not in (2, 3) and d is null", id=1)
    assert engine.match({"a": 1, "b": 5, "c": 4}) == [1]
    assert engine.match({"a": 1, "b": 4, "c": 4}) == []
    assert engine.match({"a": 1, "b": 9, "c": 3}) == []
    assert engine.match({"a": 1, "b": 9, "c": 4, "d": 0}) == []


def test_work_is_counted() -> None:
    engine = Engine("sift")
    engine.add_many((n, f"a = {n}") for n in range(10))
    engine.rebuild()
    engine.match(engine.encode({"a": 3}))
    stats = engine.stats()
    assert (stats["events"], stats["lists_scanned"], stats["candidates_examined"]) == (1, 1, 10)


def test_workspaces_go_with_their_part() -> None:
    engine = Engine("sift")
    engine.add("a = 1", id=1)
    engine.rebuild()
    engine.match({"a": 1})
    old = weakref.ref(part_of(engine).workspaces[threading.get_ident()])
    engine.add("a = 2", id=2)
    engine.rebuild()
    gc.collect()
    assert old() is None
    assert pickle.loads(pickle.dumps(engine)).match({"a": 2}) == [2]


def test_workspaces_of_threads_that_ended_are_cleared_away() -> None:
    engine = Engine("sift")
    engine.add("a = 1", id=1)
    engine.rebuild()
    ready = threading.Barrier(4)

    def match() -> None:
        ready.wait()  # all at once, so that none gets the number of another one
        engine.match({"a": 1})

    threads = [threading.Thread(target=match) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.match({"a": 1})
    assert part_of(engine).workspaces.keys() == {threading.get_ident()}


def test_what_places_in_rows_cannot_count_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine("sift")
    engine.add_many((i, f"a = {i} and b = {i}") for i in range(150))
    monkeypatch.setattr("siftline.indexes.sift.index._MOST_WORDS", 2000)
    with pytest.raises(TooLargeError, match="add fewer subscriptions at a time"):
        engine.add_many((i, f"a = {i} and b = {i}") for i in range(1000, 2000))
    engine.add_many((i, f"a = {i} and b = {i}") for i in range(1000, 1150))
    engine.rebuild()
    engine._check()
    assert engine.match({"a": 1100, "b": 1100}) == [1100]


@pytest.mark.slow
def test_processors_without_shuffles() -> None:
    """Kernels compiled for any processor take candidates one by one; that must be seen where shuffles are there too."""
    environment = os.environ | {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", __file__]
    subprocess.run(command, env=environment, check=True)


def test_one_heavy_event_among_many_in_a_batch() -> None:
    engine = Engine("sift")
    engine.add_many([(i, f"a = 1 and b >= {i}") for i in range(30_000)] + [(30_000, "c = 1")])
    table = engine.match_batch([{"a": 1, "b": 29_999}, *[{"c": 1}] * 5000, {"a": 1, "b": 9}], threads=1)
    found = np.bincount(table["event"].to_numpy())
    assert found[[0, 5001]].tolist() == [30_000, 10]
    assert (found[1:5001] == 1).all()
