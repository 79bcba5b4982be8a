"""The short way from a plain conjunction to coded literals, for adding one subscription at a time.

Most subscriptions are conjunctions of comparisons, lists, prefixes, patterns and times. Their codes can be read off the
domains right away, or are new labels there, without normal forms: a fifth of the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.encoding.domain import NUMBERS, STRINGS, TRUE, after_prefix
from siftline.encoding.domains import PATTERN_OPS, Pattern
from siftline.encoding.moments import derived_comparison
from siftline.encoding.ranges import satisfying_codes, simplified
from siftline.model import And, Now, Predicate, Timestamp
from siftline.model.predicate import IGNORING_CASE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from siftline.encoding.domains import Domains, MomentOf
    from siftline.encoding.ranges import Range
    from siftline.model import Expression

# (attribute, low, high, ranges): some value of the attribute has a code from low to high; if there are several ranges,
# in one of them.
Row = tuple[int, int, int, tuple["Range", ...]]

# More predicates, or constants in one list, take the long way, which knows the limits.
_PLAIN_MAX: Final = 64
_COMPARISONS: Final = frozenset(("=", "<", "<=", ">", ">="))
_KINDS: Final = frozenset((int, float, str))
# Operators of strings that codes decide if the string is among the constants, or that only a pattern decides.
_PREFIX: Final = "starts with"
_LIKE: Final = "like"
_OPAQUE: Final = PATTERN_OPS - {_PREFIX, _LIKE}


def known_rows(expression: Expression, domains: Domains) -> list[Row] | None:
    """Return the literals of a conjunction, equalities first; None if it is not plain.

    If it has new attributes, constants or patterns, there are none.

    >>> from siftline.encoding.domains import Domains
    >>> domains = Domains()
    >>> domains.add({"a": [5]})
    []
    >>> label = domains.domains[0].numbers.code(5)
    >>> known_rows(Predicate("a", "=", 5), domains) == [(0, label, label, ())]
    True
    >>> known_rows(Predicate("a", "=", 6), domains)
    []
    """
    predicates: Any = expression.operands if type(expression) is And else (expression,)
    if not 0 < len(predicates) <= _PLAIN_MAX:
        return None
    rows: list[Row] = []
    for predicate in predicates:
        plain = _plain(predicate)
        if plain is None:
            return None
        path, op, operand = plain
        attribute = domains.known_id(path)
        row = None if attribute is None else _known_row(attribute, op, operand, domains)
        if row is None:
            return []
        rows.insert(_place(row, rows), row)
    return rows


def _place(row: Row, rows: Sequence[Row]) -> int:
    """Return where a literal goes: the first is all that is looked at of most clauses, and should be an equality."""
    return 0 if row[1] == row[2] else len(rows)


class PlainRows(NamedTuple):
    """What a plain conjunction asks of codes, as two clauses where there was no room for some of its constants."""

    exact: Sequence[Row] = ()  # whatever has these codes satisfies it; nothing: there is no such clause
    wide: Sequence[Row] = ()  # whatever satisfies it has these codes; nothing: the other clause says it all

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The numbers of clauses, literals and ranges of sets."""
        exact, wide = self
        n_ranges = sum([len(row[3]) for row in exact]) + sum([len(row[3]) for row in wide])
        return bool(exact) + bool(wide), len(exact) + len(wide), n_ranges


def placed_rows(expression: Expression, domains: Domains) -> PlainRows | None:
    """Return the literals of a conjunction whose constants and patterns go into the domains; None if it is not plain.

    >>> from siftline.encoding.domains import Domains
    >>> domains = Domains()
    >>> exact, wide = placed_rows(Predicate("a", "=", 6), domains)
    >>> exact == known_rows(Predicate("a", "=", 6), domains), wide
    (True, ())
    """
    predicates: Any = expression.operands if type(expression) is And else (expression,)
    plain = [_plain(predicate) for predicate in predicates]
    if not 0 < len(plain) <= _PLAIN_MAX or None in plain:
        return None
    exact: list[Row] = []
    wide: list[Row] = []
    has_room = True
    for path, op, operand in plain:  # type: ignore[misc]
        attribute = domains.intern_any(path)
        row: Row | None = _placed_row(attribute, op, operand, domains)
        if row is not None:
            exact.insert(_place(row, exact), row)
            wide.insert(_place(row, wide), row)
            continue
        has_room = False
        found = satisfying_codes(op, operand if type(operand) is tuple else (operand,), domains.domains[attribute])
        if found is None or not found[0]:
            return None
        wide.append(_hull(attribute, found[0]))
        exact += [_hull(attribute, found[1])] if found[1] else []
    if has_room:
        return PlainRows(exact)
    return PlainRows(exact if len(exact) == len(wide) else (), wide)


