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
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from siftline.ids import Id

FORMATS: Final = (JSONL, CSV, PARQUET)


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
def match_writer(path: str, kind: str, *, are_ids_text: bool, has_lines: bool) -> Iterator[MatchWriter]:
    """Open a writer; a file appears under its name only when all of it is written."""
    if path == STANDARD:
        yield _writer(kind, sys.stdout.buffer, has_lines)
        sys.stdout.buffer.flush()
        return
    with written_whole(path) as temporary:
        if kind == PARQUET:
            with _parquet_writer(temporary, are_ids_text, has_lines) as writer:
                yield writer
            return
        with temporary.open("wb") as file:
            yield _writer(kind, file, has_lines)


def _writer(kind: str, file: IO[bytes], has_lines: bool) -> MatchWriter:
    return _CsvWriter(file, has_lines) if kind == CSV else _JsonWriter(file)


class _JsonWriter:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, events: Sequence[int], lines: Sequence[int] | None, ids: Sequence[Id]) -> None:
        texts = map(json.dumps, ids)
        if lines is None:
            rows = [f'{{"event": {event}, "subscription": {id}}}\n' for event, id in zip(events, texts, strict=True)]
        else:
            rows = [
                f'{{"event": {event}, "line": {line}, "subscription": {id}}}\n'
                for event, line, id in zip(events, lines, texts, strict=True)
            ]
        self._file.write("".join(rows).encode())
        self._file.flush()  # whoever reads along sees the matches of this chunk now


class _CsvWriter:
    def __init__(self, file: IO[bytes], has_lines: bool) -> None:
        self._file = file
        file.write(csv_bytes([("event", "line", "subscription") if has_lines else ("event", "subscription")]))

    def write(self, events: Sequence[int], lines: Sequence[int] | None, ids: Sequence[Id]) -> None:
        columns = (events, ids) if lines is None else (events, lines, ids)
        self._file.write(csv_bytes(zip(*columns, strict=True)))


class _ParquetWriter:
    def __init__(self, file: Any, schema: Any) -> None:
        self._file = file
        self._schema = schema

    def write(self, events: Sequence[int], lines: Sequence[int] | None, ids: Sequence[Id]) -> None:
        import pyarrow as pa

        columns = {"event": events, "subscription": ids} | ({} if lines is None else {"line": lines})
        self._file.write_table(pa.table({name: columns[name] for name in self._schema.names}, schema=self._schema))


@contextlib.contextmanager
def _parquet_writer(path: Path, are_ids_text: bool, has_lines: bool) -> Iterator[_ParquetWriter]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = [("event", pa.int64()), *([("line", pa.int64())] if has_lines else [])]
    schema = pa.schema([*fields, ("subscription", pa.string() if are_ids_text else pa.int64())])
    with pq.ParquetWriter(path, schema) as file:
        yield _ParquetWriter(file, schema)
