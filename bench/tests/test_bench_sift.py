"""`siftline bench sift`: every group of figures on tiny workloads, with `fast-scan` in the place of `sift`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from siftline.indexes import registry
from siftline.indexes.fast_scan.index import FastScan
from siftline_bench import runner, sift, updates
from siftline_bench.command import add_arguments, run
from siftline_bench.errors import WrongIdsError
from siftline_bench.interleaving import run_interleaved
from siftline_bench.readings import Bench, Reading
from siftline_bench.runner import Choice, Measurement, Plan, run_in_turn
from siftline_bench.sift import Result
from siftline_bench.targets import Target, Verdict
from siftline_bench.workloads import generate, workloads

_SUBJECT = Choice("fast-scan")
_TINY = dataclasses.replace(sift.QUICK, n_subscriptions=200, n_events=4, n_batch=10, n_changes=20, churn_s=0.02)


class Twin(FastScan):
    """Another name for the same."""


class Liar(FastScan):
    """Finds one match too few."""

    def match(self, events: Any, position: int) -> Any:
        found = super().match(events, position)
        return found._replace(sure=found.sure[:-1])


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sift, "QUICK", _TINY)
    for index in (Twin, Liar):
        monkeypatch.setitem(registry._INDEXES, index.__name__.lower(), (index.__module__, index.__qualname__))


def _bench(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(arguments))


def _on(name: str) -> Bench:
    return Bench(generate(name, n_subscriptions=200, n_events=10), _SUBJECT, _TINY)


def _read(readings: list[Reading]) -> dict[str, float]:
    return {each.what: each.value for each in readings}


def test_every_workload_is_known() -> None:
    assert set(sift.WORKLOADS) <= set(workloads())
    assert {target.workload for target in sift.targets("sift")} <= {*sift.WORKLOADS, "all workloads"}
    assert {name for group in sift.GROUPS.values() for name in group.workloads} <= set(sift.WORKLOADS)


def test_a_missing_index_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(registry._INDEXES, "sift", raising=False)
    assert _bench("sift", "--quick") == 2
    message = capsys.readouterr().err
    assert "there is no index 'sift'" in message
    assert "--subject" in message


def test_matching_prints_verdicts_and_appends_rows(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("sift", "--quick", "--subject", "fast-scan", "--index", "twin", "--only", "matching")
    names = ("--workload", "dense", "--workload", "wide")
    assert _bench(*arguments, *names, "--cache", "drawn") == 0
    out = capsys.readouterr().out
    for text in ("dense: fast-scan", "x best other index", "2 workloads: fast-scan", "x as long as dense", "missed"):
        assert text in out
    rows = [json.loads(line) for line in Path("results/sift.jsonl").read_text().splitlines()]
    assert {(row["workload"], row["index"]) for row in rows if row["mode"] == "ids"} == {
        (name, index) for name in ("dense", "wide") for index in ("fast-scan", "twin")
    }
    assert "p99 / median" in {row["mode"] for row in rows}
    assert _bench(*arguments, "--workload", "dense", "--fail", "--json", "--output", "other.jsonl") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == Path("other.jsonl").read_text().splitlines()


def test_groups_run_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert _bench("sift", "--quick", "--subject", "fast-scan", "--only", "dict", "--only", "slots") == 0
    out = capsys.readouterr().out
    assert "sparse: fast-scan" in out
    assert "us to copy the slots" in out
    assert "x fast-scan" not in out
    assert _bench("sift", "--quick", "--subject", "fast-scan", "--only", "dict", "--workload", "dense") == 2


@pytest.mark.parametrize("group", ["matching", "memory"])
def test_wrong_ids_write_no_row(group: str) -> None:
    assert _bench("sift", "--quick", "--subject", "liar", "--only", group, "--workload", "dense-short") == 1
    assert not Path("results").exists()


@pytest.mark.parametrize("name", ["ads", "products", "rules"])
def test_batches(name: str) -> None:
    figures = _read(sift.batches(_on(name)))
    assert figures["x one by one, in a batch"] > 0
    assert ("events/s from Arrow" in figures) == ("events/s from codes" in figures) == (name == "rules")


def test_large_results_make_small_batches() -> None:
    bench = _on("dense-short")
    assert sift._batch_size(bench) == 10
    bench.sizes = dataclasses.replace(_TINY, n_results=1)
    assert sift._batch_size(bench) < 10


def test_memory() -> None:
    figures = _read(sift.memory(_on("ads")))
    assert 5 < figures["index bytes a predicate"] < 500
    assert figures["subscriptions/s built"] > 0


def test_changes_leave_as_many_subscriptions() -> None:
    bench = _on("dense")
    figures = _read(sift.changes(bench))
    wanted = {target.what for target in sift.targets("x") if target.workload == "dense"}
    beside = ("constant", "stands still", "arithmetic", "us an event before")
    shown = {name for name in figures if any(part in name for part in beside)}
    assert wanted >= set(figures) - shown
    assert (len(wanted & shown), len(shown)) == (9, 45)
    assert all(value > 0 for value in figures.values())
    assert len(bench.engine) == 200
    bench.engine._check()


def test_an_error_in_the_writing_thread_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = _on("dense")

    def refuse(source: Any) -> int:
        if threading.current_thread() is threading.main_thread():
            return 0
        raise RuntimeError("no room")

    monkeypatch.setattr(bench.engine, "add_many", refuse)
    with pytest.raises(RuntimeError, match="no room"):
        updates.while_changing(bench)


def test_a_box_ends_slow_changes() -> None:
    assert len(updates._blocks(range(10), str, 60)) == 5
    assert len(updates._blocks(range(10), str, 0)) == 1


def test_indexes_take_turns_with_the_subject() -> None:
    workload = generate("sparse", n_subscriptions=200, n_events=6, n_attributes=300)
    plan = Plan(n_passes=2, most_events=5, build_box_s=60, pass_box_s=60, check_box_s=60)
    others = [Choice("twin"), Choice("fast-scan"), Choice("scan")]
    fast, subject, scan = run_in_turn(workload, Choice("twin"), others, plan)
    assert [each.choice.index for each in (fast, subject, scan)] == ["fast-scan", "twin", "scan"]
    assert (fast.n_events, subject.n_events, scan.n_events) == (5, 5, 5)
    assert subject.subject_us is None
    assert scan.subject_us is not None


def test_a_liar_is_caught_in_its_turn() -> None:
    workload = generate("sparse", n_subscriptions=200, n_events=6, n_attributes=300)
    with pytest.raises(WrongIdsError, match="liar and fast-scan disagree"):
        run_in_turn(workload, Choice("twin"), [Choice("liar")], Plan(n_passes=1))


def test_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_LEAST_BUILT", 2)
    workload = generate("sparse", n_subscriptions=200, n_events=6, n_attributes=300)
    plan = Plan(n_passes=1, n_events={}, check_box_s=0)
    fast, scan = run_in_turn(workload, Choice("scan"), [], plan)
    assert (fast.n_events, scan.n_events) == (3, 3)
    _, scan = run_in_turn(workload, Choice("scan"), [], Plan(n_passes=1, pass_box_s=1e-9))
    assert scan.n_events == 3
    _, hopeless = run_in_turn(workload, Choice("scan"), [], Plan(n_passes=1, build_box_s=1e-9))
    assert hopeless.status == "hopeless"
    assert "1/100 of the subscriptions" in str(hopeless.reason)


def test_a_refused_workload_is_a_verdict() -> None:
    refused = [Measurement(_SUBJECT, "ids", "unsupported", "no ranges")]
    (verdict, *_) = found = sift.verdicts([Result("dense", refused)], _SUBJECT)
    assert verdict.word == "refused"
    assert len(found) == sum(target.workload == "dense" for target in sift.targets("fast-scan"))


def test_the_mean_is_judged_over_all_workloads() -> None:
    results = [
        Result(name, [], [Reading("x best other index", [4.0 if i else 8.0])]) for i, name in enumerate(sift.WORKLOADS)
    ]
    (*_, verdict) = sift.verdicts(results, _SUBJECT)
    assert (verdict.target.workload, verdict.word) == ("all workloads", "missed")
    (*_, verdict) = sift.verdicts(results[:2], _SUBJECT)
    assert (verdict.target.workload, verdict.word) == ("2 workloads", "")
    assert verdict.measured == pytest.approx(32**0.5)


@pytest.mark.parametrize(
    ("target", "value", "word"),
    [
        (Target("w", "i", "f", at_least=2), 2.0, "met"),
        (Target("w", "i", "f", at_least=2), 1.9, "missed"),
        (Target("w", "i", "f", at_most=2), 2.0, "met"),
        (Target("w", "i", "f", at_most=2), 2.1, "missed"),
        (Target("w", "i", "f", at_most=2), None, "refused"),
        (Target("w", "i", "f"), 7.0, ""),
    ],
)
def test_verdicts(target: Target, value: float | None, word: str) -> None:
    verdict = Verdict(target, value)
    assert verdict.word == word
    assert verdict.is_bad == (word in ("missed", "refused"))


def test_adds_and_matches_alternate(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--size", "100", "--events", "4", "--passes", "3", "--interleaved", "--output", "rows.jsonl")
    assert _bench("run", "rules", "--index", "twin", *arguments) == 0
    assert "twin: an add took" in capsys.readouterr().out
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    assert [(row["index"], row["mode"], len(row["passes"])) for row in rows] == [
        ("fast-scan", "interleaved", 3),
        ("twin", "interleaved", 3),
    ]
    assert all(row["add_us"]["median"] > 0 for row in rows)


def test_alternation_checks_ids_and_needs_subscriptions() -> None:
    workload = generate("dense-short", n_subscriptions=60, n_events=5)
    with pytest.raises(WrongIdsError, match="liar and fast-scan"):
        run_interleaved(workload, [Choice("liar")], Plan(n_passes=2))
    with pytest.raises(ValueError, match="one by one"):
        run_interleaved(workload, [], Plan(n_passes=12))


def test_markdown_tables_come_from_the_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = str(tmp_path / "rows.jsonl")
    arguments = ("--quick", "--workload", "dense", "--only", "matching", "--index", "counting", "--output", output)
    assert _bench("sift", *arguments, "--markdown") == 0
    shown = capsys.readouterr().out
    assert "| workload | matches | `fast-scan` µs | best other | its µs | `sift` µs |" in shown
    assert "| `counting` |" in shown
    assert "| dense | x fast-scan |" in shown
    assert _bench("sift", "--rows", output) == 0
    again = capsys.readouterr().out
    assert again.strip() in shown


def test_rows_of_nothing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("")
    assert _bench("sift", "--rows", str(tmp_path / "rows.jsonl")) == 2


def test_growth_is_measured_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--quick", "--workload", "dense", "--plots", str(tmp_path), "--output", str(tmp_path / "rows.jsonl"))
    assert _bench("growth", *arguments, "--passes", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["1,000", "2,000"]
    assert "<svg" in (tmp_path / "growth.svg").read_text()
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 4
