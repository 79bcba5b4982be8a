"""Matching times told at one speed of the machine: a shared one is up to twice as fast in one second as in the next.

`fast-scan` takes turns with the index, over the same events, and is disturbed as much. So a row's time is divided by
how much longer the scan took beside it than it takes on that workload at best, in all rounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from siftline.bench.results import Rounds, Row


def steadied(rows: Rounds) -> dict[str, list[Row]]:
    """Return the rows, each with what its matching time is to be multiplied by, in the column `speed`."""
    best: dict[str, float] = {}
    for row in (row for rounds in rows.values() for row in rounds):
        if scan := _scan_us(row):
            best[row["ground"]] = min(scan, best.get(row["ground"], scan))
    return {run: [{**row, "speed": _speed(row, best)} for row in rounds] for run, rounds in rows.items()}


def _speed(row: Row, best: Mapping[str, float]) -> float:
    scan = _scan_us(row)
    return best[row["ground"]] / scan if scan else 1.0


def _scan_us(row: Row) -> float:
    """Return what `fast-scan` took for the same events by turns; 0 if it did not take part."""
    ratio = row.get("times_faster_than_fast_scan")
    return float(row["match_us"]["median"] * ratio) if ratio else 0.0
