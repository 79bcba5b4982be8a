"""Imports files of subscriptions into a store: the valid ones in one transaction, the others into a quarantine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.broker.raw_json import raw_members
from siftline.cli.files import written_whole
from siftline.cli.moments import zoned_time
from siftline.cli.problems import CannotRunError
from siftline.cli.progress import announce
from siftline.cli.reading import read_file
from siftline.files.formats import CSV, input_format
from siftline.files.problems import Problem
from siftline.files.subscription_files import FORMATS, KEPT, Entry
from siftline.language.printer import to_text
from siftline.storage.written import CLOUDEVENTS, TEXT, Written

if TYPE_CHECKING:
    from datetime import datetime

    from siftline.files.subscription_files import Subscriptions
    from siftline.ids import Id
    from siftline.storage.store import Store

# From this many subscriptions on, a message is printed before they are written.
_ANNOUNCED_MIN: Final = 100_000


class Row(NamedTuple):
    """One valid subscription for the store, without its id."""

    written: Written
    weight: float
    owner: str | None = None
    created: datetime | None = None
    expires: datetime | None = None


class Import:
    """Reads files, collects the valid and the invalid subscriptions, and then writes both.

    Parameters
    ----------
    store : Store
        The store for the valid ones.
    is_replacing : bool
        Whether a subscription with the same id is replaced; otherwise it is a problem.
    owner : str, optional
        The owner of subscriptions without one.
    is_quiet : bool
        Whether to show no progress.
    """

    def __init__(self, store: Store, *, is_replacing: bool, owner: str | None, is_quiet: bool) -> None:
        self._store = store
        self._is_replacing = is_replacing
        self._owner = owner
        self._is_quiet = is_quiet
        self._are_ids_text = store.are_ids_text()
        self._rows: dict[Id, Row] = {}
        self._known: set[Id] = set()  # ids of rows that replace others in the store
        self.problems: list[Problem] = []
        self.n_added = self.n_replaced = 0

    def read(self, file: str, stop_after: int | None) -> None:
        """Read one file."""
        found = read_file(file, is_quiet=self._is_quiet, stop_after=stop_after, keeps_entries=True)
        self.problems += found.problems
        if found.table is not None:
            found = found.unpacked()
        if self._are_ids_text and input_format(file, FORMATS) == CSV:
            found.ids[:] = [str(id) for id in found.ids]  # numbers in a CSV file may be meant as text
        self._check_kind(found)
        known = self._store.known(found.ids)
        for position in range(len(found.ids)):
            self._take(found, position, known)

    def _check_kind(self, found: Subscriptions) -> None:
        if not found.ids:
            return
        is_text = isinstance(found.ids[0], str)
        if self._are_ids_text is None:
            self._are_ids_text = is_text
        if is_text is not self._are_ids_text:
            ours, theirs = ("strings", "integers") if self._are_ids_text else ("integers", "strings")
            raise CannotRunError(f"{found.file}: its ids are {theirs}, but the ids of {self._store.path} are {ours}")

    def _take(self, found: Subscriptions, position: int, known: set[Id]) -> None:
        """Keep one row, or add a problem."""
        entry = None if found.entries is None else found.entries[position]
        id = found.ids[position]
        kept: dict[str, Any] = {} if self._owner is None else {"owner": self._owner}
        reason = None
        try:
            kept |= {} if entry is None else _kept(entry)
        except ValueError as error:
            reason = f"subscription {id!r}: {error}"
        if id in self._rows:
            reason = f"duplicate id {id!r}: another file has it already"
        elif id in known and not self._is_replacing:
            reason = f"the store already has a subscription with the id {id!r} (--replace takes the new one)"
        if reason is not None:
            place = (None, None) if entry is None else (entry.line, entry.as_text())
            self.problems.append(Problem(found.file, place[0], None, reason, unit=found.unit, raw=place[1]))
            return
        if id in known:
            self._known.add(id)
        written = Written(TEXT, to_text(found.expressions[position])) if entry is None else _written(entry)
        self._rows[id] = Row(written, found.weights[position], **kept)

    def commit(self, quarantine: str | None) -> None:
        """Write the invalid ones to a file, then the valid ones to the store."""
        if quarantine is None:
            self._add_all()
            return
        with written_whole(quarantine) as path:
            with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
                for problem in self.problems:
                    file.write(json.dumps({**problem.to_dict(), "subscription": problem.raw}) + "\n")
            self._add_all()

    def _add_all(self) -> None:
        if len(self._rows) >= _ANNOUNCED_MIN:
            announce(f"writing {len(self._rows):,} subscriptions ...", is_quiet=self._is_quiet)
        with self._store.batch() as batch:
            for id, row in self._rows.items():
                if id in self._known and self._store.get(id).owner == row.owner:
                    batch.replace(id, row.written, weight=row.weight, expires=row.expires)
                    continue
                if id in self._known:
                    batch.remove(id)
                batch.add(row.written, id, weight=row.weight, owner=row.owner, expires=row.expires, created=row.created)
        self.n_replaced = len(self._known)
        self.n_added = len(self._rows) - self.n_replaced


def _written(entry: Entry) -> Written:
    """Return the expression of an entry exactly as it is in the file."""
    if entry.kind == "expression":
        return Written(TEXT, entry.source)
    dialect = entry.dialect if entry.kind == "pattern" else CLOUDEVENTS
    if isinstance(entry.source, str):
        return Written(dialect, entry.source)
    return Written(dialect, raw_members(entry.raw or "")[entry.kind])


def _kept(entry: Entry) -> dict[str, Any]:
    """Return the owner and the times; raise ValueError if they are invalid."""
    if entry.tenant is not None:
        raise ValueError("a store has owners, not tenants: name it owner")
    kept = {name: entry.kept[name] for name in KEPT if entry.kept.get(name) is not None}
    if not isinstance(kept.get("owner", ""), str):
        raise ValueError(f"an owner must be a string, not {kept['owner']!r}")
    for name in ("created", "expires"):
        if name in kept:
            kept[name] = zoned_time(name, kept[name])
    return kept
