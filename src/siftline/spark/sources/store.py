"""The feed of a durable store as a stream of changes, and a function that applies them to an index.

    changes = spark.readStream.format("siftline-store").option("path", "subscriptions.db").load()
    changes.writeStream.foreachBatch(applier("/data/index")).option("checkpointLocation", ...).start()

The offset is the number of a change. Spark repeats an interrupted micro-batch; `applier` leaves out the changes that an
index already has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource

from siftline.errors import SparkError
from siftline.spark.changes import apply
from siftline.spark.sources.numbered import SEQUENCE, OrderedReader, Piece
from siftline.storage.rows import microseconds
from siftline.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from siftline.storage.rows import Change

COLUMNS: Final = {
    "sequence": ("bigint", pa.int64()),
    "change": ("string", pa.string()),
    "subscription": ("string", pa.string()),
    "expression": ("string", pa.string()),
    "language": ("string", pa.string()),
    "weight": ("double", pa.float64()),
    "expires": ("timestamp", pa.timestamp("us", tz="UTC")),
}
# How many rows a batch for Spark has.
_BATCH_ROWS: Final = 10_000


class StoreSource(DataSource):  # type: ignore[misc]
    """`siftline-store`: the changes of a store.

    Options: `path`, the file; `since`, the number of the change to start after (0); `reader`, a name under which the
    store records which changes were processed, so that compaction keeps the others; `maxChangesPerTrigger`.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "siftline-store"

    def schema(self) -> str:
        """Return the columns of a change for `apply`, with the type of the store's ids."""
        with _opened(self.options) as store:
            return schema_of(bool(store.are_ids_text()))

    def streamReader(self, schema: Any) -> StoreReader:  # noqa: N802
        """Return the reader of the stream."""
        return StoreReader(dict(self.options), schema["subscription"].dataType.typeName() == "string")


class StoreReader(OrderedReader):
    """Reads changes by their numbers."""

    limit_option = "maxchangespertrigger"
    default_since = "0"

    def _bounds(self) -> tuple[int, int]:
        with _opened(self._options) as store:
            return 0, store.sequence

    def read(self, partition: Piece) -> Iterator[Any]:
        """Return the changes of a micro-batch."""
        with _opened(self._options) as store:
            waiting: list[Change] = []
            for change in store.changes(partition.start):
                if change.sequence > partition.end:
                    break
                waiting.append(change)
                if len(waiting) == _BATCH_ROWS:
                    yield self._batch(waiting)
                    waiting = []
            if waiting:
                yield self._batch(waiting)

    def commit(self, end: dict[str, int]) -> None:
        """Acknowledge the processed changes; Spark calls this when it plans the next micro-batch."""
        reader = self._options.get("reader")
        if reader is not None:
            with Store(self._options["path"], is_guest=True, is_checked=False) as store:
                store.acknowledge(reader, end[SEQUENCE])

    def _batch(self, changes: list[Change]) -> Any:
        return batch_of([_row(change) for change in changes], self._are_ids_text)


def schema_of(are_ids_text: bool) -> str:
    """Return the columns of a change for `apply`."""
    kinds = {"subscription": "string" if are_ids_text else "bigint"}
    return ", ".join(f"{name} {kinds.get(name, kind)}" for name, (kind, _) in COLUMNS.items())


def batch_of(rows: Sequence[tuple[Any, ...]], are_ids_text: bool) -> Any:
    """Return rows of COLUMNS as Arrow."""
    types = {name: kind for name, (_, kind) in COLUMNS.items()}
    if not are_ids_text:
        types["subscription"] = pa.int64()
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types.values(), strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=list(types))


def _row(change: Change) -> tuple[Any, ...]:
    """Return a change as a row of COLUMNS."""
    subscription = change.subscription
    if subscription is None:
        return change.sequence, change.kind, change.id, None, None, None, None
    written, end = subscription.written, microseconds(subscription.expires)
    return change.sequence, change.kind, change.id, written.text, written.dialect, subscription.weight, end


def _opened(options: Any) -> Store:
    path = options.get("path")
    if path is None:
        raise SparkError("the source siftline-store needs the option 'path': the file of the store")
    return Store(path, is_read_only=True, is_checked=False)


def applier(path: str, *, source: str = "store") -> Callable[[Any, int], None]:
    """Return a function for `foreachBatch` that applies changes of a store to an index.

    The index records the last applied change under the name `source`, so that a repeated batch, or a stream that is
    restarted without its checkpoint, changes nothing twice.
    """

    def take(changes: Any, _: int) -> None:
        table = changes.toArrow()
        if len(table):
            rows = table.sort_by("sequence")
            apply(path, rows, source=source, sequence=rows["sequence"][-1].as_py())

    return take
