from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import run_fixture, write_fixture  # noqa: F401

from siftline import Store
from siftline.broker.broker import Broker

if TYPE_CHECKING:
    from command_line import Run, Write

LINES = [
    '{"id": "a", "expression": "price  <=  580", "weight": 2, "owner": "ann", "expires": "2099-01-31T12:00:00Z"}',
    '{"id": "b", "pattern": {"size":  [ {"numeric": [">", 9.0]} ]}, "created": "2020-01-01T00:00:00+01:00"}',
    '{"subscription": "c", "pattern": {"store": ["x"]}, "dialect": "sns"}',
    '{"filters": [{"prefix": {"type": "com."}}], "id": "d"}',
    json.dumps({"id": "e", "pattern": '{\n  "size": [1]\n}'}),
]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "s.db")


def texts(path: str) -> dict[object, tuple[str, str]]:
    with Store(path, is_read_only=True) as store:
        return {each.id: each.written for each in store}


def test_import_and_export_keep_everything_as_written(run: Run, write: Write, path: str, tmp_path: Path) -> None:
    outcome = run("store", "import", path, write("s.jsonl", "\n".join(LINES)))
    assert (outcome.status, outcome.out) == (0, "")
    assert "s.db: 5 subscriptions added in" in outcome.err
    assert texts(path) == {
        "a": ("text", "price  <=  580"),
        "b": ("eventbridge", '{"size":  [ {"numeric": [">", 9.0]} ]}'),
        "c": ("sns", '{"store": ["x"]}'),
        "d": ("cloudevents", '[{"prefix": {"type": "com."}}]'),
        "e": ("eventbridge", '{\n  "size": [1]\n}'),
    }
    exported = run("store", "export", path)
    assert exported.status == 0
    again = str(tmp_path / "again.db")
    assert run("store", "import", again, "-", "--quiet", stdin=exported.out.encode()).err == ""
    assert texts(again) == texts(path)
    assert run("store", "export", again).out == exported.out
    events = write("e.jsonl", [{"price": 5, "size": 10}])
    found = run("match", "--subscriptions", write("x.jsonl", exported.out), "--events", events).pairs()
    assert found == {(0, "a"), (0, "b")}


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_tables_have_the_text_language(run: Run, write: Write, path: str, tmp_path: Path, name: str) -> None:
    run("store", "import", path, write("s.jsonl", "\n".join(LINES)))
    out = str(tmp_path / name)
    outcome = run("store", "export", path, "--output", out, "--owner", "ann")
    assert outcome.err == f"{out}: 1 subscription\n"
    assert run("store", "export", path, "--output", out, "--quiet").status == 0
    again = str(tmp_path / "again.db")
    assert run("store", "import", again, out).status == 0
    assert texts(again)["b"] == ("text", "size > 9.0")
    with Store(path) as one, Store(again) as other:
        for subscription in one:
            found = other.get(subscription.id)
            assert (found.owner, found.created) == (subscription.owner, subscription.created)
            assert (found.expires, found.weight) == (subscription.expires, subscription.weight)


def test_bad_subscriptions_stop_an_import(run: Run, write: Write, path: str) -> None:
    rules = write("s.jsonl", [{"id": 1, "expression": "a = 1"}, {"id": 2, "expression": "a ="}])
    outcome = run("store", "import", path, rules)
    assert outcome.status == 1
    assert f"{rules}:2:29: subscription 2: expected a constant" in outcome.err
    assert "1 bad subscription: nothing was imported; --quarantine FILE sets them aside" in outcome.err
    assert texts(path) == {}


def test_the_quarantine_has_every_bad_subscription(run: Run, write: Write, path: str, tmp_path: Path) -> None:
    bad = [
        b'{"id": 2, "expression": "a ="}',
        b'{"id": 1, "expression": "a = 2"}',
        b'{"id": 3, "expression": "a = 3", "expires": "soon"}',
        b'{"id": 4, "expression": "a = 3", "created": "2030-01-01"}',
        b'{"id": 5, "expression": "a = 3", "owner": 7}',
        b'{"id": "x", "expression": "a = 3"}',
        b"{oops",
        b'{"id": 6, "expression": "a = \xff"}',
        b'{"id": 10, "expression": "a = 10"}',
    ]
    run("store", "import", path, write("first.jsonl", [{"id": 10, "expression": "a = 1"}]))
    rules = write("s.jsonl", b"\n".join([b'{"id": 1, "expression": "a = 1"}', *bad]))
    kept = tmp_path / "bad.jsonl"
    outcome = run("store", "import", path, rules, "--quarantine", str(kept))
    assert outcome.status == 1
    assert f"1 subscription added, {len(bad)} bad in {kept}" in outcome.err
    rows = [json.loads(line) for line in kept.read_text().splitlines()]
    assert sorted(row["line"] for row in rows) == list(range(2, 2 + len(bad)))
    by_line = {row["line"]: row for row in rows}
    for line, raw in enumerate(bad, 2):
        assert by_line[line]["subscription"] == raw.decode(errors="backslashreplace")
        assert by_line[line]["reason"] in outcome.err
    assert "time" in by_line[4]["reason"]
    assert "zone" in by_line[5]["reason"]
    assert "already has" in by_line[10]["reason"]
    assert set(texts(path)) == {1, 10}


