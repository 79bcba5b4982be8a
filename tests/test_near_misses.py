"""Texts that almost satisfy a pattern, every way in: each gives what the model says."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from conftest import N_EXAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st
from near_misses import cases, expressions_of

from siftline import Engine
from siftline.model import Event, matches


def pairs(table: Any) -> list[tuple[int, int]]:
    return sorted(zip(table["event"].to_pylist(), table["subscription"].to_pylist(), strict=True))


def encodable(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


@settings(max_examples=2 * N_EXAMPLES)
@given(drawn=st.lists(cases(), min_size=1, max_size=4))
def test_near_misses(drawn: list[tuple[Any, list[str]]]) -> None:
    expressions = [each for (op, operand), _ in drawn for each in expressions_of(op, operand)]
    texts = [text for _, several in drawn for text in several]
    trees: list[dict[str, Any]] = [{"a": text} for text in texts]
    trees += [{"a": texts}, {"b": {"c": texts[:2]}, "a": 5}, {"a": [None, texts[-1]], "b": texts[0]}, {}]
    engine = Engine()
    engine.add_many(enumerate(expressions))
    wanted = [[i for i, each in enumerate(expressions) if matches(each, Event(tree))] for tree in trees]
    lines = [json.dumps(tree) for tree in trees]
    for tree, line, expected in zip(trees, lines, wanted, strict=True):
        assert sorted(engine.match(tree)) == expected
        assert sorted(engine.match(line)) == expected
        assert sorted(engine.match(json.dumps(tree, ensure_ascii=False).encode("utf-8", "surrogatepass"))) == expected
    expected_pairs = [(i, j) for i, expected in enumerate(wanted) for j in expected]
    assert pairs(engine.match_batch(trees)) == expected_pairs
    assert pairs(engine.match_batch(lines)) == expected_pairs
    plain = [
        i for i, tree in enumerate(trees) if set(tree) == {"a"} and type(tree["a"]) is str and encodable(tree["a"])
    ]
    table = pa.table({"a": pa.array([trees[i]["a"] for i in plain], pa.string())})
    assert pairs(engine.match_batch(table)) == [(k, j) for k, i in enumerate(plain) for j in wanted[i]]
