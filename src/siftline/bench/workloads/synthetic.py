"""`dense`, `sparse`, `equality`, `zipf`: numeric attributes, some equalities or only these, mostly ranges.

A subscription has a uniform number of predicates on distinct attributes; an event has a fixed number of distinct
attributes. Attributes are drawn by the Zipf law (exponent 0: uniformly), values and constants uniformly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.bench.workloads.workload import Parameters, Recipe

if TYPE_CHECKING:
    from numpy.typing import NDArray

EQUAL, AT_MOST, AT_LEAST, BETWEEN = range(4)
_OPERATORS: Final = ["=", "<=", ">=", "between"]


@dataclass(frozen=True, kw_only=True)
class Synthetic(Parameters):
    """Parameters of the numeric workloads.

    Attributes
    ----------
    n_attributes : int
        In all; named a0, a1, ...
    skew : float
        Attribute i is drawn with a probability proportional to 1 / (i + 1) ** skew.
    least_predicates, most_predicates : int
        A subscription has between so many predicates, uniformly.
    equal_share : float
        The share of predicates with `=`; the others are `<=`, `>=` and `between`, a third each.
    n_values : int
        Values and constants are 0 .. n_values - 1.
    event_size : int
        Attributes of an event.
    n_planted : int
        Subscriptions that each event is made to match.
    """

    n_subscriptions: int = 1_000_000
    n_events: int = 1_000
    n_attributes: int = 100
    skew: float = 0.0
    least_predicates: int = 3
    most_predicates: int = 7
    equal_share: float = 0.2
    n_values: int = 100
    event_size: int = 30
    n_planted: int = 0


class Matrix(NamedTuple):
    """Subscriptions, one row each; a predicate asks for `attribute` in low .. high. Row i has `counts[i]` of them."""

    counts: NDArray[np.int64]
    attributes: NDArray[np.int32]
    operators: NDArray[np.int8]
    lows: NDArray[np.int32]
    highs: NDArray[np.int32]

    @property
    def is_used(self) -> NDArray[np.bool_]:
        """Which places of the rows hold a predicate."""
        return np.arange(self.attributes.shape[1]) < self.counts[:, None]


def draw(parameters: Synthetic, chance: np.random.Generator, event_chance: np.random.Generator) -> tuple[Any, Any]:
    """Draw the tables of predicates and of values."""
    matrix = draw_predicates(parameters, chance)
    attributes, numbers = draw_events(parameters, matrix, event_chance)
    return _predicate_table(parameters, matrix), _value_table(parameters, attributes, numbers)


def draw_predicates(parameters: Synthetic, chance: np.random.Generator) -> Matrix:
    """Draw subscriptions."""
    n, most = parameters.n_subscriptions, parameters.most_predicates
    counts = chance.integers(parameters.least_predicates, most + 1, size=n)
    nothing = np.empty((n, 0), dtype=np.int32)
    attributes = draw_distinct(chance, attribute_weights(parameters), most, nothing)
    operators = chance.integers(AT_MOST, BETWEEN + 1, size=(n, most), dtype=np.int8)
    operators[chance.random((n, most), dtype=np.float32) < parameters.equal_share] = EQUAL
    lows, highs = _bounds(operators, parameters.n_values, chance)
    return Matrix(counts, attributes, operators, lows, highs)


def _bounds(operators: NDArray[np.int8], n_values: int, chance: np.random.Generator) -> tuple[Any, Any]:
    """Draw constants: the values from low to high satisfy the predicate."""
    one, other = chance.integers(0, n_values, size=(2, *operators.shape), dtype=np.int32)
    is_between = operators == BETWEEN
    lows = np.where(is_between, np.minimum(one, other), np.where(operators == AT_MOST, 0, one))
    highs = np.where(is_between, np.maximum(one, other), np.where(operators == AT_LEAST, n_values - 1, one))
    return lows.astype(np.int32), highs.astype(np.int32)


def attribute_weights(parameters: Synthetic) -> NDArray[np.float64]:
    """Return the probability of each attribute."""
    weights = 1.0 / np.arange(1, parameters.n_attributes + 1) ** parameters.skew
    probabilities: NDArray[np.float64] = weights / weights.sum()
    return probabilities


def draw_distinct(
    chance: np.random.Generator, weights: NDArray[np.float64], n_columns: int, taken: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Draw `n_columns` attributes for each row of `taken`, one after the other, none twice and none that is taken."""
    n_rows, n_taken = taken.shape
    if n_columns + n_taken > len(weights):
        raise ValueError(f"cannot draw {n_columns + n_taken} distinct attributes out of {len(weights)}")
    cumulated = np.cumsum(weights)
    drawn = np.concatenate([taken, np.full((n_rows, n_columns), -1, dtype=np.int32)], axis=1)
    for column in range(n_taken, n_taken + n_columns):
        rows = np.arange(n_rows)
        while len(rows):
            chosen = np.searchsorted(cumulated[:-1], chance.random(len(rows)) * cumulated[-1], side="right")
            is_repeated = (drawn[rows, :column] == chosen[:, None]).any(axis=1)
            drawn[rows[~is_repeated], column] = chosen[~is_repeated]
            rows = rows[is_repeated]
    return drawn[:, n_taken:]


