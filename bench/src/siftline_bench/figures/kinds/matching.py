"""Building, memory and the time of a match: each index in turn with `fast-scan`, over the same events.

An index that refuses to get too large may take half of the memory that a run has, if that is more than it would take.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from siftline.indexes.registry import make_index
from siftline_bench.results import columns
from siftline_bench.runner import REFUSALS, Plan, Standing, use_engine_once
from siftline_bench.workloads import Workload, cached, make_parameters

if TYPE_CHECKING:
    from pathlib import Path

    from siftline_bench.figures.figure import Run
    from siftline_bench.results import Row
    from siftline_bench.runner import Choice


# Small indexes are built in milliseconds: several times, so that one that was disturbed does not count.
_REBUILD_BOX_S: Final = 0.3
_LIMIT: Final = "memory_limit_mb"


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
    measured = ground.measure(with_room(run))
    row = {**columns(measured), "options": dict(run.choice.options)}
    if measured.passes is not None:
        row["matches_each"] = measured.n_matches / max(1, measured.n_events)
    return row


def with_room(run: Run) -> Choice:
    """Return the index of a run, with half of the run's memory as its limit, unless it has none or a larger one.

    >>> from siftline_bench.figures import figures
    >>> [with_room(run).label for run in figures()["opindex-1"].runs("paper")[:2]]
    ['op-index', 'k-index:memory_limit_mb=11000']
    """
    options = dict(run.choice.options)
    known = inspect.signature(type(make_index(run.choice.index, options))).parameters
    if _LIMIT not in known or _LIMIT in options:
        return run.choice
    limit_mb = max(known[_LIMIT].default, int(run.settings.memory_mb / 2))
    return replace(run.choice, options={**options, _LIMIT: limit_mb})
