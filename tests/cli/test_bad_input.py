"""Invalid input gives a clear error, never a traceback, and never a wrong match."""

from __future__ import annotations

import decimal
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import run_fixture, write_fixture  # noqa: F401

from siftline.files.json_places import column_in_json

if TYPE_CHECKING:
    from command_line import Outcome, Run, Write

GOOD_EVENTS = [{"a": 1}]


def siftline(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "siftline", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **options)


def match(run: Run, subscriptions: str, events: str, *options: str) -> Outcome:
    outcome = run("match", "--subscriptions", subscriptions, "--events", events, *options)
    assert "Traceback" not in outcome.err
    assert "this is a bug" not in outcome.err
    return outcome


def check(run: Run, path: str) -> Outcome:
    outcome = run("check", path)
    assert "this is a bug" not in outcome.err
    return outcome


# Subscriptions


def test_broken_expression_in_line_7_of_10_000(write: Write) -> None:
    rows = [{"id": i, "expression": f"a = {i}"} for i in range(1, 10_001)]
    rows[6]["expression"] = "a betwen 1 and 2"
    files = "--subscriptions", write("s.jsonl", rows), "--events", write("e.jsonl", [{"a": 7}, {"a": 8}])
    refused = siftline("match", *files)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"{files[1]}:7:28: subscription 7: expected an operator after 'a', found 'betwen'" in refused.stderr
    assert "did you mean 'between'?" in refused.stderr
    assert "1 bad subscription: nothing was matched" in refused.stderr
    skipped = siftline("match", *files, "--skip-bad")
    assert skipped.returncode == 1
    assert [json.loads(line)["subscription"] for line in skipped.stdout.splitlines()] == [8]
    assert "1 bad subscription left out" in skipped.stderr


def test_at_most_20_broken_ones_are_reported(run: Run, write: Write) -> None:
    subscriptions, events = write("s.sift", "a =\n" * 100), write("e.jsonl", GOOD_EVENTS)
    refused = match(run, subscriptions, events)
    assert refused.status == 1
    assert refused.err.count("s.sift:") == 20
    skipped = match(run, subscriptions, events, "--skip-bad")
    assert skipped.status == 1
    assert "no good subscriptions" in skipped.err


def test_duplicate_id(run: Run, write: Write) -> None:
    rows = [{"id": "x", "expression": "a = 1"}, {"id": "y", "expression": "a = 1"}, {"id": "x", "expression": "a = 2"}]
    outcome = match(run, write("s.jsonl", rows), write("e.jsonl", GOOD_EVENTS))
    assert outcome.status == 1
    assert "s.jsonl:3:1: duplicate id 'x': line 1 has it already" in outcome.err


def test_mixed_ids(run: Run, write: Write) -> None:
    rows = [{"id": 1, "expression": "a = 1"}, {"id": "y", "expression": "a = 1"}]
    outcome = match(run, write("s.jsonl", rows), write("e.jsonl", GOOD_EVENTS))
    assert outcome.status == 1
    assert "s.jsonl:2:1: the id 'y' is a string, but the first one (line 1) is an integer" in outcome.err


@pytest.mark.parametrize("id", [None, True, 1.5, [], 2**63, "\ud800"])
def test_impossible_ids(run: Run, write: Write, id: Any) -> None:
    outcome = check(run, write("s.jsonl", [{"id": id, "expression": "a = 1"}]))
    assert outcome.status == 1
    assert "s.jsonl:1:1: " in outcome.out


