"""Laying out the index for the events that come."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import siftline
from siftline import Engine, Statistics
from siftline.engine.paged import PagedEngine

EVENTS = [{"common": 1, "rare": n % 40, "s": "box"} for n in range(200)]


def filled(index: str) -> Engine:
    engine = Engine(index)
    engine.add_many((n, f"common = 1 and rare = {n % 50} and s contains 'o'") for n in range(300))
    engine.add("common is null", id=1000)
    return engine


@pytest.mark.parametrize("index", siftline.indexes())
def test_the_same_ids_before_and_after(index: str) -> None:
    engine = filled(index)
    expected = [sorted(engine.match(event)) for event in EVENTS]
    report = engine.tune(EVENTS)
    engine._check()
    assert [sorted(engine.match(event)) for event in EVENTS] == expected
    assert report.n_events == 200
    assert report.before.candidates > 0
    statistics = engine._statistics if isinstance(engine, PagedEngine) else engine._state.statistics
    assert (statistics is not None) is report.is_kept
    lines = str(report).splitlines()
    assert lines[0] == "statistics of 200 events, an event on average:"
    assert lines[-1].endswith("kept")


@pytest.mark.parametrize("kind", ["dicts", "arrow", "encoded", "json", "generator"])
def test_events_of_every_form(kind: str) -> None:
    engine = filled("sift")
    events: Any = {
        "dicts": EVENTS,
        "arrow": pa.Table.from_pylist(EVENTS),
        "encoded": engine.encode(EVENTS),
        "json": pa.array(['{"common": 1, "rare": 3}'] * 10),
        "generator": (event for event in EVENTS),
    }[kind]
    assert engine.tune(events).n_events in (10, 200)


def test_the_better_layout_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    from siftline.engine import tuning

    costs = [tuning.Cost(5.0, 1, 1), tuning.Cost(9.0, 1, 1), tuning.Cost(5.0, 1, 1), tuning.Cost(4.0, 1, 1)]
    monkeypatch.setattr(tuning, "_measured", lambda *_: costs.pop(0))
    engine = filled("sift")
    engine.rebuild()
    index = engine._state.index
    assert not engine.tune(EVENTS).is_kept
    assert engine._state.index is index
    assert engine._state.statistics is None
    assert "none" in engine.describe()
    assert engine.tune(EVENTS).is_kept
    assert engine._state.index is not index
    assert "statistics: of 200 events" in engine.describe()
    engine._check()


def test_expected_candidates_are_right_when_events_are_even() -> None:
    engine = Engine("sift")
    engine.add_many((n, f"a = {n % 10} and b = {n % 100} and c = {n}") for n in range(1000))
    events = [{"a": n % 10, "b": n % 100, "c": n} for n in range(1000)]
    report = engine.tune(events)
    assert 0.5 < report.expected_candidates < 30
    with pytest.raises(ValueError, match="some events"):
        engine.tune([])


def test_an_engine_describes_itself() -> None:
    engine = Engine("sift", statistics=Statistics.from_events(EVENTS))
    engine.add_many([(1, "a = 1"), (2, "a = 1"), (3, "a > 1 and s contains 'x'")])
    text = engine.describe()
    assert "3 subscriptions, 1 of them with the same expression as another" in text
    assert "2 clauses of 3 predicates on 2 attributes, 1 patterns" in text
    assert "write buffer: 2 clauses" in text
    assert "sift: " in text
