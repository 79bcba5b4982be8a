"""`operator-graph`: conjunctions of call predicates, by Table 1 of the operators paper.

The drawing is that of `operator_graphs.py`, which says what is the paper's and what is ours: how popular
predicates are, and how often they are true.

    subscription   p17 = true and p4 = true and p230 = true       f17(event) and f4(event) and f230(event)
    event          {p4: true, p9: true, p17: true, ...}           the calls that say yes

A call predicate is a function that is called with the event. Tables hold no functions: here `p17 = true` stands for the
call, and the flag p17 of an event for its result. A flag that is false is left out, which matches the same. Flags of
predicates that nobody asks for are there as well.

All chunks share the weights of predicates and the shares of events that they are true of. These shares are such that a
whole workload of one chunk matches as often as asked, averaged over all possible events; with several chunks, that is
so for other subscriptions, a chunk's worth, drawn alike. The generators are those of all recipes, so that this is not
the graph that `siftline bench operators` draws with the same seed.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline_bench.operator_graphs import (
    GraphParameters,
    calibrated,
    drawn_lengths,
    drawn_predicates,
    drawn_truths,
    drawn_weights,
)
from siftline_bench.workloads.drawing import long_table, named, predicate_table
from siftline_bench.workloads.workload import CHUNK, Parameters, Recipe

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Graph(Parameters):
    """Parameters: those of Table 1.

    Attributes
    ----------
    n_predicates : int
        Different call predicates; named p0, p1, ...
    exponent : float
        Predicate i is taken with a probability proportional to 1 / (i + 1) ** exponent; 0: all alike.
    is_uniform : bool
        Whether predicates are taken by weights uniform in [0, 1] instead; the exponent then does not matter.
    least_predicates, most_predicates : int
        The least and the most different predicates of a subscription, drawn uniformly.
    match_share : float
        The share of all subscriptions that an event matches, on average.
    """

    n_subscriptions: int = 20_000
    n_events: int = 1_000
    n_predicates: int = 5_000
    exponent: float = 1.0
    is_uniform: bool = False
    least_predicates: int = 3
    most_predicates: int = 5
    match_share: float = 0.002


class Calls(NamedTuple):
    """By predicate: its popularity, and the share of events that it is true of."""

    weights: NDArray[np.float64]
    shares: NDArray[np.float64]


def draw_calls(parameters: Graph, chance: np.random.Generator) -> Calls:
    """Draw what is known about predicates."""
    if parameters.least_predicates < 1:
        raise ValueError("a subscription has at least one predicate")
    if not 0 < parameters.match_share <= 1:
        raise ValueError(f"match_share is above 0 and at most 1, not {parameters.match_share}")
    weights = drawn_weights(_graph(parameters), chance)
    drawn = chance.random(parameters.n_predicates)
    # Drawn with a copy, because `draw` goes on with the generator: one chunk alone gets these very subscriptions.
    sample = replace(parameters, n_subscriptions=min(parameters.n_subscriptions, CHUNK))
    lengths, asked = _draw_subscriptions(sample, weights, deepcopy(chance))
    return Calls(weights, calibrated(drawn, asked, np.cumsum(lengths) - lengths, parameters.match_share))


def draw(
    parameters: Graph, chance: np.random.Generator, event_chance: np.random.Generator, calls: Calls
) -> tuple[Any, Any]:
    """Draw the tables of predicates and of values."""
    names = [f"p{i}" for i in range(parameters.n_predicates)]
    lengths, asked = _draw_subscriptions(parameters, calls.weights, chance)
    owners = np.repeat(np.arange(len(lengths)), lengths)
    flags = np.ones(len(asked), dtype=np.bool_)
    rows = predicate_table(owners, named(asked, names), np.zeros(len(asked), dtype=np.int8), ["="], flag=flags)
    truths = drawn_truths(calls.shares, parameters.n_events, event_chance)
    true = np.where(truths, np.arange(len(names), dtype=np.int32), np.int32(-1))
    return rows, long_table(true, names, flag=truths)


def _draw_subscriptions(
    parameters: Graph, weights: NDArray[np.float64], chance: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw how many predicates each subscription has, and which."""
    graph = _graph(parameters)
    lengths = drawn_lengths(graph, chance)
    return lengths, drawn_predicates(graph, weights, lengths, chance)


def _graph(parameters: Graph) -> GraphParameters:
    """Return the parameters as the drawing knows them; an exponent of 0 is the same as `equal`."""
    return GraphParameters(
        n_subscriptions=parameters.n_subscriptions,
        n_predicates=parameters.n_predicates,
        popularity="uniform" if parameters.is_uniform else "zipf",
        exponent=parameters.exponent,
        least_predicates=parameters.least_predicates,
        most_predicates=parameters.most_predicates,
        match_share=parameters.match_share,
    )


RECIPES: Final = (
    Recipe(
        name="operator-graph",
        description="operators, Table 1: conjunctions of 3 to 5 of 5,000 call predicates, as flags; 0.2 % match",
        parameters=Graph(),
        draw=draw,
        prepare=draw_calls,
    ),
)
