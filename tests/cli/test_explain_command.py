from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import run_fixture, write_fixture  # noqa: F401

if TYPE_CHECKING:
    from pathlib import Path

    from command_line import Run, Write

EVENT = '{"brand": "acme", "price": 300}'


def test_text(run: Run) -> None:
    outcome = run("explain", "--subscription", "brand = 'acme' and price <= 250", "--event", EVENT)
    assert outcome.status == 0
    assert outcome.out.splitlines() == [
        "no match",
        "  no   and",
        "  yes    brand = 'acme'    brand is 'acme'",
        "  no     price <= 250      price is 300",
    ]


def test_json(run: Run) -> None:
    outcome = run("explain", "--subscription", "price <= 250", "--event", EVENT, "--json")
    document = json.loads(outcome.out)
    assert document["matched"] is False
    assert document["condition"]["truth"] == "false"


@pytest.mark.parametrize("subscription", ['{"brand": ["acme"]}', '[{"exact": {"brand": "acme"}}]', "brand = 'acme'"])
def test_all_front_ends(run: Run, subscription: str) -> None:
    assert run("explain", "--subscription", subscription, "--event", EVENT).out.startswith("match\n")


def test_from_files(run: Run, write: Write) -> None:
    rows = [{"id": 1, "expression": "a ="}, {"id": 2, "expression": "a = 2"}]
    subscriptions, events = write("s.jsonl", rows), write("e.jsonl", '{"a": 1}\n\n{"a": 2}\n[]\n')
    arguments = "explain", "--subscriptions", subscriptions, "--id"
    assert run(*arguments, "2", "--event", events).out.startswith("no match: 2\n")
    assert run(*arguments, "2", "--event", f"{events}:3").out.startswith("match: 2\n")
    broken = run(*arguments, "1", "--event", events)
    assert broken.status == 1
    assert "s.jsonl:1:29: subscription 1: " in broken.err
    unknown = run(*arguments, "7", "--event", events)
    assert unknown.status == 1
    assert "no subscription has the id 7" in unknown.err
    assert "e.jsonl: no event on line 2" in run(*arguments, "2", "--event", f"{events}:2").err
    bad = run(*arguments, "2", "--event", f"{events}:4")
    assert bad.status == 1
    assert "e.jsonl:4:1: " in bad.err


def test_other_formats(run: Run, write: Write, tmp_path: Path) -> None:
    arguments = "explain", "--subscription", "a = 2", "--event"
    assert run(*arguments, write("e.csv", "a\n1\n2\n") + ":3").out.startswith("match")
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "e.parquet")
    assert run(*arguments, str(tmp_path / "e.parquet") + ":2").out.startswith("match")
    assert run(*arguments, write("e.json", '{\n "a": 2\n}\n')).out.startswith("match")
    assert run(*arguments, write("e.json", '{"a": 2}\n{"a": 3}\n')).out.startswith("match")
    assert run(*arguments, "-", stdin=b'{"a": 2}').out.startswith("match")


def test_bad_input(run: Run, write: Write) -> None:
    broken = run("explain", "--subscription", "a = 1 and", "--event", EVENT)
    assert broken.status == 1
    assert "--subscription:1:10: expected a condition" in broken.err
    for event, reason in (("[1]", "an array"), ('{"a": ', "1:7"), ("{", "1:2")):
        outcome = run("explain", "--subscription", "a = 1", "--event", event)
        assert outcome.status == 1
        assert reason in outcome.err
        assert outcome.err.startswith("--event:1:")
    assert run("explain", "--subscription", "a = 1", "--event", "nowhere.jsonl").status == 2
    assert run("explain", "--subscriptions", "s.jsonl", "--event", EVENT).status == 2
    assert run("explain", "--subscription", "a = 1", "--event", write("e.jsonl", "")).status == 1


def test_now(run: Run) -> None:
    given = "--subscription", "at > now() - interval '1 day'", "--event", '{"at": "2026-01-31"}'
    outcome = run("explain", *given, "--now", "2026-01-31T10:00:00+01:00")
    assert outcome.out.startswith("match")
    assert "now() is 2026-01-31T09:00:00Z" in outcome.out
    assert run("explain", *given, "--now", "2026-02-02").out.startswith("no match")
    condition = json.loads(run("explain", *given, "--now", "2026-02-02", "--json").out)["condition"]
    assert condition["text"] == "at > now() - interval '1 day'"
    assert condition["reason"] == "at is '2026-01-31' (now() is 2026-02-02T00:00:00Z)"
