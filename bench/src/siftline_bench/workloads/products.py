"""`products`: a catalogue in the style of the eBay crawl in the OpIndex paper (section 7.1).

10,204 attributes; the commonest is in 31 % of the products, the second in 17 %, and attribute i (from 1) in
0.17 * (2 / i) ** decay. Subscribers prefer common attributes, but less so: an attribute is drawn with a probability
proportional to the logarithm of the number of products (of 296,846) that have it. Most attributes are texts with an own
vocabulary of 2 to 500 words, asked for by `=` and `in`; the others are numbers, asked for by ranges. Products have 5 to
40 attributes, 14 on average; a match is planted in each, as few would be found otherwise.

`catalogue` is nearer to the paper: all attributes are texts, and nothing is planted, so that subscriptions may be as
long as they like. The crawl itself is not public; sizes of products, of vocabularies and of sets, and how soon
attributes become rare, are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline_bench.workloads.drawing import (
    choose_planted,
    draw_distinct,
    listed,
    named,
    numbered,
    predicate_table,
    subscription_attributes,
)
from siftline_bench.workloads.words import names, words
from siftline_bench.workloads.workload import Parameters, Recipe, later

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FIRST, _SECOND = 0.31, 0.17
_N_PRODUCTS: Final = 296_846
_LEAST_SIZE, _MOST_SIZE, _MEAN_BEYOND = 5, 40, 9.5
_MOST_WORDS: Final = 500
_MOST_SET: Final = 5

EQUAL, IN, AT_MOST, AT_LEAST, BETWEEN = range(5)
_OPERATORS: Final = ("=", "in", "<=", ">=", "between")


@dataclass(frozen=True, kw_only=True)
class Products(Parameters):
    """Parameters of the catalogue.

    Attributes
    ----------
    n_attributes : int
        In all.
    decay : float
        How fast attributes become rarer: see above.
    text_share : float
        The share of attributes that are texts.
    least_predicates, most_predicates : int
        The least and the most predicates of a subscription, drawn uniformly; where one is planted in each
        product, at most 5, the size of the smallest product.
    set_share : float
        The share of predicates on texts that are `in`; the others are `=`.
    has_planted : bool
        Whether each product is made to match a subscription.
    """

    n_subscriptions: int = 1_000_000
    n_events: int = 1_000
    n_attributes: int = 10_204
    decay: float = 0.7
    text_share: float = 0.7
    least_predicates: int = 2
    most_predicates: int = 5
    set_share: float = later(0.3)
    has_planted: bool = later(True)


class Catalogue(NamedTuple):
    """What is known of each attribute: how many products have it, whether it is a text, and how many values it has."""

    frequencies: NDArray[np.float64]
    is_text: NDArray[np.bool_]
    n_values: NDArray[np.int64]


class Predicates(NamedTuple):
    """One row a predicate: its operator, and the values that satisfy it, from low to high."""

    operators: NDArray[np.int8]
    lows: NDArray[np.int64]
    highs: NDArray[np.int64]


class Wishes(NamedTuple):
    """Subscriptions: how many predicates each has, its attributes (one row each, -1: none), and all predicates."""

    counts: NDArray[np.int64]
    attributes: NDArray[np.int32]
    predicates: Predicates
    has_planted: bool = True

    @property
    def used(self) -> NDArray[np.int32]:
        """The attribute of each predicate."""
        return self.attributes[self.attributes >= 0]


class Offers(NamedTuple):
    """Events: one row a value, and for each event the subscription that is planted in it, if any is."""

    events: NDArray[np.int64]
    attributes: NDArray[np.int32]
    values: NDArray[np.int64]
    planted: NDArray[np.int64]


def draw(
    parameters: Products, chance: np.random.Generator, event_chance: np.random.Generator, catalogue: Catalogue
) -> tuple[Any, Any]:
    """Draw the tables of predicates and of values."""
    wishes = draw_wishes(catalogue, parameters, chance)
    offers = draw_offers(catalogue, wishes, parameters.n_events, event_chance)
    all_names = names(parameters.n_attributes)
    return _predicate_table(wishes, all_names), _value_table(catalogue, offers, all_names)


def draw_catalogue(parameters: Products, chance: np.random.Generator) -> Catalogue:
    """Draw the attributes, commonest first."""
    n = parameters.n_attributes
    frequencies = _SECOND * (2.0 / np.arange(1, n + 1)) ** parameters.decay
    frequencies[0] = _FIRST
    is_text = chance.random(n) < parameters.text_share
    most = np.where(is_text, _MOST_WORDS, 100_000)
    n_values = np.exp(chance.uniform(np.log(2), np.log(most))).astype(np.int64)
    return Catalogue(frequencies, is_text, n_values)


def draw_wishes(catalogue: Catalogue, parameters: Products, chance: np.random.Generator) -> Wishes:
    """Draw the subscriptions."""
    if parameters.has_planted and parameters.most_predicates > _LEAST_SIZE:
        raise ValueError(f"a product of {_LEAST_SIZE} attributes cannot match more predicates")
    n, most = parameters.n_subscriptions, parameters.most_predicates
    counts = chance.integers(parameters.least_predicates, most + 1, size=n)
    attributes = subscription_attributes(chance, np.log(catalogue.frequencies * _N_PRODUCTS), counts, most)
    predicates = _draw_predicates(catalogue, attributes[attributes >= 0], parameters.set_share, chance)
    return Wishes(counts, attributes, predicates, parameters.has_planted)


def draw_offers(catalogue: Catalogue, wishes: Wishes, n_events: int, chance: np.random.Generator) -> Offers:
    """Draw the events: what is planted, the two commonest attributes by their share, then others by theirs."""
    chosen = choose_planted(chance, wishes.attributes, n_events, 1)[:, 0]
    planted, planted_values = _planted(chosen, wishes, chance)
    if not wishes.has_planted:
        planted, planted_values = planted[:, :0], planted_values[:, :0]
    beyond = chance.exponential(_MEAN_BEYOND, size=n_events).astype(np.int64)
    sizes = np.minimum(_LEAST_SIZE + beyond, _MOST_SIZE)
    common = np.where(chance.random((n_events, 2)) < (_FIRST, _SECOND), np.array([0, 1], dtype=np.int32), np.int32(-1))
    common[(common[:, :, None] == planted[:, None, :]).any(axis=2)] = -1
    taken = np.concatenate([planted, common.astype(np.int32)], axis=1)
    others = np.where(np.arange(len(catalogue.frequencies)) < 2, 0.0, catalogue.frequencies)
    attributes = np.concatenate([taken, draw_distinct(chance, others, _MOST_SIZE, taken)], axis=1)
    values = _draw_values(catalogue.n_values[attributes.ravel()], catalogue.is_text[attributes.ravel()], chance)
    values = values.reshape(attributes.shape)
    values[:, : planted.shape[1]] = planted_values
    is_there = attributes >= 0
    is_there &= np.cumsum(is_there, axis=1) <= sizes[:, None]
    events = np.repeat(np.arange(n_events), is_there.sum(axis=1))
    return Offers(events, attributes[is_there], values[is_there], chosen)


def _draw_predicates(
    catalogue: Catalogue, attributes: NDArray[np.int32], set_share: float, chance: np.random.Generator
) -> Predicates:
    """Draw operators and constants: `=` and `in` for texts, ranges for numbers."""
    n = len(attributes)
    is_text, n_values = catalogue.is_text[attributes], catalogue.n_values[attributes]
    operators = chance.integers(AT_MOST, BETWEEN + 1, size=n, dtype=np.int8)
    is_set = chance.random(n, dtype=np.float32) < set_share
    operators[is_text] = np.where(is_set, IN, EQUAL)[is_text]
    one, other = (_draw_values(n_values, is_text, chance) for _ in range(2))
    lows = np.where(operators == BETWEEN, np.minimum(one, other), one)
    sizes = chance.integers(2, _MOST_SET + 1, size=n)
    highs = np.where(operators == BETWEEN, np.maximum(one, other), one)
    highs = np.where(operators == IN, np.minimum(one + sizes - 1, n_values - 1), highs)
    highs = np.where(operators == AT_LEAST, n_values - 1, highs)
    return Predicates(operators, np.where(operators == AT_MOST, 0, lows), highs)


def _draw_values(
    n_values: NDArray[np.int64], is_text: NDArray[np.bool_], chance: np.random.Generator
) -> NDArray[np.int64]:
    """Draw values: numbers uniformly, of the words of a text the first ones more often."""
    shares = chance.random(len(n_values))
    return (np.where(is_text, shares**2, shares) * n_values).astype(np.int64)


def _planted(
    chosen: NDArray[np.int64], wishes: Wishes, chance: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return attributes (-1: none) and satisfying values of the subscriptions that are planted."""
    wanted, predicates = wishes.attributes[chosen], wishes.predicates
    starts = np.cumsum(wishes.counts) - wishes.counts
    rows = np.minimum(starts[chosen][:, None] + np.arange(wanted.shape[1]), len(predicates.lows) - 1)
    return wanted, chance.integers(predicates.lows[rows], predicates.highs[rows] + 1)


