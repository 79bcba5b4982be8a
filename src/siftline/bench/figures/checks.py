"""What can be asked of a panel: each check gives one number, and a claim bounds it.

ratio      of / to at an x: `last` (unless said otherwise), `first`, an x; or over all x the `least`, the `most`, the
`mean` (geometric) of the ratios. Of several series the best at each x counts.
change     of one series, its value at the last x by that at the first, or between `from` and `until`
against    change of one series by that of another: below 1, the first one scales better
spread     of one series, its largest value by its smallest
exponent   e, if the value grows with x ** e
order      of series from small to large, the smallest ratio of neighbours: 1 or more, and the order holds
value      of one series at an x
status     1 if the run of a series at an x has one of these statuses, else 0

A series needs rows at its first and last x, and at an x that is asked for; of the others, those count that have rows.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from siftline.bench.figures.panels import MISSING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from siftline.bench.figures.panels import Panel, Point


class NoAnswerError(Exception):
    """Rows are missing, or an index refused the workload."""


class MissingRowsError(NoAnswerError):
    """Rows are missing."""


def _costs(panel: Panel, names: str | Sequence[str]) -> dict[Any, float]:
    """Return the costs by x, of several series the least at each x that all have."""
    labels = [names] if isinstance(names, str) else list(names)
    found = [{point.x: _cost(panel, label, point) for point in _measured(panel, label)} for label in labels]
    return {x: min(each[x] for each in found) for x in found[0] if all(x in each for each in found)}


def _points(panel: Panel, label: str) -> Sequence[Point]:
    if label not in panel.series:
        raise ValueError(f"{panel.figure} has no series {label!r}")
    return panel.series[label]


def _measured(panel: Panel, label: str) -> list[Point]:
    """Return the points of a series that have rows, among them the first and the last."""
    points = _points(panel, label)
    for end in (points[0], points[-1]):
        if end.status == MISSING:
            raise MissingRowsError(f"{panel.figure}: {label} at {end.x} is not measured")
    return [point for point in points if point.status != MISSING]


def _cost(panel: Panel, label: str, point: Point) -> float:
    if point.cost is None:
        raise NoAnswerError(f"{panel.figure}: {label} at {point.x}: {point.status}")
    return point.cost


def ratio(panel: Panel, *, of: Any, to: Any, at: Any = "last") -> float:
    """Return of / to."""
    above, below = _costs(panel, of), _costs(panel, to)
    ratios = {x: _quotient(above[x], below[x]) for x in above if x in below}
    if at in _OVER_ALL and at not in ratios:
        return _OVER_ALL[at](list(ratios.values()))
    return ratios[_place(panel, list(ratios), at)]


def _quotient(above: float, below: float) -> float:
    if math.isinf(above) and math.isinf(below):
        raise NoAnswerError("neither of two runs got to an end")
    return above / below if below else math.inf


_OVER_ALL: Final[dict[Any, Callable[[list[float]], float]]] = {
    "least": min,
    "most": max,
    "mean": lambda ratios: float(np.exp(np.mean(np.log(ratios)))),
}


def _place(panel: Panel, xs: Sequence[Any], at: Any) -> Any:
    if at in xs:
        return at
    if at not in ("first", "last"):
        if any(point.x == at for points in panel.series.values() for point in points):
            raise MissingRowsError(f"{panel.figure}: {at} is not measured")
        raise ValueError(f"{panel.figure} has nothing at {at!r}")
    return xs[0] if at == "first" else xs[-1]


def change(panel: Panel, *, of: Any, **places: Any) -> float:
    """Return the last value by the first."""
    costs = _costs(panel, of)
    begin, end = (
        _place(panel, list(costs), places.get(name, at)) for name, at in (("from", "first"), ("until", "last"))
    )
    return _quotient(costs[end], costs[begin])


def against(panel: Panel, *, of: Any, to: Any, **places: Any) -> float:
    """Return the change of one series by that of another."""
    return _quotient(change(panel, of=of, **places), change(panel, of=to, **places))


def spread(panel: Panel, *, of: Any) -> float:
    """Return the largest value by the smallest."""
    costs = list(_costs(panel, of).values())
    return _quotient(max(costs), min(costs))


def exponent(panel: Panel, *, of: Any) -> float:
    """Return the slope of the logarithms."""
    costs = _costs(panel, of)
    if not all(0 < cost < math.inf for cost in costs.values()):
        raise NoAnswerError(f"{panel.figure}: {of} has values that are 0, or runs that did not get to an end")
    return float(np.polyfit(np.log(list(costs)), np.log(list(costs.values())), 1)[0])


def order(panel: Panel, *, of: Sequence[str], at: Any = "last") -> float:
    """Return the smallest ratio of neighbours."""
    costs = [_costs(panel, label) for label in of]
    values = [each[_place(panel, list(each), at)] for each in costs]
    return min(_quotient(after, before) for before, after in itertools.pairwise(values))


def value(panel: Panel, *, of: Any, at: Any = "last") -> float:
    """Return what was measured."""
    costs = _costs(panel, of)
    return _OVER_ALL[at](list(costs.values())) if at in _OVER_ALL else costs[_place(panel, list(costs), at)]


def status(panel: Panel, *, of: str, at: Any = "last", among: Sequence[str]) -> float:
    """Return whether a run ended so."""
    points = {point.x: point for point in _points(panel, of)}
    found = points[_place(panel, list(points), at)]
    if found.status == MISSING:
        raise MissingRowsError(f"{panel.figure}: {of} at {found.x} is not measured")
    return float(found.status in among)


CHECKS: Final[dict[str, Callable[..., float]]] = {
    "ratio": ratio,
    "change": change,
    "against": against,
    "spread": spread,
    "exponent": exponent,
    "order": order,
    "value": value,
    "status": status,
}
