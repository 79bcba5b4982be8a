"""Micro-batches: matching in a stream against the same stream without it, and how soon a change is live.

Each micro-batch is a text file of this many events. The floor is the same source and the same sink with nothing in
between; beside it stands what Spark takes to send the rows through a Python worker that does nothing.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from siftline_bench.errors import WrongIdsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

BARE, PYTHON, OURS = "bare", "python", "siftline"
KINDS: Final = (BARE, PYTHON, OURS)
# The first micro-batches of a query load classes and plans.
_WARM_UP: Final = 5
_NEW: Final = 10**12  # ids above those of the workload


@dataclass(frozen=True)
class Streams:
    """A folder of text files, and queries over it."""

    spark: Any
    index: str
    folder: Path
    texts: Sequence[str]
    per_batch: int

    def times_ms(self, n_batches: int, n_rounds: int) -> dict[str, list[float]]:
        """Return the milliseconds of all micro-batches of each kind; the kinds take turns."""
        source = self._written("source", n_batches)
        found: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for number in range(n_rounds):
            for kind in KINDS:
                query = self._started(kind, source, f"{kind}-{number}", {"availableNow": True})
                query.awaitTermination()
                found[kind] += [
                    progress["durationMs"]["triggerExecution"]
                    for progress in list(query.recentProgress)[_WARM_UP:]
                    if progress["numInputRows"] == self.per_batch
                ]
        return found

    def batches_until_live(self, n_changes: int) -> Iterator[int]:
        """Add a subscription that all events satisfy before a micro-batch; 1 if that one has it."""
        from siftline.spark import apply

        source = self._written("changing", 0)
        query = self._started(OURS, source, "changing-out", {"processingTime": "0 seconds"})
        try:
            for number in range(n_changes):
                self._feed(source, 2 * number)
                query.processAllAvailable()
                apply(self.index, [{"subscription": _NEW + number, "expression": "bench_all = 1"}])
                self._feed(source, 2 * number + 1)
                query.processAllAvailable()
                yield self._seen(number, 2 * number + 1)
        finally:
            query.stop()

    def _seen(self, number: int, file: int) -> int:
        rows = self.spark.read.parquet(str(self.folder / "changing-out"))
        ids = rows.where(rows.subscription == _NEW + number).select("id").collect()
        if {row.id for row in ids} != set(range(file * self.per_batch, (file + 1) * self.per_batch)):
            raise WrongIdsError(f"change {number} is not in exactly the micro-batch after it")
        return 1

    def _written(self, name: str, n_files: int) -> Path:
        folder = self.folder / name
        folder.mkdir(parents=True)
        for number in range(n_files):
            self._feed(folder, number)
        return folder

    def _feed(self, folder: Path, number: int) -> None:
        """Add a file at once."""
        first = number * self.per_batch
        rows = [
            f'{{"bench_id":{id},"bench_all":1,{self.texts[id % len(self.texts)][1:]}'
            for id in range(first, first + self.per_batch)
        ]
        draft = folder / f".{number}"
        draft.write_text("\n".join(rows), encoding="utf-8")
        os.utime(draft, (1e9 + number, 1e9 + number))  # in this order, however quickly they were written
        draft.rename(folder / f"{number:06}.txt")

    def _started(self, kind: str, source: Path, name: str, trigger: dict[str, Any]) -> Any:
        from pyspark.sql.functions import get_json_object

        rows = self.spark.readStream.option("maxFilesPerTrigger", 1).text(str(source)).toDF("event")
        events = rows.select(get_json_object("event", "$.bench_id").cast("bigint").alias("id"), "event")
        shutil.rmtree(self.folder / name, ignore_errors=True)
        writer = self._between(kind, events).writeStream.format("parquet").trigger(**trigger)
        return writer.start(str(self.folder / name), checkpointLocation=str(self.folder / f"{name}-checkpoint"))

    def _between(self, kind: str, events: Any) -> Any:
        from siftline.spark import stream

        if kind == OURS:
            return stream(events, self.index)
        return events if kind == BARE else events.mapInArrow(_same(), events.schema)


def _same() -> Callable[[Any], Any]:
    def same(batches: Any) -> Any:
        yield from batches

    return same
