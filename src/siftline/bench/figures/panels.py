"""What rows say about a figure: for each series, a value or a status at each x.

Times are told as if the machine had always been as fast as in the middle of all rows: the yardstick beside a row says
how fast it was then.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from siftline.bench.figures.worker import OUT_OF_MEMORY, TIMED_OUT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from siftline.bench.figures.figure import Figure
    from siftline.bench.figures.measures import Measure
    from siftline.bench.results import Row

MISSING: Final = "not measured"
# An index that did not get to an end is slower, or larger, than every one that did.
_ENDLESS: Final = frozenset({TIMED_OUT, OUT_OF_MEMORY, "hopeless"})


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
    """Return the points of a figure; `rows` are by run."""
    usual = _usual_us(rows)
    series: dict[str, list[Point]] = {label: [] for label in figure.series}
    for run in figure.runs(scale, seed):
        row = rows.get(run.key)
        value = None if row is None else measure.of(row)
        if row is not None and value is not None and measure.is_time and "yardstick_us" in row:
            value *= usual / statistics.mean(row["yardstick_us"])
        status = MISSING if row is None else str(row["status"])
        series[run.series].append(Point(run.x, value, status, run.key))
    return Panel(figure.name, measure, series)


def _usual_us(rows: Mapping[str, Row]) -> float:
    """Return what the yardstick took in the middle of all rows."""
    found = [statistics.mean(row["yardstick_us"]) for row in rows.values() if "yardstick_us" in row]
    return statistics.median(found) if found else 1.0
