"""What schedules of operator calls cost, in calls made per event; no operator does any work.

calls      all schedules on the paper's workload, beside what could be done by who knows all truths (`offline`, greedy;
           `least`, a bound below which nobody can go)
drift      `adaptive` against `sub-order` where the shares of true predicates change, and where they do not
order      how long the order of `sub-order` takes, from nothing and for one more or less
overhead   processor time of the compiled schedules, for each call that is made or avoided
index      an engine whose subscriptions have an ordinary predicate too: only those that the index leaves make calls

A call that is avoided is one that `naive-no-memo` would make. All schedules must find the subscriptions that match.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.engine import Engine
from siftline.operators.operator import operator
from siftline.operators.problem import problem_of_lists
from siftline.operators.sub_order import SubOrder
from siftline_bench.errors import WrongIdsError
from siftline_bench.measure import time_once
from siftline_bench.operator_bounds import least_calls
from siftline_bench.operator_graphs import GraphParameters, OperatorGraph, drawn_graph
from siftline_bench.schedule_simulation import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from siftline_bench.schedule_simulation import Simulation

    Say = Callable[[str], None]

Row = dict[str, Any]

SCHEDULES: Final = ("naive-no-memo", "naive", "sequential", "sub-order", "adaptive", "offline")
# So much of the predicates drifts.
_DRIFT: Final = 0.5
_OPERATOR: Final = "bench_truth"
_INDEXED: Final = GraphParameters(10_000, 5_000)


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    graphs: tuple[GraphParameters, ...] = (
        GraphParameters(80_000, 40_000, "uniform"),
        GraphParameters(80_000, 40_000, "equal"),
        GraphParameters(20_000, 30_000),
    )
    ordered: tuple[GraphParameters, ...] = (
        GraphParameters(80_000, 40_000, "uniform"),
        GraphParameters(80_000, 40_000),
    )
    indexed: GraphParameters = _INDEXED
    n_kinds: tuple[int, ...] = (1, 10, 100)
    n_seeds: int = 3
    n_events: int = 200
    n_bounds: int = 5
    n_drift_events: int = 400
    n_changes: int = 1_000
    n_indexed_events: int = 50
    n_passes: int = 3


QUICK: Final = Sizes(
    (GraphParameters(800, 400, "uniform"), GraphParameters(200, 300)),
    (GraphParameters(800, 400),),
    GraphParameters(300, 150),
    (1, 10),
    n_seeds=1,
    n_events=20,
    n_bounds=2,
    n_drift_events=40,
    n_changes=20,
    n_indexed_events=5,
    n_passes=1,
)


def measure(figures: Sequence[str], sizes: Sizes, seed: int, say: Say) -> Iterator[Row]:
    """Measure what was asked for, each with several seeds."""
    work = {"calls": _calls, "drift": _drift, "order": _order, "overhead": _overhead, "index": _index}
    for each in range(seed, seed + sizes.n_seeds):
        for figure in figures:
            say(f"{figure}, seed {each}")
            for row in work[figure](sizes, each):
                yield {"figure": figure, "seed": each, **row}


def _head(graph: OperatorGraph) -> Row:
    parameters = graph.parameters
    return {
        "workload": parameters.label,
        "n_subscriptions": parameters.n_subscriptions,
        "n_predicates": parameters.n_predicates,
        "n_used": graph.problem.n_nodes,
    }


def simulated(graph: OperatorGraph, schedule: str, truths: NDArray[np.bool_], *, is_known: bool = True) -> Simulation:
    """Run a schedule; raise unless it finds what matches."""
    found = simulate(schedule, graph.problem, truths, graph.statistics(is_known=is_known))
    if schedule != "naive-no-memo":
        for expected, matched in zip(graph.matched(truths), found.matched, strict=True):
            if not np.array_equal(expected, matched):
                raise WrongIdsError(f"{schedule} found {len(matched)} subscriptions, not {len(expected)}")
    return found


def _calls(sizes: Sizes, seed: int) -> Iterator[Row]:
    for parameters in sizes.graphs:
        graph = drawn_graph(parameters, seed)
        truths = graph.truths(sizes.n_events)
        head = {**_head(graph), "n_events": len(truths), "matches": _mean(list(map(len, graph.matched(truths))))}
        for schedule in SCHEDULES:
            calls = simulated(graph, schedule, truths).calls
            yield {**head, "schedule": schedule, "calls": _mean(calls)}
        # The bound takes its time: it is found for some events, and stands in proportion to `offline`.
        least = np.mean([least_calls(graph.problem, row) for row in truths[: sizes.n_bounds]])
        share = float(least / calls[: sizes.n_bounds].mean())
        yield {**head, "schedule": "least", "calls": _mean(calls * share), "of_offline": round(share, 4)}
        learning = simulated(graph, "adaptive", truths, is_known=False).calls
        yield {**head, "schedule": "adaptive, nothing known before", "calls": _mean(learning)}


def _mean(values: Any) -> float:
    return round(float(np.mean(values)), 2)


def _drift(sizes: Sizes, seed: int) -> Iterator[Row]:
    for parameters in sizes.graphs:
        graph = drawn_graph(parameters, seed)
        for drift in (0.0, _DRIFT):
            truths = graph.truths(sizes.n_drift_events, drift=drift)
            calls = {name: _mean(simulated(graph, name, truths).calls) for name in ("sub-order", "adaptive")}
            ratio = round(calls["adaptive"] / calls["sub-order"], 4)
            yield {**_head(graph), "n_events": len(truths), "drift": drift, "calls": calls, "ratio": ratio}


# times


def _order(sizes: Sizes, seed: int) -> Iterator[Row]:
    _ordered(drawn_graph(QUICK.ordered[0], seed), 1)  # kernels are compiled before the clock runs
    for parameters in sizes.ordered:
        graph = drawn_graph(parameters, seed)
        yield {**_head(graph), **_ordered(graph, sizes.n_changes)}


def _ordered(graph: OperatorGraph, n_changes: int) -> Row:
    """Order all chains but some, then add and remove these one by one, each with an event that it makes wait."""
    schedule = SubOrder(graph.statistics())
    problem, nothing = graph.problem, problem_of_lists([])
    chains = list(enumerate(np.split(problem.literals, problem.chain_starts[1:-1])))
    first, later = chains[:-n_changes], chains[-n_changes:]

    def build() -> None:
        for chain, literals in first:
            schedule.add(chain, literals)
        schedule.begin(nothing)

    def add() -> None:
        for chain, literals in later:
            schedule.add(chain, literals)
            schedule.begin(nothing)

    def remove() -> None:
        for chain, _ in later:
            schedule.remove(chain)

    timed = [time_once(work) for work in (build, add, remove)]
    return {
        "order_s": round(timed[0].seconds, 3),
        "order_processor_s": round(timed[0].processor_seconds, 3),
        "n_changes": n_changes,
        "add_us": round(timed[1].processor_seconds / n_changes * 1e6, 1),
        "remove_us": round(timed[2].processor_seconds / n_changes * 1e6, 1),
    }


def _overhead(sizes: Sizes, seed: int) -> Iterator[Row]:
    for parameters in sizes.graphs:
        graph = drawn_graph(parameters, seed)
        truths = graph.truths(sizes.n_events)
        n_calls = float(simulated(graph, "naive-no-memo", truths).calls.sum())
        for schedule in ("sequential", "sub-order", "adaptive"):
            seconds = min(_per_run(graph, schedule, truths) for _ in range(sizes.n_passes))
            yield {
                **_head(graph),
                "schedule": schedule,
                "n_events": len(truths),
                "event_us": round(seconds / len(truths) * 1e6, 1),
                "call_ns": round(seconds / n_calls * 1e9, 2),
            }


def _per_run(graph: OperatorGraph, schedule: str, truths: NDArray[np.bool_]) -> float:
    """Return the processor time of all events, without that of what is made before the first."""
    before, after = graph.statistics(), graph.statistics()
    start = time_once(lambda: simulate(schedule, graph.problem, truths[:0], before)).processor_seconds
    return time_once(lambda: simulate(schedule, graph.problem, truths, after)).processor_seconds - start


# with ordinary predicates beside them


def _index(sizes: Sizes, seed: int) -> Iterator[Row]:
    graph = drawn_graph(sizes.indexed, seed)
    truths = graph.truths(sizes.n_indexed_events)
    rows = truths.tolist()

    @operator(_OPERATOR, replace=True)
    def _(event: dict[str, int], predicate: int) -> bool:
        return bool(rows[event["number"]][predicate])

    for schedule in ("naive-no-memo", "sub-order", "adaptive"):
        calls_of_all = 0.0
        for n_kinds in sizes.n_kinds:
            row = _indexed(graph, truths, schedule, n_kinds)
            calls_of_all = calls_of_all or row["calls"]
            drop = round(calls_of_all / row["calls"], 2)
            yield {**_head(graph), "schedule": schedule, "factor": n_kinds, "drop": drop, **row}


def _indexed(graph: OperatorGraph, truths: NDArray[np.bool_], schedule: str, n_kinds: int) -> Row:
    """Match events of one kind after the other with an engine; each subscription wants one kind."""
    engine = Engine(schedule=schedule)
    problem = graph.problem
    chains = np.split(problem.literals >> 1, problem.chain_starts[1:-1])
    engine.add_many(
        (id, " and ".join([f"kind = {id % n_kinds}", *(f"{_OPERATOR}({node})" for node in chain)]))
        for id, chain in enumerate(chains)
    )
    engine.match({"kind": -1})
    events = [{"kind": number % n_kinds, "number": number} for number in range(len(truths))]
    timed = time_once(lambda: [engine.match(event) for event in events])
    for event, matched, found in zip(events, graph.matched(truths), timed.result, strict=True):
        if sorted(found) != matched[matched % n_kinds == event["kind"]].tolist():
            raise WrongIdsError(f"an engine with the schedule {schedule} found other subscriptions")
    n_calls = engine.stats()["operators"]["calls"]
    return {
        "n_events": len(events),
        "calls": round(n_calls / len(events), 2),
        "event_us": round(timed.processor_seconds / len(events) * 1e6, 1),
        "us_per_call_made": round(timed.processor_seconds / n_calls * 1e6, 3),
    }


def with_seeds(sizes: Sizes, n_seeds: int | None, n_events: int | None) -> Sizes:
    """Return sizes with another number of seeds or events, where one is given."""
    changes: dict[str, Any] = {"n_seeds": n_seeds, "n_events": n_events}
    return replace(sizes, **{name: value for name, value in changes.items() if value is not None})
