"""`wide`: dense, but every subscription also asks for a user or a price, which have a million different constants each.

    user = 7043211 | user between 7043211 and 7043498        half of each; 10,000,000 numbers
    price between 14.25 and 88.70 | price <= ... | price >= ...      80 %, 10 %, 10 %; 0.00 .. 99999.99

A quarter of the subscriptions have only a user, a quarter only a price, half have both. The other attributes are as in
`dense`. Every event has a user and a price.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline_bench.workloads.drawing import named, predicate_table
from siftline_bench.workloads.synthetic import (
    AT_LEAST,
    AT_MOST,
    BETWEEN,
    EQUAL,
    OPERATORS,
    Synthetic,
    attribute_names,
    draw_events,
    draw_predicates,
)
from siftline_bench.workloads.workload import Parameters, Recipe

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The longest `between`, as a share of all users and of all prices.
_USER_RANGE: Final = 0.0001
_PRICE_RANGE: Final = 0.02


@dataclass(frozen=True, kw_only=True)
class Wide(Parameters):
    """Parameters.

    Attributes
    ----------
    n_attributes : int
        Attributes beside `user` and `price`: a0, a1, ..., uniform.
    least_predicates, most_predicates : int
        The least and the most predicates on those, drawn uniformly.
    event_size : int
        Attributes of an event, `user` and `price` included.
    n_users, n_prices : int
        Users are 0 .. n_users - 1, prices 0.00, 0.01, ...
    """

    n_subscriptions: int = 1_000_000
    n_events: int = 1_000
    n_attributes: int = 98
    least_predicates: int = 2
    most_predicates: int = 5
    event_size: int = 30
    n_users: int = 10_000_000
    n_prices: int = 10_000_000


class _Column(NamedTuple):
    """Predicates on one attribute: whose they are, and what they ask for."""

    owners: NDArray[np.int64]
    attributes: NDArray[np.int32]
    operators: NDArray[np.int8]
    lows: NDArray[np.float64]
    highs: NDArray[np.float64]


def draw(parameters: Wide, chance: np.random.Generator, event_chance: np.random.Generator) -> tuple[Any, Any]:
    """Draw the tables of predicates and of values."""
    others = Synthetic(
        n_subscriptions=parameters.n_subscriptions,
        n_events=parameters.n_events,
        n_attributes=parameters.n_attributes,
        least_predicates=parameters.least_predicates,
        most_predicates=parameters.most_predicates,
        event_size=parameters.event_size - 2,
    )
    matrix = draw_predicates(others, chance)
    kinds = chance.integers(0, 4, size=parameters.n_subscriptions)
    used = matrix.is_used
    columns = [
        _users(parameters, np.flatnonzero(kinds != 0), chance),
        _prices(parameters, np.flatnonzero(kinds != 1), chance),
        _Column(
            np.repeat(np.arange(parameters.n_subscriptions), matrix.counts),
            matrix.attributes[used],
            matrix.operators[used],
            matrix.lows[used].astype(np.float64),
            matrix.highs[used].astype(np.float64),
        ),
    ]
    names = [*attribute_names(parameters.n_attributes), "user", "price"]
    attributes, numbers = draw_events(others, matrix, event_chance)
    return _predicate_table(columns, names), _value_table(parameters, attributes, numbers, names, event_chance)


def _users(parameters: Wide, owners: NDArray[np.int64], chance: np.random.Generator) -> _Column:
    n = len(owners)
    lows = chance.integers(0, parameters.n_users, size=n)
    widths = chance.integers(1, max(2, int(parameters.n_users * _USER_RANGE)), size=n)
    is_range = chance.random(n) < 0.5
    operators = np.where(is_range, BETWEEN, EQUAL).astype(np.int8)
    attributes = np.full(n, parameters.n_attributes, dtype=np.int32)
    return _Column(owners, attributes, operators, lows.astype(np.float64), (lows + widths).astype(np.float64))


def _prices(parameters: Wide, owners: NDArray[np.int64], chance: np.random.Generator) -> _Column:
    n = len(owners)
    lows = chance.integers(0, parameters.n_prices, size=n)
    widths = chance.integers(1, max(2, int(parameters.n_prices * _PRICE_RANGE)), size=n)
    operators = chance.choice(np.array([BETWEEN, AT_MOST, AT_LEAST], dtype=np.int8), size=n, p=[0.8, 0.1, 0.1])
    attributes = np.full(n, parameters.n_attributes + 1, dtype=np.int32)
    highs = np.where(operators == BETWEEN, lows + widths, lows)
    return _Column(owners, attributes, operators, lows / 100, highs / 100)


def _predicate_table(columns: list[_Column], names: list[str]) -> Any:
    import pyarrow as pa

    owners, attributes, operators, lows, highs = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    order = np.argsort(owners, kind="stable")
    operators, lows, highs = operators[order], lows[order], highs[order]
    return predicate_table(
        owners[order],
        named(attributes[order], names),
        operators,
        OPERATORS,
        number=np.where(operators == AT_MOST, highs, lows),
        upper=pa.array(highs, mask=operators != BETWEEN),
    )


def _value_table(
    parameters: Wide,
    attributes: NDArray[np.int32],
    numbers: NDArray[np.int32],
    names: list[str],
    chance: np.random.Generator,
) -> Any:
    import pyarrow as pa

    n = parameters.n_events
    wide = np.broadcast_to(np.array([0, 1], dtype=np.int32) + parameters.n_attributes, (n, 2))
    users, prices = (chance.integers(0, size, size=n) for size in (parameters.n_users, parameters.n_prices))
    all_numbers = np.concatenate([np.column_stack([users, prices / 100]), numbers], axis=1)
    return pa.table(
        {
            "event": np.repeat(np.arange(n), parameters.event_size),
            "attribute": named(np.concatenate([wide, attributes], axis=1).ravel(), names),
            "number": all_numbers.ravel(),
        }
    )


RECIPES: Final = (
    Recipe(
        name="wide",
        description="as dense, and a user or a price or both, with a million different constants each",
        parameters=Wide(),
        draw=draw,
    ),
)