def test_quarantine_of_tables(run: Run, write: Write, path: str, tmp_path: Path) -> None:
    text, rows = tmp_path / "text.parquet", tmp_path / "rows.parquet"
    pq.write_table(pa.table({"subscription": [1, 2], "expression": ["a = 1", "a"], "owner": ["x", None]}), text)
    columns = {"subscription": [3, 4], "attribute": ["a", "a"], "op": ["=", "between"], "number": [1.0, 1.0]}
    pq.write_table(pa.table(columns), rows)
    csv = write("s.csv", "id,expression,owner,expires\n5,a = 5,me,\n6,a =,,\n7,a = 1,,never\n")
    kept = tmp_path / "bad.jsonl"
    files = [str(text), str(rows), csv]
    outcome = run("store", "import", path, *files, "--quarantine", str(kept), "--owner", "all")
    assert outcome.status == 1
    bad = [json.loads(line)["subscription"] for line in kept.read_text().splitlines()]
    assert json.loads(bad[0])["expression"] == "a"
    assert json.loads(bad[1])[0]["subscription"] == 4
    assert bad[2:] == ["6,a =,,\n", "7,a = 1,,never\n"]
    with Store(path) as store:
        assert {each.id: each.owner for each in store} == {1: "x", 3: "all", 5: "me"}


def test_replacing(run: Run, write: Write, path: str) -> None:
    run("store", "import", path, write("s.csv", "id,expression,owner\nx,a = 1,ann\n2,a = 2,bob\n"))
    new = write("new.csv", "id,expression,owner\n2,a = 3,bob\n3,a = 3,bob\n")
    outcome = run("store", "import", path, new, "--replace")
    assert (outcome.status, "1 subscription added, 1 replaced" in outcome.err) == (0, True)
    run("store", "import", path, write("new.csv", "id,expression,owner\nx,a = 4,bob\n"), "--replace")
    with Store(path) as store:
        assert [change.kind for change in store.changes(2)] == ["replaced", "added", "removed", "added"]
        assert store.get("x").owner == "bob"
    outcome = run("store", "import", path, write("n.jsonl", [{"id": 1, "expression": "a = 1"}]))
    assert (outcome.status, "its ids are integers" in outcome.err) == (2, True)
    twice = run(
        "store", "import", path, write("y.csv", "id,expression\ny,a = 1\n"), write("z.csv", "id,expression\ny,b = 1\n")
    )
    assert (twice.status, "another file has it already" in twice.err) == (1, True)


def test_list(run: Run, write: Write, path: str) -> None:
    run("store", "import", path, write("s.jsonl", "\n".join(LINES)))
    with Store(path) as store:
        store.acknowledge("pipeline", 3)
    outcome = run("store", "list", path, "--limit", "2")
    lines = outcome.out.splitlines()
    assert lines[0].split() == ["id", "owner", "weight", "created", "expires", "dialect", "expression"]
    assert lines[1].endswith("2099-01-31 12:00  text         price <= 580")
    assert lines[3:] == [
        "... and 3 more (--limit N shows more, `siftline store export` all)",
        f"{path}: 5 subscriptions, change 5",
        "  reader pipeline: change 3",
    ]
    assert len(run("store", "list", path, "--owner", "ann", "--quiet").out.splitlines()) == 2
    document = json.loads(run("store", "list", path, "--json").out)
    listed = document.pop("listed")
    assert document == {"subscriptions": 5, "sequence": 5, "readers": {"pipeline": 3}}
    assert [each["id"] for each in listed] == [each.id for each in Store(path, is_read_only=True)]


def test_verify(run: Run, write: Write, path: str) -> None:
    run("store", "import", path, write("s.jsonl", "\n".join(LINES)))
    assert run("store", "verify", path).out == f"{path}: sound, 5 subscriptions, change 5\n"
    assert run("store", "--quiet", "verify", path).out == ""
    connection = sqlite3.connect(path)
    connection.execute("UPDATE changes SET weight = 9 WHERE id = 'a'")
    connection.commit()
    connection.close()
    outcome = run("store", "verify", path)
    assert (outcome.status, "change 1 does not fit its checksum" in outcome.out) == (1, True)
    assert json.loads(run("store", "verify", path, "--json").out)["problems"]
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[: len(content) // 8192 * 4096])
    assert run("store", "verify", path).status in (1, 2)


def test_what_cannot_run(run: Run, write: Write, path: str, tmp_path: Path) -> None:
    assert run("store", "list", path).err == f"siftline: {path} does not exist\n"
    rules = write("s.jsonl", "\n".join(LINES))
    assert "not a store" in run("store", "list", rules).err
    assert "also an input" in run("store", "import", path, rules, "--quarantine", rules).err
    assert "only once" in run("store", "import", path, "-", "-").err
    assert "No such file" in run("store", "import", path, rules, str(tmp_path / "absent.jsonl")).err
    assert "is not supported here" in run("store", "import", path, write("s.xyz", "")).err
    assert not Path(path).exists()
    assert run("store", "list", write("empty.db", "")).err.endswith("is empty: there is no store in it yet\n")
    assert run("store").status == 2


def test_verify_looks_at_the_log_of_notifications_too(run: Run, path: str) -> None:
    with Broker(path) as broker:
        broker.subscribe("a > 0")
        for n in range(1, 4):
            broker.publish({"a": n})
    assert run("store", "verify", path).out == f"{path}: sound, 1 subscription, change 1\n"
    with sqlite3.connect(f"{path}-notifications") as connection:
        connection.execute("UPDATE logged SET payload = '{}' WHERE sequence = (SELECT max(sequence) FROM logged)")
    connection.close()
    outcome = run("store", "verify", path)
    assert outcome.status == 1
    assert outcome.out.splitlines() == [
        f"{path}-notifications: 1 rows of logged do not fit their checksums",
        f"{path}: damaged, 1 problem found",
    ]
    found = json.loads(run("store", "verify", path, "--json").out)
    assert found["problems"] == outcome.out.splitlines()[:1]
