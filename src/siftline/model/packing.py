"""Expressions as plain tuples of strings and numbers, for keeping very many of them.

Python's garbage collector looks at every object of ours again and again, for as long as it lives: with 200,000
expressions it stops the process for a quarter of a second. A tuple of strings, numbers and such tuples it looks at
once, and then never more.

    price < 9 and color in ('red', 'blue')     (0, ("price", "<", 9), ("color", "in", ("red", "blue")))

What has no such form (calls of operators) is kept as it is.
"""

from __future__ import annotations

from typing import Any, Final

from siftline.model.derived import AnyString, AttributeComparison, Length
from siftline.model.expression import And, AnyElement, Expression, IsTrue, Not, Or
from siftline.model.predicate import Predicate
from siftline.model.timestamp import Now, Timestamp

_GROUPS: Final[dict[type, int]] = {And: 0, Or: 1}
_WRAPPERS: Final[dict[type, int]] = {Not: 2, IsTrue: 3}
_ANY: Final = 4
# A predicate with moments, whose constants have their kind beside them.
_MOMENTS: Final = 5
# Leaves whose fields are strings and numbers.
_LEAVES: Final[dict[type, int]] = {AttributeComparison: 6, AnyString: 7, Length: 8}
_LEAF_TYPES: Final[dict[int, Any]] = {number: kind for kind, number in _LEAVES.items()}
_TYPES: Final[list[Any]] = [And, Or, Not, IsTrue]
_CONSTANT, _TIMESTAMP, _NOW = 0, 1, 2


def pack(expression: Expression) -> Any:
    """Return what `unpack` makes the expression of.

    >>> pack(Predicate("a", "=", 1) & Predicate("b", "in", (2, "x")))
    (0, ('a', '=', 1), ('b', 'in', (2, 'x')))
    """
    kind = type(expression)
    if kind is Predicate:
        operand = expression.operand  # type: ignore[attr-defined]
        if type(operand) is tuple:
            if any(type(value) is Timestamp or type(value) is Now for value in operand):
                return _MOMENTS, expression.attribute, expression.op, tuple(map(_marked, operand))  # type: ignore[attr-defined]
        elif type(operand) is Timestamp or type(operand) is Now:
            return _MOMENTS, expression.attribute, expression.op, _marked(operand)  # type: ignore[attr-defined]
        return expression.attribute, expression.op, operand  # type: ignore[attr-defined]
    if kind in _GROUPS:
        return _GROUPS[kind], *map(pack, expression.operands)  # type: ignore[attr-defined]
    if kind in _WRAPPERS:
        return _WRAPPERS[kind], pack(expression.operand)  # type: ignore[attr-defined]
    if kind is AnyElement:
        return _ANY, expression.attribute, pack(expression.operand)  # type: ignore[attr-defined]
    if kind in _LEAVES:
        return _LEAVES[kind], *expression.__getstate__()
    return expression


def unpack(packed: Any) -> Expression:
    """Return an expression that is equal to the one that was packed.

    >>> unpack(("a", "=", 1))
    Predicate('a', '=', 1)
    """
    if type(packed) is not tuple:
        return packed  # type: ignore[no-any-return]
    first = packed[0]
    if type(first) is not int:
        return _leaf(Predicate, packed)
    if first in _LEAF_TYPES:
        return _leaf(_LEAF_TYPES[first], packed[1:])
    if first == _MOMENTS:
        _, attribute, op, marked = packed
        is_one = type(marked[0]) is int
        return _leaf(Predicate, (attribute, op, _unmarked(marked) if is_one else tuple(map(_unmarked, marked))))
    if first == _ANY:
        return AnyElement(packed[1], unpack(packed[2]))
    if first in _WRAPPERS.values():
        return _TYPES[first](unpack(packed[1]))  # type: ignore[no-any-return]
    return _TYPES[first](tuple(map(unpack, packed[1:])))  # type: ignore[no-any-return]


def _leaf(kind: type[Expression], state: tuple[Any, ...]) -> Expression:
    """Return a leaf that was checked before."""
    leaf = kind.__new__(kind)
    leaf.__setstate__(state)
    return leaf


def _marked(constant: Any) -> tuple[int, Any]:
    if type(constant) is Timestamp:
        return _TIMESTAMP, constant.instant
    return (_NOW, constant.offset) if type(constant) is Now else (_CONSTANT, constant)


def _unmarked(marked: tuple[int, Any]) -> Any:
    kind, value = marked
    return Timestamp(value) if kind == _TIMESTAMP else Now(value) if kind == _NOW else value
