"""Commands in pipelines: pipes in and out, compressed files, readers that close the pipe, no terminal."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siftline
from siftline.storage import written

SIFTLINE = [sys.executable, "-m", "siftline"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(siftline.__file__).parent.parent)}
RULES: list[dict[str, Any]] = [
    {"id": "ann", "expression": "price <= 580"},
    {"id": "bob", "expression": "brand = 'acme'", "tenant": "shop"},
]
EVENTS: list[dict[str, Any]] = [{"price": 550, "brand": "acme"}, {"price": 600}]


def siftline_of(*arguments: Any, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [*SIFTLINE, *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, env=ENVIRONMENT, check=False)


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def packed(data: bytes, codec: str) -> bytes:
    if codec == "gz":
        return gzip.compress(data[:9]) + gzip.compress(data[9:])  # as `cat a.gz b.gz` makes them
    sink = pa.BufferOutputStream()
    for part in (data[:9], data[9:]):
        frame = pa.BufferOutputStream()
        with pa.CompressedOutputStream(frame, "zstd") as stream:
            stream.write(part)
        sink.write(frame.getvalue())
    return bytes(sink.getvalue())


def pairs(done: subprocess.CompletedProcess[bytes]) -> set[tuple[int, str]]:
    assert done.returncode == 0, done.stderr
    return {(row["event"], row["subscription"]) for row in map(json.loads, done.stdout.splitlines())}


MATCHES = {(0, "ann"), (0, "bob")}


@pytest.fixture(name="rules")
def rules_fixture(tmp_path: Path) -> Path:
    (tmp_path / "rules.jsonl").write_bytes(lines(RULES))
    return tmp_path / "rules.jsonl"


@pytest.mark.parametrize("codec", ["gz", "zst"])
def test_compressed_files_and_streams(codec: str, rules: Path, tmp_path: Path) -> None:
    events = tmp_path / f"events.jsonl.{codec}"
    events.write_bytes(packed(lines(EVENTS), codec))
    compressed = tmp_path / f"rules.csv.{codec}"
    compressed.write_bytes(packed(b"id,expression\nann,price <= 580\nbob,brand = 'acme'\n", codec))
    assert pairs(siftline_of("match", "--subscriptions", compressed, "--events", events)) == MATCHES
    piped = siftline_of("match", "--subscriptions", rules, "--events", "-", stdin=events.read_bytes())
    assert pairs(piped) == MATCHES
    broken = siftline_of("match", "--subscriptions", rules, "--events", "-", stdin=events.read_bytes()[:-9])
    assert broken.returncode == 2
    assert b"<stdin>: cannot be unpacked" in broken.stderr
    assert siftline_of("check", compressed).returncode == 0
    assert siftline_of("store", "import", tmp_path / "s.db", compressed).returncode == 0


def test_pipes_and_devices(rules: Path, tmp_path: Path) -> None:
    device = siftline_of("match", "--subscriptions", rules, "--events", "/dev/stdin", stdin=lines(EVENTS))
    assert pairs(device) == MATCHES
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(lines(RULES),))
    writer.start()
    piped = siftline_of("match", "--subscriptions", fifo, "--events", "-", stdin=lines(EVENTS))
    writer.join()
    assert pairs(piped) == MATCHES


def test_a_reader_that_goes_away_ends_a_command_quietly(rules: Path, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_bytes(lines(EVENTS) * 20_000)
    for arguments in (
        ["match", "--subscriptions", str(rules), "--events", str(events), "--quiet"],
        ["match", "--subscriptions", str(rules), "--events", str(events), "--quiet", "--format", "csv"],
    ):
        with subprocess.Popen(
            [*SIFTLINE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline()
            process.stdout.close()
            assert (process.wait(60), process.stderr.read()) == (141, b"")


def test_without_a_terminal_only_the_summary_is_printed(tmp_path: Path) -> None:
    rules = tmp_path / "rules.sift"
    rules.write_text("".join(f"a = {n}\n" for n in range(10_000)))
    done = siftline_of("match", "--subscriptions", rules, "--events", "-", stdin=b'{"a": 1}\n')
    said = [line for line in done.stderr.decode().splitlines() if "compiling kernels" not in line]
    assert len(said) == 1
    assert said[0].startswith("1 event, 1 match; ")


# stores and snapshots


def test_matching_from_a_store_and_from_a_snapshot(rules: Path, tmp_path: Path) -> None:
    store, snapshot = tmp_path / "s.db", tmp_path / "saved"
    engine = siftline.Engine()
    engine.add_many(rules)
    engine.save(snapshot)
    for id, expression, owner in (("ann", "price <= 580", None), ("bob", "brand = 'acme'", "shop")):
        siftline_of("store", "add", store, expression, "--id", id, *(["--owner", owner] if owner else []))
    for source in (["--store", store], ["--snapshot", snapshot]):
        found = siftline_of("match", *source, "--events", "-", stdin=lines(EVENTS))
        assert pairs(found) == MATCHES
        one = siftline_of("match", *source, "--events", "-", "--tenant", "shop", stdin=lines(EVENTS))
        assert pairs(one) == {(0, "bob")}
    parquet = tmp_path / "m.parquet"
    nothing = siftline_of("match", "--store", store, "--events", "-", "--output", parquet, stdin=b'{"price": 900}\n')
    assert nothing.returncode == 0
    assert str(pa.parquet.read_table(parquet).schema.field("subscription").type) == "string"


def test_options_that_exclude_each_other(rules: Path, tmp_path: Path) -> None:
    siftline.Engine().save(tmp_path / "saved")
    events = ["--events", rules]
    for arguments, reason in (
        (["--store", tmp_path / "none.db", *events], b"does not exist"),
        (["--snapshot", tmp_path / "none", *events], b"none"),
        (["--snapshot", tmp_path / "saved", "--index", "scan", *events], b"leave it out with --snapshot"),
        (["--store", rules, *events], b"not a store"),
        (["--store", rules, "--subscriptions", rules, *events], b"not allowed with"),
        (events, b"one of the arguments --subscriptions --store --snapshot --sigma is required"),
    ):
        done = siftline_of("match", *arguments)
        assert (done.returncode, done.stdout) == (2, b"")
        assert reason in done.stderr


def test_adding_removing_and_listing(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    assert siftline_of("store", "remove", store, "1").returncode == 2
    assert not store.exists()
    assert siftline_of("store", "add", store, "price <= 580", "--weight", "2").stdout == b"1\n"
    pattern = '{"prix": [{"anything-but": "é"}]}'
    assert siftline_of("store", "add", store, pattern, "--owner", "ann", "--id", "7").stdout == b"7\n"
    assert siftline_of("store", "add", store, "true", "--expires", "2000-01-01T00:00:00Z").stdout == b"8\n"
    assert siftline_of("store", "add", store, "true").stdout == b"9\n"
    bad = siftline_of("store", "add", store, "price betwen 1 and 2")
    assert (bad.returncode, bad.stdout) == (1, b"")
    assert b"did you mean 'between'?" in bad.stderr
    again = siftline_of("store", "add", store, "true", "--id", "7")
    assert (again.returncode, b"already has" in again.stderr) == (1, True)
    assert b"time zone" in siftline_of("store", "add", store, "true", "--expires", "2030-01-01").stderr
    document = json.loads(siftline_of("store", "list", store, "--json").stdout)
    assert (document["subscriptions"], [each["id"] for each in document["listed"]]) == (3, [1, 7, 9])
    assert document["listed"][1]["pattern"] == json.loads(pattern)
    assert document["listed"][1]["owner"] == "ann"
    limited = json.loads(siftline_of("store", "list", store, "--json", "--limit", "1", "--owner", "ann").stdout)
    assert [each["id"] for each in limited["listed"]] == [7]
    unknown = siftline_of("store", "remove", store, "1", "99")
    assert (unknown.returncode, b"id 99: nothing was removed" in unknown.stderr) == (1, True)
    assert siftline_of("store", "remove", store, "1", "7", "7").returncode == 0
    left = json.loads(siftline_of("store", "list", store, "--json").stdout)
    assert [each["id"] for each in left["listed"]] == [9]


def test_ids_of_a_store_of_strings(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    siftline_of("store", "add", store, "true", "--id", "ann")
    assert siftline_of("store", "add", store, "true", "--id", "7").stdout == b"7\n"
    needed = siftline_of("store", "add", store, "true")
    assert (needed.returncode, b"--id is needed" in needed.stderr) == (2, True)
    assert siftline_of("store", "remove", store, "7").returncode == 0
    with siftline.Store(store, is_read_only=True) as opened:
        assert [each.id for each in opened] == ["ann"]


def test_the_dialects_are_those_of_a_store() -> None:
    from siftline.cli.store_changes import DIALECTS

    assert DIALECTS == written.DIALECTS
