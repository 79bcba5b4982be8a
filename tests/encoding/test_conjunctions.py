"""Many expressions at once are encoded by columns where they fit, and mean the same as one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from conftest import N_EXAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import events, subscriptions

from siftline import Engine
from siftline.encoding.clauses import constants_of, encode_covers
from siftline.encoding.conjunctions import encode_many
from siftline.encoding.domains import Domains
from siftline.language.normal_form import cover
from siftline.language.text import parse
from siftline.model import Predicate

if TYPE_CHECKING:
    from siftline.model import Expression

# One that shares entries and has a tail, one that takes conjunctions of disjunctions, and one that takes patterns too.
INDEXES = ["sift", "k-index", "op-index"]
lists_of_subscriptions = st.lists(subscriptions, min_size=1, max_size=12)

FITTING = [
    "a = 1",
    "a != 1.5 and b = 'x' and b != 'y'",
    "a < 2 and a <= 3 and a > -1 and a >= 0 and c between 2 and 5",
    "c between 5 and 2",
    "a in (1, 2, 2.5) and b in ('x', 'é')",
    "b starts with 'x' and b ends with 'y' and b contains 'z'",
    "at > timestamp '2026-01-31T10:00:00.123456789Z' and a = 1",
    "at != timestamp '0001-01-01' and at <= timestamp '9999-12-31T23:59:59.999999999Z'",
    "at between timestamp '2026-01-31' and timestamp '2026-02-01' and b = 'x'",
    "at between timestamp '2026-02-01' and timestamp '2026-01-31'",
]
OTHERS = [
    "a = 1 or b = 2",
    "not a = 1",
    "a = true",
    "a = 9007199254740993",
    "a in (1, 'x')",
    "b between 'x' and 'y'",
    "b < 'x' and a = 1",
    "a is null",
    "b like 'x%'",
    "any d (this = 1)",
    "d.e not in (1, 2)",
    "at > now() and a = 1",
    "at in (timestamp '2026-01-31', timestamp '2026-02-01')",
    "at not between timestamp '2026-01-31' and timestamp '2026-02-01'",
]


@pytest.mark.parametrize("index", INDEXES)
@settings(max_examples=N_EXAMPLES)
@given(first=lists_of_subscriptions, second=lists_of_subscriptions, trees=st.lists(events, min_size=1, max_size=4))
def test_ids_equal_those_of_scan(
    index: str, first: list[Expression], second: list[Expression], trees: list[dict[str, Any]]
) -> None:
    oracle, engine = Engine("scan"), Engine(index)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("siftline.engine.updates.COLUMNAR_ENCODING_MIN", 1)
        for number, expressions in enumerate((first, second)):  # the second time labels may have to move
            for each in (oracle, engine):
                each.add_many(enumerate(expressions, 100 * number))
            engine._check()
    for tree in trees:
        assert sorted(engine.match(tree)) == sorted(oracle.match(tree))


@pytest.mark.parametrize("takes_patterns", [False, True])
def test_clauses_equal_those_of_covers(takes_patterns: bool) -> None:
    expressions = [parse(text) for pair in zip(FITTING, OTHERS, strict=False) for text in pair]
    expressions += [parse(text) for text in OTHERS]
    domains, many = Domains(), Domains()
    covers = [cover(expression) for expression in expressions]
    domains.add(constants_of(covers))
    wanted = encode_covers(covers, 7, domains, takes_patterns=takes_patterns)
    found, moves = encode_many([None, *expressions], 6, many, cover, takes_patterns=takes_patterns)
    found.check()
    assert not moves
    assert found.slots.tolist() == wanted.slots.tolist()
    assert found.starts.tolist() == wanted.starts.tolist()
    assert found.is_exact.tolist() == wanted.is_exact.tolist()
    assert sorted(found.kinds.tolist()) == sorted(wanted.kinds.tolist())


def test_conjunctions_with_timestamps_are_encoded_by_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    expressions = [parse(text) for text in FITTING]

    def refused(_: Expression) -> Any:
        raise AssertionError("one by one")

    monkeypatch.setattr("siftline.encoding.columns.predicate_of", refused)
    found, moves = encode_many(expressions, 0, Domains(), refused)
    assert not moves
    assert found.is_exact.all()
    assert len(set(found.slots.tolist())) == len(FITTING) - 2  # of two with reversed bounds nothing is left


def test_strings_that_arrow_does_not_take() -> None:
    engine = Engine()
    engine.add_many((n, Predicate("b", "=", f"\ud800{n}")) for n in range(300))
    assert engine.match({"b": "\ud8007"}) == [7]
    assert engine.expression(6) == Predicate("b", "=", "\ud8006")
