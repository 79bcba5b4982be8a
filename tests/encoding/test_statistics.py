"""Statistics: frequencies, samples, files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from siftline import Statistics
from siftline.errors import SnapshotError

if TYPE_CHECKING:
    from pathlib import Path

EVENTS = [{"a": 1, "tags": ["x", "y"]}, {"a": None}, {"b": {"c": "z"}}]


def test_frequencies_count_events() -> None:
    statistics = Statistics.from_events(EVENTS)
    assert statistics.n_events == 3
    assert [statistics.frequency(path) for path in ("a", "tags", "b.c", "b")] == [2 / 3, 1 / 3, 1 / 3, 0.0]
    assert statistics.samples["tags"] == ["x", "y"]


def test_events_come_in_every_shape() -> None:
    table = pa.table({"a": [1, 2], "b": ["x", None]})
    shapes = [table, table.to_pylist(), iter(table.to_pylist()), b'{"a": 1, "b": "x"}\n{"a": 2, "b": null}']
    assert len({json.dumps(Statistics.from_events(shape).to_dict()) for shape in shapes}) == 1
    assert Statistics.from_events([]).frequency("a") == 0.0


def test_samples_are_bounded_and_seeded() -> None:
    events = [{"a": i} for i in range(5000)]
    first, second = (Statistics.from_events(events, seed=7) for _ in range(2))
    assert first.samples == second.samples
    assert len(first.samples["a"]) == 1024
    assert max(int(value or 0) for value in first.samples["a"]) > 4000


def test_files(tmp_path: Path) -> None:
    statistics = Statistics.from_events(EVENTS)
    statistics.save(tmp_path / "s.json")
    assert Statistics.load(tmp_path / "s.json").to_dict() == statistics.to_dict()
    for damaged in ("{", "[]", '{"format": "x"}', '{"format": "siftline-statistics", "version": 9}'):
        (tmp_path / "s.json").write_text(damaged)
        with pytest.raises(SnapshotError, match=r"s\.json"):
            Statistics.load(tmp_path / "s.json")
    document = statistics.to_dict()
    del document["counts"]
    with pytest.raises(SnapshotError, match="counts"):
        Statistics.from_dict(document)


def test_histogram_refuses_what_is_no_number_of_bins() -> None:
    statistics = Statistics.from_events([{"a": 1}])
    for n_bins in (0, -1, "x"):
        with pytest.raises(ValueError, match="number of bins"):
            statistics.histogram("a", n_bins)  # type: ignore[arg-type]
