"""Sets of codes as sorted, disjoint, inclusive ranges; and the codes that satisfy a predicate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from siftline.encoding.domain import BOOLEANS, NOT_NULL, NUMBERS, PRESENT, STRINGS, Bounds, after_prefix
from siftline.model import POSITIVE_OF, Predicate, kind_of
from siftline.model.predicate import IGNORING_CASE
from siftline.model.wildcard import literal_like, parse_like

if TYPE_CHECKING:
    from collections.abc import Iterable

    from siftline.encoding.domain import Domain, Section

Range = tuple[int, int]
Ranges = list[Range]

SECTIONS = {"boolean": BOOLEANS, "number": NUMBERS, "string": STRINGS}


class Spaces(NamedTuple):
    """Codes of values that satisfy a predicate, and codes of values that it can be compared with.

    A constant without a label lies among values with the same codes, some of which satisfy the predicate and some of
    which do not: `satisfying` has these codes, and `surely` has not. For the same reason `satisfying` has all strings,
    and `surely` nothing, where codes say nothing at all (`contains` and its like: `is_opaque`).
    """

    satisfying: Ranges
    surely: Ranges
    comparable: Ranges
    is_opaque: bool = False

    @property
    def is_tight(self) -> bool:
        """Whether codes decide the predicate."""
        return self.satisfying == self.surely


def spaces(predicate: Predicate, domain: Domain) -> Spaces:
    """Return the codes for a predicate with constants; timestamps must be numbers already.

    >>> from siftline.encoding.domain import Domain
    >>> domain = Domain()
    >>> label = domain.numbers.place(5)
    >>> spaces(Predicate("a", "<", 5), domain).satisfying == [(NUMBERS.first, label - 1)]
    True
    >>> spaces(Predicate("a", "<", 4), domain)[:2] == ([(NUMBERS.first, label - 1)], [])
    True
    """
    predicate = simplified(predicate)
    positive = POSITIVE_OF.get(predicate.op, predicate.op)
    comparable: Ranges = [SECTIONS[kind] for kind in sorted({kind_of(value) for value in predicate.constants()})]
    found = satisfying_codes(positive, tuple(predicate.constants()), domain)
    if found is None:
        return Spaces([STRINGS], [], comparable, True)
    satisfying, surely = found
    if positive != predicate.op:
        satisfying, surely = subtract(comparable, surely), subtract(comparable, satisfying)
    return Spaces(satisfying, surely, comparable)


def simplified(predicate: Predicate) -> Predicate:
    """Replace a `like` that is really an equality or a prefix test, and what ignores case by an `ilike`."""
    if predicate.op.endswith(IGNORING_CASE):
        return _without_case(predicate)
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


def _without_case(predicate: Predicate) -> Predicate:
    """Return an `ilike` that asks the same; a list of several strings stays as it is."""
    positive = POSITIVE_OF.get(predicate.op, predicate.op).removesuffix(IGNORING_CASE)
    is_negative, constants = predicate.op in POSITIVE_OF, tuple(predicate.constants())
    if not constants:
        return Predicate(predicate.attribute, "not in" if is_negative else "in", ())
    if len(constants) > 1:
        return predicate
    text = literal_like(str(constants[0]))
    pattern = {"starts with": f"{text}%", "ends with": f"%{text}", "contains": f"%{text}%"}.get(positive, text)
    return Predicate(predicate.attribute, "not ilike" if is_negative else "ilike", pattern)


def boundaries(predicate: Predicate) -> Iterable[Any]:
    """Yield the constants that a domain should hold so that codes decide the predicate."""
    if predicate.op.endswith(IGNORING_CASE):
        return  # codes never decide it
    predicate = simplified(predicate)
    if POSITIVE_OF.get(predicate.op, predicate.op) == "starts with":
        assert isinstance(predicate.operand, str)
        yield predicate.operand
        end = after_prefix(predicate.operand)
        if end is not None:
            yield end
    elif not is_opaque(predicate.op):
        yield from predicate.constants()


def is_opaque(op: str) -> bool:
    """Return whether codes say nothing about an operator."""
    return op.endswith(("ends with", "contains", "like", "matches", "cidr", IGNORING_CASE))


def satisfying_codes(positive: str, constants: tuple[Any, ...], domain: Domain) -> tuple[Ranges, Ranges] | None:
    """Return the codes that values may have that satisfy a predicate, and those that only such values have."""
    if is_opaque(positive):
        return None
    if positive == "starts with":
        return _with_prefix(constants[0], domain)
    bounds = [domain.bounds(value) for value in constants]
    match positive:
        case "=" | "in":
            return sorted({each[:2] for each in bounds}), sorted({each[:2] for each in bounds if each.is_exact})
        case "between":
            return _between(*bounds)
        case "<" | "<=" | ">" | ">=":
            return _half_line(positive, bounds[0], SECTIONS[kind_of(constants[0])])
    return None


def _range(low: int, high: int) -> Ranges:
    return [(low, high)] if low <= high else []


def _between(low: Bounds, high: Bounds) -> tuple[Ranges, Ranges]:
    surely = _range(low.low if low.is_exact else low.high + 1, high.high if high.is_exact else high.low - 1)
    return _range(low.low, high.high), surely


def _half_line(op: str, bounds: Bounds, section: Section) -> tuple[Ranges, Ranges]:
    low, high, is_exact = bounds
    is_in = op.endswith("=")
    if op.startswith("<"):
        least = _range(section.first, high if is_exact and is_in else low - 1)
        return (least if is_exact else _range(section.first, high)), least
    least = _range(low if is_exact and is_in else high + 1, section.last)
    return (least if is_exact else _range(low, section.last)), least


def _with_prefix(prefix: str, domain: Domain) -> tuple[Ranges, Ranges]:
    """Return codes from the prefix to just below the end of all that begin with it."""
    low, end = domain.bounds(prefix), after_prefix(prefix)
    if end is None:
        return _between(low, Bounds(STRINGS.last, STRINGS.last, True))
    high = domain.bounds(end)
    return _between(low, Bounds(high.low - 1, high.low - 1, True) if high.is_exact else high)


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
