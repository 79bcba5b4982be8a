"""Matching times told at one speed of the machine: a shared one is up to twice as fast in one second as in the next.

`fast-scan` takes turns with the index, over the same events, and is disturbed as much. So a row's time is divided by
how much longer the scan took beside it than it takes on that workload at best: in its fastest pass of all rows, or of
all rows of the same round where what rounds say alone is compared. Of several estimates of that the least is the one
that differs least between two measurements of everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from siftline.bench.results import Rounds, Row


def steadied(rows: Rounds) -> dict[str, list[Row]]:
    """Return the rows, each with what its matching time is to be multiplied by.

    That is the column `speed`, and `speed_of_round` for what a round says alone.
    """
    best: dict[Any, float] = {}
    for rounds in rows.values():
        for number, row in enumerate(rounds):
            if _scan_us(row):
                least = row.get("fast_scan_least_us") or _scan_us(row)
                for place in (row["ground"], (row["ground"], number)):
                    best[place] = min(least, best.get(place, least))
    return {run: [_told(row, number, best) for number, row in enumerate(rounds)] for run, rounds in rows.items()}


def _told(row: Row, number: int, best: Mapping[Any, float]) -> Row:
    scan = _scan_us(row)
    if not scan:
        return {**row, "speed": 1.0, "speed_of_round": 1.0}
    return {**row, "speed": best[row["ground"]] / scan, "speed_of_round": best[row["ground"], number] / scan}


def _scan_us(row: Row) -> float:
    """Return what `fast-scan` took for the same events by turns; 0 if it did not take part."""
    ratio = row.get("times_faster_than_fast_scan")
    return float(row["match_us"]["median"] * ratio) if ratio else 0.0
