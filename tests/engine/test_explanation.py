from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siftline.engine import Engine
from siftline.engine.explanation import Condition, explain
from siftline.errors import EventError
from siftline.language.text import parse
from siftline.model import Event, evaluate, matches


def lines(text: str, event: dict[str, Any]) -> list[str]:
    return str(explain(parse(text), event, 1)).split("\n")


@pytest.mark.parametrize(
    ("text", "event", "expected"),
    [
        ("price <= 580", {"price": 600}, "no   price <= 580    price is 600"),
        ("price <= 580", {"price": 5.5}, "yes  price <= 580    price is 5.5"),
        ("price <= 580", {}, "unknown  price <= 580    price is absent"),
        ("price <= 580", {"price": None}, "unknown  price <= 580    price is null"),
        ("price <= 580", {"price": float("nan")}, "unknown  price <= 580    price is null"),
        ("price <= 580", {"price": []}, "unknown  price <= 580    price is an empty array"),
        ("price <= 580", {"price": {"net": 1}}, "unknown  price <= 580    price is an object"),
        ("price <= 580", {"price": [{"net": 1}]}, "unknown  price <= 580    price is an array of objects"),
        ("price <= 580", {"Price": 1}, "unknown  price <= 580    price is absent (there is Price)"),
        (
            "price <= 580",
            {"price": "x"},
            "unknown  price <= 580    price is 'x', a string: not comparable with a number",
        ),
        (
            "price in (1, 'a')",
            {"price": [True, False]},
            "unknown  price in (1, 'a')    price is true, false, booleans: not comparable with a number or a string",
        ),
        ("tags = 'b'", {"tags": ["a", "b"]}, "yes  tags = 'b'    tags is 'a', 'b' (any may satisfy)"),
        ("tags = 'b'", {"tags": ["a", None]}, "no   tags = 'b'    tags is 'a', null"),
        ("ip cidr '10.0.0.0/8'", {"ip": "here"}, "unknown  ip cidr '10.0.0.0/8'    ip is 'here': not an IP address"),
        ("a = 'X' ignoring case", {"a": "x"}, "yes  a = 'X' ignoring case    a is 'x'"),
        ("a > b + 1", {"a": [1, 5], "b": 4}, "no   a > b + 1    a is 1, 5; b is 4"),
        ("a > b", {"a": 1, "b": "x"}, "unknown  a > b    a is 1; b is 'x': not comparable"),
        ("a = b", {"a": None, "b": []}, "unknown  a = b    a is null; b is an empty array"),
        (
            "color = red",
            {"color": "red"},
            "unknown  color = red    color is 'red'; red is absent: a string is written 'red'",
        ),
        ("any string contains 'x'", {"a": 1, "b": ["ax", "x"]}, "yes  any string contains 'x'    one is 'ax'"),
        ("any string = 'x'", {"a": "y", "b": ["z"]}, "no   any string = 'x'    none of 2 strings"),
        ("any string = 'x'", {"a": 1}, "unknown  any string = 'x'    there is no string"),
        ("any string in ()", {"a": "x"}, "unknown  any string in ()    not comparable: 'x'"),
        ("length(a) > 2", {"a": ["abc", "d", 5]}, "yes  length(a) > 2    the length of a is 3, 1"),
        ("length(a) > 2", {"a": 5}, "unknown  length(a) > 2    a is 5: not a string"),
        ("length(a) > 2", {"a": None}, "unknown  length(a) > 2    a is null"),
        ("a is null", {}, "yes  a is null    a is absent"),
        ("a is not null", {"a": [1, 2]}, "yes  a is not null    a is 1, 2"),
        ("\"a b\" = 'it''s'", {"a b": "it's"}, "yes  \"a b\" = 'it''s'    \"a b\" is 'it''s'"),
        ("a = 'x'", {"a": "x\n\x1b[2J"}, "no   a = 'x'    a is 'x\\n\\x1b[2J'"),
        ("a in ()", {"a": 1}, "unknown  a in ()    a is 1, a number: not comparable with an empty list"),
    ],
)
def test_says_what_the_event_has(text: str, event: dict[str, Any], expected: str) -> None:
    try:
        parse(text)
    except ValueError:
        pytest.skip("the language has no such list")
    assert lines(text, event)[1].strip() == expected


def test_shows_each_element_of_any() -> None:
    event = {"items": [{"sku": "x", "qty": 1}, {"sku": "y", "qty": 3}]}
    assert lines("any items (sku = 'x' and qty > 2)", event) == [
        "no match: 1",
        "  no   any items (...)",
        "  no     element 1 of 2",
        "  no       and",
        "  yes        sku = 'x'    sku is 'x'",
        "  no         qty > 2      qty is 1",
        "  no     element 2 of 2",
        "  no       and",
        "  no         sku = 'x'    sku is 'y'",
        "  yes        qty > 2      qty is 3",
    ]


