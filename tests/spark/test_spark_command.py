"""`siftline spark`: what it reads, says and returns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from siftline import Engine, Statistics
from siftline.cli import main
from siftline.spark import IndexDirectory

if TYPE_CHECKING:
    from pathlib import Path

LINES = [
    {"id": 1, "expression": "a = 1", "weight": 2},
    {"id": 2, "pattern": {"a": [1, {"prefix": "x"}]}},
    {"id": 3, "expression": "a = "},
]


def found(path: Path) -> list[int | str]:
    return sorted(Engine.open(IndexDirectory.open(path).shard_path(0)).match({"a": 1}))


def test_compile_json_lines(spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    patterns = [line for line in LINES if "pattern" in line]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in patterns))
    assert main(["spark", "compile", str(tmp_path / "p.jsonl"), "--index", str(tmp_path / "p")]) == 0
    assert "p: version 1, 1 subscription in 1 shard; " in capfd.readouterr().err
    assert found(tmp_path / "p") == [2]


def test_bad_subscriptions_are_counted(spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    texts = [line for line in LINES if "expression" in line]
    pq.write_table(pa.Table.from_pylist(texts), tmp_path / "s.parquet")
    statistics = Statistics.from_events([{"a": 1}])
    statistics.save(tmp_path / "statistics.json")
    options = ["--statistics", str(tmp_path / "statistics.json"), "--shards", "2", "--json"]
    assert main(["spark", "compile", str(tmp_path / "s.parquet"), "--index", str(tmp_path / "s"), *options]) == 1
    said = json.loads(capfd.readouterr().out)
    assert (said["subscriptions"], said["quarantined"], said["version"]) == (1, 1, 1)
    assert spark.read.parquet(said["quarantine"]).first().subscription == 3
    assert found(tmp_path / "s") == [1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.parquet"], "none.parquet: No such file"),
        (["s.txt"], "names no format that fits here"),
        (["s.parquet", "s.csv"], "several formats"),
        (["s.parquet", "--language", "klingon"], "unknown language 'klingon'"),
        (["s.parquet", "--language", "predicates"], "'attribute'"),
    ],
)
def test_what_cannot_run(
    spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    pq.write_table(pa.Table.from_pylist(LINES[:1]), tmp_path / "s.parquet")
    (tmp_path / "s.csv").write_text("id,expression\n")
    files = [str(tmp_path / argument) if "." in argument else argument for argument in arguments]
    assert main(["spark", "compile", *files, "--index", str(tmp_path / "index")]) == 2
    assert message in capfd.readouterr().err


def test_stream_apply_compact(spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.Table.from_pylist([{"id": 1, "expression": "a = 1"}]), tmp_path / "s.parquet")
    index, events = str(tmp_path / "index"), tmp_path / "events"
    assert main(["spark", "compile", str(tmp_path / "s.parquet"), "--index", index]) == 0
    events.mkdir()
    (events / "0.jsonl").write_text('{"id": "x", "a": 1}\n{"id": "y", "a": 2}\n')
    output = ["--output", str(tmp_path / "out"), "--checkpoint", str(tmp_path / "checkpoint"), "--sink", "json"]
    command = ["spark", "stream", str(events), "--format", "jsonl", "--index", index, *output, "--once"]
    assert main(command) == 0
    assert "out: 1 match of 2 events; " in capfd.readouterr().err
    changes = [{"subscription": 2, "expression": "a > 1"}, {"change": "remove", "subscription": 1}, {"expression": "a"}]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(change) + "\n" for change in changes))
    assert main(["spark", "apply", str(tmp_path / "c.jsonl"), "--index", index]) == 1
    said = capfd.readouterr().err
    assert "index: delta 1, 2 changes, 1 refused; " in said
    assert "the id is null" in said
    assert main(["spark", "compact", index]) == 0
    assert "index: version 2, 1 subscription; " in capfd.readouterr().err
    (events / "1.jsonl").write_text('{"id": "z", "a": 2}\n{"id": "w", "a": 1}\n{"a": \n')
    assert main([*command, "--dead-letters", str(tmp_path / "dead")]) == 1
    assert "1 event could not be read" in capfd.readouterr().err
    assert sorted(map(tuple, spark.read.json(str(tmp_path / "out")).collect())) == [("x", 1), ("z", 2)]


def test_a_stream_reads_a_directory(spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "e.jsonl").write_text("{}")
    options = ["--index", "x", "--output", "y", "--checkpoint", "z"]
    assert main(["spark", "stream", str(tmp_path / "e.jsonl"), *options]) == 2
    assert "one directory" in capfd.readouterr().err
