"""What rows say about a figure: for each series, a value or a status at each x.

A run may have rows of several rounds, see `harness.py`. Matching times are told at one speed, see `speed.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import mode
from typing import TYPE_CHECKING, Any, Final

from siftline_bench.figures.measures import MATCH_TIME
from siftline_bench.figures.worker import OUT_OF_DISK, OUT_OF_MEMORY, TIMED_OUT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from siftline_bench.figures.figure import Figure, Run
    from siftline_bench.figures.measures import Measure
    from siftline_bench.results import Rounds, Row

MISSING: Final = "not measured"
# An index that did not get to an end is slower, or larger, than every one that did.
_ENDLESS: Final = frozenset({TIMED_OUT, OUT_OF_MEMORY, OUT_OF_DISK, "hopeless"})
# What an index raises, as `runner.refusal` writes it down.
_TOO_LARGE: Final = ("TooLargeError", "MemoryError")


@dataclass(frozen=True)
class Point:
    """One run of a series; `value` is None if its row has none, and so has one that is missing."""

    x: Any
    value: float | None
    status: str
    run: str
    n_rounds: int = 1

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


def panel(
    figure: Figure,
    measure: Measure,
    scale: str,
    rows: Rounds,
    seed: int = 0,
    *,
    number: int | None = None,
) -> Panel:
    """Return the points of a figure, without series that have none at this scale.

    `rows` are by run, one for each round; with a number, only that round counts, from 0, or the last that a run has.
    """
    series: dict[str, list[Point]] = {label: [] for label in figure.series}
    for run in figure.runs(scale, seed):
        rounds = rows.get(run.key, ())
        chosen = rounds if number is None else rounds[: number + 1][-1:]
        speed = "speed" if number is None else "speed_of_round"
        series[run.series].append(_point(run, measure, chosen, speed, len(rounds)))
    return Panel(figure.name, measure, {label: points for label, points in series.items() if points})


def _point(run: Run, measure: Measure, rounds: Sequence[Row], speed: str, n_rounds: int) -> Point:
    """Return what most rounds say: of one that timed out once, the times of the others."""
    if not rounds:
        return Point(run.x, None, MISSING, run.key, n_rounds)
    status = mode(_status(row) for row in rounds)
    mine = [row for row in rounds if _status(row) == status]
    found = [(measure.of(row), row.get(speed, 1.0) if measure.column == MATCH_TIME else 1.0) for row in mine]
    values = [value * factor for value, factor in found if value is not None]
    return Point(run.x, measure.of_rounds(values) if values else None, status, run.key, n_rounds)


def _status(row: Row) -> str:
    """Return how a run ended; an index that says itself that it would be too large is out of memory."""
    is_too_large = str(row.get("reason")).startswith(_TOO_LARGE)
    return OUT_OF_MEMORY if is_too_large else str(row["status"])
