"""Many parsed expressions to clauses: plain conjunctions by columns, everything else one by one.

To encode a predicate as an object takes some twenty microseconds, to write it into columns one or two, and what
`columns.py` does then is hardly to be seen. Most subscriptions are conjunctions of comparisons and `in` lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from siftline.encoding.clauses import Clauses, concatenate, constants_of, encode_covers, picked
from siftline.encoding.columns import load_columns
from siftline.language.normal_form import Cover
from siftline.model import And, Predicate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from siftline.encoding.domains import Domains, Move
    from siftline.model import Expression

_COMPARISONS: Final = frozenset(("=", "!=", "<", "<=", ">", ">="))
_TEXTS: Final = frozenset(("=", "!=", "starts with", "ends with", "contains"))
# Integers beyond this are not all doubles.
_EXACT: Final = 2**53
_NOTHING: Final = Cover([], True)
_TYPES: Final = {
    "subscription": pa.int64(),
    "attribute": pa.string(),
    "op": pa.string(),
    "number": pa.float64(),
    "upper": pa.float64(),
    "text": pa.string(),
    "numbers": pa.list_(pa.float64()),
    "texts": pa.list_(pa.string()),
}

# One predicate: what stands in all columns but the first.
_Row = tuple[Any, ...]


def encode_many(
    expressions: Sequence[Expression | None],
    first_slot: int,
    domains: Domains,
    covering: Callable[[Expression], Cover],
    *,
    takes_patterns: bool = False,
) -> tuple[Clauses, list[Move]]:
    """Encode expressions for consecutive slots, None for nothing; their constants and patterns go into the domains.

    Returns the clauses, and the labels of older constants that had to move.
    """
    columns, covers = _Columns(), []
    for slot, expression in enumerate(expressions, first_slot):
        is_done = expression is None or columns.take(slot, expression)
        covers.append(_NOTHING if is_done or expression is None else covering(expression))
    moves = domains.add(constants_of(covers))
    loaded = load_columns(columns.table(), domains, takes_patterns=takes_patterns)
    moves += loaded.moves
    slots = np.array(loaded.ids, dtype=np.int32)
    plain = loaded.clauses._replace(slots=slots[loaded.clauses.slots])
    others = encode_covers(covers, first_slot, domains, takes_patterns=takes_patterns)
    if not others.n_clauses:
        return plain, moves
    joined = concatenate([plain, others])
    return picked(joined, np.argsort(joined.slots, kind="stable")), moves


class _Columns:
    """The columns of a predicate table under construction."""

    def __init__(self) -> None:
        self._slots: list[int] = []
        self._rows: list[_Row] = []

    def take(self, slot: int, expression: Expression) -> bool:
        """Take an expression in; return False if it does not fit."""
        predicates = expression.operands if type(expression) is And else (expression,)
        rows = [_row(predicate) for predicate in predicates]
        if not rows or None in rows:
            return False
        self._slots += [slot] * len(rows)
        self._rows += rows  # type: ignore[arg-type]
        return True

    def table(self) -> Any:
        """Return the table."""
        columns = [self._slots, *(zip(*self._rows, strict=True) if self._rows else [[]] * (len(_TYPES) - 1))]
        arrays = [pa.array(column, kind) for column, kind in zip(columns, _TYPES.values(), strict=True)]
        return pa.table(arrays, list(_TYPES))


def _row(predicate: Expression) -> _Row | None:
    """Return a predicate as a row; None if it does not fit into the columns as it is."""
    if type(predicate) is not Predicate or predicate.attribute is None:
        return None
    attribute, op, operand = predicate.attribute, predicate.op, predicate.operand
    kind = type(operand)
    if kind is str:
        is_fitting = op in _TEXTS and _is_unicode(operand)
        return (attribute, op, None, None, operand, None, None) if is_fitting else None
    if kind is float or kind is int:
        is_fitting = op in _COMPARISONS and _is_double(operand)
        return (attribute, op, operand, None, None, None, None) if is_fitting else None
    return _row_of_several(attribute, op, operand) if isinstance(operand, tuple) else None


def _row_of_several(attribute: str, op: str, operand: tuple[Any, ...]) -> _Row | None:
    if op == "between" and all(map(_is_double, operand)):
        return attribute, op, *operand, None, None, None
    if op == "in" and operand and all(map(_is_double, operand)):
        return attribute, op, None, None, None, operand, None
    if op == "in" and operand and all(map(_is_unicode, operand)):
        return attribute, op, None, None, None, None, operand
    return None


def _is_double(value: Any) -> bool:
    return type(value) is float or (type(value) is int and -_EXACT <= value <= _EXACT)


def _is_unicode(value: Any) -> bool:
    """Return whether this is a string that Arrow takes, that is, without halves of surrogate pairs."""
    return type(value) is str and (value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value))
