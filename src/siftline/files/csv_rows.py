"""Reads CSV files row by row, with the line of every row."""

from __future__ import annotations

import csv
import sys
from typing import IO, TYPE_CHECKING, NamedTuple

from siftline.errors import FileError
from siftline.files.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class CsvRow(NamedTuple):
    """One record: its first line, its cells by the names of the header, and its raw text."""

    line: int
    cells: dict[str, str]
    raw: str

    def locate(self, cell: str, position: int) -> tuple[int, int]:
        """Return the line and column in the file of a position in a cell."""
        quoted = cell.replace('"', '""')
        start = self.raw.find(quoted)
        offset = start + position + cell.count('"', 0, position) if start >= 0 else position
        before = self.raw[:offset] if start >= 0 else cell[:offset]
        return self.line + before.count("\n"), offset - (before.rfind("\n") + 1) + 1


class _Lines:
    """Feeds lines to the CSV reader, and keeps those of the record that is being read."""

    def __init__(self, file: IO[bytes], advance: Callable[[int], None]) -> None:
        self._file = file
        self._advance = advance
        self.n_lines = 0
        self.raw: list[str] = []
        self.bad_line: int | None = None

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            self.n_lines += 1
            self._advance(len(line))
            try:
                text = line.decode()
            except UnicodeDecodeError:
                self.bad_line = self.bad_line or self.n_lines
                text = line.decode(errors="replace")
            self.raw.append(text)
            yield text

    def taken(self) -> tuple[int, str, int | None]:
        """Return the first line, the text, and the first line that is not UTF-8, of the record that just ended."""
        taken = self.n_lines - len(self.raw) + 1, "".join(self.raw), self.bad_line
        self.raw, self.bad_line = [], None
        return taken


def csv_rows(file: IO[bytes], name: str, advance: Callable[[int], None]) -> Iterator[CsvRow | Problem]:
    """Yield the records of a CSV file with a header, and a problem for each that cannot be read."""
    csv.field_size_limit(sys.maxsize)
    lines = _Lines(file, advance)
    reader = csv.reader(lines, strict=True)
    header = _header(reader, lines, name)
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            line, raw, _ = lines.taken()
            yield Problem(name, line, 1, f"not CSV: {error}", raw=raw)
            continue
        line, raw, bad_line = lines.taken()
        if bad_line is not None:
            yield Problem(name, bad_line, 1, "not UTF-8", raw=raw)
        elif len(cells) > len(header) or (cells and len(cells) < len(header)):
            reason = f"expected {len(header)} cells, as in the header, found {len(cells)}"
            yield Problem(name, line, 1, reason, raw=raw)
        elif cells:
            yield CsvRow(line, dict(zip(header, cells, strict=True)), raw)


def _header(reader: Iterator[list[str]], lines: _Lines, name: str) -> list[str]:
    try:
        header = next(reader, None)
    except csv.Error as error:
        raise FileError(f"{name}:1: not CSV: {error}") from None
    _, _, bad_line = lines.taken()
    if bad_line is not None:
        raise FileError(f"{name}:{bad_line}: not UTF-8")
    if not header:
        raise FileError(f"{name}: expected a CSV header in the first line, found nothing")
    if len(set(header)) != len(header):
        twice = next(column for column in header if header.count(column) > 1)
        raise FileError(f"{name}:1: the header has the column {twice!r} twice")
    return header
