"""Matching times told at one speed of the machine: a shared one is up to twice as fast in one second as in the next.

`fast-scan` takes turns with the index, over the same events, and is disturbed as much. So a row's time is divided by
how much longer the scan took beside it than it takes on that workload at best. That is its fastest pass of a round, and
of several rounds the median: in one of them it may have been lucky with its memory. Of several estimates this one
differs least between two measurements of everything.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from siftline_bench.results import Rounds, Row


def steadied(rows: Rounds) -> dict[str, list[Row]]:
    """Return the rows, each with what its matching time is to be multiplied by.

    That is the column `speed`, and `speed_of_round` for what a round says alone.
    """
    best: dict[str, dict[int, float]] = {}
    for number, row in ((number, row) for rounds in rows.values() for number, row in enumerate(rounds)):
        if _scan_us(row):
            least = row.get("fast_scan_least_us") or _scan_us(row)
            of_ground = best.setdefault(row["ground"], {})
            of_ground[number] = min(least, of_ground.get(number, least))
    return {run: [_told(row, number, best) for number, row in enumerate(rounds)] for run, rounds in rows.items()}


def _told(row: Row, number: int, best: Mapping[str, Mapping[int, float]]) -> Row:
    scan = _scan_us(row)
    if not scan:
        return {**row, "speed": 1.0, "speed_of_round": 1.0}
    of_ground = best[row["ground"]]
    return {**row, "speed": median(of_ground.values()) / scan, "speed_of_round": of_ground[number] / scan}


def _scan_us(row: Row) -> float:
    """Return what `fast-scan` took for the same events by turns; 0 if it did not take part."""
    ratio = row.get("times_faster_than_fast_scan")
    return float(row["match_us"]["median"] * ratio) if ratio else 0.0
