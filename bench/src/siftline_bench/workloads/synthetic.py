"""Numeric attributes, some equalities, only these or none, mostly ranges.

The recipes of this file differ in their parameters only.

A subscription has a uniform number of predicates on distinct attributes; an event has a fixed number of distinct
attributes. Attributes, values and constants are drawn by the Zipf law (exponent 0: uniformly).

`many-attributes` has the parameters of Table 3 of the OpIndex paper (section 7.1): n_subscriptions is its N,
n_attributes d, most_predicates its largest subscription, event_size m, equal_share theta1, n_values sigma, and skew and
value_skew are its Zipf exponent, both of them. Operators are `=`, `<=` and `>=`. The paper's defaults are lost but for
20,000 attributes. The others are ours: the 0.2 GB of its Fig. 8(b) are the memory of a million subscriptions of about
five predicates, hence 1 to 8; 40 attributes an event, 40 % equalities (its model has a third), 200 values. Sizes of
events are said to have a maximum; ours all have it, as in its model of costs.

`topss-subscriptions` is what we put in the place of the lost subscription workload of the ToPSS paper (section 5.1.2):
few different predicates, so that the authors' bit matrix fits into memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline_bench.workloads.drawing import (
    Planted,
    choose_planted,
    draw_values,
    fill_events,
    named,
    numbered,
    predicate_table,
    subscription_attributes,
    zipf_weights,
)
from siftline_bench.workloads.workload import Parameters, Recipe, later

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

EQUAL, AT_MOST, AT_LEAST, BETWEEN = range(4)
OPERATORS: Final = ["=", "<=", ">=", "between"]


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
        The least and the most predicates of a subscription, drawn uniformly.
    equal_share : float
        The share of predicates with `=`; the others are `<=`, `>=` and `between`, equally often.
    n_values : int
        Values and constants are 0 .. n_values - 1.
    event_size : int
        Attributes of an event.
    n_planted : int
        Subscriptions that each event is made to match.
    value_skew : float
        Value i, in events and as a constant, is drawn with a probability proportional to 1 / (i + 1) ** value_skew.
    has_between : bool
        Whether there are predicates with `between`.
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
    value_skew: float = later(0.0)
    has_between: bool = later(True)


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
        return self.attributes >= 0


def draw(parameters: Synthetic, chance: np.random.Generator, event_chance: np.random.Generator) -> tuple[Any, Any]:
    """Draw the tables of predicates and of values."""
    matrix = draw_predicates(parameters, chance)
    attributes, numbers = draw_events(parameters, matrix, event_chance)
    names = attribute_names(parameters.n_attributes)
    return conjunctions(parameters, matrix), value_table(attributes, numbers, names)


def draw_predicates(parameters: Synthetic, chance: np.random.Generator) -> Matrix:
    """Draw subscriptions."""
    n, most = parameters.n_subscriptions, parameters.most_predicates
    counts = chance.integers(parameters.least_predicates, most + 1, size=n)
    attributes = subscription_attributes(chance, attribute_weights(parameters), counts, most)
    operators = chance.integers(AT_MOST, BETWEEN + parameters.has_between, size=(n, most), dtype=np.int8)
    operators[chance.random((n, most), dtype=np.float32) < parameters.equal_share] = EQUAL
    lows, highs = _bounds(operators, parameters, chance)
    return Matrix(counts, attributes, operators, lows, highs)


def _bounds(operators: NDArray[np.int8], parameters: Synthetic, chance: np.random.Generator) -> tuple[Any, Any]:
    """Draw constants: the values from low to high satisfy the predicate."""
    n_values = parameters.n_values
    one, other = draw_values(chance, n_values, parameters.value_skew, (2, *operators.shape))
    is_between = operators == BETWEEN
    lows = np.where(is_between, np.minimum(one, other), np.where(operators == AT_MOST, 0, one))
    highs = np.where(is_between, np.maximum(one, other), np.where(operators == AT_LEAST, n_values - 1, one))
    return lows.astype(np.int32), highs.astype(np.int32)


def attribute_weights(parameters: Synthetic) -> NDArray[np.float64]:
    """Return the probability of each attribute."""
    return zipf_weights(parameters.n_attributes, parameters.skew)


def draw_events(parameters: Synthetic, matrix: Matrix, chance: np.random.Generator) -> tuple[Any, Any]:
    """Draw attributes and values of events, one row each: first those that make planted subscriptions match."""
    planted = _planted(parameters, matrix, chance)
    weights, size = attribute_weights(parameters), parameters.event_size
    return fill_events(chance, weights, size, parameters.n_values, planted, parameters.value_skew)


def _planted(parameters: Synthetic, matrix: Matrix, chance: np.random.Generator) -> Planted:
    """Choose subscriptions for each event, and satisfying values."""
    n, n_planted = parameters.n_events, parameters.n_planted
    if n_planted * parameters.most_predicates > parameters.event_size:
        raise ValueError("an event is too small for the subscriptions that it is to match")
    chosen = choose_planted(chance, matrix.attributes, n, n_planted)
    lows, highs = (bounds[chosen].reshape(n, -1) for bounds in (matrix.lows, matrix.highs))
    values = chance.integers(lows, highs + 1, dtype=np.int32)
    return Planted(matrix.attributes[chosen].reshape(n, -1), values)


def conjunctions(parameters: Synthetic, matrix: Matrix) -> Any:
    """Return one row a predicate; each row of the matrix is a subscription."""
    used = matrix.is_used
    operators = matrix.operators[used]
    constants = np.where(operators == AT_MOST, matrix.highs[used], matrix.lows[used]).astype(np.int64)
    return predicate_table(
        np.repeat(np.arange(len(matrix.counts)), matrix.counts),
        named(matrix.attributes[used], attribute_names(parameters.n_attributes)),
        operators,
        OPERATORS,
        number=constants,
        upper=numbered(matrix.highs[used], operators == BETWEEN),
    )


def value_table(attributes: NDArray[np.int32], numbers: NDArray[Any], names: Sequence[str]) -> Any:
    """Return one row a value, of events that all have the same size."""
    import pyarrow as pa

    n_events, size = attributes.shape
    return pa.table(
        {
            "event": np.repeat(np.arange(n_events), size),
            "attribute": named(attributes.ravel(), names),
            "number": numbers.ravel().astype(np.int64),
        }
    )


def attribute_names(n: int) -> list[str]:
    """Return a0, a1, ..."""
    return [f"a{i}" for i in range(n)]


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
    Recipe(
        name="all-range",
        description="as dense without equalities",
        parameters=Synthetic(equal_share=0.0),
        draw=draw,
    ),
    Recipe(
        name="long",
        description="30 predicates each, over 500 attributes; events of 60, one match planted in each",
        parameters=Synthetic(n_attributes=500, least_predicates=30, most_predicates=30, event_size=60, n_planted=1),
        draw=draw,
    ),
    Recipe(
        name="dense-short",
        description="as dense with 1 to 9 predicates: more than ten thousand matches an event",
        parameters=Synthetic(least_predicates=1, most_predicates=9),
        draw=draw,
    ),
    Recipe(
        name="many-attributes",
        description="OpIndex, Table 3: 20,000 attributes; =, <= and >=",
        parameters=Synthetic(
            n_attributes=20_000,
            least_predicates=1,
            most_predicates=8,
            equal_share=0.4,
            n_values=200,
            event_size=40,
            has_between=False,
        ),
        draw=draw,
    ),
    Recipe(
        name="topss-subscriptions",
        description="ToPSS, subscriptions: five predicates each, over 20 attributes of 20 values; events have them all",
        parameters=Synthetic(
            n_attributes=20, least_predicates=5, most_predicates=5, equal_share=0.5, n_values=20, event_size=20
        ),
        draw=draw,
    ),
)
