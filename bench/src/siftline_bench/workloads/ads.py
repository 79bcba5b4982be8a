"""Display advertisements, which ask for some properties of a visitor, each one of few values.

Attributes follow the Zipf law in subscriptions and events alike; values are numbers, 0 .. n_values - 1, and uniform. A
predicate accepts a set of values, held as a bit mask while it is drawn: one bit is an equality, several are an `in`.

`ads-eq` and `ads` have a uniform number of predicates. `display-ads` has the shape that the PS-Tree paper tells of its
data set (section 7.4): 3 million subscriptions of 1 to 56 predicates, 8 on average, 122 attributes, 20 of them in an
event. That sizes are geometric, all else about values, sets and skew, and the planted match are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline_bench.workloads.drawing import (
    Planted,
    choose_planted,
    draw_by_count,
    fill_events,
    listed,
    named,
    numbered,
    predicate_table,
    subscription_attributes,
    zipf_weights,
)
from siftline_bench.workloads.synthetic import attribute_names, value_table
from siftline_bench.workloads.workload import Parameters, Recipe, later

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OPERATORS: Final = ("=", "in")


@dataclass(frozen=True, kw_only=True)
class Ads(Parameters):
    """Parameters of the advertisements.

    Attributes
    ----------
    n_attributes : int
        In all; named a0, a1, ...
    skew : float
        Attribute i is drawn with a probability proportional to 1 / (i + 1) ** skew.
    least_predicates, most_predicates : int
        The least and the most predicates of a subscription, drawn uniformly.
    in_share : float
        The share of predicates that are `in`; the others are equalities.
    least_set, most_set : int
        The least and the most different values of an `in`, drawn uniformly.
    n_values : int
        Values of each attribute; at most 24.
    event_size : int
        Attributes of an event.
    n_planted : int
        Subscriptions that each event is made to match.
    mean_predicates : float
        If not 0, sizes are geometric with this mean, up to the largest; only those that fit into events are planted.
    """

    n_subscriptions: int = 1_000_000
    n_events: int = 1_000
    n_attributes: int = 122
    skew: float = 1.0
    least_predicates: int = 4
    most_predicates: int = 12
    in_share: float = 0.0
    least_set: int = 2
    most_set: int = 10
    n_values: int = 20
    event_size: int = 20
    n_planted: int = 1
    mean_predicates: float = later(0.0)


def draw(parameters: Ads, chance: np.random.Generator, event_chance: np.random.Generator) -> tuple[Any, Any]:
    """Draw the tables of predicates and of values."""
    weights = zipf_weights(parameters.n_attributes, parameters.skew)
    counts, attributes = _draw_attributes(parameters, weights, chance)
    n, is_used = parameters.n_subscriptions, attributes >= 0
    masks = np.zeros(attributes.shape, dtype=np.int32)
    masks[is_used] = _draw_masks(parameters, chance, int(counts.sum()))
    planted = _planted(parameters, attributes, masks, event_chance)
    events = fill_events(event_chance, weights, parameters.event_size, parameters.n_values, planted)
    names = attribute_names(parameters.n_attributes)
    owners = np.repeat(np.arange(n), counts)
    predicates = _predicate_table(owners, named(attributes[is_used], names), masks[is_used], parameters.n_values)
    return predicates, value_table(*events, names)


def _draw_attributes(
    parameters: Ads, weights: NDArray[np.float64], chance: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Draw how many predicates subscriptions have, and on which attributes."""
    n, least, most = parameters.n_subscriptions, parameters.least_predicates, parameters.most_predicates
    if parameters.mean_predicates:
        beyond = chance.geometric(1 / (parameters.mean_predicates - least + 1), size=n)
        counts = np.minimum(least - 1 + beyond, most)
        return counts, draw_by_count(chance, weights, counts)
    if parameters.n_planted * most > parameters.event_size:
        raise ValueError("an event is too small for the subscriptions that it is to match")
    counts = chance.integers(least, most + 1, size=n)
    return counts, subscription_attributes(chance, weights, counts, most)


