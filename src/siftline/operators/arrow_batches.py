"""Events as an Arrow table, for operators that take many at once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def batch_of(trees: Sequence[Mapping[str, Any]]) -> Any:
    """Return a table with a column for each key of the events; a column with values of several kinds is JSON text.

    >>> batch_of([{"a": 1}, {"a": 2, "b": "x"}]).to_pydict()
    {'a': [1, 2], 'b': [None, 'x']}
    >>> batch_of([{"a": 1}, {"a": "x"}]).to_pydict()
    {'a': ['1', '"x"']}
    """
    names = dict.fromkeys(name for tree in trees for name in tree)
    if not names:
        return pa.table({"event": pa.nulls(len(trees))})  # a table without columns would have no rows
    return pa.table({name: _column([tree.get(name) for tree in trees]) for name in names})


def _column(values: list[Any]) -> Any:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return pa.array([None if value is None else json.dumps(value, default=str) for value in values])
