"""The exact check gives the model's answers, whatever events come as, and its counts are shown."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from conftest import N_EXAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import NOW, any_elements, derived, events, expressions, predicates, sweep

from siftline import Engine
from siftline.engine import pipeline
from siftline.engine.exact_check import holds_by_programs
from siftline.model import Event, Expression, Or, instant_of_text, matches

if TYPE_CHECKING:
    import pytest

NOW_NS = int(instant_of_text(NOW) or 0)
# Beside tests of strings, so that indexes leave candidates.
checked = st.builds(
    lambda one, other: Or((one, other)), st.one_of(derived, any_elements), st.one_of(predicates, expressions)
)


def expected_ids(subscriptions: list[Expression], tree: dict[str, Any]) -> list[int]:
    return [number for number, each in enumerate(subscriptions) if matches(each, Event(tree, NOW_NS))]


@settings(max_examples=N_EXAMPLES)
@given(st.lists(st.one_of(checked, expressions), min_size=1, max_size=8), st.lists(events, min_size=1, max_size=4))
def test_dicts_json_and_arrow_give_the_ids_of_the_model(
    subscriptions: list[Expression], trees: list[dict[str, Any]]
) -> None:
    engine = Engine()
    engine.add_many(enumerate(subscriptions))
    texts = [json.dumps(tree) for tree in trees]
    expected = [expected_ids(subscriptions, tree) for tree in trees]
    pairs = [(event, id) for event, ids in enumerate(expected) for id in ids]
    for tree, text, ids in zip(trees, texts, expected, strict=True):
        assert sorted(engine.match(tree, now=NOW)) == ids
        assert sorted(engine.match(text, now=NOW)) == ids
    column = pa.table({"event": texts})
    for batch, named in (trees, None), ("\n".join(texts).encode(), None), (column, "event"):
        found = engine.match_batch(batch, now=NOW, event=named)
        assert sorted(zip(found["event"].to_pylist(), found["subscription"].to_pylist(), strict=True)) == pairs


def test_arrow_columns_and_one_row() -> None:
    engine = Engine()
    engine.add("length(name) > 3 or size > weight", id=1)
    table = pa.table({"name": ["abc", "abcd", None], "size": [1, None, 2**53 + 1], "weight": [1.5, 2.0, 2.0**53]})
    assert engine.match_batch(table)["event"].to_pylist() == [1, 2]
    assert engine.match_batch(table.slice(2, 1))["event"].to_pylist() == [0]


def test_odd_events_are_checked_by_the_model() -> None:
    engine = Engine()
    engine.add("a > b", id=1)
    engine.add("any string contains 'x'", id=2)
    texts = [
        f'{{"a": {2**70}, "b": 1}}',
        '{"a": 5, "b": 1, "a": 0}',
        '{"c": "x", "c": 1}',
        '{"a": 1, "b": 0, "c": "x"}',
    ]
    found = engine.match_batch("\n".join(texts).encode())
    assert sorted(zip(found["event"].to_pylist(), found["subscription"].to_pylist(), strict=True)) == [
        (0, 1),
        (3, 1),
        (3, 2),
    ]
    assert [sorted(engine.match(text)) for text in texts] == [[1], [], [], [1, 2]]
    assert engine.match({"a": 2**70, "b": 1}) == [1]


def test_the_counts_are_shown_and_survive_a_sweep() -> None:
    engine = Engine()
    engine.add("length(a) > 2 and any string matches 'lit.*x'", id=1)
    engine.add("a = 1", id=2)
    assert engine.stats()["programs"] == engine.stats()["regex_calls"] == 0
    assert engine.match({"a": "literal"}) == []
    assert engine.match({"a": "lit x"}) == [1]
    assert (engine.stats()["programs"], engine.stats()["program_tests"], engine.stats()["regex_calls"]) == (1, 2, 2)
    engine.remove(2)
    sweep(engine)
    assert (engine.stats()["programs"], engine.stats()["regex_calls"]) == (0, 2)
    assert engine.match('{"a": "lit x"}') == [1]
    assert pickle.loads(pickle.dumps(engine)).match({"a": "lit x"}) == [1]


def test_a_batch_makes_one_check(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    engine.add_many((n, f"length(a) > {n} or b < c") for n in range(10))
    calls: list[int] = []

    def counted(positions: Any, slots: Any, events: Any, table: Any) -> Any:
        calls.append(len(np.unique(positions)))
        return holds_by_programs(positions, slots, events, table)

    monkeypatch.setattr(pipeline, "holds_by_programs", counted)
    found = engine.match_batch([{"a": "x" * n, "b": 1, "c": 0} for n in range(1, 9)], threads=1)
    assert calls == [8]
    assert len(found) == sum(range(1, 9))
