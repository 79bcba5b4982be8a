"""The part that all sources of numbered rows share: the offset is the number of the last row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

SEQUENCE: Final = "sequence"


@dataclass
class Piece(InputPartition):  # type: ignore[misc]
    """The rows after `start`, up to `end`."""

    start: int
    end: int


class NumberedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads rows by their numbers."""

    limit_option: ClassVar[str]
    default_since: ClassVar[str] = "earliest"

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._last: int | None = None  # where a query ends that reads only what is available now

    def _bounds(self) -> tuple[int, int]:
        """Return the number before the first row, and the number of the last one."""
        raise NotImplementedError

    def _end(self, after: int, last: int, most: int) -> int:
        """Return the number up to which at most `most` rows follow a number."""
        return min(last, after + most)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Return where a new stream starts."""
        since = self._options.get("since", self.default_since)
        if since in ("earliest", "latest"):
            return {SEQUENCE: self._bounds()[since == "latest"]}
        return {SEQUENCE: int(since)}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Return how many rows a micro-batch may have."""
        most = self._options.get(self.limit_option)
        return ReadAllAvailable() if most is None else ReadMaxRows(int(most))

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        """Return where the next micro-batch ends."""
        last = self._bounds()[1] if self._last is None else max(self._last, start[SEQUENCE])
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else last
        return {SEQUENCE: self._end(start[SEQUENCE], last, most)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Record the last number that is available now."""
        self._last = self._bounds()[1]


class OrderedReader(NumberedReader):
    """Reads changes of subscriptions, which have an order, so one task reads a micro-batch."""

    def __init__(self, options: dict[str, str], are_ids_text: bool) -> None:
        super().__init__(options)
        self._are_ids_text = are_ids_text

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Piece]:
        """Return the work of a micro-batch."""
        return [Piece(start[SEQUENCE], end[SEQUENCE])] if start != end else []
