"""The index directory: commits, remains of killed processes, damage."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from siftline import Engine, Statistics
from siftline.errors import SiftlineError, SnapshotError, SparkError, StorageError
from siftline.spark.changes import apply
from siftline.spark.directory.draft import Draft
from siftline.spark.directory.retention import RETENTION_PERIOD
from siftline.spark.directory.versions import IndexDirectory, Shard
from siftline.spark.runtime.paths import local_path

STATISTICS = Statistics.from_events([{"a": 1}])


def made(
    path: Path | str, text: str = "a = 1", statistics: Statistics | None = None, keep: timedelta = RETENTION_PERIOD
) -> IndexDirectory:
    with Draft(path, keep) as draft:
        return filled(draft, text, statistics)


def filled(draft: Draft, text: str = "a = 1", statistics: Statistics | None = None) -> IndexDirectory:
    engine = Engine()
    engine.add(text, id=1)
    engine.save(draft.shards / ".new")
    shard = Shard("0", draft.shards / ".new", 1, 10, ("a",), False)
    return draft.commit([shard], id_type="bigint", quarantined=2, statistics=statistics)


def found(path: Path, event: dict[str, int]) -> list[int | str]:
    return Engine.open(IndexDirectory.open(path).shard_path(0)).match(event)


def test_a_committed_version_is_read_back(tmp_path: Path) -> None:
    version = made(tmp_path / "index", statistics=STATISTICS)
    read = IndexDirectory.open(str(tmp_path / "index"))
    assert (read.version, read.subscriptions, read.quarantined, read.id_type) == (1, 1, 2, "bigint")
    assert read.shards == version.shards
    assert read.shards[0]._replace(path=Path()) == Shard("0", Path(), 1, 10, ("a",), False)
    assert read.statistics is not None
    assert read.statistics.to_dict() == STATISTICS.to_dict()
    assert found(tmp_path / "index", {"a": 1}) == [1]


def test_a_file_uri_is_a_path(tmp_path: Path) -> None:
    made((tmp_path / "an index").as_uri())
    assert found(tmp_path / "an index", {"a": 1}) == [1]
    with pytest.raises(SparkError, match="hdfs"):
        local_path("hdfs://name/index")


def test_the_newest_version_is_current_and_a_few_stay(tmp_path: Path) -> None:
    for number in range(1, 6):
        assert made(tmp_path, f"a = {number}", keep=timedelta(0)).version == number
    assert found(tmp_path, {"a": 5}) == [1]
    assert sorted(path.name for path in (tmp_path / "versions").iterdir()) == ["3", "4", "5"]
    assert IndexDirectory.open(tmp_path, 3).version == 3
    with pytest.raises(SnapshotError, match=r"no version 2 any more: version 5 is current.*again with `match`"):
        IndexDirectory.open(tmp_path, 2)
    with pytest.raises(SnapshotError, match=r"has no version 7: there is no .*versions/7/version.json"):
        IndexDirectory.open(tmp_path, 7)


def test_versions_stay_for_a_time_after_they_were_replaced(tmp_path: Path) -> None:
    for number in range(1, 7):
        made(tmp_path, f"a = {number}")
    assert sorted(os.listdir(tmp_path / "versions")) == ["1", "2", "3", "4", "5", "6"]
    yesterday = time.time() - 25 * 3600
    for number in (1, 2, 3):  # so 1 and 2 were replaced more than a day ago, and 3 was not
        os.utime(tmp_path / "versions" / str(number) / "version.json", (yesterday, yesterday))
    made(tmp_path, "a = 7")
    assert sorted(os.listdir(tmp_path / "versions")) == ["3", "4", "5", "6", "7"]
    made(tmp_path, "a = 8", keep=timedelta(hours=30))
    assert sorted(os.listdir(tmp_path / "versions")) == ["3", "4", "5", "6", "7", "8"]


def test_unwritable_paths_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for use in (Draft, lambda path: apply(path, [])):
        with pytest.raises(SiftlineError, match=str(tmp_path / "file")):
            use(tmp_path / "file")
    with Draft(tmp_path / "index") as draft:
        shutil.rmtree(draft.folder)
        with pytest.raises(StorageError, match=r"index/versions/\.draft-.* cannot be written: No such file"):
            draft.commit([], id_type="bigint", quarantined=0, statistics=None)


def test_one_draft_at_a_time(tmp_path: Path) -> None:
    with Draft(tmp_path) as draft:
        with pytest.raises(SparkError, match="something else is being compiled"):
            Draft(tmp_path)
        filled(draft)
    assert made(tmp_path, "a = 2").version == 2


def test_a_draft_that_fails_leaves_nothing(tmp_path: Path) -> None:
    made(tmp_path)
    with pytest.raises(ZeroDivisionError), Draft(tmp_path):
        raise ZeroDivisionError
    assert [path.name for path in (tmp_path / "versions").iterdir()] == ["1"]
    assert IndexDirectory.open(tmp_path).version == 1


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from siftline.spark.directory import draft as drafts
from spark.test_directory import filled
def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)
{when}
with drafts.Draft({path!r}) as draft:
    filled(draft, "a = 7")
"""
MOMENTS = {
    "before the version is renamed": "drafts.write_document = kill",
    "before the manifest is replaced": (
        "write = drafts.write_document\n"
        "drafts.write_document = lambda file, new: kill() if file.name == 'manifest.json' else write(file, new)"
    ),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_in_the_middle_of_a_commit(moment: str, tmp_path: Path) -> None:
    made(tmp_path)
    tests = str(Path(__file__).parent.parent)
    code = KILLED.format(tests=tests, when=MOMENTS[moment], path=str(tmp_path))
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert len(os.listdir(tmp_path / "versions")) == 2
    assert IndexDirectory.open(tmp_path).version == 1
    assert found(tmp_path, {"a": 1}) == [1]
    assert made(tmp_path, "a = 2").version == 2
    assert sorted(os.listdir(tmp_path / "versions")) == ["1", "2"]
    assert found(tmp_path, {"a": 2}) == [1]


def test_a_folder_that_is_no_index_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "versions" / "2024").mkdir(parents=True)
    with pytest.raises(SparkError, match=r"has versions \(2024\) but no manifest.json"):
        Draft(tmp_path)
    assert (tmp_path / "versions" / "2024").is_dir()


