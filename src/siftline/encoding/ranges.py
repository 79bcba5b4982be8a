"""Sets of codes as sorted, disjoint, inclusive ranges; and the codes that satisfy a predicate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from siftline.encoding.domain import BOOLEANS, NOT_NULL, NUMBERS, PRESENT, STRINGS, after_prefix
from siftline.model import POSITIVE_OF, Predicate, kind_of
from siftline.model.wildcard import parse_like

if TYPE_CHECKING:
    from collections.abc import Iterable

    from siftline.encoding.domain import Domain, Section
    from siftline.model import Constant

Range = tuple[int, int]
Ranges = list[Range]

SECTIONS = {"boolean": BOOLEANS, "number": NUMBERS, "string": STRINGS}


class Spaces(NamedTuple):
    """Codes of values that satisfy a predicate, and codes of values that it can be compared with."""

    satisfying: Ranges
    comparable: Ranges
    # False if `satisfying` also holds codes of values that do not satisfy the predicate (`contains` and its like).
    is_tight: bool


def spaces(predicate: Predicate, domain: Domain) -> Spaces:
    """Return the codes for a predicate with constants, which must be in the domain; timestamps must be numbers already.

    >>> from siftline.encoding.domain import Domain
    >>> domain = Domain()
    >>> _ = domain.numbers.insert([5])
    >>> label = domain.numbers.code(5)
    >>> spaces(Predicate("a", "<", 5), domain).satisfying == [(NUMBERS.first, label - 1)]
    True
    """
    predicate = simplified(predicate)
    positive = POSITIVE_OF.get(predicate.op, predicate.op)
    comparable: Ranges = [SECTIONS[kind] for kind in sorted({kind_of(value) for value in predicate.constants()})]
    satisfying = _satisfying(positive, predicate, domain)
    if satisfying is None:
        return Spaces([STRINGS], comparable, False)
    if positive != predicate.op:
        satisfying = subtract(comparable, satisfying)
    return Spaces(satisfying, comparable, True)


def simplified(predicate: Predicate) -> Predicate:
    """Replace a `like` that is really an equality or a prefix test."""
    if not predicate.op.endswith("like") or predicate.op.endswith("ilike") or not isinstance(predicate.operand, str):
        return predicate
    first, *others = parse_like(predicate.operand)
    if None in first or others not in ([], [()]):
        return predicate
    text = "".join(character for character in first if character is not None)
    is_negative = predicate.op in POSITIVE_OF
    if others:
        return Predicate(predicate.attribute, "not starts with" if is_negative else "starts with", text)
    return Predicate(predicate.attribute, "!=" if is_negative else "=", text)


def boundaries(predicate: Predicate) -> Iterable[Any]:
    """Yield the constants that a domain must hold so that `spaces` can tell the predicate's codes."""
    predicate = simplified(predicate)
    if POSITIVE_OF.get(predicate.op, predicate.op) == "starts with":
        assert isinstance(predicate.operand, str)
        yield predicate.operand
        end = after_prefix(predicate.operand)
        if end is not None:
            yield end
    elif not _is_opaque(predicate.op):
        yield from predicate.constants()


def _is_opaque(op: str) -> bool:
    return op.endswith(("ends with", "contains", "like", "matches", "cidr"))


def _satisfying(positive: str, predicate: Predicate, domain: Domain) -> Ranges | None:
    operand = predicate.operand
    match positive:
        case "=":
            return [_point(operand, domain)]  # type: ignore[arg-type]
        case "in":
            return sorted({_point(value, domain) for value in predicate.constants()})  # type: ignore[arg-type]
        case "between":
            low, high = predicate.constants()
            return _range(domain.code(low), domain.code(high))  # type: ignore[arg-type]
        case "starts with":
            return _with_prefix(operand, domain)  # type: ignore[arg-type]
        case "<" | "<=" | ">" | ">=":
            return _half_line(positive, domain.code(operand), SECTIONS[kind_of(operand)])  # type: ignore[arg-type]
    return None


def _point(value: Constant, domain: Domain) -> Range:
    code = domain.code(value)
    return code, code


def _range(low: int, high: int) -> Ranges:
    return [(low, high)] if low <= high else []


def _half_line(op: str, label: int, section: Section) -> Ranges:
    match op:
        case "<":
            return [(section.first, label - 1)]
        case "<=":
            return [(section.first, label)]
        case ">":
            return [(label + 1, section.last)]
    return [(label, section.last)]


def _with_prefix(prefix: str, domain: Domain) -> Ranges:
    end = after_prefix(prefix)
    last = STRINGS.last if end is None else domain.code(end) - 1
    return [(domain.code(prefix), last)]


def subtract(ranges: Iterable[Range], holes: Iterable[Range]) -> Ranges:
    """Return what of `ranges` lies outside the `holes`; both sorted and disjoint.

    >>> subtract([(0, 9)], [(0, 0), (5, 6)])
    [(1, 4), (7, 9)]
    """
    left: Ranges = []
    pending = list(holes)
    for low, high in ranges:
        for hole_low, hole_high in pending:
            if hole_high < low or hole_low > high:
                continue
            if hole_low > low:
                left.append((low, hole_low - 1))
            low = hole_high + 1
        if low <= high:
            left.append((low, high))
    return left


def presence(op: str) -> tuple[Section, bool]:
    """Return, for a test of presence, a range of codes and whether some value must (or no value may) lie in it."""
    return {"exists": (PRESENT, True), "is not null": (NOT_NULL, True), "is null": (NOT_NULL, False)}[op]
