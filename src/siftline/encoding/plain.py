"""The short way from a plain conjunction to coded literals, for adding one subscription at a time.

Most subscriptions compare attributes with constants. Their codes can be read off the domains right away, or are new
labels there, without normal forms: a fifth of the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.encoding.domain import NUMBERS, STRINGS
from siftline.encoding.ranges import satisfying_codes
from siftline.model import And, Predicate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from siftline.encoding.domains import Domains
    from siftline.model import Expression

# (attribute, low, high): some value of the attribute has a code from low to high.
Row = tuple[int, int, int]

# More predicates, or constants in one list, take the long way, which knows the limits.
_FEW: Final = 64
_PLAIN: Final = frozenset(("=", "<", "<=", ">", ">=", "between"))
_KINDS: Final = frozenset((int, float, str))


def plain_rows(expression: Expression, domains: Domains, *, may_place: bool = False) -> list[Row] | None:
    """Return the literals of a conjunction, equalities first; None if it is not plain.

    If it has new constants, there are none; with `may_place`, the constants go into the domains, and there are none if
    there was no room for them.

    >>> from siftline.encoding.domains import Domains
    >>> domains = Domains()
    >>> domains.add({"a": [5]})
    []
    >>> label = domains.domains[0].numbers.code(5)
    >>> plain_rows(Predicate("a", "=", 5), domains) == [(0, label, label)]
    True
    >>> plain_rows(Predicate("a", "=", 6), domains)
    []
    >>> plain_rows(Predicate("a", "=", 6), domains, may_place=True) != []
    True
    """
    predicates: Any = expression.operands if type(expression) is And else (expression,)
    if not 0 < len(predicates) <= _FEW:
        return None
    rows: list[Row] = []
    for predicate in predicates:
        if type(predicate) is not Predicate or predicate.op not in _PLAIN:
            return None
        op, operand = predicate.op, predicate.operand
        first = operand[0] if op == "between" else operand  # type: ignore[index]
        kind: type = type(first)
        if kind is not int and kind is not float and kind is not str:
            return None
        section = STRINGS if kind is str else NUMBERS
        attribute = domains.ids.get(predicate.attribute)  # type: ignore[arg-type]
        if attribute is None:
            if not may_place:
                return []
            attribute = domains.intern(predicate.attribute)  # type: ignore[arg-type]
        label = domains.place(attribute, first) if may_place else domains.label(attribute, first)  # type: ignore[arg-type]
        if label < 0:
            return []
        if op == "=":
            rows.insert(0, (attribute, label, label))  # the first is all that is looked at of most clauses
        elif op == "<=":
            rows.append((attribute, section.first, label))
        elif op == ">=":
            rows.append((attribute, label, section.last))
        elif op == "<":
            rows.append((attribute, section.first, label - 1))
        elif op == ">":
            rows.append((attribute, label + 1, section.last))
        else:
            high = domains.place(attribute, operand[1]) if may_place else domains.label(attribute, operand[1])  # type: ignore[index, arg-type]
            if high < label:  # new, or reversed bounds
                return [] if high < 0 else None
            rows.append((attribute, label, high))
    return rows


class PlainRows(NamedTuple):
    """What a plain conjunction asks of codes, as two clauses where there was no room for some of its constants."""

    exact: Sequence[Row] = ()  # whatever has these codes satisfies it; nothing: there is no such clause
    wide: Sequence[Row] = ()  # whatever satisfies it has these codes; nothing: the other clause says it all

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of clauses and literals."""
        return bool(self.exact) + bool(self.wide), len(self.exact) + len(self.wide)


def unplaced_rows(expression: Expression, domains: Domains) -> PlainRows | None:
    """Return the literals of a conjunction that `plain_rows` found no room for; None if it is not plain."""
    exact: list[Row] = []
    wide: list[Row] = []
    predicates: Any = expression.operands if type(expression) is And else (expression,)
    for predicate in predicates:
        if type(predicate) is not Predicate or predicate.op not in _PLAIN:
            return None
        if any(type(constant) not in _KINDS for constant in predicate.constants()):
            return None
        attribute = domains.intern(predicate.attribute)  # type: ignore[arg-type]
        for constant in predicate.constants():
            domains.place(attribute, constant)  # type: ignore[arg-type]
        found = satisfying_codes(predicate.op, predicate, domains.domains[attribute])
        if found is None or not found[0]:
            return None
        wide.append((attribute, *found[0][0]))
        exact += [(attribute, *codes) for codes in found[1]]
    return PlainRows(exact if len(exact) == len(wide) else (), wide)
