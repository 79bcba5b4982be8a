"""`adaptive`: the call that is expected to decide most subscriptions for its cost, as learned so far.

Idea: an event's open chains are a covering problem: every chain that fails must have one of its false nodes evaluated.
The greedy choice for covers, the node with most open chains * probability that it fails them / cost, is near the best
that is possible without knowing the truths. Probabilities and costs are those of `call_statistics.py`, which learns
from every event. A node that is the last open one of a chain cannot be avoided, so it comes first.

Worked example: p0 in chains 0, 1, 2 and p1 in chain 2 alone, all as likely false as true. p0 is called first; if it is
false, nothing else is. If it is true, then p1 is the last open node of chain 2.

Arrays: see `problem.py`; by node, n_open (open chains by literal), following (the next node in its bucket); heads by
bucket, eight to a factor of two. A node's bucket only ever falls, so it is put down when it is found too high.

Cost: O(literals) an event for closing chains, and some steps through buckets for each node; nothing is sorted. There
is no order to keep: additions and removals cost nothing, and what was learned shows with the next event.

Departures: this is not in the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from siftline.kernels.schedules import CURSOR_SIZE, N_BUCKETS, begin_greedy, next_in_greedy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.operators.call_statistics import CallStatistics
    from siftline.operators.problem import Problem


class Adaptive:
    """The greedy schedule over learned statistics."""

    remembers = True

    def __init__(self, statistics: CallStatistics) -> None:
        self._statistics = statistics

    def add(self, chain: int, literals: NDArray[np.int32]) -> None:
        """Keep nothing."""

    def remove(self, chain: int) -> None:
        """Keep nothing."""

    def begin(self, problem: Problem) -> Greedy:
        """Put all nodes into buckets by what is known now."""
        statistics = self._statistics
        return Greedy(problem, statistics.failing(problem.nodes), statistics.costs(problem.nodes))


class Greedy:
    """One event: see `kernels/schedules.py`."""

    def __init__(self, problem: Problem, failing: NDArray[np.float64], costs: NDArray[np.float64]) -> None:
        self.known = np.zeros(problem.n_nodes, dtype=np.int8)
        self.is_settled = np.zeros(problem.n_owners, dtype=np.bool_)
        n_left = np.diff(problem.chain_starts).astype(np.int32)
        n_open = problem.n_open.copy()
        key = np.empty(1)
        heads = np.empty(N_BUCKETS, dtype=np.int32)
        following = np.empty(problem.n_nodes, dtype=np.int32)
        pending = np.empty(2 * problem.n_chains, dtype=np.int32)
        cursor = np.zeros(CURSOR_SIZE, dtype=np.int64)
        queue = (key, heads, following, pending, cursor)
        begin_greedy(problem.chain_starts, failing, costs, n_open, *queue)
        self._arguments = (
            problem.chain_starts,
            problem.literals,
            problem.owners,
            problem.node_starts,
            problem.node_chains,
            failing,
            costs,
            self.known,
            self.is_settled,
            n_left,
            n_open,
            *queue,
        )

    def next(self, last: int) -> int:
        """Return the next step."""
        return int(next_in_greedy(*self._arguments, last))
