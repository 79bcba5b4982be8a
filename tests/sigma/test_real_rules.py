"""The rules of the Sigma project, on its regression events and on real logs; found by SIFTLINE_RULES."""

from __future__ import annotations

import json
import lzma
import os
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from plain_sigma import conditions_of, holds
from sigma.rule import SigmaRule

import siftline
from siftline.language.printer import to_text
from siftline.sigma import PIPELINES, read_rules
from siftline.sigma.pipelines import resolved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from siftline.sigma import Rules

RULES = os.environ.get("SIFTLINE_RULES")
pytestmark = pytest.mark.skipif(RULES is None, reason="SIFTLINE_RULES does not say where the real rules are")

# Known values of the placeholders of two rules, which have none of their own.
PLACEHOLDERS = {"known_cdcs": ["dc01.example"]}


@pytest.fixture(scope="module", name="unpacked")
def unpacked_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sigma")
    for name in ("sigma-rules", "sigma-regression"):
        with tarfile.open(Path(RULES or "") / f"{name}.tar.xz") as archive:
            archive.extractall(folder / name, filter="data")
    return folder


@pytest.fixture(scope="module", name="rules")
def rules_fixture(unpacked: Path) -> Rules:
    return read_rules(unpacked / "sigma-rules", placeholders=PLACEHOLDERS)


@pytest.fixture(scope="module", name="engine")
def engine_fixture(rules: Rules) -> siftline.Engine:
    engine = siftline.Engine()
    engine.add_many(zip(rules.ids, rules.expressions, strict=True))
    return engine


def test_all_rules_load(rules: Rules) -> None:
    assert [str(problem) for problem in rules.refused] == []
    assert len(rules) == 3757


def test_an_index_gets_short_clauses_of_what_must_be_found(engine: siftline.Engine, rules: Rules) -> None:
    stats = engine.stats()
    assert stats["clauses"] < 28_000
    assert stats["predicates"] < 4 * stats["clauses"]
    keywords = sum("any string" in to_text(expression) for expression in rules.expressions)
    assert stats["always_checked"] < 5 + keywords


def test_without_values_only_rules_with_placeholders_are_refused(unpacked: Path) -> None:
    folder = unpacked / "sigma-rules" / "rules-emerging-threats" / "2026"
    refused = read_rules(folder, ()).refused
    assert [problem.reason for problem in refused] == ["the placeholder %known_cdcs% has no values"] * 2


def test_regression_pairs_fire(unpacked: Path, engine: siftline.Engine) -> None:
    pairs = list(regression_pairs(unpacked / "sigma-regression"))
    assert len(pairs) == 102
    silent = [id for id, events in pairs if not any(id in engine.match(event) for event in events)]
    assert silent == []


def regression_pairs(folder: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for info in sorted(folder.rglob("info.yml")):
        (rule,) = yaml.safe_load(info.read_text(encoding="utf-8"))["rule_metadata"]
        for path in sorted(info.parent.glob("*.json")):
            yield rule["id"], [flat(document) for document in documents(path.read_text(encoding="utf-8"))]


def documents(text: str) -> Iterator[Any]:
    decoder, start = json.JSONDecoder(), 0
    while text[start:].strip():
        start += len(text[start:]) - len(text[start:].lstrip())
        document, start = decoder.raw_decode(text, start)
        yield document


def flat(document: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an event as rules name them: without their section, and without spaces."""
    system = document["Event"]["System"]
    event = {name: value for name, value in system.items() if not isinstance(value, dict)}
    event["Provider_Name"] = system["Provider"]["#attributes"]["Name"]
    if isinstance(system["EventID"], dict):
        event["EventID"] = system["EventID"]["#text"]
    sections = [document["Event"].get("EventData") or {}, *(document["Event"].get("UserData") or {}).values()]
    for section in sections:
        event |= {name.replace(" ", ""): value for name, value in section.items() if not isinstance(value, dict)}
    return event


@pytest.mark.slow
def test_real_events_fire_what_a_direct_evaluation_fires(unpacked: Path, rules: Rules, engine: siftline.Engine) -> None:
    truth = dict(true_rules(unpacked / "sigma-rules"))
    with lzma.open(Path(RULES or "") / "process-events.jsonl.xz", "rt", encoding="utf-8") as lines:
        events = [json.loads(line) for line in lines][::40]
    for event in events:
        fired = {id for id, conditions in truth.items() if any(holds(each, event) for each in conditions)}
        assert set(engine.match(event)) == fired


def true_rules(folder: Path) -> Iterator[tuple[str, list[Any]]]:
    pipeline = resolved(PIPELINES, PLACEHOLDERS)
    for path in folder.rglob("*.yml"):
        rule = SigmaRule.from_yaml(path.read_text(encoding="utf-8"))
        pipeline.apply(rule)
        yield str(rule.id), conditions_of(rule)
