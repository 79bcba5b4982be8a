"""Workloads drawn by Spark are those that are drawn here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from siftline_bench.workloads import Drawing, load, make_parameters

if TYPE_CHECKING:
    from pathlib import Path


def test_spark_draws_the_same_chunks(spark: Any, tmp_path: Path) -> None:
    drawing = Drawing("be-gen", make_parameters("be-gen", n_subscriptions=500, n_events=9), 1, chunk=200)
    here = load(drawing.write(tmp_path / "here"))
    there = load(drawing.write_by_spark(spark, tmp_path / "there"))
    assert there.identity == here.identity
    assert there.predicates.equals(here.predicates)
    assert there.values.equals(here.values)
