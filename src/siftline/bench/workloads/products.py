"""`products`: a catalogue in the style of the eBay crawl in the OpIndex paper (section 7.1).

10,204 attributes; the commonest is in 31 % of the products, the second in 17 %, and attribute i (from 1) in
0.17 * (2 / i) ** decay. Subscribers prefer common attributes, but less so: an attribute is drawn with a probability
proportional to the logarithm of the number of products (of 296,846) that have it. Most attributes are texts with an own
vocabulary of 2 to 500 words, asked for by `=` and `in`; the others are numbers, asked for by ranges. Products have 5 to
40 attributes, 14 on average; a match is planted in each, as few would be found otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.bench.workloads.drawing import (
    choose_planted,
    draw_distinct,
    listed,
    named,
    numbered,
    predicate_table,
    subscription_attributes,
)
from siftline.bench.workloads.words import names, words
from siftline.bench.workloads.workload import Parameters, Recipe

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FIRST, _SECOND = 0.31, 0.17
_N_PRODUCTS: Final = 296_846
_LEAST_SIZE, _MOST_SIZE, _MEAN_BEYOND = 5, 40, 9.5
_MOST_WORDS: Final = 500
_MOST_SET: Final = 5

_EQUAL, _IN, _AT_MOST, _AT_LEAST, _BETWEEN = range(5)
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
        A subscription has between so many predicates, uniformly; at most 5, the size of the smallest product.
    """

    n_subscriptions: int = 1_000_000
    n_events: int = 1_000
    n_attributes: int = 10_204
    decay: float = 0.7
    text_share: float = 0.7
    least_predicates: int = 2
    most_predicates: int = 5


class Catalogue(NamedTuple):
    """What is known of each attribute: how many products have it, whether it is a text, and how many values it has."""

    frequencies: NDArray[np.float64]
    is_text: NDArray[np.bool_]
    n_values: NDArray[np.int64]


class _Predicates(NamedTuple):
    """One row a predicate: its operator, and the values that satisfy it, from low to high."""

    operators: NDArray[np.int8]
    lows: NDArray[np.int64]
    highs: NDArray[np.int64]


def draw(parameters: Products, chance: np.random.Generator, event_chance: np.random.Generator) -> tuple[Any, Any]:
    """Draw the tables of predicates and of values."""
    if parameters.most_predicates > _LEAST_SIZE:
        raise ValueError(f"a product of {_LEAST_SIZE} attributes cannot match more predicates")
    catalogue = draw_catalogue(parameters, chance)
    n, most = parameters.n_subscriptions, parameters.most_predicates
    counts = chance.integers(parameters.least_predicates, most + 1, size=n)
    attributes = subscription_attributes(chance, np.log(catalogue.frequencies * _N_PRODUCTS), counts, most)
    used = attributes[attributes >= 0]
    predicates = _draw_predicates(catalogue, used, chance)
    all_names = names(parameters.n_attributes)
    table = _predicate_table(np.repeat(np.arange(n), counts), used, predicates, all_names)
    chosen = choose_planted(event_chance, attributes, parameters.n_events, 1)[:, 0]
    starts = np.cumsum(counts) - counts
    planted = _planted(chosen, starts, attributes, predicates, event_chance)
    return table, _value_table(catalogue, *planted, all_names, event_chance)


def draw_catalogue(parameters: Products, chance: np.random.Generator) -> Catalogue:
    """Draw the attributes, commonest first."""
    n = parameters.n_attributes
    frequencies = _SECOND * (2.0 / np.arange(1, n + 1)) ** parameters.decay
    frequencies[0] = _FIRST
    is_text = chance.random(n) < parameters.text_share
    most = np.where(is_text, _MOST_WORDS, 100_000)
    n_values = np.exp(chance.uniform(np.log(2), np.log(most))).astype(np.int64)
    return Catalogue(frequencies, is_text, n_values)


