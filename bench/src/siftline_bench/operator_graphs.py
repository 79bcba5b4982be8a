"""Subscriptions over call predicates, and events that say which predicates are true: the operators paper's workload.

Every predicate has a popularity: a weight uniform in [0, 1], the same for all, or Zipf. A subscription takes a random
number of different predicates, each by its weight. The paper does not say how often predicates are true, only that an
event matches 0.2 % of the subscriptions. Here a predicate is true of a share u ** k of the events, u uniform in [0, 1],
independently of all others, and k is such that subscriptions match as often as they should.

A graph has its seed. The workload `operator-graph` draws the same with generators of its own, by the same functions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from siftline.operators.call_statistics import CallStatistics
from siftline.operators.problem import problem_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.operators.problem import Problem

# What a call is taken to cost: schedules are compared by the number of calls.
_COST: Final = 1.0
# How exactly k is found, by halving.
_HALVINGS: Final = 60


@dataclass(frozen=True)
class GraphParameters:
    """What a graph of subscriptions and predicates is drawn from; Table 1 of the paper."""

    n_subscriptions: int = 20_000
    n_predicates: int = 5_000
    popularity: Literal["uniform", "equal", "zipf"] = "zipf"
    exponent: float = 1.0
    least_predicates: int = 3
    most_predicates: int = 5
    match_share: float = 0.002

    @property
    def label(self) -> str:
        """Popularity and size in a few words.

        >>> GraphParameters().label
        'zipf 1, 20,000 over 5,000'
        """
        popularity = f"zipf {self.exponent:g}" if self.popularity == "zipf" else self.popularity
        return f"{popularity}, {self.n_subscriptions:,} over {self.n_predicates:,}"


_UNIFORM: Final = GraphParameters(n_predicates=40_000, popularity="uniform")

# The x-axes of the paper's figures; where its ticks are lost, the ends are as in its text.
FIGURES: Final[dict[str, tuple[GraphParameters, ...]]] = {
    "4": tuple(replace(_UNIFORM, n_subscriptions=n) for n in (2_000, 10_000, 20_000, 40_000, 60_000, 80_000)),
    "5": tuple(
        replace(_UNIFORM, n_subscriptions=n, popularity="zipf") for n in (2_000, 10_000, 20_000, 40_000, 60_000, 80_000)
    ),
    "6": tuple(GraphParameters(n_predicates=n) for n in (2_000, 5_000, 10_000, 20_000, 30_000)),
    "7": tuple(GraphParameters(most_predicates=n) for n in (5, 7, 9, 11)),
    "8": (
        GraphParameters(popularity="uniform"),
        GraphParameters(exponent=0.8),
        GraphParameters(exponent=1.0),
        GraphParameters(exponent=1.2),
    ),
}


@dataclass(frozen=True, eq=False)
class OperatorGraph:
    """Subscriptions as chains over predicates, and how often each predicate is true."""

    parameters: GraphParameters
    seed: int
    problem: Problem
    shares: NDArray[np.float64]  # by node of the problem

    def truths(self, n_events: int, *, drift: float = 0.0) -> NDArray[np.bool_]:
        """Draw events, each a row of truths by node.

        With `drift`, that part of the predicates exchange their shares among each other, little by little over the
        first half of the events.
        """
        rng = np.random.default_rng([self.seed, 1])
        if drift == 0.0:
            return drawn_truths(self.shares, n_events, rng)
        rows = rng.random((n_events, len(self.shares)))
        later = self._exchanged(drift, rng)
        moved = np.minimum(1.0, np.arange(n_events) / max(1, n_events // 2))
        for row, part in zip(rows, moved, strict=True):
            row -= (1.0 - part) * self.shares + part * later
        return rows < 0.0

    def _exchanged(self, part: float, rng: np.random.Generator) -> NDArray[np.float64]:
        chosen = rng.permutation(len(self.shares))[: round(part * len(self.shares))]
        later = self.shares.copy()
        later[chosen] = self.shares[rng.permutation(chosen)]
        return later

    def statistics(self, *, is_known: bool = True) -> CallStatistics:
        """Return what a schedule knows beforehand: the shares, or nothing."""
        statistics = CallStatistics()
        for share in self.shares.tolist():
            statistics.add("call", _COST, share if is_known else None)
        return statistics

    def matched(self, truths: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
        """Return for each event the subscriptions that it matches, by looking at all of them."""
        problem = self.problem
        return [
            np.flatnonzero(np.logical_and.reduceat(row[problem.literals >> 1], problem.chain_starts[:-1]))
            for row in truths
        ]


def drawn_graph(parameters: GraphParameters, seed: int) -> OperatorGraph:
    """Draw subscriptions and shares."""
    rng = np.random.default_rng([seed, 0])
    lengths = drawn_lengths(parameters, rng)
    asked = drawn_predicates(parameters, drawn_weights(parameters, rng), lengths, rng)
    # Numbered without gaps: predicates that nobody has taken are left out.
    used, nodes = np.unique(asked, return_inverse=True)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    numbers = np.arange(parameters.n_subscriptions, dtype=np.int32)
    problem = problem_of(numbers, numbers, starts, (2 * nodes).astype(np.int32), len(used))
    drawn = rng.random(problem.n_nodes)
    shares = calibrated(drawn, problem.literals >> 1, problem.chain_starts[:-1], parameters.match_share)
    return OperatorGraph(parameters, seed, problem, shares)


def drawn_lengths(parameters: GraphParameters, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw how many predicates each subscription has."""
    return rng.integers(parameters.least_predicates, parameters.most_predicates + 1, parameters.n_subscriptions)


