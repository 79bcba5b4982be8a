"""What rows say about a figure: for each series, a value or a status at each x.

Matching times are told at one speed, see `speed.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from siftline.bench.figures.measures import MATCH_TIME
from siftline.bench.figures.worker import OUT_OF_DISK, OUT_OF_MEMORY, TIMED_OUT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from siftline.bench.figures.figure import Figure
    from siftline.bench.figures.measures import Measure
    from siftline.bench.results import Row

MISSING: Final = "not measured"
# An index that did not get to an end is slower, or larger, than every one that did.
_ENDLESS: Final = frozenset({TIMED_OUT, OUT_OF_MEMORY, OUT_OF_DISK, "hopeless"})


@dataclass(frozen=True)
class Point:
    """One run of a series; `value` is None if its row has none, and so has one that is missing."""

    x: Any
    value: float | None
    status: str
    run: str

    @property
    def cost(self) -> float | None:
        """The value, or infinity if the run did not get to an end."""
        return math.inf if self.status in _ENDLESS else self.value


@dataclass(frozen=True)
class Panel:
    """A figure, one of its measures, and the points of each series."""

    figure: str
    measure: Measure
    series: Mapping[str, Sequence[Point]]


def panel(figure: Figure, measure: Measure, scale: str, rows: Mapping[str, Row], seed: int = 0) -> Panel:
    """Return the points of a figure, without series that have none at this scale; `rows` are by run."""
    series: dict[str, list[Point]] = {label: [] for label in figure.series}
    for run in figure.runs(scale, seed):
        row = rows.get(run.key)
        value = None if row is None else measure.of(row)
        if row is not None and value is not None and measure.column == MATCH_TIME:
            value *= row.get("speed", 1.0)
        status = MISSING if row is None else str(row["status"])
        series[run.series].append(Point(run.x, value, status, run.key))
    return Panel(figure.name, measure, {label: points for label, points in series.items() if points})
