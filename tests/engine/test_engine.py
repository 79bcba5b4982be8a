"""The engine: what it promises beyond matching the right ids."""

from __future__ import annotations

import pickle
import sys
import threading
from typing import Any

import pyarrow as pa
import pytest
from strategies import sweep

import siftline
from siftline import Engine, EventError, Statistics, SubscriptionError, attr
from siftline.errors import DuplicateIdError, TableError, UnknownIdError, UnknownIndexError

INDEXES = siftline.indexes()


@pytest.fixture(params=INDEXES)
def engine(request: pytest.FixtureRequest) -> Engine:
    return Engine(request.param)


def test_add_returns_the_id(engine: Engine) -> None:
    assert engine.add("a = 1", id="x") == "x"
    assert "x" in engine
    assert "y" not in engine
    assert len(engine) == 1


def test_ids_are_numbered_when_left_out(engine: Engine) -> None:
    assert [engine.add("a = 1"), engine.add("a = 2", id=7), engine.add("a = 3")] == [0, 7, 8]


def test_ids_are_of_one_type(engine: Engine) -> None:
    engine.add("a = 1", id="x")
    for wrong in (1, True, 2.5, None):
        with pytest.raises(SubscriptionError, match="id"):
            engine.add("a = 1", id=wrong)  # type: ignore[arg-type]
    assert engine.ids() == ["x"]


def test_ids_fit_into_64_bits(engine: Engine) -> None:
    assert engine.add("a = 1", id=-(2**63)) == -(2**63)
    with pytest.raises(SubscriptionError, match="64 bits"):
        engine.add("a = 1", id=2**63)
    assert engine.match({"a": 1}) == [-(2**63)]


def test_duplicates_and_unknown_ids_are_errors(engine: Engine) -> None:
    engine.add("a = 1", id=1)
    with pytest.raises(DuplicateIdError, match="1"):
        engine.add("a = 2", id=1)
    with pytest.raises(DuplicateIdError):
        engine.add_many([(2, "a = 1"), (2, "a = 1")])
    with pytest.raises(UnknownIdError, match="there is no subscription with the id 5"):
        engine.remove(5)
    with pytest.raises(UnknownIdError):
        engine.remove_many([1, 5])
    with pytest.raises(DuplicateIdError):
        engine.remove_many([1, 1])
    with pytest.raises(UnknownIdError):
        engine.replace(5, "a = 1")
    assert engine.ids() == [1]


def test_add_many_adds_all_or_nothing(engine: Engine) -> None:
    rows = [(i, "a = 1") for i in range(10)]
    rows[7] = (7, "a == 1")
    with pytest.raises(SubscriptionError, match="subscription 7") as caught:
        engine.add_many(rows)
    assert (caught.value.line, caught.value.column) == (1, 3)
    assert len(engine) == 0
    assert engine.match({"a": 1}) == []


def test_add_takes_expressions_of_every_front_end(engine: Engine) -> None:
    engine.add(attr("price") <= 580, id="builder")
    engine.add(siftline.parse_pattern({"price": [{"numeric": ["<", 600]}]}), id="pattern")
    engine.add(siftline.parse_filters([{"prefix": {"type": "com."}}]), id="filters")
    assert sorted(engine.match({"price": 550, "type": "com.x"})) == ["builder", "filters", "pattern"]


@pytest.mark.parametrize("expression", [{"a": [1]}, 5, None, b"a = 1"])
def test_other_things_are_refused(engine: Engine, expression: Any) -> None:
    with pytest.raises(SubscriptionError, match="must be text or an Expression"):
        engine.add(expression)


def test_operator_calls_are_refused_until_an_operator_is_registered(engine: Engine) -> None:
    with pytest.raises(SubscriptionError, match="no operator 'is_near'"):
        engine.add("is_near('Bronx') and a = 1")