@pytest.mark.parametrize("weight", ["x", True, 10**400, []])
def test_impossible_weights(run: Run, write: Write, weight: Any) -> None:
    outcome = check(run, write("s.jsonl", [{"id": 1, "expression": "a = 1", "weight": weight}]))
    assert outcome.status == 1
    assert "a weight must be a finite number" in outcome.out


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("a matches '(?=x)'", "RE2 cannot run"),
        ("a = 99999999999999999999", "does not fit into 64 bits"),
        ("a = 1e999", "too large"),
        ("a = 1 or " * 120_000 + "a = 1", "characters"),
        ("(" * 5000 + "a = 1" + ")" * 5000, "deep"),
        ("not " * 5000 + "a = 1", "deep"),
        ("a = null", "is null"),
        ("nowhere('x')", "operator"),
        ("this = 1", "any"),
        ("", "the expression is empty"),
    ],
)
def test_refused_expressions(run: Run, write: Write, expression: str, reason: str) -> None:
    outcome = check(run, write("s.jsonl", [{"id": 1, "expression": expression}, {"id": 2, "expression": "a = 1"}]))
    assert outcome.status == 1
    assert "s.jsonl:1" in outcome.out
    assert reason in outcome.out
    assert "1 good, 1 broken" in outcome.out
    assert len(outcome.out) < 3000


@pytest.mark.parametrize(
    ("line", "column", "reason"),
    [
        ('{"id": 1, "expression": "a = 1"', 32, "invalid JSON"),
        ("[1]", 1, "expected a JSON object or string"),
        ("7", 1, "expected a JSON object or string"),
        ("{}", 1, "found an empty object"),
        ('{"id": 1}', 1, "expected one of the keys 'expression', 'pattern' and 'filters'"),
        ('{"expression": "a = 1"}', 1, "expected one of the keys 'id' and 'subscription'"),
        ('{"id": 1, "expression": 7}', None, "an expression must be a string"),
        ('{"id": 1, "id": 2, "expression": "a = 1"}', 1, "a key occurs twice"),
        ('{"id": 1, "pattern": {"a": 1}}', None, "at a: expected an array or an object"),
        ('{"id": 1, "pattern": {"a": [1]}, "dialect": "x"}', None, "unknown dialect"),
        ('{"id": 1, "filters": [{"exakt": {"a": "b"}}]}', None, "unknown filter dialect"),
        ('{"id": 1, "weight": NaN, "expression": "a = 1"}', None, "NaN"),
        ("[" * 100_000, None, "nests too deeply"),
        ('{"id": 1, "expression": "\\u0061 = \\"x\\""}', 35, "single quotes"),
        ('{"id": 1, "expression": "a = 1", "pattern": {}}', 1, "both 'expression' and 'pattern' are present"),
        ('{"id": 1, "subscription": 2, "filters": []}', 1, "both 'id' and 'subscription' are present"),
        ('{"id": 1, "expression": "a = 1", "weigth": 2}', 1, "unknown key 'weigth'; did you mean 'weight'?"),
        ('{"id": 1, "pattern": {}, "dialct": "sns"}', 1, "unknown key 'dialct'; did you mean 'dialect'?"),
        ('{"id": 1, "expresion": "a = 1"}', 1, "unknown key 'expresion'; did you mean 'expression'?"),
        ('{"id": null, "expression": "a = 1"}', 1, "an id must be an integer or a string, not null"),
        ('{"id": true, "expression": "a = 1"}', 1, "an id must be an integer or a string, not true"),
        ('{"id": {"a": 1}, "expression": "a = 1"}', 1, "an id must be an integer or a string, not an object"),
        ('[{"id": 1}]', 1, "expected a JSON object or string, found an array"),
        ('  "a ! 1"', 6, "expected"),
    ],
)
def test_refused_lines(run: Run, write: Write, line: str, column: int | None, reason: str) -> None:
    outcome = check(run, write("s.jsonl", f'{{"id": 5, "expression": "a = 1"}}\n{line}\n'))
    assert outcome.status == 1
    assert "s.jsonl:2" + (f":{column}:" if column else "") in outcome.out
    assert reason in outcome.out
    assert "1 good, 1 broken" in outcome.out


def test_not_utf_8(run: Run, write: Write) -> None:
    outcome = check(run, write("s.sift", b"a = 1\na = '\xff'\nb = 'caf\xc3\xa9' and\n"))
    assert outcome.status == 1
    assert "s.sift:2:6: not UTF-8" in outcome.out
    assert "s.sift:3:15: " in outcome.out
    outcome = check(run, write("s.csv", b"id,expression\n1,a = 1\n2,\xff\n3,a =\n"))
    assert "s.csv:3:1: not UTF-8" in outcome.out
    assert "s.csv:4:6: subscription '3': expected a constant" in outcome.out


