"""A broker and Spark: published over HTTP, matched on Spark, delivered by the broker, each match once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from server.serving import Service, serving

import siftline
from siftline.errors import SparkError
from siftline.spark import sources, stream
from siftline.spark.sources.broker import EventsReader, MatchesWriter
from spark.directories import directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path / "s.db", matches_here=False) as service:
        yield service


class Pipeline:
    """Brings changes into an index, and matches into the broker, until there is nothing left to do."""

    def __init__(self, spark: Any, service: Service, folder: Path, key: str) -> None:
        sources.register(spark)
        self._spark, self._folder = spark, folder
        self._index = directory(folder / "index", [("none", "none = 1", 1.0)])
        self._options = {"url": service.url, "key": key, "maxPerTrigger": "3"}

    def run(self, checkpoint: str = "matches") -> None:
        reader = self._spark.readStream.format("siftline-broker").options(**self._options)
        changes = reader.option("read", "changes").option("reader", "spark").load()
        applied = changes.writeStream.foreachBatch(sources.applier(str(self._index), source="broker"))
        self._wait(applied, "changes")
        reader = self._spark.readStream.format("siftline-broker").options(**self._options)
        found = stream(reader.load(), self._index, key="sequence")
        self._wait(found.writeStream.format("siftline-broker").options(**self._options), checkpoint)

    def _wait(self, writer: Any, name: str) -> None:
        writer = writer.option("checkpointLocation", str(self._folder / f"checkpoint-{name}"))
        writer.trigger(availableNow=True).start().awaitTermination()


def test_published_matched_on_spark_delivered_once(spark: Any, tmp_path: Path, service: Service) -> None:
    key = service.broker.keys.add("admin")
    with siftline.Client(service.url, key=key, use_proxies=False) as client:
        many, few = client.subscribe("a >= 0"), client.subscribe("a >= 3")
        client.publish_many({"a": n} for n in range(5))
        pipeline = Pipeline(spark, service, tmp_path, key)
        pipeline.run()
        stream_ = client.stream(many.id, many.ticket, after="0-0")
        assert sorted(next(stream_).event["a"] for _ in range(5)) == [0, 1, 2, 3, 4]
        # Goes on from the checkpoint, with what changed meanwhile.
        client.replace(few.id, few.ticket, "a >= 6")
        gone = client.subscribe("a >= 5")
        client.publish_many({"a": n} for n in range(5, 8))
        client.unsubscribe(gone.id, gone.ticket)
        pipeline.run()
        assert sorted(next(stream_).event["a"] for _ in range(3)) == [5, 6, 7]
        # Without the checkpoint everything is matched once more, by the index as it is now; nobody hears of it twice.
        pipeline.run("again")
        client.publish({"a": 100})
        pipeline.run()
        assert next(stream_).event == {"a": 100}
        assert sorted(each.event["a"] for each in client.notifications(few.id, few.ticket)) == [3, 4, 6, 7, 100]


def test_a_task_that_is_repeated(tmp_path: Path, service: Service) -> None:
    import pyarrow as pa

    with siftline.Client(service.url, use_proxies=False) as client:
        lease = client.subscribe("a > 0")
        client.publish_many([{"a": 1}, {"a": 2}])
        writer = MatchesWriter({"url": service.url})
        numbers = [each.sequence for each in client.published().events]
        batch = pa.RecordBatch.from_pydict({"sequence": numbers, "subscription": [lease.id] * 2, "weight": [1.0, 1.0]})
        for _ in range(2):
            writer.write(iter([batch]))
        assert len(client.notifications(lease.id, lease.ticket)) == 2


def test_offsets(service: Service) -> None:
    assert service.broker.cluster is not None
    before = service.broker.cluster.last
    service.broker.publish_many({"a": n} for n in range(7))
    earliest, latest = (EventsReader({"url": service.url, "since": since}) for since in ("earliest", "latest"))
    start, end = earliest.initialOffset(), latest.initialOffset()
    assert (start, end) == ({"sequence": before}, {"sequence": before + 7})
    assert earliest.latestOffset(start, earliest.getDefaultReadLimit()) == end
    rows = [
        row for part in earliest.partitions(start, end) for batch in earliest.read(part) for row in batch.to_pylist()
    ]
    assert [(row["sequence"], row["event"]) for row in rows] == [(before + n + 1, f'{{"a": {n}}}') for n in range(7)]


def test_numbers_that_jump(tmp_path: Path) -> None:
    """A broker that cannot tell whether it has lost events goes on with far higher numbers."""
    with serving(tmp_path / "s.db", matches_here=False) as service:
        service.broker.publish_many({"a": n} for n in range(4))
        assert service.broker.cluster is not None
        before = service.broker.cluster.last
    for mark in tmp_path.glob("*published*"):
        mark.unlink()
    with serving(tmp_path / "s.db", matches_here=False) as service:
        service.broker.publish_many({"a": n} for n in range(4, 7))
        reader = EventsReader({"url": service.url, "since": "earliest", "maxpertrigger": "2"})
        limit, offset, found = reader.getDefaultReadLimit(), reader.initialOffset(), []
        for _ in range(10):
            end = reader.latestOffset(offset, limit)
            pieces = reader.partitions(offset, end)
            assert len(pieces) <= 2
            found.append(
                [row["event"] for piece in pieces for batch in reader.read(piece) for row in batch.to_pylist()]
            )
            offset = end
        assert service.broker.cluster is not None
        assert service.broker.cluster.last > before + 1_000
        whole = EventsReader({"url": service.url})
        pieces = whole.partitions(reader.initialOffset(), {"sequence": service.broker.cluster.last})
        rows = [row["event"] for piece in pieces for batch in whole.read(piece) for row in batch.to_pylist()]
    assert [event for batch in found for event in batch] == [f'{{"a": {n}}}' for n in range(7)] == rows
    assert max(map(len, found)) <= 2


def test_missing_events_are_reported(spark: Any, tmp_path: Path, service: Service) -> None:
    with pytest.raises(SparkError, match="url"):
        EventsReader({}).initialOffset()
    with pytest.raises(SparkError, match="read"):
        sources.BrokerSource({"url": service.url, "read": "everything"}).schema()
    sources.register(spark)
    rows = spark.readStream.format("siftline-broker").option("url", service.url).load()
    writer = rows.writeStream.format("siftline-broker").option("url", service.url)
    with pytest.raises(Exception, match="subscription"):
        writer.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()
