"""What can be read off a row and drawn on a y axis."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MATCH_TIME: Final = "match_us.median"
# How the names of measures end that are times.
_TIMES: Final = ("_s", "_ms", "_us")


@dataclass(frozen=True)
class Measure:
    """A number of a row: where it stands, how it is scaled, what it is called."""

    name: str
    column: str
    label: str
    factor: float = 1.0

    @property
    def is_time(self) -> bool:
        """Whether it has noise: what is counted has none."""
        return self.name.endswith(_TIMES)

    def of_rounds(self, values: Sequence[float]) -> float:
        """Return what several rounds come to.

        Disturbances make a time longer, so that the least counts. But a matching time is told by the scan beside it,
        which may be disturbed as well: it can be too small, as a quotient of two times can, and the median counts.

        >>> measure("index_s").of_rounds([3.0, 1.0, 2.0]), measure("match_ms").of_rounds([3.0, 1.0, 2.0])
        (1.0, 2.0)
        """
        is_plain = self.is_time and self.column != MATCH_TIME and "/" not in self.column
        return min(values) if is_plain else median(values)

    def of(self, row: Mapping[str, Any]) -> float | None:
        """Return the number, or None of a row that has none: timed out, out of memory, unsupported.

        >>> measure("match_ms").of({"status": "ok", "match_us": {"median": 1500.0}})
        1.5
        """
        if "/" in self.column:
            above, below = (measure(part).of(row) for part in self.column.split("/"))
            return above / below if above is not None and below else None
        value: Any = row if row.get("status") == "ok" else None
        for part in self.column.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return None if value is None else float(value) * self.factor


_MEASURES: Final = (
    Measure("match_ms", MATCH_TIME, "matching time of an event (ms)", 1e-3),
    Measure("match_us", MATCH_TIME, "matching time of an event (µs)"),
    Measure("index_s", "index_s", "time to build the index (s)"),
    Measure("build_s", "build_s", "time to add all subscriptions (s)"),
    Measure("memory_mb", "index_bytes", "memory of the index (MB)", 1e-6),
    Measure("add_us", "add_us.median", "time of an addition (µs)"),
    Measure("remove_us", "remove_us.median", "time of a removal (µs)"),
    Measure("load_s", "load_s", "time to load (s)"),
    Measure("search_steps", "search_steps", "steps of a search"),
    Measure("insert_steps", "insert_steps", "steps of an insertion"),
    Measure("delete_steps", "delete_steps", "steps of a deletion"),
    Measure("entries_each", "entries_each", "entries for each predicate"),
    Measure("tree_ms", "tree_ms", "time to build (ms)"),
    Measure("locate_ms", "locate_ms", "time to locate all points (ms)"),
    Measure("query_ms", "query_ms", "time to list the intervals of all points (ms)"),
    Measure("calls", "calls", "calls of an event"),
    Measure("matches", "matches_each", "matches of an event"),
)
_BY_NAME: Final = {each.name: each for each in _MEASURES}


def measure(name: str) -> Measure:
    """Return a measure by its name; any other name is a column, `stats.candidates` for one inside of another.

    Two names with a stroke between them are the quotient of both: `remove_us/add_us`.
    """
    return _BY_NAME.get(name) or Measure(name, name, "")
