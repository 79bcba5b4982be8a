"""Two result files side by side, with a noise band.

The passes of a measurement span a range. Where the ranges of old and new overlap, or the medians differ by less than
`LEAST_CHANGE`, the difference is noise: another run could show the opposite.

    old  |----*----|                     old  |---*---|
    new       |-----*-----|   noise      new               |---*---|   slower
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from siftline.bench.results import Row

# Machines drift by this much between runs that each look steady.
LEAST_CHANGE: Final = 0.05

# Rows are of the same thing if these are equal.
_KEYS: Final = ("workload", "parameters", "seed", "version", "index", "options", "mode", "n_events", "unit")


@dataclass(frozen=True)
class Comparison:
    """One measurement in both files.

    `ratio` is new / old cost: above 1 is worse, whether the unit is a time or a rate. `least` and `most` bound it by
    the extreme passes.
    """

    label: str
    unit: str
    old: float
    new: float
    ratio: float
    least: float
    most: float
    is_same_machine: bool

    @property
    def verdict(self) -> str:
        """`noise`, `slower` or `faster`."""
        if self.least <= 1 <= self.most or abs(self.ratio - 1) < LEAST_CHANGE:
            return "noise"
        return "slower" if self.ratio > 1 else "faster"


def compare(old: Iterable[Row], new: Iterable[Row]) -> tuple[list[Comparison], list[str]]:
    """Return the comparisons of what is in both, and labels of what is in one only.

    Of rows that measure the same thing the last one counts, or all rounds of a figure's run since the last first one.
    """
    olds, news = _latest(old), _latest(new)
    both = [_comparison(olds[key], row) for key, row in news.items() if key in olds]
    lonely = [f"{_label(row)} (only in old)" for key, row in olds.items() if key not in news]
    lonely += [f"{_label(row)} (only in new)" for key, row in news.items() if key not in olds]
    return both, lonely


def _latest(rows: Iterable[Row]) -> dict[str, Row]:
    """Return the last row of each measurement, with the passes of all its rounds."""
    found: dict[str, Row] = {}
    for row in rows:
        before = found.get(_identity(row)) if row.get("round", 1) > 1 else None
        passes = [*(before["passes"] if before else []), *row.get("passes", [])]
        found[_identity(row)] = {**row, "passes": passes}
    return {name: row for name, row in found.items() if row["passes"]}


def _identity(row: Row) -> str:
    """Name what a row measures; rows of figures say so themselves."""
    return str(row["run"]) if "run" in row else json.dumps([row.get(key) for key in _KEYS], sort_keys=True)


def _comparison(old: Row, new: Row) -> Comparison:
    is_rate = bool(new.get("is_rate"))
    old_costs, new_costs = _costs(old["passes"], is_rate), _costs(new["passes"], is_rate)
    return Comparison(
        label=_label(new),
        unit=str(new.get("unit", "")),
        old=median(old["passes"]),
        new=median(new["passes"]),
        ratio=median(new_costs) / median(old_costs),
        least=min(new_costs) / max(old_costs),
        most=max(new_costs) / min(old_costs),
        is_same_machine=old.get("machine") == new.get("machine"),
    )


def _costs(passes: Sequence[float], is_rate: bool) -> list[float]:
    return [1 / value for value in passes] if is_rate else list(passes)


def _label(row: Row) -> str:
    options = "".join(f" {key}={value}" for key, value in dict(row.get("options") or {}).items())
    size = (row.get("parameters") or {}).get("n_subscriptions")
    return (
        f"{row['workload']}{f' {size:,}' if size else ''} {row.get('index', '')}{options} {row.get('mode', '')}".strip()
    )


def table(comparisons: Sequence[Comparison]) -> list[list[Any]]:
    """Return the lines of a table, heading first."""
    heading = ["measurement", "old", "new", "unit", "new / old cost", "between", ""]
    lines = [
        [
            c.label,
            f"{c.old:,.4g}",
            f"{c.new:,.4g}",
            c.unit,
            f"{c.ratio:.2f}",
            f"{c.least:.2f} .. {c.most:.2f}",
            c.verdict,
        ]
        for c in comparisons
    ]
    return [heading, *lines]
