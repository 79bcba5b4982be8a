"""Reads events from files in chunks, so that files may be larger than memory.

JSON Lines   one object per line; blank lines are skipped
CSV          the header has the attributes. A cell that is a JSON number, true or false becomes a number or a
             boolean, an empty cell is an absent attribute, any other cell is text. `--strings` keeps all cells as text
Parquet      each column is an attribute; or `--event COLUMN` names the column that holds whole events

The position of an event counts from 0 and includes invalid events, so it does not depend on which are skipped.
"""

from __future__ import annotations

import re
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from siftline.cli.problems import CannotRunError
from siftline.errors import EventError, TableError
from siftline.files.csv_rows import CsvRow, csv_rows
from siftline.files.formats import (
    CSV,
    JSONL,
    PARQUET,
    input_format,
    open_bytes,
    open_parquet,
    refuse_document,
    shown_name,
    size_of,
)
from siftline.files.problems import Problem, event_problem
from siftline.model import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from siftline.encoding.events import EncodedEvents
    from siftline.engine import Engine
    from siftline.model import Leaf

FORMATS: Final = (JSONL, CSV, PARQUET)

# Chunks are small, because an event may match very many subscriptions, and all matches of a chunk are in memory.
_CHUNK_BYTES: Final = 1 << 18
_CHUNK_EVENTS: Final = 512

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


class Chunk(NamedTuple):
    """Some consecutive events.

    Attributes
    ----------
    events : bytes, list of dict or Arrow table
        The events, in a form that `Engine.match_batch` accepts.
    positions, lines : sequence of int
        The position and line of each event; for Parquet the row.
    size : int
        The bytes of the file that this chunk accounts for.
    problems : list of Problem
        The invalid events between these.
    """

    events: Any
    positions: Sequence[int]
    lines: Sequence[int]
    size: int
    problems: list[Problem]


