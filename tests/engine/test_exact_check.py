"""The exact check gives the model's answers, whatever events come as, and its counts are shown."""

from __future__ import annotations

import json
import os
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import N_EXAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import NOW, any_elements, derived, events, expressions, predicates, sweep

from siftline import Engine
from siftline.engine import pipeline
from siftline.engine.exact_check import holds_by_programs
from siftline.language.text import parse
from siftline.model import Event, Expression, Or, instant_of_text, matches

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
    engine.add(r"length(a) > 2 and any string matches 'lit.*x\b'", id=1)
    engine.add("a = 1", id=2)
    assert engine.stats()["programs"] == engine.stats()["regex_calls"] == 0
    assert engine.match({"a": "literal"}) == []
    assert engine.match({"a": "lit x"}) == [1]
    assert (engine.stats()["programs"], engine.stats()["program_tests"], engine.stats()["regex_calls"]) == (1, 2, 1)
    engine.remove(2)
    sweep(engine)
    assert (engine.stats()["programs"], engine.stats()["regex_calls"]) == (0, 1)
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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_process_compiles_again() -> None:
    engine = Engine()
    engine.add("length(a) > 2", id=1)
    assert engine.match('{"a": "xyz"}') == [1]
    programs = engine._state.table.programs
    with programs._lock:  # as if another thread were compiling
        child = os.fork()
        if child == 0:
            engine.add("length(a) > 1", id=2)
            os._exit(0 if sorted(engine.match('{"a": "xyz"}')) == sorted(engine.match({"a": "xyz"})) == [1, 2] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert programs.stats()["programs"] == 1


def test_several_regular_expressions_take_several_rounds() -> None:
    engine = Engine()
    texts = [
        "length(a) > 0 and (a matches '[0-9]x$' or a matches '^y[0-9]' or b matches '[ab]z')",
        "length(a) > 0 and not a matches '^y[0-9]' and b not matches '[ab]z'",
    ]
    engine.add_many(enumerate(texts))
    trees: list[dict[str, Any]] = [
        {"a": "1x"},
        {"a": "y1"},
        {"a": "1", "b": "az"},
        {"a": ["q", "y2"], "b": "c"},
        {"a": "q", "b": "c"},
        {"a": "q", "b": 1},
    ]
    expected = [expected_ids([parse(text) for text in texts], tree) for tree in trees]
    assert [ids for ids in expected if ids] == [[0], [0], [0], [0], [1]]
    assert [sorted(engine.match(tree)) for tree in trees] == expected
    assert [sorted(engine.match(json.dumps(tree))) for tree in trees] == expected
    found = engine.match_batch(trees)
    assert found["event"].to_pylist() == [event for event, ids in enumerate(expected) for _ in ids]
