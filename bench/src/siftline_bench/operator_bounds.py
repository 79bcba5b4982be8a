"""How few calls an event could do with, if all truths were known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.operators.problem import Problem

# Found by trial on the paper's workloads: more rounds gain less than one call in a hundred.
_N_ROUNDS: Final = 200
_STEEPNESS: Final = (5.0, 20.0)
_STEP: Final = 0.1
_LAST_ROUNDS: Final = 10


def least_calls(problem: Problem, truths: NDArray[np.bool_]) -> float:
    """Return a number of calls that no schedule can go below for one event.

    All predicates of subscriptions that match must be called. Each other subscription needs one of its false
    predicates, which is a covering problem. Weights of subscriptions that come to at most 1 at every false predicate
    add up to no more than the calls of any cover: they are the dual of its linear program. A weight grows while its
    predicates are far from 1 and shrinks where they are above, ever more steeply, until nearly nothing is left to gain.

    >>> from siftline.operators.problem import problem_of_lists
    >>> problem = problem_of_lists([[[0, 2]], [[2, 4]], [[6]]])
    >>> round(least_calls(problem, np.array([False, False, False, True])), 3)
    2.0
    """
    nodes, lengths = problem.literals >> 1, np.diff(problem.chain_starts)
    is_matched = np.repeat(np.logical_and.reduceat(truths[nodes], problem.chain_starts[:-1]), lengths)
    n_needed = len(np.unique(nodes[is_matched]))
    is_false = ~truths[nodes]
    chains = np.repeat(np.arange(problem.n_chains), lengths)[is_false]
    return n_needed + _packed(nodes[is_false], chains, problem.n_nodes)


def _packed(nodes: NDArray[np.int32], chains: NDArray[np.int64], n_nodes: int) -> float:
    """Return the sum of weights of chains such that those at each node come to 1 at most."""
    if not len(nodes):
        return 0.0
    starts = np.flatnonzero(np.diff(chains, prepend=-1))
    counts = np.diff(np.append(starts, len(chains)))
    weights = np.ones(len(starts))

    def loads() -> NDArray[np.float64]:
        sums: NDArray[np.float64] = np.bincount(nodes, np.repeat(weights, counts), minlength=n_nodes).astype(np.float64)
        return sums

    # A weight divided by the largest load that it is part of leaves all loads at 1 at most.
    weights /= np.maximum.reduceat(loads()[nodes], starts)
    for steepness in np.geomspace(*_STEEPNESS, _N_ROUNDS):
        prices = np.exp(np.minimum(steepness * (loads() - 1.0), 50.0))
        weights *= np.clip(np.add.reduceat(prices[nodes], starts) ** -_STEP, 0.5, 2.0)
    for _ in range(_LAST_ROUNDS):
        weights /= np.maximum.reduceat(loads()[nodes], starts)
    return float(weights.sum())