def test_csv_with_the_wrong_shape(run: Run, write: Write) -> None:
    assert check(run, write("a.csv", "")).status == 2
    assert "a.csv:1: expected the columns subscription" in check(run, write("a.csv", "x,y\n1,2\n")).err
    assert "twice" in check(run, write("a.csv", "id,id\n1,2\n")).err
    outcome = check(run, write("a.csv", 'id,expression\n1\n,a = 1\n2,"a = ""x"""\n3,"a = 1\n'))
    assert outcome.status == 1
    assert "a.csv:2:1: expected 2 cells, as in the header, found 1" in outcome.out
    assert "a.csv:3:1: the id is empty" in outcome.out
    assert "a.csv:4:8: " in outcome.out
    assert "a.csv:5:1: not CSV" in outcome.out


@pytest.mark.parametrize("name", ["s.jsonl", "s.sift"])
def test_empty_subscriptions(run: Run, write: Write, name: str) -> None:
    assert check(run, write(name, "")).status == 1
    outcome = match(run, write(name, "\n\n"), write("e.jsonl", GOOD_EVENTS))
    assert outcome.status == 1
    assert f"{name}: no subscriptions" in outcome.err


def test_parquet_with_missing_columns(run: Run, write: Write, tmp_path: Path) -> None:
    path = str(tmp_path / "s.parquet")
    pq.write_table(pa.table({"subscription": [1], "text": ["a = 1"]}), path)
    outcome = match(run, path, write("e.jsonl", GOOD_EVENTS))
    assert outcome.status == 2
    assert "expected the columns subscription and expression" in outcome.err
    assert "found subscription, text" in outcome.err


def test_parquet_rows_that_are_wrong(run: Run, write: Write, tmp_path: Path) -> None:
    path = str(tmp_path / "s.parquet")
    table = {"subscription": [1, 1, None, 4], "expression": ["a = 1", "a = 2", "a = 3", None]}
    pq.write_table(pa.table(table), path)
    outcome = check(run, path)
    assert outcome.status == 1
    assert "s.parquet: row 2: duplicate id 1: row 1 has it already" in outcome.out
    assert "s.parquet: row 3: an id must be an integer or a string" in outcome.out
    assert "s.parquet: row 4: subscription 4: an expression must be a string" in outcome.out


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet at all"])
def test_damaged_parquet(run: Run, write: Write, content: bytes) -> None:
    outcome = match(run, write("s.parquet", content), write("e.jsonl", GOOD_EVENTS))
    assert outcome.status == 2
    assert "s.parquet: not a readable Parquet file" in outcome.err
    assert match(run, write("s.sift", "a = 1"), write("e.parquet", content)).status == 2


# Events


@pytest.mark.parametrize(
    ("line", "place", "reason"),
    [
        (b'{"a": 1', "2:8", "not a JSON object: expecting"),
        (b"[1]", "2:1", "an array"),
        (b"7", "2:1", "a number"),
        (b"null", "2:1", "null"),
        (b'{"a": "\xff"}', "2:8", "UTF-8"),
        (b'{"caf\xc3\xa9": tru}', "2:10", "expecting value"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "2:1", "deep"),
        (b'{"a": 1} {"a": 2}', "2:10", "extra data"),
    ],
)
def test_bad_event(run: Run, write: Write, line: bytes, place: str, reason: str) -> None:
    events = write("e.jsonl", b'{"a": 1}\n' + line + b'\n{"a": 1}\n')
    subscriptions = write("s.sift", "a = 1")
    refused = match(run, subscriptions, events)
    assert refused.status == 1
    assert f"e.jsonl:{place}: " in refused.err
    assert reason in refused.err
    skipped = match(run, subscriptions, events, "--skip-bad")
    assert skipped.status == 1
    assert skipped.pairs() == {(0, 1), (2, 1)}
    assert [row["line"] for row in skipped.rows()] == [1, 3]
    assert "1 bad event left out" in skipped.err


