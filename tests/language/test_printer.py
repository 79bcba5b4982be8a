"""Printing: every expression that the parser can make reads back as itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from siftline.errors import SubscriptionError
from siftline.language.printer import to_text
from siftline.language.text import parse
from siftline.language.tokens import split
from siftline.model import (
    FALSE,
    MAX_DEPTH,
    OPERATORS,
    THIS,
    TRUE,
    And,
    AnyElement,
    AnyString,
    Arithmetic,
    AttributeComparison,
    Call,
    Constraint,
    Expression,
    IsTrue,
    Length,
    Not,
    Or,
    Predicate,
    Term,
    Variable,
)
from siftline.model.predicate import CASELESS, COMPARISONS, IGNORING_CASE, PRESENCES, RANGES, SETS

A = Predicate("a", "=", 1)
B = Predicate("b", "=", 2)
C = Predicate("c", "=", 3)

# -- strategies for all of the model -----------------------------------------------------------------------------------

any_text = st.text(st.characters(exclude_categories=()), max_size=8)
integers = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63)])
doubles = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 5e-324, 1e308, 1e16, 1e-7])
strings = any_text | st.sampled_from(["", "'", "''", "\\", "\x00", "\n", "\ud800", "--", "/*", '"', "it's"])
constants = st.booleans() | integers | doubles | strings

WORDS = (
    "and any between cidr contains date ends exists false ilike in is like matches not null or starts this timestamp "
    "true with NOT This this.x length string ignoring case now nan none Today b-5 $b "
    "a a.b a-b a--b -a a- .a a. a..b 1 1a 2.5 @a $a @ $ \u00e9 \u0939\u093f \u00b2 \u0661 "
)
names = st.sampled_from([*WORDS.split(" "), "a b", "a\nb", 'a"b', "a'b", "\x00", "\ud800", '"']) | any_text


def operands(op: str) -> st.SearchStrategy[Any]:
    """Return what an operator takes."""
    if op in CASELESS:
        return st.lists(strings, max_size=4).map(tuple) if op.removesuffix(IGNORING_CASE) in SETS else strings
    if op in PRESENCES:
        return st.none()
    if op in SETS:
        return st.lists(constants, max_size=4).map(tuple)
    if op in RANGES:
        return st.tuples(integers | doubles, integers | doubles) | st.tuples(strings, strings)
    if op in COMPARISONS:
        return constants if op in ("=", "!=") else integers | doubles | strings
    if op.endswith("matches"):
        return st.sampled_from(["", "a+", "^it's$", r"\d", '"', "\n"])
    if op.endswith("cidr"):
        return st.sampled_from(["10.0.0.0/8", "2001:db8::/32", "127.0.0.1"])
    if op.endswith("like"):
        return strings.filter(lambda pattern: (len(pattern) - len(pattern.rstrip("\\"))) % 2 == 0)
    return strings


@st.composite
def predicates(draw: st.DrawFn, attributes: st.SearchStrategy[str | None] = names) -> Expression:
    """Draw a predicate with any operator."""
    op = draw(st.sampled_from(sorted(OPERATORS)))
    return Predicate(draw(attributes), op, draw(operands(op)))


numbers = integers | doubles
variables = st.builds(Variable, names)
terms: st.SearchStrategy[Term] = st.recursive(
    variables | numbers,
    lambda inner: st.builds(Arithmetic, st.sampled_from("+-*/"), inner, inner),
    max_leaves=6,
)
comparisons = st.sampled_from(sorted(COMPARISONS))
constraints = (
    st.builds(Constraint, comparisons, st.builds(Arithmetic, st.sampled_from("+-*/"), variables, terms), terms)
    | st.builds(Constraint, comparisons, constants, variables)
    | st.builds(Constraint, comparisons, variables, constants | terms)
    | st.builds(lambda op, left, name: Constraint(op, left, Variable(name)), comparisons, terms, names)
)
calls = st.builds(Call, names, st.lists(variables | constants, max_size=3))


def combined(leaves: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    """Return leaves under and, or, not and `is true`, without groups of one operand."""
    return st.recursive(leaves | st.sampled_from([TRUE, FALSE]), _groups, max_leaves=8)


def _groups(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(inner, min_size=2, max_size=3)
    return several.map(And) | several.map(Or) | inner.map(Not) | inner.map(IsTrue)


@st.composite
def derived(draw: st.DrawFn, attributes: st.SearchStrategy[str | None] = names) -> Expression:
    """Draw a comparison of two attributes, a test of all strings, or one of lengths."""
    match draw(st.integers(0, 2)):
        case 0:
            op, offset = draw(comparisons), draw(st.none() | integers | doubles)
            return AttributeComparison(draw(names), op, draw(names), offset)
        case 1:
            op = draw(st.sampled_from(sorted(OPERATORS - PRESENCES)))
            operand = st.lists(strings, max_size=2).map(tuple) if op in SETS else st.tuples(strings, strings)
            return AnyString(op, draw(operand if op in SETS | RANGES else operands(op).filter(is_text)))
    op = draw(st.sampled_from(sorted(COMPARISONS | SETS | RANGES)))
    several = st.lists(numbers, max_size=2).map(tuple) if op in SETS else st.tuples(numbers, numbers)
    return Length(draw(attributes), op, draw(several if op in SETS | RANGES else numbers))


def is_text(operand: Any) -> bool:
    return isinstance(operand, (str, tuple))


@st.composite
def quantified(draw: st.DrawFn, levels: int = 2) -> Expression:
    """Draw `any`, with `this` and more of `any` inside."""
    inside = predicates(names | st.just(THIS)) | derived(names | st.just(THIS))
    return AnyElement(draw(names), draw(combined(inside | quantified(levels - 1) if levels else inside)))


@st.composite
def leaves(draw: st.DrawFn) -> Expression:
    """Draw anything that is not put together with and, or, not or `is true`."""
    return draw(predicates() | derived() | calls | constraints | quantified())


expressions = combined(leaves())


# -- the law -----------------------------------------------------------------------------------------------------------


@given(expressions)
@example(TRUE)
@example(FALSE)
@example(Predicate("", "in", ()))
def test_round_trip(expression: Expression) -> None:
    text = to_text(expression)
    back = parse(text)
    assert back == expression
    assert repr(back) == repr(expression)  # 1 is not 1.0, and 0.0 is not -0.0, though they are equal
    assert to_text(back) == text


@given(expressions, st.data())
def test_white_space_and_comments_do_not_matter(expression: Expression, data: st.DataObject) -> None:
    separators = st.sampled_from([" ", "\n", "\t \t", "/* or */", " -- not\n", "/***/ "])
    pieces = []
    for token in split(to_text(expression)):
        pieces += [token, data.draw(separators)]
    assert parse("".join(pieces)) == expression


# -- how it looks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (TRUE, "true"),
        (FALSE, "false"),
        (And((A, B, C)), "a = 1 and b = 2 and c = 3"),
        (And((And((A, B)), C)), "(a = 1 and b = 2) and c = 3"),
        (Or((And((A, B)), C)), "a = 1 and b = 2 or c = 3"),
        (And((Or((A, B)), C)), "(a = 1 or b = 2) and c = 3"),
        (Or((Or((A, B)), C)), "(a = 1 or b = 2) or c = 3"),
        (Not(A), "not a = 1"),
        (Not(Or((A, B))), "not (a = 1 or b = 2)"),
        (Not(Not(A)), "not not a = 1"),
        (IsTrue(A), "(a = 1) is true"),
        (Not(IsTrue(A)), "(a = 1) is not true"),
        (IsTrue(Not(IsTrue(A))), "((a = 1) is not true) is true"),
        (And((TRUE, FALSE)), "true and false"),
        (AnyElement("items", And((A, Predicate(THIS, "exists")))), "any items (a = 1 and exists this)"),
        (Predicate("a", "not in", (1, "x", True)), "a not in (1, 'x', true)"),
        (Predicate("a", "in", ()), "a in ()"),
        (Predicate("a", "between", (-1.5, 2)), "a between -1.5 and 2"),
        (Predicate("a.b", "is not null"), "a.b is not null"),
        (Predicate("detail-type", "=", "it's"), "detail-type = 'it''s'"),
        (Predicate("a b", "=", 1e300), '"a b" = 1e+300'),
        (Predicate("Not", "=", -0.0), '"Not" = -0.0'),
        (Predicate("like", "like", "x"), "like like 'x'"),
        (Predicate("a", "!= ignoring case", "X"), "a != 'X' ignoring case"),
        (Predicate("a", "not in ignoring case", ("X", "y")), "a not in ('X', 'y') ignoring case"),
        (AttributeComparison("a", ">", "b"), "a > b"),
        (AttributeComparison("a", "!=", "b", -2.5), "a != b - 2.5"),
        (AttributeComparison("a", "=", "b", -0.0), "a = b - 0.0"),
        (AttributeComparison("Not", "=", "today", -(2**63)), '"Not" = "today" - 9223372036854775808'),
        (AnyString("contains ignoring case", "X"), "any string contains 'X' ignoring case"),
        (AnyElement("string", AnyString("=", "x")), "any string (any string = 'x')"),
        (Length("a b", "between", (1, 2)), 'length("a b") between 1 and 2'),
        (AnyElement("a", Length(THIS, ">", 1)), "any a (length(this) > 1)"),
        (Call("Length", ("x",)), "\"Length\"('x')"),
        (Call("loc_in", ("Bronx", Variable("x"))), "loc_in('Bronx', ?x)"),
        (Call("in", ()), '"in"()'),
        (Constraint(">", Variable("y"), Arithmetic("*", 2, Arithmetic("+", Variable("z"), 1))), "?y > 2 * (?z + 1)"),
        (Constraint("=", Variable("a b"), Arithmetic("-", 1, Arithmetic("-", 2, -3))), '?"a b" = 1 - (2 - -3)'),
    ],
)
def test_appearance(expression: Expression, text: str) -> None:
    assert to_text(expression) == text
    assert parse(text) == expression


def test_a_group_of_one_is_its_operand() -> None:
    assert to_text(And((A,))) == "a = 1"
    assert to_text(And((Or((And((A, B)),)), C))) == "(a = 1 and b = 2) and c = 3"
    assert to_text(Not(Or((And((A, B)),)))) == "not (a = 1 and b = 2)"
    assert to_text(Or((TRUE,))) == "true"


def test_the_deepest_expression_reads_back() -> None:
    deep: Expression = A
    for level in range(MAX_DEPTH - 1):
        deep = [Not(deep), And((deep, B)), AnyElement("a", deep), Or((deep, B)), IsTrue(deep)][level % 5]
    assert parse(to_text(deep)) == deep
    with pytest.raises(SubscriptionError, match="deeper"):
        to_text(Not(deep))


def test_the_deepest_term_reads_back() -> None:
    term: Term = Variable("x")
    for level in range(MAX_DEPTH - 1):
        term = Arithmetic("-", 1, term) if level % 2 else Arithmetic("*", term, 2)
    assert parse(to_text(Constraint("=", term, 1))) == Constraint("=", term, 1)
    with pytest.raises(SubscriptionError, match="deeper"):
        to_text(Constraint("=", Arithmetic("+", term, 1), 1))


@pytest.mark.parametrize("value", [2**63, float("nan"), float("inf")])
def test_what_no_text_can_write(value: float) -> None:
    with pytest.raises(SubscriptionError, match="cannot be written"):
        to_text(Call("f", (value,)))


def test_a_variable_is_no_condition() -> None:
    with pytest.raises(SubscriptionError, match="Variable is not a condition"):
        to_text(Variable("x"))
