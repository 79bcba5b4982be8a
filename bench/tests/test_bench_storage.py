"""`siftline bench storage` on sizes that show that it runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from siftline.cli import main
from siftline_bench import storage
from siftline_bench.errors import WrongIdsError

if TYPE_CHECKING:
    from pathlib import Path


def test_it_runs_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, plots = tmp_path / "rows.jsonl", tmp_path / "plots"
    arguments = ["bench", "storage", "--quick", "--plots", str(plots), "--output", str(output)]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "log_B n + L/B" in printed
    assert "interval B+tree" in printed
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    figures = {"search", "insert", "delete", "fit", "changes", "large", "table 1", "dbms", "store"}
    assert {row["figure"] for row in rows} == figures
    assert all(row["machine"] for row in rows)
    names = sorted(path.name for path in plots.iterdir())
    assert len(names) == 4
    assert all(path.read_text(encoding="utf-8").startswith("<?xml") for path in plots.iterdir())


def test_the_fit_finds_what_was_put_in() -> None:
    rows = [
        {"figure": "search", "n": n, "per_page": 100.0, "L": found}
        | dict.fromkeys(("page_reads", "cold_reads"), 2 * power + 0.5 * found / 100)
        for n, power in ((10_000, 2), (1_000_000, 3))
        for found in (0.0, 1_000.0, 50_000.0)
    ]
    rows += [{"figure": figure, "n": 1024, "page_accesses": 30.0} for figure in ("insert", "delete")]
    fit = storage.fitted(rows)
    assert (fit["per_log"], fit["per_page_of_results"], fit["insert_per_log2"]) == (2.0, 0.5, 3.0)
    assert (fit["cold_per_log"], fit["cold_per_page_of_results"]) == (2.0, 0.5)
    assert max(fit["worst_error"], fit["cold_worst_error"]) < 1e-6


def test_wrong_ids_are_noticed() -> None:
    with pytest.raises(WrongIdsError):
        storage._check_found([[0]], [{"a0": 1}], 0, 0)