def test_nan_is_null(run: Run, write: Write) -> None:
    rules = write("s.sift", "a is null\na > 0\nnot (a > 0)")
    outcome = match(run, rules, write("e.jsonl", b'{"a": NaN}\n{"a": Infinity}\n{"a": 1e999}\n'))
    assert outcome.status == 0
    assert outcome.pairs() == {(0, 1), (1, 1), (2, 1)}


def test_bad_csv_events(run: Run, write: Write) -> None:
    events = write("e.csv", b"a,b\n1,x\n1\n1,\xff\n" + b"9" * 5000 + b",y\n1,z\n")
    outcome = match(run, write("s.sift", "a = 1"), events, "--skip-bad")
    assert outcome.status == 1
    assert outcome.pairs() == {(0, 1), (4, 1)}
    for place in ("e.csv:3:1: expected 2 cells", "e.csv:4:1: not UTF-8", "e.csv:5:1: an integer has too many digits"):
        assert place in outcome.err


def test_parquet_events_of_an_unusable_type(run: Run, write: Write, tmp_path: Path) -> None:
    path = str(tmp_path / "e.parquet")
    pq.write_table(pa.table({"a": [1], "raw": pa.array([b"\x00"], pa.binary())}), path)
    outcome = match(run, write("s.sift", "a = 1"), path)
    assert outcome.status == 2
    assert "e.parquet: column 'raw': the type binary has no meaning in an event (hint: drop the column" in outcome.err


def test_no_events(run: Run, write: Write) -> None:
    outcome = match(run, write("s.sift", "a = 1"), write("e.jsonl", ""))
    assert (outcome.status, outcome.out) == (0, "")
    assert "0 events, 0 matches" in outcome.err


# Files and options


def test_missing_file_directory_and_extension(run: Run, write: Write, tmp_path: Path) -> None:
    good = write("e.jsonl", GOOD_EVENTS)
    missing = match(run, str(tmp_path / "no.jsonl"), good)
    assert missing.status == 2
    assert "no.jsonl: No such file or directory" in missing.err
    (tmp_path / "folder.jsonl").mkdir()
    directory = match(run, str(tmp_path / "folder.jsonl"), good)
    assert directory.status == 2
    assert "folder.jsonl: Is a directory" in directory.err
    assert match(run, write("s.sift", "a = 1"), str(tmp_path / "no.parquet")).status == 2
    odd = match(run, write("s.xml", "a = 1"), good)
    assert odd.status == 2
    assert "'.xml' is not supported here" in odd.err


def test_unknown_index(run: Run, write: Write) -> None:
    outcome = match(run, write("s.sift", "a = 1"), write("e.jsonl", GOOD_EVENTS), "--index", "fast-skan")
    assert outcome.status == 2
    assert "did you mean 'fast-scan'?" in outcome.err


@pytest.mark.parametrize(
    "arguments",
    [[], ["mach"], ["match"], ["match", "--subscriptions", "x"], ["check"], ["explain", "--id", "x"]],
)
def test_usage(run: Run, arguments: list[str]) -> None:
    outcome = run(*arguments)
    assert outcome.status == 2
    assert "usage: siftline" in outcome.err


def test_unusable_options(run: Run, write: Write, tmp_path: Path) -> None:
    rules, events = write("s.sift", "a = 1"), write("e.jsonl", GOOD_EVENTS)
    for options in (["--top", "0"], ["--top", "x"], ["--format", "xml"], ["--format", "parquet"], ["--event", "a"]):
        assert match(run, rules, events, *options).status == 2
    assert match(run, rules, events, "--strings").status == 2
    assert match(run, rules, events, "--output", str(tmp_path / "m.xls")).status == 2


