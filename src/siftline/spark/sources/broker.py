"""A broker as a source of events and changes, and as a sink of matches: the cluster matches, and the broker delivers.

    broker = {"url": "http://broker:8080", "key": "key_..."}           # siftline serve --match-elsewhere
    read = spark.readStream.format("siftline-broker").options(**broker)
    read.option("read", "changes").load().writeStream.foreachBatch(applier("/data/index", source="broker"))...
    matches = stream(read.load(), "/data/index", key="sequence")
    matches.writeStream.format("siftline-broker").options(**broker).option("checkpointLocation", ...).start()

Offsets are the numbers that the broker gives to events and changes. A match is identified by the number of its event
and by its subscription, and the broker delivers it once, however often a task or a micro-batch is repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from siftline.errors import LimitError, SparkError
from siftline.spark.sources.numbered import SEQUENCE, NumberedReader, OrderedReader, Piece
from siftline.spark.sources.store import batch_of, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from siftline.client.client import Client

_EVENTS: Final = "events"
_CHANGES: Final = "changes"
_SCHEMA: Final = "sequence bigint, at timestamp, event string"
_TYPES: Final = {"sequence": pa.int64(), "at": pa.timestamp("us", tz="UTC"), "event": pa.string()}
_SUBSCRIPTION: Final = "subscription"
_LIMIT: Final = "maxpertrigger"
# How many rows one request returns.
_PAGE_ROWS: Final = 5_000
# How many events one task reads.
_TASK_EVENTS: Final = 50_000


class BrokerSource(DataSource):  # type: ignore[misc]
    """`siftline-broker`: published events, or changes of subscriptions; as a sink, it delivers matches.

    Options: `url`; `key`, of an admin; `ca`, certificates to trust; `read`, events or changes (events); `since`, the
    number to start after, earliest or latest (earliest); `maxPerTrigger`; `reader`, a name under which the
    broker records which changes were processed, so that it keeps the others.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "siftline-broker"

    def schema(self) -> str:
        """Return the columns of an event, or of a change."""
        if _kind(self.options) == _EVENTS:
            return _SCHEMA
        with _client(self.options) as client:
            return schema_of(client.changes(0, 1).are_ids_text)

    def streamReader(self, schema: Any) -> EventsReader | ChangesReader:  # noqa: N802
        """Return the reader of the stream."""
        if _kind(self.options) == _EVENTS:
            return EventsReader(dict(self.options))
        return ChangesReader(dict(self.options), schema[_SUBSCRIPTION].dataType.typeName() == "string")

    def streamWriter(self, schema: Any, overwrite: bool) -> MatchesWriter:  # noqa: N802
        """Return the writer, which delivers matches."""
        for name in (SEQUENCE, _SUBSCRIPTION):
            if name not in schema.names:
                raise SparkError(
                    f"the sink siftline-broker needs a column {name!r}; there are {', '.join(schema.names)}"
                )
        return MatchesWriter(dict(self.options))


class EventsReader(NumberedReader):
    """Reads published events."""

    limit_option = _LIMIT

    def _bounds(self) -> tuple[int, int]:
        with _client(self._options) as client:
            found = client.published(limit=1)
        return found.first - 1, found.last

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Piece]:
        """Return the work of a micro-batch."""
        pieces, after, last = list[Piece](), start[SEQUENCE], end[SEQUENCE]
        while after < last:
            pieces.append(Piece(after, self._end(after, last, _TASK_EVENTS)))
            after = pieces[-1].end
        return pieces

    def _end(self, after: int, last: int, most: int) -> int:
        """Return a number that the broker knows, with at most `most` events after `after` and up to it.

        A broker that may have lost events continues with far higher numbers, and knows no position in between.
        """
        if last - after <= most:
            return last
        with _client(self._options) as client:
            following = client.published(after, 1).events
            if not following:
                raise SparkError(f"the broker has no events after {after}, and {last} was there before")
            known, unknown = following[0].sequence, min(last, following[0].sequence + most - 1)
            if unknown == last or _is_known(client, unknown):
                return unknown
            while unknown - known > 1:
                middle = (known + unknown) // 2
                known, unknown = (middle, unknown) if _is_known(client, middle) else (known, middle)
        return known

    def read(self, partition: Piece) -> Iterator[Any]:
        """Return the events of one task."""
        with _client(self._options) as client:
            after = partition.start
            while after < partition.end:
                rows = client.published(after, min(_PAGE_ROWS, partition.end - after)).events
                if not rows:
                    raise SparkError(f"the broker has no events after {after}, and {partition.end} was there before")
                after = rows[-1].sequence
                rows = [row for row in rows if row.sequence <= partition.end]
                if not rows:
                    return
                columns = zip(_TYPES.values(), zip(*rows, strict=True), strict=True)
                yield pa.RecordBatch.from_arrays([pa.array(each, kind) for kind, each in columns], names=list(_TYPES))


def _is_known(client: Client, number: int) -> bool:
    """Return whether a broker knows the events after a number."""
    try:
        client.published(number, 1)
    except LimitError:
        return False
    return True


class ChangesReader(OrderedReader):
    """Reads changes of subscriptions."""

    limit_option = _LIMIT

    def _bounds(self) -> tuple[int, int]:
        with _client(self._options) as client:
            return 0, client.changes(0, 1).last

    def read(self, partition: Piece) -> Iterator[Any]:
        """Return the changes of a micro-batch."""
        with _client(self._options) as client:
            after = partition.start
            while after < partition.end:
                found = client.changes(after, _PAGE_ROWS).changes
                rows = [change for change in found if change.sequence <= partition.end]
                if not rows:
                    return  # superseded changes are not kept
                yield batch_of(rows, self._are_ids_text)
                after = rows[-1].sequence

    def commit(self, end: dict[str, int]) -> None:
        """Tell the broker what was processed; Spark calls this when it plans the next micro-batch."""
        reader = self._options.get("reader")
        if reader is not None:
            with _client(self._options) as client:
                client.acknowledge(reader, end[SEQUENCE])


class MatchesWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Sends matches to the broker as tasks find them; repeated matches are delivered once."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Deliver the matches of one task."""
        with _client(self._options) as client:
            for batch in iterator:
                table = pa.Table.from_batches([batch]).select([SEQUENCE, _SUBSCRIPTION])
                for first in range(0, len(table), _PAGE_ROWS):
                    client.deliver(_by_event(table.slice(first, _PAGE_ROWS).to_pydict()))
        return WriterCommitMessage()


def _by_event(columns: dict[str, list[Any]]) -> Iterable[tuple[int, list[Any]]]:
    found: dict[int, list[Any]] = {}
    for event, id in zip(columns[SEQUENCE], columns[_SUBSCRIPTION], strict=True):
        found.setdefault(event, []).append(id)
    return found.items()


def _kind(options: Any) -> str:
    kind = options.get("read", _EVENTS)
    if kind not in (_EVENTS, _CHANGES):
        raise SparkError(f"the option 'read' of siftline-broker must be {_EVENTS} or {_CHANGES}, not {kind!r}")
    return str(kind)


def _client(options: Any) -> Client:
    if options.get("url") is None:
        raise SparkError("siftline-broker needs the option 'url', the URL of the broker")
    try:
        from siftline.client.client import Client
    except ImportError:
        raise SparkError("siftline-broker needs a client: pip install 'siftline[client]'") from None
    return Client(options["url"], key=options.get("key"), ca=options.get("ca"))
