"""Statistics that Spark collects, against those of one process."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from siftline import Statistics
from siftline.spark.profile import profile

if TYPE_CHECKING:
    from pathlib import Path


def drawn(n: int) -> list[dict[str, Any]]:
    chance = random.Random(5)
    events: list[dict[str, Any]] = []
    for number in range(n):
        event: dict[str, Any] = {"number": number, "color": chance.choice(["red"] * 8 + ["blue", "green"])}
        if number % 4 == 0:
            event |= {"size": {"width": chance.randrange(50)}, "tags": ["x", None, number % 3 == 0]}
        events.append(event)
    return events


def test_all_values_of_few_events(spark: Any, tmp_path: Path) -> None:
    events = drawn(400)
    rows = [(number, json.dumps(event)) for number, event in enumerate(events)] + [(1, "{"), (2, None)]
    frame = spark.createDataFrame(rows, "id bigint, event string").repartition(3)
    found, expected = profile(frame), Statistics.from_events(events)
    assert (found.n_events, found.counts) == (expected.n_events, expected.counts)
    for path in expected.samples:
        assert sorted(map(str, found.samples[path])) == sorted(map(str, expected.samples[path]))
        assert found.n_distinct(path) == expected.n_distinct(path) or path == "number"
    assert found.n_distinct("number") == pytest.approx(400, rel=0.2)
    value, share = found.common("color", 1)[0]
    assert (value, round(share, 1)) == ("red", 0.8)
    found.save(tmp_path / "statistics.json")
    assert Statistics.load(tmp_path / "statistics.json").to_dict() == found.to_dict()


def test_samples_of_many_values(spark: Any) -> None:
    frame = spark.range(20_000).selectExpr("id", "map('n', cast(id as double), 'few', cast(id % 7 as double)) as event")
    found = profile(frame.repartition(3))
    assert found.counts == {"n": 20_000, "few": 20_000}
    assert len(found.samples["n"]) == 1024
    assert sum(value < 10_000 for value in found.samples["n"]) == pytest.approx(512, abs=100)  # type: ignore[operator]
    assert found.n_distinct("n") == pytest.approx(20_000, rel=0.2)
    assert found.n_distinct("few") == 7
    assert profile(frame.repartition(3)).samples == found.samples


def test_columns_without_the_key(spark: Any) -> None:
    frame = spark.createDataFrame([(1, 2.0, "x"), (2, None, "y")], "id bigint, a double, b string")
    found = profile(frame)
    assert found.counts == {"a": 2, "b": 2}
    assert sorted(found.samples["b"]) == ["x", "y"]  # type: ignore[type-var]


def test_no_events(spark: Any) -> None:
    found = profile(spark.createDataFrame([], "id bigint, event string"))
    assert (found.n_events, found.counts) == (0, {})
