"""The papers' figures: files, runs, rows, and what becomes of a run that does not end well."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from siftline.indexes import registry
from siftline.indexes.fast_scan.index import FastScan
from siftline_bench.command import add_arguments, run
from siftline_bench.figures import PAPERS, figures, harness, noise
from siftline_bench.figures.claims import Check, Claim
from siftline_bench.figures.figure import SCALES, Figure, Run, Settings, read
from siftline_bench.figures.kinds import kind
from siftline_bench.figures.measures import measure
from siftline_bench.figures.panels import panel
from siftline_bench.figures.speed import steadied
from siftline_bench.figures.worker import TIMED_OUT, RunFailedError, Worker
from siftline_bench.runner import Choice
from siftline_bench.workloads import workloads

_TINY = """
paper: opindex
where: Fig. 0
title: Something small
kind: matching
workload: dense
set: {n_attributes: 20, event_size: 10}
x: {label: subscriptions, log: true}
y: {measure: match_ms, log: true}
vary: n_subscriptions
series: {SCAN: fast-scan, counting: counting}
scales:
  small: {values: [100, 200], set: {n_events: 3}, passes: 2, seconds: 2}
"""


def _bench(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(arguments))


def _read(folder: Path, text: str) -> Figure:
    path = folder / "opindex-0.yaml"
    path.write_text(text)
    return read(path)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Figure:
    figure = _read(tmp_path, _TINY)
    monkeypatch.setitem(figures(), figure.name, figure)
    return figure


# files


@pytest.mark.parametrize("name", list(figures()))
def test_figures_of_the_project_say_what_can_be_run(name: str) -> None:
    figure = figures()[name]
    assert figure.paper in PAPERS
    for scale in figure.scales:
        for each in figure.runs(scale):
            each.choice.engine() if each.kind == "matching" else None
    assert figure.runs("small")
    assert all(axis.measure is not None for axis in figure.y)


def test_all_small_figures_fit_into_half_an_hour() -> None:
    assert harness.planned(list(figures().values()), "small")[1] < 30 * 60


def test_no_workload_is_called_like_a_figure_or_a_paper() -> None:
    assert not set(workloads()) & {*figures(), *PAPERS}


def test_a_mistake_in_a_file_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"opindex-0.yaml: a figure lacks title and cannot have titel"):
        _read(tmp_path, _TINY.replace("title", "titel"))
    with pytest.raises(ValueError, match="there is no kind 'waiting'"):
        _read(tmp_path, _TINY.replace("kind: matching", "kind: waiting"))
    with pytest.raises(ValueError, match="values of what varies, or points"):
        _read(tmp_path, _TINY.replace("vary: n_subscriptions\n", ""))
    with pytest.raises(ValueError, match="has a label"):
        _read(tmp_path, _TINY.replace("measure: match_ms", "measure: stats.candidates"))
    with pytest.raises(ValueError, match="not YAML"):
        _read(tmp_path, "paper: [")


def test_points_and_options(tmp_path: Path) -> None:
    text = _TINY.replace("values: [100, 200]", "points: [{x: few, set: {n_subscriptions: 9}, workload: zipf}, {x: 1}]")
    one, _, other, _ = _read(tmp_path, text).runs("small")
    assert (one.x, one.workload, one.parameters["n_subscriptions"]) == ("few", "zipf", 9)
    assert (other.x, other.workload) == (1, "dense")
    varied = _read(tmp_path, _TINY.replace("vary: n_subscriptions", "vary: option:segments")).runs("small")
    assert [each.choice.options["segments"] for each in varied] == [100, 100, 200, 200]


def test_a_series_may_have_values_of_its_own(tmp_path: Path) -> None:
    own = "{index: sift, kind: on-spark, values: {small: [100, 900]}, limit_s: 7}"
    first, *others = _read(tmp_path, _TINY.replace("counting: counting", f"sift on Spark: {own}")).runs("small")
    assert [(each.series, each.x) for each in (first, *others)] == [
        ("SCAN", 100),
        ("sift on Spark", 100),
        ("SCAN", 200),
        ("sift on Spark", 900),
    ]
    assert first == _read(tmp_path, _TINY).runs("small")[0]
    assert (first.settings.limit_s, others[-1].settings.limit_s) == (20, 7)
    elsewhere = _read(tmp_path, _TINY.replace("counting: counting", "none: {index: sift, values: {paper: [7]}}"))
    assert {each.series for each in elsewhere.runs("small")} == {"SCAN"}
    assert set(panel(elsewhere, measure("match_ms"), "small", {}).series) == {"SCAN"}
    with pytest.raises(ValueError, match="either values of what varies, or only"):
        _read(tmp_path, _TINY.replace("counting: counting", "both: {index: sift, values: {}, only: [100]}"))


def test_what_is_too_large_for_one_engine_runs_on_spark_alone() -> None:
    small, paper = ([each for figure in figures().values() for each in figure.runs(scale)] for scale in SCALES)
    assert all(each.kind != "on-spark" for each in small)
    large = [each for each in paper if each.parameters.get("n_subscriptions", 0) > 20_000_000]
    assert large
    assert all(each.kind == "on-spark" for each in large)


def test_equal_runs_have_one_key(tmp_path: Path) -> None:
    one = _read(tmp_path, _TINY).runs("small")
    other = _read(tmp_path, _TINY.replace("memory", "matching").replace("SCAN:", "scanned:")).runs("small")
    assert [each.key for each in one] == [each.key for each in other]
    assert len({each.key for each in one}) == 4
    assert len({each.ground for each in one}) == 2
    assert one[0].key != _read(tmp_path, _TINY).runs("small", seed=1)[0].key


def test_runs_of_a_ground_follow_each_other(tmp_path: Path) -> None:
    text = _TINY.replace("counting: counting}", "other: {index: fast-scan, workload: zipf}, counting: counting}")
    grounds = [run.ground for run in harness.distinct(_read(tmp_path, text).runs("small"))]
    assert [grounds.index(ground) for ground in grounds] == [0, 0, 2, 3, 3, 5]


def test_each_figure_has_its_first_ground_before_any_has_its_second(tmp_path: Path) -> None:
    runs = _read(tmp_path, _TINY).runs("small")
    both = [replace(run, figure=name, seed=seed) for seed, name in enumerate(("one", "other")) for run in runs]
    found = list(dict.fromkeys((run.x, run.figure) for run in harness.distinct(both)))
    first, second = dict.fromkeys(run.x for run in runs)
    assert found == [(first, "one"), (first, "other"), (second, "one"), (second, "other")]


def test_the_ends_of_a_figure_come_before_its_middle(tmp_path: Path) -> None:
    run = _read(tmp_path, _TINY).runs("small")[0]
    many = [replace(run, x=x, parameters={"n_subscriptions": size}) for x, size in enumerate((9, 9, 9, 9, 9))]
    many = [replace(each, seed=each.x) for each in many]
    other = replace(run, figure="other", x=0, seed=9, parameters={"n_subscriptions": 1})
    assert [(each.figure, each.x) for each in harness.distinct([*many, other])] == [
        ("other", 0),  # a smaller one
        *((run.figure, x) for x in (0, 4, 2, 1, 3)),
    ]
    longer = [replace(run, series="longer", x=x, seed=20 + x, parameters={"n_subscriptions": 9}) for x in (0, 9)]
    found = [(each.series, each.x) for each in harness.distinct([*many, *longer])]
    assert found.index((run.series, 4)) < found.index((run.series, 2))  # the end of each series is an end


def test_a_row_without_times_has_no_value() -> None:
    assert measure("index_s").of({"status": TIMED_OUT}) is None
    assert measure("stats.candidates").of({"status": "ok", "stats": {"candidates": 3}}) == 3


# running


def test_run_writes_rows_and_goes_on(tiny: Figure, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path("results/figures-small.jsonl")
    assert _bench("run", "opindex-0") == 0
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["series"], row["x"]) for row in rows] == [
        ("SCAN", 100),
        ("counting", 100),
        ("SCAN", 200),
        ("counting", 200),
    ]
    assert all(
        row["status"] == "ok" and row["seed"] == 0 and row["machine"] and len(row["passes"]) >= 2 for row in rows
    )
    assert rows[0]["matches_each"] == rows[1]["matches_each"]
    # Two rows, and half of a third one: what a process leaves that was killed while it wrote.
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:2]) + '{"run": "ab')
    assert _bench("run", "opindex-0", "--scale", "small") == 0
    again = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["run"] for row in again] == [row["run"] for row in rows]
    assert "2 of 4 runs are in" in capsys.readouterr().err
    assert [row["date"] for row in harness.rows_by_run(path)[rows[0]["run"]]] == [rows[0]["date"]]
    assert _bench("list") == 0
    assert "opindex-0: Something small (small 4 runs, 2 s)" in capsys.readouterr().out


def test_again_measures_anew(tiny: Figure) -> None:
    path = Path("rows.jsonl")
    for arguments in ((), ("--again",)):
        assert _bench("run", "opindex-0", "--output", str(path), *arguments) == 0
    assert len(path.read_text().splitlines()) == 8


def _claim(at_least: float) -> Claim:
    check = Check("ratio", "opindex-0", "match_ms", {"of": "SCAN", "to": "counting"}, at_least=at_least)
    return Claim(1, "opindex", "Fig. 0", "a claim", [check])


def test_what_an_open_verdict_hangs_on_is_measured_in_rounds(
    tiny: Figure, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bound of what was measured is as near as can be: its two runs get all rounds, those at the other x one."""
    path = Path("results/figures-small.jsonl")
    assert _bench("run", "opindex-0") == 0
    values = panel(tiny, measure("match_ms"), "small", steadied(harness.rows_by_run(path))).series
    scan, counting = (values[label][-1].value or 0.0 for label in ("SCAN", "counting"))
    monkeypatch.setattr(harness, "claims", lambda: [_claim(1e-9)])
    assert _bench("run", "opindex-0") == 0
    assert len(path.read_text().splitlines()) == 4
    monkeypatch.setattr(harness, "claims", lambda: [_claim(scan / counting)])
    monkeypatch.setattr(noise, "_SEEN", 100.0)  # whatever the times of these tiny runs are
    assert _bench("run", "opindex-0", "--rounds", "3") == 0
    assert "0 runs measured, 4 once more (4 ok), 4 were there" in capsys.readouterr().out
    rounds = harness.rows_by_run(path)
    assert [len(rounds[run.key]) for run in tiny.runs("small")] == [1, 1, 3, 3]
    assert [row["round"] for row in rounds[tiny.runs("small")[-1].key]] == [1, 2, 3]
    assert _bench("run", "opindex-0", "--rounds", "3") == 0
    assert len(path.read_text().splitlines()) == 8
    assert _bench("run", "opindex-0", "--rounds", "1", "--again") == 0
    assert {len(rows) for rows in harness.rows_by_run(path).values()} == {1}
    monkeypatch.setattr(harness, "_ROUNDS_END_S", {"small": 0.0})  # no time is left after the first round
    assert _bench("run", "opindex-0", "--rounds", "3", "--again") == 0
    assert {len(rows) for rows in harness.rows_by_run(path).values()} == {1}


