"""`counting`: both ways to find predicates, three associations, publication types."""

from __future__ import annotations

import pickle
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from numba.core import config
from strategies import TIMES
from test_against_scan import lists_of_events, lists_of_subscriptions

from siftline import Engine, SubscriptionError
from siftline.errors import TooLargeError, UnknownIndexError
from siftline.indexes.counting import index as counting
from siftline.indexes.counting.publication_types import publication_type
from siftline.model import And, Predicate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from siftline.indexes.counting.index import Arrays
    from siftline.model import Expression

PREDICATES = ("list", "table")
ASSOCIATIONS = ("list", "bit-matrix", "byte-matrix")
COMBINATIONS = list(product(PREDICATES, ASSOCIATIONS))

TYPES: dict[str, Any] = {
    "age": {"from": 0, "to": 120},
    "color": {"values": ["red", "green", "blue"]},
    "n": "integer",
    "name": "string",
}


def arrays_of(engine: Engine) -> Arrays:
    (part,) = engine._state.index._parts  # type: ignore[attr-defined]
    arrays: Arrays = part.arrays
    return arrays


@pytest.fixture(params=COMBINATIONS, ids="-".join)
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(zip(("predicates", "association"), request.param, strict=True))


# the paper's table, Fig. 1

DOMAIN = range(10)
SLICES: dict[str, Callable[[int], Iterable[int]]] = {  # the constants that a value satisfies
    ">": lambda value: range(value),
    "<": lambda value: range(value + 1, 10),
    "=": lambda value: [value],
    "!=": lambda value: [constant for constant in DOMAIN if constant != value],
}


def domain_table() -> Engine:
    """Return an engine with every predicate on x over the domain 0 .. 9, one slice for each operator."""
    engine = Engine("counting", predicates="table", types={"x": {"from": 0, "to": 9}})
    engine.add_many((f"x {op} {k}", f"x {op} {k}") for op in SLICES for k in DOMAIN)
    return engine


@pytest.mark.parametrize("value", DOMAIN)
def test_one_value_in_the_domain_table(value: int) -> None:
    expected = {f"x {op} {k}" for op, satisfied in SLICES.items() for k in satisfied(value)}
    assert set(domain_table().match({"x": value})) == expected


@pytest.mark.parametrize("value", [-5, 10, 200, 4.5, "5", True, None])
def test_values_outside_of_the_domain_table(value: Any) -> None:
    oracle = Engine("scan")
    oracle.add_many((f"x {op} {k}", f"x {op} {k}") for op in SLICES for k in DOMAIN)
    assert sorted(domain_table().match({"x": value})) == sorted(oracle.match({"x": value}))


def test_a_row_of_the_domain_table_begins_one_walk_in_every_slice() -> None:
    engine = domain_table()
    arrays = arrays_of(engine)
    equal, less, greater, unequal = (range(*arrays.heads[k : k + 2].tolist()) for k in range(4))
    assert [len(part) for part in (equal, less, greater, unequal)] == [10, 10, 10, 10]
    rows = arrays.rows.reshape(-1, 8)
    for value in DOMAIN:
        code = int(engine.encode({"x": value}).codes[0])
        row = rows[int(np.searchsorted(rows[:, 0], code, side="right")) - 1]
        _, at_equal, from_less, to_greater, at_unequal = row[:5].tolist()
        assert at_equal == equal[value]
        assert less.stop - from_less == len(DOMAIN) - 1 - value  # `<` from v + 1 upwards
        assert to_greater - greater.start == value  # `>` from v - 1 downwards
        assert at_unequal == unequal[value]  # `!=` everything but v
        assert less.stop == greater.start  # so that both are one run of numbers


def test_only_finite_types_have_tables() -> None:
    engine = Engine("counting", predicates="table", types=TYPES)
    engine.add("age > 3 and color = 'red' and n = 5 and name < 'x' and free = 1", id=1)
    engine._check()
    assert engine.stats()["tables"] == 2
    assert "2 tables" in engine.describe()
    assert Engine("counting", types=TYPES).stats().get("tables", 0) == 0


