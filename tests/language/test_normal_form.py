"""Normal forms mean what the expression means; covers are implied by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from strategies import events, expressions, large_disjunctions

from siftline.language.likelihood import NOT_WORTH_FINDING, likelihood_by_form
from siftline.language.normal_form import (
    COVER_LIMITS,
    NORMAL_FORM_LIMITS,
    WITNESS_LITERALS_MAX,
    asks_for_value,
    cnf,
    cover,
    dnf,
    nnf,
    parts_of,
)
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
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    a, b, x = (parse(f"{name} = 1") for name in ("a0", "b0", "x"))
    assert cover(expression) == ([(x, a), (x, b)], False)


def test_what_is_listed_does_not_explode() -> None:
    expression = Or([And((Predicate("a", "=", i), Predicate("b", "=", i))) for i in range(1000)])
    clauses = dnf(expression)
    assert clauses is not None
    assert len(clauses) == 1000 > NORMAL_FORM_LIMITS.clauses > COVER_LIMITS.clauses
    assert cover(expression) == (clauses, True)


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


# witnesses


def alternatives(attribute: str, op: str, texts: Iterable[str]) -> str:
    return "(" + " or ".join(f"{attribute} {op} '{text}'" for text in texts) + ")"


def words(letter: str, n: int = 40) -> list[str]:
    return [f"{letter}-{i:02}" for i in range(n)]


def test_what_most_users_write_stays_exact() -> None:
    for text in (
        "a = 1 and b in (1, 2, 3) and not (c = 4)",
        "(a = 1 or b = 2) and (c = 3 or d = 4 or e = 5)",
        "a = 1 and " + alternatives("b", "contains", words("x")),
        "a contains 'x' and not (b contains 'y' or b contains 'z')",
        "(a = 1 or b < 2 or c > 3) and (d = 1 or e < 2 or f > 3) and (g = 1 or h < 2 or i starts with 'x')",
    ):
        clauses, is_exact = cover(parse(text))
        assert is_exact
        assert clauses == dnf(parse(text))


def test_texts_are_not_multiplied_out_as_far_as_what_codes_decide() -> None:
    by_codes = "(a = 1 or b < 2 or c > 3) and (d = 1 or e < 2 or f > 3) and (g = 1 or h < 2 or i > 3)"
    assert len(cover(parse(by_codes)).clauses) == 27
    clauses, is_exact = cover(parse(by_codes.replace("> 3", "contains 'abcdef'")))
    assert (len(clauses), is_exact) == (3, False)


def test_the_witnesses_are_those_that_are_rarest() -> None:
    rare, common = alternatives("a", "contains", words("word")), alternatives("b", "contains", words("b", 30))
    exception = alternatives("c", "contains", words("c"))
    clauses, is_exact = cover(parse(f"kind = 1 and {common} and {rare} and not {exception}"))
    assert not is_exact
    assert [clause[1] for clause in clauses] == [parse(f"a contains '{word}'") for word in words("word")]
    assert all(clause[0] == parse("kind = 1") and len(clause) == 2 for clause in clauses)


def test_an_or_needs_the_witnesses_of_each_of_its_operands() -> None:
    many, more = alternatives("a", "contains", words("many")), alternatives("b", "contains", words("b"))
    clauses, is_exact = cover(parse(f"({many} and {more} and x = 1) or ({more} and y = 2 and z is null)"))
    assert not is_exact
    expected = [{parse("x = 1"), parse(f"a contains '{word}'")} for word in words("many")]
    expected += [{parse("y = 2"), parse(f"b contains '{word}'")} for word in words("b")]
    assert list(map(set, clauses)) == expected


def test_a_clause_of_witnesses_is_short() -> None:
    required = " and ".join(f"r{i} = 1" for i in range(10))
    clauses, _ = cover(parse(f"{required} and {alternatives('a', 'contains', words('a'))}"))
    assert {len(clause) for clause in clauses} == {WITNESS_LITERALS_MAX}


def test_exceptions_are_no_witnesses() -> None:
    exception = f"not {alternatives('c', 'contains', words('c'))} is true"
    many = f"({alternatives('a', 'contains', words('a'))} or b contains '-')"
    clauses, is_exact = cover(parse(f"{many} and ({exception} or d = 1) and ({exception} or e is null)"))
    assert not is_exact
    assert len(clauses) == 41
    assert all(asks_for_value(literal) for clause in clauses for literal in clause)


def test_where_nothing_must_be_true_everything_is_a_candidate() -> None:
    # Each `or` can be true of an event without any of the values.
    parts = [f"(a{i} is null or b{i} is null or c{i} = 1)" for i in range(4)]
    clauses, is_exact = cover(parse(" and ".join(parts)))
    assert not is_exact
    assert any(not any(map(asks_for_value, clause)) for clause in clauses)


def test_a_regular_expression_without_a_text_is_left_to_the_check() -> None:
    def without_text(leaf: Expression) -> float:
        is_regex = isinstance(leaf, Predicate) and leaf.op == "matches"
        return NOT_WORTH_FINDING if is_regex else likelihood_by_form(leaf)

    regex, other = "a matches '[0-9]{3}'", "b = 1"
    assert cover(parse(f"{regex} and {other}")) == ([(parse(regex), parse(other))], True)
    assert cover(parse(f"{regex} and {other}"), without_text) == ([(parse(other),)], False)
    assert cover(parse(f"not ({regex}) and {other}"), without_text) == ([(parse(other),)], False)
    assert cover(parse(f"{regex} or {other}"), without_text) == ([(parse(other),), (parse(regex),)], True)
    assert cover(parse(regex), without_text) == ([(parse(regex),)], True)
    assert cover(parse(f"{regex} and (b = 1) is not true"), without_text).is_exact


@given(expression=large_disjunctions, tree=events)
def test_witnesses_are_necessary(expression: Expression, tree: dict[str, Any]) -> None:
    test_a_cover_is_necessary.hypothesis.inner_test(expression, tree)  # type: ignore[attr-defined]
    event = Event(tree)
    for likelihood in (lambda leaf: 0.5, lambda leaf: NOT_WORTH_FINDING):
        found = cover(expression, likelihood)
        is_covered = any(holds(clause, event) for clause in found.clauses)
        is_match = matches(expression, event)
        assert is_covered is is_match if found.is_exact else is_covered or not is_match


@given(expression=large_disjunctions | expressions)
def test_only_few_clauses_are_long(expression: Expression) -> None:
    n_leaves = sum(isinstance(node, (Predicate, *DERIVED)) for node in walk(nnf(expression)))
    clauses, is_exact = cover(expression)
    assert len(clauses) <= max(NORMAL_FORM_LIMITS.clauses, 2 * n_leaves)
    assert is_exact or sum(map(len, clauses)) <= max(4096, 8 * n_leaves)