def _draw_masks(parameters: Ads, chance: np.random.Generator, n: int) -> NDArray[np.int32]:
    """Draw sets of values: of each size, all sets are equally likely."""
    sizes = chance.integers(parameters.least_set, parameters.most_set + 1, size=n)
    sizes[chance.random(n, dtype=np.float32) >= parameters.in_share] = 1
    by_size = _sets_by_size(parameters.n_values)
    masks = np.empty(n, dtype=np.int32)
    for size in np.unique(sizes).tolist():
        places = np.flatnonzero(sizes == size)
        masks[places] = chance.choice(by_size[size], size=len(places))
    return masks


def _sets_by_size(n_values: int) -> list[NDArray[np.int32]]:
    """Return all sets of values as bit masks, by how many values they have."""
    if n_values > 24:
        raise ValueError(f"advertisements have at most 24 values an attribute, not {n_values}")
    masks = np.arange(1 << n_values, dtype=np.int32)
    sizes = np.bitwise_count(masks)
    order = np.argsort(sizes, kind="stable").astype(np.int32)
    return np.split(order, np.cumsum(np.bincount(sizes))[:-1])


def _planted(
    parameters: Ads, attributes: NDArray[np.int32], masks: NDArray[np.int32], chance: np.random.Generator
) -> Planted:
    """Choose subscriptions for each event, and a value out of each of their sets."""
    n, room = parameters.n_events, parameters.event_size // max(1, parameters.n_planted)
    if parameters.mean_predicates:
        is_small = (attributes >= 0).sum(axis=1) <= room
        if not is_small.any():
            return Planted(*np.empty((2, n, 0), dtype=np.int32))
        attributes, masks = attributes[is_small, :room], masks[is_small, :room]
    chosen = choose_planted(chance, attributes, n, parameters.n_planted)
    wanted = masks[chosen].reshape(n, -1)
    scores = chance.random((*wanted.shape, parameters.n_values)) * _bits(wanted, parameters.n_values)
    return Planted(attributes[chosen].reshape(n, -1), scores.argmax(axis=-1).astype(np.int32))


def _bits(masks: NDArray[np.int32], n_values: int) -> NDArray[np.bool_]:
    return (masks[..., None] >> np.arange(n_values, dtype=np.int32) & 1).astype(np.bool_)


def _predicate_table(owners: NDArray[np.int64], attributes: Any, masks: NDArray[np.int32], n_values: int) -> Any:
    import pyarrow as pa

    sizes = np.bitwise_count(masks)
    is_in = sizes > 1
    lowest = np.bitwise_count((masks & -masks) - 1)  # the place of the lowest bit
    columns = {"number": numbered(lowest, ~is_in)}
    if is_in.any():
        elements = pa.array(np.nonzero(_bits(masks[is_in], n_values))[1].astype(np.int64))
        columns["numbers"] = listed(sizes, elements, is_in)
    return predicate_table(owners, attributes, is_in.astype(np.int8), _OPERATORS, **columns)


RECIPES: Final = (
    Recipe(
        name="ads-eq",
        description="122 attributes by the Zipf law, 4 to 12 equalities over 20 numbers, a match planted in each event",
        parameters=Ads(),
        draw=draw,
    ),
    Recipe(
        name="ads",
        description="as ads-eq, but half of the predicates are sets of 2 to 10 numbers",
        parameters=Ads(in_share=0.5),
        draw=draw,
    ),
    Recipe(
        name="display-ads",
        description="PS-Tree, section 7.4: 1 to 56 predicates, 8 on average, half of them sets; 122 attributes",
        parameters=Ads(
            n_subscriptions=3_000_000, least_predicates=1, most_predicates=56, in_share=0.5, mean_predicates=8.0
        ),
        draw=draw,
    ),
)
