"""Normal forms mean what the expression means; covers are implied by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from strategies import events, expressions

from siftline.language.normal_form import MAX_CLAUSES, cnf, cover, dnf, nnf, parts_of
from siftline.language.text import parse
from siftline.model import (
    And,
    AnyElement,
    AnyString,
    AttributeComparison,
    Event,
    Expression,
    Length,
    Not,
    Or,
    Predicate,
    evaluate,
    matches,
)

if TYPE_CHECKING:
    from siftline.language.normal_form import Clause


DERIVED = AttributeComparison, AnyString, Length


def holds(clause: Clause, event: Event) -> bool:
    return all(matches(literal, event) for literal in clause)


@given(expression=expressions, tree=events)
def test_nnf_matches_the_same_events(expression: Expression, tree: dict[str, Any]) -> None:
    event = Event(tree)
    assert matches(nnf(expression), event) is matches(expression, event)


@given(expression=expressions)
def test_nnf_has_negation_only_at_the_leaves(expression: Expression) -> None:
    pending = [nnf(expression)]
    while pending:
        node = pending.pop()
        if isinstance(node, (And, Or)):
            pending += node.operands
        else:
            leaf, _ = parts_of(node)
            assert isinstance(leaf, (Predicate, *DERIVED, AnyElement))  # inside an `any`, expressions stay as they are


@given(expression=expressions, tree=events)
def test_dnf_and_cnf_match_the_same_events(expression: Expression, tree: dict[str, Any]) -> None:
    event = Event(tree)
    expected = matches(expression, event)
    disjunction, conjunction = dnf(expression), cnf(expression)
    if disjunction is not None:
        assert any(holds(clause, event) for clause in disjunction) is expected
    if conjunction is not None:
        assert all(any(matches(literal, event) for literal in clause) for clause in conjunction) is expected


@given(expression=expressions, tree=events)
def test_a_cover_is_necessary(expression: Expression, tree: dict[str, Any]) -> None:
    event = Event(tree)
    clauses, is_exact = cover(expression)
    is_covered = any(holds(clause, event) for clause in clauses)
    assert is_covered or not matches(expression, event)
    if is_exact:
        assert is_covered is matches(expression, event)


def test_explosions_are_not_built() -> None:
    pairs = [Or((Predicate(f"a{i}", "=", 1), Predicate(f"b{i}", "=", 1))) for i in range(40)]
    expression = And((Predicate("x", "=", 1), *pairs))
    assert dnf(expression) is None
    clauses, is_exact = cover(expression)
    assert not is_exact
    assert 1 < len(clauses) <= 2 * 81
    assert all(Predicate("x", "=", 1) in clause for clause in clauses)


def test_what_is_listed_does_not_explode() -> None:
    clauses = dnf(Or([And((Predicate("a", "=", i), Predicate("b", "=", i))) for i in range(1000)]))
    assert clauses is not None
    assert len(clauses) == 1000 > MAX_CLAUSES


def test_equalities_become_one_set() -> None:
    assert dnf(parse("a = 1 or a in (2, 'x') or a = true or b = 1")) == [
        (parse("a in (1, 2, 'x', true)"),),
        (parse("b = 1"),),
    ]


def test_ranges_are_never_folded() -> None:
    # On an array, one element may be above and another one below.
    assert dnf(parse("a > 2 and a < 2")) == [(parse("a > 2"), parse("a < 2"))]


def test_long_conjunctions_are_quick() -> None:
    expression = And([Predicate(f"a{i}", "=", i) for i in range(20_000)])
    clauses = dnf(expression)
    assert clauses is not None
    assert len(clauses[0]) == 20_000


def test_unknown_is_not_false() -> None:
    event = Event({})
    for text in ("not (a = 1)", "not (a is null and b = 1)", "(a = 1) is not true", "not ((not a = 1) is true)"):
        assert matches(nnf(parse(text)), event) is (evaluate(parse(text), event) is True)


def test_what_no_index_decides_implies_conditions_on_single_attributes() -> None:
    present = [Predicate(name, "is not null") for name in ("a", "b")]
    string = Predicate("a", "starts with", "")
    assert cover(parse("a > b + 1 and c = 1")) == ([(*present, Predicate("c", "=", 1))], False)
    assert cover(parse("not (a > b)")) == ([tuple(present)], False)
    assert cover(parse("(a > b) is not true")) == ([()], False)
    assert cover(parse("length(a) > 1 or a = b")) == ([(string,), tuple(present)], False)
    some = AnyString("contains", "x")
    assert cover(parse("any string contains 'x' and not any string contains 'x'")) == ([(some, Not(some))], True)
    assert cover(parse("any a (any string contains 'x' and b = 1)")) == ([(some, Predicate("a.b", "=", 1))], False)
    assert cover(parse("any a (not any string contains 'x')")) == ([()], False)
    assert cover(parse("any a (length(this) > 1)")) == ([(string,)], False)
    assert cover(parse("any c (a > b)")).clauses == [(Predicate("c.a", "is not null"), Predicate("c.b", "is not null"))]
