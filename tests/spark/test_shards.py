"""Parsed subscriptions, pivots and shards, without Spark: equal to the oracle, and no event misses a shard."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import events, subscriptions

from siftline import parse, to_text
from siftline.engine import Engine
from siftline.errors import TableError
from siftline.kernels.routing import PairFilters, no_filters, pair_filter, visits
from siftline.model import Event, Expression, matches
from siftline.spark.sharding.pairs import name_hashes
from siftline.spark.sharding.parsed import Collector, Parsed, required_attributes
from siftline.spark.sharding.pivots import NO_PIVOT, Line, Pivots, Ranks, pivots_of
from siftline.spark.sharding.shards import count_attributes, engine_of


def parsed_of(expressions: list[Expression], ids: list[Any] | None = None) -> Parsed:
    collector = Collector(pa.string() if ids and isinstance(ids[0], str) else pa.int64())
    for number, expression in enumerate(expressions):
        collector.add(ids[number] if ids else number, float(number), to_text(expression), expression)
    return collector.parsed()


def attribute_counts(parsed: Parsed) -> dict[str, int]:
    batch = pa.RecordBatch.from_pydict({"content": [parsed.packed()]})
    (counts,) = count_attributes([batch])
    return dict(zip(*counts.to_pydict().values(), strict=True))


@given(st.lists(subscriptions, min_size=1, max_size=8), events)
def test_an_engine_of_parsed_subscriptions_equals_the_oracle(
    expressions: list[Expression], event: dict[str, Any]
) -> None:
    halves = [parsed_of(expressions).taken(np.arange(first, len(expressions), 2)) for first in (0, 1)]
    parsed = Parsed.joined([Parsed.unpacked(half.packed()) for half in halves])
    engine = engine_of(parsed, None)
    expected = [number for number, expression in enumerate(expressions) if matches(expression, Event(event))]
    assert sorted(engine.match(event)) == expected
    assert engine.match(event, top=1) == expected[-1:]
    for number, expression in enumerate(expressions):
        assert engine.explain(event, number).matched is matches(expression, Event(event))


@given(st.lists(subscriptions, min_size=1, max_size=8), events, st.integers(1, 4))
def test_every_match_is_in_a_shard_that_the_event_visits(
    expressions: list[Expression], event: dict[str, Any], n_shards: int
) -> None:
    parsed = parsed_of(expressions)
    ranks = Ranks(attribute_counts(parsed))
    pivots = pivots_of(parsed, ranks)
    shards = Line(Counter(pivots.primary.tolist()), n_shards).shards(pivots.primary, parsed.subscriptions["id"])
    assert 0 <= shards.min() <= shards.max() < n_shards
    leaves = Event(event).leaves
    has_value = {path for path, values in leaves.items() if any(value is not None for value in values)}
    for number, expression in enumerate(expressions):
        if matches(expression, Event(event)):
            shard = shards[number]
            used = {int(pivot) for pivot in pivots.clauses[shards[pivots.owners] == shard]}
            assert NO_PIVOT in used or has_value & {ranks.names[pivot] for pivot in used}
            pairs = {(int(a), int(b)) for o, a, b, _ in rows_of(pivots) if o == number}
            known = [ranks.ranks[name] for name in has_value if name in ranks.ranks]
            assert any(a == NO_PIVOT or (a in known and b in known) for a, b in pairs)


def rows_of(pivots: Pivots) -> list[tuple[int, int, int, int]]:
    """Return owner, pivot and partner of each clause, and the primary pivot of the owner."""
    columns = pivots.owners, pivots.clauses, pivots.partners, pivots.primary[pivots.owners]
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_the_partner_is_the_next_rarest_attribute_that_is_needed() -> None:
    texts = (
        "c = 1 and a = 1 and b = 2 and a < 9",
        "a = 1 and b is null",
        "b = 1 and a = 2 or c > 2 and b < 3",
        "not (a = 1) and c = 2",
    )
    parsed = parsed_of([parse(text) for text in texts])
    found = pivots_of(parsed, Ranks({"a": 0.1, "b": 0.2, "c": 0.3}))
    pairs = sorted((owner, "abc"[a], "abc"[b]) for owner, a, b, _ in rows_of(found))
    assert pairs == [(0, "a", "b"), (1, "a", "a"), (2, "a", "b"), (2, "b", "c"), (3, "a", "c")]


@given(st.sets(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=60), st.integers(0, 9))
def test_an_event_with_a_pair_visits_the_shard_and_few_others_do(pairs: set[tuple[int, int]], seed: int) -> None:
    chance = random.Random(seed)
    hashes = name_hashes(f"a{number}" for number in range(31))
    pivots, partners = (np.array(column) for column in zip(*sorted(pairs), strict=True))
    words = pair_filter(hashes[pivots], hashes[partners], 32)
    filters = PairFilters(hashes, words, np.zeros(1, dtype=np.int64), np.array([32 * 64 - 1], dtype=np.uint64))
    trees = [sorted(chance.sample(range(31), 3)) for _ in range(200)]
    attributes = np.array(trees, dtype=np.int32).ravel()
    starts, codes = np.arange(0, 601, 3), np.ones(600, dtype=np.int32)
    owners = np.arange(32, dtype=np.int64), np.zeros(31, dtype=np.int32)  # every attribute is a pivot of the shard
    found, _ = visits(starts, attributes, codes, 0, *owners, np.zeros(0, dtype=np.int32), 1, filters)
    wanted = {n for n, tree in enumerate(trees) if any((a, b) in pairs for a in tree for b in tree)}
    assert wanted <= set(found.tolist())
    assert len(set(found.tolist()) - wanted) <= 20
    everyone, _ = visits(starts, attributes, codes, 0, *owners, np.zeros(0, dtype=np.int32), 1, no_filters(31, 1))
    assert everyone.tolist() == list(range(200))


def test_shards_are_of_equal_size_even_with_one_hot_pivot() -> None:
    expressions = [parse(f"hot = {n}") for n in range(900)] + [parse(f"a{n} = 1") for n in range(100)]
    ids = [f"id {n}" for n in range(1000)]
    parsed = parsed_of(expressions, ids)
    pivots = pivots_of(parsed, Ranks(attribute_counts(parsed)))
    shards = Line(Counter(pivots.primary.tolist()), 8).shards(pivots.primary, parsed.subscriptions["id"])
    sizes = np.bincount(shards, minlength=8)
    assert sizes.max() <= 1.5 * sizes.mean()
    assert set(shards[900:]) == {7}  # the rare ones are together, away from what every event has


def test_the_pivot_is_the_rarest_attribute_that_is_needed() -> None:
    expressions = [
        parse(text) for text in ("common = 1 and rare = 2", "common = 1 and rare is null", "common = 1 or rare > 2")
    ]
    parsed = parsed_of(expressions)
    ranks = Ranks({"common": 0.9, "rare": 0.1})
    found = [ranks.names[pivot] for pivot in pivots_of(parsed, ranks).primary]
    assert found == ["rare", "common", "common"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1 and not (b = 2)", [["a", "b"]]),
        ("any items (sku = 'x' and qty > 2)", [["items.sku", "items.qty"]]),
        ("not (a is null)", [[]]),
        ("exists a", [[]]),
        ("not (any items (sku = 'x'))", [[]]),
    ],
)
def test_attributes_that_must_have_a_value(text: str, expected: list[list[str]]) -> None:
    assert required_attributes(parse(text)) == expected


def test_expressions_without_columns_are_sent_as_text() -> None:
    expressions = [parse(text) for text in ("a = 9007199254740993", "a = 1", "not (a = 1)", "a in (true, 1)")]
    assert parsed_of(expressions).subscriptions["n_rows"].to_pylist() == [0, 1, 0, 0]


def test_the_text_is_kept_as_it_was_written() -> None:
    collector = Collector(pa.int64())
    collector.add(5, 1.0, "a  =  1  and b = 2.0", parse("a = 1 and b = 2.0"))
    engine = engine_of(collector.parsed(), None)
    assert engine.expression(5) == parse("a = 1 and b = 2.0")


def test_rows_must_name_every_position() -> None:
    rows = pa.table({"subscription": [0, 2], "attribute": ["a", "a"], "op": ["=", "="], "number": [1, 2]})
    with pytest.raises(TableError, match="every position"):
        Engine().add_rows(rows, pa.array([7, 8]), pa.array([1.0, 1.0]))
