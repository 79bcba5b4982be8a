"""`siftline bench rules` on a handful of rules and events, and the translation to SQL against the oracle."""

from __future__ import annotations

import io
import json
import lzma
import os
import random
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import events, expressions, leaves, subscriptions

import siftline
from siftline.cli import main
from siftline.model.event import json_value
from siftline.sigma import parse_sigma
from siftline_bench import rules_command
from siftline_bench.errors import WrongIdsError
from siftline_bench.performance import renewed
from siftline_bench.real_rules import figures, measuring, memory, rivals
from siftline_bench.real_rules.copies import copied
from siftline_bench.real_rules.data import event_files, read_events, rules_folder
from siftline_bench.real_rules.sql import DuckDbDialect, SqliteDialect, Translator, UntranslatableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from siftline.model import Expression
    from siftline_bench.real_rules.rivals import Answer

SOURCE = "logsource: {category: process_creation, product: windows}\n"
DETECTIONS = {
    "shell": "s: {Image|endswith: ['\\cmd.exe', '\\pwsh.exe'], CommandLine|contains: ' /c '}\n  condition: s",
    "not known": "s: {Image|endswith: '\\cmd.exe'}\n  f: {User: [ann, Bob]}\n  condition: s and not f",
    "keyword": "k: [mimikatz, 'r?bot']\n  condition: k",
    "network": "s: {Address|cidr: 10.0.0.0/8}\n  condition: s",
    "expression": "s: {CommandLine|re: 'a.c[0-9]+$'}\n  condition: s",
    "reference": "s: {User|fieldref: Owner}\n  condition: s",
    "missing": "s: {Owner: null, EventID: 1}\n  condition: s",
    "wildcards": "s: {CommandLine: '*x?z%_\\\\*'}\n  condition: s",
}
CHOICES: dict[str, list[Any]] = {
    "Image": ["C:\\CMD.exe", "C:\\Windows\\cmd.exe", "/bin/sh", None],
    "CommandLine": ["cmd /c dir", "abc12", "a\nc1", "MIMIKATZ é", "axyz%_\\", ""],
    "User": ["ann", "bob", "ANN", ["ann", "eve"], 5, True],
    "Owner": ["ann", None, 5, True],
    "Address": ["10.1.2.3", "11.0.0.1", "::1", "10.x", "ROBOT"],
    "EventID": [1, "1", 1.0, 2],
}


@pytest.fixture(name="folder")
def folder_fixture(tmp_path: Path) -> Path:
    folder = tmp_path / "rules"
    folder.mkdir()
    for name, detection in DETECTIONS.items():
        (folder / f"{name}.yml").write_text(f"title: {name}\n{SOURCE}detection:\n  {detection}\n", encoding="utf-8")
    (folder / "bad.yml").write_text(f"title: bad\n{SOURCE}detection: {{s: {{a|frobs: 1}}, condition: s}}\n")
    return folder


@pytest.fixture(name="logs")
def logs_fixture(tmp_path: Path) -> Path:
    chance = random.Random(0)
    lines = []
    for _ in range(240):
        event = {name: chance.choice(values) for name, values in CHOICES.items() if chance.random() < 0.7}
        lines.append(json.dumps({"Channel": "Microsoft-Windows-Sysmon/Operational", **event}))
    path = tmp_path / "logs.jsonl.xz"
    path.write_bytes(lzma.compress("\n".join(lines).encode()))
    return path


def run(*arguments: Any) -> int:
    return main(["bench", "rules", *map(str, arguments)])


