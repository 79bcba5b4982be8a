"""match on Spark: every shape of events, every form of result, and the errors of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions

from siftline import Engine
from siftline.errors import SnapshotError, TableError
from siftline.spark.match import match
from siftline.spark.profile import profile
from siftline.spark.worker.counts import Counts
from siftline.spark.worker.sharded import in_order
from spark.directories import directory

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent.parent / "cases.json").read_text(encoding="utf-8"))
SUBSCRIPTIONS = [("one", "a = 1", 1.0), ("two", "a >= 1", 2.0), ("three", "b > 6 or a = 1", 3.0)]
EVENTS: list[dict[str, float]] = [{"a": 1.0, "b": 5.0}, {"a": 2.0}, {}, {"b": 7.0}]
MATCHES = {(0, "one"), (0, "two"), (0, "three"), (1, "two"), (3, "three")}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    return directory(tmp_path_factory.mktemp("index") / "index", SUBSCRIPTIONS)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same subscriptions in three shards, one of which every event must visit."""
    groups = [[row] for row in SUBSCRIPTIONS]
    return directory(tmp_path_factory.mktemp("index") / "index", *groups, pivots=[["a"], ["a"], None])


SHAPES = {
    "JSON": "id bigint, event string",
    "binary": "id bigint, event binary",
    "map": "id bigint, event map<string, double>",
    "struct": "id bigint, event struct<a: double, b: double>",
    "entries": "id bigint, event array<struct<name: string, value: double>>",
    "two arrays": "id bigint, n array<string>, v array<double>",
    "columns": "id bigint, a double, b double",
    "variant": "id bigint, event string",
}


def events_of(spark: Any, shape: str) -> tuple[Any, Any]:
    """Return a DataFrame, and what `event` has to be."""
    cells: list[tuple[Any, ...]] = []
    for tree in EVENTS:
        text = json.dumps(tree)
        cells.append(
            {
                "JSON": (text,),
                "variant": (text,),
                "binary": (bytearray(text.encode()),),
                "map": (tree,),
                "struct": ((tree.get("a"), tree.get("b")),),
                "entries": (list(tree.items()),),
                "two arrays": (list(tree), list(tree.values())),
                "columns": (tree.get("a"), tree.get("b")),
            }[shape]
        )
    frame = spark.createDataFrame([(number, *row) for number, row in enumerate(cells)], SHAPES[shape])
    if shape == "variant":
        frame = frame.withColumn("event", functions.parse_json("event"))
    return frame, ("n", "v") if shape == "two arrays" else "event"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("plan", ["replicated", "sharded"])
def test_every_shape(spark: Any, index: str, shards: str, shape: str, plan: str) -> None:
    frame, event = events_of(spark, shape)
    found = match(frame, index if plan == "replicated" else shards, event=event, plan=plan)
    assert found.columns == ["id", "subscription"]
    rows = [tuple(row) for row in found.collect()]
    assert set(rows) == MATCHES
    assert len(rows) == len(MATCHES)


@pytest.mark.parametrize("plan", ["replicated", "sharded"])
def test_every_form_of_result(spark: Any, shards: str, plan: str) -> None:
    frame, _ = events_of(spark, "JSON")
    lists = {row.id: sorted(row.subscriptions) for row in match(frame, shards, how="arrays", plan=plan).collect()}
    assert lists == {0: ["one", "three", "two"], 1: ["two"], 2: [], 3: ["three"]}
    counts = {row.id: row.matches for row in match(frame, shards, how="counts", plan=plan).collect()}
    assert counts == {0: 3, 1: 1, 2: 0, 3: 1}
    best = match(frame, shards, how="top-k", k=2, plan=plan)
    assert best.columns == ["id", "subscription", "weight"]
    expected = {(0, "three", 3.0), (0, "two", 2.0), (1, "two", 2.0), (3, "three", 3.0)}
    assert {tuple(row) for row in best.collect()} == expected
    weighted = match(frame, shards, weights=True, plan=plan)
    weights = {id: weight for id, _, weight in SUBSCRIPTIONS}
    assert {tuple(row) for row in weighted.collect()} == {(id, name, weights[name]) for id, name in MATCHES}


@pytest.mark.parametrize("plan", ["replicated", "sharded"])
@pytest.mark.parametrize("shape", ["JSON", "binary"])
def test_all_cases(spark: Any, tmp_path: Path, plan: str, shape: str) -> None:
    subscriptions = [(number, case["subscription"]) for number, case in enumerate(CASES)]
    groups = [subscriptions] if plan == "replicated" else [subscriptions[first::3] for first in range(3)]
    path = directory(tmp_path / "index", *groups)
    texts = [(number, json.dumps(case["event"])) for number, case in enumerate(CASES)]
    frame = spark.createDataFrame(texts, "id bigint, event string")
    if shape == "binary":
        frame = frame.withColumn("event", frame.event.cast("binary"))
    found = {row.id for row in match(frame, path, plan=plan).where("id = subscription").collect()}
    assert [CASES[number]["name"] for number in sorted(found)] == [case["name"] for case in CASES if case["expected"]]


