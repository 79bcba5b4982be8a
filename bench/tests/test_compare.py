"""Results and their comparison: what is noise, what is slower, what cannot be compared."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import pytest

from siftline_bench.command import add_arguments
from siftline_bench.command import run as run_command
from siftline_bench.compare import compare, counts, ended_early
from siftline_bench.errors import ResultsError
from siftline_bench.results import append, read, rows_of
from siftline_bench.runner import Plan, run
from siftline_bench.workloads import generate

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


def test_what_does_not_get_to_an_end_any_more(tmp_path: Path) -> None:
    late = {"workload": "dense", "index": "sift", "run": "ab", "scale": "small", "round": 1, "status": "timed out"}
    ok = [_row([10.0], run=run, scale="small", round=1) for run in ("ab", "cd")]
    assert ended_early(ok, [late, ok[1]]) == ["dense sift: now timed out"]
    assert ended_early(ok, ok) == ended_early([late], [late]) == ended_early(ok, [late, _row([9.0], run="ab")]) == []
    for name, rows in (("old", ok), ("new", [late, ok[1]])):
        append(rows, tmp_path / f"{name}.jsonl")
    assert _command("compare", str(tmp_path / "old.jsonl"), str(tmp_path / "new.jsonl"), "--fail") == 1


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


def test_passes_of_all_rounds_are_compared_on_both_sides() -> None:
    old, new = (
        [_row([shift + n, shift + n + 0.5], run="ab", round=n) for n in (1, 2, 3)]
        + [{"workload": "dense", "run": "ab", "round": 4, "status": "timed out"}]
        for shift in (0.0, 2.0)
    )
    ((comparison,), _) = compare(old, new)
    assert (comparison.old, comparison.new, comparison.unit) == (2.25, 4.25, "us")
    assert (comparison.least, comparison.most) == (3.0 / 3.5, 5.5)
    assert comparison.verdict == "noise"  # the last rounds alone would differ


@pytest.mark.parametrize(
    ("old", "new", "verdicts"),
    [
        (0.1, 0.149, ["noise"]),
        (0.1, 0.151, ["slower"]),
        (0.151, 0.1, ["faster"]),
        (0.001, 0.0049, []),  # too short to tell
        (0.001, 0.0051, ["slower"]),
        (0.0, 0.1, []),  # not measured
        (None, 0.1, []),
    ],
)
def test_noise_band_of_building(old: float | None, new: float, verdicts: list[str]) -> None:
    (passes, *builds), _ = compare([_row([1.0], index_s=old)], [_row([1.0], index_s=new)])
    assert passes.verdict == "noise"
    assert [(each.verdict, each.unit) for each in builds] == [(verdict, "s to build") for verdict in verdicts]


def test_the_least_building_time_of_all_rounds_counts() -> None:
    old = [_row([1.0], run="ab", round=n, index_s=seconds) for n, seconds in ((1, 0.1), (2, 0.3))]
    new = [_row([1.0], run="ab", round=n, index_s=seconds) for n, seconds in ((1, 0.5), (2, 0.2), (3, 0.4))]
    ((_, build), _) = compare(old, new)
    assert (build.old, build.new, build.verdict) == (0.1, 0.2, "slower")


@pytest.mark.parametrize(
    ("old", "new", "verdicts"),
    [
        (10**7, 10_090_000, ["noise"]),
        (10**7, 10_110_000, ["larger"]),
        (10**7, 9_890_000, ["smaller"]),
        (0, 10**7, []),  # not told
    ],
)
def test_noise_band_of_memory(old: int, new: int, verdicts: list[str]) -> None:
    (_, *sizes), _ = compare([_row([1.0], index_bytes=old)], [_row([1.0], index_bytes=new)])
    assert [(each.verdict, each.unit, each.new) for each in sizes] == [(word, "MB", new / 1e6) for word in verdicts]


@pytest.mark.parametrize("worse", [{"index_s": 2.0}, {"index_bytes": 2 * 10**6}])
def test_the_command_shows_what_differs_and_fails_for_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], worse: dict[str, Any]
) -> None:
    same = {"index_s": 1.0, "index_bytes": 10**6}
    old, new = (append([_row([1.0], **same)], tmp_path / name) for name in ("old", "same"))
    assert _command("compare", str(old), str(new), "--fail") == 0
    assert capsys.readouterr().out == "3 numbers compared: 3 noise\n"
    new = append([_row([1.0], **{**same, **worse})], tmp_path / "new")
    assert _command("compare", str(old), str(new), "--fail") == 1
    heading, line, last = capsys.readouterr().out.splitlines()
    assert heading.startswith("measurement")
    assert line.startswith("dense sift ids")
    assert last in ("3 numbers compared: 1 slower, 2 noise", "3 numbers compared: 1 larger, 2 noise")
    assert _command("compare", str(new), str(old), "--fail") == 0


def _command(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run_command(parser.parse_args(arguments))


def test_verdicts_are_counted() -> None:
    found, _ = compare([_row([1.0], index_bytes=100)], [_row([2.0], index_bytes=50)])
    assert counts(found) == "2 numbers compared: 1 slower, 1 smaller"


def test_rows_of_figures_say_where_they_are_from() -> None:
    ((comparison,), _) = compare([_row([1.0], run="ab")], [_row([1.0], run="ab", figure="opindex-1", x=0.5)])
    assert comparison.label == "opindex-1 at 0.5: dense sift ids"


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
