"""Expressions: immutable, compared by structure, limited in size; predicates refuse what has no meaning."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from strategies import expressions

from siftline import SubscriptionError
from siftline.model import (
    FALSE,
    MAX_DEPTH,
    MAX_LEAVES,
    TRUE,
    And,
    Call,
    Constraint,
    Expression,
    Not,
    Or,
    Predicate,
    Variable,
    check_size,
    fold,
    like,
)

A, B = Predicate("a", "=", 1), Predicate("b", "=", 2)


def test_operators_combine_flatly() -> None:
    assert And((A, B, A)) == (A & B & A)
    assert Or((A, B, A)) == (A | B | A)
    assert Not(A) == ~A
    assert And((TRUE, A)) == (TRUE & A)
    assert Or((FALSE, A)) == (FALSE | A)
    with pytest.raises(TypeError, match="no truth value"):
        bool(A)
    with pytest.raises(TypeError, match="cannot combine"):
        A & "b = 2"  # type: ignore[operator]


def test_nodes_are_immutable() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        A.op = "<"


def test_true_is_not_one() -> None:
    assert Predicate("a", "=", 1) == Predicate("a", "=", 1.0) != Predicate("a", "=", True)
    assert Predicate("a", "in", (1,)) != Predicate("a", "in", (True,))
    assert Call("f", (1,)) != Call("f", (True,))
    assert Constraint("=", Variable("x"), 1) != Constraint("=", Variable("x"), True)
    assert len({Predicate("a", "=", 1), Predicate("a", "=", True)}) == 2


@given(expression=expressions)
def test_expressions_can_be_pickled(expression: Expression) -> None:
    assert pickle.loads(pickle.dumps(expression)) == expression


@pytest.mark.parametrize(
    ("op", "operand", "message"),
    [
        ("=", None, "null cannot be compared"),
        ("in", (1, None), "null cannot be compared"),
        ("<", True, "a boolean cannot be compared with '<'"),
        ("between", (False, True), "a boolean cannot be compared"),
        ("between", (1, "x"), "of two kinds: number and string"),
        ("between", (1,), "needs two bounds"),
        ("in", 5, "needs a list"),
        ("=", [1], "must be a boolean, a number, a string or a timestamp, not list"),
        ("=", 2**63, "does not fit into 64 bits"),
        ("=", 10**500, "of 1661 bits does not fit"),
        ("=", float("inf"), "must be finite"),
        ("contains", 5, "needs a string, not a number"),
        ("like", "a\\", "ends with the escape character"),
        ("matches", "(", "RE2 cannot run"),
        ("matches", "(?=x)", "RE2 cannot run"),
        ("cidr", "10.0.0.0/99", "is not a network"),
        ("is null", 1, "takes no constant"),
        ("~", 1, "unknown operator '~'"),
    ],
)
def test_bad_predicates_are_refused(op: str, operand: Any, message: str) -> None:
    with pytest.raises(SubscriptionError) as caught:
        Predicate("a", op, operand)
    assert message in str(caught.value)


def test_depth_is_limited() -> None:
    expression: Expression = A
    for _ in range(MAX_DEPTH - 1):
        expression = Not(expression)
    check_size(expression)
    with pytest.raises(SubscriptionError, match="nests deeper"):
        check_size(Not(expression))


def test_size_is_limited() -> None:
    check_size(Predicate("a", "in", tuple(range(MAX_LEAVES))))
    with pytest.raises(SubscriptionError, match="more than 100,000"):
        check_size(Predicate("a", "in", tuple(range(MAX_LEAVES + 1))))
    with pytest.raises(SubscriptionError, match="more than 100,000"):
        check_size(Or((A,) * (MAX_LEAVES + 1)))


@pytest.mark.parametrize(
    ("value", "pattern", "expected"),
    [
        ("", "", True),
        ("", "%", True),
        ("a", "_", True),
        ("ab", "_", False),
        ("abab", "%ab", True),
        ("aab", "a%ab", True),
        ("ab", "a%ab", False),
        ("xaybz", "%a_b%", True),
        ("aaaa", "%aa%aa%", True),
        ("aaa", "%aa%aa%", False),
        ("a%b", r"a\%b", True),
        ("axb", r"a\%b", False),
        ("a\\b", r"a\\b", True),
    ],
)
def test_like(value: str, pattern: str, expected: bool) -> None:
    assert like(value, pattern) is expected


def test_folding_is_simple() -> None:
    assert fold("\u00c0\u03a3\u03c2\u017f\u212a\u1e9e") == "\u00e0\u03c3\u03c3sk\u00df"
    assert fold("\u1f88") == "\u1f80"
    # These fold only to several characters, or only in Turkish.
    assert fold("\u0130\u0149\ufb01") == "\u0130\u0149\ufb01"
