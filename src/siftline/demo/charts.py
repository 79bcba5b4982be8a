"""SVG charts for the width of a phone: lines and bars of one colour, with the numbers beside them."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH: Final = 360
_ROW, _BAR = 26, 16
# The approximate width of a letter.
_LETTER: Final = 6.2
_HEIGHT: Final = 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 8, 26, 22


def bars(title: str, rows: Sequence[tuple[str, float, str]]) -> str:
    """Return horizontal bars: label, length, and the text after the bar."""
    most = max((length for _, length, _ in rows), default=0) or 1
    label_width, text_width = 12 + _LETTER * max((len(label) for label, _, _ in rows), default=0), 60
    scale = (WIDTH - label_width - text_width) / most
    parts = []
    for number, (label, length, text) in enumerate(rows):
        y, width = number * _ROW, max(1.0, length * scale)
        parts.append(_text(label_width - 8, y + 17, label, "end"))
        parts.append(_bar(label_width, y + 5, width, _BAR, f"{label}: {text}"))
        parts.append(_text(label_width + width + 6, y + 17, text))
    return _svg(title, len(rows) * _ROW + 4, parts)


def columns(title: str, rows: Sequence[tuple[str, float, str]], *, unit: str, label_every: int = 1) -> str:
    """Return vertical bars: labels below some, heights, and the text above the highest; `unit` is at the top."""
    most = max((height for _, height, _ in rows), default=0) or 1
    inner = _HEIGHT - _TOP - _BOTTOM
    step = (WIDTH - _RIGHT) / max(1, len(rows))
    parts = [_text(0, 10, unit)]
    for number, (label, height, text) in enumerate(rows):
        x, length = number * step, height * (inner - 12) / most
        y = _HEIGHT - _BOTTOM - length
        parts.append(_bar(x + step * 0.1, y, step * 0.8, length, f"{label}: {text}"))
        if height == most:
            middle = min(max(x + step / 2, _LETTER * len(text) / 2), WIDTH - _LETTER * len(text) / 2)
            parts.append(_text(middle, y - 4, text, "middle"))
        if number % label_every == 0:
            parts.append(_text(x + step / 2, _HEIGHT - 7, label, "middle"))
    parts.append(_line(0, _HEIGHT - _BOTTOM, WIDTH - _RIGHT, _HEIGHT - _BOTTOM))
    return _svg(title, _HEIGHT, parts)


def log_curve(title: str, heights: Sequence[float], *, unit: str) -> str:
    """Return a curve of positive heights by rank (from 1) on logarithmic axes; heights are shares of 1."""
    decades_x = math.log10(max(2, len(heights)))
    decades_y = max(1, math.ceil(-math.log10(min(heights, default=0.1))))
    width, height = WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    parts = []
    for decade in range(decades_y + 1):
        y = _TOP + height * decade / decades_y
        parts += [_line(_LEFT, y, WIDTH - _RIGHT, y), _text(_LEFT - 4, y + 4, f"{100 / 10**decade:g} %", "end")]
    for decade in range(int(decades_x) + 1):
        x = _LEFT + width * decade / decades_x
        anchor = "end" if x > WIDTH - 30 else "middle"
        parts.append(_text(x, _HEIGHT - 7, f"{10**decade:,}", anchor))
    points = []
    for rank in _ranks(len(heights)):
        x = _LEFT + width * math.log10(rank) / decades_x
        points.append(f"{x:.1f},{_TOP - height * math.log10(heights[rank - 1]) / decades_y:.1f}")
    parts += [f'<polyline class="curve" points="{" ".join(points)}"/>', _text(0, 10, unit)]
    return _svg(title, _HEIGHT, parts)


def _ranks(n: int) -> list[int]:
    """Return ranks that are about evenly spaced on a logarithmic axis.

    >>> _ranks(5)
    [1, 2, 3, 4, 5]
    """
    return sorted({*range(1, min(n, 10) + 1), *(min(n, round(1.05**power)) for power in range(1, 400)), n} - {0})


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}">\n{body}\n</svg>'


def _bar(x: float, y: float, width: float, height: float, title: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="bar" {place}><title>{escape(title)}</title></rect>'


def _line(x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
