"""Sources of streams: the changes of a real store, and messages of Kafka's own mock cluster over its real protocol."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pyspark.sql.streaming.datasource import ReadMaxRows

from siftline import Store
from siftline.errors import SparkError
from siftline.spark import IndexDirectory, compact, sources, stream
from siftline.spark.directory.deltas import read_delta
from siftline.spark.sources.kafka import KafkaReader
from spark.directories import directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def run_feed(spark: Any, store: Path, index: Path, checkpoint: Path, **options: str) -> None:
    """Bring all changes of a store into an index."""
    sources.register(spark)
    changes = spark.readStream.format("siftline-store").option("path", str(store)).options(**options).load()
    writer = changes.writeStream.foreachBatch(sources.applier(str(index)))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()


def test_the_changes_of_a_store(spark: Any, tmp_path: Path) -> None:
    index = tmp_path / "index"
    directory(index, [("old", "a = 1", 1.0)])
    with Store(tmp_path / "s.db") as store:
        store.add("a = 1", "ann", weight=2.0)
        store.add({"a": [1]}, "bob", dialect="eventbridge")
        run_feed(spark, tmp_path / "s.db", index, tmp_path / "checkpoint", reader="spark")
        store.replace("ann", "a = 2")
        store.remove("bob")
        run_feed(spark, tmp_path / "s.db", index, tmp_path / "checkpoint", reader="spark")
        assert store.readers() == {"spark": 2}  # what Spark knows to be done when it plans the next batch
        # Again without the checkpoint: the index knows what it has.
        run_feed(spark, tmp_path / "s.db", index, tmp_path / "other")
    assert [change[:2] for change in read_delta(index, 1).changes] == [["put", "ann"], ["put", "bob"]]
    assert read_delta(index, 2).changes == [["put", "ann", "a = 2", 2.0, None], ["remove", "bob"]]
    assert compact(index).subscriptions == 2
    assert IndexDirectory.open(index).marks == {"store": 4}


def test_a_few_changes_at_a_time(spark: Any, tmp_path: Path) -> None:
    index = tmp_path / "index"
    directory(index, [(1, "a = 1", 1.0)])
    with Store(tmp_path / "s.db") as store:
        for id in range(10, 15):
            store.add("a = 1", id)
    run_feed(spark, tmp_path / "s.db", index, tmp_path / "checkpoint", maxChangesPerTrigger="2")
    assert [len(read_delta(index, number).changes) for number in (1, 2, 3)] == [2, 2, 1]


@pytest.fixture
def kafka() -> Iterator[tuple[Any, str]]:
    """Brokers inside a producer: librdkafka's mock cluster, which other clients reach by TCP."""
    producer = Producer({"test.mock.num.brokers": 2, "bootstrap.servers": "mock"})
    brokers = producer.list_topics(timeout=10).brokers.values()
    yield producer, ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    producer.flush(10)


def messages(spark: Any, servers: str, **options: str) -> Any:
    sources.register(spark)
    reader = spark.readStream.format("siftline-kafka").option("kafka.bootstrap.servers", servers)
    return reader.option("subscribe", "events").options(**options).load()


def send(producer: Any, numbers: range) -> None:
    for number in numbers:
        producer.produce("events", json.dumps({"a": number}).encode(), key=str(number).encode())
    assert producer.flush(10) == 0


def test_messages_of_kafka(spark: Any, tmp_path: Path, kafka: tuple[Any, str]) -> None:
    producer, servers = kafka
    index = directory(tmp_path / "index", [(1, "a >= 5", 1.0), (2, "a = 7", 1.0)])
    send(producer, range(8))
    events = messages(spark, servers, startingOffsets="earliest", maxOffsetsPerTrigger="3")
    found = stream(events, index, key=["topic", "partition", "offset", "key"], event="value")

    def run() -> list[tuple[int, int]]:
        writer = found.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.option("path", str(tmp_path / "matches")).trigger(availableNow=True).start()
        query.awaitTermination()
        rows = spark.read.parquet(str(tmp_path / "matches")).collect()
        return sorted((int(bytes(row.key)), row.subscription) for row in rows)

    assert run() == [(5, 1), (6, 1), (7, 1), (7, 2)]
    send(producer, range(6, 8))
    assert run() == [(5, 1), (6, 1), (6, 1), (7, 1), (7, 1), (7, 2), (7, 2)]


def test_offsets_of_kafka(kafka: tuple[Any, str]) -> None:
    producer, servers = kafka
    send(producer, range(10))
    options = {"kafka.bootstrap.servers": servers, "subscribe": "events"}
    earliest, latest = (KafkaReader({**options, "startingoffsets": place}) for place in ("earliest", "latest"))
    start, end = earliest.initialOffset(), latest.initialOffset()
    assert sum(end["events"].values()) - sum(start["events"].values()) == 10
    assert earliest.latestOffset(start, earliest.getDefaultReadLimit()) == end
    work = earliest.partitions(start, end)
    read = [row for part in work for batch in earliest.read(part) for row in batch.to_pylist()]
    assert sorted(int(row["key"]) for row in read) == list(range(10))
    assert all(row["timestamp"] is not None and row["topic"] == "events" for row in read)
    assert earliest.partitions(end, end) == []
    assert sum(earliest.latestOffset(start, ReadMaxRows(4))["events"].values()) in range(4, 8)
    # Part of a partition, and again.
    part = max(work, key=lambda part: part.end - part.start)
    part.start += 1
    for _ in range(2):
        offsets = [row["offset"] for batch in earliest.read(part) for row in batch.to_pylist()]
        assert offsets == list(range(part.start, part.end))
    earliest.stop()


def test_a_partition_that_ends_too_early(kafka: tuple[Any, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker may be behind; what it does not have is not taken for nothing."""
    producer, servers = kafka
    send(producer, range(4))
    reader = KafkaReader({"kafka.bootstrap.servers": servers, "subscribe": "events", "startingoffsets": "earliest"})
    start = reader.initialOffset()
    part = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))[0]
    part.end += 1
    monkeypatch.setattr("siftline.spark.sources.kafka._WAIT_SECONDS", 1.0)
    with pytest.raises(SparkError, match="no message"):
        list(reader.read(part))
    reader.stop()


def test_a_partition_that_is_new(kafka: tuple[Any, str]) -> None:
    """Where it begins is in the checkpoint before anything is read from there."""
    producer, servers = kafka
    send(producer, range(40))
    reader = KafkaReader({"kafka.bootstrap.servers": servers, "subscribe": "events", "startingoffsets": "earliest"})
    whole = reader.initialOffset()
    before = {"events": {number: first for number, first in whole["events"].items() if number != "1"}}
    middle = reader.latestOffset(before, reader.getDefaultReadLimit())
    end = reader.latestOffset(middle, reader.getDefaultReadLimit())
    assert middle["events"]["1"] == whole["events"]["1"] < end["events"]["1"]
    first, second = reader.partitions(before, middle), reader.partitions(middle, end)
    assert {part.partition for part in first} == {0, 2, 3}
    assert [part.partition for part in second] == [1]
    reader.stop()


def test_missing_messages_of_kafka_are_reported() -> None:
    with pytest.raises(SparkError, match=r"bootstrap\.servers"):
        KafkaReader({"subscribe": "events"})
    with pytest.raises(SparkError, match="earliest or latest"):
        KafkaReader({"kafka.bootstrap.servers": "x", "subscribe": "events", "startingoffsets": "middle"})
