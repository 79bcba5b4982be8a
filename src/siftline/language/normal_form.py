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

from enum import Enum
from typing import Final, NamedTuple

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
)

Clause = tuple[Expression, ...]

# A conjunction is multiplied out only up to this many clauses, or twice its literals if that is more ...
MAX_CLAUSES: Final = 64
# ... and up to this many literals in all of them, or eight times as many as it has.
MAX_LITERALS: Final = 4096


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


def dnf(expression: Expression) -> list[Clause] | None:
    """Return clauses of literals, or-ed, that match exactly when `expression` does; None if they would explode.

    >>> from siftline.model import Predicate
    >>> a, b, c = (Predicate(name, "=", 1) for name in "abc")
    >>> dnf((a | b) & c) == [(c, a), (c, b)]
    True
    """
    cover = _cover(nnf(expression), And, is_relaxed=False)
    return cover.clauses if cover.is_exact else None


def cnf(expression: Expression) -> list[Clause] | None:
    """Return clauses of literals, and-ed, each an `or`, that match exactly when `expression` does; None likewise."""
    cover = _cover(nnf(expression), Or, is_relaxed=False)
    return cover.clauses if cover.is_exact else None


class Cover(NamedTuple):
    """Clauses of literals, or-ed: a necessary condition of an expression, and a sufficient one if `is_exact`.

    With alternatives, a clause may also hold an `Or` of literals.
    """

    clauses: list[Clause]
    is_exact: bool


def cover(expression: Expression) -> Cover:
    """Return the strongest condition worth indexing that every matching event meets.

    It is the DNF if that does not explode. Otherwise conjuncts that would make it explode are left out. What no index
    decides (`any`, two attributes, lengths) is replaced by what it implies for single attributes. An exact
    check must then follow.

    >>> from siftline.model import Predicate
    >>> sku, qty = Predicate("sku", "=", "x"), Predicate("qty", ">", 2)
    >>> cover(AnyElement("items", sku & qty))
    Cover(clauses=[(Predicate('items.sku', '=', 'x'), Predicate('items.qty', '>', 2))], is_exact=False)
    """
    if isinstance(expression, And) and all(
        type(operand) is Predicate and not _is_mixture(operand) for operand in expression.operands
    ):
        return Cover([_distinct([expression.operands])], True)  # what most subscriptions are, without the detour
    return _cover(nnf(expression), And, is_relaxed=True)


def cover_with_alternatives(expression: Expression) -> Cover:
    """Return the cover, or, if that is shorter, the CNF as one clause, in which an `or` lists alternatives.

    >>> from siftline.model import Predicate
    >>> a, b, c, d, e = (Predicate(name, "=", 1) for name in "abcde")
    >>> cover_with_alternatives((a | b | c) & (d | e)).clauses == [(a | b | c, d | e)]
    True
    """
    found = cover(expression)
    if len(found.clauses) <= 1 and found.is_exact:
        return found
    clauses = cnf(expression)
    leaves = (parts_of(part)[0] for clause in clauses or () for part in clause)
    if clauses is None or not all(isinstance(leaf, (Predicate, AnyString)) for leaf in leaves):
        return found
    if found.is_exact and sum(map(len, found.clauses)) <= sum(map(len, clauses)):
        return found
    return Cover([tuple(clause[0] if len(clause) == 1 else Or(clause) for clause in clauses)], True)


def _cover(expression: Expression, product: type[And] | type[Or], *, is_relaxed: bool) -> Cover:
    """Multiply out: operands of `product` are combined, operands of the other connective are listed."""
    if isinstance(expression, (And, Or)):
        operands = merge_equalities(expression.operands) if isinstance(expression, Or) else expression.operands
        covers = [_cover(operand, product, is_relaxed=is_relaxed) for operand in operands]
        if isinstance(expression, product):
            return _multiplied(covers)
        return Cover([clause for part in covers for clause in part.clauses], all(part.is_exact for part in covers))
    if is_relaxed:
        leaf, asked = parts_of(expression)
        if isinstance(leaf, AnyElement):
            return _cover_of_any(leaf, asked)
        if isinstance(leaf, (Call, Constraint)):
            return Cover([()], False)  # operators decide it, on what the index leaves
        if isinstance(leaf, (AttributeComparison, Length)):
            return Cover([_implied_by_derived(leaf, asked)], False)
    if isinstance(expression, Predicate) and _is_mixture(expression):
        return _cover(Or(merge_equalities((expression,))), product, is_relaxed=is_relaxed)
    return Cover([(expression,)], True)


def _is_mixture(predicate: Predicate) -> bool:
    """Return whether a list has constants of several families; each of them is then a literal of its own."""
    return predicate.op == "in" and len({_family(value) for value in predicate.constants()}) > 1


def _family(constant: object) -> type | None:
    """Return what tells timestamps, and what moves with now, from each other and the rest."""
    return type(constant) if isinstance(constant, (Timestamp, Now)) else None


def _multiplied(covers: list[Cover]) -> Cover:
    """Combine every clause of every operand; an operand that would make too much of it is left out."""
    sizes = [sum(map(len, part.clauses)) for part in covers]
    n_literals = sum(sizes)
    clauses: list[Clause] = [_distinct([part.clauses[0] for part in covers if len(part.clauses) == 1])]
    size = len(clauses[0])
    is_exact = all(part.is_exact for part in covers)
    # Small operands first, so that what is left out is what costs most.
    for part, part_size in sorted(zip(covers, sizes, strict=True), key=lambda pair: len(pair[0].clauses)):
        if len(part.clauses) == 1:
            continue
        product_size = len(clauses) * part_size + len(part.clauses) * size
        is_many = len(clauses) * len(part.clauses) > max(MAX_CLAUSES, 2 * n_literals)
        if is_many or product_size > max(MAX_LITERALS, 8 * n_literals):
            is_exact = False
        else:
            clauses = [_distinct([left, right]) for left in clauses for right in part.clauses]
            size = product_size
    return Cover(clauses, is_exact)


def _distinct(clauses: list[Clause]) -> Clause:
    """Join clauses to one, each literal once."""
    return tuple(dict.fromkeys(literal for clause in clauses for literal in clause))


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


def _cover_of_any(leaf: AnyElement, asked: Asked) -> Cover:
    """Return what a literal over `any path (...)` implies for the attributes of the whole event."""
    if asked is Asked.TRUE:
        implied = _cover(_implied(nnf(leaf.operand), leaf.attribute), And, is_relaxed=True)
        return Cover(implied.clauses, False)
    return Cover([()], False)


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
