"""`be-gen`: numeric subscriptions with a given share that matches each event, by Table 1 of the PS-Tree paper (7.1).

The authors used BE-Gen, which we do not have. Attributes follow the Zipf law with any exponent, in subscriptions and in
events. That an event matches a thousandth of all subscriptions, or half of them, does not come by chance when there are
30,000 attributes. So some subscriptions have a theme, which is most of an event: attributes with values.

    theme           a7 = 31, a12 = 4, a90 = 55, ...                         four fifths of an event
    subscriptions   a12 <= 9 and a90 between 50 and 61 and a7 = 31          of the theme: satisfied by its values
    events          the theme, and other attributes by chance

The themes together have half of the subscriptions at most: with a matching share of 0.001 there are 500 themes, with
0.5 there is one, and events differ only in the rest. The other subscriptions are drawn freely. Some match by chance,
where popular attributes are in all events even many. Then ranges are drawn narrower, until chance gives at most a
tenth of what is wanted; and themes get the rest. What remains of an error is what one sees when one counts matches, as
all runs do.

Ours: sizes are uniform (3 to 7 instead of 5 on average), events all have the same size, and a predicate that is no
equality is `<=`, `>=` or `between` and accepts at most so many values as `range_share` says, on average. (With a theme
it is mostly `between`: to reach from an end to the value of the theme, most ranges would have to be wider.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline_bench.workloads.drawing import draw_by_count
from siftline_bench.workloads.synthetic import (
    AT_LEAST,
    AT_MOST,
    BETWEEN,
    EQUAL,
    Matrix,
    Synthetic,
    attribute_names,
    attribute_weights,
    conjunctions,
    value_table,
)
from siftline_bench.workloads.workload import Recipe

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Subscriptions that have a theme, at most; how much of an event is its theme; what chance may give of the matches.
_THEMED: Final = 0.5
_CORE: Final = 0.8
_BY_CHANCE: Final = 0.1
# Subscriptions and events by which matches by chance are estimated.
_SAMPLE: Final = (4_000, 100)


@dataclass(frozen=True, kw_only=True)
class BeGen(Synthetic):
    """Parameters: those of Table 1.

    Attributes
    ----------
    matching_share : float
        The share of all subscriptions that an event matches.
    range_share : float
        The share of all values that a range accepts on average, unless that gave too many matches by chance.
    """

    matching_share: float = 0.001
    range_share: float = 0.3


class Themes(NamedTuple):
    """Themes, one row each, the share of subscriptions that belong to each one, and what ranges accept."""

    attributes: NDArray[np.int32]
    values: NDArray[np.int32]
    share: float
    range_share: float


def draw_themes(parameters: BeGen, chance: np.random.Generator) -> Themes:
    """Draw the themes, and find out how narrow ranges must be."""
    if not 0 < parameters.matching_share <= _THEMED:
        raise ValueError(f"matching_share is above 0 and at most {_THEMED}, not {parameters.matching_share}")
    range_share, by_chance = _calibrated(parameters)
    n, size = max(1, int(_THEMED / parameters.matching_share)), parameters.event_size
    core = min(size, max(round(_CORE * size), parameters.most_predicates))
    attributes = draw_by_count(chance, attribute_weights(parameters), np.full(n, core))
    values = chance.integers(0, parameters.n_values, size=attributes.shape, dtype=np.int32)
    return Themes(attributes, values, max(0.0, parameters.matching_share - by_chance), range_share)


def _calibrated(parameters: BeGen) -> tuple[float, float]:
    """Return what ranges accept on average, and the share of subscriptions that then match by chance."""
    carried = _carried(parameters)
    equal, n_values = parameters.equal_share, parameters.n_values
    narrowest = 1 / n_values
    shares = np.geomspace(max(parameters.range_share, narrowest), narrowest / 2, 100)
    drawn = np.linspace(0, 1, 1_001)
    accepted = np.array([_widths(drawn, share, n_values).mean() for share in shares]) / n_values
    holds = equal / n_values + (1 - equal) * accepted
    matching = (carried * holds[:, None] ** np.arange(len(carried))).sum(axis=1)
    is_little = matching <= _BY_CHANCE * parameters.matching_share
    place = int(is_little.argmax()) if is_little.any() else len(shares) - 1
    return float(shares[place]), float(matching[place])


def _widths(drawn: NDArray[Any], range_share: float, n_values: int) -> NDArray[Any]:
    """Return how many values ranges accept, from uniform numbers up to 1."""
    return np.clip(np.rint(drawn * (2 * range_share * n_values)), 1, n_values)


def _carried(parameters: BeGen) -> NDArray[np.float64]:
    """Return by size how often an event has all attributes of a subscription; both are drawn as always."""
    chance, weights = np.random.default_rng(0), attribute_weights(parameters)
    n_subscriptions, n_events = _SAMPLE
    counts = chance.integers(parameters.least_predicates, parameters.most_predicates + 1, size=n_subscriptions)
    wanted = draw_by_count(chance, weights, counts)
    there = np.zeros((n_events, parameters.n_attributes + 1), dtype=np.bool_)
    carried = draw_by_count(chance, weights, np.full(n_events, parameters.event_size))
    there[np.arange(n_events)[:, None], carried] = True
    there[:, -1] = True  # where there is no predicate
    n_carrying = np.array([row[wanted].all(axis=1) for row in there]).sum(axis=0)
    return np.bincount(counts, n_carrying) / (n_subscriptions * n_events)


def draw(
    parameters: BeGen, chance: np.random.Generator, event_chance: np.random.Generator, themes: Themes
) -> tuple[Any, Any]:
    """Draw the tables of predicates and of values."""
    names = attribute_names(parameters.n_attributes)
    return conjunctions(parameters, _draw_matrix(parameters, themes, chance)), value_table(
        *_draw_events(parameters, themes, event_chance), names
    )


def _draw_matrix(parameters: BeGen, themes: Themes, chance: np.random.Generator) -> Matrix:
    """Draw the subscriptions; those with a theme first by chance, like all, then attributes and values of the theme."""
    n, most = parameters.n_subscriptions, parameters.most_predicates
    counts = chance.integers(parameters.least_predicates, most + 1, size=n)
    n_themes, core = themes.attributes.shape
    theme = chance.integers(0, n_themes, size=n)
    is_themed = chance.random(n) < n_themes * themes.share
    counts[is_themed] = np.minimum(counts[is_themed], core)
    attributes = np.full((n, most), -1, dtype=np.int32)
    attributes[~is_themed] = _padded(draw_by_count(chance, attribute_weights(parameters), counts[~is_themed]), most)
    wanted = np.full((n, most), -1, dtype=np.int32)
    places = _draw_places(parameters, themes, theme[is_themed], chance)
    places[np.arange(core) >= counts[is_themed][:, None]] = -1
    own = theme[is_themed][:, None]
    for target, source in ((attributes, themes.attributes), (wanted, themes.values)):
        target[is_themed] = _padded(np.where(places < 0, -1, source[own, places]), most)
    return Matrix(counts, attributes, *_draw_bounds(parameters, themes.range_share, attributes, wanted, chance))


def _padded(rows: NDArray[Any], n_columns: int) -> NDArray[Any]:
    """Return rows of this many columns: those beyond are left out, those missing are -1."""
    rows = rows[:, :n_columns]
    return np.pad(rows, ((0, 0), (0, n_columns - rows.shape[1])), constant_values=-1)


def _draw_places(
    parameters: BeGen, themes: Themes, theme: NDArray[np.int64], chance: np.random.Generator
) -> NDArray[np.int64]:
    """Draw an order of the attributes of themes, by their weights: the smallest of exponential times comes first."""
    times = chance.standard_exponential((len(theme), themes.attributes.shape[1]), dtype=np.float32)
    return np.argsort(times / attribute_weights(parameters)[themes.attributes[theme]], axis=1)


def _draw_bounds(
    parameters: BeGen,
    range_share: float,
    attributes: NDArray[np.int32],
    wanted: NDArray[np.int32],
    chance: np.random.Generator,
) -> tuple[NDArray[np.int8], NDArray[np.int32], NDArray[np.int32]]:
    """Draw operators and the values from low to high that satisfy them, among them the wanted one unless it is -1."""
    n_values, shape = parameters.n_values, attributes.shape
    operators = chance.integers(AT_MOST, BETWEEN + parameters.has_between, size=shape, dtype=np.int8)
    operators[chance.random(shape, dtype=np.float32) < parameters.equal_share] = EQUAL
    drawn = _widths(chance.random(shape, dtype=np.float32), range_share, n_values)
    widths = np.where(operators == EQUAL, 1, drawn).astype(np.int32)
    is_wanted = wanted >= 0
    if parameters.has_between:  # a range that would have to be wider, to reach from an end to the wanted value
        is_far = ((operators == AT_MOST) & (wanted >= widths)) | (
            (operators == AT_LEAST) & (wanted < n_values - widths)
        )
        operators[is_wanted & is_far] = BETWEEN
    least = np.where(is_wanted, np.maximum(wanted - widths + 1, 0), 0)
    most = np.where(is_wanted, np.minimum(wanted, n_values - widths), n_values - widths)
    lows = least + (chance.random(shape, dtype=np.float32) * (most - least + 1)).astype(np.int32)
    highs = lows + widths - 1
    at_most, at_least = operators == AT_MOST, operators == AT_LEAST
    highs = np.where(at_most, np.maximum(widths - 1, wanted), np.where(at_least, n_values - 1, highs))
    low_end = np.where(is_wanted, np.minimum(n_values - widths, wanted), n_values - widths)
    lows = np.where(at_most, 0, np.where(at_least, low_end, lows))
    return operators, lows.astype(np.int32), highs.astype(np.int32)


def _draw_events(
    parameters: BeGen, themes: Themes, chance: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Draw attributes and values of events, one row each: those of a theme, then others."""
    theme = chance.integers(0, len(themes.attributes), size=parameters.n_events)
    core = themes.attributes[theme]
    n_others = parameters.event_size - core.shape[1]
    counts = np.full(parameters.n_events, n_others)
    others = draw_by_count(chance, attribute_weights(parameters), counts, core)
    values = chance.integers(0, parameters.n_values, size=others.shape, dtype=np.int32)
    return np.concatenate([core, others], axis=1), np.concatenate([themes.values[theme], values], axis=1)


RECIPES: Final = (
    Recipe(
        name="be-gen",
        description="PS-Tree, Table 1: any skew, and a given share of the subscriptions matches each event",
        parameters=BeGen(),
        draw=draw,
        prepare=draw_themes,
    ),
)
