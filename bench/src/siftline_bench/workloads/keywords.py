"""`keywords`: standing queries of a few keywords against documents of many, in the style of keyword logs.

Each keyword is an attribute, and the only value is 1: `umbrella = 1 and mountain = 1`. The shape (17,577 attributes,
2.8 predicates, 93 pairs an event) is that of the SIGMOD 2013 contest set in the PS-Tree paper. Keywords follow the Zipf
law with the exponent 0.5 in queries and documents alike. With exponent 1, every document would have most of the common
keywords, and match a large share of all queries. Queries of a single keyword would be nearly all matches, and these
are merely copied, so there are none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline_bench.workloads.drawing import (
    Planted,
    fill_events,
    named,
    predicate_table,
    subscription_attributes,
    zipf_weights,
)
from siftline_bench.workloads.synthetic import value_table
from siftline_bench.workloads.words import names
from siftline_bench.workloads.workload import Parameters, Recipe

if TYPE_CHECKING:
    from numpy.typing import NDArray

# How many queries have 2, 3, 4 and 5 keywords: 2.8 on average.
_LEAST: Final = 2
_SHARES: Final = (0.47, 0.32, 0.15, 0.06)


@dataclass(frozen=True, kw_only=True)
class Keywords(Parameters):
    """Parameters of the keyword log.

    Attributes
    ----------
    n_attributes : int
        Different keywords.
    skew : float
        Keyword i is drawn with a probability proportional to 1 / (i + 1) ** skew.
    event_size : int
        Keywords of a document.
    """

    n_subscriptions: int = 1_000_000
    n_events: int = 1_000
    n_attributes: int = 17_577
    skew: float = 0.5
    event_size: int = 93


def draw(parameters: Keywords, chance: np.random.Generator, event_chance: np.random.Generator) -> tuple[Any, Any]:
    """Draw the tables of predicates and of values."""
    n, weights = parameters.n_subscriptions, zipf_weights(parameters.n_attributes, parameters.skew)
    counts = chance.choice(np.arange(_LEAST, _LEAST + len(_SHARES)), size=n, p=_SHARES)
    attributes = subscription_attributes(chance, weights, counts, _LEAST + len(_SHARES) - 1)
    used: NDArray[np.int32] = attributes[attributes >= 0]
    all_names = names(parameters.n_attributes)
    nothing = Planted(*np.empty((2, parameters.n_events, 0), dtype=np.int32))
    documents, zeros = fill_events(event_chance, weights, parameters.event_size, 1, nothing)
    predicates = predicate_table(
        np.repeat(np.arange(n), counts),
        named(used, all_names),
        np.zeros(len(used), dtype=np.int8),
        ["="],
        number=np.ones(len(used), dtype=np.int64),
    )
    return predicates, value_table(documents, zeros + 1, all_names)


RECIPES: Final = (
    Recipe(
        name="keywords",
        description="17,577 keywords by the Zipf law (exponent 0.5), queries of 2.8 and documents of 93",
        parameters=Keywords(),
        draw=draw,
    ),
)
