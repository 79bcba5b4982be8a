"""Many parsed expressions to clauses: plain conjunctions by columns, everything else one by one.

Most subscriptions are conjunctions of comparisons and `in` lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeGuard

import numpy as np
import pyarrow as pa

from siftline.encoding.clauses import Clauses, concatenate, constants_of, encode_covers, picked
from siftline.encoding.columns import load_columns
from siftline.encoding.predicate_columns import PredicateColumns, fits, has_unicode_path
from siftline.language.normal_form import Cover
from siftline.model import And, Predicate, Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from siftline.encoding.domains import Domains, Move
    from siftline.model import Expression

_COMPARISONS: Final = frozenset(("=", "!=", "<", "<=", ">", ">="))
_TEXTS: Final = frozenset(("=", "!=", "starts with", "ends with", "contains"))
_NOTHING: Final = Cover([], True)


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
    moves = domains.add(constants_of(covers, expressions))
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
        self._predicates = PredicateColumns()

    def take(self, slot: int, expression: Expression) -> bool:
        """Take an expression in; return False if it does not fit."""
        parts = expression.operands if type(expression) is And else (expression,)
        predicates = [part for part in parts if _fits_columns(part)]
        if not parts or len(predicates) < len(parts):
            return False
        for predicate in predicates:
            self._predicates.add(predicate)
        self._slots += [slot] * len(predicates)
        return True

    def table(self) -> Any:
        """Return the table."""
        return pa.table({"subscription": pa.array(self._slots, pa.int64()), **self._predicates.columns()})


def _fits_columns(part: Expression) -> TypeGuard[Predicate]:
    """Return whether a predicate is one that is encoded by columns."""
    if type(part) is not Predicate:
        return False
    if _compares_timestamps(part.op, part.operand):
        return has_unicode_path(part)
    return _has_column_of_operands(part.op, part.operand) and fits(part)


def _compares_timestamps(op: str, operand: Any) -> bool:
    if type(operand) is Timestamp:
        return op in _COMPARISONS
    return op == "between" and all(type(bound) is Timestamp for bound in operand)


def _has_column_of_operands(op: str, operand: Any) -> bool:
    kind = type(operand)
    if kind is str:
        return op in _TEXTS
    if kind is float or kind is int:
        return op in _COMPARISONS
    if kind is not tuple or not operand:
        return False
    are_texts = [type(value) is str for value in operand]
    return not any(are_texts) if op == "between" else op == "in" and len(set(are_texts)) == 1