def test_unwritable_output(run: Run, write: Write, tmp_path: Path) -> None:
    rules, events = write("s.sift", "a = 1"), write("e.jsonl", GOOD_EVENTS)
    outcome = match(run, rules, events, "--output", str(tmp_path / "nowhere" / "m.jsonl"))
    assert outcome.status == 2
    assert "m.jsonl: cannot be written: No such file or directory" in outcome.err
    (tmp_path / "m.csv").mkdir()
    assert match(run, rules, events, "--output", str(tmp_path / "m.csv")).status == 2


@pytest.mark.parametrize("name", ["m.jsonl", "m.csv", "m.parquet"])
def test_a_failed_run_leaves_nothing_half_written(run: Run, write: Write, tmp_path: Path, name: str) -> None:
    rules = write("s.sift", "a = 1")
    output = tmp_path / "out" / name
    output.parent.mkdir()
    output.write_text("before")
    mode = output.stat().st_mode
    failed = match(run, rules, write("e.jsonl", '{"a": 1}\n[]\n'), "--output", str(output))
    assert failed.status == 1
    assert "nothing was written" in failed.err
    assert output.read_text() == "before"
    assert match(run, rules, write("e.jsonl", GOOD_EVENTS), "--output", str(output)).status == 0
    assert os.listdir(output.parent) == [name]
    assert output.stat().st_mode == mode


# The process


def test_version_and_help(run: Run) -> None:
    import siftline as package

    assert run("--version").out == f"siftline {package.__version__}\n"
    for command in ((), ("match",), ("check",), ("explain",), ("demo",)):
        outcome = run(*command, "--help")
        assert outcome.status == 0
        assert "examples:" in outcome.out


