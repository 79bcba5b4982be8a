"""What the papers prove or count rather than time: a number, and what the paper says that it is, or is at most."""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.engine import Engine
from siftline.indexes.ps_tree import PsTree
from siftline_bench.checks import check_same, find_all
from siftline_bench.operator_bounds import least_calls
from siftline_bench.operator_graphs import GraphParameters, drawn_graph
from siftline_bench.operators import simulated
from siftline_bench.workloads import generate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from siftline_bench.figures.figure import Run
    from siftline_bench.results import Row
    from siftline_bench.workloads import Workload

    # parameters, seed -> measured, predicted
    Fact = Callable[[Mapping[str, Any], int], tuple[float, float]]

_N_SEGMENTS: Final = 32


def prepare(run: Run, cache: Path | None) -> None:
    """Nothing is shared."""


def use_once(ground: Any, run: Run) -> None:
    """Do it once for the compiler."""
    _FACTS[run.choice.index](run.parameters, run.seed)


def measure(ground: Any, run: Run) -> Row:
    """Return both numbers."""
    measured, predicted = _FACTS[run.choice.index](run.parameters, run.seed)
    numbers = {"measured": measured, "predicted": predicted, "by_predicted": measured / predicted}
    return {"mode": "fact", "status": "ok", "unit": "", "passes": [measured], **numbers}


# OpIndex


def _entries_of_range(parameters: Mapping[str, Any], seed: int) -> tuple[float, float]:
    """Entries of A <= 8 in a k-index where every value from 1 to 8 is told apart."""
    others = [*((i, f"A >= {i}") for i in range(2, 9)), (9, "A > 8")]
    sizes = []
    for subscriptions in (others, [*others, (1, "A <= 8")]):
        engine = Engine("k-index")
        engine.add_many(subscriptions)
        sizes.append(engine.stats()["rewritten_entries"])
    return sizes[1] - sizes[0], 8


def _matched(parameters: Mapping[str, Any], seed: int) -> tuple[Workload, dict[str, Any]]:
    """Match a workload of the three operators =, <= and >= with `op-index`; return what it counted, per event."""
    workload = generate("many-attributes", seed=seed, **parameters)
    engine, scan = Engine("op-index"), Engine("fast-scan")
    for each in (engine, scan):
        each.add_many(workload.predicates)
    check_same("op-index", find_all(engine, workload.dicts), find_all(scan, workload.dicts), "fast-scan")
    return workload, engine.stats()


def _segment_length(parameters: Mapping[str, Any], seed: int) -> tuple[float, float]:
    workload, stats = _matched(parameters, seed)
    measured = stats["entries"] / (3 * _N_SEGMENTS * stats["pivots"])
    return measured, workload.predicates.num_rows / (3 * _N_SEGMENTS * parameters["n_attributes"])


def _match_chance(parameters: Mapping[str, Any], seed: int) -> tuple[float, float]:
    """How many of all pairs of a predicate and a value of its attribute agree."""
    workload = generate("many-attributes", seed=seed, **parameters)
    predicates, values = workload.predicates, workload.values
    constants, operators = predicates["number"].to_numpy(), np.array(predicates["op"].to_pylist())
    drawn = np.random.default_rng(seed).choice(values["number"].to_numpy(), size=len(constants))
    holds = {"=": drawn == constants, "<=": drawn <= constants, ">=": drawn >= constants}
    n = sum(int(holds[op][operators == op].sum()) for op in holds)
    return n / len(constants), (1 + 2 / parameters["n_values"]) / 3


def _n_matching(parameters: Mapping[str, Any], seed: int) -> tuple[float, float]:
    workload, stats = _matched(parameters, seed)
    n, d, m = workload.n_subscriptions, parameters["n_attributes"], parameters["event_size"]
    kappa, size = (1 + 2 / parameters["n_values"]) / 3, workload.predicates.num_rows / n
    predicted = m * n * kappa / d * (1 + (m - 1) * (size - 1) / d)
    return stats["entries_matched"] / stats["events"], predicted


# PS-Tree


def _elements(parameters: Mapping[str, Any], seed: int) -> tuple[float, float]:
    return len(PsTree("int32").elements(5)), 9


def _spaces(parameters: Mapping[str, Any], seed: int) -> tuple[float, float]:
    rng, n = np.random.default_rng(seed), parameters["n"]
    lows = rng.integers(0, 10 * n, size=n)
    return len(PsTree.build(lows, lows + rng.integers(0, n, size=n)).spaces()), 2 * n + 1


def _keys_looked_up(parameters: Mapping[str, Any], seed: int) -> tuple[float, float]:
    workload = generate("dense", seed=seed, **parameters)
    engine = Engine("pst-hash")
    engine.add_many(workload.predicates)
    find_all(engine, workload.dicts)
    stats = engine.stats()
    return stats["keys_looked_up"] / stats["events"], comb(parameters["event_size"], 2)


# operators


def _sequential(parameters: Mapping[str, Any], seed: int) -> tuple[float, float]:
    """Compare `sequential` with what nobody can do without, at worst; d is what the paper allows."""
    graph = drawn_graph(GraphParameters(**{key: parameters[key] for key in parameters if key != "n_events"}), seed)
    truths = graph.truths(parameters["n_events"])
    calls = simulated(graph, "sequential", truths).calls
    ratios = [n / least_calls(graph.problem, row) for n, row in zip(calls.tolist(), truths, strict=True)]
    return max(ratios), graph.parameters.most_predicates


_FACTS: Final[dict[str, Fact]] = {
    "entries of A <= 8": _entries_of_range,
    "predicates of a segment": _segment_length,
    "chance of a predicate": _match_chance,
    "matching predicates": _n_matching,
    "elements of an int32": _elements,
    "spaces of a tree": _spaces,
    "keys looked up": _keys_looked_up,
    "sequential by the least": _sequential,
}