def test_keys_of_any_type_and_number(spark: Any, index: str) -> None:
    frame = spark.createDataFrame([("x", 2.5, '{"a": 2}')], "name string, size double, value string")
    found = match(frame, index, key=["name", "size"], event="value")
    assert [tuple(row) for row in found.collect()] == [("x", 2.5, "two")]


@pytest.mark.parametrize("plan", ["replicated", "sharded"])
@pytest.mark.parametrize("how", ["pairs", "counts", "top-k"])
def test_names_with_dots_and_quotes(spark: Any, shards: str, plan: str, how: str) -> None:
    """A column of that name, or a field of a struct; as keys, whole events and attributes."""
    struct = "struct<id: bigint, `a.b`: struct<`c``d`: string>, event: string>"
    frame = spark.createDataFrame([(1, 2, (3, ("x",), '{"a": 2}'))], f"`the.id` bigint, `i``d` bigint, meta {struct}")
    keys = ["the.id", "i`d", "meta.id", "meta.`a.b`.`c``d`"]
    found = match(frame, shards, key=keys, event="meta.event", how=how, plan=plan)
    assert found.columns[:4] == ["the.id", "i`d", "id", "c`d"]
    assert [tuple(row)[:4] for row in found.collect()] == [(1, 2, 3, "x")]
    quoted = match(frame, shards, key=["`the.id`", "`i``d`", "`meta`.`id`"], event="`meta`.`event`", how=how, plan=plan)
    assert [tuple(row)[:3] for row in quoted.collect()] == [(1, 2, 3)]


def test_attributes_with_dots(spark: Any, tmp_path: Path) -> None:
    """A column `a.b` is the attribute a.b, as a key `a.b` of a JSON object is."""
    path = directory(tmp_path / "index", [(1, "a.b = 1"), (2, "key.x = 1")])
    frame = spark.createDataFrame([(1, 1, 1)], "`key.id` int, `a.b` int, `key.x` int")
    assert [tuple(row) for row in match(frame, path, key="key.id").orderBy("subscription").collect()] == [
        (1, 1),
        (1, 2),
    ]
    for key in ("key.id", "`key.id`"):
        assert sorted(profile(frame, key=key).counts) == ["a.b", "key.x"]
    nested = spark.createDataFrame([((7, '{"a": 5}'),)], "x struct<id: int, event: string>")
    assert profile(nested, key="x.id", event="x.event").samples == {"a": [5]}


@pytest.mark.parametrize(
    ("key", "message"),
    [("meta.name", "no column 'meta.name'"), ("`a", "no column '`a'"), (["id", "meta.id"], "two keys .* 'id'")],
)
def test_names_that_mean_nothing(spark: Any, index: str, key: Any, message: str) -> None:
    frame = spark.createDataFrame([], "id int, meta struct<id: int>, a double")
    with pytest.raises(TableError, match=message):
        match(frame, index, key=key)


def test_a_stream_is_refused(spark: Any, index: str, tmp_path: Path) -> None:
    arriving = spark.readStream.schema("id bigint, event string").json(str(tmp_path))
    with pytest.raises(TableError, match=r"the events are a stream.*use `stream`"):
        match(arriving, index)


@pytest.mark.parametrize("plan", ["replicated", "sharded"])
def test_bad_events_are_dead_letters(spark: Any, shards: str, tmp_path: Path, plan: str) -> None:
    texts = [(0, '{"a": 1}'), (1, '{"a": 1'), (2, None), (None, "{"), (4, '["a"]'), (5, '{"a": "' + "x" * 200 + '"}')]
    frame = spark.createDataFrame(texts, "id bigint, event string").repartition(2)
    counts = Counts(spark)
    dead = str(tmp_path / "dead")
    found = match(frame, shards, plan=plan, dead_letters=dead, counts=counts, max_event_bytes=100).collect()
    assert {tuple(row) for row in found} == {(0, "one"), (0, "two"), (0, "three")}
    letters = {row.id: (row.event, row.reason) for row in spark.read.parquet(dead).collect()}
    assert letters == {
        1: ('{"a": 1', "not a JSON object: expecting ',' delimiter at byte 7"),
        2: (None, "the event is null"),
        None: ("{", "not a JSON object: expecting property name enclosed in double quotes at byte 1"),
        4: ('["a"]', "not a JSON object: an array"),
        5: (texts[5][1], "the event has 209 bytes; at most 100 are allowed"),
    }
    assert (counts.events, counts.matches, counts.dead_letters) == (1, 3, 5)


