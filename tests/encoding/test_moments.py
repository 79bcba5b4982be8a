"""Times are compared alike on every path: dicts, JSON, Arrow columns of every kind, snapshots, encoded events."""

from __future__ import annotations

import datetime
import json
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import NOW, TIMES, moments

from siftline import Engine, Statistics, parse
from siftline.encoding import domain_tables
from siftline.encoding.json_events import json_lines
from siftline.language.builder import attr, now
from siftline.model import Event, Expression, Not, Now, Predicate, Timestamp, instant_of_text, matches

if TYPE_CHECKING:
    from pathlib import Path

INSTANT = instant_of_text(NOW)

comparisons = st.builds(Predicate, st.just("at"), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), moments)
betweens = st.builds(Predicate, st.just("at"), st.sampled_from(["between", "not between"]), st.tuples(moments, moments))
lists = st.builds(
    Predicate,
    st.just("at"),
    st.sampled_from(["in", "not in"]),
    st.lists(moments | st.sampled_from([TIMES[0], "x", 5, True]), max_size=3).map(tuple),
)
predicates = st.one_of(comparisons, betweens, lists)
conditions: st.SearchStrategy[Expression] = st.one_of(predicates, predicates.map(Not))
texts = st.sampled_from([*TIMES, "x", ""])
values = st.one_of(st.none(), texts, texts)


def filled(expressions: list[Expression]) -> Engine:
    engine = Engine()
    for number, expression in enumerate(expressions):
        engine.add(expression, id=number)
    return engine


def expected_pairs(expressions: list[Expression], trees: list[dict[str, Any]]) -> list[tuple[int, int]]:
    pairs = [(i, j) for i, tree in enumerate(trees) for j, each in enumerate(expressions) if holds(each, tree)]
    return sorted(pairs)


def holds(expression: Expression, tree: dict[str, Any]) -> bool:
    return matches(expression, Event(tree, INSTANT))


def pairs_of(engine: Engine, events: Any, **options: Any) -> list[tuple[int, int]]:
    table = engine.match_batch(events, now=NOW, **options)
    return sorted(zip(table["event"].to_pylist(), table["subscription"].to_pylist(), strict=True))


@settings(deadline=None)
@given(st.lists(conditions, min_size=1, max_size=8), st.lists(values, min_size=1, max_size=6))
def test_every_shape_of_strings(expressions: list[Expression], column: list[str | None]) -> None:
    engine = filled(expressions)
    trees = [{"at": value} for value in column]
    expected = expected_pairs(expressions, trees)
    array = pa.array(column, pa.string())
    assert pairs_of(engine, trees) == expected
    assert pairs_of(engine, "\n".join(map(json.dumps, trees)).encode()) == expected
    assert pairs_of(engine, engine.encode(trees)) == expected
    for shape in (array, array.cast(pa.large_string()), array.cast(pa.string_view()), array.dictionary_encode()):
        assert pairs_of(engine, pa.table({"at": shape})) == expected
    for tree in trees:
        found = sorted(j for j, each in enumerate(expressions) if holds(each, tree))
        assert sorted(engine.match(tree, now=NOW)) == found
        assert sorted(engine.match(json.dumps(tree), now=NOW)) == found


@settings(deadline=None)
@given(st.lists(conditions, min_size=1, max_size=8), st.lists(st.lists(values, max_size=3), min_size=1, max_size=4))
def test_arrays_maps_and_structs(expressions: list[Expression], rows: list[list[str | None]]) -> None:
    engine = filled(expressions)
    trees = [{"at": row} for row in rows]
    expected = expected_pairs(expressions, trees)
    assert pairs_of(engine, trees) == expected
    assert pairs_of(engine, "\n".join(map(json.dumps, trees)).encode()) == expected
    lists = pa.array(rows, pa.list_(pa.string()))
    assert pairs_of(engine, pa.table({"at": lists})) == expected
    assert pairs_of(engine, pa.table({"at": lists.cast(pa.list_(pa.dictionary(pa.int32(), pa.string())))})) == expected
    maps = pa.array([[("at", row), ("by", ["2026-01-31"])] for row in rows], pa.map_(pa.string(), lists.type))
    assert pairs_of(engine, maps) == expected
    single = pa.array([[("at", row[0] if row else None)] for row in rows], pa.map_(pa.string(), pa.string()))
    first = [{"at": row[0] if row else None} for row in rows]
    assert pairs_of(engine, single) == expected_pairs(expressions, first)
    assert pairs_of(engine, pa.array(first)) == expected_pairs(expressions, first)


