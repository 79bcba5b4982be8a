"""The same rules on the same events elsewhere: one query a rule in DuckDB and SQLite, and `scan`, the oracle.

A database gets a table of events with a column for whatever a rule asks for, and its queries are prepared, all before
the clock runs. Rules that SQL cannot express are named. An event is left out where an attribute that rules ask for has
several values, or where a column cannot hold its value; `scan` takes these as well.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from siftline.engine import Engine
from siftline.model import Event
from siftline_bench.errors import WrongIdsError
from siftline_bench.measure import Timed, time_once
from siftline_bench.real_rules.sql import (
    BOOLEAN,
    FOLDED_TEXTS,
    NUMBER,
    PRESENCE,
    TEXTS,
    DuckDbDialect,
    SqliteDialect,
    Translator,
    UntranslatableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from siftline.model.expression import Expression
    from siftline_bench.real_rules.sql import Columns, Dialect

# (number of the event, id of the rule)
Pairs = set[tuple[int, str]]
RuleList = list[tuple[str, "Expression"]]
_SHOWN_DIFFERENCES: Final = 5
_DUCKDB_TYPES: Final = {
    NUMBER: "DOUBLE",
    BOOLEAN: "BOOLEAN",
    PRESENCE: "BOOLEAN",
    TEXTS: "VARCHAR[]",
    FOLDED_TEXTS: "VARCHAR[]",
}


@dataclass
class Answer:
    """What somebody else found, and how long it took.

    Attributes
    ----------
    events : list of int
        The numbers of the events that it was given.
    pairs : set
        What it found.
    refused : dict
        The ids of rules that it cannot take, with reasons.
    timed : list of Timed
        The passes over all events.
    prepare_s : float
        How long it took to translate and prepare the rules.
    """

    name: str
    events: list[int]
    pairs: Pairs = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    timed: list[Timed] = field(default_factory=list)
    prepare_s: float = 0.0


class _Database(Protocol):
    """A database with one table of events."""

    dialect: Dialect

    def load(self, numbers: Sequence[int], columns: Columns, events: Sequence[Event]) -> None:
        """Make the table."""

    def prepare(self, id: str, condition: str) -> None:
        """Get ready for the query of a rule; raise UntranslatableError if it is refused."""

    def find(self, id: str) -> Iterable[tuple[int]]:
        """Return the events that satisfy a rule."""


def duckdb_answer(rules: RuleList, lines: Sequence[bytes], n_passes: int) -> Answer:
    """Ask DuckDB, on one thread."""
    return _answer("duckdb", _DuckDb(), rules, lines, n_passes)


def sqlite_answer(rules: RuleList, lines: Sequence[bytes], n_passes: int) -> Answer:
    """Ask SQLite."""
    return _answer("sqlite", _Sqlite(), rules, lines, n_passes)


def scan_answer(rules: RuleList, lines: Sequence[bytes], n_passes: int) -> Answer:
    """Ask the oracle, which takes every rule and every event."""
    engine, answer = Engine("scan"), Answer("scan", list(range(len(lines))))
    answer.prepare_s = time_once(lambda: engine.add_many(rules)).seconds
    for _ in range(n_passes):
        answer.timed.append(time_once(lambda: pairs_of(engine, lines)))
    answer.pairs = answer.timed[-1].result
    return answer


def pairs_of(engine: Engine, lines: Sequence[bytes]) -> Pairs:
    """Return what an engine finds."""
    found = engine.match_batch(list(lines), threads=1).to_pydict()
    return set(zip(found["event"], found["subscription"], strict=True))


def check_same(answer: Answer, ours: Pairs, titles: Callable[[str], str] = str) -> int:
    """Compare what was found for the rules and events that somebody else took; return how many pairs agree.

    Raises
    ------
    WrongIdsError
        With the first differences.
    """
    events = set(answer.events)
    mine = {pair for pair in ours if pair[0] in events and pair[1] not in answer.refused}
    different = sorted(mine ^ answer.pairs)
    if different:
        shown = [
            f"event {event}, rule {titles(id)}: only {'sift' if (event, id) in mine else answer.name}"
            for event, id in different[:_SHOWN_DIFFERENCES]
        ]
        raise WrongIdsError(f"{len(different):,} differences between sift and {answer.name}: {'; '.join(shown)}")
    return len(mine)


def _answer(name: str, database: _Database, rules: RuleList, lines: Sequence[bytes], n_passes: int) -> Answer:
    translator, answer = Translator(database.dialect), Answer(name, [])
    translated = time_once(lambda: _translated(rules, translator, answer.refused))
    events = [Event(json.loads(line)) for line in lines]
    answer.events = [number for number, event in enumerate(events) if translator.columns.has(event)]
    database.load(answer.events, translator.columns, [events[number] for number in answer.events])
    prepared = time_once(lambda: _prepared(database, translated.result, answer.refused))
    answer.prepare_s = translated.seconds + prepared.seconds
    ids = prepared.result
    for _ in range(n_passes):
        answer.timed.append(time_once(lambda: [(id, database.find(id)) for id in ids]))
    answer.pairs = {(number, id) for id, found in answer.timed[-1].result for (number,) in found}
    return answer


def _translated(rules: RuleList, translator: Translator, refused: dict[str, str]) -> dict[str, str]:
    conditions = {}
    for id, expression in rules:
        try:
            conditions[id] = translator.condition(expression)
        except UntranslatableError as error:
            refused[id] = str(error)
    return conditions


def _prepared(database: _Database, conditions: dict[str, str], refused: dict[str, str]) -> list[str]:
    ids = []
    for id, condition in conditions.items():
        try:
            database.prepare(id, condition)
        except UntranslatableError as error:
            refused[id] = str(error)
        else:
            ids.append(id)
    return ids


class _DuckDb:
    def __init__(self) -> None:
        import duckdb

        self.dialect: Dialect = DuckDbDialect()
        self._duckdb = duckdb
        self._connection = duckdb.connect(config={"threads": 1})
        self._connection.execute("SET max_expression_depth TO 100000")
        self._names: dict[str, str] = {}

    def load(self, numbers: Sequence[int], columns: Columns, events: Sequence[Event]) -> None:
        import pyarrow as pa

        cells = columns.cells(events)
        types = {name: _DUCKDB_TYPES.get(form, "VARCHAR") for (_, form), name in columns.names.items()}
        table = pa.table({"event": pa.array(numbers, pa.int64()), **{name: pa.array(c) for name, c in cells.items()}})
        selected = ", ".join(["event", *(f"CAST({name} AS {sort}) AS {name}" for name, sort in types.items())])
        self._connection.register("loaded", table)
        self._connection.execute(f"CREATE TABLE events AS SELECT {selected} FROM loaded")
        self._connection.unregister("loaded")

    def prepare(self, id: str, condition: str) -> None:
        name = f"q{len(self._names)}"
        try:
            self._connection.execute(f"PREPARE {name} AS SELECT event FROM events WHERE {condition}")
        except self._duckdb.Error as error:
            raise UntranslatableError(_first_line(error)) from None
        self._names[id] = f"EXECUTE {name}"

    def find(self, id: str) -> list[tuple[int]]:
        return self._connection.execute(self._names[id]).fetchall()


class _Sqlite:
    def __init__(self) -> None:
        self.dialect: Dialect = SqliteDialect()
        self._connection = sqlite3.connect(":memory:", cached_statements=100_000)
        self._connection.create_function("re2_finds", 2, SqliteDialect.re2_finds, deterministic=True)
        self._connection.execute("PRAGMA case_sensitive_like = ON")
        self._queries: dict[str, str] = {}

    def load(self, numbers: Sequence[int], columns: Columns, events: Sequence[Event]) -> None:
        cells = [[SqliteDialect.stored(value) for value in values] for values in columns.cells(events).values()]
        self._connection.execute(f"CREATE TABLE events ({', '.join(['event INTEGER', *columns.names.values()])})")
        places = ", ".join("?" * (1 + len(columns.names)))
        rows = zip(numbers, *cells, strict=True)
        self._connection.executemany(f"INSERT INTO events VALUES ({places})", rows)

    def prepare(self, id: str, condition: str) -> None:
        query = f"SELECT event FROM events WHERE {condition}"
        try:
            self._connection.execute(query).close()
        except sqlite3.Error as error:
            raise UntranslatableError(_first_line(error)) from None
        self._queries[id] = query

    def find(self, id: str) -> list[tuple[int]]:
        return self._connection.execute(self._queries[id]).fetchall()


def _first_line(error: Any) -> str:
    return str(error).partition("\n")[0]
