"""Standing queries of a few keywords against documents of different lengths.

`short-documents` and `long-documents` are in the style of the OpIndex paper (sections 7.1 and 7.4): queries of the AOL
log against tweets (5.4 keywords on average) and Wikipedia articles (123 keywords), of the 50,000 most frequent
keywords. Each keyword is an attribute. By default all values are 1 and queries ask for `umbrella = 1`; with
`is_counted` the value is how often the keyword occurs, and queries ask for `umbrella between 2 and 7`.

`keyword-log` is in the style of the PS-Tree paper (sections 7.1 and 7.3), which cuts the keywords of the SIGMOD 2013
contest into attribute and value ("boolean" into boo = 'lea'): 17,577 attributes, 2.78 predicates, 93.07 pairs. Our
words have too few beginnings for that. So the attribute is a word, or a pair of words, and the value is another word.

The logs are not ours to ship. Keywords follow the Zipf law with the exponent 0.5 in queries and documents alike (with
1, each long document would have most of the common keywords, and match a large share of all queries). AOL queries have
2.4 keywords on average, up to 6; sizes of documents are log-normal; counts are geometric, with a mean of 2; a word of
`keyword-log` goes with 20 others, the first more often. All this is our choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline_bench.workloads.drawing import (
    draw_by_count,
    draw_values,
    long_table,
    named,
    predicate_table,
    subscription_attributes,
    zipf_weights,
)
from siftline_bench.workloads.words import names, words
from siftline_bench.workloads.workload import Parameters, Recipe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# How many queries have 1, 2, ... keywords.
_AOL: Final = (0.27, 0.34, 0.22, 0.10, 0.05, 0.02)
_CONTEST: Final = (0.13, 0.33, 0.29, 0.155, 0.07, 0.025)
# A document is at most this many times as long as the mean.
_LONGEST: Final = 8
# Of a geometric count: the mean is 2.
_LAST: Final = 0.5


@dataclass(frozen=True, kw_only=True)
class Documents(Parameters):
    """Parameters of queries and documents.

    Attributes
    ----------
    n_attributes : int
        Different keywords.
    skew : float
        Keyword i is drawn with a probability proportional to 1 / (i + 1) ** skew.
    event_size : float
        Keywords of a document, on average.
    size_spread : float
        Standard deviation of the logarithm of that.
    is_counted : bool
        Whether values are counts, and predicates `between`; otherwise all values are 1.
    """

    n_subscriptions: int = 1_000_000
    n_events: int = 1_000
    n_attributes: int = 50_000
    skew: float = 0.5
    event_size: float = 5.4
    size_spread: float = 0.5
    is_counted: bool = False


@dataclass(frozen=True, kw_only=True)
class KeywordLog(Parameters):
    """Parameters of keywords that are cut into attribute and value.

    Attributes
    ----------
    n_attributes, skew, event_size, size_spread
        As for documents.
    n_values : int
        Values of each attribute.
    value_skew : float
        Value i of an attribute is drawn with a probability proportional to 1 / (i + 1) ** value_skew.
    """

    n_subscriptions: int = 2_100_000
    n_events: int = 1_000
    n_attributes: int = 17_577
    skew: float = 0.5
    event_size: float = 93.07
    size_spread: float = 0.3
    n_values: int = 20
    value_skew: float = 1.0


def draw_documents(parameters: Documents, chance: np.random.Generator, event_chance: np.random.Generator) -> Any:
    """Draw the tables of predicates and of values."""
    owners, attributes = _draw_queries(parameters, _AOL, chance)
    n, all_names = len(owners), names(parameters.n_attributes)
    lows = chance.geometric(_LAST, size=n) if parameters.is_counted else np.ones(n, dtype=np.int64)
    columns = {"number": lows}
    if parameters.is_counted:
        columns["upper"] = lows + chance.geometric(_LAST / 2, size=n)
    op = "between" if parameters.is_counted else "="
    rows = predicate_table(owners, named(attributes, all_names), np.zeros(n, dtype=np.int8), [op], **columns)
    found = _draw_sets(parameters, event_chance)
    ones = np.ones(found.shape, dtype=np.int64)
    counts = event_chance.geometric(_LAST, size=found.shape) if parameters.is_counted else ones
    return rows, long_table(found, all_names, number=counts)


def draw_log(parameters: KeywordLog, chance: np.random.Generator, event_chance: np.random.Generator) -> Any:
    """Draw the tables of predicates and of values."""
    owners, attributes = _draw_queries(parameters, _CONTEST, chance)
    all_names = names(parameters.n_attributes)
    equal = np.zeros(len(owners), dtype=np.int8)
    asked = _draw_words(parameters, attributes, chance)
    rows = predicate_table(owners, named(attributes, all_names), equal, ["="], text=asked)
    found = _draw_sets(parameters, event_chance)
    return rows, long_table(found, all_names, text=_draw_words(parameters, found[found >= 0], event_chance))


def _draw_queries(
    parameters: Documents | KeywordLog, shares: Sequence[float], chance: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Draw the keywords of all queries, and whose they are."""
    n = parameters.n_subscriptions
    counts = chance.choice(np.arange(1, len(shares) + 1), size=n, p=shares)
    attributes = draw_by_count(chance, zipf_weights(parameters.n_attributes, parameters.skew), counts)
    return np.repeat(np.arange(n), counts), attributes[attributes >= 0]


def _draw_sets(parameters: Documents | KeywordLog, chance: np.random.Generator) -> NDArray[np.int32]:
    """Draw the keywords of documents, one row each."""
    mean, spread = parameters.event_size, parameters.size_spread
    drawn = chance.lognormal(np.log(mean) - spread**2 / 2, spread, size=parameters.n_events)
    sizes = np.clip(np.rint(drawn), 1, _LONGEST * mean).astype(np.int64)
    weights = zipf_weights(parameters.n_attributes, parameters.skew)
    return subscription_attributes(chance, weights, sizes, int(sizes.max(initial=0)))


def _draw_words(parameters: KeywordLog, attributes: NDArray[np.int32], chance: np.random.Generator) -> Any:
    """Draw values for attributes: each has its own part of the list."""
    values = draw_values(chance, parameters.n_values, parameters.value_skew, attributes.shape)
    return named((attributes.astype(np.int64) * 7 + values) % len(words()), words())


RECIPES: Final = (
    Recipe(
        name="short-documents",
        description="OpIndex, AOL and Twitter: queries of 2.4 keywords, of 50,000, documents of 5.4",
        parameters=Documents(),
        draw=draw_documents,
    ),
    Recipe(
        name="long-documents",
        description="OpIndex, AOL and Wikipedia: queries of 2.4 keywords, of 50,000, documents of 123",
        parameters=Documents(event_size=123.0),
        draw=draw_documents,
    ),
    Recipe(
        name="keyword-log",
        description="PS-Tree, section 7.3: keywords cut into attribute and value, 17,577 attributes, 93 pairs an event",
        parameters=KeywordLog(),
        draw=draw_log,
    ),
)
