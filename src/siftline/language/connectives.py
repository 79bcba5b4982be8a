"""Conjunctions and disjunctions that are flat and have no needless nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from siftline.model import And, Expression, Or

if TYPE_CHECKING:
    from collections.abc import Iterable


def all_of(operands: Iterable[Expression]) -> Expression:
    """Return that all operands hold.

    >>> from siftline.model import Predicate
    >>> all_of([Predicate("a", "=", 1)])
    Predicate('a', '=', 1)
    """
    return _joined(And, operands)


def any_of(operands: Iterable[Expression]) -> Expression:
    """Return that at least one operand holds."""
    return _joined(Or, operands)


def _joined(connective: type[And] | type[Or], operands: Iterable[Expression]) -> Expression:
    flat: list[Expression] = []
    for operand in operands:
        flat += operand.operands if isinstance(operand, connective) else (operand,)
    return flat[0] if len(flat) == 1 else connective(flat)
