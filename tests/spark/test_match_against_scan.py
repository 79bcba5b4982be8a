"""Random subscriptions and events through compile and match, by both plans, against the scan."""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from strategies import events, subscriptions

from siftline import Engine
from siftline.language.printer import to_text
from siftline.spark.compile import compile
from siftline.spark.directory.state import State
from siftline.spark.directory.versions import IndexDirectory
from siftline.spark.match import match
from spark.changing import Model, tree
from spark.test_deltas import first_rows

if TYPE_CHECKING:
    from siftline.model import Expression

PLANS = ["replicated", "sharded"]
ATTRIBUTES = "abcdef"


def drawn() -> tuple[list[Expression], list[dict[str, Any]]]:
    """Draw as Hypothesis does, for one job over all: a job for each example would take a second."""
    found: list[tuple[Expression, dict[str, Any]]] = []

    @settings(max_examples=400, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(subscriptions, events)
    def draw(subscription: Expression, event: dict[str, Any]) -> None:
        # Spark's strings are UTF-8, in which half a surrogate pair cannot be written.
        assume("\ud800" not in to_text(subscription))
        found.append((subscription, event))

    draw()
    return [subscription for subscription, _ in found], [event for _, event in found]


def compiled(spark: Any, path: Any, expressions: list[str], shards: int) -> str:
    rows = list(enumerate(expressions))
    directory = compile(spark.createDataFrame(rows, "subscription bigint, expression string"), path, shards=shards)
    assert directory.quarantined == 0
    return str(path)


def scanned(expressions: list[Any], trees: list[dict[str, Any]]) -> set[tuple[int, int]]:
    engine = Engine("scan")
    engine.add_many(enumerate(expressions))
    found = engine.match_batch(trees)
    return set(zip(found["event"].to_pylist(), found["subscription"].to_pylist(), strict=True))


@pytest.mark.parametrize("plan", PLANS)
def test_everything_that_can_be_written(spark: Any, tmp_path: Any, plan: str) -> None:
    expressions, trees = drawn()
    index = compiled(spark, tmp_path / "index", [to_text(expression) for expression in expressions], 3)
    rows = [(number, json.dumps(tree)) for number, tree in enumerate(trees)]
    frame = spark.createDataFrame(rows, "id bigint, event string").repartition(2)
    found = [tuple(row) for row in match(frame, index, plan=plan).collect()]
    assert len(set(found)) == len(found)
    assert set(found) == scanned(expressions, trees)


def plain(chance: random.Random) -> tuple[list[str], list[dict[str, float]]]:
    """Draw numbers only, as every shape of events can hold them."""
    texts = []
    for _ in range(300):
        literals = []
        for name in chance.sample(ATTRIBUTES, chance.randint(1, 3)):
            kind = chance.choice(["= {}", "<= {}", "between {} and 7", "in ({}, 2)", "is null", "is not null"])
            literals.append(f"{chance.choice(['', '', 'not '])}({name} {kind.format(chance.randrange(10))})")
        texts.append(chance.choice([" and ", " and ", " or "]).join(literals))
    names = [chance.sample(ATTRIBUTES, chance.randint(0, 4)) for _ in range(120)]
    return texts, [{name: float(chance.randrange(10)) for name in sorted(chosen)} for chosen in names]


@pytest.fixture(scope="module")
def numbers(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[dict[str, float]], Any]:
    texts, trees = plain(random.Random(2))
    index = compiled(spark, tmp_path_factory.mktemp("numbers") / "index", texts, 4)
    return index, trees, scanned(texts, trees)


def frame_of(spark: Any, trees: list[dict[str, float]], shape: str) -> tuple[Any, Any]:
    rows = [(number, list(tree.items())) for number, tree in enumerate(trees)]
    entries = spark.createDataFrame(rows, "id bigint, event array<struct<name: string, value: double>>").repartition(2)
    changed = {
        "JSON": "to_json(map_from_entries(event)) as event",
        "binary": "cast(to_json(map_from_entries(event)) as binary) as event",
        "map": "map_from_entries(event) as event",
        "struct": f"struct({', '.join(column(name) for name in ATTRIBUTES)}) as event",
        "columns": ", ".join(column(name) for name in ATTRIBUTES),
        "entries": "event",
        "two arrays": "event.name as names, event.value as values",
    }
    frame = entries.selectExpr(
        "id", *_split(changed[shape]) if shape in ("columns", "two arrays") else [changed[shape]]
    )
    return frame, ("names", "values") if shape == "two arrays" else "event"


def column(name: str) -> str:
    return f"map_from_entries(event)['{name}'] as {name}"


def _split(text: str) -> list[str]:
    return text.split(", ")


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("shape", ["JSON", "binary", "map", "struct", "columns", "entries", "two arrays"])
def test_every_shape(spark: Any, numbers: Any, shape: str, plan: str) -> None:
    index, trees, expected = numbers
    frame, event = frame_of(spark, trees, shape)
    found = [tuple(row) for row in match(frame, index, event=event, plan=plan).collect()]
    assert len(found) == len(expected)
    assert set(found) == expected


@pytest.mark.parametrize("how", ["arrays", "counts", "top-k"])
def test_both_plans_give_the_same(spark: Any, numbers: Any, how: str) -> None:
    index, trees, _ = numbers
    frame, _ = frame_of(spark, trees, "JSON")
    # Two events of the same key stay two.
    frame = frame.selectExpr("id % 100 as id", "event")
    replicated, sharded = (
        sorted(map(_plain, match(frame, index, how=how, k=3, plan=plan).collect())) for plan in PLANS
    )
    assert replicated == sharded
    assert len(replicated) == len(trees) or how == "top-k"


@pytest.mark.parametrize("how", ["pairs", "top-k", "counts"])
def test_changes_since_the_version(spark: Any, tmp_path: Any, how: str) -> None:
    rows = first_rows(random.Random(3), 25)
    texts = [text for _, text, _ in rows]
    index = compiled(spark, tmp_path / "index", texts, 3)
    model = Model([(id, text, 1.0) for id, text, _ in rows], 3)
    trees = [tree(model.chance) for _ in range(40)]
    frame = spark.createDataFrame([(n, json.dumps(each)) for n, each in enumerate(trees)], "id bigint, event string")
    for _ in range(2):
        model.change(index, 1, n_changes=10)
    engine = Engine("scan")
    engine.add_many(model.rows(State(1, 2, time.time_ns() // 1000)))
    found = engine.match_batch(trees, top=3 if how == "top-k" else None)
    pairs = sorted(zip(found["event"].to_pylist(), found["subscription"].to_pylist(), strict=True))
    if how == "counts":
        pairs = [(event, sum(pair[0] == event for pair in pairs)) for event in range(len(trees))]
    for plan in PLANS:
        matches = match(frame, index, how=how, k=3, plan=plan)
        assert sorted(tuple(row)[:2] for row in matches.collect()) == pairs
    # A version that was opened stays as it is.
    before = match(frame, IndexDirectory.open(index)).collect()
    assert {tuple(row) for row in before} == scanned(texts, trees)


def _plain(row: Any) -> tuple[Any, ...]:
    """Return a row with its array sorted: there is no order in it."""
    return tuple(sorted(value) if isinstance(value, list) else value for value in row)
