"""`adaptive`: next comes the call that is expected to decide most subscriptions for its cost, as learned so far.

Idea: the open chains of an event are a covering problem: for every chain that fails, one of its false nodes must be
evaluated. The greedy choice is the node with the largest (open chains * probability that it fails them / cost). It is
near the best that is possible without knowing the truths. Probabilities and costs come from `call_statistics.py`, which
learns from every event. A node that is the last open one of a chain cannot be avoided, so it comes first.

Worked example: p0 in chains 0, 1, 2 and p1 in chain 2 alone, all as likely false as true. p0 is called first; if it is
false, nothing else is. If it is true, then p1 is the last open node of chain 2.

Arrays: see `problem.py`; rows (the chains, each with its open literals counted), node_rows (the rows of each node),
n_open (by literal, its open chains), following (by node, the next in its bucket), heads (by bucket, four to a factor
of two). The bucket of a node can only become lower, so a node found in a bucket that is too high moves down then.

Cost: O(literals) an event for closing chains, and some steps through buckets for each node; nothing is sorted. There
is no order to maintain: additions and removals cost nothing, and what was learned affects the next event.

Departures: this is not in the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from siftline.kernels.pointers import empty_handle
from siftline.kernels.schedules import (
    CURSOR_SIZE,
    FIRST,
    N_BUCKETS,
    GreedyRun,
    greedy_beginner,
    next_in_greedy,
    rows_of,
)
from siftline.operators.schedules import KeepsNothing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.operators.call_statistics import CallStatistics
    from siftline.operators.problem import Problem


class ChainRows(NamedTuple):
    """The chains of a problem in the form that the kernels of this schedule read."""

    problem: Problem
    rows: NDArray[np.int32]
    node_rows: NDArray[np.int32]  # row * 2, + 1 where the node must be false


def chain_rows(problem: Problem) -> ChainRows:
    """Return the chains of a problem as rows."""
    chains = problem.node_chains >> 1
    places = problem.chain_starts[chains] + FIRST * chains
    node_rows = (2 * places + (problem.node_chains & 1)).astype(np.int32)
    return ChainRows(problem, rows_of(problem.chain_starts, problem.literals), node_rows)


def rates_of(failing: NDArray[np.float64], costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for each literal the probability that it fails a chain, divided by its cost."""
    return failing / np.repeat(costs, 2)


class Adaptive(KeepsNothing):
    """The greedy schedule over learned statistics."""

    remembers = True

    def __init__(self, statistics: CallStatistics) -> None:
        self._statistics = statistics
        self._last: ChainRows | None = None

    def begin(self, problem: Problem) -> Greedy:
        """Put all nodes into buckets by the current statistics."""
        last = self._last
        if last is None or last.problem is not problem:
            last = self._last = chain_rows(problem)
        statistics = self._statistics
        return Greedy(last, rates_of(statistics.failing(problem.nodes), statistics.costs(problem.nodes)))


class Greedy:
    """One event: see `kernels/schedules.py`."""

    def __init__(self, chains: ChainRows, rates: NDArray[np.float64]) -> None:
        problem = chains.problem
        self.known = np.zeros(problem.n_nodes, dtype=np.int8)
        self.is_settled = np.zeros(problem.n_owners, dtype=np.bool_)
        self._run = GreedyRun(
            chain_starts=problem.chain_starts,
            owners=problem.owners,
            node_starts=problem.node_starts,
            node_rows=chains.node_rows,
            rates=rates,
            known=self.known,
            is_settled=self.is_settled,
            rows=chains.rows.copy(),
            n_open=problem.n_open.copy(),
            key=np.empty(1),
            heads=np.empty(N_BUCKETS, dtype=np.int32),
            following=np.empty(problem.n_nodes, dtype=np.int32),
            pending=np.empty(2 * problem.n_chains, dtype=np.int32),
            cursor=np.zeros(CURSOR_SIZE, dtype=np.int64),
        )
        self._handle = empty_handle(self._run)
        greedy_beginner()(self._run, self._handle)

    def next(self, last: int) -> int:
        """Return the next step."""
        return int(next_in_greedy(self._handle, last))
