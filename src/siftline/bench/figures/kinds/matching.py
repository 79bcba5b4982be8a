"""Building, memory and the time of a match: each index in turn with `fast-scan`, over the same events."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from siftline.bench.results import columns
from siftline.bench.runner import REFUSALS, Plan, Standing, use_engine_once
from siftline.bench.workloads import Workload, cached, make_parameters

if TYPE_CHECKING:
    from pathlib import Path

    from siftline.bench.figures.figure import Run
    from siftline.bench.results import Row


# Small indexes are built in milliseconds: several times, so that one that was disturbed does not count.
_REBUILD_BOX_S: Final = 0.3


def prepare(run: Run, cache: Path | None) -> Standing:
    """Draw the workload and build `fast-scan` over it."""
    return Standing(drawn(run, cache), plan(run))


def drawn(run: Run, cache: Path | None) -> Workload:
    """Draw the workload of a run, or read it from the cache."""
    return cached(run.workload, make_parameters(run.workload, **run.parameters), run.seed, cache)


def plan(run: Run) -> Plan:
    """Return how the settings of a run are said to the runner."""
    settings = run.settings
    return Plan(
        n_passes=settings.passes,
        rebuild_box_s=_REBUILD_BOX_S,
        least_s=settings.least_s,
        pass_box_s=settings.pass_box_s,
        check_box_s=settings.check_box_s,
    )


def use_once(ground: Any, run: Run) -> None:
    """Build the index over a few subscriptions; one that refuses them will say so when it is measured."""
    with suppress(*REFUSALS):
        use_engine_once(run.choice.engine(), ground.workload)


def measure(ground: Any, run: Run) -> Row:
    """Measure one index."""
    measured = ground.measure(run.choice)
    row = columns(measured)
    if measured.passes is not None:
        row["matches_each"] = measured.n_matches / max(1, measured.n_events)
    return row
