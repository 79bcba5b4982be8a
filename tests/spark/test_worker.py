"""Workers on Arrow batches, without Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from siftline import Engine
from siftline.errors import SnapshotError
from siftline.spark.worker.dead_letters import DeadLetters
from siftline.spark.worker.events import ARRAYS, COLUMNS, ENTRIES, JSON, WHOLE, Shape
from siftline.spark.worker.loading import open_shards
from siftline.spark.worker.matcher import COUNTS, LISTS, PAIRS, TOP, Matcher

if TYPE_CHECKING:
    from pathlib import Path

EVENTS: list[dict[str, Any]] = [{"a": 1.0, "b": 5.0}, {"a": 2.0}, {}, {"b": 7.0}]
KEYS = [f"event {i}" for i in range(len(EVENTS))]
SUBSCRIPTIONS = [("one", "a = 1", 1.0), ("two", "a >= 1", 2.0), ("three", "b > 6 or a = 1", 3.0)]
MATCHES = {("event 0", "one"), ("event 0", "two"), ("event 0", "three"), ("event 1", "two"), ("event 3", "three")}


@pytest.fixture
def shard(tmp_path: Path) -> str:
    return saved(tmp_path / "shard", SUBSCRIPTIONS)


def saved(path: Path, subscriptions: list[Any]) -> str:
    engine = Engine()
    engine.add_many(subscriptions)
    engine.save(path)
    return str(path)


def json_batch(texts: list[Any], keys: list[Any] | None = None) -> Any:
    return pa.record_batch({"id": keys or [f"event {i}" for i in range(len(texts))], "event": texts})


def texts() -> list[str]:
    return [json.dumps(event) for event in EVENTS]


def shaped(kind: str) -> tuple[Shape, Any]:
    names = [list(event) for event in EVENTS]
    values = [list(event.values()) for event in EVENTS]
    pairs = [list(event.items()) for event in EVENTS]
    number = pa.float64()
    entry = pa.struct([("name", pa.string()), ("value", number)])
    columns: dict[str, dict[str, Any]] = {
        JSON: {"event": pa.array(texts())},
        "binary": {"event": pa.array(texts()).cast(pa.binary())},
        WHOLE: {"event": pa.array(pairs, pa.map_(pa.string(), number))},
        "struct": {"event": pa.array(EVENTS, pa.struct([("a", number), ("b", number)]))},
        ENTRIES: {"event": pa.array([[{"name": n, "value": v} for n, v in row] for row in pairs], pa.list_(entry))},
        ARRAYS: {"n": pa.array(names, pa.list_(pa.string())), "v": pa.array(values, pa.list_(number))},
        COLUMNS: {name: pa.array([event.get(name) for event in EVENTS], number) for name in ("a", "b")},
    }
    batch = pa.record_batch({"id": KEYS, **columns[kind]})
    kinds = {"binary": JSON, "struct": WHOLE}
    return Shape(kinds.get(kind, kind), ("id",), tuple(columns[kind])), batch


def matcher(shard: str, shape: Shape | None = None, path: Path | None = None, **options: Any) -> Matcher:
    shape = shape or Shape(JSON, ("id",), ("event",))
    dead_letters = DeadLetters(None if path is None else str(path), run="x")
    return Matcher(shape=shape, shards=(shard,), are_ids_text=True, dead_letters=dead_letters, now=0, **options)


def rows(batches: Any) -> list[tuple[Any, ...]]:
    return [row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


@pytest.mark.parametrize("kind", [JSON, "binary", WHOLE, "struct", ENTRIES, ARRAYS, COLUMNS])
def test_every_shape_gives_the_same_pairs(kind: str, shard: str) -> None:
    shape, batch = shaped(kind)
    found = rows(matcher(shard, shape)([batch, batch.slice(1, 2), batch.slice(4)]))
    assert set(found) == MATCHES
    assert len(found) == len(MATCHES) + 1


def test_arrays_counts_and_the_best(shard: str) -> None:
    batch = json_batch(texts())
    lists = {key: sorted(ids) for key, ids in rows(matcher(shard, how=LISTS)([batch]))}
    assert lists == {"event 0": ["one", "three", "two"], "event 1": ["two"], "event 2": [], "event 3": ["three"]}
    counts = dict(rows(matcher(shard, how=COUNTS)([batch])))
    assert counts == {"event 0": 3, "event 1": 1, "event 2": 0, "event 3": 1}
    best = rows(matcher(shard, how=TOP, k=2, has_weights=True)([batch]))
    assert best == [
        ("event 0", "three", 3.0),
        ("event 0", "two", 2.0),
        ("event 1", "two", 2.0),
        ("event 3", "three", 3.0),
    ]


def test_several_shards_are_one_index(tmp_path: Path) -> None:
    paths = tuple(saved(tmp_path / row[0], [row]) for row in SUBSCRIPTIONS)
    batch = json_batch(texts())
    whole = matcher(paths[0])
    several = Matcher(shape=whole.shape, shards=paths, are_ids_text=True, dead_letters=DeadLetters(), now=0)
    assert set(rows(several([batch]))) == MATCHES
    best = Matcher(
        shape=whole.shape,
        shards=paths,
        are_ids_text=True,
        how=TOP,
        k=2,
        has_weights=True,
        dead_letters=DeadLetters(),
        now=0,
    )
    assert rows(best([batch]))[:2] == [("event 0", "three", 3.0), ("event 0", "two", 2.0)]


def test_invalid_events_are_set_aside(shard: str, tmp_path: Path) -> None:
    bad = ['{"a": 1', "[1]", "7", None, '{"a": 1}', '{"a": 1, "x": "' + "y" * 100 + '"}', '{"a": 1}']
    keys = ["broken", "array", "number", "null", None, "giant", "good"]  # a null is a key like any other
    shape = Shape(JSON, ("id",), ("event",), most_bytes=50)
    for how, expected in ((PAIRS, 3), (LISTS, 1), (COUNTS, 1)):
        found = rows(matcher(shard, shape, tmp_path / how, how=how)([json_batch(bad, keys)]))
        assert [row[0] for row in found] == [None] * expected + ["good"] * expected
        (file,) = (tmp_path / how / "run=x").iterdir()
        letters = pq.read_table(file).to_pylist()
        reasons = {row["id"]: row["reason"] for row in letters}
        assert reasons == {
            "broken": "not a JSON object: expecting ',' delimiter at byte 7",
            "array": "not a JSON object: an array",
            "number": "not a JSON object: a number",
            "null": "the event is null",
            "giant": "the event has 117 bytes; at most 50 are allowed",
        }
        assert {row["event"] for row in letters if row["id"] == "array"} == {"[1]"}
        assert file.name == "part-00000-0-0.parquet"


def test_invalid_values_are_set_aside(tmp_path: Path) -> None:
    shards = tuple(saved(tmp_path / name, [(1, f"{name} > '1'")]) for name in ("a", "b"))
    far, near = 2**62, 0
    moments = {"a": [near, far, near, near, near], "b": [near, near, near, far, near]}
    columns = {name: pa.array(values, pa.timestamp("us")) for name, values in moments.items()}
    shape = Shape(COLUMNS, ("id",), ("a", "b"))
    letters = DeadLetters(str(tmp_path / "dead"), run="x")
    both = Matcher(shape=shape, shards=shards, are_ids_text=False, dead_letters=letters, now=0)
    found = rows(both([pa.record_batch({"id": [0, 1, 2, 3, 4], **columns})]))
    assert sorted(row[0] for row in found) == [0, 0, 2, 2, 4, 4]
    reasons = {row["id"]: row["reason"] for row in pq.read_table(tmp_path / "dead").to_pylist()}
    assert reasons == {
        1: "attribute 'a': a date outside the years 1 to 9999",
        3: "attribute 'b': a date outside the years 1 to 9999",
    }


def test_lists_of_different_lengths_and_null_names(shard: str, tmp_path: Path) -> None:
    names, values = [["a"], ["a", "b"], None, [None], []], [[1.0], [1.0], [1.0], [1.0], []]
    columns = {"n": pa.array(names, pa.list_(pa.string())), "v": pa.array(values, pa.list_(pa.float64()))}
    batch = pa.record_batch({"id": list(range(5)), **columns})
    found = rows(matcher(shard, Shape(ARRAYS, ("id",), ("n", "v")), tmp_path / "dead")([batch]))
    assert {row[0] for row in found} == {0}
    reasons = {row["id"]: row["reason"] for row in pq.read_table(tmp_path / "dead").to_pylist()}
    assert reasons == {
        1: "there are 2 names and 1 values",
        2: "the event is null",
        3: "the name of an attribute is null",
    }


def test_a_failed_task_leaves_no_file(shard: str, tmp_path: Path) -> None:
    def batches() -> Any:
        yield json_batch(["7"] * 5000)
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        list(matcher(shard, None, tmp_path)(batches()))
    assert not list((tmp_path / "run=x").iterdir())


def test_many_events_come_back_in_large_batches(shard: str) -> None:
    batch = json_batch(['{"a": 1}'] * 50_000)
    sizes = [result.num_rows for result in matcher(shard)([batch, batch])]
    assert sum(sizes) == 300_000
    assert min(sizes[:-1]) >= 100_000


def test_an_index_is_opened_once(shard: str, tmp_path: Path) -> None:
    assert open_shards([shard])[0] is open_shards([shard])[0]
    before = open_shards([shard])[0]
    saved(tmp_path / "shard", [("other", "a = 1")])
    assert open_shards([shard])[0] is not before
    assert len(open_shards([shard])[0]) == 1


def test_a_missing_or_damaged_shard_is_named(shard: str, tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="nowhere"):
        open_shards([str(tmp_path / "nowhere")])
    largest = max((path for path in (tmp_path / "shard").rglob("*") if path.is_file()), key=lambda p: p.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)
    with pytest.raises(SnapshotError, match="shard"):
        open_shards([shard])


def test_the_folder_of_dead_letters_is_found_on_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers have other working directories."""
    monkeypatch.chdir(tmp_path)
    assert DeadLetters("dead").path == str(tmp_path / "dead")
    assert DeadLetters((tmp_path / "two words").as_uri()).path == str(tmp_path / "two words")
    assert DeadLetters("s3://bucket/dead").path == "s3://bucket/dead"