def test_it_is_asked_in_stages_what_verdicts_hang_on(tiny: Figure, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of runs that have different numbers of rounds, after an interruption or because of another claim."""
    monkeypatch.setattr(harness, "claims", lambda: [_claim(1.0)])
    *others, scan, counting = tiny.runs("small")

    def doubtful(n_scan: int, n_counting: int, most: int = 7, us: float = 1.0) -> list[Run]:
        row = {"status": "ok", "match_us": {"median": 1.0}}
        rows = {run.key: [row] for run in others}
        rows |= {
            scan.key: [row] * n_scan,
            counting.key: [row, *([{**row, "match_us": {"median": us}}] * n_counting)][1:],
        }
        return harness.in_doubt(tiny.runs("small"), "small", rows, most)

    assert doubtful(1, 1) == [scan, counting]
    assert doubtful(1, 3) == [scan]
    assert doubtful(2, 2) == [scan, counting]
    assert doubtful(3, 3) == doubtful(4, 6) == [scan, counting]
    assert doubtful(4, 7) == [scan]
    assert doubtful(7, 7) == doubtful(3, 3, most=3) == doubtful(1, 1, most=1) == []
    assert doubtful(1, 1, us=9.0) == doubtful(3, 3, us=9.0) == []
    assert doubtful(3, 3, us=1.3) == []
    assert doubtful(1, 2, us=1.3) == doubtful(2, 2, us=1.3) == [scan, counting]  # not asked before there are three


def test_mistakes_in_the_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert _bench("run") == 2
    assert _bench("run", "dense", "opindex") == 2
    assert "two calls" in capsys.readouterr().err
    assert _bench("run", "--all", "opindex") == 2
    assert _bench("run", "opindex-10z", "--scale", "small") == 2
    assert "did you mean" in capsys.readouterr().err
    assert _bench("run", "opindex-10a", "--index", "sift", "--batch") == 2
    assert "--index, --batch: figures say themselves" in capsys.readouterr().err


# limits


def _limited(figure: Figure, **limits: float) -> Any:
    return [replace(each, settings=Settings(passes=2, **limits)) for each in figure.runs("small")]


def test_a_run_that_takes_too_long_is_a_row(tiny: Figure) -> None:
    with Worker() as worker:
        slow = {**tiny.runs("small")[1].parameters, "n_subscriptions": 100_000, "n_events": 100}
        late = worker.measure(replace(_limited(tiny, limit_s=0.0)[1], parameters=slow))
        assert (late["status"], late["reason"]) == (TIMED_OUT, "more than 0 s")
        with pytest.raises(RunFailedError, match=r"^out of memory while preparing \(more than 1 MB\): no finding"):
            worker.measure(_limited(tiny, memory_mb=1.0)[0])
        assert worker.measure(_limited(tiny)[0])["status"] == "ok"


def test_a_run_that_cannot_be_prepared_is_no_row_and_ends_the_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = _read(tmp_path, _TINY.replace("seconds: 2", "seconds: 2, memory_mb: 1"))
    monkeypatch.setitem(figures(), figure.name, figure)
    monkeypatch.setattr(harness, "in_doubt", lambda *arguments: pytest.fail("there is another round"))
    assert _bench("run", figure.name) == 1
    assert not harness.path_of("small").exists()
    err = capsys.readouterr().err
    assert err.count("failed, no row is written: opindex-0") == 4
    assert "SCAN at 100: out of memory while preparing (more than 1 MB): no finding about the index" in err


def test_an_error_is_no_row(tiny: Figure) -> None:
    wrong = replace(tiny.runs("small")[0], workload="no such workload")
    with Worker() as worker, pytest.raises(RunFailedError, match="no such workload"):
        worker.measure(wrong)


@pytest.mark.parametrize("name", ["matching", "interleaved", "changes"])
def test_kinds(tiny: Figure, name: str) -> None:
    first, *_ = runs = [replace(each, kind=name) for each in tiny.runs("small")[:2]]
    ground = kind(name).prepare(first, None)
    for each in runs:
        kind(name).use_once(ground, each)
        row = kind(name).measure(ground, each)
        assert row["status"] == "ok"
        assert row["passes"]


def test_spark_that_is_not_installed_is_asked_for(
    tiny: Figure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.delitem(sys.modules, "siftline.spark", raising=False)
    on_spark = replace(tiny.runs("small")[0], kind="on-spark", choice=Choice("sift"))
    with pytest.raises(ImportError, match=r"pip install 'siftline\[spark\]'"):
        kind("on-spark").prepare(on_spark, None)


_OTHERS = {
    "finite-domains": ("predicates", "{n_subscriptions: 60, n_events: 2, domain: 0}", '"counting:predicates=table"'),
    "finite-changes": ("predicates", "{n_subscriptions: 60, n_events: 2, domain: 3}", '"counting:predicates=table"'),
    "dbms": ("topss-subscriptions", "{n_subscriptions: 30, n_events: 2}", '"dbms:engine=sqlite"'),
    "dbms ": ("topss-subscriptions", "{n_subscriptions: 30, n_events: 2}", "sift"),
    "intervals": ("intervals", "{n_subscriptions: 50, n_events: 20, n_values: 1000, n_covering: 3}", "ps-tree"),
    "table-one": ("half-infinite", "{n: 40}", "IBS-tree"),
    "operators": ("graph", "{n_subscriptions: 30, n_predicates: 20, n_events: 3}", "sub-order"),
    "facts": ("facts", "{}", "elements of an int32"),
}


@pytest.mark.parametrize("name", list(_OTHERS))
def test_other_kinds(tmp_path: Path, name: str) -> None:
    workload, parameters, index = _OTHERS[name]
    name = name.strip()
    text = _TINY.replace("kind: matching", f"kind: {name}").replace("workload: dense", f"workload: {workload}")
    text = text.replace("{n_attributes: 20, event_size: 10}", parameters).replace("vary: n_subscriptions\n", "")
    text = text.replace("{SCAN: fast-scan, counting: counting}", f"{{one: {index}}}")
    text = text.replace("values: [100, 200], set: {n_events: 3}", "points: [{x: 1}]")
    (each,) = _read(tmp_path, text).runs("small")
    ground = kind(name).prepare(each, None)
    kind(name).use_once(ground, each)
    row = kind(name).measure(ground, each)
    assert row["status"] == "ok"
    assert row["passes"]


class Picky(FastScan):
    """Takes nothing."""

    def build(self, batch: Any) -> None:
        raise NotImplementedError("no ranges")

    def add(self, batch: Any, domains: Any) -> None:
        raise NotImplementedError("no ranges")


@pytest.mark.parametrize("name", ["matching", "dbms"])
def test_a_refusal_is_a_row(tiny: Figure, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(registry._INDEXES, "picky", (Picky.__module__, Picky.__qualname__))
    each = replace(tiny.runs("small")[0], kind=name, choice=Choice("picky"))
    ground = kind(name).prepare(each, None)
    kind(name).use_once(ground, each)
    row = kind(name).measure(ground, each)
    assert (row["status"], row["reason"]) == ("unsupported", "NotImplementedError: no ranges")
    assert "passes" not in row
