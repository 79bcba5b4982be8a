"""Adds and removes one by one, of other subscriptions of the same workload, see `updates.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from siftline_bench.checks import check_same, find_all
from siftline_bench.figures.kinds.matching import prepare, use_once
from siftline_bench.measure import Spread
from siftline_bench.readings import Bench, Sizes
from siftline_bench.runner import REFERENCE, REFUSALS, refusal
from siftline_bench.updates import one_by_one

__all__ = ["measure", "prepare", "use_once"]

if TYPE_CHECKING:
    from siftline_bench.figures.figure import Run
    from siftline_bench.results import Row

_SHARE: Final = 20  # of the subscriptions, one in this many is added and removed again


def measure(ground: Any, run: Run) -> Row:
    """Add and remove; then the index must find what it found without."""
    workload = ground.workload
    sizes = Sizes(n_changes=max(1, workload.n_subscriptions // _SHARE), pass_box_s=10 * run.settings.pass_box_s)
    bench = Bench(workload, run.choice, sizes)
    row: Row = {"index": run.choice.index, "options": dict(run.choice.options), "mode": "changes"}
    try:
        adds, removes = one_by_one(bench)
    except REFUSALS as error:
        refused = refusal(run.choice, "changes", error)
        return {**row, "status": refused.status, "reason": refused.reason}
    check_same(run.choice.label, find_all(bench.engine, workload.dicts[: len(ground.found)]), ground.found, REFERENCE)
    return {
        **row,
        "status": "ok",
        "unit": "us",
        "add_us": Spread.of(adds.samples).as_dict(),
        "remove_us": Spread.of(removes.samples).as_dict(),
        "passes": list(adds.samples),
        "remove_passes": list(removes.samples),
    }
