"""Index directories on a file system of Hadoop: `viewfs`, mounted onto a folder that Python workers do not know."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from siftline.errors import SnapshotError, SparkError, StorageError
from siftline.spark import IndexDirectory, apply, compact, compile, match, match_files, profile, stream
from siftline.spark.directory.mirror import mirror_of
from siftline.spark.directory.remote import RemoteDirectory, RemoteDraft

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parent.parent
ROWS = [(number, f"a = {number % 7} and b{number % 5} >= {number % 3}", float(number % 4)) for number in range(60)]
ROWS += [(60, "a > 5 or c is null", 1.0), (61, "not (a = 1) and b1 < 2", 2.0), (62, "a <", 1.0)]
TREES = [(number, f'{{"a": {number % 9}, "b{number % 5}": {number % 4}}}') for number in range(40)] + [(40, "{")]


@pytest.fixture
def uri(spark: Any, tmp_path: Path) -> Iterator[str]:
    """Mount the folder `store` as viewfs://<a name of its own>/data."""
    (tmp_path / "store").mkdir()
    link = f"fs.viewfs.mounttable.{tmp_path.name}.link./data"
    settings = spark._jsc.hadoopConfiguration()
    settings.set(link, (tmp_path / "store").as_uri())
    yield f"viewfs://{tmp_path.name}/data/index"
    settings.unset(link)


def subscriptions(spark: Any, rows: Any = None) -> Any:
    return spark.createDataFrame(
        ROWS if rows is None else rows, "subscription bigint, expression string, weight double"
    )


def events(spark: Any) -> Any:
    return spark.createDataFrame(TREES, "id bigint, event string").repartition(3)


def rows_of(frame: Any) -> list[Any]:
    return sorted(tuple(row) for row in frame.collect())


@pytest.mark.parametrize("shards", [1, 3])
def test_matches_are_those_of_a_local_index(spark: Any, tmp_path: Path, uri: str, shards: int) -> None:
    statistics = profile(events(spark))
    local = compile(subscriptions(spark), tmp_path / "local", statistics, shards=shards)
    remote = compile(subscriptions(spark), uri, statistics, shards=shards)
    assert isinstance(remote, RemoteDirectory)
    assert (remote.version, remote.subscriptions, remote.quarantined) == (1, 62, 1)
    assert spark.read.parquet(remote.quarantine_path).first().subscription == 62
    assert remote.statistics is not None
    assert remote.statistics.to_dict() == statistics.to_dict()
    wanted = rows_of(match(events(spark), local, dead_letters="ignore"))
    assert len(wanted) > 40
    for plan in ("replicated", "sharded"):
        assert rows_of(match(events(spark), uri, plan=plan, dead_letters="ignore")) == wanted
    wide = events(spark).where("id < 40").selectExpr("id", "from_json(event, 'a int, b1 int') as event")
    assert rows_of(match(wide, uri, plan="sharded")) == rows_of(match(wide, local))


def test_paths_of_any_characters(spark: Any, tmp_path: Path, uri: str) -> None:
    place = uri.replace("/index", "/all/10:30 #1 50%/in%20dex")
    made = compile(subscriptions(spark), place, shards=2)
    assert (tmp_path / "store" / "all" / "10:30 #1 50%" / "in%20dex" / "commits" / "1.json").exists()
    assert spark.read.parquet(str(made.quarantine_path)).count() == 1
    local = compile(subscriptions(spark), tmp_path / "local")
    wanted = rows_of(match(events(spark), local, dead_letters="ignore"))
    for plan in ("replicated", "sharded"):
        assert rows_of(match(events(spark), place, plan=plan, dead_letters="ignore")) == wanted


def test_unwritable_paths_are_named(spark: Any, tmp_path: Path, uri: str) -> None:
    (tmp_path / "store" / "index").write_text("a file")
    with pytest.raises(StorageError, match=r"viewfs://.*/data/index.* cannot be read or written: .*not a directory"):
        compile(subscriptions(spark), uri)


def test_match_files_takes_a_remote_index(spark: Any, tmp_path: Path, uri: str) -> None:
    compile(subscriptions(spark), uri)
    events(spark).write.parquet(str(tmp_path / "events"))
    written = match_files(str(tmp_path / "events"), uri, tmp_path / "matches", dead_letters="ignore")
    assert written.rows == match(events(spark), uri, dead_letters="ignore").count()


def test_a_table_without_subscriptions(spark: Any, uri: str) -> None:
    assert compile(subscriptions(spark, ROWS[:0] + ROWS[-1:]), uri).subscriptions == 0
    assert match(events(spark), uri, dead_letters="ignore").count() == 0


