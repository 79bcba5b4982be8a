"""Which of many intervals contain a point: the structures of the PS-Tree paper's Table 3.

Locating, where a structure has places, and listing the ids are timed apart; both cover all points of a call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.indexes.ps_tree import PsTree
from siftline_bench.errors import WrongIdsError
from siftline_bench.figures.kinds.matching import drawn
from siftline_bench.measure import time_once
from siftline_bench.structures.interval_tree import IntervalTree
from siftline_bench.structures.intervals import IntervalScan
from siftline_bench.structures.segment_tree import SegmentTree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from siftline_bench.figures.figure import Run
    from siftline_bench.results import Row

_STRUCTURES: Final[dict[str, Any]] = {
    "scan": IntervalScan,
    "interval-tree": IntervalTree,
    "segment-tree": SegmentTree,
    "ps-tree": PsTree,
}
_WARM_UP_INTERVALS: Final = 50


class Ground(NamedTuple):
    """Intervals, points, and how many intervals contain each point."""

    lows: NDArray[np.int64]
    highs: NDArray[np.int64]
    points: NDArray[np.int64]
    counts: NDArray[np.int64]


def prepare(run: Run, cache: Path | None) -> Ground:
    """Draw intervals and points, and count by a scan."""
    workload = drawn(run, cache)
    lows, highs = (workload.predicates[name].to_numpy() for name in ("number", "upper"))
    points = workload.values["number"].to_numpy()
    return Ground(lows, highs, points, IntervalScan.build(lows, highs).count_many(points))


def use_once(ground: Any, run: Run) -> None:
    """Have the kernels compiled."""
    few = _STRUCTURES[run.choice.index].build(ground.lows[:_WARM_UP_INTERVALS], ground.highs[:_WARM_UP_INTERVALS])
    _locate(few, ground.points[:_WARM_UP_INTERVALS])
    few.query_many(ground.points[:_WARM_UP_INTERVALS])


def measure(ground: Any, run: Run) -> Row:
    """Build and ask for all points several times; the fastest build counts, and the median of the rest."""
    build = _STRUCTURES[run.choice.index].build
    structure = build(ground.lows, ground.highs)
    _check(structure, ground)
    builds = _timed(lambda: build(ground.lows, ground.highs), run.settings.passes)
    locates = _timed(lambda: _locate(structure, ground.points), run.settings.passes)
    queries = _timed(lambda: structure.query_many(ground.points), run.settings.passes)
    return {
        "mode": "points",
        "status": "ok",
        "unit": "ms",
        "tree_ms": min(builds),
        "trees_ms": builds,
        "locate_ms": float(np.median(locates)),
        "query_ms": float(np.median(queries)),
        "locates_ms": locates,
        "passes": queries,
        "matches_each": float(ground.counts.mean()),
        "index_bytes": sum(structure.stats()["bytes"].values()),
    }


def _timed(work: Callable[[], Any], n_passes: int) -> list[float]:
    return [time_once(work).seconds * 1e3 for _ in range(n_passes)]


def _locate(structure: Any, points: NDArray[np.int64]) -> Any:
    """Say where points lie; a structure without places counts the intervals."""
    if isinstance(structure, PsTree):
        return structure.match_many(points)
    return structure.locate_many(points) if isinstance(structure, SegmentTree) else structure.count_many(points)


def _check(structure: Any, ground: Ground) -> None:
    """Compare the ids of some points, and the numbers of ids of all."""
    starts, ids = structure.query_many(ground.points)
    if not np.array_equal(np.diff(starts), ground.counts):
        raise WrongIdsError("a structure finds other numbers of intervals than a scan")
    for i, point in enumerate(ground.points[:_WARM_UP_INTERVALS]):
        expected = np.flatnonzero((ground.lows <= point) & (point <= ground.highs))
        if not np.array_equal(np.sort(ids[starts[i] : starts[i + 1]]), expected):
            raise WrongIdsError(f"a structure finds other intervals around {point} than a scan")
