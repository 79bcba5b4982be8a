"""Writes matches: a row for each event and each subscription that it satisfies."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

from siftline.cli.files import csv_bytes, written_whole
from siftline.cli.problems import CannotRunError
from siftline.files.formats import CSV, JSONL, PARQUET, STANDARD, format_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from siftline.ids import Id

FORMATS: Final = (JSONL, CSV, PARQUET)
# What is told about each subscription, where it is known.
_ABOUT: Final = ("title", "level")


class MatchWriter(Protocol):
    """Writes matches in several calls."""

    def write(self, events: Sequence[int], lines: Sequence[int] | None, ids: Sequence[Id]) -> None:
        """Write rows: the position of the event, its line in the file if it has one, and the id of the subscription."""


def output_format(path: str, asked: str | None) -> str:
    """Return the output format: the given one, or that of the extension."""
    chosen = asked or format_of(path, FORMATS)
    if chosen == PARQUET and path == STANDARD:
        raise CannotRunError("Parquet cannot be written to standard output: name a file with --output")
    return chosen


@contextlib.contextmanager
def match_writer(
    path: str,
    kind: str,
    *,
    are_ids_text: bool,
    has_lines: bool,
    about: Mapping[Id, tuple[str, str]] | None = None,
) -> Iterator[MatchWriter]:
    """Open a writer; a file appears under its name only when all of it is written.

    `about` has title and level of each subscription, which then are columns as well.
    """
    columns = ("event", *(("line",) if has_lines else ()), "subscription", *(() if about is None else _ABOUT))
    rows = _Rows(columns, about)
    if path == STANDARD:
        yield _writer(kind, sys.stdout.buffer, rows)
        sys.stdout.buffer.flush()
        return
    with written_whole(path) as temporary:
        if kind == PARQUET:
            with _parquet_writer(temporary, are_ids_text, rows) as writer:
                yield writer
            return
        with temporary.open("wb") as file:
            yield _writer(kind, file, rows)


def _writer(kind: str, file: IO[bytes], rows: _Rows) -> MatchWriter:
    return _CsvWriter(file, rows) if kind == CSV else _JsonWriter(file, rows)


class _Rows:
    """The columns of the output, and what stands in them."""

    def __init__(self, names: tuple[str, ...], about: Mapping[Id, tuple[str, str]] | None) -> None:
        self.names = names
        self._about = about

    def columns(self, events: Sequence[int], lines: Sequence[int] | None, ids: Sequence[Id]) -> list[Sequence[Any]]:
        """Return the columns in the order of their names."""
        found: list[Sequence[Any]] = [events, ids] if lines is None else [events, lines, ids]
        if self._about is None:
            return found
        about = [self._about[id] for id in ids]
        return [*found, [title for title, _ in about], [level for _, level in about]]


class _JsonWriter:
    def __init__(self, file: IO[bytes], rows: _Rows) -> None:
        self._file = file
        self._rows = rows
        self._form = "{{" + ", ".join(f'"{name}": {{}}' for name in rows.names) + "}}\n"

    def write(self, events: Sequence[int], lines: Sequence[int] | None, ids: Sequence[Id]) -> None:
        columns = self._rows.columns(events, lines, ids)
        rows = map(self._form.format, *(map(json.dumps, column) for column in columns))
        self._file.write("".join(rows).encode())
        self._file.flush()  # whoever reads along sees the matches of this chunk now


class _CsvWriter:
    def __init__(self, file: IO[bytes], rows: _Rows) -> None:
        self._file = file
        self._rows = rows
        file.write(csv_bytes([rows.names]))

    def write(self, events: Sequence[int], lines: Sequence[int] | None, ids: Sequence[Id]) -> None:
        self._file.write(csv_bytes(zip(*self._rows.columns(events, lines, ids), strict=True)))


class _ParquetWriter:
    def __init__(self, file: Any, schema: Any, rows: _Rows) -> None:
        self._file = file
        self._schema = schema
        self._rows = rows

    def write(self, events: Sequence[int], lines: Sequence[int] | None, ids: Sequence[Id]) -> None:
        import pyarrow as pa

        self._file.write_table(pa.table(self._rows.columns(events, lines, ids), schema=self._schema))


@contextlib.contextmanager
def _parquet_writer(path: Path, are_ids_text: bool, rows: _Rows) -> Iterator[_ParquetWriter]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"event": pa.int64(), "line": pa.int64(), "subscription": pa.string() if are_ids_text else pa.int64()}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in rows.names])
    with pq.ParquetWriter(path, schema) as file:
        yield _ParquetWriter(file, schema, rows)