def test_a_table_of_constants_that_came_one_by_one() -> None:
    # Labels then lie unevenly: many of them in one bucket.
    engine = Engine("counting", predicates="table", types={"x": {"from": 0, "to": 10**9}})
    numbers = [0, 10**9, *(2**k for k in range(25)), *(500 + k for k in range(60))]
    for number in dict.fromkeys(numbers):
        engine.add(f"x >= {number}", id=number)
        engine._check()
    for value in [*numbers, 3, 559, 560, 600, -1, 10**10]:
        assert sorted(engine.match({"x": value})) == sorted(number for number in set(numbers) if value >= number)


# stage 1 and stage 2


@settings(max_examples=5 if config.DISABLE_JIT else 40)
@given(expressions=lists_of_subscriptions, trees=lists_of_events)
def test_every_combination_gives_the_ids_of_scan(expressions: list[Expression], trees: list[dict[str, Any]]) -> None:
    oracle = Engine("scan")
    oracle.add_many(enumerate(expressions))
    for predicates, association in COMBINATIONS:
        engine = Engine("counting", predicates=predicates, association=association)
        engine.add_many(enumerate(expressions))
        engine._check()
        for tree in trees:
            assert sorted(engine.match(tree)) == sorted(oracle.match(tree))
        engine._check()


NUMBERS = [0, 1, 2, 3, 1.5, -1, 2**53, 2**53 + 1, -(2**53), 1e300, -(2**53) - 1, -(2**63), 2**63 - 1]
TEXTS = ["", "a", "ab", "abc", "b", "B", "ba", "%", "ß", "é", "a\nb", "\U0010ffff", "\ud800", "10.0.0.7", "2001:db8::1"]


@settings(max_examples=5 if config.DISABLE_JIT else 60)
@given(expressions=lists_of_subscriptions, trees=lists_of_events)
def test_tables_give_the_ids_of_scan(expressions: list[Expression], trees: list[dict[str, Any]]) -> None:
    everything = {"values": [*NUMBERS, *TEXTS, *TIMES, True, False]}
    types = dict.fromkeys(("a", "b", "c.d", "c.e"), everything)
    oracle, engine = Engine("scan"), Engine("counting", predicates="table", types=types)
    for number, expression in enumerate(expressions):
        oracle.add(expression, id=number)
        engine.add(expression, id=number)
    engine._check()
    for tree in trees:
        assert sorted(engine.match(tree)) == sorted(oracle.match(tree))


def test_a_predicate_is_stored_once(options: dict[str, Any]) -> None:
    engine = Engine("counting", **options)
    engine.add_many((n, f"x > {n % 5} and y in (1, 2) and z != 3") for n in range(100))
    assert engine.stats()["distinct_predicates"] == 5 + 1 + 1
    engine._check()
    assert len(engine.match({"x": 3, "y": 2, "z": 4})) == 60


def test_numbers_of_unused_predicates_come_back() -> None:
    engine = Engine("counting")
    engine.add_many((n, f"x = {n}") for n in range(300))
    engine.remove_many(range(200))
    engine._check()
    assert engine.stats()["distinct_predicates"] == 100


def test_operators_share_what_codes_cannot_tell_apart() -> None:
    engine = Engine("counting")
    engine.add("x > 3 and x < 9 and y between 4 and 6 and z != 1 and z not in (4, 5)", id=1)
    assert "5 distinct predicates on 3 attributes: 1 at most, 1 at least, 1 !=, 1 between, 1 other sets" in (
        engine.describe()
    )


def test_a_repeated_literal_counts_once(options: dict[str, Any]) -> None:
    engine = Engine("counting", **options)
    engine.add("x > 3 and x > 3 and (x > 3 and y = 1)", id=1)
    engine.add("x in (1, 2) and x in (2, 1)", id=2)
    engine._check()
    assert engine.match({"x": 4}) == []
    assert engine.match({"x": 4, "y": 1}) == [1]
    assert engine.match({"x": 1}) == [2]