def _text_codes(attributes: NDArray[Any], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the word that stands for a value: each attribute has its own part of the list."""
    return (attributes.astype(np.int64) * 7 + values) % len(words())


def _predicate_table(wishes: Wishes, all_names: list[str]) -> Any:
    import pyarrow as pa

    attributes = wishes.used
    operators, lows, highs = wishes.predicates
    is_in = operators == IN
    sizes = highs - lows + 1
    offsets = np.cumsum(sizes[is_in]) - sizes[is_in]
    elements = np.arange(int(sizes[is_in].sum())) - np.repeat(offsets - lows[is_in], sizes[is_in])
    texts = pa.array(words()).take(pa.array(_text_codes(np.repeat(attributes[is_in], sizes[is_in]), elements)))
    return predicate_table(
        np.repeat(np.arange(len(wishes.counts)), wishes.counts),
        named(attributes, all_names),
        operators,
        _OPERATORS,
        number=numbered(np.where(operators == AT_MOST, highs, lows), operators >= AT_MOST),
        upper=numbered(highs, operators == BETWEEN),
        text=named(_text_codes(attributes, lows), words(), operators == EQUAL),
        texts=listed(sizes, texts, is_in),
    )


def _value_table(catalogue: Catalogue, offers: Offers, all_names: list[str]) -> Any:
    """Return one row a value."""
    import pyarrow as pa

    used, numbers = offers.attributes, offers.values
    is_text = catalogue.is_text[used]
    return pa.table(
        {
            "event": offers.events,
            "attribute": named(used, all_names),
            "number": numbered(numbers, ~is_text),
            "text": named(_text_codes(used, numbers), words(), is_text),
        }
    )


RECIPES: Final = (
    Recipe(
        name="products",
        description="10,204 attributes, the commonest in 31 % of the products: texts (=, in) and numbers (ranges)",
        parameters=Products(),
        draw=draw,
        prepare=draw_catalogue,
    ),
    Recipe(
        name="catalogue",
        description="OpIndex, eBay: 10,204 attributes, the commonest in 31 % of the products, all of them texts",
        parameters=Products(text_share=1.0, least_predicates=1, most_predicates=8, set_share=0.0, has_planted=False),
        draw=draw,
        prepare=draw_catalogue,
    ),
)