def test_replace_keeps_the_weight(engine: Engine) -> None:
    engine.add("a = 1", id=1, weight=5.0)
    engine.add("a > 0", id=2, weight=3.0)
    engine.replace(1, "a >= 2")
    assert engine.match({"a": 1}) == [2]
    assert engine.match({"a": 2}, top=1) == [1]
    with pytest.raises(SubscriptionError):
        engine.replace(1, "a >")
    assert engine.match({"a": 2}, top=1) == [1]


def test_top_orders_by_weight_then_id(engine: Engine) -> None:
    engine.add_many([(i, "a = 1", float(i % 3)) for i in range(9)])
    assert engine.match({"a": 1}, top=4) == [2, 5, 8, 1]
    assert engine.match({"a": 1}, top=0) == []
    assert len(engine.match({"a": 1}, top=100)) == 9
    with pytest.raises(ValueError, match="top"):
        engine.match({"a": 1}, top=-1)


def test_weights_are_finite(engine: Engine) -> None:
    for weight in (float("nan"), float("inf"), "1", True):
        with pytest.raises(SubscriptionError, match="weight"):
            engine.add("a = 1", weight=weight)  # type: ignore[arg-type]


def test_slots_are_an_array(engine: Engine) -> None:
    engine.add("a = 1", id="x")
    slots = engine.match({"a": 1}, as_slots=True)
    assert slots.dtype == "int32"
    assert len(slots) == 1


def test_batches_in_every_shape(engine: Engine) -> None:
    import pandas
    import polars

    engine.add("a = 1", id="one")
    engine.add("a >= 1", id="more")
    trees = [{"a": 1}, {"a": 2}, {"a": None}]
    expected = {(0, "one"), (0, "more"), (1, "more")}
    table = pa.Table.from_pylist(trees)
    shapes = [
        trees,
        iter(trees),
        table,
        table.to_batches()[0],
        pandas.DataFrame(trees),
        polars.DataFrame(trees),
        pa.array(['{"a": 1}', '{"a": 2}', '{"a": null}']),
        b'{"a": 1}\n{"a": 2}\n{}\n',
        ['{"a": 1}', b'{"a": 2}', "{}"],
        engine.encode(trees),
    ]
    for shape in shapes:
        found = engine.match_batch(shape)
        assert found.schema.names == ["event", "subscription"]
        assert set(zip(found["event"].to_pylist(), found["subscription"].to_pylist(), strict=True)) == expected
    payload = pa.table({"id": [5], "payload": ['{"a": 1}']})
    assert engine.match_batch(payload, event="payload").num_rows == 2


def test_empty_batches(engine: Engine) -> None:
    assert engine.match_batch([]).num_rows == 0
    engine.add("true", id=1)
    assert engine.match_batch([]).num_rows == 0
    assert engine.match_batch([{}]).to_pylist() == [{"event": 0, "subscription": 1}]


def test_json_text_is_an_event(engine: Engine) -> None:
    engine.add("a = 'x'", id=1)
    assert engine.match('{"a": "x"}') == engine.match(b'{"a": "x"}') == [1]


@pytest.mark.parametrize("event", [[1], 5, "5", "[1]", '{"a": ', None, {1: 2}, {"a": object()}, b"\xff", {"a": b"x"}])
def test_bad_events_are_refused(engine: Engine, event: Any) -> None:
    engine.add("a = 1", id=1)
    with pytest.raises(EventError):
        engine.match(event)


def test_a_bad_event_in_a_batch_is_named(engine: Engine) -> None:
    with pytest.raises(EventError, match="event 1"):
        engine.match_batch([{"a": 1}, 5])


def test_match_takes_one_event(engine: Engine) -> None:
    with pytest.raises(EventError, match="one event"):
        engine.match(engine.encode([{"a": 1}, {"a": 2}]))


def test_unknown_indexes_and_options() -> None:
    with pytest.raises(UnknownIndexError, match="did you mean 'fast-scan'"):
        Engine("fastscan")
    with pytest.raises(UnknownIndexError, match=r"no option .segments. \(it takes none\)"):
        Engine("fast-scan", segments=3)


