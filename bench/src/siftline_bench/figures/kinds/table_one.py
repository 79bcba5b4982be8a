"""Steps and entries of the structures of the PB+tree paper's Table 1, see `storage.py`: no times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from siftline_bench.storage import measured_structure

if TYPE_CHECKING:
    from pathlib import Path

    from siftline_bench.figures.figure import Run
    from siftline_bench.results import Row


def prepare(run: Run, cache: Path | None) -> None:
    """Nothing is shared: predicates are drawn anew for each structure, from the same seed."""


def use_once(ground: Any, run: Run) -> None:
    """Nothing is compiled."""


def measure(ground: Any, run: Run) -> Row:
    """Insert, search and delete; what a search finds is compared with a scan."""
    found = measured_structure(run.workload, run.choice.index, run.parameters["n"], run.seed)
    # What a search must report is no work of the structure.
    found["search_steps_but_results"] = found["search_steps"] - found["L"]
    return {"mode": "steps", "status": "ok", "unit": "steps", "passes": [found["search_steps"]], **found}
