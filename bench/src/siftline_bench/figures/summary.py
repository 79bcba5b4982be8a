"""What all figures say together: which index is fastest where, where each one is slow, and what size costs."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline_bench.figures.checks import NoAnswerError, exponent
from siftline_bench.figures.drawing import short
from siftline_bench.figures.measures import measure
from siftline_bench.figures.panels import panel
from siftline_bench.targets import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from siftline_bench.figures.figure import Figure
    from siftline_bench.figures.panels import Panel
    from siftline_bench.results import Rounds

_OURS: Final = "sift"
_TIME: Final = "match_ms"
_SIZE: Final = ("n_subscriptions",)
# A line of fewer figures is no index that can be said much about.
_LEAST_FIGURES: Final = 5


class Table(NamedTuple):
    """A table for the report; where its lines begin with figures, they can be linked to."""

    name: str
    title: str
    note: str
    heading: Sequence[str]
    lines: Sequence[Sequence[str]]


def tables(figures: Sequence[Figure], scale: str, rows: Rounds, seed: int = 0) -> list[Table]:
    """Return all tables, of the figures that have matching times and `sift`."""
    timed = [
        (figure, panel(figure, measure(_TIME), scale, rows, seed)) for figure in figures if _is_timed(figure, scale)
    ]
    return [
        Table(
            "which",
            "Which index for which workload",
            "Matching times at both ends of each figure's x axis. sift is this project's own index.",
            ("figure", "at", "fastest of the papers'", "its ms", "slowest", "its ms", "sift ms", "x fastest"),
            [line for figure, times in timed for line in _ends(figure, times)],
        ),
        Table(
            "slow",
            "Where each index is slow",
            "Matching times of all x by that of the fastest of the papers' indexes there.",
            ("index", "points", "fastest at", "x fastest, middle", "x fastest, most", "there"),
            _slowness(timed),
        ),
        Table(
            "size",
            "What size costs",
            "Matching times (ms) with the fewest and the most subscriptions, and e, if they grow with N ** e.",
            ("figure", "index", "N", "fewest", "most", "e"),
            [line for figure, times in timed if figure.vary == _SIZE for line in _growth(figure, times)],
        ),
    ]


def _is_timed(figure: Figure, scale: str) -> bool:
    times = any(axis.measure is not None and axis.measure.name == _TIME for axis in figure.y)
    return scale in figure.scales and times and _OURS in figure.series


def _at(times: Panel, x: Any) -> dict[str, float]:
    """Return the times of all lines at an x, but those of `sift` in other circumstances."""
    points = ((label, point) for label, points in times.series.items() for point in points if point.x == x)
    found = {label: point.value for label, point in points if point.value is not None}
    return {label: value for label, value in found.items() if label == _OURS or not label.startswith(_OURS)}


def _papers(at_x: dict[str, float]) -> dict[str, float]:
    return {label: value for label, value in at_x.items() if label != _OURS}


def _place(figure: Figure, x: Any) -> str:
    return x if isinstance(x, str) else f"{figure.x.label} {short(float(x))}"


def _xs(times: Panel) -> list[Any]:
    return [point.x for point in times.series[_OURS]]


def _ends(figure: Figure, times: Panel) -> Iterator[list[str]]:
    """Return a line for the first and for the last x, unless rows are missing."""
    for x in dict.fromkeys((_xs(times)[0], _xs(times)[-1])):
        at_x = _at(times, x)
        papers = _papers(at_x)
        if _OURS not in at_x or not papers:
            continue
        best, worst = min(papers, key=papers.__getitem__), max(papers, key=papers.__getitem__)
        numbers = (papers[best], worst, papers[worst], at_x[_OURS], papers[best] / at_x[_OURS])
        cells = (each if isinstance(each, str) else shown(each) for each in numbers)
        yield [figure.name, _place(figure, x), best, *cells]


def _slowness(timed: Sequence[tuple[Figure, Panel]]) -> list[list[str]]:
    """Return a line for each index: how often it is fastest, and how far from that it is."""
    found: dict[str, list[tuple[float, str]]] = {}
    for figure, times in timed:
        for x in _xs(times):
            at_x = _at(times, x)
            least = min(_papers(at_x).values(), default=math.nan)
            for label, value in at_x.items():
                found.setdefault(label, []).append((value / least, f"{figure.name}, {_place(figure, x)}"))
    n_figures = Counter(label for _, times in timed for label in times.series)
    return [
        [label, str(len(ratios)), str(sum(ratio <= 1 for ratio, _ in ratios)), _middle(ratios), *_most(ratios)]
        for label, ratios in found.items()
        if n_figures[label] >= _LEAST_FIGURES
    ]


def _middle(ratios: Sequence[tuple[float, str]]) -> str:
    return shown(median(ratio for ratio, _ in ratios))


def _most(ratios: Sequence[tuple[float, str]]) -> tuple[str, str]:
    ratio, place = max(ratios)
    return shown(ratio), place


def _growth(figure: Figure, times: Panel) -> Iterator[list[str]]:
    """Return a line for each index that has times at all sizes between its first and last one."""
    for label, points in times.series.items():
        measured = [point for point in points if point.value is not None]
        if len(measured) < 2 or (label != _OURS and label.startswith(_OURS)):
            continue
        try:
            power = exponent(replace(times, series={label: measured}), of=label)
        except NoAnswerError:
            continue
        sizes = " to ".join(short(float(point.x)) for point in (measured[0], measured[-1]))
        times_ms = [shown(point.value) for point in (measured[0], measured[-1])]
        yield [figure.name, label, sizes, *times_ms, f"{round(power, 2) + 0.0:.2f}"]
