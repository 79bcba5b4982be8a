"""SNS filter policies: what differs from event patterns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from siftline.errors import SubscriptionError
from siftline.language.event_pattern import parse_pattern
from siftline.model import TRUE, AnyElement, Event, Predicate, matches

Json = Any


def accepts(policy: Json, message: Json) -> bool:
    return matches(parse_pattern(policy, dialect="sns"), Event(message))


def refused(policy: Json) -> SubscriptionError:
    with pytest.raises(SubscriptionError) as caught:
        parse_pattern(policy, dialect="sns")
    return caught.value


MESSAGE = {
    "store": "shop",
    "interests": ["rugby", "tennis"],
    "price": 301.5,
    "ip": "10.1.2.3",
    "note": None,
    "none": [],
    "buyer": {"city": "Utrecht", "orders": [{"id": 1, "state": "new"}, {"id": 2, "state": "paid"}]},
}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"store": ["shop", "web"]}, True),
        ({"store": ["Shop"]}, False),
        ({"interests": ["tennis"]}, True),
        ({"interests": ["football"]}, False),
        ({"interests": [{"anything-but": ["rugby", "tennis"]}]}, False),
        ({"interests": [{"anything-but": ["rugby"]}]}, True),
        ({"interests": [{"anything-but": {"prefix": "rug"}}]}, True),
        ({"store": [{"anything-but": {"prefix": "sh"}}]}, False),
        ({"missing": [{"anything-but": ["x"]}]}, False),
        ({"missing": [{"anything-but": ["x"]}, {"exists": False}]}, True),
        ({"store": [{"prefix": "sh"}]}, True),
        ({"store": [{"suffix": "op"}]}, True),
        ({"store": [{"equals-ignore-case": "SHOP"}]}, True),
        ({"price": [{"numeric": ["=", 3.015e2]}]}, True),
        ({"price": [{"numeric": [">", 0, "<=", 301]}]}, False),
        ({"price": [{"anything-but": [100, 500]}]}, True),
        ({"price": [301.5]}, True),
        ({"price": ["301.5"]}, False),
        ({"ip": [{"cidr": "10.0.0.0/8"}]}, True),
        ({"store": [{"exists": True}]}, True),
        ({"note": [{"exists": True}]}, False),
        ({"none": [{"exists": True}]}, False),
        ({"missing": [{"exists": False}]}, True),
        ({"store": [{"exists": False}]}, False),
        ({"buyer": {"city": ["Utrecht"]}}, True),
        ({"buyer": {"orders": {"id": [1], "state": ["paid"]}}}, False),
        ({"buyer": {"orders": {"id": [2], "state": ["paid"]}}}, True),
        ({"$or": [{"store": ["web"]}, {"price": [{"numeric": [">", 300]}]}]}, True),
        ({"$or": [{"store": ["web"]}, {"price": [{"numeric": [">", 400]}]}]}, False),
        ({}, True),
    ],
    ids=lambda value: json.dumps(value),
)
def test_policies(policy: Json, expected: bool) -> None:
    assert accepts(policy, MESSAGE) is expected


def test_an_empty_policy_accepts_everything() -> None:
    assert parse_pattern({}, dialect="sns") == TRUE
    assert parse_pattern("{}", dialect="sns") == TRUE


def test_exists_asks_for_a_value_that_is_not_null() -> None:
    assert parse_pattern({"a": [{"exists": True}]}, dialect="sns") == Predicate("a", "is not null")
    nested = parse_pattern({"o": {"a": [{"exists": True}], "b": [1]}}, dialect="sns")
    assert nested == AnyElement("o", Predicate("a", "is not null") & Predicate("b", "=", 1))


@pytest.mark.parametrize(
    "matcher",
    [
        {"wildcard": "a*"},
        {"exactly": "a"},
        {"prefix": {"equals-ignore-case": "a"}},
        {"suffix": {"equals-ignore-case": "a"}},
        {"anything-but": {"suffix": "a"}},
        {"anything-but": {"equals-ignore-case": "a"}},
        {"anything-but": {"wildcard": "a*"}},
        {"anything-but": {"prefix": ["a", "b"]}},
        {"anything-but": {"prefix": ""}},
        {"anything-but": [1, "a"]},
        {"anything-but": 1_000_000_001},
        {"numeric": [">", 1_000_000_001]},
        {"numeric": ["<", -1e9 - 1]},
        {"numeric": ["=", 0.000001]},
        {"numeric": [">", 5, "<", 5]},
        {"exists": "true"},
        {"cidr": "10.0.0.0"},
        {"Prefix": "a"},
    ],
    ids=str,
)
def test_what_sns_does_not_have_is_refused(matcher: Json) -> None:
    assert refused({"key": [matcher]}).path == "key[0]"


@pytest.mark.parametrize("policy", [{"a": "x"}, {"a": []}, {"a": {}}, [], "x", '{"a": [1]', None], ids=str)
def test_bad_policies_are_refused(policy: Json) -> None:
    refused(policy)


def test_five_keys_at_most() -> None:
    parse_pattern({key: ["x"] for key in "abcde"}, dialect="sns")
    parse_pattern({"a": {key: ["x"] for key in "abcdef"}}, dialect="sns")
    assert "6 keys" in refused({key: ["x"] for key in "abcdef"}).reason


def test_150_combinations_at_most() -> None:
    parse_pattern({"a": list(range(150))}, dialect="sns")
    refused({"a": list(range(151))})
    three_levels = {"a": {"b": {"c": [1, 2, 3, 4]}}, "d": {"e": [1, 2, 3]}}  # 3 * 4 * 2 * 3 = 72
    parse_pattern(three_levels | {"f": [1, 2]}, dialect="sns")
    refused(three_levels | {"f": [1, 2, 3]})
    parse_pattern({"$or": [{"a": list(range(75))}, {"b": list(range(75))}]}, dialect="sns")
    refused({"$or": [{"a": list(range(75))}, {"b": list(range(76))}]})


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(SubscriptionError, match="unknown dialect"):
        parse_pattern({"a": [1]}, dialect="kafka")  # type: ignore[arg-type]