def test_encoded_events_follow_the_subscriptions(engine: Engine) -> None:
    engine.add("a < 10", id=1)
    encoded = engine.encode({"a": 5})
    engine.add("a < 4", id=2)
    engine.add("a > 4", id=3)
    engine.add("b is null", id=4)
    assert sorted(engine.match(encoded)) == [1, 3, 4]
    other = Engine(engine.stats()["index"])
    other.add("a = 5", id=9)
    assert other.match(encoded) == [9]


def test_engines_can_be_pickled(engine: Engine) -> None:
    engine.add("a = 1 and b contains 'x'", id=1)
    copy = pickle.loads(pickle.dumps(engine))
    copy.add("a = 1", id=2)
    assert sorted(copy.match({"a": 1, "b": "axe"})) == [1, 2]
    assert engine.match({"a": 1, "b": "axe"}) == [1]


def test_engines_with_new_constants_beside_old_ones_can_be_pickled() -> None:
    engine = Engine()
    engine.add("a = 0", id=1)
    engine.rebuild()
    engine.add("a = 0 and b = 1 or a = 2", id=2)
    copy = pickle.loads(pickle.dumps(engine))
    assert sorted(copy.match({"a": 0, "b": 1})) == [1, 2]
    assert copy.match({"a": 2}) == engine.match({"a": 2}) == [2]


def test_memory_comes_back(engine: Engine) -> None:
    engine.add_many([(i, f"a{i % 50} = {i} and text{i % 7} contains 'x'") for i in range(5000)])
    full = engine.stats()
    engine.remove_many(list(range(5000)))
    engine.settle()
    empty = engine.stats()
    assert (empty["attributes"], empty["clauses"], len(engine)) == (0, 0, 0)
    assert sum(empty["bytes"].values()) <= sum(full["bytes"].values()) // 100
    engine.add("a = 1", id=0)
    assert engine.match({"a": 1}) == [0]


def test_statistics_change_nothing_but_speed() -> None:
    events = [{"a": i % 3, "b": i % 50} for i in range(100)]
    plain, informed = Engine(), Engine(statistics=Statistics.from_events(events))
    for engine in (plain, informed):
        engine.add_many([(i, f"a = {i % 3} and b = {i % 50}") for i in range(200)])
    for event in events:
        assert sorted(plain.match(event)) == sorted(informed.match(event))


def test_stats_count_the_work() -> None:
    engine = Engine("fast-scan")
    engine.add_many([(i, f"a = {i} and b = 1") for i in range(100)])
    engine.match({"a": 5, "b": 1})
    stats = engine.stats()
    assert (stats["subscriptions"], stats["predicates"], stats["events"]) == (100, 200, 1)
    assert stats["candidates_examined"] == 1
    assert stats["predicates_evaluated"] == 101


def test_a_thousand_constants_in_one_gap() -> None:
    # Labels run out and are dealt out again; what was encoded before must follow.
    engine, oracle = Engine("fast-scan"), Engine("scan")
    for i in range(300):
        for each in (engine, oracle):
            each.add(f"a < {1 / (i + 1)!r} or a in (0, {1 + 1 / (i + 1)!r}) or a != {-i}", id=i)
    engine._check()
    for value in (0, 1 / 7, 1 + 1 / 9, 0.5, -3, 2):
        assert sorted(engine.match({"a": value})) == sorted(oracle.match({"a": value}))


