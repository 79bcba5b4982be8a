"""Operators inside the workers: the same matches as the oracle's, batches at once, and what they learn is merged."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

import siftline
from siftline.operators.learned import Learned
from siftline.operators.modules import load_modules
from siftline.spark.changes import apply, compact
from siftline.spark.compile import compile
from siftline.spark.directory.documents import write_document
from siftline.spark.directory.learned import learned_of, merge, read_learned, total_file, write_learned
from siftline.spark.directory.locks import held
from siftline.spark.directory.versions import IndexDirectory
from siftline.spark.match import match
from siftline.spark.stream import stream
from siftline.spark.worker.learning import Learning
from spark.streaming import put_events, run_all, written

if TYPE_CHECKING:
    from collections.abc import Iterable

MODULE = str(Path(__file__).with_name("spark_operators.py"))
SUBSCRIPTIONS = {
    1: "spark_multiple(2) and spark_multiple(3)",
    2: "kind = 'a' and spark_multiple(2)",
    3: "spark_digits(?d) and ?d > 7 and not spark_multiple(2)",
    4: "spark_fails() or kind = 'b'",
    5: "spark_above(20) and kind = 'a'",
    6: "kind = 'b' and n > 25",
    7: "spark_digits(?d) and spark_digits(?e) and ?d > ?e + 3",
    8: "not spark_fails()",  # true for no event: it is true, or it fails, which is unknown
}
EVENTS: list[dict[str, Any]] = [{"n": n, "kind": "ab"[n % 2]} for n in range(40)]


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    load_modules([MODULE])


@pytest.fixture(scope="module")
def index(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(spark, tmp_path_factory.mktemp("index") / "index")


def compiled(spark: Any, path: Path, **options: Any) -> str:
    table = spark.createDataFrame(list(SUBSCRIPTIONS.items()), "subscription bigint, expression string")
    made = compile(table, path, operators=[MODULE], **options)
    assert (made.subscriptions, made.quarantined) == (len(SUBSCRIPTIONS), 0)
    return str(path)


def expected(subscriptions: Iterable[tuple[int, str]] = tuple(SUBSCRIPTIONS.items())) -> set[tuple[int, Any]]:
    oracle = siftline.Engine("scan")
    oracle.add_many(subscriptions)
    return {(number, id) for number, event in enumerate(EVENTS) for id in oracle.match(event)}


def frame(spark: Any, n_partitions: int = 2, **more: Any) -> Any:
    rows = [(number, json.dumps({**event, **more})) for number, event in enumerate(EVENTS)]
    return spark.createDataFrame(rows, "id bigint, event string").coalesce(1).repartition(n_partitions)


def pairs(found: Any) -> set[tuple[int, Any]]:
    return {tuple(row) for row in found.collect()}


def test_matches_are_those_of_the_oracle(spark: Any, index: str) -> None:
    assert pairs(match(frame(spark), index)) == expected()
    assert 8 not in {id for _, id in expected()}


@pytest.mark.parametrize("schedule", ["naive-no-memo", "sub-order"])
def test_every_plan_and_schedule_gives_them(spark: Any, tmp_path: Path, schedule: str) -> None:
    path = compiled(spark, tmp_path / "index", shards=2, schedule=schedule)
    assert IndexDirectory.open(path).schedule == schedule
    assert pairs(match(frame(spark), path, plan="sharded")) == expected()


def test_a_batch_is_one_call(spark: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    table = spark.createDataFrame([(1, "spark_above(20) and kind = 'a'")], "subscription bigint, expression string")
    compile(table, tmp_path / "index", operators=[MODULE])
    found = pairs(match(frame(spark, 1, log=str(log)), str(tmp_path / "index")))
    assert found == {(n, 1) for n in range(22, 40, 2)}
    assert log.read_text(encoding="utf-8").splitlines() == ["above 20 20"]  # the twenty events of kind a, at once


def test_statistics_of_workers_are_merged(spark: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    rows = [(1, "spark_multiple(2) and spark_multiple(5)"), (2, "spark_fails()")]
    table = spark.createDataFrame(rows, "subscription bigint, expression string")
    index = tmp_path / "index"
    path = str(index)
    compile(table, path, operators=[MODULE])
    match(frame(spark, 3, log=str(log)), path).count()
    learned = learned_of(index)
    lines = Counter(log.read_text(encoding="utf-8").splitlines())
    outcomes = {json.loads(key)[1][0]: counts for key, counts in learned.predicates.items() if "multiple" in key}
    assert {of: counts[2] for of, counts in outcomes.items()} == {of: lines[f"multiple {of}"] for of in (2, 5)}
    assert all(n_true + n_false == n for n_true, n_false, n in outcomes.values())
    shown = IndexDirectory.open(path).learned()
    assert shown["spark_multiple"]["calls"] == sum(lines.values())
    assert (shown["spark_fails"]["calls"], shown["spark_fails"]["failures"]) == (40, 20)
    assert shown["spark_fails"]["share_true"] == 0.5
    # When the next job runs, its tasks merge these files, go on from the sum, and record their own.
    assert len(recorded(index)) == 3
    match(frame(spark, 2, log=str(log)), path).count()
    assert len(recorded(index)) == 3
    assert "total.json" in recorded(index)
    assert read_learned(total_file(index)) == learned
    lines = Counter(log.read_text(encoding="utf-8").splitlines())
    assert IndexDirectory.open(path).learned()["spark_multiple"]["calls"] == sum(lines.values())
    engine = siftline.Engine.open(IndexDirectory.open(path).shard_path(0))
    assert engine.call_stage is not None
    engine.call_stage.take(learned_of(index))
    known = engine.stats()["operators"]["learned"]
    assert known["spark_fails"]["share_true"] == 0.5
    assert 0.0 < known["spark_multiple"]["milliseconds"] < 1000.0


def recorded(index: Path) -> set[str]:
    """Return the names of the documents of what was learned."""
    return {file.name for file in (index / "learned").glob("[!.]*.json")}


def listing(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return everything in a folder, with what changes when it is written to."""
    found = {str(path): path.stat() for path in (folder, *folder.rglob("*"))}
    return {name: (status.st_ino, status.st_size, status.st_mtime_ns) for name, status in found.items()}


