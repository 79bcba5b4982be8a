"""What is wrong with a rule is said with its line, and the other rules are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import siftline
from siftline.sigma import parse_sigma, read_rules

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "title: t\nlogsource: {product: windows}\n"
DETECTION = f"{HEAD}detection:\n  a:\n"
GOOD = f"{DETECTION}    x: 1\n  condition: a\n"
BOMB = "".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10)}]\n" for i in range(1, 9))

CASES = {
    "broken YAML": (f"{HEAD}detection:\n  a: [x\n  condition: a\n", 5, "not YAML: did not find expected ',' or ']'"),
    "a character that YAML has not": (f"{DETECTION}    x: 'a\0b'\n  condition: a\n", 5, "control characters"),
    "a date that does not exist": (f"date: 2024-02-31\n{GOOD}", 1, "day is out of range"),
    "a key twice": (f"{GOOD}  a: {{y: 1}}\n", 7, "the key 'a' is there twice"),
    "unknown modifier": (f"{DETECTION}    x: 1\n    y|frobs: z\n  condition: a\n", 6, "Unknown modifier 'frobs'"),
    "look-ahead": (f"{DETECTION}    x|re:\n    - b\n    - (?=b)c\n  condition: a\n", 7, "invalid"),
    "no expression at all": (f"{DETECTION}    x|re: (a\n  condition: a\n", 5, "missing )"),
    "broken condition": (f"{DETECTION}    x: 1\n  condition: a and\n", 6, "found end of text"),
    "unknown selection": (f"{DETECTION}    x: 1\n  condition: b\n", 6, "'b' not defined"),
    "aggregation": (f"{DETECTION}    x: 1\n  condition: a | count() > 5\n", 6, "pipe syntax"),
    "no condition": (f"{DETECTION}    x: 1\n", 3, "at least one condition"),
    "no detection": (HEAD, 1, "detection"),
    "unknown level": (f"level: urgent\n{GOOD}", 1, "'urgent' is not a valid"),
    "bad id": (f"{GOOD}id: nope\n", 7, "must be an UUID"),
    "no mapping": ("- a\n- b\n", 1, "a rule must be a mapping"),
    "a rule that holds itself": (f"{HEAD}detection: &d\n  a: *d\n  condition: a\n", 1, "holds itself"),
    "aliases of aliases": (f"{HEAD}x0: &x0 [1]\n{BOMB}detection: {{a: *x8, condition: a}}\n", 1, "20,000 values"),
    "deep brackets": (f"{HEAD}detection:\n  a: {'[' * 100_000}\n", 4, "nests deeper than 100 levels"),
    "deep lists": ("- " * 100_000, 1, "nests deeper than 100 levels"),
    "deep condition": (f"{DETECTION}    x: 1\n  condition: {'not ' * 2400}a\n", 6, "nests too deeply"),
    "long condition": (f"{DETECTION}    x: 1\n  condition: {' or '.join('a' * 4000)}\n", 6, "longer than 10,000"),
    "a megabyte of keywords": (
        f"{DETECTION}{''.join(f'  - keyword {i:055}{chr(10)}' for i in range(16_000))}  condition: a\n",
        1,
        "more than 524,288 characters",
    ),
    "one keyword of a megabyte": (f"{DETECTION}  - {'x' * 2**20}\n  condition: a\n", 1, "more than 524,288 characters"),
    "correlation": ("title: t\ncorrelation: {type: event_count}\n", 1, "looks at one event at a time"),
    "filter": ("title: t\nfilter: {rules: [a]}\n", 1, "a filter changes other rules"),
    "placeholder": (f"{DETECTION}    x|expand: '%who%'\n  condition: a\n", 5, "%who% has no values"),
    "part of a time": (f"{DETECTION}    x|hour: 5\n  condition: a\n", 5, "parts of a time"),
    "no network": (f"{DETECTION}    x|cidr: 10.0.0.0/99\n  condition: a\n", 5, "Invalid CIDR"),
    "no number": (f"{DETECTION}    x: .nan\n  condition: a\n", 5, "Invalid number"),
    "a date as value": (f"{DETECTION}    x: 2024-01-01\n  condition: a\n", 5, "Unsupported type"),
    "a key that is a number": (f"{HEAD}detection:\n  a: {{5: 1}}\n  condition: a\n", 5, "pySigma cannot read"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_bad_rule_has_a_place_and_the_others_are_read(name: str, tmp_path: Path) -> None:
    text, line, reason = CASES[name]
    (tmp_path / "bad.yml").write_text(text, encoding="utf-8")
    (tmp_path / "good.yml").write_text(GOOD, encoding="utf-8")
    rules = read_rules(tmp_path)
    assert rules.ids == ["good.yml"]
    (problem,) = rules.refused
    assert problem.file == str(tmp_path / "bad.yml")
    assert (problem.line, reason in problem.reason) == (line, True), problem


def test_text_that_is_not_utf_8(tmp_path: Path) -> None:
    (tmp_path / "bad.yml").write_bytes(b"title: t\nauthor: \xff\n")
    (problem,) = read_rules(tmp_path).refused
    assert (problem.line, problem.reason) == (2, "not UTF-8: invalid start byte")


def test_each_document_of_a_file_is_refused_by_itself(tmp_path: Path) -> None:
    (tmp_path / "two.yml").write_text(f"{GOOD}---\n{DETECTION}    x|frobs: 1\n  condition: a\n", encoding="utf-8")
    rules = read_rules(tmp_path)
    assert rules.ids == ["two.yml"]
    assert [problem.line for problem in rules.refused] == [12]


def test_parse_sigma_shows_the_place() -> None:
    with pytest.raises(siftline.SubscriptionError) as caught:
        parse_sigma(f"{DETECTION}    x: 1\n    y|frobs: z\n  condition: a\n")
    assert str(caught.value).splitlines() == [
        "line 6, column 5: Unknown modifier 'frobs'",
        "      y|frobs: z",
        "      ^",
    ]
    with pytest.raises(siftline.SubscriptionError, match="expected one rule, found 2 documents"):
        parse_sigma(f"{GOOD}---\n{GOOD}")
    with pytest.raises(siftline.SubscriptionError, match="Unknown modifier"):
        parse_sigma({"title": "t", "logsource": {"product": "x"}, "detection": {"a": {"b|c": 1}, "condition": "a"}})


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    """RE2 writes what it refuses to standard error, unless told not to."""
    with pytest.raises(siftline.SubscriptionError):
        parse_sigma(f"{DETECTION}    x|re: (a\n  condition: a\n")
    assert capfd.readouterr().err == ""
