"""Calls of schedules on graphs of subscriptions and predicates, see `operators.py`: no times."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from siftline_bench.operator_graphs import GraphParameters, OperatorGraph, drawn_graph
from siftline_bench.operators import simulated

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from siftline_bench.figures.figure import Run
    from siftline_bench.results import Row


class Ground(NamedTuple):
    """A graph, and events on it."""

    graph: OperatorGraph
    truths: NDArray[np.bool_]


def prepare(run: Run, cache: Path | None) -> Ground:
    """Draw the graph and its events."""
    known = {each.name for each in fields(GraphParameters)}
    parameters = GraphParameters(**{name: value for name, value in run.parameters.items() if name in known})
    graph = drawn_graph(parameters, run.seed)
    return Ground(graph, graph.truths(run.parameters["n_events"]))


def use_once(ground: Any, run: Run) -> None:
    """Have the kernels compiled."""
    simulated(ground.graph, run.choice.index, ground.truths[:1])


def measure(ground: Any, run: Run) -> Row:
    """Count the calls of one schedule; what it finds is compared with a look at all subscriptions."""
    calls = simulated(ground.graph, run.choice.index, ground.truths).calls
    matches = [len(each) for each in ground.graph.matched(ground.truths)]
    return {
        "mode": "calls",
        "status": "ok",
        "unit": "calls",
        "n_events": len(calls),
        "calls": float(np.mean(calls)),
        "passes": calls.tolist(),
        "matches_each": float(np.mean(matches)),
        "n_used": int(ground.graph.problem.n_nodes),
    }
