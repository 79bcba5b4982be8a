"""Quarantine: refused subscriptions, with the reason and the position in the expression."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from siftline.errors import SubscriptionError

# The columns of the table for Spark; the id comes first, in its own type.
COLUMNS: Final = "expression string, reason string, hint string, line int, column int, path string"
_TYPES: Final = {
    "expression": pa.string(),
    "reason": pa.string(),
    "hint": pa.string(),
    "line": pa.int32(),
    "column": pa.int32(),
    "path": pa.string(),
}


class Quarantine:
    """Collects refused subscriptions.

    `line` and `column` are positions in the expression, counted from 1; `path` is the path in a JSON document, or the
    attribute in a table of predicates.
    """

    def __init__(self, id_type: Any) -> None:
        self._types = {"subscription": id_type, **_TYPES}
        self._rows: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, id: Any, expression: str | None, reason: str, path: str | None = None) -> None:
        """Add one subscription."""
        self._rows.append({"subscription": id, "expression": expression, "reason": reason, "path": path})

    def add_error(self, id: Any, expression: str, error: SubscriptionError) -> None:
        """Add one subscription with the error that refused it."""
        row = {"subscription": id, "expression": expression, "reason": error.reason, "hint": error.hint}
        self._rows.append({**row, "line": error.line, "column": error.column, "path": error.path})

    def batch(self) -> Any:
        """Return all subscriptions that were added."""
        columns = {name: [_plain(row.get(name)) for row in self._rows] for name in self._types}
        arrays = [pa.array(columns[name], kind) for name, kind in self._types.items()]
        return pa.RecordBatch.from_arrays(arrays, names=list(self._types))


def _plain(value: Any) -> Any:
    """Return a text with escapes for characters that Arrow cannot hold, and any other value unchanged."""
    return ascii(value)[1:-1] if isinstance(value, str) and not is_unicode(value) else value


def is_unicode(text: str) -> bool:
    """Return whether a text has no lone surrogates, which Arrow's strings cannot hold."""
    return text.isascii() or text.encode("utf-8", "replace").decode() == text
