"""Two attributes, all strings, lengths, and tests that ignore case, beside evaluators that try everything plainly."""

from __future__ import annotations

import itertools
import operator
import unicodedata
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import CASED, TEXTS, events

from siftline.errors import SubscriptionError
from siftline.model import (
    THIS,
    AnyElement,
    AnyString,
    AttributeComparison,
    Event,
    Length,
    Predicate,
    Truth,
    compare,
    evaluate,
    fold,
)
from siftline.model.predicate import CASELESS

COMPARED = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
integers = st.integers(-3, 3) | st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**63 - 1])
doubles = st.sampled_from([0.5, -0.0, 0.1, 0.2, 0.30000000000000004, 1e-300, -1e300, 2.0**53, 5e-324])
numbers = integers | doubles
others = st.sampled_from(["a", "b", "\u00e9", True, False, None])
values = st.lists(numbers | st.integers(-(10**30), 10**30) | others, max_size=4)


def pair(left: Any, op: str, right: Any, offset: Any) -> Truth:
    """Compare two values, in rational numbers."""
    kinds = [type(value) if isinstance(value, (bool, str)) else Fraction for value in (left, right)]
    if kinds[0] is not kinds[1] or (offset is not None and kinds[0] is not Fraction):
        return None
    if kinds[0] is bool and op not in ("=", "!="):
        return None
    if kinds[0] is Fraction:
        left, right = Fraction(left), Fraction(right) + Fraction(offset or 0)
    return bool(COMPARED[op](left, right))


def some(truths: list[Truth]) -> Truth:
    return True if True in truths else False if False in truths else None


@given(values, st.sampled_from(sorted(COMPARED)), values, st.none() | numbers)
@example([0.3], "=", [0.2], 0.1)
@example([2**53 + 1], "=", [2**53], 1)
@example([1], ">", [1], -5e-324)
@example([True], "=", [1], None)
def test_all_pairs_are_compared_exactly(left: list[Any], op: str, right: list[Any], offset: Any) -> None:
    pairs = itertools.product([each for each in left if each is not None], [each for each in right if each is not None])
    expected = some([pair(a, op, b, offset) for a, b in pairs])
    assert evaluate(AttributeComparison("a", op, "b", offset), Event({"a": left, "b": right})) is expected


def strings_in(node: Any) -> list[str]:
    if isinstance(node, dict):
        return [text for child in node.values() for text in strings_in(child)]
    if isinstance(node, list):
        return [text for child in node for text in strings_in(child)]
    return [node] if isinstance(node, str) else []


@given(events, st.sampled_from(["=", "!=", "contains", "not contains", "<"]), st.sampled_from(TEXTS))
def test_all_strings_are_looked_at(tree: dict[str, Any], op: str, text: str) -> None:
    expected = some([compare(each, op, text) for each in strings_in(tree)])
    assert evaluate(AnyString(op, text), Event(tree)) is expected


@given(st.lists(st.text(max_size=3) | st.integers() | st.none(), max_size=3), st.integers(0, 3))
def test_lengths(leaves: list[Any], size: int) -> None:
    expected = some([len(list(leaf)) == size for leaf in leaves if isinstance(leaf, str)])
    assert evaluate(Length("a", "=", size), Event({"a": leaves})) is expected


def test_many_elements_take_no_square_of_time() -> None:
    many = {"a": list(range(20_000)), "b": [x + 0.5 for x in range(20_000)]}
    assert evaluate(AttributeComparison("a", "=", "b"), Event(many)) is False
    assert evaluate(AttributeComparison("a", "=", "b", 0.5), Event(many)) is True
    assert evaluate(AttributeComparison("a", ">", "b", 19_998.4), Event(many)) is True


# Large sharp s, dotted and dotless i, long s, sigmas, the sign of Kelvin.
FOLDED = {
    "\u1e9e": "\u00df",
    "\u0130": "\u0130",
    "\u0131": "\u0131",
    "\u017f": "s",
    "S": "s",
    "\u212a": "k",
    "SS": "ss",
}
FOLDED |= {"\u03a3": "\u03c3", "\u03c2": "\u03c3", "\u00c9": "\u00e9"}


@pytest.mark.parametrize(("text", "folded"), FOLDED.items())
def test_folding(text: str, folded: str) -> None:
    assert evaluate(Predicate("a", "= ignoring case", folded), Event({"a": text})) is True
    assert evaluate(Predicate("a", "in ignoring case", ("q", text)), Event({"a": folded})) is True


@given(st.sampled_from(sorted(CASELESS)), st.sampled_from(CASED) | st.text(max_size=2), st.sampled_from(CASED))
def test_ignoring_case_is_a_test_of_what_is_folded(op: str, value: str, constant: str) -> None:
    plain = op.removesuffix(" ignoring case")
    is_list = plain.endswith("in")
    given, wanted = ((constant, "q"), (fold(constant), "q")) if is_list else (constant, fold(constant))
    assert compare(value, op, given) is compare(fold(value), plain, wanted)
    assert compare(5, op, given) is None


def test_folding_goes_code_point_by_code_point() -> None:
    for character in map(chr, range(0x3000)):
        assert len(fold(character)) == 1
        assert unicodedata.category(character) == "Cn" or fold(fold(character)) == fold(character)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: AttributeComparison("a", "in", "b"), "'in' does not compare two attributes"),
        (lambda: AttributeComparison("a", "=", None), "'this' is compared with constants only"),
        (lambda: AttributeComparison("a", "=", "b", "x"), "an offset is a number, not a string"),  # type: ignore[arg-type]
        (lambda: AttributeComparison("a", "=", "b", True), "an offset is a number, not a boolean"),
        (lambda: AttributeComparison("a", "=", "b", 2**63), "does not fit into 64 bits"),
        (lambda: AttributeComparison("a", "=", "b", float("inf")), "must be finite"),
        (lambda: AnyString("is null"), "tests an attribute, not all strings"),
        (lambda: AnyString("in", ("x", 5)), "compared with strings, not with a number"),
        (lambda: AnyString("nearly", "x"), "unknown operator"),
        (lambda: Length("a", "contains", "x"), "'contains' does not test"),
        (lambda: Length("a", "in", (1, "x")), "compared with numbers, not with a string"),
        (lambda: Predicate("a", "in ignoring case", ("x", 5)), "about strings, not about a number"),
        (lambda: Predicate("a", "like ignoring case", "x"), "unknown operator"),
    ],
)
def test_what_is_refused(make: Any, reason: str) -> None:
    with pytest.raises(SubscriptionError) as caught:
        make()
    assert reason in caught.value.reason


def test_inside_any_the_element_counts() -> None:
    event = Event({"x": [{"a": 1, "b": 2, "s": "abc"}, {"a": 3}, "de"], "a": 9, "s": "outside"})
    assert evaluate(AnyElement("x", AttributeComparison("a", ">", "b")), event) is False
    assert evaluate(AnyElement("x", AnyString("=", "outside")), event) is False
    assert evaluate(AnyElement("x", AnyString("=", "de")), event) is True
    assert evaluate(AnyElement("x", Length(THIS, "=", 2)), event) is True
    assert evaluate(AnyElement("x", Length("s", "=", 3)), event) is True
