"""Kafka as a source of events, through the client library from PyPI (extra `[kafka]`); Spark keeps the offsets.

    events = (spark.readStream.format("siftline-kafka")
              .option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "events").load())

Columns and options are those of Spark's own connector, which needs a jar that PySpark does not include. A micro-batch
is a range of offsets for each partition of the topics, and one task reads one range. Spark records the ranges in its
checkpoint before they are read, so that a restarted stream reads the same messages.

It is tested against the mock cluster of librdkafka, which uses the protocol over TCP, with several brokers and
partitions; not against brokers with authentication, transactions or compacted topics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

from siftline.errors import SparkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Offsets = dict[str, dict[str, int]]
    Bounds = dict[str, dict[str, tuple[int, int]]]

_SCHEMA: Final = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_STARTS: Final = ("earliest", "latest")
# How many messages a batch for Spark has.
_BATCH_ROWS: Final = 10_000
# How long to wait for an answer from the brokers.
_WAIT_SECONDS: Final = 30.0


class KafkaSource(DataSource):  # type: ignore[misc]
    """`siftline-kafka`: the messages of some topics.

    Options: `subscribe`, topics separated by commas; `startingOffsets`, earliest or latest (latest) for a stream
    without a checkpoint; `maxOffsetsPerTrigger`; `kafka.*`, settings of librdkafka, of which `kafka.bootstrap.servers`
    is required.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "siftline-kafka"

    def schema(self) -> str:
        """Return the columns of a message."""
        return _SCHEMA

    def streamReader(self, schema: Any) -> KafkaReader:  # noqa: N802
        """Return the reader of the stream."""
        return KafkaReader(dict(self.options))


@dataclass
class Messages(InputPartition):  # type: ignore[misc]
    """The messages of one partition of a topic from `start` on, before `end`."""

    topic: str
    partition: int
    start: int
    end: int


class KafkaReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads messages by their offsets."""

    def __init__(self, options: dict[str, str]) -> None:
        self._settings = {name[6:]: value for name, value in options.items() if name.startswith("kafka.")}
        self._topics = [topic.strip() for topic in options.get("subscribe", "").split(",") if topic.strip()]
        self._start = options.get("startingoffsets", "latest")
        self._most = options.get("maxoffsetspertrigger")
        if "bootstrap.servers" not in self._settings or not self._topics:
            raise SparkError("the source siftline-kafka needs the options 'kafka.bootstrap.servers' and 'subscribe'")
        if self._start not in _STARTS:
            raise SparkError(f"startingOffsets must be earliest or latest, not {self._start!r}")

        self._last: Bounds | None = None  # where a query ends that reads only what is available now

    def initialOffset(self) -> Offsets:  # noqa: N802
        """Return where a new stream starts."""
        place = _STARTS.index(self._start)
        return {
            topic: {number: ends[place] for number, ends in found.items()} for topic, found in self._bounds().items()
        }

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Return how many messages a micro-batch may have."""
        return ReadAllAvailable() if self._most is None else ReadMaxRows(int(self._most))

    def latestOffset(self, start: Offsets, limit: Any) -> Offsets:  # noqa: N802
        """Return where the next micro-batch ends: each partition gets its share of the limit.

        A new partition gets nothing yet: its start goes to the checkpoint first, so that a repeated micro-batch has the
        same messages, even if the brokers have dropped some meanwhile.
        """
        bounds = self._last or self._bounds()
        begins = {(t, p): start.get(t, {}).get(p, bounds[t][p][0]) for t in bounds for p in bounds[t]}
        known = {(t, p): begin for (t, p), begin in begins.items() if p in start.get(t, {})}
        waiting = {(t, p): max(0, bounds[t][p][1] - begin) for (t, p), begin in known.items()}
        total = sum(waiting.values())
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else total
        ends: Offsets = {topic: {} for topic in bounds}
        for (topic, number), begin in begins.items():
            n_waiting = waiting.get((topic, number), 0)
            share = n_waiting if total <= most else -(-n_waiting * most // total)
            ends[topic][number] = begin + share
        return ends

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Record the last offsets that are available now."""
        self._last = self._bounds()

    def stop(self) -> None:
        """Close the connection to the brokers."""
        consumer = _consumers.pop(_key(self._settings), None)
        if consumer is not None:
            consumer.close()

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[Messages]:
        """Return the work of a micro-batch."""
        return [
            Messages(topic, int(number), first, last)
            for topic, ends in end.items()
            for number, last in ends.items()
            if (first := start.get(topic, {}).get(number, last)) < last
        ]

    def read(self, partition: Messages) -> Iterator[Any]:
        """Return the messages of one partition."""
        waiting: list[Any] = []
        for message in _messages(_consumer(self._settings), partition):
            waiting.append(message)
            if len(waiting) == _BATCH_ROWS:
                yield _batch(waiting)
                waiting = []
        if waiting:
            yield _batch(waiting)

    def _bounds(self) -> Bounds:
        """Return the first and the next offset of each partition of the topics."""
        from confluent_kafka import KafkaException, TopicPartition

        consumer = _consumer(self._settings)
        found: Bounds = {}
        try:
            for topic in self._topics:
                metadata = consumer.list_topics(topic, timeout=_WAIT_SECONDS).topics[topic]
                if metadata.error is not None:
                    raise SparkError(f"Kafka: topic {topic!r}: {metadata.error.str()}")
                places = [TopicPartition(topic, number) for number in sorted(metadata.partitions)]
                ends = [consumer.get_watermark_offsets(place, timeout=_WAIT_SECONDS) for place in places]
                found[topic] = {str(place.partition): end for place, end in zip(places, ends, strict=True)}
        except KafkaException as error:
            raise SparkError(f"Kafka: {error.args[0].str()}") from None
        return found


def _messages(consumer: Any, work: Messages) -> Iterator[Any]:
    from confluent_kafka import KafkaError, TopicPartition

    consumer.assign([TopicPartition(work.topic, work.partition, work.start)])
    try:
        while True:
            # The last offsets may have no messages, because transactions leave control records there.
            first = consumer.poll(_WAIT_SECONDS)
            if first is None:
                raise SparkError(f"Kafka: no message of {work} within {_WAIT_SECONDS:.0f} s")
            for message in (first, *consumer.consume(_BATCH_ROWS, timeout=0)):
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise SparkError(f"Kafka: {work}: {error.str()}")
                if message.offset() >= work.end:
                    return
                if error is not None:
                    continue  # the broker is behind its leader: wait for the rest
                yield message
                if message.offset() == work.end - 1:
                    return
    finally:
        consumer.unassign()


def _batch(messages: list[Any]) -> Any:
    columns = {
        "key": [message.key() for message in messages],
        "value": [message.value() for message in messages],
        "topic": [message.topic() for message in messages],
        "partition": [message.partition() for message in messages],
        "offset": [message.offset() for message in messages],
        "timestamp": [_microseconds(message) for message in messages],
    }
    arrays = [pa.array(values, _TYPES[name]) for name, values in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _microseconds(message: Any) -> int | None:
    kind, milliseconds = message.timestamp()
    return milliseconds * 1000 if kind else None


# Connecting takes longer than a micro-batch, so a worker keeps its consumers.
_consumers: dict[tuple[tuple[str, str], ...], Any] = {}


def _key(settings: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(settings.items()))


def _consumer(settings: dict[str, str]) -> Any:
    """Return a consumer without a group, because Spark keeps the offsets."""
    try:
        from confluent_kafka import Consumer
    except ImportError:
        raise SparkError("the source siftline-kafka needs a client: pip install 'siftline[kafka]'") from None
    key = _key(settings)
    if key not in _consumers:
        ours = {
            "group.id": "siftline",
            "enable.auto.commit": "false",
            # Otherwise messages that the brokers have deleted would be skipped silently.
            "auto.offset.reset": "error",
            "enable.partition.eof": "true",
        }
        _consumers[key] = Consumer({**ours, **settings})
    return _consumers[key]
