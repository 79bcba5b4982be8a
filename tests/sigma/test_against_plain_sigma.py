"""The engine fires exactly the rules that a direct evaluation of pySigma's conditions fires."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from plain_sigma import fires
from sigma.rule import SigmaRule

import siftline
from siftline.sigma import parse_sigma

FIELDS = ("a", "b", "c d")
TEXTS = ("", "x", "X", "xy", "XyX", "-x", "/X", "5", "05", "true", "TRUE", "10.0.0.1", "%", "_", "x\\", "x*", "é", "É")
PATTERNS = (*TEXTS, "*", "x*", "*Y", "*y*", "x?", "x*x", "\\*", "?", "x\\\\*", "%*", "_?")
CONDITIONS = ("p", "not p", "p and not q", "p or q", "1 of them", "not 1 of them", "all of them", "not (p and not q)")

texts = st.sampled_from(TEXTS)
leaves = st.one_of(texts, st.sampled_from([5, -1, 5.5, True, False, None]))
events = st.dictionaries(st.sampled_from(FIELDS), st.one_of(leaves, st.lists(leaves, max_size=3)), max_size=3)


def items(modifier: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, Any]]:
    return st.tuples(st.sampled_from(FIELDS).map(lambda field: field + modifier), values)


def some(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(values, st.lists(values, min_size=1, max_size=3))


patterns = st.sampled_from(PATTERNS)
item = st.one_of(
    items("", some(st.one_of(patterns, st.sampled_from([5, 5.5, True, None])))),
    items("|contains", some(patterns)),
    items("|contains|all", st.lists(patterns, min_size=2, max_size=3)),
    items("|startswith", some(patterns)),
    items("|endswith", some(patterns)),
    items("|cased", some(patterns)),
    items("|contains|windash", some(st.sampled_from(["-x", "/x", "x"]))),
    items("|re", some(st.sampled_from(["^x", "x.?y", "[0-9]+", "X"]))),
    items("|re|i", st.sampled_from(["^X", "y$"])),
    items("|gt", st.sampled_from([0, 5])),
    items("|lte", st.sampled_from([5, 5.5])),
    items("|exists", st.booleans()),
    items("|cidr", st.just("10.0.0.0/8")),
    items("|fieldref", st.sampled_from(FIELDS)),
)
mapping = st.lists(item, min_size=1, max_size=3).map(dict)
keywords = st.lists(st.sampled_from(["x", "XY", "x*y", "5", "-"]), min_size=1, max_size=2)
selection = st.one_of(mapping, st.lists(mapping, min_size=1, max_size=2), keywords)


@settings(max_examples=400, deadline=None)
@given(selection, selection, st.sampled_from(CONDITIONS), st.lists(events, min_size=1, max_size=8))
def test_random_rules(p: Any, q: Any, condition: str, seen: list[dict[str, Any]]) -> None:
    rule = {"title": "t", "logsource": {"product": "x"}, "detection": {"p": p, "q": q, "condition": condition}}
    engine = siftline.Engine("scan")
    engine.add(parse_sigma(rule, ()), id=1)
    truth = SigmaRule.from_dict(rule)
    assert [engine.match(event) == [1] for event in seen] == [fires(truth, event) for event in seen]
