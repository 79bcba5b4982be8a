"""`siftline bench operators`: its workload is what the paper describes, its bound is one, and all of it runs."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siftline.cli import main
from siftline.operators.problem import problem_of_lists
from siftline_bench.operator_bounds import least_calls
from siftline_bench.operator_graphs import FIGURES, GraphParameters, drawn_graph
from siftline_bench.operator_tables import tables, verdicts
from siftline_bench.operators import simulated

if TYPE_CHECKING:
    from pathlib import Path


def test_all_figures_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    assert main(["bench", "operators", "--quick", "--output", str(output)]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("sub-order / sequential", "gap to offline closed", "drifting", "ns a call"))
    rows = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert {row["figure"] for row in rows} == {"calls", "drift", "order", "overhead", "index"}
    assert len(tables(rows)) == 5
    assert {"met", "missed", ""} >= {verdict.word for verdict in verdicts(rows)}
    factors = [row for row in rows if row["figure"] == "index" and row["schedule"] == "naive-no-memo"]
    assert factors[-1]["drop"] == pytest.approx(factors[-1]["factor"], rel=0.5)


@pytest.mark.parametrize("popularity", ["uniform", "equal", "zipf"])
def test_graphs_are_as_asked_for(popularity: Any) -> None:
    parameters = GraphParameters(2_000, 500, popularity, most_predicates=7)
    graph = drawn_graph(parameters, 3)
    chains = np.split(graph.problem.literals, graph.problem.chain_starts[1:-1])
    assert {len(chain) for chain in chains} == {3, 4, 5, 6, 7}
    assert all(len(set(chain.tolist())) == len(chain) for chain in chains)
    expected = np.mean([np.prod(graph.shares[chain >> 1]) for chain in chains])
    assert expected == pytest.approx(0.002, rel=1e-6)
    counts = np.sort(graph.problem.n_open[0::2])[::-1]
    assert (counts[0] > 5 * counts[50]) == (popularity == "zipf")
    again = drawn_graph(parameters, 3)
    assert np.array_equal(graph.truths(5), again.truths(5))
    assert not np.array_equal(graph.truths(5), drawn_graph(parameters, 4).truths(5))


def test_shares_drift() -> None:
    graph = drawn_graph(GraphParameters(500, 200), 1)
    truths = graph.truths(2_000, drift=0.5)
    early, late = truths[:200].mean(axis=0), truths[1_000:].mean(axis=0)
    assert np.abs(early - graph.shares).mean() < 0.05
    assert 0.3 < np.mean(np.abs(late - graph.shares) > 0.05) < 0.6
    assert truths.mean() == pytest.approx(graph.shares.mean(), abs=0.02)


def test_the_paper_has_five_figures() -> None:
    assert list(FIGURES) == ["4", "5", "6", "7", "8"]
    assert FIGURES["4"][-1] == GraphParameters(80_000, 40_000, "uniform")
    assert FIGURES["6"][-1] == GraphParameters(20_000, 30_000, "zipf")


@settings(max_examples=40, deadline=None)
@given(
    chains=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True), min_size=1, max_size=6),
    bits=st.integers(0, 63),
)
def test_nobody_goes_below_the_bound(chains: list[list[int]], bits: int) -> None:
    problem = problem_of_lists([[[2 * node for node in chain]] for chain in chains])
    truths = np.array([bits >> int(node) & 1 for node in problem.nodes], dtype=np.bool_)
    local = [(part >> 1).tolist() for part in np.split(problem.literals, problem.chain_starts[1:-1])]
    fewest = min(
        sum(chosen)
        for chosen in itertools.product([False, True], repeat=problem.n_nodes)
        if all(
            all(chosen[node] for node in chain)
            if all(truths[node] for node in chain)
            else any(chosen[node] and not truths[node] for node in chain)
            for chain in local
        )
    )
    assert least_calls(problem, truths) <= fewest + 1e-9


def test_the_bound_is_near_what_can_be_done() -> None:
    graph = drawn_graph(GraphParameters(2_000, 1_000, "uniform"), 0)
    truths = graph.truths(3)
    least = np.mean([least_calls(graph.problem, row) for row in truths])
    offline = simulated(graph, "offline", truths).calls.mean()
    assert 0.8 * offline < least <= offline
