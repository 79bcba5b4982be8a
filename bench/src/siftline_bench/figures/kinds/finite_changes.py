"""As `changes`, for `counting` with publication types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from siftline_bench.figures.kinds import changes
from siftline_bench.figures.kinds.finite_domains import prepare, typed, use_once

if TYPE_CHECKING:
    from siftline_bench.figures.figure import Run
    from siftline_bench.results import Row

__all__ = ["measure", "prepare", "use_once"]


def measure(ground: Any, run: Run) -> Row:
    """Add and remove; the row has the options as the figure says them."""
    return {**changes.measure(ground, typed(run)), "options": dict(run.choice.options)}
