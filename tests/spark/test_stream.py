"""stream: subscriptions change while events come, and every micro-batch is compared with the scan."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from siftline.errors import SnapshotError, TableError
from siftline.spark import apply, compact, stream
from siftline.spark.worker.counts import Counts
from spark.changing import Model, tree
from spark.directories import directory
from spark.streaming import claims, events_of, put_events, run_all, written
from spark.test_deltas import first_rows

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent.parent / "cases.json").read_text(encoding="utf-8"))
ROWS = [(1, "a = 1", 1.0), (2, "a >= 1", 2.0), (3, "b > 6 or a = 1", 3.0)]


def expected(model: Model, states: list[Any], batches: list[list[dict[str, Any]]]) -> list[tuple[int, int]]:
    """Return what the scan finds, each batch in its own state."""
    pairs, first = [], 0
    for state, trees in zip(states, batches, strict=True):
        for number, ids in enumerate(model.matches(state, trees)):
            pairs += [(first + number, id) for id in ids]
        first += len(trees)
    return sorted(pairs)


def test_every_batch_is_matched_as_of_its_state(spark: Any, tmp_path: Path) -> None:
    """Changes and compactions come from a thread of their own, whenever they like."""
    chance = random.Random(5)
    rows = first_rows(chance)
    index = tmp_path / "index"
    directory(index, rows[:8], rows[8:])
    model = Model(rows, 5)
    batches = [[tree(chance) for _ in range(8)] for _ in range(12)]
    first = 0
    for number, trees in enumerate(batches):
        put_events(tmp_path / "events", number, trees, first)
        first += len(trees)
    is_over = threading.Event()

    def change() -> None:
        while not is_over.is_set():
            model.change(index, time.time_ns() // 1000)
            if model.last % 7 == 0:
                compact(index)
            time.sleep(0.02)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        query = run_all(spark, tmp_path, index)
    finally:
        is_over.set()
        thread.join()
    states = claims(index, query)
    assert len({state.delta for state in states}) > 3  # it did change on the way
    assert [state.delta for state in states] == sorted(state.delta for state in states)
    assert written(spark, tmp_path) == expected(model, states, batches)


def test_a_change_is_seen_by_the_next_batch(spark: Any, tmp_path: Path) -> None:
    index = Path(directory(tmp_path / "index", ROWS))
    later = datetime.now(UTC) + timedelta(days=1)
    changes: list[list[dict[str, Any]]] = [
        [],
        [{"change": "add", "subscription": 4, "expression": "a = 1", "expires": later}],
        [{"change": "replace", "subscription": 1, "expression": "b = 9"}, {"change": "remove", "subscription": 2}],
        [{"change": "expire", "subscription": 4, "expires": datetime.now(UTC) + timedelta(milliseconds=1)}],
    ]
    seen = []
    for number, each in enumerate(changes):
        apply(index, each, now=0)
        if number == 2:
            compact(index)
        put_events(tmp_path / "events", number, [{"a": 1}], number)
        run_all(spark, tmp_path, index)  # starts again from its checkpoint
        seen.append([id for event, id in written(spark, tmp_path) if event == number])
    assert seen == [[1, 2, 3], [1, 2, 3, 4], [3, 4], [3]]


def test_json_files_and_top_k(spark: Any, tmp_path: Path) -> None:
    index = Path(directory(tmp_path / "index", ROWS))
    apply(index, [{"change": "remove", "subscription": 3}, {"subscription": 9, "expression": "a = 1", "weight": 1.5}])
    put_events(tmp_path / "events", 0, [{"a": 1}, {"a": 2}, {"b": 7}], 0)
    run_all(spark, tmp_path, index, "json", how="top-k", k=2)
    assert written(spark, tmp_path, "json") == [(0, 2), (0, 9), (1, 2)]


def test_foreach_batch_has_the_same_names_for_the_same_matches(spark: Any, tmp_path: Path) -> None:
    """A receiver that is told twice can tell."""
    index = Path(directory(tmp_path / "index", ROWS))
    put_events(tmp_path / "events", 0, [{"a": 1}, {"a": 2}], 0)
    told: list[dict[str, tuple[int, int]]] = []

    def tell(batch: Any, _: int) -> None:
        told.append({row.notification: (row.id, row.subscription) for row in batch.collect()})
        if len(told) == 1:
            apply(index, [{"change": "remove", "subscription": 1}])
            raise RuntimeError("the receiver is away")

    found = stream(events_of(spark, tmp_path / "events"), index, notification=True)
    writer = found.writeStream.foreachBatch(tell).option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match="the receiver is away"):
        writer.trigger(availableNow=True).start().awaitTermination()
    writer.trigger(availableNow=True).start().awaitTermination()
    assert told[0] == told[1]
    assert sorted(told[0].values()) == [(0, 1), (0, 2), (0, 3), (1, 2)]


def test_late_and_repeated_events_are_dropped(spark: Any, tmp_path: Path) -> None:
    index = Path(directory(tmp_path / "index", ROWS))
    hours = [[(0, 10), (1, 10)], [(2, 13), (1, 10)], [(3, 9), (4, 13)]]
    for number, batch in enumerate(hours):
        rows = [
            json.dumps({"id": id, "at": f"2026-01-01T{hour:02d}:00:00Z", "event": '{"a": 1}'}) for id, hour in batch
        ]
        (tmp_path / "events").mkdir(exist_ok=True)
        (tmp_path / "events" / f"{number}.json").write_text("\n".join(rows))
        os.utime(tmp_path / "events" / f"{number}.json", (1_000_000_000 + number,) * 2)
    reader = spark.readStream.schema("id bigint, at timestamp, event string").option("maxFilesPerTrigger", 1)
    found = stream(reader.json(str(tmp_path / "events")), index, time="at", late="1 hour", how="counts")
    ids: list[int] = []
    writer = found.writeStream.foreachBatch(lambda batch, _: ids.extend(row.id for row in batch.collect()))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sorted(ids) == [0, 1, 2, 4]  # 1 came twice, 3 came too late


def test_names_with_dots(spark: Any, tmp_path: Path) -> None:
    """Of keys and of the time of an event; a key may be a field of a struct."""
    index = Path(directory(tmp_path / "index", ROWS))
    (tmp_path / "events").mkdir()
    line = {"the.id": 1, "the.time": "2026-01-01T10:00:00Z", "meta": {"id": 7}, "event": '{"a": 2}'}
    lines = [line, line, {**line, "meta": {"id": 8}}]
    (tmp_path / "events" / "0.json").write_text("\n".join(map(json.dumps, lines)))
    schema = "`the.id` bigint, `the.time` timestamp, meta struct<id: bigint>, event string"
    arriving = spark.readStream.schema(schema).json(str(tmp_path / "events"))
    options: dict[str, Any] = {"key": ["the.id", "meta.id"], "time": "the.time", "late": "1 hour", "notification": True}
    found = stream(arriving, index, **options)
    assert found.columns == ["the.id", "id", "subscription", "notification"]
    rows: list[Any] = []
    writer = found.writeStream.foreachBatch(lambda batch, _: rows.extend(tuple(row)[:3] for row in batch.collect()))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sorted(rows) == [(1, 7, 2), (1, 8, 2)]
    with pytest.raises(TableError, match="no such column"):
        stream(arriving, index, **{**options, "time": "meta.id"})


def test_late_events_and_those_without_a_key(spark: Any, tmp_path: Path) -> None:
    """Nothing tells whether events without a key came before: each of them counts."""
    index = Path(directory(tmp_path / "index", ROWS))
    (tmp_path / "events").mkdir()
    line = {"id": 1, "at": "2026-01-01T10:00:00Z", "event": '{"a": 1}'}
    lines = ["no JSON", "neither", *[json.dumps({**line, "id": None})] * 3, json.dumps(line), json.dumps(line)]
    (tmp_path / "events" / "0.json").write_text("\n".join(lines))
    reader = spark.readStream.schema("id bigint, at timestamp, event string")
    counts = Counts(spark)
    options: dict[str, Any] = {"time": "at", "late": "1 hour", "how": "counts", "counts": counts}
    options["dead_letters"] = "ignore"
    found = stream(reader.json(str(tmp_path / "events")), index, **options)
    assert found.columns == ["id", "matches"]
    writer = found.writeStream.foreachBatch(lambda batch, _: batch.collect() and None)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert (counts.events, counts.dead_letters) == (4, 2)


def test_dead_letters_of_a_batch_that_is_repeated(spark: Any, tmp_path: Path) -> None:
    """A stream that starts again may cut its events into other partitions."""
    index = Path(directory(tmp_path / "index", ROWS))
    put_events(tmp_path / "events", 0, [{"a": 1}] * 4, 0)
    for partitions in (3, 1):

        def fail(batch: Any, _: int, is_first: bool = partitions == 3) -> None:
            batch.collect()
            if is_first:
                raise RuntimeError("the receiver is away")

        events = events_of(spark, tmp_path / "events").selectExpr("id", "'{' as event").repartition(partitions)
        found = stream(events, index, dead_letters=str(tmp_path / "dead"))
        writer = found.writeStream.foreachBatch(fail).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        if partitions == 3:
            with pytest.raises(Exception, match="the receiver is away"):
                query.awaitTermination()
            assert len(list((tmp_path / "dead").rglob("part-*"))) > 1
        else:
            query.awaitTermination()
        dead = spark.read.parquet(str(tmp_path / "dead")).collect()
        assert sorted(row.id for row in dead) == [0, 1, 2, 3]


def test_events_that_cannot_be_read(spark: Any, tmp_path: Path) -> None:
    index = Path(directory(tmp_path / "index", ROWS))
    (tmp_path / "events").mkdir()
    lines = [{"id": 1, "event": '{"a": 1'}, {"id": 2, "event": '{"a": 2}'}, {"id": None, "event": None}]
    for number in range(2):
        (tmp_path / "events" / f"{number}.json").write_text("\n".join(map(json.dumps, lines)))
    counts = Counts(spark)
    run_all(spark, tmp_path, index, dead_letters=str(tmp_path / "dead"), counts=counts)
    assert written(spark, tmp_path) == [(2, 2), (2, 2)]
    dead = spark.read.parquet(str(tmp_path / "dead")).collect()
    assert len({row.run for row in dead}) == 2  # those of each micro-batch stay
    reasons = sorted((str(row.id), row.reason) for row in dead)
    assert [id for id, _ in reasons] == ["1", "1", "None", "None"]
    assert "JSON" in reasons[0][1]
    assert "null" in reasons[2][1]
    assert (counts.events, counts.matches, counts.dead_letters) == (2, 2, 4)


def test_all_cases(spark: Any, tmp_path: Path) -> None:
    """Every case of the language, its subscription changed into the index on the way."""
    cases = [case for case in CASES if isinstance(case["subscription"], str)]
    index = Path(directory(tmp_path / "index", [(-1, "false", 1.0)]))
    half = len(cases) // 2
    pairs = []
    for number, (first, end) in enumerate([(0, half), (half, len(cases))]):
        changes = [{"subscription": id, "expression": cases[id]["subscription"]} for id in range(first, end)]
        assert apply(index, changes).refused == []
        put_events(tmp_path / "events", number, [case["event"] for case in cases[first:end]], first)
        if number:
            compact(index)
        run_all(spark, tmp_path, index)
    pairs = [event for event, id in written(spark, tmp_path) if event == id]
    assert pairs == [number for number, case in enumerate(cases) if case["expected"]]


def test_a_worker_that_is_killed_loses_nothing(spark: Any, tmp_path: Path) -> None:
    """Spark repeats the task; here in a batch job of two tasks, which must be allowed to fail."""
    index = Path(directory(tmp_path / "index", ROWS))
    put_events(tmp_path / "events", 0, [{"a": 1}] * 50, 0)
    mark = tmp_path / "killed"

    def kill_once(batches: Any) -> Any:
        for batch in batches:
            yield batch
            try:
                mark.touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(os.getpid(), 9)

    events = events_of(spark, tmp_path / "events").mapInArrow(kill_once, "id bigint, event string")
    found = stream(events, index)

    def start() -> Any:
        writer = found.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.option("path", str(tmp_path / "matches")).trigger(availableNow=True).start()
        query.awaitTermination()

    with pytest.raises(Exception, match=r"(?i)crashed|worker"):  # in this session a task is not repeated
        start()
    assert mark.exists()
    apply(index, [{"change": "remove", "subscription": 1}])
    start()
    assert written(spark, tmp_path) == [(event, id) for event in range(50) for id in (1, 2, 3)]


def test_changes_in_a_data_frame(spark: Any, tmp_path: Path) -> None:
    """They come in any order, and their times are those of the session's zone."""
    index = Path(directory(tmp_path / "index", ROWS))
    columns = "sequence bigint, change string, subscription bigint, expression string, expires timestamp"
    rows = [(2, "remove", 1, None, None), (1, "add", 1, "a = 5", None), (3, "add", 7, "a = 1", datetime(2100, 1, 1))]
    delta = apply(index, spark.createDataFrame(rows, columns).selectExpr("*", "1 as weight"))
    assert delta.refused == []
    assert [change[:2] for change in delta.changes] == [["put", 1], ["remove", 1], ["put", 7]]
    end = datetime(2100, 1, 1).astimezone().timestamp()  # as Spark takes a naive time: in the zone of this process
    assert delta.changes[2][-1] == end * 1e6


def test_what_is_refused(spark: Any, tmp_path: Path) -> None:
    index = directory(tmp_path / "index", ROWS)
    table = spark.createDataFrame([(1, "{}")], "id bigint, event string")
    with pytest.raises(TableError, match="not a stream"):
        stream(table, index)
    (tmp_path / "events").mkdir()
    events = events_of(spark, tmp_path / "events")
    with pytest.raises(SnapshotError, match="no index"):
        stream(events, str(tmp_path / "none"))
    with pytest.raises(ValueError, match="notifications"):
        stream(events, index, how="counts", notification=True)
    with pytest.raises(ValueError, match="go together"):
        stream(events, index, time="at")
    with pytest.raises(TableError, match="time='at'"):
        stream(events, index, time="at", late="1 hour")