def test_planning_writes_nothing(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = compiled(spark, tmp_path / "index", shards=2)
    match(frame(spark), path).count()  # leaves files that the next job merges
    apply(path, [{"change": "remove", "subscription": 4}])
    put_events(tmp_path / "events", 0, EVENTS, 0)
    arriving = spark.readStream.schema("id bigint, event string").json(str(tmp_path / "events"))
    before = listing(tmp_path)
    dead = str(tmp_path / "dead")
    planned = [match(frame(spark), path, plan=plan, dead_letters=dead) for plan in ("replicated", "sharded")]
    planned.append(match(frame(spark), IndexDirectory.open(path), dead_letters=dead, fail_above=0.5))
    planned.append(stream(arriving, path, dead_letters=dead))
    for result in planned:
        result.explain(True)
    assert "MapInArrow" in capsys.readouterr().out
    assert listing(tmp_path) == before
    planned[0].count()
    assert "total.json" in recorded(tmp_path / "index")  # the job has merged them, now that it has run


def test_the_files_of_the_run_itself_are_not_merged(tmp_path: Path) -> None:
    """Spark may repeat a task, which then replaces its file: merged before, it would count twice."""
    one = Learned({'["p", [], []]': [1, 0, 1]}, {"p": [1, 0, 0, 1, 500]})
    for name in ("a-part-00000", "b-part-00000"):
        write_learned(tmp_path, name, one)
    merge(tmp_path, run="b")
    assert recorded(tmp_path) == {"total.json", "b-part-00000.json"}
    assert read_learned(total_file(tmp_path)) == one


def test_tasks_that_begin_together_go_on_from_the_same_sum(tmp_path: Path) -> None:
    one = Learned({'["p", [], []]': [1, 0, 1]}, {"p": [1, 0, 0, 1, 500]})
    write_learned(tmp_path, "a-part-00000", one)
    with held(tmp_path / "learned" / "lock", 0.0) as is_held:
        assert is_held  # by a task that is merging
        waiting = Thread(target=merge, args=[tmp_path])
        waiting.start()
        waiting.join(0.1)
        assert waiting.is_alive()
    waiting.join()
    assert recorded(tmp_path) == {"total.json"}


def test_damaged_and_killed_merges(tmp_path: Path) -> None:
    folder = tmp_path / "learned"
    folder.mkdir()
    one = Learned({'["p", [], []]': [1, 0, 1]}, {"p": [1, 0, 0, 1, 500]})
    write_document(folder / "a-part-00000.json", one._asdict())
    (folder / "b-part-00000.json").write_text("no document", encoding="utf-8")
    merge(tmp_path)
    assert learned_of(tmp_path) == one
    write_document(folder / "c-part-00000.json", one._asdict())
    merge(tmp_path, pause=60.0)  # too soon
    assert (folder / "c-part-00000.json").exists()
    (folder / "c-part-00000.json").unlink()
    # Killed between the sum and the removal of its parts: they are not counted again.
    write_document(folder / "a-part-00000.json", one._asdict())
    assert learned_of(tmp_path) == one
    merge(tmp_path)
    assert learned_of(tmp_path) == one
    assert not list(folder.glob("[ab]-*.json"))


def test_an_index_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = siftline.Engine()
    engine.add("spark_multiple(2)", id=1)
    (tmp_path / "learned").write_text("no folder", encoding="utf-8")
    with Learning(str(tmp_path)).task() as task:
        task.watch([engine])
        assert engine.match({"n": 4}) == [1]
    assert "the statistics of calls cannot be written" in capsys.readouterr().err
    merge(tmp_path)
    assert not learned_of(tmp_path)


def test_changes_and_streams(spark: Any, tmp_path: Path) -> None:
    path = compiled(spark, tmp_path / "index")
    apply(path, [{"subscription": 8, "expression": "spark_multiple(7)"}, {"change": "remove", "subscription": 4}])
    now = {**SUBSCRIPTIONS, 8: "spark_multiple(7)"}
    del now[4]
    assert pairs(match(frame(spark), path)) == expected(now.items())
    put_events(tmp_path / "events", 0, EVENTS[:20], 0)
    put_events(tmp_path / "events", 1, EVENTS[20:], 20)
    run_all(spark, tmp_path, path)
    assert set(written(spark, tmp_path)) == expected(now.items())
    assert "spark_multiple" in IndexDirectory.open(path).learned()
    compact(path)
    assert IndexDirectory.open(path).operators == (MODULE,)
    assert pairs(match(frame(spark), path)) == expected(now.items())


def test_unknown_operators_are_refused(spark: Any, tmp_path: Path) -> None:
    table = spark.createDataFrame([(1, "spark_nowhere()"), (2, "n = 1")], "subscription bigint, expression string")
    made = compile(table, tmp_path / "index")
    assert (made.subscriptions, made.quarantined) == (1, 1)
    with pytest.raises(siftline.SiftlineError, match="there is no schedule"):
        compile(table, tmp_path / "index", schedule="sub-oder")