@pytest.mark.parametrize("shape", ["JSON", "map", "two arrays"])
def test_events_are_routed_in_an_order_of_their_own(spark: Any, shape: str) -> None:
    """A task that Spark has to compute again may get them in another one."""
    frame, _ = events_of(spark, shape)
    rows = frame.collect()
    orders = [spark.createDataFrame(order, frame.schema).coalesce(1) for order in (rows, rows[::-1])]
    first, second = (in_order(each).collect() for each in orders)
    assert first == second
    assert sorted(row.id for row in first) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        ("key bigint, event string", {}, "no column 'id'.*the columns are: 'key', 'event'"),
        ("id bigint, event string", {"event": "text"}, "no column 'text'"),
        ("id bigint, value string", {}, "event='value'"),
        ("id bigint", {}, "no columns at all"),
        ("id bigint, event bigint", {}, "column 'event' has the type bigint; it must be JSON text"),
        ("id bigint, event array<string>", {}, "column 'event' has the type array<string>"),
        ("id bigint, event map<int, int>", {}, "keys of a map must be strings"),
        ("id bigint, event struct<a: binary>", {}, "'a': the type .*binary"),
        ("id bigint, a interval day, b int", {}, "'a': the type"),
        ("id bigint, n array<int>, v array<int>", {"event": ("n", "v")}, "an array of strings and an array"),
        ("id bigint, n string", {"event": ("n",)}, "two columns"),
        ("subscription bigint, event string", {"key": "subscription"}, "rename it"),
        ("id bigint, event string", {"key": []}, "key column"),
    ],
)
def test_wrong_columns_are_refused_at_once(
    spark: Any, index: str, schema: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TableError, match=message):
        match(spark.createDataFrame([], schema), index, **options)


@pytest.mark.parametrize("options", [{"how": "some"}, {"plan": "best"}, {"how": "top-k", "k": 0}])
def test_wrong_options_are_refused_at_once(spark: Any, index: str, options: dict[str, Any]) -> None:
    frame, _ = events_of(spark, "JSON")
    with pytest.raises(ValueError, match=next(iter(reversed(options)))):
        match(frame, index, **options)
    with pytest.raises(ValueError, match="no weights"):
        match(frame, index, how="counts", weights=True)


def test_a_damaged_or_missing_index_is_named(spark: Any, tmp_path: Path) -> None:
    frame, _ = events_of(spark, "JSON")
    with pytest.raises(SnapshotError, match="nowhere"):
        match(frame, str(tmp_path / "nowhere"))
    path = Path(directory(tmp_path / "index", SUBSCRIPTIONS))
    shard = path / "versions" / "1" / "shards" / "0"
    largest = max((file for file in shard.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)
    with pytest.raises(PythonException, match=str(shard)):
        match(frame, str(path)).collect()


def test_an_index_made_anew_under_its_old_name(spark: Any, tmp_path: Path) -> None:
    frame, _ = events_of(spark, "JSON")
    path = directory(tmp_path / "index", SUBSCRIPTIONS)
    assert match(frame, path).count() == len(MATCHES)
    directory(tmp_path / "index", SUBSCRIPTIONS[:1])
    assert match(frame, path).count() == 1


def test_integers_as_ids(spark: Any, tmp_path: Path) -> None:
    frame, _ = events_of(spark, "JSON")
    path = directory(tmp_path / "index", [(2**62, "a = 1"), (-5, "a = 2")])
    assert {tuple(row) for row in match(frame, path).collect()} == {(0, 2**62), (1, -5)}
    assert match(frame, path).schema["subscription"].dataType.simpleString() == "bigint"


def test_the_result_is_that_of_an_engine(spark: Any, tmp_path: Path) -> None:
    """Drawn wishes and products, against one engine in this process."""
    from siftline.demo.catalogue import draw_shop

    shop = draw_shop(2000, 300, seed=3)
    engine = Engine("scan")
    engine.add_many(shop.subscriptions)
    path = tmp_path / "index"
    whole = Engine()
    whole.add_many(shop.subscriptions)
    from siftline.spark.directory.draft import Draft
    from siftline.spark.directory.versions import Shard

    with Draft(path) as draft:
        whole.save(draft.folder / "made")
        draft.commit([Shard("0", draft.folder / "made", 2000, 1)], id_type="bigint", quarantined=0, statistics=None)
    frame = spark.createDataFrame(list(enumerate(shop.events["event"].to_pylist())), "id bigint, event string")
    found = {tuple(row) for row in match(frame.repartition(3), str(path)).collect()}
    expected = engine.match_batch([json.loads(text) for text in shop.events["event"].to_pylist()])
    assert found == set(zip(expected["event"].to_pylist(), expected["subscription"].to_pylist(), strict=True))
    assert len(found) >= 300