@pytest.mark.parametrize("index", INDEXES)
def test_threads_match_while_another_changes(index: str) -> None:
    engine = Engine(index)
    engine.add_many([(i, f"a >= {i}") for i in range(20)])
    engine.add("a = 5 and b = 1", id=1000)
    engine.encode({"a": 5, "b": 1})
    errors: list[BaseException] = []
    is_over = threading.Event()

    def match() -> None:
        try:
            while not is_over.is_set():
                found = engine.match({"a": 5, "b": 1})
                assert set(range(6)) <= set(found), found
                assert 1000 in found, found  # replaced all the time, and always there
                assert all(int(id) < 20 or int(id) % 2 == 0 for id in found), found
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=match) for _ in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for i in range(2000, 2120):
            # Even ones match a = 5, odd ones never do; all bring new constants right beside 5.
            engine.add(f"a > {5 - 1 / i!r}" if i % 2 == 0 else f"a > {5 + 1 / i!r}", id=i)
            engine.replace(1000, f"a = 5 and b < {1 + 1 / i!r}")
            if i % 3 == 0:
                engine.remove(i)
            if i % 40 == 0:
                sweep(engine)
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert not errors, errors[0]
    engine._check()


def test_stats_do_not_disturb_a_writer() -> None:
    engine = Engine()
    is_over = threading.Event()

    def look() -> None:
        while not is_over.is_set():
            engine.stats()

    thread = threading.Thread(target=look)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        for i in range(600):
            engine.add(f"a = {i} or b > {i}", id=i)
    finally:
        is_over.set()
        thread.join()
        sys.setswitchinterval(interval)
    engine._check()
    assert engine.stats()["clauses"] == 1200
    sweep(engine)
    assert sorted(engine.match({"b": 600})) == list(range(600))


def test_pickles_made_while_another_thread_adds_are_whole() -> None:
    engine = Engine()
    is_over = threading.Event()

    def add() -> None:
        for i in range(10_000):
            if is_over.is_set():
                return
            engine.add(f"a = {i}", id=i)

    thread = threading.Thread(target=add)
    thread.start()
    try:
        for _ in range(5):
            copy = pickle.loads(pickle.dumps(engine))
            copy._check()
            assert len(copy.match_batch([{"a": i} for i in range(len(copy))])) == len(copy)
    finally:
        is_over.set()
        thread.join()


