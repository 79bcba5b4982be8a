"""Adds and matches that alternate, see `bench/interleaving.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from siftline.bench.figures.kinds.matching import drawn, use_once
from siftline.bench.interleaving import Alternation
from siftline.bench.results import columns

__all__ = ["measure", "prepare", "use_once"]

if TYPE_CHECKING:
    from pathlib import Path

    from siftline.bench.figures.figure import Run
    from siftline.bench.results import Row


def prepare(run: Run, cache: Path | None) -> Alternation:
    """Draw the workload and find with `fast-scan` what must be found."""
    return Alternation(drawn(run, cache), run.settings.passes)


def measure(ground: Any, run: Run) -> Row:
    """Alternate with one index."""
    return columns(ground.measure(run.choice))
