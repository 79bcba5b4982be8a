"""Which index for which workload: the fastest of the papers' indexes, and `sift`, at both ends of each figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from siftline.bench.figures.drawing import short
from siftline.bench.figures.measures import measure
from siftline.bench.figures.panels import panel
from siftline.bench.targets import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from siftline.bench.figures.figure import Figure
    from siftline.bench.figures.panels import Panel
    from siftline.bench.results import Rounds

HEADING: Final = ("figure", "at", "fastest of the papers'", "its ms", "slowest", "its ms", "sift ms", "x fastest")
_OURS: Final = "sift"
_TIME: Final = "match_ms"


def lines(figures: Sequence[Figure], scale: str, rows: Rounds, seed: int = 0) -> list[list[str]]:
    """Return a line for the first and for the last x of each figure that has been measured."""
    found = []
    for figure in figures:
        times = any(axis.measure is not None and axis.measure.name == _TIME for axis in figure.y)
        if scale in figure.scales and times and _OURS in figure.series:
            shown_panel = panel(figure, measure(_TIME), scale, rows, seed)
            places = [point.x for point in shown_panel.series[_OURS]]
            for x in dict.fromkeys((places[0], places[-1])):
                found += _line(figure, shown_panel, x)
    return found


def _line(figure: Figure, times: Panel, x: object) -> list[list[str]]:
    """Return the line of one x, or nothing if rows are missing."""
    at_x = {label: point.value for label, points in times.series.items() for point in points if point.x == x}
    measured = {label: value for label, value in at_x.items() if value is not None}
    ours = measured.pop(_OURS, None)
    measured = {label: value for label, value in measured.items() if not label.startswith(_OURS)}
    if ours is None or not measured:
        return []
    best, worst = min(measured, key=measured.__getitem__), max(measured, key=measured.__getitem__)
    at = x if isinstance(x, str) else f"{figure.x.label} {short(float(str(x)))}"
    numbers = (shown(measured[best]), worst, shown(measured[worst]), shown(ours), shown(measured[best] / ours))
    return [[figure.name, at, best, *numbers]]