def test_a_failing_index_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    from siftline.indexes.fast_scan.index import FastScan

    engine = Engine("fast-scan")
    engine.add("a = 1", id=1)

    def fail(*_: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(FastScan, "add", fail)
        with pytest.raises(MemoryError):
            engine.add("b = 1 and c = 2 and d = 3", id=2)
        with pytest.raises(MemoryError):
            engine.replace(1, "e = 1")
    engine._check()
    assert engine.match({"a": 1, "b": 1, "c": 2, "d": 3, "e": 1}) == [1]
    engine.add("b = 1", id=2)
    assert sorted(engine.match({"a": 1, "b": 1})) == [1, 2]


@pytest.mark.parametrize("order", ["ascending", "descending", "below a far one", "many attributes"])
def test_adding_in_order_rarely_moves_labels(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    engine.add("a < 1000000000", id=-1)
    built = []
    build = engine._updates._built_index

    def count(*arguments: Any) -> Any:
        built.append(arguments)
        return build(*arguments)

    monkeypatch.setattr(engine._updates, "_built_index", count)
    for i in range(1500):
        value = {"ascending": 10**9 + i, "descending": -i, "below a far one": i}.get(order, i // 500)
        engine.add(f"{'a' if order != 'many attributes' else f'x{i % 500}'} > {value}", id=i)
    assert len(built) <= 5
    engine._check()
    assert len(engine.match({"a": 2 * 10**9, **{f"x{i}": 9 for i in range(500)}})) == 1500


def test_stale_encoded_events_are_encoded_once() -> None:
    engine = Engine()
    engine.add("a = 1", id=1)
    encoded = engine.encode([{"a": 2}] * 100)
    engine.add("a = 2", id=2)
    assert engine.match_batch(encoded).num_rows == 100
    assert encoded.encoded_for(engine._state.domains) is encoded.encoded_for(engine._state.domains)


def test_large_expressions_are_quick() -> None:
    engine = Engine()
    engine.add(
        " and ".join(f"a{i} = 1" for i in range(3000)) + " and (" + " or ".join(f"b{i} = 1" for i in range(3000)) + ")",
        id=1,
    )
    assert engine.stats()["predicates"] < 50_000
    event = {**{f"a{i}": 1 for i in range(3000)}, "b7": 1}
    assert engine.match(event) == [1]
    assert engine.match({**event, "b7": 2}) == []


@pytest.mark.parametrize("id", [True, 1.0, None, [1], (1,)])
def test_only_ids_are_ids(engine: Engine, id: Any) -> None:
    engine.add("a = 1", id=1)
    assert id not in engine
    with pytest.raises(UnknownIdError):
        engine.remove(id)


def test_odd_arguments_get_clear_errors() -> None:
    import pandas
    import polars

    engine = Engine()
    with pytest.raises(SubscriptionError, match="weight"):
        engine.add("a = 1", weight=10**400)
    with pytest.raises(SubscriptionError, match="surrogate"):
        engine.add("a = 1", id="\ud800")
    with pytest.raises(TypeError, match="iterable"):
        engine.add_many(5)
    with pytest.raises(TypeError, match="Statistics"):
        Engine(statistics=5)  # type: ignore[arg-type]
    for odd in (pandas.DataFrame({"a": ["x", 3]}), pandas.Series([1]), polars.LazyFrame({"a": [1]}), pa.scalar(5)):
        with pytest.raises(TableError):
            engine.match_batch(odd)
    with pytest.raises(ValueError, match="top"):
        engine.match({"a": 1}, top="x")  # type: ignore[call-overload]
    assert len(engine) == 0


@pytest.mark.parametrize("index", ["sift", "op-index", "fast-scan"])
def test_stats_name_what_every_event_is_checked_for(index: str) -> None:
    engine = Engine(index)
    always = ["(b = 2) is not true", "a is null", "a = 1 or b is null", "true"]
    always += ["(a = 1 or b is null) and (c = 1 or d is null)"]
    never = ["a = 1 and b is null", "not (a = 1)", "a contains 'x'", "false", "any b (c = 1)", "a > b", "a is not null"]
    engine.add_many(enumerate([*always, *never]))
    assert engine.stats()["always_checked_ids"] == list(range(len(always)))
    engine.add_many((100 + n, "a is null") for n in range(20))  # duplicates
    engine.remove(1)
    stats = engine.stats()
    assert stats["always_checked"] == len(always) - 1 + 20
    assert len(stats["always_checked_ids"]) == 10
    engine.remove_many(engine.stats()["always_checked_ids"])
    assert engine.stats()["always_checked"] == len(always) - 1 + 10
    engine.remove_many(id for id in engine.ids() if int(id) >= 100 or int(id) < len(always))
    assert (engine.stats()["always_checked"], engine.stats()["always_checked_ids"]) == (0, [])


def test_new_statistics_do_not_disturb_what_is_unplaced() -> None:
    tail = f"({many('t')}) and ({many('u')})"
    texts = [f"a in ({n}, {n}.5) and (s contains 'x{n}' or s contains 'y') and {tail}" for n in (0, 1)]
    engine, oracle = Engine(statistics=Statistics.from_events([{"t": "t-1", "u": "none"}] * 20)), Engine("scan")
    trees = [{"a": 0, "s": "y", "t": "t-1", "u": f"u-{n}"} for n in range(50)]
    for number, text in enumerate(texts):
        for each in (engine, oracle):
            each.add(text, id=number)
    # Constants that crowd each other until one has no label.
    for k in range(60):
        for each in (engine, oracle):
            each.add(f"a = {1 / 2**k!r} and ({many('t')}) and ({many('u')})", id=100 + k)
    engine.tune(trees)
    engine.rebuild()
    engine._check()
    for tree in trees:
        assert sorted(engine.match(tree)) == sorted(oracle.match(tree))


def many(attribute: str) -> str:
    return " or ".join(f"{attribute} contains '{attribute}-{n}'" for n in range(30))
