"""`prefixes`: numbers that must be equal and texts that must begin as asked, as in Fig. 14 of the OpIndex paper (7.7).

    n4711 = 12 and topic17 starts with 'umbr'

10,000 attributes are numbers, 100 are texts; share and length of prefixes vary. The paper takes the words of
Wikipedia. Ours are the words of `words.py`, and pairs of them, by the Zipf law. Ours too: 1 to 8 predicates, 200
numbers, and events of 40 attributes, half of them texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline_bench.workloads.drawing import (
    draw_distinct,
    draw_values,
    long_table,
    named,
    numbered,
    predicate_table,
    zipf_weights,
)
from siftline_bench.workloads.words import names
from siftline_bench.workloads.workload import Parameters, Recipe

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OPERATORS: Final = ("=", "starts with")


@dataclass(frozen=True, kw_only=True)
class Prefixes(Parameters):
    """Parameters.

    Attributes
    ----------
    n_numbers, n_texts : int
        Attributes that are numbers, and texts.
    least_predicates, most_predicates : int
        The least and the most predicates of a subscription, drawn uniformly.
    prefix_share : float
        The share of predicates that are prefixes of texts; the others are equal numbers.
    prefix_length : int
        Letters of a prefix; a shorter word is its own prefix.
    n_values : int
        Numbers are 0 .. n_values - 1, uniformly.
    n_words : int
        How many of our words and pairs of words are used as texts.
    word_skew : float
        Word i is drawn with a probability proportional to 1 / (i + 1) ** word_skew.
    event_numbers, event_texts : int
        Attributes of an event.
    """

    n_subscriptions: int = 1_000_000
    n_events: int = 1_000
    n_numbers: int = 10_000
    n_texts: int = 100
    least_predicates: int = 1
    most_predicates: int = 8
    prefix_share: float = 0.5
    prefix_length: int = 4
    n_values: int = 200
    n_words: int = 20_000
    word_skew: float = 0.5
    event_numbers: int = 20
    event_texts: int = 20


def draw(parameters: Prefixes, chance: np.random.Generator, event_chance: np.random.Generator) -> tuple[Any, Any]:
    """Draw the tables of predicates and of values."""
    return _draw_predicates(parameters, chance), _draw_values(parameters, event_chance)


def _draw_predicates(parameters: Prefixes, chance: np.random.Generator) -> Any:
    n, most = parameters.n_subscriptions, parameters.most_predicates
    counts = chance.integers(parameters.least_predicates, most + 1, size=n)
    is_prefix = chance.random((n, most), dtype=np.float32) < parameters.prefix_share
    attributes = np.where(is_prefix, *reversed(_draw_attributes(parameters, n, most, most, chance)))
    used = np.arange(most) < counts[:, None]
    is_prefix = is_prefix[used]
    numbers, words = _draw_both(parameters, len(is_prefix), chance)
    beginnings, places = np.unique(
        [word[: parameters.prefix_length] for word in names(parameters.n_words)], return_inverse=True
    )
    return predicate_table(
        np.repeat(np.arange(n), counts),
        named(attributes[used], _attribute_names(parameters)),
        is_prefix.astype(np.int8),
        _OPERATORS,
        number=numbered(numbers, ~is_prefix),
        text=named(places[words], beginnings.tolist(), is_prefix),
    )


def _draw_values(parameters: Prefixes, chance: np.random.Generator) -> Any:
    n, n_numbers, n_texts = parameters.n_events, parameters.event_numbers, parameters.event_texts
    attributes = np.concatenate(_draw_attributes(parameters, n, n_numbers, n_texts, chance), axis=1)
    is_text = attributes.ravel() >= parameters.n_numbers
    numbers, words = _draw_both(parameters, len(is_text), chance)
    return long_table(
        attributes,
        _attribute_names(parameters),
        number=numbered(numbers, ~is_text),
        text=named(words, names(parameters.n_words), is_text),
    )


def _draw_attributes(
    parameters: Prefixes, n: int, n_numbers: int, n_texts: int, chance: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Draw attributes for n rows, this many of the numbers and this many of the texts."""
    none = np.empty((n, 0), dtype=np.int32)
    numbers = draw_distinct(chance, zipf_weights(parameters.n_numbers, 0), n_numbers, none)
    texts = draw_distinct(chance, zipf_weights(parameters.n_texts, 0), n_texts, none)
    return numbers, texts + np.int32(parameters.n_numbers)


def _draw_both(
    parameters: Prefixes, n: int, chance: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Draw n numbers and n words, of which the attribute takes one."""
    numbers = draw_values(chance, parameters.n_values, 0, (n,))
    return numbers, draw_values(chance, parameters.n_words, parameters.word_skew, (n,))


def _attribute_names(parameters: Prefixes) -> list[str]:
    return [f"n{i}" for i in range(parameters.n_numbers)] + [f"topic{i}" for i in range(parameters.n_texts)]


RECIPES: Final = (
    Recipe(
        name="prefixes",
        description="OpIndex, Fig. 14: 10,000 numbers and 100 texts; half of the predicates =, half prefixes",
        parameters=Prefixes(),
        draw=draw,
    ),
)
