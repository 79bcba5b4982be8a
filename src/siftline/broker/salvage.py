"""Reads all readable rows of a damaged SQLite file, with SQL alone.

    page      1    2    3    4    5    6
              ok   ok   bad  ok   bad  ok
    read      ────────►X
    leap               1 2 4 8 ..........►   then a binary search for the first readable row
    between            (.........|.........) read upwards and downwards, then the same in each half

A query that meets a bad page ends there, and says nothing about the pages after it. So the reader leaps to the next
readable row, and then searches the rows between by halves. The number of failures is bounded, because row ids may be
far apart.
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
# How many queries may fail, between two readable rows and in one table; each takes about ten microseconds.
_MOST_BETWEEN: Final = 1000
_MOST_IN_ALL: Final = 100_000
_FAILURES: Final[tuple[type[Exception], ...]] = (sqlite3.Error, UnicodeDecodeError, OverflowError)


def open_damaged(path: str, wait_seconds: float) -> sqlite3.Connection:
    """Open a file for reading, even if it is shorter than its header says."""
    return open_sqlite(path, is_read_only=True, wait_seconds=wait_seconds, is_cut_off=True)


class Salvage:
    """The readable rows of a table, each once, in no particular order.

    Attributes
    ----------
    lost : list of (int, int)
        The ranges of row ids in which rows could not be read; complete after the iteration.
    """

    def __init__(self, connection: sqlite3.Connection, table: str, columns: str = "*") -> None:
        self._connection, self._table, self._columns = connection, table, columns
        self.lost: list[tuple[int, int]] = []
        self._n_failures = 0

    def __iter__(self) -> Iterator[Row]:
        try:
            self._connection.execute(f"SELECT rowid FROM {self._table} LIMIT 0")
        except sqlite3.Error:  # the table has no row ids, or nothing is readable
            return self._from_both_ends()
        return self._by_row_id()

    def _by_row_id(self) -> Iterator[Row]:
        """Yield rows upwards and downwards from a readable one, so that leaps start small where rows are dense."""
        anchor = self._anchor()
        yield from self._walk(anchor, _UP)
        yield from self._walk(anchor - 1, _DOWN)

    def _anchor(self) -> int:
        """Return a readable row id: at the beginning, at the end, or between them."""
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
        """Yield rows in an order, leaping over unreadable ones."""
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
        """Yield rows up to an unreadable one; return its row id, None if there is none."""
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
            # The module sqlite3 fetches one row ahead, so the row before the failure has not been returned yet.
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
        """Return the next readable row id after an unreadable one; None if there is none."""
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
        """Yield the readable rows between two unreadable ones."""
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
        """Yield rows up to the first unreadable one, and from the end back to the last unreadable one."""
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