def test_versions_replace_each_other_and_old_ones_go_away(spark: Any, tmp_path: Path, uri: str) -> None:
    for number in range(1, 6):
        index = compile(subscriptions(spark, [(number, "a >= 0", 1.0)]), uri, keep=timedelta(0))
        assert index.version == number
        assert {row.subscription for row in match(events(spark), uri, dead_letters="ignore").collect()} == {number}
    store = tmp_path / "store" / "index"
    assert {path.name for path in (store / "commits").glob("[0-9]*")} == {"3.json", "4.json", "5.json"}
    assert len(list((store / "versions").glob("siftline-*"))) == 3
    assert IndexDirectory.open(uri, 4).version == 4
    brought = spark.sparkContext._jsc.sc().addedFiles().toString()  # what executors that join later have to fetch
    names = re.findall(rf"{tmp_path.name}/data/index/versions/(siftline-index-\w+)", brought)
    assert sorted(names) == sorted(path.name for path in (store / "versions").glob("siftline-*"))
    with pytest.raises(SnapshotError, match=r"has no version 2 any more: there is no viewfs:.*commits/2\.json"):
        IndexDirectory.open(uri, 2)


def test_of_two_at_a_time_one_wins(spark: Any, tmp_path: Path, uri: str) -> None:
    with RemoteDraft(uri, spark) as late:
        assert compile(subscriptions(spark), uri).version == 1
        with pytest.raises(SparkError, match="something else was compiled into this directory meanwhile"):
            late.commit([], id_type="bigint", quarantined=0, statistics=None)
    assert IndexDirectory.open(uri).subscriptions == 62
    assert len(list((tmp_path / "store" / "index" / "versions").glob("siftline-*"))) == 1


def test_compilations_of_several_threads(spark: Any, uri: str) -> None:
    compile(subscriptions(spark), uri)
    found: list[Any] = []

    def run(number: int) -> None:
        try:
            found.append(compile(subscriptions(spark, [(number, "a >= 0", 1.0)]), uri))
        except SparkError as error:
            found.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [each for each in found if isinstance(each, IndexDirectory)]
    assert winners
    assert {each.version for each in winners} == set(range(2, 2 + len(winners)))
    assert IndexDirectory.open(uri).subscriptions == 1


def test_a_compilation_that_fails_leaves_nothing(spark: Any, tmp_path: Path, uri: str) -> None:
    columns = "0 as shard", "'x' as file", "1L as subscriptions", "1L as bytes"
    with pytest.raises(AnalysisException, match="pivots"), RemoteDraft(uri, spark) as draft:
        draft.written(subscriptions(spark).selectExpr(*columns))  # it is written, and then there are no pivots
    with pytest.raises(SnapshotError, match="there is no index at viewfs"):
        IndexDirectory.open(uri)
    assert not list((tmp_path / "store").rglob("*.parquet"))


def test_damage_is_named(spark: Any, tmp_path: Path, uri: str) -> None:
    index = compile(subscriptions(spark), uri)
    (document,) = (tmp_path / "store").rglob("version.json")
    document.write_bytes(document.read_bytes().replace(b"62", b"63"))
    document.with_name(".version.json.crc").unlink()
    with pytest.raises(SnapshotError, match=r"viewfs:.*version\.json is damaged"):
        IndexDirectory.open(uri)
    document.unlink()
    with pytest.raises(SnapshotError, match=r"damaged: there is no viewfs:.*version\.json"):
        IndexDirectory.open(uri)
    with pytest.raises(SparkError, match="nowhere"):
        compile(subscriptions(spark), "nowhere://x/index")
    assert not mirror_of(index.reference.partition(":")[2]).exists()


def test_functions_that_need_a_mounted_path(spark: Any, tmp_path: Path, uri: str) -> None:
    compile(subscriptions(spark), uri)
    arriving = spark.readStream.schema("id bigint, event string").json(str(tmp_path))
    for use in (lambda: apply(uri, []), lambda: compact(uri), lambda: stream(arriving, uri)):
        with pytest.raises(SparkError, match="must be on a file system that all machines have mounted, not on viewfs"):
            use()


def test_a_cluster_whose_machines_share_nothing(spark: Any, tmp_path: Path) -> None:
    """Executors are processes of their own, with temporary folders and mirrors of their own."""
    (tmp_path / "store").mkdir()
    paths = [str(TESTS), *(path for path in sys.path if path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(TESTS / "spark" / "run_remote.py"), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    local = compile(subscriptions(spark), tmp_path / "local", shards=3)
    wanted = rows_of(match(events(spark), local, dead_letters="ignore"))
    for plan in ("replicated", "sharded"):
        assert rows_of(spark.read.parquet(str(tmp_path / plan))) == wanted
