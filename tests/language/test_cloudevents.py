"""CloudEvents filters: each dialect, two-valued `not`, the text of integers and booleans, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siftline.errors import SubscriptionError
from siftline.language.cloudevents import parse_filters
from siftline.model import TRUE, Event, IsTrue, Not, Predicate, matches

Json = Any

EVENT = {
    "specversion": "1.0",
    "id": "7",
    "type": "com.github.push",
    "source": "https://github.com/cloudevents/spec",
    "subject": "main",
    "priority": 5,
    "balance": -12,
    "urgent": True,
    "data": {"type": "com.example"},
}


def accepts(filters: Json, event: Json) -> bool:
    return matches(parse_filters(filters), Event(event))


def refused(filters: Json) -> SubscriptionError:
    with pytest.raises(SubscriptionError) as caught:
        parse_filters(filters)
    return caught.value


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        ({"exact": {"type": "com.github.push"}}, True),
        ({"exact": {"type": "com.github.push", "subject": "main"}}, True),
        ({"exact": {"type": "com.github.push", "subject": "dev"}}, False),
        ({"exact": {"type": "com.github"}}, False),
        ({"exact": {"type": "COM.GITHUB.PUSH"}}, False),
        ({"exact": {"missing": "x"}}, False),
        ({"exact": {"id": "7"}}, True),
        ({"exact": {"priority": "5"}}, True),
        ({"exact": {"priority": "05"}}, False),
        ({"exact": {"priority": "5.0"}}, False),
        ({"exact": {"balance": "-12"}}, True),
        ({"exact": {"urgent": "true"}}, True),
        ({"exact": {"urgent": "True"}}, False),
        ({"exact": {"urgent": "1"}}, False),
        ({"exact": {"urgent": "false"}}, False),
        ({"prefix": {"type": "com.github."}}, True),
        ({"prefix": {"type": "com.github.", "source": "http"}}, True),
        ({"prefix": {"type": "github"}}, False),
        ({"prefix": {"missing": "x"}}, False),
        ({"prefix": {"priority": "5"}}, False),
        ({"suffix": {"type": ".push"}}, True),
        ({"suffix": {"type": ".pull"}}, False),
        ({"suffix": {"missing": "x"}}, False),
        ({"all": [{"exact": {"subject": "main"}}, {"prefix": {"type": "com."}}]}, True),
        ({"all": [{"exact": {"subject": "main"}}, {"prefix": {"type": "org."}}]}, False),
        ({"any": [{"exact": {"subject": "dev"}}, {"prefix": {"type": "com."}}]}, True),
        ({"any": [{"exact": {"subject": "dev"}}, {"prefix": {"type": "org."}}]}, False),
        ({"not": {"exact": {"type": "com.github.push"}}}, False),
        ({"not": {"exact": {"type": "other"}}}, True),
        ({"not": {"exact": {"missing": "x"}}}, True),
        ({"not": {"prefix": {"priority": "5"}}}, True),
        ({"not": {"not": {"exact": {"missing": "x"}}}}, False),
        ({"not": {"any": [{"exact": {"missing": "x"}}, {"exact": {"subject": "dev"}}]}}, True),
        ({"not": {"all": [{"exact": {"missing": "x"}}, {"exact": {"subject": "main"}}]}}, True),
        ({"exact": {"comexampleextension1": "value"}}, False),
    ],
    ids=lambda value: json.dumps(value),
)
def test_filters(one: Json, expected: bool) -> None:
    assert accepts([one], EVENT) is expected
    assert accepts(one, EVENT) is expected
    assert accepts(json.dumps([one]), EVENT) is expected
    assert accepts([{"exact": {"id": "7"}}, one], EVENT) is expected


def test_all_filters_must_hold_and_none_is_true() -> None:
    assert parse_filters([]) == TRUE
    assert parse_filters(b"[]") == TRUE
    filters: Json = [{"prefix": {"type": "com."}}, {"not": {"exact": {"source": "x"}}}]
    assert parse_filters(filters) == Predicate("type", "starts with", "com.") & Not(
        IsTrue(Predicate("source", "=", "x"))
    )


def test_only_canonical_texts_are_numbers_or_booleans() -> None:
    def constants(text: str) -> Json:
        expression = parse_filters({"exact": {"a": text}})
        assert isinstance(expression, Predicate)
        return expression.operand

    assert constants("0") == ("0", 0)
    assert constants("-7") == ("-7", -7)
    assert constants("false") == ("false", False)
    for text in ("-0", "007", "+5", "5.0", "1e3", " 5", "\u0665", "TRUE", "9" * 30):
        assert constants(text) == text


@pytest.mark.parametrize(
    ("filters", "path"),
    [
        ("x", None),
        (5, None),
        (None, None),
        ("[", None),
        ([1], "[0]"),
        ([[]], "[0]"),
        ([{}], "[0]"),
        ([{"exact": {"a": "b"}, "prefix": {"a": "b"}}], "[0]"),
        ([{"exact": {}}], "[0].exact"),
        ([{"exact": []}], "[0].exact"),
        ([{"exact": "x"}], "[0].exact"),
        ([{"exact": {"a": ""}}], "[0].exact.a"),
        ([{"exact": {"a": 5}}], "[0].exact.a"),
        ([{"exact": {"a": None}}], "[0].exact.a"),
        ([{"exact": {"": "x"}}], "[0].exact"),
        ([{"exact": {"Type": "x"}}], "[0].exact"),
        ([{"exact": {"my_ext": "x"}}], "[0].exact"),
        ([{"exact": {"a.b": "x"}}], "[0].exact"),
        ([{"exact": {"data": "x"}}], "[0].exact"),
        ([{"prefix": {"a": ["x"]}}], "[0].prefix.a"),
        ([{"suffix": {"a": True}}], "[0].suffix.a"),
        ([{"all": []}], "[0].all"),
        ([{"all": {"exact": {"a": "b"}}}], "[0].all"),
        ([{"any": []}], "[0].any"),
        ([{"any": [{"exact": {"a": "b"}}, 5]}], "[0].any[1]"),
        ([{"not": []}], "[0].not"),
        ([{"not": [{"exact": {"a": "b"}}]}], "[0].not"),
        ([{"sql": "type = 'x'"}], "[0]"),
        ([{"regex": {"a": "b"}}], "[0]"),
        ([{"Exact": {"a": "b"}}], "[0]"),
        ('[{"exact": {"a": "b", "a": "c"}}]', "[0].exact"),
        ({"exakt": {"a": "b"}}, ""),
    ],
    ids=str,
)
def test_bad_filters_are_refused_with_their_place(filters: Json, path: str | None) -> None:
    assert refused(filters).path == path


def test_hints() -> None:
    assert "not supported" in refused([{"sql": "type = 'x'"}]).reason
    assert refused([{"sufix": {"a": "b"}}]).hint == "did you mean 'suffix'?"
    assert refused('[{"exact": {"a" "b"}}]').column == 17


def test_depth_is_limited_without_recursion_errors() -> None:
    deep: Json = {"exact": {"a": "b"}}
    for _ in range(5000):
        deep = {"not": deep}
    refused(deep)
    refused('{"not":' * 5000 + "1" + "}" * 5000)
    refused([{"exact": {"a": str(i)}} for i in range(100_001)])


# --- against the specification, evaluated directly -------------------------------------------------------------------


def reference(one: Json, event: Json) -> bool:
    ((dialect, operand),) = one.items()
    if dialect == "all":
        return all(reference(inner, event) for inner in operand)
    if dialect == "any":
        return any(reference(inner, event) for inner in operand)
    if dialect == "not":
        return not reference(operand, event)
    return all(name in event and compare(dialect, event[name], text) for name, text in operand.items())


def compare(dialect: str, value: Json, text: str) -> bool:
    if dialect == "exact":
        return (value if isinstance(value, str) else json.dumps(value)) == text
    return isinstance(value, str) and (value.startswith(text) if dialect == "prefix" else value.endswith(text))


TEXTS = st.sampled_from(["1", "12", "-1", "true", "x", "xy", "y"])
BASIC = st.builds(
    lambda dialect, texts: {dialect: texts},
    st.sampled_from(["exact", "prefix", "suffix"]),
    st.dictionaries(st.sampled_from("ab"), TEXTS, min_size=1),
)
FILTERS: st.SearchStrategy[Json] = st.recursive(
    BASIC,
    lambda inner: st.one_of(
        inner.map(lambda one: {"not": one}),
        st.builds(
            lambda dialect, many: {dialect: many},
            st.sampled_from(["all", "any"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
    ),
    max_leaves=6,
)
EVENTS = st.dictionaries(st.sampled_from("ab"), st.one_of(TEXTS, st.sampled_from([1, 12, -1, True, False])))


@settings(max_examples=300, deadline=None)
@given(st.lists(FILTERS, max_size=3), st.lists(EVENTS, min_size=1, max_size=4))
def test_agrees_with_the_specification(filters: list[Json], events: list[Json]) -> None:
    expression = parse_filters(filters)
    for event in events:
        assert matches(expression, Event(event)) is all(reference(one, event) for one in filters)