def test_several_values_count_once(options: dict[str, Any]) -> None:
    engine = Engine("counting", **options)
    engine.add("x >= 3 and y = 1", id=1)
    engine.add("x >= 3 and x <= 12", id=2)
    engine.add("x between 3 and 12", id=3)
    engine.add("x in (4, 5) and x != 4 and y = 1", id=4)
    assert sorted(engine.match({"x": [4, 5]})) == [2, 3]
    assert sorted(engine.match({"x": [1, 100]})) == [2]
    assert sorted(engine.match({"x": [4, 5], "y": [1, 1]})) == [1, 2, 3, 4]
    assert sorted(engine.match({"x": [4, 4], "y": [1, 1]})) == [1, 2, 3]


def test_vetoes_are_verified(options: dict[str, Any]) -> None:
    engine = Engine("counting", **options)
    engine.add("x = 1 and not (y = 2)", id=1)
    engine.add("x = 1 and y is null", id=2)
    engine.add("y is null", id=3)
    engine._check()
    assert engine.match({"x": 1, "y": 3}) == [1]
    assert engine.match({"x": 1, "y": [2, 3]}) == []
    assert sorted(engine.match({"x": 1})) == [2, 3]


def test_kinds_do_not_mix(options: dict[str, Any]) -> None:
    engine = Engine("counting", **options)
    for number, text in enumerate(["x < 5", "x < 'm'", "x > 5", "x > 'm'", "x != 5", "x != 'm'", "x = true"]):
        engine.add(text, id=number)
    assert sorted(engine.match({"x": 3})) == [0, 4]
    assert sorted(engine.match({"x": "z"})) == [3, 5]
    assert sorted(engine.match({"x": True})) == [6]
    assert sorted(engine.match({"x": None})) == []


@pytest.mark.parametrize(("n", "dtype"), [(254, np.uint8), (255, np.uint16), (300, np.uint16)])
def test_long_clauses(n: int, dtype: type, options: dict[str, Any]) -> None:
    engine = Engine("counting", **options)
    engine.add(And([Predicate(f"a{k}", "=", 1) for k in range(n)]), id=1)
    engine.add("a1 = 1 and a2 = 1", id=2)
    engine._check()
    assert arrays_of(engine).needed.dtype == dtype
    tree = {f"a{k}": 1 for k in range(n)}
    assert sorted(engine.match(tree)) == [1, 2]
    assert engine.match({**tree, "a7": 0}) == [2]


