"""What is measured of real rules, with what it must reach; rows and tables of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from siftline_bench.foundation import Figure
from siftline_bench.results import circumstances
from siftline_bench.targets import Target, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from siftline_bench.measure import Timed
    from siftline_bench.real_rules.data import EventFile
    from siftline_bench.results import Row

RULES: Final = "rules"
OURS: Final = "sift"
# What figures are called.
BATCHES, SINGLES, TAIL = "us an event in batches of JSON", "us an event one by one", "p99 / median one by one"
DICTS, ARROW = "us an event in batches of dicts", "us an event in batches of an Arrow table of JSON"
READING, ADDING, MEMORY = "s to read_rules", "s to add_many", "MB above the imported process"
# What others take, for a whole query or scan.
ELSEWHERE: Final = "us an event"
TIMES_DUCKDB: Final = "x DuckDB, batches of JSON"
WITH_COMMAND_LINE: Final = ", with a command line"
OF_COPIES: Final = "x the time of one copy"

_EVENTS_AT_MOST: Final = {BATCHES: 15.0, SINGLES: 25.0, TAIL: 6.0}
_COMMAND_LINES_AT_MOST: Final = {BATCHES: 40.0, SINGLES: 60.0}
_REGRESSION_AT_MOST: Final = {BATCHES: 80.0}
OF_RULES_AT_MOST: Final = {READING: 10.0, ADDING: 2.0, MEMORY: 300.0}
DUCKDB_AT_LEAST: Final = 25.0
COPIES_AT_MOST: Final = 3.0
# The targets are about so many copies.
TARGET_COPIES: Final = 27


@dataclass(frozen=True)
class Found:
    """A figure of one index on some events.

    Attributes
    ----------
    workload : str
        The file of events, and which of them; `rules` for what needs no events.
    index : str
        `sift`, or what it is compared with.
    figure : Figure
    facts : dict
        What a row says beside it.
    """

    workload: str
    index: str
    figure: Figure
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_missed(self) -> bool:
        """Whether it has a target, and does not reach it."""
        return self.figure.verdict == "missed"


def targets_of(file: EventFile, n_with_command_line: int) -> dict[str, float]:
    """Return what events of a file may take at most: attacks and command lines are what most rules are about."""
    if file.is_regression:
        return _REGRESSION_AT_MOST
    return _COMMAND_LINES_AT_MOST if n_with_command_line == len(file.timed) else _EVENTS_AT_MOST


def targets_with_command_line(file: EventFile) -> dict[str, float]:
    """Return what those events of a file may take at most that have a command line."""
    return {} if file.is_regression else _COMMAND_LINES_AT_MOST


def of_passes(name: str, unit: str, factor: float, timed: Sequence[Timed], target: float | None = None) -> Figure:
    """Return the figure of passes: seconds, by the wall clock and of the processor, times a factor."""
    walls = [each.seconds * factor for each in timed]
    return Figure(name, unit, walls, [each.processor_seconds * factor for each in timed], target)


def of_values(name: str, values: Sequence[float], target: float | None = None, *, is_rate: bool = False) -> Figure:
    """Return the figure of numbers that no clock has measured."""
    return Figure(name, "", list(values), list(values), target, is_rate)


def rows_of(found: Sequence[Found], head: Row) -> list[Row]:
    """Return a result row for each figure."""
    return [
        {
            **head,
            "figure": "rules",
            "workload": each.workload,
            "index": each.index,
            "options": {},
            "status": "ok",
            "mode": each.figure.name,
            "unit": each.figure.unit,
            "is_rate": each.figure.is_rate,
            "target": each.figure.target,
            "passes": each.figure.samples,
            "processor_passes": each.figure.processor_samples,
            "median": each.figure.median,
            "processor": each.figure.processor,
            "verdict": each.figure.verdict,
            **each.facts,
            **circumstances(),
        }
        for each in found
    ]


def table(rows: Sequence[Row]) -> list[list[str]]:
    """Return the lines of a table, heading first."""
    lines = [
        [f"{row['workload']}: {row['mode']}", row["index"], shown(row["median"]), _processor(row), *_end(row)]
        for row in rows
    ]
    return [["figure", "index", "median", "by processor time", "target", ""], *lines]


def _processor(row: Row) -> str:
    """Return what was measured by processor time, if that is something else."""
    return "" if row["processor"] == row["median"] else shown(row["processor"])


def _end(row: Row) -> list[str]:
    if row["target"] is None:
        return ["", ""]
    bound = Target("", "", "", **{"at_least" if row["is_rate"] else "at_most": row["target"]})
    return [bound.shown, row["verdict"]]
