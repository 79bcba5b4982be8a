"""`intervals`: one `between` each on one attribute, for one-dimensional structures: Table 3 of the PS-Tree paper (7.5).

The paper has 100,000 intervals and as many points, and does not say how long the intervals are. From its memory, some
hundred bytes for each elementary space, few of them can contain the same point: here 100, on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from siftline_bench.workloads.drawing import named, predicate_table
from siftline_bench.workloads.synthetic import value_table
from siftline_bench.workloads.workload import Parameters, Recipe

ATTRIBUTE: Final = "a"


@dataclass(frozen=True, kw_only=True)
class Intervals(Parameters):
    """Parameters.

    Attributes
    ----------
    n_values : int
        Ends of intervals and points are 0 .. n_values - 1.
    n_covering : int
        Intervals that contain a point, on average.
    """

    n_subscriptions: int = 100_000
    n_events: int = 100_000
    n_values: int = 10_000_000
    n_covering: int = 100


def draw(parameters: Intervals, chance: np.random.Generator, event_chance: np.random.Generator) -> tuple[Any, Any]:
    """Draw the tables of predicates and of values."""
    n, n_values = parameters.n_subscriptions, parameters.n_values
    mean = n_values * min(1.0, parameters.n_covering / max(1, n))
    lengths = np.minimum(chance.uniform(1, 2 * mean, size=n).astype(np.int64), n_values)
    lows = (chance.random(n) * (n_values - lengths + 1)).astype(np.int64)
    zeros = np.zeros(n, dtype=np.int8)
    highs = lows + lengths - 1
    rows = predicate_table(np.arange(n), named(zeros, [ATTRIBUTE]), zeros, ["between"], number=lows, upper=highs)
    points = event_chance.integers(0, n_values, size=(parameters.n_events, 1))
    return rows, value_table(np.zeros(points.shape, dtype=np.int32), points, [ATTRIBUTE])


RECIPES: Final = (
    Recipe(
        name="intervals",
        description="PS-Tree, Table 3: intervals over ten million numbers, a hundred of them around each point",
        parameters=Intervals(),
        draw=draw,
    ),
)
