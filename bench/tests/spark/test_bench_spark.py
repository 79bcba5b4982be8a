"""The figures of the pipeline on Spark, on small sizes: they run, check ids, and say what was found."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from siftline import Engine
from siftline_bench import spark as bench
from siftline_bench import spark_simulation as simulation
from siftline_bench.command import add_arguments, run
from siftline_bench.errors import WrongIdsError
from siftline_bench.spark_data import Data, event_texts, expression_texts
from siftline_bench.spark_plots import draw
from siftline_bench.spark_processes import PYTHON, mapped_bytes, resident_bytes, spent
from siftline_bench.workloads import generate

if TYPE_CHECKING:
    from pathlib import Path

SMALL = replace(bench.QUICK, n_subscriptions=300, n_compared=200, n_baseline=60, n_slow=20, n_sparse=60, n_dense=60)


def silent(text: str) -> None:
    """Say nothing."""


def measured(groups: list[str]) -> dict[tuple[str, str], float]:
    figures = list(bench.measure(groups, SMALL, 1, None, silent))
    assert all(json.dumps(figure.row) for figure in figures)
    assert len(bench.verdicts(figures)) == len(figures)
    return {(figure.head["workload"], figure.reading.what): figure.reading.value for figure in figures}


def test_compile_and_match(spark: Any) -> None:
    found = measured(["compile", "match"])
    assert found["sparse", "s to compile texts"] > 0
    assert found["sparse", "ms to open in a warm worker"] > 0
    assert found["dense", "events/s and core"] > 0
    assert (
        0 < found["sparse", "MB of it, shared pages divided"] <= found["sparse", "MB of the index resident in a worker"]
    )


def test_the_sharded_plan(spark: Any) -> None:
    found = measured(["sharded"])
    assert 1 <= found["products", "largest shard / mean"] < 1.5
    assert 0 < found["products", "shards that an event visits"] <= 8


def test_baselines_find_the_same_ids(spark: Any) -> None:
    pytest.importorskip("duckdb")
    found = measured(["baselines"])
    assert sum(what.endswith(": us an event") for _, what in found) == 6
    assert ("dense", "x best DuckDB plan, by core") in found  # nothing that so few events take can be measured


def test_streaming(spark: Any) -> None:
    found = measured(["streaming"])
    assert found["sparse", "x bare micro-batch"] > 0
    assert found["sparse", "micro-batches until a change is live"] == 1


@pytest.mark.parametrize("name", ["sparse", "dense", "products"])
def test_texts_mean_what_the_tables_say(name: str) -> None:
    workload = generate(name, n_subscriptions=300, n_events=30, seed=3)
    by_rows, by_text = Engine(), Engine()
    by_rows.add_many(workload.predicates)
    texts = expression_texts(workload.predicates, 300).to_pylist()
    by_text.add_many(enumerate(texts))
    assert [json.loads(text) for text in event_texts(workload.values, 30).to_pylist()] == workload.dicts
    assert all(set(by_text.match(event)) == set(by_rows.match(event)) for event in workload.dicts)


def test_wrong_ids_are_no_figures(tmp_path: Path) -> None:
    import pyarrow as pa

    workload = generate("sparse", n_subscriptions=300, n_events=30, seed=3)
    data = Data(workload, tmp_path, 1, silent)
    with pytest.raises(WrongIdsError):
        data.check("nothing", data.written("matches", pa.table({"id": [0], "subscription": [-1]})))


def test_what_is_spent() -> None:
    found = spent(lambda: sum(range(3_000_000)))
    assert found.result == 4_499_998_500_000
    assert found.processor_seconds >= found.processor[PYTHON] > 0
    resident, share = resident_bytes()
    assert 0 < share <= resident
    assert mapped_bytes("/nowhere") == (0, 0)


def test_shards_are_loaded_as_they_are_counted() -> None:
    workload = generate("products", n_subscriptions=2_000, n_events=100, seed=3)
    load = simulation.load_of(workload, 20)
    assert load.subscriptions.sum() == 2_000
    assert load.visits.max() <= 100
    assert np.all(load.visits >= 0)


def test_machines_have_room() -> None:
    load = simulation.Load(np.full(10, 100), np.array([100, *[1] * 9]))
    plan = simulation.Plan(n_subscriptions=1e9, events_each_s=1e6, visit_us=50, bytes_each=100, memory_gb=50, cores=10)
    packed = simulation.packed_of(load, 100, plan)
    # The busy shard needs 50 cores of which a machine gives 7; the memory of two machines would be enough.
    assert packed.n_copies == 9 + 8
    assert packed.n_machines == 9


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    parser = ArgumentParser()
    add_arguments(parser)
    output = tmp_path / "rows.jsonl"
    words = ["spark", "--only", "simulation", "--quick", "--plots", str(tmp_path), "--output", str(output)]
    assert run(parser.parse_args(words)) == 0
    assert "busiest machine / mean" in capsys.readouterr().out
    assert len(output.read_text(encoding="utf-8").splitlines()) == len(simulation.WORKLOADS)
    assert (tmp_path / "spark-shards.svg").exists()


def test_plots_of_made_rows(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rates = [{"mode": f"events/s, {n} cores", "passes": [90.0 * n, 100.0 * n], "median": 95.0 * n} for n in (1, 2)]
    costs = [
        {"mode": f"us an event, {n:,} subscriptions", "n_subscriptions": n, "workload": "sparse", "median": n / 100}
        for n in (1_000, 2_000)
    ]
    drawn = draw([*rates, *costs], tmp_path)
    assert [path.name for path in drawn] == ["spark-growth.svg", "spark-scale-up.svg"]
    assert all("</svg>" in path.read_text(encoding="utf-8") for path in drawn)
