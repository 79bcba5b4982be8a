"""Predicates to the columns of a predicate table, one row each; `columns.py` encodes such tables.

To encode a predicate as an object takes some twenty microseconds, to write it into columns one or two, and what
`columns.py` does then is hardly to be seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from siftline.model import Predicate, Timestamp, text_of_instant

if TYPE_CHECKING:
    from siftline.model import Expression

# Integers from here on are not all doubles, and the columns have doubles.
_EXACT: Final = 2**53
_CONSTANTS: Final = {
    "number": pa.float64(),
    "upper": pa.float64(),
    "text": pa.large_string(),
    "upper_text": pa.large_string(),
    "flag": pa.bool_(),
    "numbers": pa.large_list(pa.float64()),
    "texts": pa.large_list(pa.large_string()),
    "timestamp": pa.large_string(),
    "upper_timestamp": pa.large_string(),
}


class PredicateColumns:
    """Takes predicates that fit one at a time, and gives them back as columns."""

    def __init__(self) -> None:
        self._attributes: list[str] = []
        self._ops: list[str] = []
        # Constants by the column that they belong to: the rows, and the values there.
        self._constants: dict[str, tuple[list[int], list[Any]]] = {name: ([], []) for name in _CONSTANTS}
        self._numbers = self._constants["number"]

    def __len__(self) -> int:
        return len(self._ops)

    def add(self, predicate: Predicate) -> None:
        """Take a predicate as the next row; it must fit."""
        self._add_constant(predicate.op, predicate.operand)
        self._attributes.append(predicate.attribute)  # type: ignore[arg-type]
        self._ops.append(predicate.op)

    def _add_constant(self, op: str, operand: Any) -> None:
        row, kind = len(self._ops), type(operand)
        if kind is int or kind is float:
            rows, values = self._numbers
            rows.append(row)
            values.append(operand)
        elif kind is Timestamp:
            self._put("timestamp", row, text_of_instant(operand.instant))
        elif kind is not tuple:
            if operand is not None:
                self._put("text" if kind is str else "flag", row, operand)
        elif not op.endswith("between"):
            numbers = [value for value in operand if type(value) is not str]
            if numbers:
                self._put("numbers", row, numbers)
            if len(numbers) < len(operand):
                self._put("texts", row, [value for value in operand if type(value) is str])
        elif type(operand[0]) is Timestamp:
            for name, value in zip(("timestamp", "upper_timestamp"), operand, strict=True):
                self._put(name, row, text_of_instant(value.instant))
        else:
            names = ("text", "upper_text") if type(operand[0]) is str else ("number", "upper")
            for name, value in zip(names, operand, strict=True):
                self._put(name, row, value)

    def _put(self, name: str, row: int, value: Any) -> None:
        rows, values = self._constants[name]
        rows.append(row)
        values.append(value)

    def columns(self) -> dict[str, Any]:
        """Return attributes, operators, and the constants that there are."""
        columns = {"attribute": _dictionary(self._attributes), "op": _dictionary(self._ops)}
        return columns | {name: self._column(name) for name, (rows, _) in self._constants.items() if rows}

    def _column(self, name: str) -> Any:
        """Return a column of constants, null in the other rows."""
        rows, values = self._constants[name]
        places = np.full(len(self._ops), -1, dtype=np.int64)
        places[rows] = np.arange(len(rows))
        return pa.array(values, _CONSTANTS[name]).take(pa.array(places, mask=places < 0))


def _dictionary(texts: list[str]) -> Any:
    numbers: dict[str, int] = {}
    codes = [numbers.setdefault(text, len(numbers)) for text in texts]
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(list(numbers), pa.large_string()))


def fits(expression: Expression) -> bool:
    """Return whether an expression is a predicate that the columns can hold as it is, timestamps apart."""
    if type(expression) is not Predicate or not has_unicode_path(expression):
        return False
    operand = expression.operand
    if type(operand) is tuple:
        return len(operand) > 0 and all(_is_number(value) or _is_text(value) for value in operand)
    return _is_number(operand) or _is_text(operand) or operand is None or type(operand) is bool


def has_unicode_path(predicate: Predicate) -> bool:
    """Return whether the columns can hold the attribute of a predicate."""
    return predicate.attribute is not None and _is_unicode(predicate.attribute)


def _is_number(value: Any) -> bool:
    kind = type(value)
    return kind is float or (kind is int and -_EXACT < value < _EXACT)


def _is_text(value: Any) -> bool:
    return type(value) is str and _is_unicode(value)


def _is_unicode(text: str) -> bool:
    """Return whether there are no lone surrogates, which Arrow strings cannot hold."""
    return text.isascii() or text.encode("utf-8", "replace").decode() == text
