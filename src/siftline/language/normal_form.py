"""Normal forms: negation pushed to the leaves, DNF, CNF, and a necessary condition for indexing.

Truth is three-valued, so pushing a negation inwards has four targets, not two. A *literal* asks one of them of a leaf p
(a predicate, an `any`, a call):

    p                              p is true
    not p                          p is false          (some element is comparable, none satisfies p)
    not (p is true)                p is not true       (false or unknown)
    not ((not p) is true)          p is not false      (true or unknown)

Over literals, `and` and `or` are two-valued, and the usual laws of Boolean algebra hold. Nothing is ever folded inside
a literal: on arrays, `a > 2 and a < 2` can hold.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from siftline.language.likelihood import NOT_WORTH_FINDING, Likelihood, likelihood_by_form
from siftline.model import (
    TRUE,
    And,
    AnyElement,
    AnyString,
    AttributeComparison,
    Call,
    Constraint,
    Expression,
    IsTrue,
    Length,
    Not,
    Now,
    Or,
    Predicate,
    Timestamp,
    walk,
)
from siftline.model.predicate import CASELESS, TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterator

Clause = tuple[Expression, ...]

# What many products stop at, so that the numbers stay small.
_ENDLESS: Final = 1 << 60
# A clause of witnesses has at most this many literals: more leave hardly fewer candidates.
WITNESS_LITERALS_MAX: Final = 4
_INSIDE: Final = (TEXTS | CASELESS) - {"starts with", "not starts with"}
# How likely a value is that does not satisfy a predicate.
_LIKELY: Final = 0.9


class Asked(Enum):
    """What a literal asks of its leaf."""

    TRUE = "true"
    FALSE = "false"
    NOT_TRUE = "not true"
    NOT_FALSE = "not false"


_NEGATED = {
    Asked.TRUE: Asked.FALSE,
    Asked.FALSE: Asked.TRUE,
    Asked.NOT_TRUE: Asked.NOT_FALSE,
    Asked.NOT_FALSE: Asked.NOT_TRUE,
}
# `x is true` is never unknown, so asking "false" and "not true" of it is the same.
_DECIDED = {
    Asked.TRUE: Asked.TRUE,
    Asked.FALSE: Asked.NOT_TRUE,
    Asked.NOT_TRUE: Asked.NOT_TRUE,
    Asked.NOT_FALSE: Asked.TRUE,
}
# Whether `and` stays `and` when this is asked of it.
_KEEPS_CONNECTIVE = {Asked.TRUE, Asked.NOT_FALSE}


def nnf(expression: Expression, asked: Asked = Asked.TRUE) -> Expression:
    """Return an expression over literals, and / or only, that is true exactly when `expression` is as asked.

    >>> from siftline.model import Predicate
    >>> a, b = Predicate("a", "=", 1), Predicate("b", "=", 2)
    >>> nnf(Not(a & ~b)) == Not(a) | b
    True
    """
    match expression:
        case And(operands) | Or(operands):
            parts = tuple(nnf(operand, asked) for operand in operands)
            is_and = isinstance(expression, And) is (asked in _KEEPS_CONNECTIVE)
            return And(parts) if is_and else Or(parts)
        case Not(operand):
            return nnf(operand, _NEGATED[asked])
        case IsTrue(operand):
            return nnf(operand, _DECIDED[asked])
    return literal(expression, asked)


def literal(leaf: Expression, asked: Asked) -> Expression:
    """Return the literal that asks `asked` of a leaf."""
    match asked:
        case Asked.TRUE:
            return leaf
        case Asked.FALSE:
            return Not(leaf)
        case Asked.NOT_TRUE:
            return Not(IsTrue(leaf))
    return Not(IsTrue(Not(leaf)))


def parts_of(literal: Expression) -> tuple[Expression, Asked]:
    """Return the leaf of a literal and what is asked of it.

    >>> from siftline.model import Predicate
    >>> parts_of(Not(IsTrue(Predicate("a", "=", 1))))
    (Predicate('a', '=', 1), <Asked.NOT_TRUE: 'not true'>)
    """
    match literal:
        case Not(IsTrue(Not(leaf))):
            return leaf, Asked.NOT_FALSE
        case Not(IsTrue(leaf)):
            return leaf, Asked.NOT_TRUE
        case Not(leaf):
            return leaf, Asked.FALSE
    return literal, Asked.TRUE


class Limits(NamedTuple):
    """How far an expression is multiplied out: up to a number, or so many for each of its literals if that is more."""

    clauses: int
    clauses_per_literal: int
    literals: int
    literals_per_literal: int


# For normal forms that somebody asked for, and for what an index looks for where codes decide it, in nanoseconds.
NORMAL_FORM_LIMITS: Final = Limits(64, 2, 4096, 8)
# For what an index looks for inside strings: each text is searched in every event, and a check costs less than many.
COVER_LIMITS: Final = Limits(16, 1, 32, 2)


def literals_of(expression: Expression) -> Iterator[Expression]:
    """Yield the literals of an expression in NNF, from left to right."""
    pending = [expression]
    while pending:
        node = pending.pop()
        if isinstance(node, (And, Or)):
            pending.extend(reversed(node.operands))
        else:
            yield node


def dnf(expression: Expression) -> list[Clause] | None:
    """Return clauses of literals, or-ed, that match exactly when `expression` does; None if they would explode.

    >>> from siftline.model import Predicate
    >>> a, b, c = (Predicate(name, "=", 1) for name in "abc")
    >>> dnf((a | b) & c) == [(c, a), (c, b)]
    True
    """
    return _multiplied_out(_joined(nnf(expression)), And, NORMAL_FORM_LIMITS)


def cnf(expression: Expression) -> list[Clause] | None:
    """Return clauses of literals, and-ed, each an `or`, that match exactly when `expression` does; None likewise."""
    return _multiplied_out(_joined(nnf(expression)), Or, NORMAL_FORM_LIMITS)


class Cover(NamedTuple):
    """Clauses of literals, or-ed: a necessary condition of an expression, and a sufficient one if `is_exact`.

    With alternatives, a clause may also hold an `Or` of literals.
    """

    clauses: list[Clause]
    is_exact: bool


def cover(expression: Expression, likelihood: Likelihood = likelihood_by_form) -> Cover:
    """Return a condition worth indexing that every matching event meets.

    It is the DNF if that is small. Otherwise it lists *witnesses*: literals of which one must be true, each with what
    else must be true then. What no index decides (`any`, two attributes, lengths) is replaced by what it
    implies for single attributes. An exact check must then follow.

    Parameters
    ----------
    expression : Expression
        Any expression.
    likelihood : callable
        Estimates how often a leaf is true, for the choice of witnesses.

    >>> from siftline.model import Predicate
    >>> sku, qty = Predicate("sku", "=", "x"), Predicate("qty", ">", 2)
    >>> cover(AnyElement("items", sku & qty))
    Cover(clauses=[(Predicate('items.sku', '=', 'x'), Predicate('items.qty', '>', 2))], is_exact=False)
    """
    if isinstance(expression, And) and all(
        type(operand) is Predicate and not _is_regex(operand) and not _is_mixture(operand)
        for operand in expression.operands
    ):
        return Cover([_distinct([expression.operands])], True)  # what most subscriptions are, without the detour
    condition = indexable(expression)
    clauses = _multiplied_out(condition, And, COVER_LIMITS)
    if clauses is None and not any(map(_looks_inside, literals_of(condition))):
        clauses = _multiplied_out(condition, And, NORMAL_FORM_LIMITS)
    if clauses is None:
        return Cover(_Search(likelihood).witnesses(condition).clauses, False)
    found = [_worth_finding(clause, likelihood) for clause in clauses]
    return Cover(found, found == clauses and _is_decided(expression))


def cover_with_alternatives(expression: Expression, likelihood: Likelihood = likelihood_by_form) -> Cover:
    """Return the cover, or, if that is shorter, the CNF as one clause, in which an `or` lists alternatives.

    >>> from siftline.model import Predicate
    >>> a, b, c, d, e = (Predicate(name, "=", 1) for name in "abcde")
    >>> cover_with_alternatives((a | b | c) & (d | e)).clauses == [(a | b | c, d | e)]
    True
    """
    found = cover(expression, likelihood)
    if len(found.clauses) <= 1 and found.is_exact:
        return found
    clauses = cnf(expression)
    leaves = (parts_of(part)[0] for clause in clauses or () for part in clause)
    if clauses is None or not all(isinstance(leaf, (Predicate, AnyString)) for leaf in leaves):
        return found
    if found.is_exact and sum(map(len, found.clauses)) <= sum(map(len, clauses)):
        return found
    return Cover([tuple(clause[0] if len(clause) == 1 else Or(clause) for clause in clauses)], True)


def indexable(expression: Expression) -> Expression:
    """Return what an expression implies, with and / or over literals that an index can look for.

    >>> from siftline.model import Predicate
    >>> one = Predicate("a", "=", 1)
    >>> indexable(~(one & ~AnyElement("items", Predicate("sku", "=", "x")))) == ~one | Predicate("items.sku", "=", "x")
    True
    """
    return _joined(nnf(expression), is_relaxed=True)


def _joined(expression: Expression, *, is_relaxed: bool = False) -> Expression:
    """Return an expression (in NNF) with its equalities joined; if wanted, with only what an index can look for."""
    if isinstance(expression, Or):
        operands = merge_equalities(expression.operands)
        return Or(tuple(_joined(operand, is_relaxed=is_relaxed) for operand in operands))
    if isinstance(expression, And):
        return And(tuple(_joined(operand, is_relaxed=is_relaxed) for operand in expression.operands))
    if is_relaxed:
        leaf, asked = parts_of(expression)
        if isinstance(leaf, AnyElement):
            return _implied_by_any(leaf) if asked is Asked.TRUE else TRUE
        if isinstance(leaf, (Call, Constraint)):
            return TRUE  # operators decide it, on what the index leaves
        if isinstance(leaf, (AttributeComparison, Length)):
            return And(_implied_by_derived(leaf, asked))
    if isinstance(expression, Predicate) and _is_mixture(expression):
        return Or(merge_equalities((expression,)))
    return expression


def _is_decided(expression: Expression) -> bool:
    """Return whether an index decides every leaf."""
    return all(isinstance(node, (Predicate, AnyString, And, Or, Not, IsTrue)) for node in walk(expression))


# products


def _multiplied_out(expression: Expression, product: type[And] | type[Or], limits: Limits) -> list[Clause] | None:
    """Return clauses for joined literals: operands of `product` are combined, those of the other one are listed.

    None if there would be more of them, or longer ones, than the limits allow.
    """
    n_clauses, n_literals = _size(expression, product)
    if n_clauses > limits.clauses or n_literals > limits.literals:
        n_leaves = sum(1 for _ in literals_of(expression))
        if n_clauses > max(limits.clauses, limits.clauses_per_literal * n_leaves):
            return None
        if n_literals > max(limits.literals, limits.literals_per_literal * n_leaves):
            return None
    return _product(expression, product)


def _size(expression: Expression, product: type[And] | type[Or]) -> tuple[int, int]:
    """Return how many clauses an expression has, and how many literals all of them have."""
    if not isinstance(expression, (And, Or)):
        return 1, 1
    sizes = [_size(operand, product) for operand in expression.operands]
    if not isinstance(expression, product):
        return sum(n for n, _ in sizes), sum(n for _, n in sizes)
    n_clauses, n_literals = 1, 0
    for more_clauses, more_literals in sizes:
        n_literals = min(n_literals * more_clauses + n_clauses * more_literals, _ENDLESS)
        n_clauses = min(n_clauses * more_clauses, _ENDLESS)
    return n_clauses, n_literals


def _product(expression: Expression, product: type[And] | type[Or]) -> list[Clause]:
    """Return the clauses of an expression."""
    if not isinstance(expression, (And, Or)):
        return [(expression,)]
    parts = [_product(operand, product) for operand in expression.operands]
    if not isinstance(expression, product):
        return [clause for part in parts for clause in part]
    clauses: list[Clause] = [_distinct([part[0] for part in parts if len(part) == 1])]
    for part in parts:
        if len(part) != 1:
            clauses = [_distinct([left, right]) for left in clauses for right in part]
    return clauses


def _distinct(clauses: list[Clause]) -> Clause:
    """Join clauses to one, each literal once."""
    return tuple(dict.fromkeys(literal for clause in clauses for literal in clause))


# witnesses


class _Witnesses(NamedTuple):
    """Clauses of which one must hold, and how many of them an event is expected to satisfy."""

    clauses: list[Clause]
    expected: float


# What holds for every event. It expects more than any number of witnesses does.
_EVERY_EVENT: Final = _Witnesses([()], 1e9)


class _Search:
    """A search for the witnesses of one expression."""

    def __init__(self, likelihood: Likelihood) -> None:
        self._likelihood = likelihood
        self._known: dict[int, float] = {}  # by the identity of a literal, which the expression keeps alive

    def witnesses(self, expression: Expression) -> _Witnesses:
        """Return few short clauses, one of which holds if an expression does.

        For an `or` they are those of all operands, for an `and` those of the operand that the fewest events satisfy.
        What must hold besides, because it is a conjunct by itself, makes each of them rarer.
        """
        if not isinstance(expression, (And, Or)):
            return _Witnesses([(expression,)], self._likelihood_of(expression))
        found = [self.witnesses(operand) for operand in expression.operands]
        if isinstance(expression, Or):
            listed = dict.fromkeys(clause for part in found for clause in part.clauses)
            return _Witnesses(list(listed), sum(part.expected for part in found))
        required = _distinct([part.clauses[0] for part in found if len(part.clauses) == 1])
        sets = [part for part in found if len(part.clauses) != 1]
        best = min(sets, key=lambda part: part.expected, default=_EVERY_EVENT)
        if best.expected >= _EVERY_EVENT.expected and required:
            best = _EVERY_EVENT
        clauses = [self._shortened(_distinct([required, clause])) for clause in best.clauses]
        return _Witnesses(clauses, sum(map(self._expected, clauses)))

    def _shortened(self, clause: Clause) -> Clause:
        """Return the rarest literals of a clause; what is true of most values, or of none, only if need be."""
        ordered = sorted(clause, key=self._likelihood_of)
        for most in (_LIKELY, _EVERY_EVENT.expected):
            rare = [literal for literal in ordered if self._likelihood_of(literal) < most]
            if rare:
                ordered = rare
                break
        return _worth_finding(tuple(ordered[:WITNESS_LITERALS_MAX]), self._likelihood)

    def _expected(self, clause: Clause) -> float:
        """Return how likely all literals of a clause are to hold, as if they did not depend on each other."""
        return math.prod(map(self._likelihood_of, clause)) if clause else _EVERY_EVENT.expected

    def _likelihood_of(self, literal: Expression) -> float:
        known = self._known.get(id(literal))
        if known is None:
            leaf, asked = parts_of(literal)
            known = _EVERY_EVENT.expected
            if asks_for_value(literal):
                known = self._likelihood(leaf) if asked is Asked.TRUE else _LIKELY
            self._known[id(literal)] = known
        return known


def _worth_finding(clause: Clause, likelihood: Likelihood) -> Clause:
    """Return a clause without what takes longer to find than to check, unless an index would find nothing else."""
    if not any(map(_is_regex, clause)):
        return clause
    found = tuple(each for each in clause if not _is_regex(each) or likelihood(parts_of(each)[0]) < NOT_WORTH_FINDING)
    return found if any(map(asks_for_value, found)) else clause


def _looks_inside(literal: Expression) -> bool:
    """Return whether a literal looks inside strings, so that codes do not decide it."""
    leaf, _ = parts_of(literal)
    return isinstance(leaf, AnyString) or (isinstance(leaf, Predicate) and leaf.op in _INSIDE)


def _is_regex(literal: Expression) -> bool:
    leaf, _ = parts_of(literal)
    return isinstance(leaf, Predicate) and leaf.op == "matches"


def asks_for_value(literal: Expression) -> bool:
    """Return whether an index finds a literal by a value of the event: it is not true just because there is none.

    >>> from siftline.model import Predicate
    >>> one = Predicate("a", "=", 1)
    >>> asks_for_value(Not(one)), asks_for_value(Not(IsTrue(one))), asks_for_value(Predicate("a", "is null"))
    (True, False, False)
    """
    leaf, asked = parts_of(literal)
    if isinstance(leaf, Predicate) and leaf.op in ("exists", "is null", "is not null"):
        return (leaf.op != "is null") is (asked in (Asked.TRUE, Asked.NOT_FALSE))
    return asked in (Asked.TRUE, Asked.FALSE)


# what is listed, and what is implied


def _is_mixture(predicate: Predicate) -> bool:
    """Return whether a list has constants of several families; each of them is then a literal of its own."""
    return predicate.op == "in" and len({_family(value) for value in predicate.constants()}) > 1


def _family(constant: object) -> type | None:
    """Return what tells timestamps, and what moves with now, from each other and the rest."""
    return type(constant) if isinstance(constant, (Timestamp, Now)) else None


def merge_equalities(operands: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """Join `a = 1 or a in (2, 3)` to `a in (1, 2, 3)`: one clause instead of many, with the same meaning.

    Only literals that ask for truth may be joined: `in` over two kinds is false where one equality is unknown.
    Timestamps, and what moves with now, stay apart from each other and the rest: each is asked of another number.
    """
    constants: dict[tuple[str | None, object], dict[tuple[bool, object], None]] = {}
    others: list[Expression] = []
    for operand in operands:
        if isinstance(operand, Predicate) and operand.op in ("=", "in"):
            for value in operand.constants():
                # A dict keeps the order; the flag keeps True and 1 apart.
                constants.setdefault((operand.attribute, _family(value)), {})[type(value) is bool, value] = None
        else:
            others.append(operand)
    merged = [_equality(attribute, [value for _, value in seen]) for (attribute, _), seen in constants.items()]
    return (*merged, *others)


def _equality(attribute: str | None, values: list[object]) -> Expression:
    if len(values) == 1:
        return Predicate(attribute, "=", values[0])  # type: ignore[arg-type]
    return Predicate(attribute, "in", tuple(values))  # type: ignore[arg-type]


def _implied_by_derived(leaf: Expression, asked: Asked) -> tuple[Predicate, ...]:
    """Return what is true of single attributes if a literal holds that looks at more than their values."""
    if asked in (Asked.NOT_TRUE, Asked.NOT_FALSE):
        return ()
    match leaf:
        case AttributeComparison():
            return Predicate(leaf.attribute, "is not null"), Predicate(leaf.other, "is not null")
        case Length():
            return (Predicate(leaf.attribute, "starts with", ""),)  # it is a string
    return ()


def _implied_by_any(leaf: AnyElement) -> Expression:
    """Return what `any path (...)` implies for the attributes of the whole event, for an index."""
    return _joined(_implied(nnf(leaf.operand), leaf.attribute), is_relaxed=True)


def _implied(expression: Expression, prefix: str) -> Expression:
    """Return what is true of the whole event if `expression` (in NNF) holds for one element below `prefix`."""
    match expression:
        case And(operands):
            return And(tuple(_implied(operand, prefix) for operand in operands))
        case Or(operands):
            return Or(tuple(_implied(operand, prefix) for operand in operands))
    leaf, asked = parts_of(expression)
    if isinstance(leaf, AnyElement) and asked is Asked.TRUE:
        return AnyElement(f"{prefix}.{leaf.attribute}", leaf.operand)
    if isinstance(leaf, Predicate):
        return _implied_by_predicate(leaf, asked, prefix)
    if isinstance(leaf, AnyString):
        return leaf if asked is Asked.TRUE else TRUE  # the strings of an element are strings of the event
    implied = _implied_by_derived(leaf, asked)
    return And([_implied_by_predicate(predicate, Asked.TRUE, prefix) for predicate in implied])


def _implied_by_predicate(leaf: Predicate, asked: Asked, prefix: str) -> Expression:
    path = prefix if leaf.attribute is None else f"{prefix}.{leaf.attribute}"
    if leaf.op == "is null":
        # Another element may well have a value: only the negation says something about the whole event.
        return Predicate(path, "is not null") if asked in (Asked.FALSE, Asked.NOT_TRUE) else TRUE
    if asked is Asked.TRUE:
        return Predicate(path, leaf.op, leaf.operand)
    if asked is Asked.FALSE and leaf.op not in ("exists", "is not null"):
        return Predicate(path, "exists")
    return TRUE