def check_hits(n: int, options: dict[str, Any]) -> None:
    engine = Engine("counting", **options)
    engine.add_many((k, f"x >= {k}" if k % 3 else f"x >= {k} and y = 1") for k in range(n))
    for value in (-1, 0, 1, n // 2, n):
        expected = [k for k in range(n) if value >= k]
        assert sorted(engine.match({"x": value, "y": 1})) == expected
        assert sorted(engine.match({"x": value})) == [k for k in expected if k % 3]
    engine._check()


@pytest.mark.parametrize("n", [1, 63, 64, 65, 1000])
def test_few_and_many_hits(n: int, options: dict[str, Any]) -> None:
    check_hits(n, options)


def test_the_widest_counts(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert counting._padded(np.array([3, 0, 65_535], dtype=np.uint32)).dtype == np.uint32
    monkeypatch.setattr(counting, "_COUNT_TYPES", (np.uint32,))
    check_hits(100, options)


def test_a_matrix_beyond_the_limit_is_refused() -> None:
    engine = Engine("counting", association="byte-matrix", memory_limit_mb=1)
    rows = [(n, f"x = {n}") for n in range(2000)]
    with pytest.raises(TooLargeError, match=r"a byte-matrix of 2,000 predicates and 2,000 clauses \(4,096,000 bytes\)"):
        engine.add_many(rows)
    assert len(engine) == 0
    Engine("counting", association="bit-matrix", memory_limit_mb=1).add_many(rows)


def test_matrices_that_are_too_large_together_stay_apart() -> None:
    engine = Engine("counting", association="byte-matrix", memory_limit_mb=1)
    for first in (0, 900):
        engine.add_many((first + n, f"x = {n}") for n in range(900))
    engine._check()
    assert engine.stats()["parts"] == 2
    assert sorted(engine.match({"x": 899})) == [899, 1799]


def test_work_is_counted() -> None:
    engine = Engine("counting")
    engine.add_many((n, f"x > {n} and y = 1") for n in range(200))
    engine.match({"x": 3})
    stats = engine.stats()
    # x > 0, 1, 2: three predicates, each in a list of one clause.
    assert stats["predicates_evaluated"] == stats["lists_scanned"] == stats["candidates_examined"] == 3


def test_adding_and_removing_one_by_one(options: dict[str, Any]) -> None:
    engine = Engine("counting", **options, types={"x": {"from": 0, "to": 20}})
    for n in range(200):
        engine.add(f"x > {n % 20} and y != {n % 3}", id=n)
    engine._check()
    for n in range(0, 200, 2):
        engine.remove(n)
    engine._check()
    expected = [n for n in range(1, 200, 2) if n % 20 < 7 and n % 3 != 1]
    assert sorted(engine.match({"x": 7, "y": 1})) == expected
    assert sorted(pickle.loads(pickle.dumps(engine)).match({"x": 7, "y": 1})) == expected


def test_saved(options: dict[str, Any], tmp_path: Path) -> None:
    engine = Engine("counting", **options, types=TYPES)
    engine.add_many((n, f"age > {n % 50} and color != 'red' and other between 2 and {n}") for n in range(2, 200))
    engine.save(tmp_path / "saved")
    opened = Engine.open(tmp_path / "saved")
    opened._check()
    event = {"age": 20, "color": "green", "other": 30}
    assert sorted(opened.match(event)) == sorted(engine.match(event)) != []
    with pytest.raises(SubscriptionError, match="'pink' is outside"):
        opened.add("color = 'pink'", id=1000)


# publication types


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("age = 121", "121 is outside of the domain of 'age', which takes integers from 0 to 120"),
        ("age > -1", "-1 is outside"),
        ("age < 1.5", "1.5 is outside"),
        ("age = 'old'", "'old' is outside"),
        ("age = true", "True is outside"),
        ("age in (5, 500)", "500 is outside"),
        ("age not in (5, 500)", "500 is outside"),
        ("age between 5 and 500", "500 is outside"),
        ("x = 1 or not (age != 121)", "121 is outside"),
        ("age contains 'x'", "'x' is outside"),
        ("color = 'pink'", "'pink' is outside of the domain of 'color', which takes one of 'red', 'green', 'blue'"),
        ("color > 'pink'", "'pink' is outside"),
        ("color = 3", "3 is outside"),
        ("n = 1.5", "1.5 is outside of the domain of 'n', which takes integers"),
        ("name = 5", "5 is outside of the domain of 'name', which takes strings"),
    ],
)
def test_constants_outside_of_their_domain(text: str, shown: str, options: dict[str, Any]) -> None:
    engine = Engine("counting", types=TYPES, **options)
    engine.add("age > 17 and color = 'red'", id=1)
    event = {"age": 121, "color": "red"}
    with pytest.raises(SubscriptionError, match=shown):
        engine.add(text, id=2)
    with pytest.raises(SubscriptionError, match=shown):
        engine.add_many([(3, "age = 5"), (4, text)])
    engine._check()
    assert len(engine) == 1
    assert engine.match(event) == [1]
    engine.add("age >= 120", id=2)
    assert sorted(engine.match(event)) == [1, 2]