def _hull(attribute: int, ranges: Sequence[Range]) -> Row:
    return attribute, ranges[0][0], ranges[-1][1], tuple(ranges) if len(ranges) > 1 else ()


def _plain(predicate: Expression) -> tuple[str | MomentOf, str, Any] | None:
    """Return what a predicate asks of which attribute; None if it is not plain."""
    if type(predicate) is not Predicate or predicate.attribute is None:
        return None
    attribute, op, operand = predicate.attribute, predicate.op, predicate.operand
    if op == _LIKE or op.endswith(IGNORING_CASE):
        predicate = simplified(predicate)
        op, operand = predicate.op, predicate.operand
    kind: type = type(operand)
    if kind is Timestamp or kind is Now or (kind is tuple and _has_moments(operand)):
        derived = derived_comparison(predicate)
        if derived is None:
            return None
        path, (op, operand) = derived[0], (derived[1].op, derived[1].operand)
        return (path, op, operand) if op in _COMPARISONS or _is_plain_tuple(op, operand) else None
    if op in _COMPARISONS:
        return (attribute, op, operand) if kind in _KINDS else None
    if kind is str and op in PATTERN_OPS:
        return attribute, op, operand
    return (attribute, op, operand) if kind is tuple and _is_plain_tuple(op, operand) else None


def _has_moments(operand: Any) -> bool:
    return any(type(value) is Timestamp or type(value) is Now for value in operand)


def _is_plain_tuple(op: str, operand: Any) -> bool:
    """Return whether codes decide a list, or a range whose bounds are in order."""
    if op == "between":
        low, high = operand
        return type(low) in _KINDS and (type(low) is str) is (type(high) is str) and low <= high
    return op == "in" and 0 < len(operand) <= _PLAIN_MAX and all(type(value) in _KINDS for value in operand)


def _known_row(attribute: int, op: str, operand: Any, domains: Domains) -> Row | None:
    """Return the literal of a predicate; None if the domains lack something for it."""
    if op in _OPAQUE or op == _LIKE:
        known = domains.known_pattern_attribute(Pattern(attribute, op, operand))
        return None if known is None else (known, TRUE, TRUE, ())
    labels = [domains.label(attribute, value) for value in _constants(op, operand)]
    return None if min(labels) < 0 else _row(attribute, op, operand, labels)


def _placed_row(attribute: int, op: str, operand: Any, domains: Domains) -> Row | None:
    """Return the literal of a predicate, whose constants go into the domains; None if there is no room for one."""
    if op in _OPAQUE or op == _LIKE:
        return domains.pattern_attribute(Pattern(attribute, op, operand)), TRUE, TRUE, ()
    labels = [domains.place(attribute, value) for value in _constants(op, operand)]
    return None if min(labels) < 0 else _row(attribute, op, operand, labels)


def _constants(op: str, operand: Any) -> Sequence[Any]:
    """Return the constants whose labels decide a predicate."""
    if op == _PREFIX:
        end = after_prefix(operand)
        return (operand,) if end is None else (operand, end)
    return operand if type(operand) is tuple else (operand,)


def _row(attribute: int, op: str, operand: Any, labels: list[int]) -> Row:
    """Return the literal of a predicate whose constants have these labels."""
    label = labels[0]
    match op:
        case "=":
            return attribute, label, label, ()
        case "in":
            ranges = tuple((each, each) for each in sorted(set(labels)))
            return attribute, ranges[0][0], ranges[-1][1], ranges if len(ranges) > 1 else ()
        case "between":
            return attribute, label, labels[1], ()
        case "starts with":
            return attribute, label, labels[1] - 1 if len(labels) > 1 else STRINGS.last, ()
    section = STRINGS if type(operand) is str else NUMBERS
    match op:
        case "<=":
            return attribute, section.first, label, ()
        case ">=":
            return attribute, label, section.last, ()
        case "<":
            return attribute, section.first, label - 1, ()
    return attribute, label + 1, section.last, ()
