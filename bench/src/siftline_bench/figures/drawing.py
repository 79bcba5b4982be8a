"""A figure as SVG, in the paper's axes: lines, or bars where x is text. Markers tell series apart in grey, too."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

from siftline_bench.figures.panels import MISSING, panel
from siftline_bench.plots import set_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from siftline_bench.figures.figure import Axis, Figure
    from siftline_bench.figures.panels import Panel, Point
    from siftline_bench.results import Rounds

_WIDTH: Final = 4.6
_HEIGHT: Final = 3.6
_MOST_COLUMNS: Final = 2
# This many letters fit below a panel, and a mark in the legend is as wide as this many.
_LETTERS: Final = 62
_LETTERS_OF_MARK: Final = 9
_MARKERS: Final = "osv^D*Pxh8<>"
_DASHES: Final = ("-", "--", "-.", ":")
_HATCHES: Final = ("", "///", "...", "xx", "\\\\\\", "++", "oo", "**")
# From dark to light, so that a copy in grey keeps them apart; the extra line of this project is the darkest.
_COLOURS: Final = ("#0d2954", "#781e18", "#65327d", "#138065", "#bf4377", "#3e92cf", "#eb7d17", "#66cc70", "#dbba42")
_OURS: Final = "sift"


def svg(figure: Figure, scale: str, rows: Rounds, seed: int = 0) -> str:
    """Return a picture of all panels of a figure."""
    from matplotlib.figure import Figure as Canvas

    set_up(salt=f"siftline {figure.name}")  # pictures of one page must not share names
    n_columns = min(len(figure.y), _MOST_COLUMNS)
    n_lines = -(-len(figure.y) // n_columns)
    canvas = Canvas(figsize=(_WIDTH * n_columns, _HEIGHT * n_lines), layout="constrained")
    for place, y in enumerate(figure.y, 1):
        axes = canvas.add_subplot(n_lines, n_columns, place)
        assert y.measure is not None
        _draw(axes, figure, y, panel(figure, y.measure, scale, rows, seed))
    handles, labels = canvas.axes[0].get_legend_handles_labels()
    widest = max(len(label) for label in labels)
    n_beside = max(1, min(len(labels), int(_LETTERS * n_columns / (widest + _LETTERS_OF_MARK))))
    canvas.legend(handles, labels, loc="outside lower center", ncols=n_beside, fontsize="small", frameon=False)
    written = io.StringIO()
    canvas.savefig(written, format="svg", metadata={"Date": None})
    text = written.getvalue()
    return text[text.index("<svg") :]


def _draw(axes: Any, figure: Figure, y: Axis, shown: Panel) -> None:
    is_text = any(isinstance(point.x, str) for points in shown.series.values() for point in points)
    (_draw_bars if is_text else _draw_lines)(axes, shown)
    if not is_text:
        _mark_xs(axes, figure.x.is_log, shown)
    if y.is_log and any(point.value for points in shown.series.values() for point in points):
        axes.set_yscale("log")
    elif not y.is_log:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(figure.x.label)
    axes.set_ylabel(y.label)
    axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def _mark_xs(axes: Any, is_log: bool, shown: Panel) -> None:
    """Put ticks where runs are, and nowhere else."""
    if is_log:
        axes.set_xscale("log")
    xs = sorted({point.x for points in shown.series.values() for point in points})
    axes.set_xticks(xs, [short(x) for x in xs])
    axes.set_xticks([], minor=True)


def short(x: float) -> str:
    """Return a number as axes have it.

    >>> short(80_000), short(2_500_000), short(0.5), short(12_800)
    ('80K', '2.5M', '0.5', '12.8K')
    """
    for unit, letter in ((1e6, "M"), (1e3, "K")):
        if x >= unit:
            return f"{x / unit:g}{letter}"
    return f"{x:g}"


def _style(number: int, label: str) -> dict[str, Any]:
    if label.startswith(_OURS):
        marker, linestyle = ("o", "-") if label == _OURS else ("s", ":")
        return {"color": "black", "linewidth": 2.0, "marker": marker, "linestyle": linestyle, "markersize": 5}
    return {
        "color": _COLOURS[number % len(_COLOURS)],
        "linewidth": 1.3,
        "marker": _MARKERS[(number + 1) % len(_MARKERS)],
        "linestyle": _DASHES[number % len(_DASHES)],
        "markersize": 5,
    }


def _draw_lines(axes: Any, shown: Panel) -> None:
    for number, (label, points) in enumerate(shown.series.items()):
        measured = [point for point in points if point.value is not None]
        xs, values = [point.x for point in measured], [point.value for point in measured]
        axes.plot(xs, values, label=_label(label, points), fillstyle="none", **_style(number, label))


def _draw_bars(axes: Any, shown: Panel) -> None:
    names = list(dict.fromkeys(point.x for points in shown.series.values() for point in points))
    width = 0.8 / max(1, len(shown.series))
    for number, (label, points) in enumerate(shown.series.items()):
        measured = [point for point in points if point.value is not None]
        places = [names.index(point.x) + (number + 0.5) * width - 0.4 for point in measured]
        colour = _style(number, label)["color"]
        hatch = "" if label.startswith(_OURS) else _HATCHES[number % len(_HATCHES)]
        fill = colour if label.startswith(_OURS) else "white"
        values = [point.value for point in measured]
        axes.bar(places, values, width, label=_label(label, points), color=fill, edgecolor=colour, hatch=hatch)
    axes.set_xticks(range(len(names)), names)


def _label(label: str, points: Sequence[Point]) -> str:
    """Return the name of a series, with what became of the runs that have no value."""
    ends: dict[str, list[str]] = {}
    for point in points:
        if point.value is None and point.status != MISSING:
            ends.setdefault(point.status, []).append(point.x if isinstance(point.x, str) else short(point.x))
    return label + "".join(f" ({status}: {', '.join(xs)})" for status, xs in ends.items())
