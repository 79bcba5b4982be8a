"""Tables for people: aligned columns on a terminal, or Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Return lines, heading first, with the first column to the left and the others to the right.

    >>> print(aligned([["index", "us"], ["scan", "1,000"]]))
    index     us
    scan   1,000
    """
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(_line(line, widths) for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first = cells[0].ljust(widths[0])
    others = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return "  ".join([first, *others]).rstrip()


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Return the same as a Markdown table.

    >>> print(markdown([["index", "us"], ["scan", "1,000"]]))
    | index | us |
    |---|---:|
    | scan | 1,000 |
    """
    rule = "|---" + "|---:" * (len(lines[0]) - 1) + "|"
    heading, *rest = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([heading, rule, *rest])
