"""Reading what can be read of a damaged SQLite file, by SQL alone.

    page      1    2    3    4    5    6
              ok   ok   bad  ok   bad  ok
    read      ────────►X
    leap               1 2 4 8 ..........►   and back by halves, to where reading goes on
    between            (.........|.........) upwards, downwards, and so in each half

A query that meets a bad page ends there, and says nothing about the pages behind it. So one leaps on to where rows can
be read again, and asks for what was leapt over in halves, up to a number of failures: row ids may be far apart.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from siftline.storage.sqlite_files import open_sqlite

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    Row = tuple[Any, ...]

_UP: Final = "ASC"
_DOWN: Final = "DESC"
_FIRST_ROW: Final = -(2**63)
_LAST_ROW: Final = 2**63 - 1
# Queries that may fail, between two places that can be read, and of one table; each takes some ten microseconds.
_MOST_BETWEEN: Final = 1000
_MOST_IN_ALL: Final = 100_000
_FAILURES: Final[tuple[type[Exception], ...]] = (sqlite3.Error, UnicodeDecodeError, OverflowError)


def open_damaged(path: str, wait_seconds: float) -> sqlite3.Connection:
    """Open a file to read it, also if it is shorter than it says."""
    return open_sqlite(path, is_read_only=True, wait_seconds=wait_seconds, is_cut_off=True)


class Salvage:
    """The rows of a table that can be read, each once, in no certain order.

    Attributes
    ----------
    lost : list of (int, int)
        Between which row ids something could not be read, after the iteration.
    """

    def __init__(self, connection: sqlite3.Connection, table: str, columns: str = "*") -> None:
        self._connection, self._table, self._columns = connection, table, columns
        self.lost: list[tuple[int, int]] = []
        self._n_failures = 0

    def __iter__(self) -> Iterator[Row]:
        try:
            self._connection.execute(f"SELECT rowid FROM {self._table} LIMIT 0")
        except sqlite3.Error:  # it has none; or nothing can be read
            return self._from_both_ends()
        return self._by_row_id()

    def _by_row_id(self) -> Iterator[Row]:
        """Yield rows upwards and downwards from one that can be read, so that leaps begin small where rows are."""
        anchor = self._anchor()
        yield from self._walk(anchor, _UP)
        yield from self._walk(anchor - 1, _DOWN)

    def _anchor(self) -> int:
        """Return a place that can be read: the beginning, the end, or one between them."""
        for order in (_UP, _DOWN):
            try:
                query = f"SELECT rowid FROM {self._table} ORDER BY rowid {order} LIMIT 1"
                found = self._connection.execute(query).fetchone()
            except _FAILURES:
                continue
            return _FIRST_ROW if found is None or order == _UP else int(found[0])
        between = self._next_readable(0, _UP)
        return 0 if between is None else between

    def _walk(self, start: int, order: str) -> Iterator[Row]:
        """Yield rows in an order, over what cannot be read."""
        place: int | None = start
        while place is not None:
            failed = yield from self._read(place, order)
            if failed is None:
                return
            place = self._next_readable(failed, order)
            if order == _UP:
                yield from self._between(failed, _LAST_ROW if place is None else place - 1)
            else:
                yield from self._between(_FIRST_ROW if place is None else place + 1, failed)

    def _read(self, start: int, order: str, until: int | None = None) -> Generator[Row, None, int | None]:
        """Yield rows up to one that cannot be read; return which that is, None if there is none."""
        place, step = start, 1 if order == _UP else -1
        try:
            for row_id, *values in self._rows(place, order, until):
                place = max(place, row_id + 1) if order == _UP else min(place, row_id - 1)
                yield tuple(values)
        except _FAILURES:
            self._n_failures += 1
        else:
            return None
        try:
            # Python asks for the next row before it gives one, so the one before the failure was kept back.
            for row_id, *values in self._rows(place, order, until, " LIMIT 1"):
                place = row_id + step
                yield tuple(values)
        except _FAILURES:
            self._n_failures += 1
        return place

    def _rows(self, start: int, order: str, until: int | None, limit: str = "") -> sqlite3.Cursor:
        end = until if until is not None else _LAST_ROW if order == _UP else _FIRST_ROW
        where = f"rowid BETWEEN ? AND ? ORDER BY rowid {order}{limit}"
        query = f"SELECT rowid, {self._columns} FROM {self._table} WHERE {where}"
        return self._connection.execute(query, (start, end) if order == _UP else (end, start))

    def _next_readable(self, failed: int, order: str) -> int | None:
        """Return from where on rows can be read again after one that cannot; None if that is nowhere."""
        sign, step = 1 if order == _UP else -1, 1
        while not self._is_readable(failed + sign * step, order):
            step *= 2
            if not _FIRST_ROW <= failed + sign * step <= _LAST_ROW:
                return None
        bad, good = step // 2, step
        while good - bad > 1:
            middle = (bad + good) // 2
            bad, good = (bad, middle) if self._is_readable(failed + sign * middle, order) else (middle, good)
        return failed + sign * good

    def _is_readable(self, row_id: int, order: str) -> bool:
        where = f"rowid {'>=' if order == _UP else '<='} ? ORDER BY rowid {order} LIMIT 1"
        try:
            self._connection.execute(f"SELECT {self._columns} FROM {self._table} WHERE {where}", (row_id,)).fetchone()
        except _FAILURES:
            self._n_failures += 1
            return False
        return True

    def _between(self, first: int, last: int) -> Iterator[Row]:
        """Yield what can be read between two rows that cannot."""
        ranges, most = deque([(first, last)]), self._n_failures + _MOST_BETWEEN
        while ranges:
            first, last = ranges.popleft()
            up = yield from self._read(first, _UP, last)
            if up is None or up > last:
                continue
            down = yield from self._read(last, _DOWN, up)
            if down is None:
                continue
            if up < down and self._n_failures < min(most, _MOST_IN_ALL):
                middle = (up + down) // 2
                ranges += [(up, middle), (middle + 1, down)]
            elif up <= down:
                self.lost.append((up, down))

    def _from_both_ends(self) -> Iterator[Row]:
        """Yield rows up to the first that cannot be read, and from the end back to the last."""
        seen: set[Row] = set()
        execute = self._connection.execute
        for order in (_UP, _DOWN):
            try:
                columns = execute(f"PRAGMA table_info({self._table})").fetchall()
                orders = ", ".join(f"{name} {order}" for _, name, *_, is_key in columns if is_key)
                for values in execute(f"SELECT {self._columns} FROM {self._table} ORDER BY {orders}"):
                    if values in seen:
                        return
                    seen.add(values)
                    yield values
                return
            except _FAILURES:
                self.lost = [(_FIRST_ROW, _LAST_ROW)]
