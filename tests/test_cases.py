"""The cases of cases.json on every path: each index, each form of event, the command line. A fixed bug adds a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siftline
from siftline import Engine
from siftline.cli import main
from siftline.model import Event, matches

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "cases.json").read_text(encoding="utf-8"))
EXPECTED = {number for number, case in enumerate(CASES) if case["expected"]}


def names(numbers: set[int]) -> list[str]:
    return [CASES[number]["name"] for number in sorted(numbers)]


def filled(index: str) -> Engine:
    engine = Engine(index)
    engine.add_many([(number, case["subscription"]) for number, case in enumerate(CASES)])
    return engine


def test_names_are_different() -> None:
    assert len({case["name"] for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_the_model(case: dict[str, Any]) -> None:
    assert matches(siftline.parse(case["subscription"]), Event(case["event"])) is case["expected"]


@pytest.mark.parametrize("index", siftline.indexes())
def test_single_events(index: str) -> None:
    engine = filled(index)
    found = {number for number, case in enumerate(CASES) if number in engine.match(case["event"])}
    assert names(found) == names(EXPECTED)


@pytest.mark.parametrize("index", siftline.indexes())
@pytest.mark.parametrize("form", ["dicts", "JSON Lines", "JSON column"])
def test_batches(index: str, form: str) -> None:
    texts = [json.dumps(case["event"]) for case in CASES]
    events: Any = [case["event"] for case in CASES]
    if form == "JSON Lines":
        events = "\n".join(texts).encode()
    elif form == "JSON column":
        events = pa.array(texts)
    found = filled(index).match_batch(events)
    pairs = zip(found["event"].to_pylist(), found["subscription"].to_pylist(), strict=True)
    assert names({event for event, subscription in pairs if event == subscription}) == names(EXPECTED)


@pytest.mark.parametrize("index", siftline.indexes())
def test_the_command_line(index: str, tmp_path: Path) -> None:
    subscriptions, events, output = (tmp_path / name for name in ("subscriptions.jsonl", "events.jsonl", "out.jsonl"))
    rows = [{"id": number, "expression": case["subscription"]} for number, case in enumerate(CASES)]
    subscriptions.write_text("\n".join(map(json.dumps, rows)))
    events.write_text("\n".join(json.dumps(case["event"]) for case in CASES))
    arguments = ["--subscriptions", str(subscriptions), "--events", str(events), "--index", index]
    assert main(["match", *arguments, "--output", str(output), "--quiet"]) == 0
    found = [json.loads(line) for line in output.read_text().splitlines()]
    assert names({row["event"] for row in found if row["event"] == row["subscription"]}) == names(EXPECTED)
