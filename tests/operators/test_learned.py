"""What was learned outlives an engine, adds up exactly, and shows in explanations."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from siftline import Engine
from siftline.operators.learned import summed
from siftline.operators.operator import operator
from siftline.operators.schedules import schedules

if TYPE_CHECKING:
    from pathlib import Path

SUBSCRIPTIONS = {1: "learned_has('a') and learned_has('b')", 2: "x = 1 and learned_has('a')", 3: "learned_has('c')"}


@operator("learned_has", cost=5)
def learned_has(event: dict[str, Any], name: str) -> bool:
    if name == "broken":
        raise ValueError(name)
    return name in event


def made(schedule: str = "adaptive") -> Engine:
    engine = Engine(schedule=schedule)
    engine.add_many(SUBSCRIPTIONS.items())
    return engine


@pytest.mark.parametrize("schedule", ["adaptive", "sub-order"])
def test_snapshots_keep_what_was_learned(schedule: str, tmp_path: Path) -> None:
    engine = made(schedule)
    for number in range(30):
        engine.match({"a": 1} if number % 3 else {"c": 1})
    engine.save(tmp_path / "engine")
    again = Engine.open(tmp_path / "engine")
    before, after = engine.stats()["operators"], again.stats()["operators"]
    known, expected = after["learned"]["learned_has"], before["learned"]["learned_has"]
    assert known["milliseconds"] == pytest.approx(expected["milliseconds"])
    assert known["milliseconds"] < 1000
    assert known["share_true"] == pytest.approx(expected["share_true"], abs=0.02)
    assert after["calls"] == 0
    stages = engine.call_stage, again.call_stage
    assert stages[0] is not None
    assert stages[1] is not None
    assert stages[0].learned().predicates == stages[1].learned().predicates
    assert again.match({"a": 1, "x": 1}) == [2]


def test_what_is_recorded_adds_up() -> None:
    events = [{"a": 1, "b": 1}, {"c": 1}, {"a": 1, "x": 1}, {}]
    engines = [made(), made()]
    for engine, part in zip(engines, (events[:1], events[1:]), strict=True):
        assert engine.call_stage is not None
        engine.call_stage.record()
        for event in part:
            engine.match(event)
    stages = [engine.call_stage for engine in engines]
    total = summed(stage.recorded() for stage in stages if stage is not None)
    counts = {key: total.predicates[f'["learned_has", ["{key}"], []]'] for key in "abc"}
    assert counts["c"] == [1, 3, 4]
    assert all(n_true + n_false == n for n_true, n_false, n in counts.values())
    assert total.operators["learned_has"][:4] == [
        sum(n for _, _, n in counts.values()),
        0,
        0,
        sum(n for _, _, n in counts.values()),
    ]
    assert total.shown()["learned_has"]["calls"] == sum(engine.stats()["operators"]["calls"] for engine in engines)


def test_explanations_say_which_calls_were_made() -> None:
    engine = made("naive")
    found = engine.explain({"a": 1, "x": 1}, 1)
    text = str(found)
    assert not found.matched
    assert "shared by 2 conditions" in text
    assert text.splitlines()[-1].startswith("calls of the event: 3 made in ")
    assert text.splitlines()[-1].endswith("1 of them shared, 0 skipped")
    calls = engine.stats()["operators"]["calls"]
    assert calls == 3  # those that matching made are not made again
    text = str(engine.explain({"b": 1}, 1))
    assert "skipped when matching" in text.splitlines()[3]
    assert text.splitlines()[-1].endswith("0 of them shared, 1 skipped")
    left_out = engine.explain({"x": 2, "a": 1}, 2)
    assert not left_out.matched
    assert left_out.to_dict()["calls"]["conditions"] == 2


@pytest.mark.parametrize("schedule", schedules())
def test_explanations_agree_with_matching(schedule: str) -> None:
    engine = made(schedule)
    for event in ({"a": 1, "b": 1, "x": 1}, {"c": 1}, {"x": 1}, {}):
        found = engine.match(event)
        assert [id for id in SUBSCRIPTIONS if engine.explain(event, id).matched] == sorted(found)


def test_failures_show(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine()
    engine.add("learned_has('broken')", id=1)
    with caplog.at_level(logging.CRITICAL):
        assert "failed, " in str(engine.explain({}, 1))
