"""Generates the attributes and values of products and wish lists as numbers, with the skew of a real shop.

There are 10,204 attributes; the most common is in 31 % of the products, the second in 17 %, and attribute i (from 1) in
0.17 * (2 / i) ** 0.7. Wishes prefer common attributes too, but less strongly. Most attributes are texts with 2 to 500
values, with conditions `=` and `in`; the others are numbers, with ranges. Products have 5 to 40 attributes, 14 on
average, and each satisfies a wish that is planted in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_N_ATTRIBUTES: Final = 10_204
_FIRST, _SECOND, _DECAY = 0.31, 0.17, 0.7
# The weight of an attribute in wishes is the logarithm of how many of this many products have it.
_N_PRODUCTS: Final = 296_846
_TEXT_SHARE: Final = 0.7
_MOST_WORDS, _MOST_NUMBERS = 500, 100_000
# A wish has at most as many conditions as the smallest product has attributes, so that each can be planted.
_MOST_CONDITIONS: Final = 5
_SET_SHARE, _MOST_SET = 0.3, 5
_LEAST_SIZE, _MOST_SIZE, _MEAN_BEYOND = 5, 40, 9.5

EQUAL, IN, AT_MOST, AT_LEAST, BETWEEN = range(5)


class Catalogue(NamedTuple):
    """For each attribute: the share of products that have it, whether it is a text, and its number of values."""

    frequencies: NDArray[np.float64]
    is_text: NDArray[np.bool_]
    n_values: NDArray[np.int64]


class Wishes(NamedTuple):
    """Wishes, and the concatenation of all their conditions.

    Attributes
    ----------
    counts : int64[w]
        How many conditions a wish has.
    attributes : int32[w, 5]
        The attributes of its conditions; -1 where it has fewer.
    operators, lows, highs : int8[c], int64[c], int64[c]
        The operator of each condition, and the range of values that satisfy it.
    """

    counts: NDArray[np.int64]
    attributes: NDArray[np.int32]
    operators: NDArray[np.int8]
    lows: NDArray[np.int64]
    highs: NDArray[np.int64]

    @property
    def used(self) -> NDArray[np.int32]:
        """The attribute of each condition."""
        return self.attributes[self.attributes >= 0]


class Offers(NamedTuple):
    """Products, one row per value, and for each product the wish that is planted in it."""

    products: NDArray[np.int64]
    attributes: NDArray[np.int32]
    values: NDArray[np.int64]
    planted: NDArray[np.int64]


def draw_catalogue(chance: np.random.Generator) -> Catalogue:
    """Generate the attributes, most common first."""
    frequencies = _SECOND * (2.0 / np.arange(1, _N_ATTRIBUTES + 1)) ** _DECAY
    frequencies[0] = _FIRST
    is_text = chance.random(_N_ATTRIBUTES) < _TEXT_SHARE
    most = np.where(is_text, _MOST_WORDS, _MOST_NUMBERS)
    n_values = np.exp(chance.uniform(np.log(2), np.log(most))).astype(np.int64)
    return Catalogue(frequencies, is_text, n_values)


def draw_wishes(catalogue: Catalogue, n: int, chance: np.random.Generator) -> Wishes:
    """Generate wishes; some have a single condition, so that a few wishes match often, and most rarely."""
    counts = chance.integers(1, _MOST_CONDITIONS + 1, size=n)
    nothing = np.empty((n, 0), dtype=np.int32)
    attributes = _distinct(np.log(catalogue.frequencies * _N_PRODUCTS), _MOST_CONDITIONS, nothing, chance)
    attributes[np.arange(_MOST_CONDITIONS) >= counts[:, None]] = -1
    return Wishes(counts, attributes, *_conditions(catalogue, attributes[attributes >= 0], chance))


def draw_offers(catalogue: Catalogue, wishes: Wishes, n: int, chance: np.random.Generator) -> Offers:
    """Generate products: the planted wish, the two most common attributes by their shares, then others by theirs."""
    chosen = chance.integers(0, max(1, len(wishes.counts)), size=n)
    planted, planted_values = _satisfied(wishes, chosen, chance)
    sizes = np.minimum(_LEAST_SIZE + chance.exponential(_MEAN_BEYOND, size=n).astype(np.int64), _MOST_SIZE)
    common = np.where(chance.random((n, 2)) < (_FIRST, _SECOND), np.array([0, 1], dtype=np.int32), np.int32(-1))
    common[(common[:, :, None] == planted[:, None, :]).any(axis=2)] = -1
    taken = np.concatenate([planted, common.astype(np.int32)], axis=1)
    others = np.where(np.arange(_N_ATTRIBUTES) < 2, 0.0, catalogue.frequencies)
    attributes = np.concatenate([taken, _distinct(others, _MOST_SIZE, taken, chance)], axis=1)
    values = _values(catalogue, attributes.ravel(), chance).reshape(attributes.shape)
    values[:, : planted.shape[1]] = planted_values
    is_there = attributes >= 0
    is_there &= np.cumsum(is_there, axis=1) <= sizes[:, None]
    return Offers(np.repeat(np.arange(n), is_there.sum(axis=1)), attributes[is_there], values[is_there], chosen)


def _distinct(
    weights: NDArray[np.float64], n_columns: int, taken: NDArray[np.int32], chance: np.random.Generator
) -> NDArray[np.int32]:
    """Draw attributes by weight for each row of `taken`, without repeats and without those taken."""
    n_rows, n_taken = taken.shape
    ends = np.cumsum(weights)
    drawn = np.concatenate([taken, np.full((n_rows, n_columns), -1, dtype=np.int32)], axis=1)
    for column in range(n_taken, n_taken + n_columns):
        rows = np.arange(n_rows)
        while len(rows):
            found = np.searchsorted(ends[:-1], chance.random(len(rows)) * ends[-1], side="right")
            is_repeated = (drawn[rows, :column] == found[:, None]).any(axis=1)
            drawn[rows[~is_repeated], column] = found[~is_repeated]
            rows = rows[is_repeated]
    return drawn[:, n_taken:]


def _conditions(
    catalogue: Catalogue, attributes: NDArray[np.int32], chance: np.random.Generator
) -> tuple[NDArray[np.int8], NDArray[np.int64], NDArray[np.int64]]:
    """Draw operators, and the lowest and highest values that satisfy them."""
    n, n_values = len(attributes), catalogue.n_values[attributes]
    operators = chance.integers(AT_MOST, BETWEEN + 1, size=n, dtype=np.int8)
    is_text, is_set = catalogue.is_text[attributes], chance.random(n, dtype=np.float32) < _SET_SHARE
    operators[is_text] = np.where(is_set, IN, EQUAL)[is_text]
    one, other = (_values(catalogue, attributes, chance) for _ in range(2))
    lows = np.where(operators == BETWEEN, np.minimum(one, other), one)
    sizes = chance.integers(2, _MOST_SET + 1, size=n)
    highs = np.where(operators == BETWEEN, np.maximum(one, other), one)
    highs = np.where(operators == IN, np.minimum(one + sizes - 1, n_values - 1), highs)
    highs = np.where(operators == AT_LEAST, n_values - 1, highs)
    return operators, np.where(operators == AT_MOST, 0, lows), highs


def _values(catalogue: Catalogue, attributes: NDArray[np.int32], chance: np.random.Generator) -> NDArray[np.int64]:
    """Draw a value for each attribute: numbers uniformly, texts with a preference for the first words."""
    shares = chance.random(len(attributes))
    skewed = np.where(catalogue.is_text[attributes], shares**2, shares)
    return (skewed * catalogue.n_values[attributes]).astype(np.int64)


def _satisfied(
    wishes: Wishes, chosen: NDArray[np.int64], chance: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return attributes (-1: none) of the chosen wishes, and values that satisfy them."""
    wanted = wishes.attributes[chosen]
    starts = np.cumsum(wishes.counts) - wishes.counts
    rows = np.minimum(starts[chosen][:, None] + np.arange(wanted.shape[1]), len(wishes.lows) - 1)
    return wanted, chance.integers(wishes.lows[rows], wishes.highs[rows] + 1)