def drawn_weights(parameters: GraphParameters, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw the popularity of each predicate; only where it is uniform, chance has a part in it."""
    if parameters.popularity == "uniform":
        return rng.random(parameters.n_predicates)
    exponent = parameters.exponent if parameters.popularity == "zipf" else 0.0
    return np.arange(1.0, parameters.n_predicates + 1.0) ** -exponent


def drawn_predicates(
    parameters: GraphParameters, weights: NDArray[np.float64], lengths: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw the predicates of all subscriptions, one subscription after the other."""
    most = parameters.most_predicates
    return _chosen(weights, len(lengths), most, rng)[np.arange(most) < lengths[:, None]]


def drawn_truths(shares: NDArray[np.float64], n_events: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Draw events, each a row of truths."""
    return rng.random((n_events, len(shares))) < shares


def _chosen(weights: NDArray[np.float64], n: int, width: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw rows of different predicates, each by its weight; what a row has already is drawn again."""
    if np.count_nonzero(weights) < width:
        raise ValueError(f"{width} different predicates cannot be drawn from {len(weights)}")
    ends = np.cumsum(weights)
    rows = np.zeros((n, width), dtype=np.int64)
    is_open = np.ones((n, width), dtype=np.bool_)
    while is_open.any():
        rows[is_open] = np.searchsorted(ends, rng.random(int(is_open.sum())) * ends[-1], side="right")
        is_open[:] = False
        for place in range(1, width):
            is_open[:, place] = (rows[:, :place] == rows[:, place, None]).any(axis=1)
    return rows


def calibrated(
    drawn: NDArray[np.float64], asked: NDArray[np.integer], starts: NDArray[np.int64], match_share: float
) -> NDArray[np.float64]:
    """Return shares u ** k with which subscriptions match as often as they should on average.

    Each u is 1 less what was drawn for the predicate; the first predicates of the subscriptions are at `starts`.
    """
    logs = np.log(1.0 - drawn)
    of_chains = np.add.reduceat(logs[asked], starts)
    low, high = 0.0, 1.0
    while np.exp(high * of_chains).mean() > match_share:
        high *= 2.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if np.exp(middle * of_chains).mean() > match_share else (low, middle)
    return np.exp(high * logs)