class EventFile:
    """A file of events.

    Parameters
    ----------
    path : str
        A file, or - for standard input.
    event_column : str, optional
        The column of a Parquet file that holds whole events.
    has_only_strings : bool
        Whether to keep the cells of a CSV file as text.
    """

    def __init__(self, path: str, *, event_column: str | None = None, has_only_strings: bool = False) -> None:
        self.path = path
        self.name = shown_name(path)
        self.format = input_format(path, FORMATS)
        self.event_column = event_column
        self._has_only_strings = has_only_strings
        if event_column is not None and self.format != PARQUET:
            raise CannotRunError(f"--event names a column of a Parquet file, and {self.name} is not one")
        if has_only_strings and self.format != CSV:
            raise CannotRunError(f"--strings applies to the cells of a CSV file, and {self.name} is not one")
        self.size = size_of(path)

    def chunks(self) -> Generator[Chunk]:
        """Yield the events of the file."""
        if self.format == PARQUET:
            yield from self._arrow_chunks()
            return
        with open_bytes(self.path) as file:
            if self.format == JSONL:
                refuse_document(file, self.path)
            yield from self._json_chunks(file) if self.format == JSONL else self._csv_chunks(file)

    def warm_up(self, engine: Engine) -> None:
        """Match an event without values in the format of this file, because kernels are compiled on their first run."""
        engine.match_batch(self._encode(self._nothing(), engine))

    def _nothing(self) -> Any:
        if self.format == CSV:
            return [{}]
        if self.format == JSONL or self.event_column is not None:
            return b"{}"
        import pyarrow as pa

        schema = open_parquet(self.path).schema_arrow
        return pa.table([pa.nulls(1, field.type) for field in schema], names=schema.names)

    def encoded(self, chunk: Chunk, engine: Engine) -> tuple[Chunk, Any]:
        """Encode a chunk for an engine; its invalid events, if there are any, are left out and become problems.

        Only the engine knows which columns are used; an invalid value in any other column is not a problem.
        """
        try:
            return chunk, self._encode(chunk.events, engine)
        except EventError:
            good = self._without_bad(chunk, engine)
        return good, self._encode(good.events, engine)

    def _encode(self, events: Any, engine: Engine) -> EncodedEvents:
        try:
            return engine.encode(events, event=None if isinstance(events, bytes) else self.event_column)
        except TableError as error:
            hint = " (hint: drop the column, or cast it to another type)" if self.event_column is None else ""
            raise CannotRunError(f"{self.name}: {error}{hint}") from None

    def _without_bad(self, chunk: Chunk, engine: Engine) -> Chunk:
        good, problems = [], list(chunk.problems)
        for i, event in enumerate(self._events(chunk, engine)):
            if isinstance(event, Problem):
                problems.append(event)
            else:
                good.append(i)
        problems.sort(key=lambda problem: problem.line or 0)
        return self._selected(chunk, good)._replace(problems=problems)

    def before(self, chunk: Chunk, line: int) -> Chunk:
        """Return the events of a chunk before a line."""
        return self._selected(chunk, [i for i, own in enumerate(chunk.lines) if own < line])

    def _selected(self, chunk: Chunk, chosen: list[int]) -> Chunk:
        if self.format == JSONL:
            texts = _lines_of(chunk.events)
            events: Any = b"\n".join(texts[i] for i in chosen)
        elif self.format == CSV:
            events = [chunk.events[i] for i in chosen]
        else:
            import numpy as np

            events = chunk.events.take(np.array(chosen, dtype=np.int64))
        positions, lines = [chunk.positions[i] for i in chosen], [chunk.lines[i] for i in chosen]
        return Chunk(events, positions, lines, chunk.size, [])

    def events(
        self, engine: Engine, advance: Callable[[int], None] = lambda size: None
    ) -> Iterator[tuple[int, Event | Problem]]:
        """Yield the line and content of every event, or the problem for which an engine refuses it."""
        for chunk in self.chunks():
            yield from ((problem.line or 0, problem) for problem in chunk.problems)
            yield from zip(chunk.lines, self._events(chunk, engine), strict=True)
            advance(chunk.size)

    def _events(self, chunk: Chunk, engine: Engine) -> Iterator[Event | Problem]:
        """Yield the events of a chunk one by one."""
        if self.format == JSONL:
            yield from map(self._json_event, _lines_of(chunk.events), chunk.lines)
        elif self.format == CSV:
            yield from map(Event, chunk.events)  # cells are always valid values
        else:
            yield from self._arrow_events(chunk, engine)

    def _arrow_events(self, chunk: Chunk, engine: Engine) -> Iterator[Event | Problem]:
        try:
            source = self._encode(chunk.events, engine).source
        except EventError:
            yield from (self._arrow_event(chunk.events.slice(i, 1), line, engine) for i, line in enumerate(chunk.lines))
        else:
            yield from (Event(source.tree(i)) for i in range(len(source)))

    def _arrow_event(self, row: Any, line: int, engine: Engine) -> Event | Problem:
        try:
            return Event(self._encode(row, engine).source.tree(0))
        except EventError as error:
            return Problem(self.name, line, None, str(error).removeprefix("event 0: "), unit="row")

    @property
    def unit(self) -> str:
        """What the line numbers count."""
        return "row" if self.format == PARQUET else "line"

    # JSON Lines

    def _json_chunks(self, file: IO[bytes]) -> Iterator[Chunk]:
        n_lines = n_events = 0
        for block in _blocks(file):
            are_full = [not _is_blank(line) for line in block.split(b"\n")]
            lines = [n_lines + i for i, is_full in enumerate(are_full, 1) if is_full]
            n_lines += len(are_full) - block.endswith(b"\n")
            if lines:
                positions = range(n_events, n_events + len(lines))
                yield Chunk(block, positions, lines, len(block), [])
            n_events += len(lines)

    def _json_event(self, text: bytes, line: int) -> Event | Problem:
        from siftline.encoding.json_events import load_object

        try:
            return Event(load_object(text))
        except EventError as error:
            return event_problem(error, self.name, line, text)

    # CSV

    def _csv_chunks(self, file: IO[bytes]) -> Iterator[Chunk]:
        sizes: list[int] = []
        rows: list[CsvRow | Problem] = []
        n_rows = 0
        for row in csv_rows(file, self.name, sizes.append):
            rows.append(row)
            if len(rows) == _CHUNK_EVENTS:
                yield self._csv_chunk(rows, n_rows, sum(sizes))
                n_rows += len(rows)
                rows, sizes[:] = [], []
        if rows:
            yield self._csv_chunk(rows, n_rows, sum(sizes))

    def _csv_chunk(self, rows: list[CsvRow | Problem], first: int, size: int) -> Chunk:
        events, positions, lines, problems = [], [], [], []
        for position, row in enumerate(rows, first):
            event = row if isinstance(row, Problem) else self._csv_event(row)
            if isinstance(event, Problem):
                problems.append(event)
            else:
                events.append(event)
                positions.append(position)
                lines.append(row.line or 0)
        return Chunk(events, positions, lines, size, problems)

    def _csv_event(self, row: CsvRow) -> dict[str, Leaf] | Problem:
        if self._has_only_strings:
            return {name: cell for name, cell in row.cells.items() if cell}
        try:
            return {name: typed(cell) for name, cell in row.cells.items() if cell}
        except ValueError:  # Python's limit of 4,300 digits
            return Problem(self.name, row.line, 1, "an integer has too many digits")

    # Parquet

    def _arrow_chunks(self) -> Iterator[Chunk]:
        import pyarrow as pa

        file = open_parquet(self.path)
        if self.event_column is not None and self.event_column not in file.schema_arrow.names:
            names = ", ".join(file.schema_arrow.names)
            raise CannotRunError(f"{self.name}: there is no column {self.event_column!r} (there are: {names})")
        bytes_per_row = (self.size or 0) // max(file.metadata.num_rows, 1)
        n_rows = 0
        try:
            for batch in file.iter_batches(batch_size=_CHUNK_EVENTS):
                positions = range(n_rows, n_rows + len(batch))
                rows = range(n_rows + 1, n_rows + len(batch) + 1)
                yield Chunk(pa.Table.from_batches([batch]), positions, rows, bytes_per_row * len(batch), [])
                n_rows += len(batch)
        except (pa.ArrowException, OSError) as error:
            raise CannotRunError(f"{self.name}: cannot be read further: {error}") from None


def typed(cell: str) -> Leaf:
    """Return the value of a CSV cell.

    >>> typed("12"), typed("1.5e3"), typed("true"), typed("007"), typed("NaN")
    (12, 1500.0, True, '007', 'NaN')
    """
    if cell in ("true", "false"):
        return cell == "true"
    if _NUMBER.fullmatch(cell) is None:
        return cell
    return int(cell) if cell.lstrip("-").isdecimal() else float(cell)


def _blocks(file: Any) -> Iterator[bytes]:
    """Yield blocks of complete lines of about _CHUNK_BYTES; a pipe yields what is available, without waiting."""
    while block := file.read1(_CHUNK_BYTES):
        if not block.endswith(b"\n"):
            block += file.readline()
        yield block


def _lines_of(block: bytes) -> list[bytes]:
    return [line for line in block.split(b"\n") if not _is_blank(line)]


def _is_blank(line: bytes) -> bool:
    return not line.strip(b" \t\r")