def test_any_without_elements() -> None:
    assert lines("any items (this > 2)", {})[1] == "  unknown  any items (this > 2)    items is absent"
    assert lines("any items (this > 2)", {"items": [3]})[3] == "  yes      this > 2    the element is 3"


def test_shows_few_elements_of_a_long_array_and_the_one_that_decides() -> None:
    shown = lines("any items (this = 777)", {"items": list(range(1000))})
    assert len(shown) < 20
    assert any("the element is 777" in line for line in shown)
    assert "... and 995 more: 995 no" in shown[-1]


def test_two_valued_nodes() -> None:
    shown = lines("(a = 1) is true or (b = 1) is not true", {})
    assert [line.split()[0] for line in shown[1:]] == ["yes", "no", "unknown", "yes", "unknown"]
    assert shown[4].strip() == "yes        is not true"


def test_constants_of_truth() -> None:
    assert lines("true", {}) == ["match: 1", "  yes  true"]
    assert lines("false", {}) == ["no match: 1", "  no   false"]


def test_a_thousand_predicates_stay_readable() -> None:
    text = " or ".join(f"a{i} = 1 and b = {i}" for i in range(1000))
    shown = lines(text, {"b": 700, "a700": 1})
    assert len(shown) <= 210
    assert any("b = 700" in line and line.split()[0] == "yes" for line in shown)
    assert "... and 980 more" in shown[-1]


def test_of_a_false_conjunction_the_failing_conditions_are_shown() -> None:
    text = " and ".join(f"a = {i if i in (500, 900) else 1}" for i in range(1000))
    shown = lines(text, {"a": 1})
    assert sum("a = 500" in line or "a = 900" in line for line in shown) == 2
    assert "980 yes" in shown[-1]


def test_deep_and_long_things_are_bounded() -> None:
    text = "not (" * 40 + "name = '" + "x" * 100_000 + "'" + ")" * 40
    shown = lines(text, {"name": ["y" * 100_000] * 1000})
    assert max(map(len, shown)) < 700
    document = json.dumps(explain(parse(text), {"name": ["y" * 100_000] * 10}).to_dict())
    assert len(document) < 200_000


def test_huge_integers_can_be_shown() -> None:
    explanation = explain(parse("a = 1"), {"a": 10**4000})
    assert "an integer of" in str(explanation)
    json.dumps(explanation.to_dict())


def test_to_dict_is_a_tree() -> None:
    document = explain(parse("a = 1 and not (b = 'x')"), {"a": 1, "b": None}, "ann").to_dict()
    assert json.loads(json.dumps(document)) == document
    assert document == {
        "subscription": "ann",
        "matched": False,
        "condition": {
            "text": "and",
            "truth": "unknown",
            "children": [
                {"text": "a = 1", "truth": "true", "values": [1], "n_values": 1, "reason": "a is 1"},
                {
                    "text": "not",
                    "truth": "unknown",
                    "children": [
                        {"text": "b = 'x'", "truth": "unknown", "values": [None], "n_values": 1, "reason": "b is null"}
                    ],
                },
            ],
        },
    }


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(EventError, match="an array"):
        explain(parse("a = 1"), [1])  # type: ignore[arg-type]


def test_engine_explains() -> None:
    engine = Engine(index="scan")
    engine.add("a = 1", id="x")
    explanation = engine.explain({"a": 1}, "x")
    assert explanation.matched
    assert explanation.id == "x"
    assert repr(explanation) == "<Explanation of 'x': match>"


_PARTS = [
    "a = 1", "a > 1", "b = 'x'", "b in (1, 'x')", "a is null", "b is not null", "not (a = 1)", "(b = 'x') is not true",
    "any c (d = 1)", "any c (this = 1)", "true",
]  # fmt: skip
_VALUES = st.sampled_from([None, 0, 1, 2.5, "x", True, [], [1, "x"], [None], {"d": 1}, [{"d": 2}, 1]])


@given(
    st.lists(st.sampled_from(_PARTS), min_size=1, max_size=5),
    st.sampled_from([" and ", " or "]),
    st.dictionaries(st.sampled_from("abc"), _VALUES),
)
def test_agrees_with_matching(parts: list[str], connective: str, tree: dict[str, Any]) -> None:
    expression = parse(connective.join(parts))
    explanation = explain(expression, tree, 1)
    assert explanation.matched == matches(expression, Event(tree))
    assert explanation.condition.truth is evaluate(expression, Event(tree))
    if len(parts) > 1:
        assert _truths(explanation.condition) == [evaluate(parse(part), Event(tree)) for part in parts]
    assert str(explanation).startswith("match: 1" if explanation.matched else "no match: 1")


def _truths(condition: Condition) -> list[bool | None]:
    return [child.truth for child in condition.children]
