"""`siftline spark`: its input, output and exit status."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from siftline import Engine, Statistics
from siftline.cli import main
from siftline.cli.spark import _absolute
from siftline.spark import IndexDirectory, apply
from siftline.spark.directory.deltas import read_delta

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
        (["s.txt"], "is not supported here"),
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
    tmp_path /= "10:30 #1 50%"
    tmp_path.mkdir()
    pq.write_table(pa.Table.from_pylist([{"id": 1, "expression": "a = 1"}]), tmp_path / "s.parquet")
    index, events = str(tmp_path / "index"), tmp_path / "events"
    assert main(["spark", "compile", str(tmp_path / "s.parquet"), "--index", index]) == 0
    events.mkdir()
    (events / "0.jsonl").write_text('{"id": "x", "a": 1}\n\n{"id": "y", "a": 2}\n')
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


def test_changes_are_applied_in_the_order_of_the_files(spark: Any, tmp_path: Path) -> None:
    """Spark reads large files first."""
    pq.write_table(pa.Table.from_pylist([{"id": 1, "expression": "a = 2"}]), tmp_path / "s.parquet")
    index = str(tmp_path / "index")
    assert main(["spark", "compile", str(tmp_path / "s.parquet"), "--index", index]) == 0
    (tmp_path / "days").mkdir()
    fillers = [{"id": number, "expression": "b = 1"} for number in range(50, 90)]
    days = [
        [{"id": 1, "expression": "a = 3"}],
        [*fillers, {"change": "remove", "id": 1}],
        [{"id": 1, "expression": "a = 1"}],
    ]
    for number, lines in enumerate(days):
        (tmp_path / "days" / f"{number}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "last.jsonl").write_text('{"change": "remove", "id": 1}')
    days_in_one = ["spark", "apply", str(tmp_path / "days"), "--format", "jsonl", "--index", index]
    assert main(days_in_one) == 0
    changes = read_delta(tmp_path / "index", 1).changes
    assert [change[:2] for change in changes] == [
        ["put", 1],
        *(["put", line["id"]] for line in fillers),
        ["remove", 1],
        ["put", 1],
    ]
    files = [str(tmp_path / "last.jsonl"), *(str(tmp_path / "days" / f"{number}.jsonl") for number in (2, 1))]
    assert main(["spark", "apply", *files, "--index", index]) == 0
    kinds = [change[0] for change in read_delta(tmp_path / "index", 2).changes if change[1] == 1]
    assert kinds == ["remove", "put", "remove"]


def test_events_in_csv(spark: Any, tmp_path: Path) -> None:
    """Fields with line breaks and quotes; and a stream that starts again takes its columns for what they were."""
    pq.write_table(pa.Table.from_pylist([{"id": 1, "expression": "a = 1"}]), tmp_path / "s.parquet")
    index, events = str(tmp_path / "index"), tmp_path / "events"
    assert main(["spark", "compile", str(tmp_path / "s.parquet"), "--index", index]) == 0
    events.mkdir()
    (events / "0.csv").write_text('id,event\n1,"{""a"":\n1}"\n2,"{""a"": 2}"\n')
    command = ["spark", "match", str(events / "0.csv"), "--index", index, "--output", str(tmp_path / "out")]
    assert main(command) == 0
    assert [tuple(row) for row in spark.read.parquet(str(tmp_path / "out")).collect()] == [(1, 1)]
    output = ["--output", str(tmp_path / "found"), "--checkpoint", str(tmp_path / "checkpoint")]
    command = ["spark", "stream", str(events), "--format", "csv", "--index", index, *output, "--once"]
    assert main(command) == 0
    (events / "1.csv").write_text('id,event\n"x","{}"\n3,"{""a"": 1}"\n')
    main(command)
    assert sorted(row.id for row in spark.read.parquet(str(tmp_path / "found")).collect()) == [1, 3]


def test_events_that_cannot_be_read(spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In a directory of any name."""
    root = tmp_path / "10:30 #1 50%"
    root.mkdir()
    pq.write_table(pa.Table.from_pylist([{"id": 1, "expression": "a = 1"}]), root / "s.parquet")
    index = str(root / "index")
    assert main(["spark", "compile", str(root / "s.parquet"), "--index", index]) == 0
    (root / "e.jsonl").write_text('{"a": 1}\n{\n\n  \n{"a": 2}\n\n')  # blank lines are no events
    command = ["spark", "match", str(root / "e.jsonl"), "--index", index, "--output"]
    assert main([*command, str(root / "0")]) == 2
    assert "1 of 3 events cannot be read; the first: id=1: not a JSON object" in capfd.readouterr().err
    assert main([*command, str(root / "1"), "--dead-letters", "ignore"]) == 1
    assert "1 match of 2 events, 1 event could not be read; " in capfd.readouterr().err
    dead = ["--dead-letters", str(root / "dead")]
    for number, (limit, status) in enumerate((("0", 2), ("1", 1), ("33%", 2), ("0.34", 1))):
        assert main([*command, str(root / f"limit-{number}"), *dead, "--fail-above", limit]) == status
        assert ("more than fail_above=" in capfd.readouterr().err) == (status == 2)
    assert main([*command, str(root / "2"), "--fail-above", "1"]) == 2
    assert "fail_above needs a folder" in capfd.readouterr().err
    assert main(["spark", "profile", str(root / "e.jsonl"), "--output", str(root / "statistics.json")]) == 1
    assert "2 events, 1 attribute, 1 event could not be read; " in capfd.readouterr().err


def test_options_of_compile_and_compact(spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    texts = [line for line in LINES if "expression" in line]
    pq.write_table(pa.Table.from_pylist(texts), tmp_path / "s.parquet")
    index = str(tmp_path / "index")
    command = ["spark", "compile", str(tmp_path / "s.parquet"), "--index", index]
    assert main([*command, "--fail-above", "0"]) == 2
    assert "1 of 2 subscriptions were refused, more than fail_above=0 allows" in capfd.readouterr().err
    assert main([*command, "--fail-above", "50%"]) == 1
    for _ in range(4):
        apply(index, [{"subscription": 9, "expression": "a = 1"}])
        assert main(["spark", "compact", index, "--keep", "0"]) == 0
    assert sorted(path.name for path in (tmp_path / "index" / "versions").iterdir()) == ["3", "4", "5"]
    capfd.readouterr()
    assert main(command) == 2
    assert "changes='keep'" in capfd.readouterr().err
    assert main([*command, "--changes", "drop"]) == 1
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    (tmp_path / "table" / "_delta_log" / "0.json").write_text("{}")
    assert main(["spark", "profile", str(tmp_path / "table"), "--output", str(tmp_path / "statistics.json")]) == 2
    assert "is a table of Delta Lake" in capfd.readouterr().err


def test_where_output_goes() -> None:
    assert _absolute("hdfs://host/out") == "hdfs://host/out"
    assert _absolute("file:///tmp/an%20out") == "file:///tmp/an out"
    assert _absolute("out").endswith("/out")
    assert _absolute("out")[0] == "/"


def test_a_stream_reads_a_directory(spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "e.jsonl").write_text("{}")
    options = ["--index", "x", "--output", "y", "--checkpoint", "z"]
    assert main(["spark", "stream", str(tmp_path / "e.jsonl"), *options]) == 2
    assert "one directory" in capfd.readouterr().err