def test_an_index_keeps_its_type_of_ids(tmp_path: Path) -> None:
    made(tmp_path)
    with Draft(tmp_path) as draft, pytest.raises(SparkError, match=r"are bigint, and .* would be string"):
        draft.commit([], id_type="string", quarantined=0, statistics=None)
    assert IndexDirectory.open(tmp_path).version == 1


def test_files_of_repeated_tasks_are_not_in_a_version(tmp_path: Path) -> None:
    with Draft(tmp_path) as draft:
        (draft.shards / ".0-again").mkdir()
        filled(draft)
    assert [path.name for path in (tmp_path / "versions" / "1" / "shards").iterdir()] == ["0"]


def test_damaged_old_versions_do_not_prevent_a_commit(tmp_path: Path) -> None:
    for number in range(2):
        made(tmp_path, f"a = {number}")
    (tmp_path / "versions" / "1" / "version.json").write_text("{")
    stream = tmp_path / "streams" / "query"
    (stream / ".draft-old").mkdir(parents=True)
    os.utime(stream / ".draft-old", (0, 0))
    (stream / "1.json").write_text("{")
    (stream / "2.json").symlink_to(tmp_path / "gone")
    assert made(tmp_path, "a = 2").version == 3
    assert not (stream / ".draft-old").exists()


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match=r"there is no index at .*no manifest\.json"):
        IndexDirectory.open(tmp_path)


@pytest.mark.parametrize("name", ["manifest.json", "versions/1/version.json"])
def test_damage_is_reported_with_the_file(name: str, tmp_path: Path) -> None:
    made(tmp_path)
    file = tmp_path / name
    document = json.loads(file.read_text())
    for content, reason in (
        ("{", "cannot be read"),
        ("[]", "does not belong"),
        (json.dumps({**document, "version": 99}), "of version 99; this Siftline reads 1"),
        (json.dumps({**document, "current": 3, "subscriptions": 9}), "not as it was written"),
    ):
        file.write_text(content)
        with pytest.raises(SnapshotError, match=reason) as error:
            IndexDirectory.open(tmp_path)
        assert str(file) in str(error.value)


def test_missing_shards_and_damaged_statistics_are_reported(tmp_path: Path) -> None:
    index = made(tmp_path, statistics=STATISTICS)
    (index.folder / "statistics.json").write_text("{}")
    with pytest.raises(SnapshotError, match=r"statistics\.json is damaged"):
        _ = IndexDirectory.open(tmp_path).statistics
    index.shard_path(0).rename(tmp_path / "elsewhere")
    with pytest.raises(SnapshotError, match="lacks the shard"):
        IndexDirectory.open(tmp_path).shard_path(0)
