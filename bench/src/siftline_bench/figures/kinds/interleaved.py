"""Adds and matches that alternate, see `interleaving.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from siftline_bench.figures.kinds.matching import drawn, use_once
from siftline_bench.interleaving import Alternation
from siftline_bench.results import columns

__all__ = ["measure", "prepare", "use_once"]

if TYPE_CHECKING:
    from pathlib import Path

    from siftline_bench.figures.figure import Run
    from siftline_bench.results import Row


def prepare(run: Run, cache: Path | None) -> Alternation:
    """Draw the workload and find with `fast-scan` what must be found."""
    return Alternation(drawn(run, cache), run.settings.passes)


def measure(ground: Any, run: Run) -> Row:
    """Alternate with one index."""
    return columns(ground.measure(run.choice))
