"""What schedules would cost on events whose truths are known, without any operator: for benchmarks and tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from siftline.operators.adaptive import chain_rows, rates_of
from siftline.operators.sub_order import chain_order, likelihoods, sorted_chains
from siftline_bench.schedule_kernels import run_greedy, run_sequence, run_walk, run_without_memo

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from siftline.operators.call_statistics import CallStatistics
    from siftline.operators.problem import Problem

    # One event: truths, where to write what was evaluated, and which owners are settled; the number of calls.
    _Run = Callable[[NDArray[np.bool_], NDArray[np.int8], NDArray[np.bool_]], int]


class Simulation(NamedTuple):
    """The number of calls of each event, their costs, and the subscriptions that were found to match."""

    calls: NDArray[np.int64]
    costs: NDArray[np.float64]
    matched: list[NDArray[np.int64]]  # nothing without a memo, where results are only counted


def simulate(schedule: str, problem: Problem, truths: NDArray[np.bool_], statistics: CallStatistics) -> Simulation:
    """Run a schedule over events, each a row of truths by node of the problem.

    `statistics` is what is known before; `adaptive` learns from each event. `offline` is greedy too, but knows the
    truths: about the least that any schedule could do.
    """
    costs = statistics.costs(problem.nodes)
    calls, spent = np.zeros(len(truths), dtype=np.int64), np.zeros(len(truths))
    matched = []
    run = _RUNS[schedule](problem, statistics)
    for i, row in enumerate(truths):
        known = np.zeros(problem.n_nodes, dtype=np.int8)
        is_settled = np.zeros(problem.n_owners, dtype=np.bool_)
        calls[i] = run(row, known, is_settled)
        matched.append(np.flatnonzero(is_settled))
        spent[i] = costs[known != 0].sum()
        if schedule == "adaptive":
            statistics.learn(problem.nodes, known)
    return Simulation(calls, spent, matched)


def calls_of(schedule: str, problem: Problem, truths: NDArray[np.bool_], statistics: CallStatistics) -> float:
    """Return the mean number of calls of an event."""
    return float(simulate(schedule, problem, truths, statistics).calls.mean())


def _as_they_come(problem: Problem) -> NDArray[np.int32]:
    return np.arange(problem.n_chains, dtype=np.int32)


def _naive(problem: Problem, statistics: CallStatistics) -> _Run:
    starts, literals, owners, order = problem.chain_starts, problem.literals, problem.owners, _as_they_come(problem)
    return lambda truths, known, is_settled: run_walk(starts, literals, owners, order, truths, known, is_settled, False)


def _naive_no_memo(problem: Problem, statistics: CallStatistics) -> _Run:
    starts, literals, order = problem.chain_starts, problem.literals, _as_they_come(problem)
    return lambda truths, known, _: run_without_memo(starts, literals, order, truths, known)


def _sequential(problem: Problem, statistics: CallStatistics) -> _Run:
    order = _as_they_come(problem)
    return lambda truths, known, is_settled: run_sequence(
        problem.chain_starts,
        problem.literals,
        problem.owners,
        order,
        problem.node_starts,
        problem.node_chains,
        truths,
        known,
        is_settled,
    )


def _sub_order(problem: Problem, statistics: CallStatistics) -> _Run:
    known_before = likelihoods(1.0 - statistics.failing(problem.nodes), statistics.costs(problem.nodes))
    starts, owners = problem.chain_starts, problem.owners
    literals = sorted_chains(starts, problem.literals, known_before.keys[problem.literals])
    order = chain_order(starts, literals, known_before)
    return lambda truths, known, is_settled: run_walk(starts, literals, owners, order, truths, known, is_settled, True)


def _greedy(problem: Problem, statistics: CallStatistics, *, is_offline: bool = False) -> _Run:
    _, rows, node_rows = chain_rows(problem)
    costs = statistics.costs(problem.nodes)

    def run(truths: NDArray[np.bool_], known: NDArray[np.int8], is_settled: NDArray[np.bool_]) -> int:
        failing = statistics.failing(problem.nodes)
        if is_offline:
            failing[0::2], failing[1::2] = np.where(truths, 1e-7, 1.0), np.where(truths, 1.0, 1e-7)
        n: int = run_greedy(
            problem.chain_starts,
            problem.owners,
            problem.node_starts,
            node_rows,
            rates_of(failing, costs),
            rows.copy(),
            problem.n_open.copy(),
            truths,
            known,
            is_settled,
        )
        return n

    return run


_RUNS: Final[dict[str, Callable[[Problem, CallStatistics], _Run]]] = {
    "naive": _naive,
    "naive-no-memo": _naive_no_memo,
    "sequential": _sequential,
    "sub-order": _sub_order,
    "adaptive": _greedy,
    "offline": lambda problem, statistics: _greedy(problem, statistics, is_offline=True),
}
