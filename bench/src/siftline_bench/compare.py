"""Two result files side by side, with a noise band.

The passes of a measurement span a range. Where the ranges of old and new overlap, or the medians differ by less than
`LEAST_CHANGE`, the difference is noise: another run could show the opposite.

    old  |----*----|                     old  |---*---|
    new       |-----*-----|   noise      new               |---*---|   slower

The time of building is one number of a row, that of its fastest build: it differs beyond `BUILD_BAND`, unless both take
less than `LEAST_BUILD_S`. Memory is counted and differs beyond `MEMORY_CHANGE`. Rows without these numbers are compared
by their passes alone.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from siftline_bench.results import Row

# Machines drift by this much between runs that each look steady.
LEAST_CHANGE: Final = 0.05
# Of the same builds in two runs of the small figures one in forty differs by more. Short ones tell nothing.
BUILD_BAND: Final = 1.5
LEAST_BUILD_S: Final = 0.005
MEMORY_CHANGE: Final = 0.01

# Rows are of the same thing if these are equal.
_KEYS: Final = ("workload", "parameters", "seed", "version", "index", "options", "mode", "n_events", "unit")


@dataclass(frozen=True)
class Comparison:
    """One number in both files: the median of the passes, the time of building, or memory.

    `ratio` is new / old cost: above 1 is worse, whether the unit is a time or a rate. `least` and `most` bound it by
    the extreme passes, or by the noise band. `words` say what worse and better are called.
    """

    label: str
    unit: str
    old: float
    new: float
    ratio: float
    least: float
    most: float
    is_same_machine: bool
    least_change: float = LEAST_CHANGE
    words: tuple[str, str] = ("slower", "faster")

    @property
    def is_noise(self) -> bool:
        """Whether another run could show the opposite."""
        return self.least <= 1 <= self.most or abs(self.ratio - 1) < self.least_change

    @property
    def is_worse(self) -> bool:
        """Whether it got slower or larger beyond the noise."""
        return not self.is_noise and self.ratio > 1

    @property
    def verdict(self) -> str:
        """`noise`, `slower` or `faster`; of memory `larger` or `smaller`."""
        return "noise" if self.is_noise else self.words[0 if self.is_worse else 1]


def compare(old: Iterable[Row], new: Iterable[Row]) -> tuple[list[Comparison], list[str]]:
    """Return the comparisons of what is in both, and labels of what is in one only.

    Of rows that measure the same thing the last one counts, or all rounds of a figure's run since the last first one.
    """
    olds, news = _latest(old), _latest(new)
    both = [each for key, row in news.items() if key in olds for each in _comparisons(olds[key], row)]
    lonely = [f"{_label(row)} (only in old)" for key, row in olds.items() if key not in news]
    lonely += [f"{_label(row)} (only in new)" for key, row in news.items() if key not in olds]
    return both, lonely


def ended_early(old: Iterable[Row], new: Iterable[Row]) -> list[str]:
    """Return what had times in old, and in new has only how it ended: timed out, out of memory, unsupported."""
    olds, news = _latest(old), _rounds(new)
    ends = {key: rounds[-1] for key, rounds in news.items() if not any(row.get("passes") for row in rounds)}
    return [f"{_label(row)}: now {row.get('status', 'without times')}" for key, row in ends.items() if key in olds]


def _rounds(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the rows of each measurement since it was last begun."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        rounds = found.setdefault(_identity(row), [])
        if row.get("round", 1) == 1:
            rounds.clear()
        rounds.append(row)
    return found


def _latest(rows: Iterable[Row]) -> dict[str, Row]:
    """Return a row for each measurement: its last one, or its rounds in one."""
    found = _rounds(rows)
    measured = {name: [row for row in rounds if row.get("passes")] for name, rounds in found.items()}
    return {name: _in_one(rounds) for name, rounds in measured.items() if rounds}


def _in_one(rounds: Sequence[Row]) -> Row:
    """Return the last round, with the passes of all and the least time of building: disturbances make it longer."""
    passes = [value for row in rounds for value in row["passes"]]
    builds = [row["index_s"] for row in rounds if row.get("index_s")]
    return {**rounds[-1], "passes": passes, "index_s": min(builds, default=0.0)}


def _identity(row: Row) -> str:
    """Name what a row measures; rows of figures say so themselves."""
    return str(row["run"]) if "run" in row else json.dumps([row.get(key) for key in _KEYS], sort_keys=True)


def _comparisons(old: Row, new: Row) -> list[Comparison]:
    """Compare all numbers that both rows have; 0 stands for what was not measured."""
    found = [_of_passes(old, new)]
    builds, sizes = ((old.get(column) or 0, new.get(column) or 0) for column in ("index_s", "index_bytes"))
    if all(builds) and max(builds) > LEAST_BUILD_S:
        found.append(_of_building(old, new))
    if all(sizes):
        found.append(_of_memory(old, new))
    return found


def _of_passes(old: Row, new: Row) -> Comparison:
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


def _of_building(old: Row, new: Row) -> Comparison:
    ratio = new["index_s"] / old["index_s"]
    return Comparison(
        label=_label(new),
        unit="s to build",
        old=old["index_s"],
        new=new["index_s"],
        ratio=ratio,
        least=ratio / BUILD_BAND,
        most=ratio * BUILD_BAND,
        is_same_machine=old.get("machine") == new.get("machine"),
    )


def _of_memory(old: Row, new: Row) -> Comparison:
    ratio = new["index_bytes"] / old["index_bytes"]
    return Comparison(
        label=_label(new),
        unit="MB",
        old=old["index_bytes"] / 1e6,
        new=new["index_bytes"] / 1e6,
        ratio=ratio,
        least=ratio,
        most=ratio,
        is_same_machine=old.get("machine") == new.get("machine"),
        least_change=MEMORY_CHANGE,
        words=("larger", "smaller"),
    )


def _costs(passes: Sequence[float], is_rate: bool) -> list[float]:
    return [1 / value for value in passes] if is_rate else list(passes)


def _label(row: Row) -> str:
    """Say what a row measures; of a figure's row also where, because runs may differ in nothing else that is said."""
    options = "".join(f" {key}={value}" for key, value in dict(row.get("options") or {}).items())
    size = (row.get("parameters") or {}).get("n_subscriptions")
    words = f"{row['workload']}{f' {size:,}' if size else ''} {row.get('index', '')}{options} {row.get('mode', '')}"
    place = f"{row['figure']} at {row['x']}: " if "figure" in row and "x" in row else ""
    return f"{place}{words}".strip()


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


def counts(comparisons: Sequence[Comparison]) -> str:
    """Say how many numbers were compared, and how many have which verdict."""
    found = Counter(comparison.verdict for comparison in comparisons)
    words = [f"{found[word]:,} {word}" for word in ("slower", "larger", "faster", "smaller", "noise") if found[word]]
    return f"{len(comparisons):,} numbers compared: {', '.join(words)}"
