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
A run that did not get to an end costs more than all that did, but nobody knows how much: the `least` and the `most` of
ratios count it, the `mean` leaves it out, and there is no answer to `against`.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from siftline_bench.figures.panels import MISSING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from siftline_bench.figures.panels import Panel, Point


_Cost = TypeVar("_Cost")


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


def _place(panel: Panel, at: Any, *names: str | Sequence[str]) -> Any:
    """Return an x among those that all these series have, with rows or without."""
    labels = [label for each in names for label in ([each] if isinstance(each, str) else each)]
    all_xs = [[point.x for point in _points(panel, label)] for label in labels]
    xs = [x for x in all_xs[0] if all(x in each for each in all_xs)]
    if at not in (*xs, "first", "last"):
        raise ValueError(f"{panel.figure} has nothing at {at!r}")
    return at if at in xs else xs[0] if at == "first" else xs[-1]


def _at(panel: Panel, costs: dict[Any, _Cost], at: Any, *names: str | Sequence[str]) -> _Cost:
    """Return the cost at a place, which must have rows."""
    place = _place(panel, at, *names)
    if place not in costs:
        raise MissingRowsError(f"{panel.figure}: {place} is not measured")
    return costs[place]


def _cost(panel: Panel, label: str, point: Point) -> float:
    if point.cost is None:
        raise NoAnswerError(f"{panel.figure}: {label} at {point.x}: {point.status}")
    return point.cost


def ratio(panel: Panel, *, of: Any, to: Any, at: Any = "last") -> float:
    """Return of / to."""
    above, below = _costs(panel, of), _costs(panel, to)
    both = {x: (above[x], below[x]) for x in above if x in below}
    if at not in _OVER_ALL or at in both:
        return _quotient(*_at(panel, both, at, of, to))
    ratios = [_quotient(*costs) for costs in both.values() if costs != (math.inf, math.inf)]
    if at == "mean":
        ratios = [each for each in ratios if 0 < each < math.inf] or ratios
    return _OVER_ALL[at](ratios or [_quotient(math.inf, math.inf)])


def _quotient(above: float, below: float) -> float:
    if math.isinf(above) and math.isinf(below):
        raise NoAnswerError("neither of two runs got to an end")
    return above / below if below else math.inf


_OVER_ALL: Final[dict[Any, Callable[[list[float]], float]]] = {
    "least": min,
    "most": max,
    "mean": lambda ratios: float(np.exp(np.mean(np.log(ratios)))),
}


def change(panel: Panel, *, of: Any, **places: Any) -> float:
    """Return the last value by the first."""
    costs = _costs(panel, of)
    begin, end = (_at(panel, costs, places.get(name, at), of) for name, at in (("from", "first"), ("until", "last")))
    return _quotient(end, begin)


def against(panel: Panel, *, of: Any, to: Any, **places: Any) -> float:
    """Return the change of one series by that of another."""
    changes = change(panel, of=of, **places), change(panel, of=to, **places)
    if math.inf in changes:
        raise NoAnswerError(f"{panel.figure}: a run did not get to an end, so that nobody knows by how much it changes")
    return _quotient(*changes)


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
    values = [_at(panel, _costs(panel, label), at, label) for label in of]
    return min(_quotient(after, before) for before, after in itertools.pairwise(values))


def value(panel: Panel, *, of: Any, at: Any = "last") -> float:
    """Return what was measured."""
    costs = _costs(panel, of)
    return _OVER_ALL[at](list(costs.values())) if at in _OVER_ALL else _at(panel, costs, at, of)


def status(panel: Panel, *, of: str, at: Any = "last", among: Sequence[str]) -> float:
    """Return whether a run ended so."""
    points = {point.x: point for point in _points(panel, of)}
    found = points[_place(panel, at, of)]
    if found.status == MISSING:
        raise MissingRowsError(f"{panel.figure}: {of} at {found.x} is not measured")
    return float(found.status in among)


def involved(panel: Panel, name: str, arguments: Mapping[str, Any]) -> list[Point]:
    """Return the points that the answer to a check depends on."""
    said = [arguments[key] for key in ("of", "to") if key in arguments]
    named = [[each] if isinstance(each, str) else list(each) for each in said]
    labels = [label for each in named for label in each]
    if name in ("spread", "exponent") or arguments.get("at") in _OVER_ALL:
        return [point for label in dict.fromkeys(labels) for point in _points(panel, label)]
    # The first and the last x are those that all series have that are looked at together.
    together = {"order": [[label] for label in labels], "change": named, "against": named}.get(name, [labels])
    ends = ("from", "first"), ("until", "last")
    asked = ends if name in ("change", "against") else (("at", "last"),)
    found = []
    for group in together:
        places = [_place(panel, arguments.get(key, end), group) for key, end in asked]
        found += [point for label in group for point in _points(panel, label) if point.x in places]
    return found


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
