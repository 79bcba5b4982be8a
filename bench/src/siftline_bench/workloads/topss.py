"""`predicates`: many different predicates, one a subscription, for the first stage of the ToPSS paper (section 5.1.1).

The paper has four domains, W0 small, W1 medium, W2 big and W3, a mixture, and limits of which it says only that W0 has
no more than some thousand different predicates. Ours: 10 attributes; 100, 1,000 and 10,000 values; the mixture has
each for a third of the attributes. With six operators W0 has 6,000 predicates. Events have all attributes, values are
uniform.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from siftline_bench.workloads.drawing import named, predicate_table
from siftline_bench.workloads.synthetic import attribute_names, value_table
from siftline_bench.workloads.workload import Parameters, Recipe

_OPERATORS: Final = ("=", "!=", "<", "<=", ">", ">=")
_SIZES: Final = (100, 1_000, 10_000)
_MIXED: Final = len(_SIZES)


@dataclass(frozen=True, kw_only=True)
class Predicates(Parameters):
    """Parameters.

    Attributes
    ----------
    n_subscriptions : int
        Different predicates, each a subscription.
    n_attributes : int
        In all, and of each event; named a0, a1, ...
    domain : int
        0, 1, 2 or 3: all attributes have 100, 1,000 or 10,000 values, or each of these in turn.
    """

    n_subscriptions: int = 100_000
    n_events: int = 1_000
    n_attributes: int = 10
    domain: int = _MIXED


def domain_sizes(parameters: Predicates) -> list[int]:
    """Return how many values each attribute has: 0 .. size - 1.

    >>> domain_sizes(Predicates(n_attributes=4))
    [100, 1000, 10000, 100]
    """
    if parameters.domain not in range(_MIXED + 1):
        raise ValueError(f"a domain is 0 (small), 1, 2 or 3 (mixed), not {parameters.domain}")
    sizes = _SIZES if parameters.domain == _MIXED else _SIZES[parameters.domain :][:1]
    return [sizes[i % len(sizes)] for i in range(parameters.n_attributes)]


def draw(parameters: Predicates, chance: np.random.Generator, event_chance: np.random.Generator) -> tuple[Any, Any]:
    """Draw the tables of predicates and of values."""
    sizes = np.array(domain_sizes(parameters))
    ends = np.cumsum(sizes) * len(_OPERATORS)
    if parameters.n_subscriptions > ends[-1]:
        raise ValueError(f"there are no more than {ends[-1]:,} different predicates over this domain")
    places = chance.choice(ends[-1], size=parameters.n_subscriptions, replace=False)
    attributes = np.searchsorted(ends, places, side="right").astype(np.int32)
    constants, operators = np.divmod(places - np.append(0, ends)[attributes], len(_OPERATORS))
    names = attribute_names(parameters.n_attributes)
    owners = np.arange(len(places))
    rows = predicate_table(owners, named(attributes, names), operators.astype(np.int8), _OPERATORS, number=constants)
    carried = np.tile(np.arange(parameters.n_attributes, dtype=np.int32), (parameters.n_events, 1))
    return rows, value_table(carried, event_chance.integers(0, sizes, size=carried.shape), names)


RECIPES: Final = (
    Recipe(
        name="predicates",
        description="ToPSS, predicates: one each, all different, over 10 attributes of 100 to 10,000 values",
        parameters=Predicates(),
        draw=draw,
    ),
)