def test_the_command(folder: Path, logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "rules.jsonl"
    options = ("--passes", 2, "--copies", 2, "--compared", 60, "--sqlite", 30, "--scan", 30, "--output", output)
    assert run("--rules", folder, "--events", logs, *options, "--json") == 0
    shown = capsys.readouterr()
    rows = [json.loads(line) for line in shown.out.splitlines()]
    assert rows == [json.loads(line) for line in output.read_text().splitlines()]
    assert "rules refused: Unknown modifier 'frobs'" in shown.err
    found = {(row["workload"], row["index"], row["mode"]): row for row in rows}
    assert found["rules", "sift", "rules loaded"]["median"] == len(DETECTIONS)
    assert found["rules", "sift", figures.READING]["target"] == 10
    assert found["rules", "sift", "s for yaml"]["median"] > 0
    assert found["rules", "sift", figures.ADDING]["median"] > 0
    assert found["rules", "sift", figures.MEMORY]["median"] > 0
    batches = found["logs", "sift", figures.BATCHES]
    assert (batches["target"], batches["n_events"], len(batches["passes"])) == (15, 120, 2)
    assert found["logs, with a command line", "sift", figures.SINGLES]["target"] == 60
    assert found["logs, 2 copies", "sift", figures.OF_COPIES]["n_rules"] == 2 * len(DETECTIONS)
    duckdb = found["logs", "duckdb", "us an event"]
    assert duckdb["n_events"] + duckdb["n_events_left_out"] == 60
    assert duckdb["n_events_left_out"] > 0, "users are an array now and then"
    assert (duckdb["refused"], duckdb["n_same_pairs"] > 0) == ({}, True)
    assert found["logs", "scan", "us an event"]["n_events_left_out"] == 0
    shown_again = renewed("<!--rules-->\n<!--end-->", tmp_path)
    assert "`siftline bench rules --copies 27`" in shown_again
    assert "| logs: us an event | duckdb |" in shown_again
    assert "| rules: s to read_rules | sift |" in shown_again


def test_the_table_and_missed_targets(
    folder: Path, logs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(figures.OF_RULES_AT_MOST, figures.READING, 0.0)
    options = ("--rules", folder, "--events", logs, "--only", "compared", "--compared", "0", "--fail")
    assert run(*options) == 1
    assert any(line.endswith("<= 0  missed") for line in capsys.readouterr().out.splitlines())
    assert run(*options, "--limit-rules", "3") == 0, "few rules have no targets"


def test_other_ids_are_an_error(
    folder: Path, logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    true_pairs_of = rivals.pairs_of
    monkeypatch.setattr(rivals, "pairs_of", lambda engine, lines: true_pairs_of(engine, lines) | {(0, "x")})
    assert run("--rules", folder, "--events", logs, "--only", "compared") == 1
    assert "WRONG IDS" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--rules", "nowhere", "--events", "{logs}"], "nowhere: no such folder"),
        (["--rules", "{folder}", "--events", "nothing.jsonl"], "nothing.jsonl: no such file of events"),
        (["--rules", "{folder}"], "--events says which events are matched"),
        (["--events", "{logs}"], "--rules or SIFTLINE_RULES says where the rules are"),
        (["--rules", "{folder}/bad.yml", "--events", "{logs}"], "none of the rules can be matched"),
    ],
)
def test_missing_data(
    arguments: list[str],
    reason: str,
    folder: Path,
    logs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv(rules_command.VARIABLE, raising=False)
    assert run(*(text.format(folder=folder, logs=logs) for text in arguments)) == 2
    assert reason in capsys.readouterr().err


def test_without_pysigma_the_extra_is_named(
    folder: Path, logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("siftline.sigma")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sigma.rule", None)
    assert run("--rules", folder, "--events", logs) == 2
    assert "Sigma rules need pySigma: pip install 'siftline[sigma]'" in capsys.readouterr().err


# data


def test_rules_and_regression_events_in_archives(folder: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    with tarfile.open(shared / "sigma-rules.tar.xz", "w:xz") as archive:
        archive.add(folder, "rules")
    system = {"EventID": {"#text": 4104}, "Provider": {"#attributes": {"Name": "PowerShell"}}, "Computer": "pc"}
    document = {"Event": {"System": system, "EventData": {"Script Block": "é"}}}
    content = (json.dumps(document) + "\n" + json.dumps(document, indent=1)).encode()
    with tarfile.open(shared / "sigma-regression.tar.xz", "w:xz") as archive:
        info = tarfile.TarInfo("data/rule/one.json")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    with rules_folder(shared) as unpacked:
        assert {path.name for path in unpacked.rglob("*.yml")} == {path.name for path in folder.iterdir()}
    with rules_folder(folder) as same:
        assert same == folder
    (path,) = event_files(shared)
    file = read_events(path)
    assert (file.name, file.is_regression, len(file.seen), len(file.timed)) == ("sigma-regression", True, 1, 1)
    assert json.loads(file.timed[0]) == {
        "EventID": 4104,
        "Computer": "pc",
        "Provider_Name": "PowerShell",
        "ScriptBlock": "é",
    }


def test_events_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "logs.jsonl"
    path.write_text('{"a": 1}\n\n[1]\n')
    with pytest.raises(ValueError, match="line 3: an event is a JSON object"):
        read_events(path)
    path.write_text('{"a": 1}\n{"a"\n')
    with pytest.raises(ValueError, match="line 2: not JSON"):
        read_events(path)
    path.write_text('{"a": 1}\n')
    with pytest.raises(ValueError, match="1 events"):
        read_events(path)


def test_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / "logs.jsonl.xz"
    path.write_bytes(lzma.compress(b'{"a": 1}\n' * 1000)[:-30])
    with pytest.raises(ValueError, match=r"logs\.jsonl\.xz: cannot be unpacked"):
        read_events(path)
    path = tmp_path / "sigma-rules.tar.xz"
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"sigma-rules\.tar\.xz: cannot be unpacked"), rules_folder(tmp_path):
        pass
    path = tmp_path / "events.tar"
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("one.json")
        info.size = 2
        archive.addfile(info, io.BytesIO(b"{}"))
    with pytest.raises(ValueError, match=r"events.tar, one.json: an event of Windows has Event.System"):
        read_events(path)


def test_kinds(logs: Path) -> None:
    file = read_events(logs)
    kinds = file.kinds(2, 10)
    assert len(kinds) == 2
    assert all(str(json.loads(line).get("EventID", "none")) == kind for kind, lines in kinds.items() for line in lines)
    assert [len(lines) for lines in kinds.values()] == sorted((len(lines) for lines in kinds.values()), reverse=True)
    assert len(file.with_command_line()) == sum("CommandLine" in json.loads(line) for line in file.timed)


# rivals

ASKS: dict[str, Callable[[Any, Sequence[bytes], int], Answer]] = {
    "duckdb": rivals.duckdb_answer,
    "sqlite": rivals.sqlite_answer,
    "scan": rivals.scan_answer,
}
# As logs are: few arrays.
flat_events = st.fixed_dictionaries(
    {}, optional={"a": leaves, "b": leaves, "c": st.fixed_dictionaries({}, optional={"d": leaves})}
)


@pytest.mark.parametrize("name", ASKS)
@settings(max_examples=40)
@given(
    drawn=st.lists(subscriptions | expressions, min_size=1, max_size=20),
    trees=st.lists(flat_events | events, min_size=1, max_size=6),
)
def test_rivals_find_what_the_oracle_finds(name: str, drawn: list[Expression], trees: list[dict[str, Any]]) -> None:
    lines = [json.dumps(tree, default=json_value).encode() for tree in trees]
    rules = [(str(number), expression) for number, expression in enumerate(drawn)]
    engine = siftline.Engine("scan")
    engine.add_many(rules)
    answer = ASKS[name](rules, lines, 1)
    rivals.check_same(answer, rivals.pairs_of(engine, lines))


@pytest.mark.parametrize("name", ASKS)
def test_rules_elsewhere(name: str, logs: Path) -> None:
    """Every made-up rule is translated, and each is found somewhere."""
    rules = []
    for title, detection in DETECTIONS.items():
        rules.append((title, parse_sigma(f"title: t\n{SOURCE}detection:\n  {detection}\n", ())))
    file = read_events(logs)
    lines = file.seen + file.timed
    engine = siftline.Engine("scan")
    engine.add_many(rules)
    answer = ASKS[name](rules, lines, 1)
    assert answer.refused == {}
    expected = rivals.pairs_of(engine, lines)
    assert rivals.check_same(answer, expected) == len(answer.pairs)
    assert {id for _, id in answer.pairs} == set(DETECTIONS)
    with pytest.raises(WrongIdsError, match=f"1 differences between sift and {name}: event 0, rule more: only sift"):
        rivals.check_same(answer, expected | {(answer.events[0], "more")} if answer.events[0] == 0 else expected)


def test_lists_without_constants() -> None:
    """SQLite takes `NOT IN ()` for true; with nothing to compare with, it is unknown."""
    texts = ["a not in () ignoring case", "not (a in ())", "any string not in ()", "(a in ()) is not true"]
    rules = [(text, siftline.parse(text)) for text in texts]
    for ask in ASKS.values():
        assert ask(rules, [b'{"a": "x"}', b"{}"], 1).pairs == {(0, texts[3]), (1, texts[3])}


@pytest.mark.parametrize("dialect", [DuckDbDialect(), SqliteDialect()], ids=lambda dialect: type(dialect).__name__)
@pytest.mark.parametrize(
    "text", ["any a (b = 1)", "length(a) > 1", "a > b + 1", "a = 9007199254740993", "a < now()", "a = '\0'"]
)
def test_what_sql_cannot_express(dialect: Any, text: str) -> None:
    with pytest.raises(UntranslatableError):
        Translator(dialect).condition(siftline.parse(text))


# copies


def test_copies_differ_in_what_is_rarest() -> None:
    texts = [
        "c = 'c' and (i ends with 'a' or i ends with 'rare') and not (w contains 'long' or w contains 'x')",
        "c = 'c' and i ends with 'a' and w contains 'x' and a cidr '10.0.0.0/8'",
        "c = 'c' and i ends with 'a' and w contains 'x' or c = 'c' and n in (1, '1')",
        "c = 'c' and (i ends with 'a' and any string contains 'y') is not true",
    ]
    rules = [(str(number), siftline.parse(text)) for number, text in enumerate(texts)]
    made = copied(rules, 40, 0)
    assert [id for id, _ in made[:9]] == ["0", "1", "2", "3", "0#1", "1#1", "2#1", "3#1", "0#2"]
    assert (made[:4], made) == (rules, copied(rules, 40, 0))
    found = [{siftline.to_text(expression) for _, expression in made[number::4]} for number in range(4)]
    first, second, third, fourth = ({text.replace("c = 'c' and ", "") for text in each} for each in found)
    endings = [f"i ends with '{text}'" for text in ("a", "rare")]
    assert first == {
        f"(i ends with 'a' or {ending}) and not (w contains '{word}' or w contains 'x')"
        for ending in endings
        for word in ("x", "long")
    }
    assert second == {
        f"{ending} and w contains '{word}' and a cidr '10.0.0.0/8'" for ending in endings for word in ("x", "long")
    }
    assert third == {
        f"{ending} and w contains '{word}' or n in (1, '1')" for ending in endings for word in ("x", "long")
    }
    assert fourth == {"(i ends with 'a' and any string contains 'y') is not true"}


# measuring


def test_memory_of_a_process() -> None:
    taken = memory.measured([(1, siftline.parse("a = 1"))], None, [b'{"a": 1}'])
    assert 0 < taken["imported"] < taken["warm"] <= taken["peak"]


def test_numbers_and_their_growth() -> None:
    before = {"index": "sift", "bytes": {"x": 5}, "clause_bytes": 7, "clauses": 3, "checks": {"regex_calls": 1}}
    after = {**before, "checks": {"regex_calls": 5}}
    assert measuring.numbers(before) == {"clauses": 3, "checks regex calls": 1}
    assert measuring.grown(measuring.numbers(before), measuring.numbers(after), 2) == {"checks regex calls an event": 2}


@pytest.mark.skipif(rules_command.VARIABLE not in os.environ, reason="SIFTLINE_RULES does not say where rules are")
def test_real_rules_are_translated() -> None:
    from siftline.sigma import read_rules

    with rules_folder(Path(os.environ[rules_command.VARIABLE])) as folder:
        rules = read_rules(folder)
    pairs = list(zip(rules.ids, rules.expressions, strict=True))[::50]
    (events_path, *_) = event_files(Path(os.environ[rules_command.VARIABLE]))
    file = read_events(events_path, 200)
    expected = rivals.scan_answer(pairs, file.timed, 1).pairs
    for ask in (rivals.duckdb_answer, rivals.sqlite_answer):
        answer = ask(pairs, file.timed, 1)
        assert answer.refused == {}
        rivals.check_same(answer, expected)
