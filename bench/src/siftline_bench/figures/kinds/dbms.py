"""Loading and matching with databases beside `counting`, see `storage_dbms.py`: events are matched as dicts."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline_bench.checks import Found, check_same, find_all
from siftline_bench.figures.kinds.finite_domains import typed
from siftline_bench.figures.kinds.matching import drawn
from siftline_bench.measure import interleaved, time_each
from siftline_bench.runner import REFERENCE, REFUSALS, Choice, refusal, use_engine_once
from siftline_bench.storage_dbms import loaded

if TYPE_CHECKING:
    from pathlib import Path

    from siftline_bench.figures.figure import Run
    from siftline_bench.results import Row
    from siftline_bench.workloads import Workload

_N_LOADS: Final = 2
_MODE: Final = "dicts"


class Ground(NamedTuple):
    """A workload and the ids of its events."""

    workload: Workload
    found: Found


def prepare(run: Run, cache: Path | None) -> Ground:
    """Draw the workload and ask `fast-scan`."""
    workload = drawn(run, cache)
    engine = Choice(REFERENCE).engine()
    engine.add_many(workload.predicates)
    return Ground(workload, find_all(engine, workload.dicts))


def use_once(ground: Any, run: Run) -> None:
    """Have the kernels compiled, and the library of a database loaded; what refuses will say so when it is measured."""
    with suppress(*REFUSALS):
        use_engine_once(typed(run).choice.engine(), ground.workload)


def measure(ground: Any, run: Run) -> Row:
    """Load an engine twice, check it, and match all events as often as there are passes; or return why it refused."""
    choice = typed(run).choice
    events = ground.workload.dicts
    try:
        engine, loads = loaded(choice.index, dict(choice.options), ground.workload, _N_LOADS)
        found = find_all(engine, events)
    except REFUSALS as error:
        refused = refusal(choice, _MODE, error)
        return {"mode": _MODE, "status": refused.status, "reason": refused.reason}
    check_same(choice.index, found, ground.found, REFERENCE)
    (passes,) = interleaved([lambda: time_each(engine.match, events)], run.settings.passes, run.settings.least_s)
    stats = engine.stats()
    return {
        "mode": _MODE,
        "status": "ok",
        "unit": "us",
        "n_events": len(events),
        "n_matches": sum(map(len, ground.found)),
        "load_s": min(loads),
        "loads_s": loads,
        "match_us": passes.per_event_us().as_dict(),
        "all_us": passes.all_us().as_dict(),
        "passes": passes.pass_medians_us(),
        "processor_share": passes.processor_share,
        "index_bytes": sum(stats["bytes"].values()),
        "distinct_predicates": stats.get("distinct_predicates"),
    }
