"""Reads subscriptions from files, and reports what is wrong with invalid ones.

JSON Lines   {"id": "ann", "expression": "price <= 580", "weight": 2}, with "pattern" (an event pattern, optionally
             "dialect": "sns") or "filters" (CloudEvents) in place of "expression"; or a bare string, an expression
             whose id is the number of its line
text         one expression per line, whose id is the number of the line; empty lines and those after -- are skipped
CSV          a header with subscription (or id), expression and optionally weight; ids that are all whole numbers
             are integers
Parquet      the same columns, or one row per predicate: subscription, clause, attribute, op, number, text, ...

All forms but text may also have tenant, which an engine uses, and owner, created and expires, which a store uses.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.errors import FileError, SubscriptionError
from siftline.files.csv_rows import csv_rows
from siftline.files.formats import (
    CSV,
    JSONL,
    PARQUET,
    TEXT,
    input_format,
    open_bytes,
    open_parquet,
    refuse_document,
    shown_name,
)
from siftline.files.json_places import column_in_json
from siftline.files.problems import Problem, problem_of
from siftline.ids import INT64

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from siftline.ids import Id
    from siftline.model import Expression

FORMATS: Final = (JSONL, TEXT, CSV, PARQUET)

_NAMES: Final = ("id", "subscription")
_SOURCES: Final = ("expression", "pattern", "filters")
# The keys that only a store uses.
KEPT: Final[tuple[str, ...]] = ("owner", "created", "expires")
_KEYS: Final = (*_NAMES, *_SOURCES, "weight", "dialect", "tenant", *KEPT)
_WITH_ID: Final = '{"id": "...", "expression": "..."}'


class Entry(NamedTuple):
    """One subscription of a file, before parsing."""

    line: int
    id: Any
    kind: str  # one of _SOURCES
    source: Any
    weight: Any
    locate: Callable[[int], tuple[int, int]] | None = None
    dialect: Any = "eventbridge"
    is_bare: bool = False  # a bare string, whose id is its line
    raw: str | None = None  # the line or record in the file, if that is text
    kept: Mapping[str, Any] = MappingProxyType({})  # the values of the keys in KEPT that are present
    tenant: Any = None

    def as_text(self) -> str:
        """Return the line or record; a JSON text for the row of a table."""
        if self.raw is not None:
            return self.raw
        row = {"subscription": self.id, self.kind: self.source, "weight": self.weight, **self.kept}
        row |= {} if self.tenant is None else {"tenant": self.tenant}
        return json.dumps(row, default=str)


@dataclass
class Subscriptions:
    """The valid subscriptions of a file, and the problems of the others."""

    file: str
    unit: str = "line"
    ids: list[Id] = field(default_factory=list)
    expressions: list[Expression] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    tenants: list[str | None] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    files: list[str] = field(default_factory=list)  # of each, if they come from several
    positions: list[int] = field(default_factory=list)  # among all entries, invalid ones included, from 0
    are_ids_spelled: bool = False  # from a CSV file, in which numbers may be meant as text
    # The columnar form is kept as a table, so that loading needs no objects; then the lists above are empty.
    table: Any = None
    problems: list[Problem] = field(default_factory=list)
    # The entries, for callers that keep expressions as they were written; otherwise None.
    entries: list[Entry] | None = None

    def __len__(self) -> int:
        return len(self.ids) if self.table is None else len(self.table["subscription"].unique())

    def unpacked(self) -> Subscriptions:
        """Return the same subscriptions as a list of expressions, even if the file has the columnar form."""
        if self.table is None:
            return self
        from siftline.encoding.columns import load_columns
        from siftline.encoding.domains import Domains

        loaded = load_columns(self.table, Domains())
        expressions = [loaded.expressions.expression(position) for position in range(len(loaded.ids))]
        weights = loaded.weights.tolist()
        return Subscriptions(self.file, self.unit, loaded.ids, expressions, weights, problems=self.problems)


def read_subscriptions(
    path: str,
    *,
    stop_after: int | None = None,
    keeps_entries: bool = False,
    advance: Callable[[int], None] = lambda size: None,
) -> Subscriptions:
    """Read and parse a file of subscriptions; stop after `stop_after` problems.

    `advance` is called with the number of bytes that were read.
    """
    kind = input_format(path, FORMATS)
    name = shown_name(path)
    if kind == PARQUET:
        from siftline.files.subscription_tables import read_table

        found = read_table(path, open_parquet(path), advance, stop_after)
        if isinstance(found, Subscriptions):
            return found
        return collected(name, found, stop_after, unit="row", keeps_entries=keeps_entries)
    entries = _READERS[kind](path, name, advance)
    subscriptions = collected(name, entries, stop_after, keeps_entries=keeps_entries)
    if kind == CSV:
        _make_integers(subscriptions)
        subscriptions.are_ids_spelled = True
    return subscriptions


def collected(
    name: str,
    entries: Iterator[Entry | Problem],
    stop_after: int | None,
    unit: str = "line",
    *,
    keeps_entries: bool = False,
) -> Subscriptions:
    """Parse entries and keep the valid ones."""
    subscriptions = Subscriptions(name, unit, entries=[] if keeps_entries else None)
    collector = _Collector(subscriptions)
    for entry in entries:
        collector.take(entry)
        if stop_after is not None and len(subscriptions.problems) >= stop_after:
            break
    return subscriptions


class _Collector:
    """Checks and parses each entry, and adds it to the subscriptions or to the problems."""

    def __init__(self, subscriptions: Subscriptions) -> None:
        self._to = subscriptions
        self._n_taken = 0
        self._lines: dict[Id, int] = {}
        self._first: tuple[bool, int] | None = None  # whether ids are strings, and the line of the first id

    def take(self, entry: Entry | Problem) -> None:
        """Add one entry."""
        self._n_taken += 1
        if isinstance(entry, Problem):
            self._to.problems.append(replace(entry, position=self._n_taken - 1))
            return
        reason = self._id_reason(entry) or _weight_reason(entry.weight) or _tenant_reason(entry.tenant)
        if reason:
            self._refuse(entry, reason)
            return
        try:
            expression = parse_entry(entry)
        except SubscriptionError as error:
            about = f"subscription {entry.id!r}: "
            problem = problem_of(error, self._to.file, entry.line, entry.locate, about=about, unit=self._to.unit)
            problem = replace(problem, raw=entry.as_text(), id=entry.id, position=self._n_taken - 1)
            self._to.problems.append(problem)
            return
        if self._to.entries is not None:
            self._to.entries.append(entry)
        self._to.ids.append(entry.id)
        self._to.expressions.append(expression)
        self._to.weights.append(1.0 if entry.weight is None else float(entry.weight))
        self._to.tenants.append(entry.tenant)
        self._to.lines.append(entry.line)
        self._to.positions.append(self._n_taken - 1)

    def _refuse(self, entry: Entry, reason: str) -> None:
        problem = Problem(self._to.file, entry.line, 1, reason, unit=self._to.unit, raw=entry.as_text())
        self._to.problems.append(replace(problem, id=entry.id, position=self._n_taken - 1))

    def _id_reason(self, entry: Entry) -> str | None:
        """Return what is wrong with an id, or remember it and return None."""
        id = entry.id
        if isinstance(id, bool) or not isinstance(id, (int, str)):
            return f"an id must be an integer or a string, not {_shown(id)}"
        if isinstance(id, int) and id not in INT64:
            return "the id does not fit into 64 bits"
        if isinstance(id, str) and not _is_unicode(id):
            return f"the id {_shown(id)} holds half of a surrogate pair"
        is_text = isinstance(id, str)
        if self._first is None:
            self._first = is_text, entry.line
        if is_text is not self._first[0]:
            first = f"the first one ({self._to.unit} {self._first[1]})"
            if entry.is_bare:
                return f"the id of a bare string is its line, an integer, but {first} is a string; write {_WITH_ID}"
            kinds = ("a string", "an integer") if is_text else ("an integer", "a string")
            return f"the id {_shown(id)} is {kinds[0]}, but {first} is {kinds[1]}"
        if id in self._lines:
            return f"duplicate id {_shown(id)}: {self._to.unit} {self._lines[id]} has it already"
        self._lines[id] = entry.line
        return None


def _weight_reason(weight: Any) -> str | None:
    if weight is None or (type(weight) in (int, float) and _is_finite(weight)):
        return None
    return f"a weight must be a finite number, not {_shown(weight)}"


def _tenant_reason(tenant: Any) -> str | None:
    return None if tenant is None or isinstance(tenant, str) else f"a tenant must be a string, not {_shown(tenant)}"


def _is_finite(weight: int | float) -> bool:
    try:
        return math.isfinite(float(weight))
    except OverflowError:
        return False


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _shown(value: Any) -> str:
    if value is None or isinstance(value, (bool, list, tuple, dict)):
        return _described(value)
    text = ascii(value) if isinstance(value, str) and not _is_unicode(value) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _described(value: Any) -> str:
    from siftline.language.json_source import members_of

    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return "an object" if members_of(value) is not None else "an array"


def parse_entry(entry: Entry) -> Expression:
    """Return the expression of an entry, or raise SubscriptionError."""
    from siftline.operators.acceptance import accepted

    if entry.kind == "pattern":
        from siftline.language.event_pattern import parse_pattern

        return accepted(parse_pattern(entry.source, entry.dialect))
    if entry.kind == "filters":
        from siftline.language.cloudevents import parse_filters

        return accepted(parse_filters(entry.source))
    if not isinstance(entry.source, str):
        raise SubscriptionError(f"an expression must be a string, not {_shown(entry.source)}")
    return accepted(entry.source)


# One reader for each format


def _read_text(path: str, name: str, advance: Callable[[int], None]) -> Iterator[Entry | Problem]:
    for line, text in _decoded_lines(path, name, advance):
        if isinstance(text, Problem):
            yield text
        elif not text.lstrip().startswith("--"):
            yield Entry(line, line, "expression", text, None, raw=text)


def _read_json_lines(path: str, name: str, advance: Callable[[int], None]) -> Iterator[Entry | Problem]:
    for line, text in _decoded_lines(path, name, advance, is_json=True):
        entry = text if isinstance(text, Problem) else _json_entry(text, line, name)
        yield replace(entry, raw=text) if isinstance(entry, Problem) and isinstance(text, str) else entry


def _read_csv(path: str, name: str, advance: Callable[[int], None]) -> Iterator[Entry | Problem]:
    with open_bytes(path) as file:
        for row in csv_rows(file, name, advance):
            yield row if isinstance(row, Problem) else _csv_entry(row, name)


_READERS: Final = {TEXT: _read_text, JSONL: _read_json_lines, CSV: _read_csv}


def _decoded_lines(
    path: str, name: str, advance: Callable[[int], None], *, is_json: bool = False
) -> Iterator[tuple[int, str | Problem]]:
    """Yield the lines that are not blank, with their numbers."""
    with open_bytes(path) as file:
        if is_json:
            refuse_document(file, path)
        for line, raw in enumerate(file, 1):
            advance(len(raw))
            content = raw.rstrip(b"\r\n")
            if not content.strip():
                continue
            try:
                yield line, content.decode()
            except UnicodeDecodeError as error:
                column = len(content[: error.start].decode()) + 1
                shown = content.decode(errors="backslashreplace")
                yield line, Problem(name, line, column, f"not UTF-8: {error.reason}", raw=shown)


def _json_entry(text: str, line: int, name: str) -> Entry | Problem:
    from siftline.language.json_source import members_of, read_json

    try:
        value = read_json(text)
    except SubscriptionError as error:
        return problem_of(error, name, line, lambda position: (line, position + 1))
    if isinstance(value, str):
        locate = _locator(text, line, None, value)
        return Entry(line, line, "expression", value, None, locate, is_bare=True, raw=text)
    members = members_of(value)
    if members is None:
        return Problem(name, line, 1, f"expected a JSON object or string, found {_shown(value)}")
    keys = dict(members)
    if len(keys) != len(members):
        return Problem(name, line, 1, "a key occurs twice in the object")
    return _entry_of(keys, text, line, name)


def mapped_entry(keys: Mapping[str, Any]) -> Entry | Problem:
    """Return the entry of a Python mapping with the same keys as a line of JSON."""
    return _entry_of(dict(keys), None, 0, "")


def _entry_of(keys: dict[str, Any], text: str | None, line: int, name: str) -> Entry | Problem:
    names = [key for key in _NAMES if key in keys]
    sources = [key for key in _SOURCES if key in keys]
    reason = _unknown_key(keys) or _not_one(names, _NAMES, keys) or _not_one(sources, _SOURCES, keys)
    if reason:
        return Problem(name, line, 1, reason)
    kind = sources[0]
    source = keys[kind]
    locate = _locator(text, line, kind, source) if isinstance(source, str) and text is not None else None
    weight, dialect = keys.get("weight"), keys.get("dialect", "eventbridge")
    kept = {key: keys[key] for key in KEPT if key in keys}
    tenant = keys.get("tenant")
    return Entry(line, keys[names[0]], kind, source, weight, locate, dialect, raw=text, kept=kept, tenant=tenant)


def _unknown_key(keys: dict[str, Any]) -> str | None:
    from siftline.language.json_source import close_to

    unknown = next((key for key in keys if key not in _KEYS), None)
    return None if unknown is None else f"unknown key {_shown(unknown)}; {close_to(unknown, _KEYS)}"


def _not_one(found: Sequence[str], wanted: Sequence[str], keys: dict[str, Any]) -> str | None:
    """Return the reason if none of some keys is present, or more than one."""
    if len(found) == 1:
        return None
    if found:
        return f"both {found[0]!r} and {found[1]!r} are present: only one is allowed"
    listed = ", ".join(map(_shown, keys)) or "an empty object"
    choice = f"{', '.join(map(repr, wanted[:-1]))} and {wanted[-1]!r}"
    return f"expected one of the keys {choice}, found {listed}"


def _locator(text: str, line: int, key: str | None, value: str) -> Callable[[int], tuple[int, int]]:
    """Return a function from a position in a JSON string to its line and column in the file."""

    def locate(position: int) -> tuple[int, int]:
        if key is None:
            return line, (column_in_json(f'"":{text.lstrip()}', "", value, position) or 1) - 3 + _indent(text)
        return line, column_in_json(text, key, value, position) or 1

    return locate


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _csv_entry(row: Any, name: str) -> Entry | Problem:
    cells = row.cells
    id = cells.get("subscription", cells.get("id"))
    expression = cells.get("expression")
    if id is None or expression is None:
        found = ", ".join(cells)
        raise FileError(f"{name}:1: expected the columns subscription (or id) and expression, found {found}")
    if not id:
        return Problem(name, row.line, 1, "the id is empty", raw=row.raw)
    weight = _number(cells.get("weight", ""))
    kept = {key: cells[key] for key in KEPT if cells.get(key)}
    locate = functools.partial(row.locate, expression)
    tenant = cells.get("tenant") or None
    return Entry(row.line, id, "expression", expression, weight, locate, raw=row.raw, kept=kept, tenant=tenant)


def _number(cell: str) -> float | str | None:
    if not cell:
        return None
    try:
        return float(cell)
    except ValueError:
        return cell


def _make_integers(subscriptions: Subscriptions) -> None:
    """Convert the ids of a CSV file to integers if all of them are integers."""
    numbers = [number for id in subscriptions.ids if (number := whole_number(str(id))) is not None]
    if len(numbers) == len(subscriptions.ids):
        subscriptions.ids[:] = numbers


def whole_number(text: str) -> int | None:
    """Return the integer of a text, None if the text is not exactly how the integer is printed.

    >>> whole_number("-7"), whole_number("007"), whole_number("7.0")
    (-7, None, None)
    """
    number = int(text) if text.lstrip("-").isdecimal() and len(text) <= 20 else None
    return number if number is not None and str(number) == text and number in INT64 else None
