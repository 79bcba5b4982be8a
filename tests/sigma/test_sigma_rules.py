from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import siftline
from siftline.errors import FileError, UnknownPipelineError
from siftline.sigma import parse_sigma, read_rules
from siftline.sigma.conditions import rule_piece
from siftline.sigma.pieces import text_of
from siftline.sigma.pipelines import resolved
from siftline.sigma.rules import Translator

if TYPE_CHECKING:
    from pathlib import Path

ID = "5013198e-7d8b-4d9c-8e5b-5b5ebd8d2f3a"


def rule(detection: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {"title": "t", "logsource": {"product": "test"}, "detection": detection, **others}


def text(detection: dict[str, Any], pipelines: Any = (), **others: Any) -> str:
    translator = Translator(resolved(pipelines))
    made = translator.rule(rule(detection, **others))
    return text_of(translator.piece(made))


def fires(detection: dict[str, Any], event: dict[str, Any], **others: Any) -> bool:
    engine = siftline.Engine()
    engine.add(parse_sigma(rule(detection), **others), id=1)
    return engine.match(event) == [1]


TWO = {"s_one": {"a": 1}, "s_two": {"b|contains": ["x", "y"]}, "f": {"c": None}}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("s_one", "a in (1, '1')"),
        ("not s_one", "(a in (1, '1')) is not true"),
        ("1 of s_*", "a in (1, '1') or b contains 'x' ignoring case or b contains 'y' ignoring case"),
        ("all of s_*", "a in (1, '1') and (b contains 'x' ignoring case or b contains 'y' ignoring case)"),
        ("s_one and not f", "a in (1, '1') and (c is null) is not true"),
        ("not (s_one or f)", "(a in (1, '1') or c is null) is not true"),
        ("1 of them", "a in (1, '1') or b contains 'x' ignoring case or b contains 'y' ignoring case or c is null"),
        (["s_one", "f"], "a in (1, '1') or c is null"),
    ],
)
def test_a_condition(condition: Any, expected: str) -> None:
    assert text({**TWO, "condition": condition}) == expected


def test_all_of_them() -> None:
    assert text({"p": {"a": 1, "b": 2}, "q": {"c": 3}, "condition": "all of them"}) == (
        "a in (1, '1') and b in (2, '2') and c in (3, '3')"
    )


def test_all_asks_for_each_value() -> None:
    detection = {"s": {"a|contains|all": ["x", "y"]}, "condition": "s"}
    assert text(detection) == "a contains 'x' ignoring case and a contains 'y' ignoring case"


def test_keywords_in_a_list_are_alternatives() -> None:
    assert text({"k": ["x", "y"], "condition": "k"}) == (
        "any string contains 'x' ignoring case or any string contains 'y' ignoring case"
    )
    assert text({"k": {"|all": ["x", "y"]}, "condition": "k"}) == (
        "any string contains 'x' ignoring case and any string contains 'y' ignoring case"
    )


def test_neq_includes_events_without_the_field() -> None:
    assert text({"s": {"a|neq": 5}, "condition": "s"}) == "(a in (5, '5')) is not true"
    assert fires({"s": {"a|neq": 5}, "condition": "s"}, {})


@pytest.mark.parametrize(
    ("event", "expected"),
    [({"a": 1}, True), ({"a": "1"}, True), ({"a": 1, "b": "evil"}, False), ({"a": 1, "b": None}, True), ({}, False)],
)
def test_not_has_two_values(event: dict[str, Any], expected: bool) -> None:
    """A field that is missing makes the filter false, and `not` of it true."""
    detection = {"s": {"a": 1}, "f": {"b": "EVIL"}, "condition": "s and not f"}
    assert fires(detection, event) is expected


def test_pipelines_turn_the_log_source_into_conditions() -> None:
    source = {"category": "process_creation", "product": "windows"}
    detection = {"s": {"Image|endswith": "\\cmd.exe"}, "condition": "s"}
    assert text(detection, ("sysmon", "windows-logsources"), logsource=source) == (
        "Channel = 'Microsoft-Windows-Sysmon/Operational' ignoring case and EventID in (1, '1')"
        " and Image ends with '\\cmd.exe' ignoring case"
    )
    assert text(detection, (), logsource=source) == "Image ends with '\\cmd.exe' ignoring case"


