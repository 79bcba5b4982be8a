"""Expressions as tuples: the same expressions come back, and the garbage collector has nothing to do with them."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from strategies import subscriptions

from siftline import Engine, parse
from siftline.engine.subscriptions import ParsedExpressions
from siftline.model import pack, unpack

if TYPE_CHECKING:
    from siftline.model import Expression


@given(expression=subscriptions)
def test_what_was_packed_comes_back(expression: Expression) -> None:
    again = unpack(pack(expression))
    assert again == expression
    assert repr(again) == repr(expression)


@pytest.mark.parametrize("text", ["near('x', 3) and a = 1", "true", "false", "not (f('x', ?y) and ?y > 2)"])
def test_what_has_no_plain_form_comes_back(text: str) -> None:
    assert unpack(pack(parse(text))) == parse(text)


def test_the_collector_forgets_what_is_packed() -> None:
    texts = ["a = 1", "a in (1, 'x') and at > timestamp '2026-01-31'", "not any b (this > now() or c is null)"]
    kept = [pack(parse(text)) for text in texts]
    for _ in range(6):  # one level of tuples at a time
        gc.collect()
    assert not any(gc.is_tracked(packed) for packed in kept)


def test_groups_of_expressions_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("siftline.engine.subscriptions._CHUNK", 4)
    monkeypatch.setattr("siftline.engine.subscriptions._MOST_UNPACKED", 3)
    expressions = [parse(f"a = {n}") for n in range(11)]
    group = ParsedExpressions(expressions[:6])
    group.extend(ParsedExpressions(expressions[6:]))
    assert len(group) == 11
    for _ in range(2):
        assert [group.expression(n) for n in range(11)] == expressions


def test_subscriptions_are_no_objects_for_the_collector() -> None:
    engine = Engine()
    engine.add_many((n, f"a = {n} and b > {n}.5") for n in range(300))
    n_more = 2_000
    gc.collect()
    before = len(gc.get_objects())
    for n in range(n_more):
        engine.add(f"a = {n} and c > {n}.5 and d in ({n}, 'x')", id=1000 + n)
    engine.add_many((10_000 + n, f"a = {n} and b != {n} and d in ({n}, 'y')") for n in range(n_more))
    engine.settle()
    gc.collect()
    assert len(gc.get_objects()) - before < n_more // 4
