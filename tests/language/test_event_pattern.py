"""Event patterns: every matcher, what is refused, arrays, and a reference evaluator on random patterns and events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from siftline.errors import SubscriptionError
from siftline.language.event_pattern import parse_pattern
from siftline.language.printer import to_text
from siftline.language.text import parse
from siftline.model import AnyElement, Event, IsTrue, Not, Or, Predicate, matches

Json = Any


def accepts(pattern: Json, event: Json) -> bool:
    return matches(parse_pattern(pattern), Event(event))


def refused(pattern: Json) -> SubscriptionError:
    with pytest.raises(SubscriptionError) as caught:
        parse_pattern(pattern)
    return caught.value


# --- one matcher, one value ------------------------------------------------------------------------------------------

ABSENT = object()

MATCHERS: list[tuple[Json, list[Json], list[Json]]] = [
    # matcher, values that meet it, values that do not
    ("on", ["on", ["off", "on"], [["on"]]], ["On", "", None, 1, True, [], {}, {"on": "on"}, ABSENT]),
    ("", [""], [None, [], ABSENT, " "]),
    (300, [300, 300.0, 3e2, [1, 300]], ["300", 301, True, None]),
    (0, [0, -0.0, 0.0], [False, "0", "", None]),
    (123456789012, [123456789012], [123456789013, "123456789012"]),
    (9007199254740993, [9007199254740993], [9007199254740992, 9007199254740992.0]),
    (0.1, [0.1], [0.10000001]),
    (True, [True, [False, True]], [False, 1, "true", None]),
    (False, [False], [0, None, "", ABSENT]),
    (None, [None, [1, None], [[None]]], ["null", 0, "", [], {}, {"a": None}, ABSENT]),
    ("::1", ["::1", "0:0:0:0:0:0:0:1"], ["::2", "1"]),
    ("12:30", ["12:30"], ["0012:30"]),
    ({"exactly": "on"}, ["on"], ["ON", None]),
    ({"prefix": "ab"}, ["ab", "abc", ["x", "ab"]], ["Ab", "a", "cab", None, 1, ["a", "b"], ABSENT]),
    ({"prefix": ""}, ["", "x"], [None, 1, True, [], {}, ABSENT]),
    ({"prefix": {"equals-ignore-case": "aB%"}}, ["ab%", "AB%c"], ["ab", "xab%", 1, None]),
    ({"suffix": "ab"}, ["ab", "cab"], ["aB", "abc", None, 1, ABSENT]),
    ({"suffix": ""}, ["", "x"], [None, 1, []]),
    ({"suffix": {"equals-ignore-case": ".Png"}}, [".PNG", "a.png"], ["png", "a.png.", 1]),
    ({"equals-ignore-case": "a_B"}, ["a_b", "A_B", ["x", "A_b"]], ["axb", "a_bc", None, 1, ABSENT]),
    ({"equals-ignore-case": ""}, [""], [" ", None, ABSENT]),
    ({"equals-ignore-case": "ÄÉ"}, ["äé", "Äé"], ["ae"]),
    ({"anything-but": "x"}, ["y", None, 1, True, ["x", "y"], ["x", None]], ["x", ["x", "x"], [], {}, {"a": 1}, ABSENT]),
    ({"anything-but": ["x", "y"]}, ["z", "X", None, 0], ["x", "y", ["x", "y"], ABSENT]),
    ({"anything-but": 0}, [1, "0", False, None], [0, -0.0, 0.0, ABSENT]),
    ({"anything-but": [100, 200.5]}, [101, "100", None], [100.0, 200.5, [100, 200.5]]),
    ({"anything-but": {"prefix": "ab"}}, ["a", "cab", 1, None], ["ab", "abc", ABSENT, {}]),
    ({"anything-but": {"prefix": ["ab", "c"]}}, ["a", 12, None], ["abc", "cd", ABSENT]),
    ({"anything-but": {"suffix": "ab"}}, ["abc", 1], ["ab", "cab", ABSENT]),
    ({"anything-but": {"suffix": [".txt", ".jpg"]}}, ["a.png", None], ["a.txt", ".jpg", ABSENT]),
    ({"anything-but": {"equals-ignore-case": "on"}}, ["off", None, 1], ["ON", "on", ABSENT]),
    ({"anything-but": {"equals-ignore-case": ["on", "off"]}}, ["o"], ["Off", ["on", "OFF"], ABSENT]),
    ({"anything-but": {"equals-ignore-case": ""}}, ["x"], ["", ABSENT]),
    ({"anything-but": {"wildcard": "*/a/*"}}, ["/a", 1, None], ["/a/", "x/a/y", ABSENT]),
    ({"anything-but": {"wildcard": ["a*", "*b"]}}, ["c"], ["a", "b", "cb", ABSENT]),
    ({"anything-but": {"wildcard": ""}}, ["x"], [""]),
    ({"numeric": ["=", 301.8]}, [301.8, 3.018e2], [301, "301.8", None, ABSENT]),
    ({"numeric": [">", 0]}, [1, 0.000001, [0, 1], 10**30], [0, -1, "1", True, None, [], ABSENT]),
    ({"numeric": [">=", 0]}, [0, 1], [-0.1]),
    ({"numeric": ["<", 10]}, [9, -(10**30)], [10, "9"]),
    ({"numeric": ["<=", 10]}, [10, 10.0], [10.5]),
    ({"numeric": [">", 0, "<=", 5]}, [1, 5, [9, 3]], [0, 6, [0, 6], ["3"]]),
    ({"numeric": [">=", 0, "<=", 5]}, [0, 5, [9, 3]], [-1, [-1, 6]]),
    ({"numeric": [">", 0, "<", 1]}, [0.5], [0, 1, [0, 1]]),
    ({"numeric": [">=", -5e9, "<", 5e9]}, [-5e9, 0], [5e9]),
    ({"exists": True}, ["", None, 0, False, [None], [[1]]], [[], {}, [[]], {"a": 1}, [{"a": 1}], ABSENT]),
    ({"exists": False}, [[], {}, [[]], {"a": 1}, ABSENT], ["", None, 0, [None], [{"a": 1}, 1]]),
    ({"wildcard": "a*c"}, ["ac", "abc", "a\nc", "a*c"], ["ab", "xac", "acx", None, 1, ABSENT]),
    ({"wildcard": "*"}, ["", "x"], [1, None, [], ABSENT]),
    ({"wildcard": "*a*"}, ["a", "xay"], ["b"]),
    ({"wildcard": "a*"}, ["a", "ab"], ["ba"]),
    ({"wildcard": "*a"}, ["a", "ba"], ["ab"]),
    ({"wildcard": "abc"}, ["abc"], ["abcd"]),
    ({"wildcard": "a*b*a"}, ["aba", "axbxa", "abba"], ["ab", "aa"]),
    ({"wildcard": r"a\*b"}, ["a*b"], ["ab", "axb"]),
    ({"wildcard": r"\\*"}, ["\\", "\\x"], ["x", "*"]),
    ({"wildcard": "%_*?"}, ["%_?", "%_x?"], ["ab?", "%_"]),
    ({"wildcard": "*/%_/*x"}, ["/%_/x"], ["/ab/x"]),
    ({"cidr": "10.0.0.0/24"}, ["10.0.0.0", "10.0.0.255", ["x", "10.0.0.7"]], ["10.0.1.0", "x", 1, None, "::", ABSENT]),
    ({"cidr": "10.0.0.77/24"}, ["10.0.0.1"], ["10.0.1.77"]),
    ({"cidr": "010.0.0.0/8"}, ["10.1.2.3"], ["8.1.2.3"]),
    ({"cidr": "0.0.0.0/0"}, ["1.2.3.4"], ["::1", "x"]),
    ({"cidr": "2001:db8::/32"}, ["2001:DB8::1", "2001:0db8:0:0:0:0:0:1"], ["2001:db9::1", "1.2.3.4"]),
]


@pytest.mark.parametrize(("matcher", "good", "bad"), MATCHERS, ids=[json.dumps(row[0]) for row in MATCHERS])
@pytest.mark.parametrize("path", ["a", "a.b"])
def test_a_matcher_meets_exactly_its_values(matcher: Json, good: list[Json], bad: list[Json], path: str) -> None:
    expression = parse_pattern({path: [matcher]})
    for value in good + bad:
        event = {} if value is ABSENT else {path: value}
        assert matches(expression, Event(event)) is any(value is one for one in good), event


@pytest.mark.parametrize(("matcher", "good", "bad"), MATCHERS, ids=[json.dumps(row[0]) for row in MATCHERS])
def test_a_matcher_next_to_another_field(matcher: Json, good: list[Json], bad: list[Json]) -> None:
    expression = parse_pattern({"o": {"a": ["yes"], "b": [matcher]}})
    for value in good + bad:
        inner = {"a": "yes"} if value is ABSENT else {"a": "yes", "b": value}
        for event in ({"o": inner}, {"o": [{"a": "no"}, inner]}):
            assert matches(expression, Event(event)) is any(value is one for one in good), event


def test_the_values_of_a_field_are_alternatives() -> None:
    pattern = {"a": ["x", 1, None, {"prefix": "p"}, {"numeric": [">", 5, "<", 7]}]}
    good: list[Json] = ["x", 1, None, "pq", 6, ["z", 6]]
    bad: list[Json] = ["y", 2, 7, True, [], [5, 7]]
    assert all(accepts(pattern, {"a": value}) for value in good)
    assert not any(accepts(pattern, {"a": value}) for value in bad)


def test_exists_false_next_to_values() -> None:
    pattern = {"a": {"b": [{"anything-but": ["x"]}, {"exists": False}]}}
    assert accepts(pattern, {"a": {"b": "y"}})
    assert accepts(pattern, {"a": {}})
    assert accepts(pattern, {})
    assert accepts(pattern, {"a": 1})
    assert not accepts(pattern, {"a": {"b": "x"}})


# --- what is refused -------------------------------------------------------------------------------------------------

REFUSED_MATCHERS: list[Json] = [
    [],
    ["x"],
    {},
    {"prefix": 1},
    {"prefix": ["a"]},
    {"prefix": {"prefix": "a"}},
    {"prefix": {"equals-ignore-case": 1}},
    {"prefix": {"equals-ignore-case": "a", "x": "b"}},
    {"prefix": None},
    {"suffix": 1},
    {"suffix": [".png"]},
    {"suffix": {"wildcard": "a"}},
    {"equals-ignore-case": ["a"]},
    {"equals-ignore-case": {"prefix": "a"}},
    {"equals-ignore-case": 1},
    {"exactly": 1},
    {"wildcard": 1},
    {"wildcard": ["a*"]},
    {"wildcard": "a**b"},
    {"wildcard": "**"},
    {"wildcard": "a\\b"},
    {"wildcard": "a\\"},
    {"wildcard": "*:*:*:*:*:event-bus/*"},
    {"anything-but": None},
    {"anything-but": True},
    {"anything-but": []},
    {"anything-but": [None]},
    {"anything-but": ["x", None]},
    {"anything-but": ["x", 1]},
    {"anything-but": [1, "x"]},
    {"anything-but": [True]},
    {"anything-but": [["x"]]},
    {"anything-but": 5e9 + 1},
    {"anything-but": [0.0000001]},
    {"anything-but": {}},
    {"anything-but": {"prefix": ""}},
    {"anything-but": {"suffix": ["a", ""]}},
    {"anything-but": {"prefix": 1}},
    {"anything-but": {"prefix": []}},
    {"anything-but": {"prefix": [1, "a"]}},
    {"anything-but": {"prefix": {"equals-ignore-case": "a"}}},
    {"anything-but": {"suffix": [None, "a"]}},
    {"anything-but": {"equals-ignore-case": [1]}},
    {"anything-but": {"wildcard": 1}},
    {"anything-but": {"wildcard": ["a**"]}},
    {"anything-but": {"numeric": ["=", 1]}},
    {"anything-but": {"cidr": "10.0.0.0/8"}},
    {"anything-but": {"prefix": "a", "suffix": "b"}},
    {"numeric": 1},
    {"numeric": []},
    {"numeric": [">"]},
    {"numeric": [1, ">"]},
    {"numeric": [">", "1"]},
    {"numeric": [">", True]},
    {"numeric": [">", None]},
    {"numeric": ["!=", 1]},
    {"numeric": ["==", 1]},
    {"numeric": [">", 0, ">", 0]},
    {"numeric": ["<", 5, ">", 0]},
    {"numeric": ["=", 0, "<", 5]},
    {"numeric": [">", 0, "<"]},
    {"numeric": [">", 0, "<", 5, "<", 6]},
    {"numeric": [">", 5, "<", 5]},
    {"numeric": [">=", 5, "<=", 5]},
    {"numeric": [">", 6, "<", 5]},
    {"numeric": [">", 5_000_000_001]},
    {"numeric": ["<", -5_000_000_000.5]},
    {"numeric": ["=", 0.1234567]},
    {"NUMERIC": ["=", 5]},
    {"exists": "true"},
    {"exists": 1},
    {"exists": 0},
    {"exists": None},
    {"cidr": "bad-filter"},
    {"cidr": "10.0.0.0"},
    {"cidr": "10.0.0.0/"},
    {"cidr": "10.0.0.0/x"},
    {"cidr": "10.0.0.0/-1"},
    {"cidr": "10.0.0.0/32"},
    {"cidr": "10.0.0.0/8/8"},
    {"cidr": "10.0.0/8"},
    {"cidr": "256.0.0.0/8"},
    {"cidr": "xx.11.xx/8"},
    {"cidr": "2001:db8::/128"},
    {"cidr": "2001:xxxx::/64"},
    {"cidr": "1:2:3/64"},
    {"cidr": 10},
    {"unknown": "x"},
    {1: "x"},
    {"prefix": "a", "suffix": "b"},
    {"exists": True, "prefix": "a"},
    10**30,
    float("inf"),
    float("nan"),
    1j,
]


@pytest.mark.parametrize("matcher", REFUSED_MATCHERS, ids=str)
def test_a_bad_matcher_is_refused_with_its_place(matcher: Json) -> None:
    error = refused({"detail": {"state": ["fine", matcher]}})
    assert error.path in ("detail.state[1]", "detail.state"), error.path


REFUSED: list[Json] = [
    {},
    {"a": {}},
    {"a": []},
    {"a": 42},
    {"a": "x"},
    {"a": None},
    {"a": True},
    {"a": {"b": "x"}},
    {1: ["x"]},
    {"$or": []},
    {"$or": [{"a": [1]}]},
    {"$or": [{"a": [1]}, {}]},
    {"$or": [{"a": [1]}, 2]},
    {"$or": [{"a": [1]}, {"b": 2}]},
    {"$or": [{"a": [1]}, {"prefix": "b"}]},
    {"$or": "x"},
    [],
    [{"a": ["x"]}],
    "[]",
    '"x"',
    "1",
    "null",
    None,
    5,
]


@pytest.mark.parametrize("pattern", REFUSED, ids=str)
def test_a_bad_pattern_is_refused(pattern: Json) -> None:
    refused(pattern)


@pytest.mark.parametrize(
    ("text", "line", "column"), [("", 1, 1), ('{"a": [1], 5}', 1, 12), ('{\n"a" [1]}', 2, 5), ('{"a": [1]} x', 1, 12)]
)
def test_invalid_json_names_its_position(text: str, line: int, column: int) -> None:
    error = refused(text)
    assert (error.line, error.column) == (line, column)
    assert "invalid JSON" in error.reason


def test_errors_name_place_and_remedy() -> None:
    error = refused({"detail": {"size": [{"NUMERIC": ["=", 5]}]}})
    assert (error.path, error.hint) == ("detail.size[0]", "did you mean 'numeric'?")
    assert refused({"$or": [{"a": [1]}, {"b": {"c": 1}}]}).path == "$or[1].b.c"
    hint = refused({"a": "x"}).hint
    assert hint is not None
    assert "array" in hint


@pytest.mark.parametrize("text", ['{"a": [NaN]}', '{"a": [Infinity]}', '{"a": [1e999]}', '{"a": [%s]}' % ("9" * 5000)])
def test_numbers_that_json_or_the_model_does_not_have(text: str) -> None:
    refused(text)


def test_bytes_are_utf_8() -> None:
    assert parse_pattern('{"ä": ["ö"]}'.encode()) == Predicate("ä", "=", "ö")
    refused(b'{"a": ["\xff"]}')


def test_depth_and_size_are_limited_without_recursion_errors() -> None:
    deep: Json = [1]
    for _ in range(5000):
        deep = {"a": deep}
    refused(deep)
    refused('{"a":' * 5000 + "[1]" + "}" * 5000)
    refused('{"a":' + "[" * 5000 + "]" * 5000 + "}")
    choice: Json = {"a": [1]}
    for _ in range(5000):
        choice = {"$or": [choice, {"b": [1]}]}
    refused(choice)
    refused({"a." * 5000 + "x": [1], "a." * 5000 + "y": [1]})
    refused({"a": [f"{i:07}" for i in range(100_001)]})
    refused({"d": {f"f{i}": [{"exists": False}, i] for i in range(1000)}})
    assert accepts(json.dumps({"a": [f"{i:07}" for i in range(90_000)]}), {"a": "0089999"})  # about a megabyte
    deepest: Json = ["x"]
    for _ in range(90):
        deepest = {"a": deepest}
    assert accepts(deepest, {".".join("a" * 90): "x"})


def test_wildcards_may_be_so_complex_and_no_more() -> None:
    def wildcards(*patterns: str) -> Json:
        return {"a": [{"wildcard": pattern} for pattern in patterns]}

    for fine in (
        wildcards("*:*:*:*:*:event-bus"),
        wildcards("arn:aws:events:us-east-1:*:event-bus/*"),
        wildcards("/Users/*/dir/dir/dir/dir/dir/doc.txt"),
        wildcards("*/images/*.bif", "*/images/*.tif"),
        wildcards("*.bif", "*.tif", "*.tiff", "*.svs"),
        {"a": [{"wildcard": "*/images/*.bif"}], "b": [{"wildcard": "*/images/*.bif"}]},
    ):
        parse_pattern(fine)
    for complex_ in (
        wildcards("*:*:*:*:*:event-bus/*"),
        wildcards("*aaaaaaaaaaa"),
        wildcards("*/images/*.bif", "*/images/*.tif", "*/images/*.tiff", "*/images/*.svs"),
        {"a": [{"anything-but": {"wildcard": "*aaaaaaaaaaa"}}]},
        {"$or": [wildcards("*/images/*.bif", "*/images/*.tif"), wildcards("*/images/*.tiff", "*/images/*.svs")]},
    ):
        assert "complex" in refused(complex_).reason


# --- fields ----------------------------------------------------------------------------------------------------------


def test_all_fields_must_match() -> None:
    pattern = {"source": ["s"], "detail": {"a": ["x"], "b": {"c": [1, 2]}}}
    assert accepts(pattern, {"source": "s", "detail": {"a": "x", "b": {"c": 2}}, "more": 1})
    assert not accepts(pattern, {"source": "s", "detail": {"a": "x", "b": {"c": 3}}})
    assert not accepts(pattern, {"source": "s", "detail": {"a": "x"}})


def test_dotted_keys_are_nested_keys() -> None:
    for pattern in ({"a.b": ["x"]}, {"a": {"b": ["x"]}}):
        assert accepts(pattern, {"a.b": "x"})
        assert accepts(pattern, {"a": {"b": "x"}})
        assert accepts(pattern, {"a": [{"b": "x"}]})
        assert not accepts(pattern, {"a.b": {"b": "x"}})
        assert not accepts(pattern, {"b": "x"})


def test_keys_are_case_sensitive() -> None:
    assert not accepts({"A": ["x"]}, {"a": "x"})


def test_of_two_conditions_on_one_field_the_later_counts() -> None:
    assert parse_pattern('{"a": [1], "a": [2]}') == Predicate("a", "=", 2)
    assert parse_pattern({"a": {"b": [1]}, "a.b": [2]}) == Predicate("a.b", "=", 2)
    assert parse_pattern('{"a": {"x": [1]}, "a": {"y": [2]}}') == parse_pattern({"a": {"x": [1], "y": [2]}})
    first = {"a": ["1"], "$or": [{"a": ["2"]}, {"b": ["3"]}]}
    assert accepts(first, {"a": "2"})
    assert not accepts(first, {"a": "1"})
    assert accepts(first, {"a": "1", "b": "3"})
    last = {"$or": [{"a": ["2"]}, {"b": ["3"]}], "a": ["1"]}
    assert accepts(last, {"a": "1"})
    assert not accepts(last, {"a": "2"})


def test_a_repeated_matcher_is_refused() -> None:
    refused('{"a": [{"prefix": "x", "prefix": "y"}]}')


# --- $or -------------------------------------------------------------------------------------------------------------


def test_or_among_fields() -> None:
    pattern = {"s": ["x"], "$or": [{"a": [1]}, {"b": [2], "c": [3]}, {"$or": [{"d": [4]}, {"e": [5]}]}]}
    assert accepts(pattern, {"s": "x", "a": 1})
    assert accepts(pattern, {"s": "x", "b": 2, "c": 3})
    assert accepts(pattern, {"s": "x", "e": 5})
    assert not accepts(pattern, {"s": "x", "b": 2})
    assert not accepts(pattern, {"a": 1})


def test_or_inside_an_object_keeps_its_structure() -> None:
    pattern = {"d": {"s": ["x"], "$or": [{"a": [1]}, {"b": [2]}]}}
    assert parse_pattern(pattern) == AnyElement(
        "d", Predicate("s", "=", "x") & (Predicate("a", "=", 1) | Predicate("b", "=", 2))
    )
    alone = {"d": {"$or": [{"a": [1]}, {"b": [2]}]}}
    assert parse_pattern(alone) == Or((Predicate("d.a", "=", 1), Predicate("d.b", "=", 2)))


def test_or_is_a_field_where_it_cannot_be_an_operator() -> None:
    assert parse_pattern({"$or": {"a": ["x"]}}) == Predicate("$or.a", "=", "x")
    assert parse_pattern({"$or": ["x", "y"]}) == Predicate("$or", "in", ("x", "y"))
    both = Or((Predicate("$or", "starts with", "x"), Predicate("$or", "ends with", "y")))
    assert parse_pattern({"$or": [{"prefix": "x"}, {"suffix": "y"}]}) == both


def test_or_stands_for_at_most_a_thousand_combinations() -> None:
    def choices(n: int, k: int) -> Json:
        return {f"f{i}": {"$or": [{f"b{j}": [j]} for j in range(n)]} for i in range(k)}

    parse_pattern(choices(10, 3))
    assert "1,000" in refused(choices(10, 4)).reason


# --- arrays ----------------------------------------------------------------------------------------------------------

ITEMS = {"items": [{"sku": "x", "qty": 1, "tags": ["a"]}, {"sku": "y", "qty": 2}], "n": 1}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ({"items": {"sku": ["x"], "qty": [1]}}, True),
        ({"items": {"sku": ["x"], "qty": [2]}}, False),
        ({"items": {"sku": ["x"]}, "n": [1]}, True),
        ({"items": {"sku": ["y"], "tags": ["a"]}}, False),
        ({"items": {"sku": ["x"], "tags": ["a"]}}, True),
        ({"items.sku": ["x"], "items.qty": [2]}, False),
        ({"items": {"$or": [{"sku": ["y"]}, {"sku": ["z"]}], "qty": [1]}}, False),
        ({"items": {"$or": [{"sku": ["y"]}, {"sku": ["z"]}], "qty": [2]}}, True),
        # exists: false looks only at elements that the fields before it, in the order of names, have chosen ...
        ({"items": {"sku": ["y"], "tags": [{"exists": False}]}}, True),
        ({"items": {"sku": ["x"], "tags": [{"exists": False}]}}, False),
        ({"items": {"sku": ["y"], "tags": [{"exists": False}, "b"]}}, True),
        # ... and at the whole event where there are none.
        ({"items": {"tags": [{"exists": False}]}}, False),
        ({"items": {"zzz": ["?"], "tags": [{"exists": False}]}}, False),
        ({"items": {"price": [{"exists": False}], "sku": ["y"]}}, True),
        ({"n": [1], "items": {"tags": [{"exists": False}]}}, False),
    ],
)
def test_fields_below_an_array_are_met_by_one_element(pattern: Json, expected: bool) -> None:
    assert accepts(pattern, ITEMS) is expected


def test_every_level_of_arrays_counts() -> None:
    event = {"a": [{"p": 1, "b": [{"q": 1, "r": 1}, {"q": 2, "r": 2}]}, {"p": 2, "b": [{"q": 1, "r": 2}]}]}
    assert accepts({"a": {"b": {"q": [1], "r": [2]}}}, event)
    assert accepts({"a": {"p": [2], "b": {"q": [1], "r": [2]}}}, event)
    assert not accepts({"a": {"p": [1], "b": {"q": [1], "r": [2]}}}, event)
    assert not accepts({"a": {"p": [2], "b": {"q": [2]}}}, event)


def test_plain_predicates_where_they_are_the_same() -> None:
    pattern = {
        "source": ["s", "t"],
        "detail": {"a": {"b": [{"prefix": "x"}, 1]}},
        "n": [{"numeric": [">=", 1, "<=", 2]}],
    }
    assert parse_pattern(pattern) == (
        Predicate("source", "in", ("s", "t"))
        & Or((Predicate("detail.a.b", "starts with", "x"), Predicate("detail.a.b", "=", 1)))
        & Predicate("n", "between", (1, 2))
    )
    assert parse_pattern({"a": {"b": [{"exists": False}], "c": [1]}}) == (
        Not(Predicate("a.b", "exists")) & Predicate("a.c", "=", 1)
    )


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ({"a": ["x", 5, True]}, "a in ('x', 5, true)"),
        ({"a": [None]}, "any a (exists this and this is null)"),
        ({"a": [{"prefix": {"equals-ignore-case": "x_"}}]}, r"a ilike 'x\_%'"),
        ({"a": [{"wildcard": "x*y*z"}]}, "a like 'x%y%z'"),
        ({"a": [{"wildcard": "*x*"}]}, "a contains 'x'"),
        ({"a": [{"numeric": [">", 0, "<=", 5]}]}, "any a (this > 0 and this <= 5)"),
        ({"a": [{"anything-but": ["x", "y"]}]}, "any a (exists this and (this in ('x', 'y')) is not true)"),
        ({"a": {"b": ["x"], "c": [{"exists": False}]}}, "any a (b = 'x' and not exists c)"),
        ({"a": {"c": ["x"], "b": [{"exists": False}]}}, "not exists a.b and a.c = 'x'"),
    ],
)
def test_translations_in_the_text_language(pattern: Json, text: str) -> None:
    assert parse_pattern(pattern) == parse(text)
    assert to_text(parse_pattern(pattern)) == text


def test_anything_but_is_two_valued() -> None:
    test = Predicate(None, "exists") & Not(IsTrue(Predicate(None, "=", "x")))
    assert parse_pattern({"a": [{"anything-but": "x"}]}) == AnyElement("a", test)


def test_many_fields_that_may_be_absent_stay_small() -> None:
    fields = [f"f{i:02}" for i in range(40)]
    expression = parse_pattern({"d": {name: [{"exists": False}, "x"] for name in fields}})
    assert matches(expression, Event({"d": dict.fromkeys(fields, "x")}))
    assert matches(expression, Event({"d": {"f07": "x", "f31": "x"}}))
    assert not matches(expression, Event({"d": {"f07": "x", "f31": "y"}}))
    assert matches(expression, Event({}))


# --- against a reference: pick a value for each field, no two from different elements of one array -------------------


def reference(pattern: Json, event: Json) -> bool:
    fields: list[tuple[str, Json, dict[int, int]]] = []
    spread(event, "", {}, fields, [0])
    return any(search(sorted(rule.items()), {}, fields) for rule in multiplied(pattern, "", [{}]))


def spread(
    node: Json, path: str, place: dict[int, int], fields: list[tuple[str, Json, dict[int, int]]], n_arrays: list[int]
) -> None:
    """List the leaves with the array elements (array number → index) in which they lie."""
    if isinstance(node, dict):
        for key, value in node.items():
            spread(value, f"{path}.{key}" if path else key, place, fields, n_arrays)
    elif isinstance(node, list):
        n_arrays[0] += 1
        array = n_arrays[0]
        for i, element in enumerate(node):
            inner = {**place, array: i} if isinstance(element, (dict, list)) else place
            spread(element, path, inner, fields, n_arrays)
    else:
        fields.append((path, node, place))


def multiplied(pattern: Json, path: str, rules: list[dict[str, list[Json]]]) -> list[dict[str, list[Json]]]:
    for key, value in pattern.items():
        if key == "$or":
            rules = [rule for branch in value for rule in multiplied(branch, path, rules)]
        elif isinstance(value, dict):
            rules = multiplied(value, f"{path}{key}.", rules)
        else:
            rules = [{**rule, path + key: value} for rule in rules]
    return rules


def search(
    rule: list[tuple[str, list[Json]]], place: dict[int, int], fields: list[tuple[str, Json, dict[int, int]]]
) -> bool:
    if not rule:
        return True
    (name, matchers), rest = rule[0], rule[1:]
    seen = [field for field in fields if field[0] == name and all(place.get(a, i) == i for a, i in field[2].items())]
    if not seen and {"exists": False} in matchers and search(rest, place, fields):
        return True
    return any(
        search(rest, {**place, **where}, fields)
        for _, value, where in seen
        if any(meets(value, matcher) for matcher in matchers)
    )


def meets(value: Json, matcher: Json) -> bool:
    if not isinstance(matcher, dict):
        return type(value) is type(matcher) and bool(value == matcher)
    ((name, operand),) = matcher.items()
    if name == "exists":
        return bool(operand)
    if name == "anything-but":
        return not any(meets(value, one) for one in (operand if isinstance(operand, list) else [operand]))
    if name == "numeric":
        return type(value) is int and operand[1] < value <= operand[3]
    assert name == "prefix"
    return isinstance(value, str) and value.startswith(operand)


VALUES = st.sampled_from([0, 1, 2, "x", "xy", "", None, True])
MATCHES = st.one_of(
    st.sampled_from([0, 1, "x", "xy", None, True]),
    st.sampled_from([{"exists": True}, {"exists": False}, {"exists": False}, {"prefix": "x"}, {"prefix": ""}]),
    st.sampled_from([{"anything-but": "x"}, {"anything-but": [0, 1]}, {"numeric": [">", 0, "<=", 2]}]),
)
# "p" and "q" are fields, "a" and "b" objects on the way to them, names that sort before and after each other.
LEAVES = st.dictionaries(st.sampled_from(["p", "q", "Z"]), st.lists(MATCHES, min_size=1, max_size=3), max_size=3)


def objects(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    nested = st.dictionaries(st.sampled_from(["a", "b", "r"]), inner, max_size=2)
    choice = st.lists(inner, min_size=2, max_size=3).map(lambda branches: {"$or": branches})
    parts = st.tuples(LEAVES, nested, st.one_of(st.just({}), st.just({}), choice))
    merged = parts.flatmap(lambda drawn: st.permutations([item for part in drawn for item in part.items()])).map(dict)
    return merged.filter(bool)


PATTERNS = st.recursive(LEAVES.filter(bool), objects, max_leaves=6)
EVENTS = st.dictionaries(
    st.sampled_from(["a", "b", "p", "q", "r", "Z"]),
    st.recursive(
        VALUES,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.sampled_from(["a", "b", "p", "q", "r", "Z"]), inner, max_size=4),
        ),
        max_leaves=12,
    ),
    max_size=4,
)


@settings(max_examples=1000, deadline=None)
@given(PATTERNS, st.lists(EVENTS, min_size=1, max_size=4))
@example({"a": {"p": [{"exists": False}, 1], "q": [{"exists": False}]}}, [{"a": [{"p": 1}, {"q": 1}]}])
@example(
    {"a": {"q": [1], "$or": [{"r": {"p": [{"exists": False}]}}, {"Z": [1]}]}}, [{"a": [{"q": 1}, {"r": {"p": 1}}]}]
)
def test_agrees_with_the_reference(pattern: Json, events: list[Json]) -> None:
    expression = parse_pattern(pattern)
    assert parse_pattern(json.dumps(pattern)) == expression
    for event in events:
        assert matches(expression, Event(event)) is reference(pattern, event), event


# Elements that are all alike but for a few fields: most of the random events above match nothing.
ELEMENTS = st.fixed_dictionaries(
    {}, optional={"p": VALUES, "q": VALUES, "Z": VALUES, "r": st.fixed_dictionaries({}, optional={"p": VALUES})}
)
NESTED = st.fixed_dictionaries(
    {}, optional={"p": VALUES, "q": VALUES, "b": st.lists(ELEMENTS, max_size=3), "r": st.lists(ELEMENTS, max_size=2)}
)


@settings(max_examples=1000, deadline=None)
@given(PATTERNS, st.lists(st.lists(NESTED, min_size=1, max_size=3), min_size=1, max_size=4))
def test_agrees_with_the_reference_on_arrays_of_objects(pattern: Json, arrays: list[list[Json]]) -> None:
    expression = parse_pattern({"a": pattern})
    for array in arrays:
        event = {"a": array}
        assert matches(expression, Event(event)) is reference({"a": pattern}, event), event


FLAT = st.dictionaries(
    st.sampled_from(["a", "a.b", "a.c", "a.b.d", "a-b", "e.f"]), st.lists(MATCHES, min_size=1), min_size=1
)
FLAT_EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "a": st.lists(
            VALUES
            | st.fixed_dictionaries(
                {}, optional={"b": VALUES | st.lists(VALUES | st.fixed_dictionaries({"d": VALUES})), "c": VALUES}
            ),
            max_size=3,
        ),
        "a-b": VALUES,
        "e.f": VALUES,
    },
)


@settings(max_examples=500, deadline=None)
@given(FLAT, st.lists(FLAT_EVENTS, min_size=1, max_size=4))
def test_agrees_with_the_reference_on_paths_that_continue_each_other(pattern: Json, events: list[Json]) -> None:
    expression = parse_pattern(pattern)
    for event in events:
        assert matches(expression, Event(event)) is reference(pattern, event), event
