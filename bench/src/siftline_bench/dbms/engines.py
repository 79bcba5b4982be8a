"""The databases of `dbms`: how each is filled fast, and how each is queried for matching clauses.

Both hold the tables of one plan in memory. A query is one statement over the event, which comes as a relation. Its text
depends on the event: whether a value has a `rest`, and whether an attribute has several values.
"""

from __future__ import annotations

import sqlite3
import threading
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from siftline.errors import SiftlineError
from siftline_bench.dbms.predicates import (
    ANY,
    CLOSED,
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    NUMBER,
    OPEN,
    OPEN_ABOVE,
    OPEN_BELOW,
    ROW_TYPES,
    STRING,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

Rows = list[tuple[Any, ...]]
# By name: lists, NumPy arrays or Arrow arrays.
Columns = dict[str, Any]

GROUPING: Final = "grouping"
SEQUENTIAL: Final = "sequential"

# The tables of each plan.
TABLES: Final[dict[str, dict[str, dict[str, str]]]] = {
    GROUPING: {
        "subs": {"sid": "INTEGER", "cnt": "INTEGER"},
        "preds": ROW_TYPES,
        "subs_preds": {"pid": "INTEGER", "sid": "INTEGER", "points": "INTEGER"},
    },
    SEQUENTIAL: {"subs": {"sid": "INTEGER", "cnt": "INTEGER", "points": "INTEGER", **ROW_TYPES}},
}

_EVENT_TYPES: Final = {"attr": "INTEGER", "kind": "INTEGER", "number": "DOUBLE", "rest": "BIGINT", "text": "BLOB"}


class Query:
    """What the text of a statement depends on; equal queries have the same text."""

    def __init__(self, plan: str, *, has_rest: bool, has_repeats: bool, has_unneeding: bool) -> None:
        self.plan = plan
        self.has_rest = has_rest  # some number of the event or of a row is no double
        self.has_repeats = has_repeats  # an attribute of the event has several values
        self.has_unneeding = has_unneeding  # some clause has no predicates, except vetoes

    @property
    def key(self) -> tuple[Any, ...]:
        """Return the values on which the text depends."""
        return self.plan, self.has_rest, self.has_repeats, self.has_unneeding


class Database(Protocol):
    """Tables of one plan in memory."""

    def load(self, tables: dict[str, Columns]) -> None:
        """Add rows to tables in one transaction, by the fastest method of the database."""

    def find(self, query: Query, event: Rows) -> NDArray[np.int64]:
        """Return the clauses that hold."""

    def dump(self) -> dict[str, Columns]:
        """Return all rows of all tables."""

    def n_bytes(self) -> int:
        """Return the memory in use."""


def open_database(engine: str, plan: str) -> Database:
    """Return an empty database."""
    return DuckDb(plan) if engine == "duckdb" else Sqlite(plan)


def import_duckdb() -> Any:
    """Return the module, or raise SiftlineError with what to install."""
    try:
        import duckdb
    except ImportError:
        raise SiftlineError(
            "index 'dbms' with engine='duckdb' needs DuckDB: pip install duckdb; engine='sqlite' does not"
        ) from None
    return duckdb


# the comparison of a row p of a predicate with a value e of the event


def _compared(value: str, bound: str, rest: str | None) -> dict[str, str]:
    """Return the comparisons of a value with a bound of the row, as SQL."""
    of_row, of_event = f"p.{bound}", f"e.{value}"
    plain = {
        sign: f"{of_event} {sql} {of_row}"
        for sign, sql in {"=": "=", "!": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}.items()
    }
    if rest is None:
        return plain
    equal = f"{of_event} = {of_row}"
    return {
        "=": f"({equal} AND e.rest = p.{rest})",
        "!": f"({of_event} <> {of_row} OR e.rest <> p.{rest})",
        **{
            sign: f"({of_event} {sign[0]} {of_row} OR ({equal} AND e.rest {sign} p.{rest}))"
            for sign in ("<", "<=", ">", ">=")
        },
    }


def comparisons(kind: int, has_rest: bool) -> dict[int, str]:
    """Return for each operator the SQL that is true if a value of this kind satisfies it."""
    if kind == STRING:
        low, high = _compared("text", "text", None), _compared("text", "upper_text", None)
    else:
        low = _compared("number", "number", "rest" if has_rest else None)
        high = _compared("number", "upper", "upper_rest" if has_rest else None)
    return {
        ANY: "true",
        EQ: low["="],
        NE: low["!"],
        LT: low["<"],
        LE: low["<="],
        GT: low[">"],
        GE: low[">="],
        CLOSED: f"{low['>=']} AND {high['<=']}",
        OPEN_ABOVE: f"{low['>=']} AND {high['<']}",
        OPEN_BELOW: f"{low['>']} AND {high['<=']}",
        OPEN: f"{low['>']} AND {high['<']}",
    }


def _condition(has_rest: bool) -> str:
    """Return one expression for all kinds and operators, for a scan."""
    cases = []
    for kind in (NUMBER, STRING):
        branches = " ".join(f"WHEN {op} THEN {sql}" for op, sql in comparisons(kind, has_rest).items())
        cases.append(f"WHEN {kind} THEN CASE p.op {branches} END")
    return f"CASE p.kind {' '.join(cases)} ELSE true END"


def _grouping(query: Query, hits: str) -> str:
    """Return the statement from the uses (sid, points) of predicates that hold to the clauses that have all (4.2)."""
    total = f"total AS (SELECT sid, sum(points) AS total FROM ({hits}) GROUP BY sid)"
    # Counting before `cnt` is looked up makes this join as small as it can be.
    found = "SELECT t.sid FROM total t CROSS JOIN subs s WHERE s.sid = t.sid AND s.cnt = t.total"
    return f"{total} {found}{_unneeding(query)}"


def _sequential(query: Query, join: str = "JOIN") -> str:
    """Return the statement that compares every row of `subs` with the event, and counts (4.1)."""
    distinct = "DISTINCT p.pid," if query.has_repeats else ""
    hits = (
        f"SELECT {distinct} p.sid, p.cnt, p.points FROM subs p {join} e ON p.attr = e.attr AND p.kind = e.kind"
        f" AND {_condition(query.has_rest)}"
    )
    total = f"total AS (SELECT sid, cnt, sum(points) AS total FROM ({hits}) GROUP BY sid, cnt)"
    return f"{total} SELECT sid FROM total WHERE total = cnt{_unneeding(query)}"


def _unneeding(query: Query) -> str:
    """Return the query for clauses without predicates of which no veto holds."""
    if not query.has_unneeding:
        return ""
    return " UNION SELECT sid FROM subs WHERE cnt = 0 AND sid NOT IN (SELECT sid FROM total)"


class DuckDb:
    """DuckDB: columns, vectors, hash joins. Tables are scanned; its indexes serve single keys only and are not used."""

    def __init__(self, plan: str) -> None:
        duckdb = import_duckdb()
        self._plan = plan
        # One thread: an event is one core's work, as it is for every other index.
        self._connection = duckdb.connect(":memory:", config={"threads": 1})
        self._cursors = threading.local()
        self._texts: dict[tuple[Any, ...], str] = {}
        for name, columns in TABLES[plan].items():
            self._connection.execute(f"CREATE TABLE {name} ({_declared(columns)})")

    def load(self, tables: dict[str, Columns]) -> None:
        """Insert from Arrow tables, which DuckDB reads without a copy."""
        connection = self._connection.cursor()
        connection.execute("BEGIN")
        for name, columns in tables.items():
            connection.register("loaded", _arrow(columns, TABLES[self._plan][name]))
            connection.execute(f"INSERT INTO {name} SELECT * FROM loaded")
            connection.unregister("loaded")
        connection.execute("COMMIT")
        connection.close()

    def find(self, query: Query, event: Rows) -> NDArray[np.int64]:
        """Run the statement on this thread's own cursor."""
        text = self._texts.get(query.key)
        if text is None:
            text = self._texts[query.key] = self._text(query)
        columns = list(zip(*event, strict=True)) if event else [()] * len(_EVENT_TYPES)
        cursor = self._cursor()
        found = cursor.execute(text, [list(column) for column in columns]).fetchnumpy()["sid"]
        return np.asarray(found, dtype=np.int64)

    def _cursor(self) -> Any:
        cursor = getattr(self._cursors, "cursor", None)
        if cursor is None:
            cursor = self._cursors.cursor = self._connection.cursor()
        return cursor

    def _text(self, query: Query) -> str:
        lists = ", ".join(f"unnest(?::{declared}[]) AS {name}" for name, declared in _EVENT_TYPES.items())
        return f"WITH e AS (SELECT {lists}), {self._statement(query)}"

    def _statement(self, query: Query) -> str:
        if query.plan == SEQUENTIAL:
            return _sequential(query)
        predicates = (
            f"SELECT p.pid FROM preds p JOIN e ON p.attr = e.attr AND p.kind = e.kind AND {_condition(query.has_rest)}"
        )
        return _grouping(query, f"SELECT sid, points FROM subs_preds WHERE pid IN ({predicates})")

    def dump(self) -> dict[str, Columns]:
        """Read all tables, as of one moment."""
        cursor = self._connection.cursor()
        cursor.execute("BEGIN")
        dumped = {
            name: _by_column(cursor.execute(f"SELECT {', '.join(types)} FROM {name}").fetchall(), types)
            for name, types in TABLES[self._plan].items()
        }
        cursor.execute("COMMIT")
        return dumped

    def n_bytes(self) -> int:
        """Return what DuckDB says it uses."""
        query = "SELECT coalesce(sum(memory_usage_bytes), 0) FROM duckdb_memory()"
        return int(self._connection.cursor().execute(query).fetchone()[0])


class Sqlite:
    """SQLite: B-trees, one row at a time. Each operator is a range of an index, so only rows that hold are read."""

    def __init__(self, plan: str) -> None:
        self._plan = plan
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._lock = threading.Lock()  # one connection: threads take turns
        self._texts: dict[tuple[Any, ...], str] = {}
        execute = self._connection.execute
        for name, columns in TABLES[plan].items():
            if name == "subs_preds":
                execute(f"CREATE TABLE subs_preds ({_declared(columns)}, PRIMARY KEY (pid, sid, points)) WITHOUT ROWID")
            elif plan == GROUPING and name == "subs":
                execute("CREATE TABLE subs (sid INTEGER PRIMARY KEY, cnt INTEGER)")
            else:
                execute(f"CREATE TABLE {name} ({_declared(columns)})")
        if plan == GROUPING:
            execute("CREATE INDEX by_number ON preds (attr, kind, op, number, rest, upper, upper_rest, pid)")
            execute("CREATE INDEX by_text ON preds (attr, kind, op, text, upper_text, pid)")
        execute(f"CREATE TEMP TABLE e ({_declared(_EVENT_TYPES)})")

    def load(self, tables: dict[str, Columns]) -> None:
        """Insert with one prepared statement for each table."""
        with self._lock:
            self._connection.execute("BEGIN")
            for name, columns in tables.items():
                marks = ", ".join("?" * len(columns))
                self._connection.executemany(f"INSERT INTO {name} VALUES ({marks})", _python_rows(columns))
            self._connection.execute("COMMIT")

    def find(self, query: Query, event: Rows) -> NDArray[np.int64]:
        """Put the event into its table, and run the statement, which SQLite caches by its text."""
        text = self._texts.get(query.key)
        if text is None:
            text = self._texts[query.key] = self._text(query)
        with self._lock:
            execute = self._connection.execute
            execute("DELETE FROM e")
            self._connection.executemany("INSERT INTO e VALUES (?, ?, ?, ?, ?)", event)
            found = execute(text).fetchall()
        return np.array([sid for (sid,) in found], dtype=np.int64)

    def _text(self, query: Query) -> str:
        if query.plan == SEQUENTIAL:
            return f"WITH {_sequential(query, join='CROSS JOIN')}"  # the scan outside, the small event inside
        union = " UNION " if query.has_repeats else " UNION ALL "
        predicates = f"found (pid) AS ({union.join(_branches(query.has_rest))})"
        hits = "SELECT u.sid, u.points FROM found f CROSS JOIN subs_preds u ON u.pid = f.pid"
        return f"WITH {predicates}, {_grouping(query, hits)}"

    def dump(self) -> dict[str, Columns]:
        """Read all tables."""
        execute = self._connection.execute
        with self._lock:
            return {
                name: _by_column(execute(f"SELECT {', '.join(types)} FROM {name}").fetchall(), types)
                for name, types in TABLES[self._plan].items()
            }

    def n_bytes(self) -> int:
        """Return the size of all pages."""
        with self._lock:
            execute = self._connection.execute
            (n_pages,), (size,) = execute("PRAGMA page_count").fetchone(), execute("PRAGMA page_size").fetchone()
        return int(n_pages) * int(size)


def _branches(has_rest: bool) -> list[str]:
    """Return one query of an index for each kind and operator (4.2, line by line)."""
    branches = [
        f"SELECT p.pid FROM e CROSS JOIN preds p ON p.attr = e.attr AND p.kind = e.kind WHERE e.kind < {NUMBER}"
    ]
    for kind, index in ((NUMBER, "by_number"), (STRING, "by_text")):
        for op, sql in comparisons(kind, has_rest).items():
            branches.append(
                f"SELECT p.pid FROM e CROSS JOIN preds p INDEXED BY {index}"
                f" ON p.attr = e.attr AND p.kind = {kind} AND p.op = {op} AND {sql} WHERE e.kind = {kind}"
            )
    return branches


def _declared(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {declared}" for name, declared in columns.items())


def _by_column(rows: Rows, names: Iterable[str]) -> Columns:
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _python_rows(columns: Columns) -> Any:
    return zip(*(c if isinstance(c, list) else c.tolist() for c in columns.values()), strict=True)


def _arrow(columns: Columns, types: dict[str, str]) -> Any:
    import pyarrow as pa

    return pa.table({name: arrow_array(columns[name], declared) for name, declared in types.items()})


def arrow_array(values: Any, declared: str) -> Any:
    """Return values as an Arrow array for a column of a table."""
    import pyarrow as pa

    if isinstance(values, pa.Array):
        return values
    known = {"INTEGER": pa.int32(), "BIGINT": pa.int64(), "DOUBLE": pa.float64(), "BLOB": pa.binary()}
    return pa.array(values, known[declared])