def _draw_predicates(catalogue: Catalogue, attributes: NDArray[np.int32], chance: np.random.Generator) -> _Predicates:
    """Draw operators and constants: `=` and, for three of ten, `in` for texts, ranges for numbers."""
    n = len(attributes)
    is_text, n_values = catalogue.is_text[attributes], catalogue.n_values[attributes]
    operators = chance.integers(_AT_MOST, _BETWEEN + 1, size=n, dtype=np.int8)
    is_set = chance.random(n, dtype=np.float32) < 0.3
    operators[is_text] = np.where(is_set, _IN, _EQUAL)[is_text]
    one, other = (_draw_values(n_values, is_text, chance) for _ in range(2))
    lows = np.where(operators == _BETWEEN, np.minimum(one, other), one)
    sizes = chance.integers(2, _MOST_SET + 1, size=n)
    highs = np.where(operators == _BETWEEN, np.maximum(one, other), one)
    highs = np.where(operators == _IN, np.minimum(one + sizes - 1, n_values - 1), highs)
    highs = np.where(operators == _AT_LEAST, n_values - 1, highs)
    return _Predicates(operators, np.where(operators == _AT_MOST, 0, lows), highs)


def _draw_values(
    n_values: NDArray[np.int64], is_text: NDArray[np.bool_], chance: np.random.Generator
) -> NDArray[np.int64]:
    """Draw values: numbers uniformly, of the words of a text the first ones more often."""
    shares = chance.random(len(n_values))
    return (np.where(is_text, shares**2, shares) * n_values).astype(np.int64)


def _planted(
    chosen: NDArray[np.int64],
    starts: NDArray[np.int64],
    attributes: NDArray[np.int32],
    predicates: _Predicates,
    chance: np.random.Generator,
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return attributes (-1: none) and satisfying values of the subscriptions that are planted."""
    wanted = attributes[chosen]
    rows = np.minimum(starts[chosen][:, None] + np.arange(wanted.shape[1]), len(predicates.lows) - 1)
    return wanted, chance.integers(predicates.lows[rows], predicates.highs[rows] + 1)


def _text_codes(attributes: NDArray[Any], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the word that stands for a value: each attribute has its own part of the list."""
    return (attributes.astype(np.int64) * 7 + values) % len(words())


def _predicate_table(
    owners: NDArray[np.int64], attributes: NDArray[np.int32], predicates: _Predicates, all_names: list[str]
) -> Any:
    import pyarrow as pa

    operators, lows, highs = predicates
    is_in = operators == _IN
    sizes = highs - lows + 1
    offsets = np.cumsum(sizes[is_in]) - sizes[is_in]
    elements = np.arange(int(sizes[is_in].sum())) - np.repeat(offsets - lows[is_in], sizes[is_in])
    texts = pa.array(words()).take(pa.array(_text_codes(np.repeat(attributes[is_in], sizes[is_in]), elements)))
    return predicate_table(
        owners,
        named(attributes, all_names),
        operators,
        _OPERATORS,
        number=numbered(np.where(operators == _AT_MOST, highs, lows), operators >= _AT_MOST),
        upper=numbered(highs, operators == _BETWEEN),
        text=named(_text_codes(attributes, lows), words(), operators == _EQUAL),
        texts=listed(sizes, texts, is_in),
    )


def _value_table(
    catalogue: Catalogue,
    planted: NDArray[np.int32],
    planted_values: NDArray[np.int64],
    all_names: list[str],
    chance: np.random.Generator,
) -> Any:
    """Return one row a value: what is planted, the two commonest attributes by their share, then others by theirs."""
    import pyarrow as pa

    n = len(planted)
    beyond = chance.exponential(_MEAN_BEYOND, size=n).astype(np.int64)
    sizes = np.minimum(_LEAST_SIZE + beyond, _MOST_SIZE)
    common = np.where(chance.random((n, 2)) < (_FIRST, _SECOND), np.array([0, 1], dtype=np.int32), np.int32(-1))
    common[(common[:, :, None] == planted[:, None, :]).any(axis=2)] = -1
    taken = np.concatenate([planted, common.astype(np.int32)], axis=1)
    others = np.where(np.arange(len(catalogue.frequencies)) < 2, 0.0, catalogue.frequencies)
    attributes = np.concatenate([taken, draw_distinct(chance, others, _MOST_SIZE, taken)], axis=1)
    values = _draw_values(catalogue.n_values[attributes.ravel()], catalogue.is_text[attributes.ravel()], chance)
    values = values.reshape(attributes.shape)
    values[:, : planted.shape[1]] = planted_values
    is_there = attributes >= 0
    is_there &= np.cumsum(is_there, axis=1) <= sizes[:, None]
    used, numbers = attributes[is_there], values[is_there]
    is_text = catalogue.is_text[used]
    return pa.table(
        {
            "event": np.repeat(np.arange(n), is_there.sum(axis=1)),
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
    ),
)
