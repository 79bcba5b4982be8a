"""`siftline match --sigma` and `siftline check --sigma`."""

from __future__ import annotations

import csv
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from siftline.cli import main

SOURCE = "logsource: {category: process_creation, product: windows}"
EVENTS: list[Any] = [
    {"Channel": "Microsoft-Windows-Sysmon/Operational", "EventID": 1, "Image": "C:\\CMD.exe"},
    {"Channel": "Microsoft-Windows-Sysmon/Operational", "EventID": "1", "Image": "C:\\cmd.exe", "User": "x"},
    {"Channel": "Security", "EventID": 4688, "Image": "C:\\cmd.exe"},
]
IDS = ["5013198e-7d8b-4d9c-8e5b-5b5ebd8d2f3a", "6013198e-7d8b-4d9c-8e5b-5b5ebd8d2f3a"]


@pytest.fixture(name="folder")
def folder_fixture(tmp_path: Path) -> Path:
    folder = tmp_path / "rules"
    folder.mkdir()
    detection = "detection:\n  s: {{Image|endswith: '\\cmd.exe'}}\n  f: {{User: {user}}}\n  condition: s and not f\n"
    for id, level, user in zip(IDS, ("low", "high"), ("null", "x"), strict=True):
        text = f"title: Shell {level}\nid: {id}\nlevel: {level}\n{SOURCE}\n{detection.format(user=user)}"
        (folder / f"{level}.yml").write_text(text)
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    return folder


def run(capfd: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    return status, *capfd.readouterr()


def add_bad_rule(folder: Path) -> None:
    text = f"title: t\n{SOURCE}\ndetection:\n  s: {{a|frobs: 1}}\n  condition: s\n"
    (folder / "bad.yml").write_text(text)


def test_match(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capfd, "match", "--sigma", folder, "--events", folder.parent / "events.jsonl")
    assert status == 0
    assert [json.loads(line) for line in out.splitlines()] == [
        {"event": 0, "line": 1, "subscription": IDS[1], "title": "Shell high", "level": "high"},
        {"event": 1, "line": 2, "subscription": IDS[0], "title": "Shell low", "level": "low"},
    ]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_match_into_a_file(folder: Path, suffix: str, capfd: pytest.CaptureFixture[str]) -> None:
    output = folder.parent / f"matches.{suffix}"
    events = folder.parent / "events.jsonl"
    assert run(capfd, "match", "--sigma", folder, "--events", events, "--output", output)[0] == 0
    rows = (
        list(csv.DictReader(output.read_text().splitlines())) if suffix == "csv" else pq.read_table(output).to_pylist()
    )
    assert [(row["title"], row["level"]) for row in rows] == [("Shell high", "high"), ("Shell low", "low")]


def test_match_without_pipelines(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    events = folder.parent / "events.jsonl"
    _, out, _ = run(capfd, "match", "--sigma", folder, "--pipeline", "none", "--events", events)
    assert [json.loads(line)["event"] for line in out.splitlines()] == [0, 1, 2]
    status, _, err = run(capfd, "match", "--sigma", folder, "--pipeline", "nothing", "--events", events)
    assert status == 2
    assert "'nothing' is neither installed nor" in err


def test_a_bad_rule_stops_unless_skipped(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    add_bad_rule(folder)
    events = folder.parent / "events.jsonl"
    status, out, err = run(capfd, "match", "--sigma", folder, "--events", events)
    assert (status, out) == (1, "")
    assert f"{folder}/bad.yml:4:7: Unknown modifier 'frobs'" in err
    status, out, err = run(capfd, "match", "--sigma", folder, "--events", events, "--skip-bad")
    assert (status, len(out.splitlines())) == (1, 2)
    assert "1 bad subscription left out" in err


def test_check(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capfd, "check", "--sigma", folder)
    assert (status, out) == (0, f"{folder}: 2 good, 0 broken\n")
    add_bad_rule(folder)
    status, out, _ = run(capfd, "check", "--sigma", folder)
    assert status == 1
    assert f"{folder}/bad.yml:4:7: Unknown modifier 'frobs'" in out


def test_check_finds_rules_that_cannot_fire_on_these_logs(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    logs = folder.parent / "security.jsonl"
    logs.write_text(json.dumps(EVENTS[2]) + "\n")
    status, out, _ = run(capfd, "check", "--sigma", folder, "--events", logs)
    assert status == 1
    assert f"{folder}/high.yml:1: subscription '{IDS[1]}' can never match on these events" in out
    assert "no event satisfies EventID in (1, '1')" in out
    status, out, _ = run(capfd, "check", "--sigma", folder, "--events", logs, "--json")
    found = json.loads(out)
    assert (found["never"], found["subscriptions"][0]["file"]) == (2, f"{folder}/high.yml")


def test_without_pysigma_the_extra_is_named(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("siftline.sigma")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sigma.rule", None)
    status, _, err = run(capfd, "check", "--sigma", folder)
    assert (status, err) == (2, "siftline: Sigma rules need pySigma: pip install 'siftline[sigma]'\n")


def test_the_example(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "sigma_logs.py"))
    example["report"](*example["write_samples"](tmp_path, 200))
    out = capfd.readouterr().out
    assert "3 rules read" in out
    assert "Shell started by an office program" in out
    assert "1 rules did not fire" in out
