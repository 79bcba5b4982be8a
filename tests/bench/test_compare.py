"""Results and their comparison: what is noise, what is slower, what cannot be compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from siftline.bench.compare import compare
from siftline.bench.results import append, read, rows_of
from siftline.bench.runner import Plan, run
from siftline.bench.workloads import generate
from siftline.errors import ResultsError

if TYPE_CHECKING:
    from pathlib import Path


def _row(passes: list[float], **changes: Any) -> dict[str, Any]:
    return {"workload": "dense", "index": "sift", "mode": "ids", "unit": "us", "passes": passes, **changes}


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ([10.0, 11.0, 12.0], [10.0, 11.0, 12.0], "noise"),
        ([10.0, 11.0, 12.0], [11.9, 13.0, 15.0], "noise"),  # the ranges overlap
        ([10.0, 11.0, 12.0], [12.1, 13.0, 15.0], "slower"),
        ([10.0, 11.0, 12.0], [5.0, 6.0, 9.9], "faster"),
        ([10.0, 10.0, 10.0], [10.4, 10.4, 10.4], "noise"),  # steady, but too small a change
        ([10.0, 10.0, 10.0], [10.6, 10.6, 10.6], "slower"),
    ],
)
def test_noise_band(old: list[float], new: list[float], verdict: str) -> None:
    ((comparison,), lonely) = compare([_row(old)], [_row(new)])
    assert comparison.verdict == verdict
    assert not lonely


def test_a_lower_rate_is_slower() -> None:
    rows = [_row(passes, unit="events/s", is_rate=True) for passes in ([100.0, 110.0], [50.0, 60.0])]
    ((comparison,), _) = compare(rows[:1], rows[1:])
    assert comparison.verdict == "slower"
    assert comparison.ratio == pytest.approx(105 / 55, rel=0.02)


def test_the_last_row_counts() -> None:
    ((comparison,), _) = compare([_row([1.0]), _row([10.0])], [_row([10.0])])
    assert comparison.old == 10.0


def test_all_rounds_of_a_run_count_since_it_was_begun_anew() -> None:
    old = [_row([passes], run="ab", round=n) for passes, n in ((99.0, 1), (9.0, 1), (10.0, 2), (11.0, 3))]
    ((comparison,), _) = compare(old, [_row([10.0], run="ab", round=1)])
    assert (comparison.old, comparison.verdict) == (10.0, "noise")
    late = {"workload": "dense", "run": "ab", "round": 1, "status": "timed out"}
    ((comparison,), _) = compare([*old, late, _row([20.0], run="ab", round=2)], [_row([10.0], run="ab")])
    assert comparison.old == 20.0


def test_different_measurements_are_not_compared() -> None:
    old = [_row([1.0], seed=1), {"workload": "dense", "index": "picky", "status": "unsupported"}]
    found, lonely = compare(old, [_row([1.0], seed=2)])
    assert not found
    assert lonely == ["dense sift ids (only in old)", "dense sift ids (only in new)"]


def test_another_machine_is_noticed() -> None:
    ((comparison,), _) = compare([_row([1.0], machine={"cores": 2})], [_row([1.0], machine={"cores": 4})])
    assert not comparison.is_same_machine


def test_rows_say_all_that_is_needed(tmp_path: Path) -> None:
    workload = generate("dense", n_subscriptions=100, n_events=3, seed=4)
    rows = rows_of(workload, run(workload, [], Plan(n_passes=2)), 2)
    path = append(rows, tmp_path / "results" / "dense.jsonl")
    append(rows, path)
    (row, again) = read(path)
    assert row == again == rows[0]
    assert row["parameters"]["n_subscriptions"] == 100
    assert (row["workload"], row["seed"], row["index"], row["status"]) == ("dense", 4, "fast-scan", "ok")
    assert len(row["passes"]) == 2
    assert set(row["match_us"]) == {"min", "median", "p99", "max"}
    assert {"processor", "cores", "memory_gb", "python", "numba", "numpy"} <= set(row["machine"])
    assert {"commit", "is_dirty", "date", "build_s", "warm_up_s", "first_use_s", "index_bytes"} <= set(row)


@pytest.mark.parametrize("text", ["{", "[1]", '{"a": 1}'])
def test_files_without_rows_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"workload": "x"}}\n{text}\n')
    with pytest.raises(ResultsError, match="line 2"):
        read(path)
    with pytest.raises(ResultsError, match="cannot read"):
        read(tmp_path / "none.jsonl")


def test_rows_of_figures_say_themselves_what_they_measure() -> None:
    """How many events there was time for is no other measurement."""
    old, new = _row([10.0], run="ab", n_events=50), _row([10.0], run="ab", n_events=30)
    assert len(compare([old], [new])[0]) == 1
    assert len(compare([old], [{**new, "run": "cd"}])[1]) == 2