@settings(deadline=None)
@given(
    st.lists(conditions, min_size=1, max_size=8),
    st.lists(st.none() | st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1)), min_size=1),
    st.sampled_from(["s", "ms", "us", "ns"]),
)
def test_timestamp_and_date_columns(expressions: list[Expression], column: list[Any], unit: str) -> None:
    column = [*column, datetime.datetime(2026, 1, 31, 10)]
    engine = filled(expressions)
    for type_ in (pa.timestamp(unit), pa.timestamp(unit, "Asia/Tokyo"), pa.date32()):
        array = pa.array(column, pa.timestamp("us")).cast(pa.timestamp(unit), safe=False).cast(type_, safe=False)
        trees = [{"at": value} for value in array.to_pylist()]
        table = pa.table({"at": array})
        assert pairs_of(engine, table) == pairs_of(engine, trees) == expected_pairs(expressions, trees)


def test_timestamp_columns_are_compared_without_writing_them_out(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = filled([parse("at > timestamp '1969-12-31T23:59:59.5Z'"), parse("at <= now()"), parse("at is not null")])
    moments = [-500_000_001, -500_000_000, 0, 10**18, None]
    with monkeypatch.context() as patch:
        for name in ("moment_texts", "date_texts"):
            patch.setattr(f"siftline.encoding.arrow_values.{name}", None)
        for unit, per_second in (("ns", 10**9), ("us", 10**6), ("s", 1)):
            column = [None if each is None else each * per_second // 10**9 for each in moments]
            table = pa.table({"at": pa.array(column, pa.int64()).cast(pa.timestamp(unit))})
            found = engine.match_batch(table, now=NOW).to_pydict()
            latest = [n for n, each in enumerate(column) if each is not None and 2 * each > -per_second]
            assert [event for event, id in zip(*found.values(), strict=True) if id == 0] == latest
        days = pa.table({"at": pa.array([-1, 0, 1], pa.int32()).cast(pa.date32())})
        assert engine.match_batch(days, now=NOW)["subscription"].to_pylist().count(0) == 2
    engine.add("at contains '1970' or at < '1970'", id=10)  # now the texts are needed
    assert pairs_of(engine, days) == pairs_of(engine, days.to_pylist())


@pytest.mark.parametrize("index", ["sift", "op-index", "be-tree"])
def test_lists_of_timestamps_and_other_constants_need_no_exact_check(index: str) -> None:
    engine = Engine(index)
    mixed = "at in (timestamp '2026-01-31T10:00:00Z', 'x', 3, true, now(), timestamp '2026-02-01')"
    engine.add_many([(1, mixed), (2, f"n = 1 and {mixed}"), (3, f"not ({mixed})"), (4, "at in (now(), 'y')")])
    clauses = engine._updates.joined_clauses()
    assert clauses.is_exact[clauses.slots != 2].all()
    oracle = Engine("scan")
    oracle.add_many([(id, engine.expression(id)) for id in engine.ids()])
    times = ["2026-01-31T11:00:00+01:00", "2026-02-01", "2026-02-01T00:00:00.1Z", "2026-03-01T00:00:00Z"]
    for value in (*times, "x", "y", 3, True, None, ["z", times[3]], [times[2], 4], []):
        event = {"at": value, "n": 1}
        found = sorted(engine.match(event, now="2026-03-01"))
        assert found == sorted(oracle.match(event, now="2026-03-01"))


def test_while_waiting_for_enough_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain_tables, "_CONSTANTS_PER_EVENT", 0)
    expressions: list[Expression] = [Predicate("at", ">=", Timestamp(0)), Predicate("at", "<", Now())]
    trees = [{"at": text} for text in TIMES]
    lines = "\n".join(map(json.dumps, trees)).encode()
    assert pairs_of(filled(expressions), lines) == expected_pairs(expressions, trees)


def test_odd_json_among_plain_json() -> None:
    engine = filled([Predicate("at", ">", Now())])
    lines = b'{"at": "9999-01-01"}\n{"at": 1, "at": "9999-01-01T00:00:00Z"}\n[]\n{"at": "\\u0039999-01-01"}'
    found = engine.match_batch(json_lines(lines, skip_bad=True), now=NOW)
    assert found["event"].to_pylist() == [0, 1, 3]


def test_snapshots_and_sweeps(tmp_path: Path) -> None:
    expressions: list[Expression] = [
        Predicate("at", "<=", Timestamp(INSTANT or 0)),
        Predicate("at", ">", Now(-1)),
        Predicate("b", ">", Now()),
        Predicate("at", "between", (Timestamp(0), Now())),
        Predicate("name", "contains", "x"),
    ]
    engine = filled(expressions)
    trees: list[dict[str, Any]] = [{"at": text, "name": "xyz"} for text in TIMES]
    expected = expected_pairs(expressions, trees)
    engine.save(tmp_path / "saved")
    opened = Engine.open(tmp_path / "saved")
    opened._check()
    assert pairs_of(opened, trees) == pairs_of(engine, trees) == expected
    assert opened.expression(1) == expressions[1]
    opened.remove_many([0, 1, 2, 4])
    opened._updates.sweep_all()
    opened._check()
    # What is left is checked exactly, at the instant of the match and no other.
    assert pairs_of(opened, trees) == [pair for pair in expected if pair[1] == 3]
    encoded = opened.encode({"at": "2000-01-01"})
    assert opened.match(encoded, now="1999-01-01") == []
    assert opened.match(encoded) == [3]


@pytest.mark.parametrize("index", ["sift", "op-index"])
def test_ages_go_with_the_last_condition_that_looks_at_them(index: str) -> None:
    engine = Engine(index)
    engine.add_many([(1, "at > now()"), (2, "not any b (this > now())"), (3, "c = 1"), (4, "d > now() or c = 2")])
    for gone, ages in ((4, {"at age", " age"}), (1, {" age"}), (2, set())):
        engine.remove(gone)
        engine._updates.sweep_all()
        engine._check()
        names = {engine._state.domains.names[attribute] for attribute in engine._state.domains.pattern_attributes}
        assert names == ages
    assert not engine._state.domains.has_ages
    engine.add("at < now()", id=5)
    assert engine.match({"at": TIMES[0], "c": 1}, now="2999-01-01") == [3, 5]


@pytest.mark.parametrize("is_batch", [False, True])
def test_an_instant_that_was_given_counts_for_a_condition_that_comes_meanwhile(
    is_batch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = filled([Predicate("n", "=", 1)])
    encoded = engine.encode({"at": "2026-01-31T10:00:00Z", "n": 1})
    within = Engine._within

    def slow(self: Engine, *arguments: Any) -> Any:
        if 7 not in self:
            self.add("at > now()", id=7)
        return within(self, *arguments)

    monkeypatch.setattr(Engine, "_within", slow)
    moment = "2026-01-31T09:00:00Z"
    if is_batch:
        found = engine.match_batch(encoded, now=moment)["subscription"].to_pylist()
    else:
        found = engine.match(encoded, now=moment, top=5)
    assert sorted(found) == [0, 7]


def test_encoded_events_are_matched_at_the_instant_of_the_match() -> None:
    engine = filled([attr("at") > now() - datetime.timedelta(hours=1)])
    encoded = engine.encode({"at": "2026-01-31T10:00:00Z"})
    many = engine.encode([{"at": "2026-01-31T10:00:00Z"}])
    for moment, is_found in (("2026-01-31T10:59:59Z", True), ("2026-01-31T11:00:00Z", False), (NOW, True)):
        assert bool(engine.match(encoded, now=moment)) is is_found
        assert bool(len(engine.match_batch(many, now=moment))) is is_found
    assert engine.match(encoded) == []


def test_now_is_the_current_time() -> None:
    engine = filled([Predicate("at", "<=", Now()), Predicate("at", ">", Now(-(10**9) * 3600))])
    moment = datetime.datetime.fromtimestamp(time.time() - 1, datetime.UTC)
    assert sorted(engine.match({"at": moment})) == [0, 1]
    assert sorted(engine.match_batch([{"at": moment.isoformat()}])["subscription"].to_pylist()) == [0, 1]


def test_one_instant_for_a_batch_that_only_the_exact_check_decides() -> None:
    """Nothing of `not any` is indexed, and still the events depend on the time."""
    engine = Engine()
    engine.add("not any at (this > now())", id=1)
    assert engine._state.domains.has_ages
    encoded = engine.encode({"at": ["2026-01-31T10:00:00Z"]})
    assert engine.match(encoded, now="2026-01-31T09:00:00Z") == []
    assert engine.match(encoded, now="2026-01-31T11:00:00Z") == [1]
    many = [{"at": [TIMES[0]]}] * 3
    assert len(engine.match_batch(many, now="2026-01-31T11:00:00Z")) == 3


def test_a_condition_with_now_that_comes_after_the_event_was_encoded() -> None:
    engine = filled([Predicate("at", "=", "x")])
    encoded = engine.encode({"at": "2026-01-31T10:00:00Z"})
    engine.add("at < now()", id=7)
    assert engine.match(encoded, now="2026-01-31T09:00:00Z") == []
    assert engine.match(encoded) == [7]


@pytest.mark.parametrize("index", ["sift", "be-tree", "counting"])
def test_statistics_know_instants(index: str) -> None:
    trees = [{"at": f"2026-01-{day:02d}T00:00:00Z", "n": day % 3} for day in range(1, 29)] + [{"at": "x"}]
    engine = Engine(index, Statistics.from_events(trees))
    engine.add_many([(day, f"at >= timestamp '2026-01-{day:02d}' and n = 1") for day in range(1, 29)])
    engine.add("at > now() and n >= 0", id=100)
    oracle = Engine("scan")
    oracle.add_many([(id, engine.expression(id)) for id in engine.ids()])
    engine.tune(trees)
    assert pairs_of(engine, trees) == pairs_of(oracle, trees)
    assert pairs_of(engine, trees)


def test_strings_of_conditions_stay_strings() -> None:
    engine = Engine()
    engine.add("at > '2026-01-31T10:00:00Z'", id=1)
    engine.add("day = date '2026-01-31'", id=2)
    assert engine.match({"at": "2026-01-31T10:00:00.5+05:00"}) == []
    assert engine.match({"at": "2026-01-31T11:00:00+05:00"}) == [1]
    assert engine.match({"day": "2026-01-31"}) == [2]
    assert engine.match({"day": "2026-01-31T00:00:00Z"}) == []


def test_a_key_cannot_pass_for_a_derived_attribute() -> None:
    engine = Engine()
    engine.add("at > timestamp '1970-01-01'", id=1)
    name = engine._state.domains.names[-1]
    assert engine.match({name: 5 * 10**18, "at": "x"}) == []
    assert len(engine.match_batch(json.dumps({name: 5 * 10**18}).encode())) == 0


@pytest.mark.parametrize("index", ["scan", "sift", "fast-scan"])
def test_the_first_instant_of_all_is_one_like_others(index: str) -> None:
    engine = Engine(index)
    engine.add("at between timestamp '1969-12-31' and now()", id=1)
    engine.add("at <= now()", id=2)
    event = {"at": "1970-01-02"}
    assert engine.match(event, now="1970-01-01T00:00:00Z") == []
    assert engine.match(engine.encode(event), now="1970-01-01T00:00:00Z") == []
    assert engine.match_batch([event], now="1970-01-01T00:00:00Z").num_rows == 0
    assert sorted(engine.match(event, now="1970-01-03")) == [1, 2]