@pytest.mark.parametrize(
    "text",
    [
        "age = 120 and age >= 0 and age != 3.0",
        "age is null",
        "age is not null and exists age",
        "not (age = 5)",
        "color starts with 're' or color like 'gr%' or color contains 'lu'",
        "color not in ('red', 'blue')",
        "n between -5 and 9007199254740993",
        "name < 'x' and name != ''",
        "free = 1.5 and free = 'x'",
    ],
)
def test_constants_inside_of_their_domain(text: str) -> None:
    engine = Engine("counting", types=TYPES)
    engine.add(text, id=1)
    assert len(engine) == 1


def test_columns_are_checked_too() -> None:
    pa = pytest.importorskip("pyarrow")
    columns = {"subscription": [1, 2], "clause": [0, 0], "attribute": ["age", "age"], "op": ["<", ">="]}
    engine = Engine("counting", types=TYPES)
    with pytest.raises(SubscriptionError, match="130 is outside"):
        engine.add_many(pa.table({**columns, "number": [10, 130]}))
    assert len(engine) == 0
    engine.add_many(pa.table({**columns, "number": [10, 110]}))
    assert engine.match({"age": 130}) == [2]


def test_conditions_on_elements_are_checked() -> None:
    engine = Engine("counting", types={"items.qty": {"from": 1, "to": 9}})
    engine.add("any items (sku = 'x' and qty > 2)", id=1)
    with pytest.raises(SubscriptionError, match=r"20 is outside of the domain of 'items\.qty'"):
        engine.add("any items (sku = 'x' and qty > 20)", id=2)


def test_true_is_not_one() -> None:
    flag = publication_type("flag", {"values": [True, 0]})
    assert flag.allows(True)
    assert flag.allows(0)
    assert not flag.allows(1)
    assert not flag.allows(False)


@pytest.mark.parametrize(
    ("wrong", "shown"),
    [
        ({"predicates": "tree"}, "predicates must be one of list, table, not 'tree'"),
        ({"association": "matrix"}, "association must be one of list, bit-matrix, byte-matrix, not 'matrix'"),
        ({"memory_limit_mb": 0}, "memory_limit_mb must be a whole number"),
        ({"memory_limit_mb": True}, "memory_limit_mb must be a whole number"),
        ({"types": ["age"]}, "types must map attributes to types"),
        ({"types": {"age": "number"}}, "the type of 'age' must be"),
        ({"types": {"age": [0, 120]}}, "the type of 'age' must be"),
        ({"types": {"age": {"from": 5, "to": 4}}}, "from 5 is above to 4"),
        ({"types": {"age": {"from": 0, "to": 1.5}}}, "the type of 'age' must be"),
        ({"types": {"color": {"values": []}}}, "the type of 'color' must be"),
        ({"types": {"color": {"values": [None]}}}, "the type of 'color' must be"),
        ({"types": {"color": {"values": [float("nan")]}}}, "the type of 'color' must be"),
    ],
)
def test_wrong_options(wrong: dict[str, Any], shown: str) -> None:
    with pytest.raises(ValueError, match=shown):
        Engine("counting", **wrong)
    with pytest.raises(UnknownIndexError, match="index 'counting'"):
        Engine("counting", columns=3)


def test_enumerations_of_booleans() -> None:
    engine = Engine("counting", types={"ok": {"values": [True]}})
    engine.add("ok = true", id=1)
    with pytest.raises(SubscriptionError, match="False is outside"):
        engine.add("ok = false", id=2)


def test_timestamps_need_an_attribute_of_strings() -> None:
    engine = Engine("counting", predicates="table", types={"at": "string", "n": "integer"})
    engine.add("at > timestamp '2026-01-31' and at != 'x' and at < now()", id=1)
    assert engine.match({"at": "2026-02-01"}, now="2026-03-01") == [1]
    with pytest.raises(SubscriptionError, match=r"timestamp '2026-01-31T00:00:00Z' is outside of the domain of 'n'"):
        engine.add("n > timestamp '2026-01-31'", id=2)