def test_a_bug_is_one_line_unless_debugging(run: Run, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("siftline.files.subscription_files.read_subscriptions", fail)
    path = write("s.sift", "a = 1")
    outcome = run("check", path)
    assert outcome.status == 2
    assert outcome.err == "siftline: this is a bug: ZeroDivisionError: oh (--debug shows the traceback)\n"
    with pytest.raises(ZeroDivisionError):
        run("check", path, "--debug")


def test_an_interrupt_that_a_library_met(run: Run, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            try:
                raise ValueError("not connected")
            finally:
                raise RuntimeError("cannot cancel")

    monkeypatch.setattr("siftline.files.subscription_files.read_subscriptions", fail)
    outcome = run("check", write("s.sift", "a = 1"))
    assert (outcome.status, outcome.err) == (130, "interrupted\n")


def test_importing_the_command_line_is_light() -> None:
    heavy = "numba", "numpy", "pyarrow", "re2", "tqdm"
    code = f"import sys, siftline.cli as c; c.main(['match', '--help']); print(sorted(set({heavy}) & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_closed_pipe_is_quiet(write: Write) -> None:
    files = "--subscriptions", write("s.sift", "a = 1"), "--events", write("e.jsonl", '{"a": 1}\n' * 100_000)
    command = [sys.executable, "-m", "siftline", "match", *files]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read().splitlines()
        assert [line for line in said if b"compiling" not in line] == []
    assert process.returncode == 141


def _take_signals() -> None:
    """Undo what shells do to programs in the background: they ignore interrupts, and so do all that they start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupt(write: Write, tmp_path: Path, number: int, status: int) -> None:
    output = tmp_path / "out" / "m.jsonl"
    output.parent.mkdir()
    files = "--subscriptions", write("s.sift", "a = 1"), "--events", "-", "--output", str(output)
    command = [sys.executable, "-m", "siftline", "match", *files]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=_take_signals) as process:
        for _ in range(600):  # until it waits for events
            if os.listdir(output.parent):
                break
            time.sleep(0.1)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert b"Traceback" not in err
    assert os.listdir(output.parent) == []


def test_matches_come_while_events_still_arrive(write: Write) -> None:
    command = [sys.executable, "-m", "siftline", "match", "--subscriptions", write("s.sift", "a = 1"), "--events", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"a": 1}\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == {"event": 0, "line": 1, "subscription": 1}
        process.communicate(timeout=60)
    assert process.returncode == 0


# Output and input in one file


@pytest.mark.parametrize("role", ["--subscriptions", "--events", "--statistics"])
@pytest.mark.parametrize("spelling", ["same", "dotted", "symlink", "hard link"])
def test_the_output_is_never_an_input(run: Run, write: Write, tmp_path: Path, role: str, spelling: str) -> None:
    files = {"--subscriptions": write("s.jsonl", ["a = 1"]), "--events": write("e.jsonl", GOOD_EVENTS)}
    files["--statistics"] = write("t.jsonl", "{}")
    path = files[role]
    content = Path(path).read_text()
    output = {"same": path, "dotted": f"{tmp_path}/../{tmp_path.name}/{os.path.basename(path)}"}.get(spelling)
    if output is None:
        output = str(tmp_path / "link.jsonl")
        (os.symlink if spelling == "symlink" else os.link)(path, output)
    outcome = run("match", *(part for pair in files.items() for part in pair), "--output", output)
    assert outcome.status == 2
    assert "the output is also an input" in outcome.err
    assert Path(path).read_text() == content


# Values without a meaning in Parquet files


def odd_events(tmp_path: Path) -> str:
    path = str(tmp_path / "e.parquet")
    days = pa.array([0, 3_000_000, 1], pa.date32())
    items = pa.array([[{"day": day}] for day in (0, 3_000_000, 1)], pa.list_(pa.struct({"day": pa.date32()})))
    pq.write_table(pa.table({"a": [1, 2, 3], "day": days, "items": items}), path)
    return path


@pytest.mark.parametrize(
    ("rule", "attribute"),
    [("day > ''", "day"), ("any items (day > '')", "items.day"), ("day is null", "day")],
)
def test_dates_without_a_meaning(run: Run, write: Write, tmp_path: Path, rule: str, attribute: str) -> None:
    events, rules = odd_events(tmp_path), write("s.sift", rule)
    reason = f"e.parquet: row 2: attribute '{attribute}': a date outside the years 1 to 9999"
    refused = match(run, rules, events)
    assert refused.status == 1
    assert reason in refused.err
    assert refused.pairs() == (set() if "null" in rule else {(0, 1)})
    skipped = match(run, rules, events, "--skip-bad")
    assert skipped.status == 1
    assert reason in skipped.err
    assert "2 events" in skipped.err
    assert "1 bad event left out" in skipped.err
    assert skipped.pairs() == (set() if "null" in rule else {(0, 1), (2, 1)})
    checked = run("check", rules, "--against", events)
    assert checked.status == 1
    assert reason in checked.err
    explained = run("explain", "--subscription", rule, "--event", f"{events}:2")
    assert explained.status == 1
    assert reason in explained.err


def test_invalid_dates_in_unused_columns(run: Run, write: Write, tmp_path: Path) -> None:
    events, rules = odd_events(tmp_path), write("s.sift", "a > 0")
    outcome = match(run, rules, events)
    assert (outcome.status, outcome.pairs()) == (0, {(0, 1), (1, 1), (2, 1)})
    assert run("check", rules, "--against", events).status == 0
    assert run("explain", "--subscription", "a = 2", "--event", f"{events}:2").out.startswith("match")


def test_decimals(run: Run, write: Write, tmp_path: Path) -> None:
    path = str(tmp_path / "e.parquet")
    prices = [decimal.Decimal(text) for text in ("20.00", "19.99", "0.10")]
    pq.write_table(pa.table({"price": pa.array(prices, pa.decimal128(9, 2))}), path)
    outcome = match(run, write("s.sift", "price = 19.99\nprice <= 0.1\nprice = 20"), path)
    assert (outcome.status, outcome.pairs()) == (0, {(0, 3), (1, 1), (2, 2)})
    assert run("explain", "--subscription", "price = 19.99", "--event", f"{path}:2").out.startswith("match")


# What is written when a bad event ends the run


@pytest.mark.parametrize("n", [3, 20_000])
def test_matches_before_a_bad_event_are_written(run: Run, write: Write, n: int) -> None:
    good = '{"a": 1}\n'
    outcome = match(run, write("s.sift", "a = 1"), write("e.jsonl", good * n + "[]\n" + good * 5))
    assert outcome.status == 1
    assert outcome.pairs() == {(i, 1) for i in range(n)}
    assert "the matches before it were written" in outcome.err
    device = match(run, write("s.sift", "a = 1"), write("e.jsonl", "[]\n"), "--output", os.devnull, "--format", "csv")
    assert "the matches before it were written" in device.err
    csv = match(run, write("s.sift", "a = 1"), write("e.csv", "a,b\n" + "1,2\n" * n + "1\n1,2\n"))
    assert csv.pairs() == {(i, 1) for i in range(n)}


# Files that are something else


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", ["x.jsonl", "x.csv"])
def test_utf_16(run: Run, write: Write, encoding: str, name: str) -> None:
    path = write(name, '{"id": 1, "expression": "a = 1"}\n'.encode(encoding))
    for outcome in (match(run, path, write("e.jsonl", GOOD_EVENTS)), match(run, write("s.sift", "a = 1"), path)):
        assert (outcome.status, outcome.out) == (2, "")
        assert outcome.err == f"siftline: {path}: looks like UTF-16; save it as UTF-8\n"


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv"])
def test_parquet_under_another_name(run: Run, write: Write, tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    pq.write_table(pa.table({"a": [1]}), path)
    for outcome in (match(run, path, write("e.jsonl", GOOD_EVENTS)), match(run, write("s.sift", "a = 1"), path)):
        assert outcome.status == 2
        assert f"{path}: this is a Parquet file; its name must end in .parquet" in outcome.err


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        (
            "x.json",
            '[{"a": 1}, {"a": 2}]',
            "this is a JSON array; Siftline reads JSON Lines, one object per line (jq -c '.[]'",
        ),
        ("x.json", "[]", "this is a JSON array"),
        ("x.jsonl", '\n[\n  {"a": 1}\n]\n', "this is a JSON array"),
        ("x.json", '{\n  "a": 1\n}\n', "this is a JSON object over several lines; Siftline reads JSON Lines"),
    ],
)
def test_json_documents(run: Run, write: Write, name: str, content: str, reason: str) -> None:
    path = write(name, content)
    for outcome in (match(run, path, write("e.jsonl", GOOD_EVENTS)), match(run, write("s.sift", "a = 1"), path)):
        assert outcome.status == 2
        assert f"{path}: {reason}" in outcome.err
    if "array" in reason:
        outcome = run("explain", "--subscription", "a = 1", "--event", path)
        assert outcome.status == 2
        assert reason in outcome.err


def test_bare_string_among_string_ids(run: Run, write: Write) -> None:
    outcome = check(run, write("s.jsonl", [{"id": "x", "expression": "a = 1"}, "a = 2"]))
    assert "s.jsonl:2:1: the id of a bare string is its line, an integer, but the first one (line 1) is" in outcome.out


def test_events_as_statistics(run: Run, write: Write) -> None:
    events = write("e.jsonl", [*GOOD_EVENTS, *GOOD_EVENTS])
    outcome = match(run, write("s.sift", "a = 1"), events, "--statistics", events)
    assert outcome.status == 2
    assert (
        "e.jsonl: not statistics; --statistics needs a file that Statistics.save has written, not events" in outcome.err
    )


def test_columns_are_those_of_the_key_that_has_the_value() -> None:
    line = '{"meta": {"expression": "x"}, "expression": "a ! 1"}'
    assert column_in_json(line, "expression", "a ! 1", 2) == line.index("!") + 1


def test_help_without_a_command_and_of_match(run: Run) -> None:
    from siftline.indexes.registry import own_indexes

    outcome = run()
    assert outcome.status == 2
    assert "examples:" in outcome.err
    text = " ".join(run("match", "--help").out.split())
    assert f"the index: {', '.join(own_indexes())}" in text
    assert "the rows of one event are in no particular order" in text
