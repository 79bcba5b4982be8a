"""Times on Spark: columns of timestamps and of text, and one instant for a query and for a micro-batch."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from siftline.spark import compile, match, stream
from spark.directories import directory
from spark.streaming import events_of, put_events

if TYPE_CHECKING:
    from pathlib import Path

RULES = [
    (1, "at > timestamp '2026-01-31T10:00:00Z'", 1.0),
    (2, "at between now() - interval '1 day' and now()", 1.0),
    (3, "at < now() and a = 1", 1.0),
    (4, "a = 1", 1.0),
]
NOW = "2026-01-31T12:00:00Z"
TIMES = ["2026-01-31T10:00:01Z", "2026-01-31 15:00:00+05:00", "2026-02-01", "2025-12-31T00:00:00Z"]
FOUND = {(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4), (2, 1), (2, 4), (3, 3), (3, 4)}


def pairs(found: Any) -> set[tuple[int, int]]:
    return {(row.id, row.subscription) for row in found.collect()}


@pytest.mark.parametrize("plan", ["replicated", "sharded"])
def test_text_and_timestamps(spark: Any, tmp_path: Path, plan: str) -> None:
    index = directory(tmp_path / "index", RULES[:2], RULES[2:], pivots=[["at"], ["a"]])
    texts = [(i, json.dumps({"at": text, "a": 1})) for i, text in enumerate(TIMES)]
    as_json = spark.createDataFrame(texts, "id bigint, event string")
    assert pairs(match(as_json, index, plan=plan, now=NOW)) == FOUND
    columns = spark.createDataFrame([(i, text, 1) for i, text in enumerate(TIMES)], "id bigint, at string, a int")
    assert pairs(match(columns, index, event=None, plan=plan, now=NOW)) == FOUND
    moments = columns.withColumn("at", columns["at"].cast("timestamp"))
    assert pairs(match(moments, index, event=None, plan=plan, now=datetime(2026, 1, 31, 12, tzinfo=UTC))) == FOUND


def test_a_query_has_one_instant_however_late_it_is_computed(spark: Any, tmp_path: Path) -> None:
    index = directory(tmp_path / "index", [(1, "at < now()", 1.0)])
    first = datetime.now(UTC)
    rows = [(i, json.dumps({"at": (first + timedelta(seconds=i / 2)).isoformat()})) for i in range(400)]
    found = match(spark.createDataFrame(rows, "id bigint, event string").repartition(4), index)
    planned = pairs(found)
    time.sleep(1.5)
    assert pairs(found) == planned
    assert 0 < len(planned) < 400


def test_a_repeated_micro_batch_has_the_instant_of_its_claim(spark: Any, tmp_path: Path) -> None:
    index = directory(tmp_path / "index", [(1, "at < now()", 1.0)])
    first = datetime.now(UTC)
    trees = [{"at": (first + timedelta(seconds=i / 2)).isoformat()} for i in range(400)]
    put_events(tmp_path / "events", 0, trees, 0)
    told: list[list[int]] = []

    def tell(batch: Any, _: int) -> None:
        told.append(sorted(row.id for row in batch.collect()))
        if len(told) == 1:
            raise RuntimeError("the receiver is away")

    writer = stream(events_of(spark, tmp_path / "events"), index).writeStream.foreachBatch(tell)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    with pytest.raises(Exception, match="the receiver is away"):
        writer.start().awaitTermination()
    time.sleep(1.5)
    writer.start().awaitTermination()
    assert told[0] == told[1]
    assert 0 < len(told[0]) < 400


def test_a_table_of_predicates_with_timestamps(spark: Any, tmp_path: Path) -> None:
    moment = datetime(2026, 1, 31, 10, tzinfo=UTC)
    rows = [(1, "at", ">", moment, None), (2, "at", "between", moment - timedelta(1), moment)]
    table = spark.createDataFrame(
        rows, "subscription bigint, attribute string, op string, timestamp timestamp, upper_timestamp timestamp"
    )
    compile(table, str(tmp_path / "index"))
    events = spark.createDataFrame(
        [(0, json.dumps({"at": TIMES[0]})), (1, json.dumps({"at": TIMES[1]}))], "id bigint, event string"
    )
    assert pairs(match(events, str(tmp_path / "index"))) == {(0, 1), (1, 2)}
