"""Matching times told at one speed of the machine: a shared one is up to twice as fast in one second as in the next.

`fast-scan` takes turns with the index, over the same events, and is disturbed as much. So a row's time is divided by
how much longer the scan took beside it than it takes on that workload at best.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from siftline.bench.results import Row


def steadied(rows: Mapping[str, Row]) -> dict[str, Row]:
    """Return the rows, each with what its matching time is to be multiplied by, in the column `speed`."""
    scans = {key: _scan_us(row) for key, row in rows.items() if row.get("times_faster_than_fast_scan")}
    best: dict[str, float] = {}
    for key, scan in scans.items():
        ground = rows[key]["ground"]
        best[ground] = min(scan, best.get(ground, scan))
    speeds = {key: best[rows[key]["ground"]] / scan for key, scan in scans.items()}
    return {key: {**row, "speed": speeds.get(key, 1.0)} for key, row in rows.items()}


def _scan_us(row: Row) -> float:
    """Return what `fast-scan` took for the same events by turns."""
    return float(row["match_us"]["median"] * row["times_faster_than_fast_scan"])
