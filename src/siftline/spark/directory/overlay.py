"""Overlay: the changes on top of a version, as engines for matching events.

The engines of a version never change; all workers of a machine share them as memory maps. The overlay is a small engine
with the subscriptions that were added or replaced, and a list of tombstones: ids of the version that were replaced,
removed or have ended. Matches of the version with these ids are left out. So a change costs a worker memory and time
for the change, and not for the whole index.

(The alternative was to change the engine of a version in place. Its first removal makes a table of all ids, and every
worker would need its own.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from siftline.engine import Engine
from siftline.language.text import parse_stored
from siftline.spark.directory.deltas import END, PUT, read_delta
from siftline.storage.feed import add_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from siftline.encoding.events import EncodedEvents
    from siftline.ids import Id
    from siftline.operators.stage import Stage
    from siftline.spark.directory.deltas import Delta
    from siftline.spark.directory.versions import IndexDirectory

NEVER: Final = 2**63 - 1


class Masked:
    """An engine without the matches of some of its subscriptions."""

    def __init__(self, engine: Engine, tombstones: Any) -> None:
        self._engine = engine
        self._tombstones = tombstones

    @property
    def call_stage(self) -> Stage | None:
        """The stage that makes the calls of conditions."""
        return self._engine.call_stage

    def encode(self, events: Any, *, now: Any) -> EncodedEvents:
        """Encode events as the engine does."""
        return self._engine.encode(events, now=now)

    def match_batch(self, events: Any, *, top: int | None, threads: int, weights: bool, now: Any) -> Any:
        """Return the matches without tombstones; there may be more than `top`, as they are dropped after ranking."""
        most = None if top is None else top + len(self._tombstones)
        table = self._engine.match_batch(events, top=most, threads=threads, weights=weights, now=now)
        if not len(table):
            return table
        return table.filter(pc.invert(pc.is_in(table["subscription"], value_set=self._tombstones)))


class Put(NamedTuple):
    """A subscription that came with a delta."""

    text: str
    weight: float
    end: int


class Tombstones(NamedTuple):
    """The ids that are left out from one time until another: those of the version, and those of the overlay."""

    since: int
    until: int
    of_version: Any
    of_overlay: Any


class Overlay:
    """The changes since a version.

    puts      subscriptions that were added or replaced: the content of the small engine
    touched   ids of the version that were replaced or removed
    ends      when subscriptions of the version end, if a change has set that
    """

    def __init__(self, directory: IndexDirectory) -> None:
        self.directory = directory
        self.number = directory.delta
        self.puts: dict[Id, Put] = {}
        self.touched: set[Id] = set()
        self.ends: dict[Id, int] = {}
        self.engine = Engine(schedule=directory.schedule)
        self._version_ends: dict[Id, int] | None = None
        self._tombstones: Tombstones | None = None

    def advance(self, number: int) -> None:
        """Apply deltas up to a number."""
        changed: set[Id] = set()
        for each in range(self.number + 1, number + 1):
            changed |= self._apply(read_delta(self.directory.path, each))
        if self.number < number:
            self.number, self._tombstones = number, None
        self._update(changed)

    def _apply(self, delta: Delta) -> set[Id]:
        """Apply the changes of a delta; return the ids whose content has changed."""
        changed: set[Id] = set()
        for kind, id, *content in delta.changes:
            if kind == END:
                self._end(id, content[0], delta.time)
                continue
            changed.add(id)
            self.touched.add(id)
            self.ends.pop(id, None)
            if kind == PUT:
                text, weight, end = content
                self.puts[id] = Put(text, weight, NEVER if end is None else end)
            else:
                self.puts.pop(id, None)
        return changed

    def _end(self, id: Id, end: int, now: int) -> None:
        """Set when a subscription ends, unless it has ended or does not exist."""
        put = self.puts.get(id)
        if put is not None:
            if put.end > now:
                self.puts[id] = put._replace(end=end)
        elif id not in self.touched and self.ends.get(id, self.version_ends.get(id, NEVER)) > now:
            self.ends[id] = end

    @property
    def version_ends(self) -> dict[Id, int]:
        """When subscriptions of the version end, according to the version itself."""
        if self._version_ends is None:
            self._version_ends = dict(zip(*(column.to_pylist() for column in self.directory.ends), strict=True))
        return self._version_ends

    @property
    def has_changes(self) -> bool:
        """Whether the applied deltas change anything."""
        return bool(self.puts or self.touched or self.ends)

    def _update(self, changed: set[Id]) -> None:
        """Bring the small engine up to date."""
        self.engine.remove_many([id for id in changed if id in self.engine])
        puts = {id: self.puts[id] for id in changed if id in self.puts}
        add_rows(self.engine, [(id, parse_stored(put.text), put.weight) for id, put in puts.items()])

    def tombstones(self, now: int) -> Tombstones:
        """Return the ids that are left out at a time."""
        known = self._tombstones
        if known is None or not known.since <= now < known.until:
            known = self._tombstones = self._tombstones_at(now)
        return known

    def _tombstones_at(self, now: int) -> Tombstones:
        table = self.directory.ends
        version_ends = table["end"].to_numpy()
        n_ended = int(version_ends.searchsorted(now, side="right"))
        ended = table["subscription"].slice(0, n_ended).to_pylist()
        of_version = self.touched | {id for id in ended if id not in self.ends}
        of_version |= {id for id, end in self.ends.items() if end <= now}
        of_overlay = [id for id, put in self.puts.items() if put.end <= now]
        moments = [*self.ends.values(), *(put.end for put in self.puts.values())]
        moments += version_ends[max(n_ended - 1, 0) : n_ended + 1].tolist()
        since = max((moment for moment in moments if moment <= now), default=0)
        until = min((moment for moment in moments if moment > now), default=NEVER)
        kind = table["subscription"].type
        return Tombstones(since, until, pa.array(list(of_version), kind), pa.array(of_overlay, kind))

    def engines(self, engines: Sequence[Engine], now: int) -> list[Any]:
        """Return the engines for matching events at a time, in place of those of the version."""
        of_version = self.tombstones(now).of_version
        if not len(of_version) and not len(self.engine):
            return list(engines)
        return [*(masked(engine, of_version) for engine in engines), self.own_engine(now)]

    def own_engine(self, now: int) -> Any:
        """Return the small engine as of a time."""
        return masked(self.engine, self.tombstones(now).of_overlay)


def masked(engine: Engine, tombstones: Any) -> Any:
    """Return an engine without some ids: the engine itself if there are none."""
    return Masked(engine, tombstones) if len(tombstones) else engine
