"""Products and wish lists in words.

`drawing` generates attributes and values as numbers. This module names them, and makes the input of the pipeline:
subscriptions as text and events as JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siftline.demo.drawing import (
    AT_LEAST,
    AT_MOST,
    BETWEEN,
    EQUAL,
    IN,
    Catalogue,
    Offers,
    Wishes,
    draw_catalogue,
    draw_offers,
    draw_wishes,
)
from siftline.demo.vocabulary import (
    COMMON_NUMBERS,
    COMMON_TEXTS,
    LISTS,
    NUMBER_PROPERTIES,
    PARTS,
    TEXT_PROPERTIES,
    Words,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

# The share of wishes with several conditions that have an alternative: the first condition, or a low price.
_CHOICE_SHARE: Final = 0.1
_MOST_CHOICE_PRICE: Final = 100


class Shop(NamedTuple):
    """The generated data.

    Attributes
    ----------
    subscriptions : pyarrow.Table
        `subscription`, a number, and `expression`.
    events : pyarrow.Table
        `id`, a number, and `event`, JSON text.
    planted : array
        For each event a subscription that it satisfies.
    """

    subscriptions: Any
    events: Any
    planted: NDArray[np.int64]


def draw_shop(n_subscriptions: int, n_events: int, seed: int) -> Shop:
    """Generate wish lists and products; the same seed gives the same data.

    >>> print(draw_shop(1, 1, seed=4).subscriptions["expression"][0])
    (spout_pieces <= 2 or price <= 44) and bag_motif = 'classic' and bag_border in ('slim', 'wide', 'round')
    """
    chance, event_chance = (np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(2))
    catalogue = draw_catalogue(chance)
    dictionary = Dictionary(catalogue.is_text)
    catalogue = catalogue._replace(n_values=dictionary.limited(catalogue.n_values))
    wishes = draw_wishes(catalogue, n_subscriptions, chance)
    offers = draw_offers(catalogue, wishes, n_events, event_chance)
    texts = _wish_texts(wishes, dictionary, chance)
    return Shop(
        pa.table({"subscription": np.arange(n_subscriptions), "expression": texts}),
        pa.table({"id": np.arange(n_events), "event": _offer_texts(offers, catalogue, dictionary, n_events)}),
        offers.planted,
    )


class Dictionary:
    """The names of attributes, most common first, and the words of their values."""

    def __init__(self, is_text: NDArray[np.bool_]) -> None:
        texts = _named(COMMON_TEXTS, TEXT_PROPERTIES)
        numbers = _named(COMMON_NUMBERS, [(name, None) for name in NUMBER_PROPERTIES])
        chosen = [next(texts if each else numbers) for each in is_text]
        self.names = pa.array([name for name, _ in chosen])
        self._limits = {place: most for place, (_, most) in enumerate(chosen) if isinstance(most, int)}
        # The start of the values of each text attribute in the list of all words.
        values = [each.values() for each in LISTS]
        starts = dict(zip(map(id, LISTS), np.cumsum([0, *map(len, values)]).tolist(), strict=False))
        self._starts = np.array([starts[id(words)] if isinstance(words, Words) else -1 for _, words in chosen])
        self._words = pa.array([word for words in values for word in words])

    def limited(self, n_values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of values of attributes, with the fixed numbers of common ones."""
        limited = n_values.copy()
        limited[list(self._limits)] = list(self._limits.values())
        return limited

    def words(self, attributes: NDArray[Any], values: NDArray[np.int64]) -> Any:
        """Return the words of values of text attributes."""
        return self._words.take(pa.array(self._starts[attributes] + values))


def _named(common: Sequence[tuple[str, Any]], properties: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield names and the kinds of their values: common ones, then each part with each property, mixed."""
    yield from common
    for turn in range(len(properties)):
        for place, part in enumerate(PARTS):
            name, kind = properties[(turn + place) % len(properties)]
            yield f"{part}_{name}", kind


# subscriptions


def _wish_texts(wishes: Wishes, dictionary: Dictionary, chance: np.random.Generator) -> Any:
    """Return the subscriptions as text."""
    conditions = _conditions(wishes, dictionary)
    starts = np.cumsum(wishes.counts) - wishes.counts
    has_choice = np.zeros(len(conditions), dtype=bool)
    has_choice[starts[(wishes.counts > 1) & (chance.random(len(starts)) < _CHOICE_SHARE)]] = True
    prices = pa.array(chance.integers(1, _MOST_CHOICE_PRICE, size=len(conditions))).cast(pa.string())
    choices = _joined("(", conditions, " or price <= ", prices, ")")
    conditions = pc.if_else(pa.array(has_choice), choices, conditions)
    return _in_groups(conditions, wishes.counts, " and ")


def _conditions(wishes: Wishes, dictionary: Dictionary) -> Any:
    """Return all conditions as text, in their order."""
    used = wishes.used
    operators, lows, highs = wishes.operators, wishes.lows, wishes.highs
    places = [np.flatnonzero(operators == operator) for operator in range(BETWEEN + 1)]
    parts = [
        _written(operator, used[rows], lows[rows], highs[rows], dictionary) for operator, rows in enumerate(places)
    ]
    return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(places))))


def _written(
    operator: int, used: NDArray[Any], lows: NDArray[np.int64], highs: NDArray[np.int64], dictionary: Dictionary
) -> Any:
    """Return conditions with the same operator as text."""
    names = dictionary.names.take(pa.array(used))
    if operator == EQUAL:
        return _joined(names, " = ", _quoted(dictionary.words(used, lows)))
    if operator == IN:
        return _joined(names, " in (", _sets(used, lows, highs, dictionary), ")")
    if operator == AT_MOST:
        return _joined(names, " <= ", _digits(highs))
    if operator == AT_LEAST:
        return _joined(names, " >= ", _digits(lows))
    return _joined(names, " between ", _digits(lows), " and ", _digits(highs))


def _sets(used: NDArray[Any], lows: NDArray[np.int64], highs: NDArray[np.int64], dictionary: Dictionary) -> Any:
    sizes = highs - lows + 1
    within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    words = dictionary.words(np.repeat(used, sizes), np.repeat(lows, sizes) + within)
    return _in_groups(_quoted(words), sizes, ", ")


# events


def _offer_texts(offers: Offers, catalogue: Catalogue, dictionary: Dictionary, n_events: int) -> Any:
    """Return the products as JSON text."""
    is_text = catalogue.is_text[offers.attributes]
    rows = np.flatnonzero(is_text), np.flatnonzero(~is_text)
    words = _joined('"', dictionary.words(offers.attributes[rows[0]], offers.values[rows[0]]), '"')
    values = pa.concat_arrays([words, _digits(offers.values[rows[1]])])
    values = values.take(pa.array(np.argsort(np.concatenate(rows))))
    pairs = _joined('"', dictionary.names.take(pa.array(offers.attributes)), '": ', values)
    return _joined("{", _in_groups(pairs, np.bincount(offers.products, minlength=n_events), ", "), "}")


# text


def _joined(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, "")


def _quoted(texts: Any) -> Any:
    return _joined("'", texts, "'")


def _digits(numbers: NDArray[np.int64]) -> Any:
    return pa.array(numbers).cast(pa.string())


def _in_groups(texts: Any, counts: NDArray[np.int64], separator: str) -> Any:
    """Join the first `counts[0]` texts, the next `counts[1]`, and so on."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    return pc.binary_join(pa.ListArray.from_arrays(offsets, texts), separator)
