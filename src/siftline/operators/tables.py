"""Look-ups in tables of a SQLite or DuckDB file.

    lookup(name, attribute, ?x, ...)      the rows that a query gives for a value of the attribute

>>> import sqlite3, tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> path = f"{folder.name}/items.db"
>>> with sqlite3.connect(path) as database:
...     _ = database.execute("create table items (sku, price)")
...     _ = database.execute("insert into items values ('a1', 9.5)")
>>> database.close()
>>> add_lookup("price", path, "select price from items where sku = ?")
>>> lookup({"sku": "a1"}, "price", "sku")
[(9.5,)]
>>> remove_lookup("price")
>>> folder.cleanup()
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any, Final, NamedTuple

from siftline.errors import OperatorError
from siftline.operators.events import values_of
from siftline.operators.operator import operator

_DUCKDB: Final = (".duckdb", ".ddb")


class _Lookup(NamedTuple):
    path: str
    query: str


class _Connections(threading.local):
    """The open files of a thread; connections cannot be shared between threads."""

    def __init__(self) -> None:
        self.by_path: dict[str, Any] = {}


_lookups: Final[dict[str, _Lookup]] = {}
_connections: Final = _Connections()


def add_lookup(name: str, path: str | Path, query: str) -> None:
    """Name a query with one `?` for the value that is looked up; the file is only read."""
    if query.count("?") != 1:
        raise OperatorError(f"the look-up {name!r} needs one ? for the value that is looked up")
    if not Path(path).exists():
        raise OperatorError(f"there is no file {path}")
    _lookups[name] = _Lookup(str(path), query)


def remove_lookup(name: str) -> None:
    """Forget a look-up, and close its file for this thread."""
    path = _lookups.pop(name).path
    if path in _connections.by_path:
        _connections.by_path.pop(path).close()


@operator("lookup", cost=0.5, binds=...)
def lookup(event: Any, name: str, attribute: str) -> Any:
    """Return the rows for each value of an attribute, without those that have nulls."""
    found = _lookups.get(name)
    if found is None:
        raise OperatorError(f"there is no look-up {name!r}; add_lookup adds one")
    values = values_of(event, attribute)
    if not values:
        return None
    connection = _connected(found.path)
    rows = [tuple(row) for value in values for row in connection.execute(found.query, [value]).fetchall()]
    return [row for row in rows if None not in row]


def _connected(path: str) -> Any:
    connection = _connections.by_path.get(path)
    if connection is None:
        connection = _connections.by_path[path] = _opened(path)
    return connection


def _opened(path: str) -> Any:
    if not path.endswith(_DUCKDB):
        return sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True)
    try:
        import duckdb
    except ImportError as error:
        raise OperatorError("look-ups in DuckDB files need duckdb: pip install duckdb") from error
    return duckdb.connect(path, read_only=True)