def test_a_pipeline_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    transformation = "{id: m, type: field_name_mapping, mapping: {Image: process.path}}"
    path.write_text(f"name: mine\npriority: 5\ntransformations:\n- {transformation}\n")
    assert text({"s": {"Image": "x"}, "condition": "s"}, (str(path),)) == "process.path = 'x' ignoring case"


def test_a_pipeline_that_is_not_there() -> None:
    with pytest.raises(UnknownPipelineError, match=r"'sysmonn' is neither.*there are .*sysmon"):
        parse_sigma(rule({"s": {"a": 1}, "condition": "s"}), ["sysmonn"])


def test_placeholders_get_values() -> None:
    detection = {"s": {"user|expand": "%admins%"}, "condition": "s"}
    assert fires(detection, {"user": "ANN"}, pipelines=(), placeholders={"admins": ["ann", "bob"]})
    assert not fires(detection, {"user": "carl"}, pipelines=(), placeholders={"admins": ["ann", "bob"]})


def test_text_and_mapping_are_the_same_rule() -> None:
    yaml = "title: t\nlogsource: {product: test}\ndetection:\n  s: {a: 5}\n  condition: s\n"
    assert parse_sigma(yaml) == parse_sigma(rule({"s": {"a": 5}, "condition": "s"})) == siftline.parse("a in (5, '5')")


def test_a_rule_longer_than_the_language_reads_at_once() -> None:
    values = [f"SHA256={i:064x}" for i in range(3000)]
    expression = parse_sigma(rule({"s": {"Hashes|contains": values}, "condition": "not s"}), ())
    engine = siftline.Engine()
    engine.add(expression, id=1)
    assert engine.match({"Hashes": f"MD5=1,{values[2999].lower()}"}) == []
    assert engine.match({"Hashes": "SHA256=z"}) == [1]


# folders


def write(folder: Path, name: str, detection: str, id: str | None = ID, **others: str) -> None:
    lines = ["title: " + name, *([f"id: {id}"] if id else []), "logsource: {product: test}"]
    lines += [f"{key}: {value}" for key, value in others.items()]
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*lines, "detection:", f"  s: {detection}", "  condition: s", ""]), encoding="utf-8")


def test_a_folder_of_rules(tmp_path: Path) -> None:
    write(tmp_path, "b/two.yaml", "{b: 2}", id=None)
    write(tmp_path, "a/one.yml", "{a: 1}", level="high")
    (tmp_path / "README.md").write_text("no rule")
    rules = read_rules(tmp_path, ())
    assert rules.ids == [ID, "b/two.yaml"]
    assert rules.expressions == [siftline.parse("a in (1, '1')"), siftline.parse("b in (2, '2')")]
    assert (rules.titles, rules.levels, rules.weights) == (["a/one.yml", "b/two.yaml"], ["high", ""], [4.0, 1.0])
    assert rules.refused == []
    assert set(rules.seconds) == {"yaml", "rules", "pipelines", "conversion", "parsing"}
    assert read_rules(tmp_path / "a" / "one.yml", ()).ids == [ID]


def test_an_id_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "one.yml", "{a: 1}")
    write(tmp_path, "two.yml", "{a: 2}")
    rules = read_rules(tmp_path)
    assert rules.ids == [ID]
    (problem,) = rules.refused
    assert problem.file.endswith("two.yml")
    assert problem.id == ID
    assert problem.reason == f"duplicate id {ID}: {tmp_path / 'one.yml'}:1 has it already"


def test_several_rules_in_a_file(tmp_path: Path) -> None:
    write(tmp_path, "one.yml", "{a: 1}", id=None)
    one = (tmp_path / "one.yml").read_text()
    (tmp_path / "one.yml").write_text(f"{one}---\n{one}")
    rules = read_rules(tmp_path)
    assert (rules.ids, rules.lines) == (["one.yml", "one.yml#2"], [1, 7])


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such folder"):
        read_rules(tmp_path / "none")


def test_conditions_keep_their_structure() -> None:
    """No normal form: what is written once stays once."""
    detection = {f"s{i}": {"a": f"x{i}", "b": f"y{i}"} for i in range(6)}
    made = Translator(resolved(())).rule(rule({**detection, "condition": "1 of s0* and 1 of s* and not all of s*"}))
    assert text_of(rule_piece(made)).count("a = 'x0' ignoring case") == 3