def draw_events(parameters: Synthetic, matrix: Matrix, chance: np.random.Generator) -> tuple[Any, Any]:
    """Draw attributes and values of events, one row each: first those that make planted subscriptions match."""
    n, size = parameters.n_events, parameters.event_size
    planted, numbers, is_planted = _planted(parameters, matrix, chance)
    taken = np.where(is_planted, planted, -1)
    filling = draw_distinct(chance, attribute_weights(parameters), size, taken)
    all_attributes = np.concatenate([taken, filling], axis=1)
    all_numbers = np.concatenate([numbers, chance.integers(0, parameters.n_values, (n, size), dtype=np.int32)], axis=1)
    # Planted places come first, unused ones last, and the first `size` make the event.
    order = np.argsort(all_attributes < 0, axis=1, kind="stable")[:, :size]
    return np.take_along_axis(all_attributes, order, 1), np.take_along_axis(all_numbers, order, 1)


def _planted(parameters: Synthetic, matrix: Matrix, chance: np.random.Generator) -> tuple[Any, Any, Any]:
    """Choose subscriptions for each event; return their attributes, satisfying values, and which places are used."""
    n, n_planted = parameters.n_events, parameters.n_planted
    if n_planted * parameters.most_predicates > parameters.event_size:
        raise ValueError("an event is too small for the subscriptions that it is to match")
    chosen = chance.integers(0, max(1, parameters.n_subscriptions), size=(n, n_planted))
    rows = _clashing(matrix, chosen)
    while len(rows):
        chosen[rows] = chance.integers(0, parameters.n_subscriptions, size=(len(rows), n_planted))
        rows = rows[_clashing(matrix, chosen[rows])]
    lows, highs = (bounds[chosen].reshape(n, -1) for bounds in (matrix.lows, matrix.highs))
    numbers = chance.integers(lows, highs + 1, dtype=np.int32)
    return matrix.attributes[chosen].reshape(n, -1), numbers, matrix.is_used[chosen].reshape(n, -1)


def _clashing(matrix: Matrix, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the events whose planted subscriptions share an attribute: one value could not satisfy both."""
    places = np.where(matrix.is_used[chosen], matrix.attributes[chosen], -1).reshape(len(chosen), -1)
    ordered = np.sort(places, axis=1)
    return np.flatnonzero(((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(axis=1))


def _predicate_table(parameters: Synthetic, matrix: Matrix) -> Any:
    """Return one row a predicate, in the columnar form that `Engine.add_many` takes."""
    import pyarrow as pa

    used = matrix.is_used
    operators = matrix.operators[used]
    constants = np.where(operators == AT_MOST, matrix.highs[used], matrix.lows[used]).astype(np.int64)
    is_between = operators == BETWEEN
    return pa.table(
        {
            "subscription": np.repeat(np.arange(parameters.n_subscriptions), matrix.counts),
            "clause": np.zeros(len(operators), dtype=np.int32),
            "attribute": _names(matrix.attributes[used], parameters.n_attributes),
            "op": pa.DictionaryArray.from_arrays(operators, _OPERATORS),
            "number": constants,
            "upper": pa.array(matrix.highs[used].astype(np.int64), mask=~is_between),
        }
    )


def _value_table(parameters: Synthetic, attributes: NDArray[np.int32], numbers: NDArray[np.int32]) -> Any:
    """Return one row a value."""
    import pyarrow as pa

    return pa.table(
        {
            "event": np.repeat(np.arange(parameters.n_events), parameters.event_size),
            "attribute": _names(attributes.ravel(), parameters.n_attributes),
            "number": numbers.ravel().astype(np.int64),
        }
    )


def _names(attributes: NDArray[np.int32], n_attributes: int) -> Any:
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(attributes, [f"a{i}" for i in range(n_attributes)])


RECIPES: Final = (
    Recipe(
        name="dense",
        description="100 attributes, uniform: long posting lists, hundreds of matches an event",
        parameters=Synthetic(),
        draw=draw,
    ),
    Recipe(
        name="sparse",
        description="as dense with 30,000 attributes and two matches planted in each event",
        parameters=Synthetic(n_attributes=30_000, n_planted=2),
        draw=draw,
    ),
    Recipe(
        name="equality",
        description="as sparse with equalities only",
        parameters=Synthetic(n_attributes=30_000, n_planted=2, equal_share=1.0),
        draw=draw,
    ),
    Recipe(
        name="zipf",
        description="as dense with 1,000 attributes by the Zipf law: a few in nearly every event, most rare",
        parameters=Synthetic(n_attributes=1_000, skew=1.0),
        draw=draw,
    ),
)
