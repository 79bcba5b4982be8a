"""`siftline bench` as a user calls it, on tiny workloads."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from siftline_bench import indexes
from siftline_bench.command import add_arguments, run
from siftline_bench.foundation import Figure, Foundation, Sizes, expressions, rows_of, table
from siftline_bench.results import append
from siftline_bench.targets import Target
from siftline_bench.workloads import load

_TINY = Sizes(
    n_subscriptions=200, n_attributes=30, n_events=5, n_texts=5, n_batch=20, n_imports=1, n_passes=2, n_loads=1
)


def _bench(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(arguments))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert _bench("list") == 0
    assert "dense: 100 attributes" in capsys.readouterr().out
    assert _bench("list", "--json") == 0
    assert json.loads(capsys.readouterr().out)["workloads"]["sparse"]["n_attributes"] == 30_000


def test_run_prints_a_table_and_appends_rows(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--size", "1e2", "--events", "3", "--passes", "2", "--cache", "drawn", "--index", "fast-scan")
    assert _bench("run", "dense", "zipf", *arguments) == 0
    out = capsys.readouterr().out
    assert "dense, 100 subscriptions, seed 0, ids" in out
    assert "fast-scan" in out
    assert len(Path("results/dense.jsonl").read_text().splitlines()) == 1
    assert Path("results/zipf.jsonl").exists()
    assert len(list(Path("drawn").iterdir())) == 2
    assert _bench("compare", "results/dense.jsonl", "results/dense.jsonl", "--fail") == 0
    assert "noise" in capsys.readouterr().out


def test_run_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--size", "50", "--events", "2", "--index", "fast-scan", "--json", "--output", "rows.jsonl")
    assert _bench("run", "dense", *arguments) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(Path("rows.jsonl").read_text())


def test_generate() -> None:
    assert _bench("generate", "dense", "--size", "20", "--set", "n_values=7", "--seed", "3", "--output", "d") == 0
    workload = load("d")
    assert (workload.seed, workload.n_subscriptions, workload.parameters.n_values) == (3, 20, 7)  # type: ignore[attr-defined]
    assert _bench("generate", "dense", "--output", "d") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "dens"), "did you mean 'dense'"),
        (("run", "dense", "--size", "10", "--index", "shift"), "there is no index 'shift'"),
        (("run", "dense", "--set", "colour=1"), "no parameter 'colour'"),
        (("run", "dense", "--set", "n_values=x"), "NAME=NUMBER"),
        (("compare", "old", "new"), "cannot read old"),
    ],
)
def test_mistakes_exit_2(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _bench(*arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("index", ["fast-scam", "fast-scan:colour=1"])
def test_indexes_are_checked_before_anything_is_drawn(index: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _bench("run", "dense", "--index", "scan", "--index", index) == 2
    err = capsys.readouterr().err
    assert "fast-sca" in err
    assert "drawing" not in err


def test_compare_exits_1_only_when_asked() -> None:
    row: dict[str, Any] = {"workload": "dense", "index": "sift", "unit": "us"}
    append([{**row, "passes": [1.0, 1.1]}], "old.jsonl")
    append([{**row, "passes": [2.0, 2.1]}], "new.jsonl")
    assert _bench("compare", "old.jsonl", "new.jsonl") == 0
    assert _bench("compare", "old.jsonl", "new.jsonl", "--fail") == 1
    assert _bench("compare", "new.jsonl", "old.jsonl", "--fail") == 0


def test_foundation_measures_every_figure() -> None:
    figures = Foundation(_TINY).figures()
    assert len({figure.name for figure in figures}) == len(figures) == 12
    assert all(figure.samples for figure in figures)
    rows = rows_of(figures, _TINY, 0)
    assert {row["verdict"] for row in rows} <= {"met", "met by processor time", "missed", ""}
    assert len(table(figures)) == 13


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (Figure("f", "s", [1.0, 2.0, 3.0], [1.0], 2.0), "met"),
        (Figure("f", "s", [1.0, 2.0, 3.0], [1.5], 1.5), "met by processor time"),
        (Figure("f", "s", [1.0, 2.0, 3.0], [1.6], 1.5), "missed"),
        (Figure("f", "1/s", [1.0, 2.0, 3.0], [2.5], 2.5, is_rate=True), "met by processor time"),
        (Figure("f", "1/s", [1.0, 2.0, 3.0], [1.0], 1.5, is_rate=True), "met"),
        (Figure("f", "s", [1.0], [1.0]), ""),
    ],
)
def test_medians_decide(figure: Figure, verdict: str) -> None:
    assert figure.verdict == verdict


def test_expressions_have_five_predicates() -> None:
    import siftline
    from siftline.model import Predicate, walk

    texts = expressions(20, 1)
    assert len(set(texts)) == 20
    for text in texts:
        assert sum(isinstance(node, Predicate) for node in walk(siftline.parse(text))) == 5


def test_indexes_are_measured_against_targets(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "QUICK", {"n_subscriptions": 200, "n_events": 2, "n_attributes": 60})
    monkeypatch.setattr(indexes, "TARGETS", (Target("dense", "fast-scan", "x fast-scan", 2),))
    assert _bench("indexes", "--quick", "--passes", "2", "--index", "fast-scan", "--output", "rows.jsonl") == 0
    printed = capsys.readouterr().out
    assert "dense: fast-scan" in printed
    assert "missed" in printed
    assert len(Path("rows.jsonl").read_text().splitlines()) == len(indexes.WORKLOADS)
    assert _bench("indexes", "--quick", "--passes", "2", "--index", "fast-scan", "--fail") == 1
