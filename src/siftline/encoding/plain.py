"""The short way from a plain conjunction to coded literals, for adding one subscription at a time.

Most subscriptions compare attributes with constants that others use too. Their codes can be read off the domains right
away, without normal forms and without asking whether there is room for new constants: a fifth of the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from siftline.encoding.domain import NUMBERS, STRINGS
from siftline.model import And, Predicate

if TYPE_CHECKING:
    from siftline.encoding.domains import Domains
    from siftline.model import Expression

# (attribute, low, high): some value of the attribute has a code from low to high.
Row = tuple[int, int, int]

# More predicates, or constants in one list, take the long way, which knows the limits.
_FEW: Final = 64
_PLAIN: Final = frozenset(("=", "<", "<=", ">", ">=", "between"))


def plain_rows(expression: Expression, domains: Domains) -> list[Row] | None:
    """Return the literals of a conjunction, equalities first; None if it is not plain or has new constants.

    >>> from siftline.encoding.domains import Domains
    >>> domains = Domains()
    >>> domains.add({"a": [5]})
    []
    >>> label = domains.domains[0].numbers.code(5)
    >>> plain_rows(Predicate("a", "=", 5), domains) == [(0, label, label)]
    True
    >>> plain_rows(Predicate("a", "=", 6), domains) is None
    True
    """
    predicates: Any = expression.operands if type(expression) is And else (expression,)
    if not 0 < len(predicates) <= _FEW:
        return None
    rows: list[Row] = []
    for predicate in predicates:
        if type(predicate) is not Predicate or predicate.op not in _PLAIN:
            return None
        attribute = domains.ids.get(predicate.attribute)  # type: ignore[arg-type]
        if attribute is None:
            return None
        op, operand = predicate.op, predicate.operand
        first = operand[0] if op == "between" else operand  # type: ignore[index]
        kind: type = type(first)
        if kind is not int and kind is not float and kind is not str:
            return None
        section = STRINGS if kind is str else NUMBERS
        label = domains.label(attribute, first)  # type: ignore[arg-type]
        if label < 0:
            return None
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
            high = domains.label(attribute, operand[1])  # type: ignore[index, arg-type]
            if high < label:  # new, or reversed bounds
                return None
            rows.append((attribute, label, high))
    return rows
