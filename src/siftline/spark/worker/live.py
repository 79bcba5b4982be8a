"""One state of an index, as workers match with it: a version, and the changes on top of it.

    state (4, 7, 12:00) = version 4  +  deltas 5, 6, 7 (version 4 has those up to 4)  −  what is over by 12:00

The engines of a version stay as they are, mapped and shared. Changes make a small engine beside them, and a list of
ids that no longer count in the version: whatever it finds of those is left out. So a change costs a worker what it
says, not what the index holds. A worker keeps what it has applied, and adds the deltas that are new.

(Changing the engine of a version in place was the other way. Its first removal makes a table of all ids, and every
worker would have one of its own.)
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from siftline.engine import Engine
from siftline.language.text import parse_stored
from siftline.operators.modules import load_modules
from siftline.spark.changes import END, PUT, read_delta
from siftline.spark.directory.versions import IndexDirectory, delta_numbers
from siftline.spark.worker.matcher import open_shards, stamp_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence

    from siftline.encoding.events import EncodedEvents
    from siftline.operators.stage import Stage
    from siftline.spark.changes import Delta
    from siftline.spark.worker.matcher import Matcher
    from siftline.subscriptions import Id

NEVER: Final = 2**63 - 1
# Fewer subscriptions than this are added one by one.
_FEW: Final = 8
_MOST_KEPT: Final = 2


class State(NamedTuple):
    """Which subscriptions there are: a version, the last delta on top of it, and the time, in microseconds.

    The time is also what `now()` means to them.
    """

    version: int
    delta: int
    time: int


def state_of(index: str | os.PathLike[str] | IndexDirectory) -> State:
    """Return the state of an index now: its current version, or the one that was opened, with all changes since."""
    directory = index if isinstance(index, IndexDirectory) else IndexDirectory.open(index)
    last = max([directory.delta, *delta_numbers(directory.path)[-1:]])
    return State(directory.version, last, time.time_ns() // 1000)


class Masked:
    """An engine of which some subscriptions no longer count."""

    def __init__(self, engine: Engine, gone: Any) -> None:
        self._engine = engine
        self._gone = gone

    @property
    def call_stage(self) -> Stage | None:
        """What makes the calls of conditions."""
        return self._engine.call_stage

    def encode(self, events: Any, *, now: Any) -> EncodedEvents:
        """Encode events as the engine does."""
        return self._engine.encode(events, now=now)

    def match_batch(self, events: Any, *, top: int | None, threads: int, weights: bool, now: Any) -> Any:
        """Return the matches that count. With `top`, more than so many: at most that many of them may go."""
        most = None if top is None else top + len(self._gone)
        table = self._engine.match_batch(events, top=most, threads=threads, weights=weights, now=now)
        if not len(table):
            return table
        return table.filter(pc.invert(pc.is_in(table["subscription"], value_set=self._gone)))


class Put(NamedTuple):
    """A subscription that came with a delta."""

    text: str
    weight: float
    end: int


class Overlay:
    """What changed since a version.

    puts      what came: all that the small engine has
    touched   ids that no longer count in the version, because they were replaced or removed
    ends      when subscriptions of the version end, if changes say so
    """

    def __init__(self, directory: IndexDirectory) -> None:
        self.directory = directory
        self.number = directory.delta
        self.puts: dict[Id, Put] = {}
        self.touched: set[Id] = set()
        self.ends: dict[Id, int] = {}
        self.engine = Engine(schedule=directory.schedule)
        self._first_ends: dict[Id, int] | None = None
        self._gone: tuple[int, int, Any, Any] | None = None

    def advance(self, number: int) -> None:
        """Apply deltas up to a number."""
        changed: set[Id] = set()
        for each in range(self.number + 1, number + 1):
            changed |= self._apply(read_delta(self.directory.path, each))
        if self.number < number:
            self.number, self._gone = number, None
        self._update(changed)

    def _apply(self, delta: Delta) -> set[Id]:
        """Take in the changes of a delta; return the ids whose content is another now."""
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
        """Let a subscription end at a time, unless it is over or there is none."""
        put = self.puts.get(id)
        if put is not None:
            if put.end > now:
                self.puts[id] = put._replace(end=end)
        elif id not in self.touched and self.ends.get(id, self.first_ends.get(id, NEVER)) > now:
            self.ends[id] = end

    @property
    def first_ends(self) -> dict[Id, int]:
        """When subscriptions of the version end by itself."""
        if self._first_ends is None:
            self._first_ends = dict(zip(*(column.to_pylist() for column in self.directory.ends), strict=True))
        return self._first_ends

    @property
    def has_changes(self) -> bool:
        """Whether the deltas that were applied say anything."""
        return bool(self.puts or self.touched or self.ends)

    def _update(self, changed: set[Id]) -> None:
        """Bring the small engine up to date."""
        self.engine.remove_many([id for id in changed if id in self.engine])
        puts = {id: self.puts[id] for id in changed if id in self.puts}
        rows = [(id, parse_stored(put.text), put.weight) for id, put in puts.items()]
        if len(rows) >= _FEW:
            self.engine.add_many(rows)
        else:
            for id, expression, weight in rows:
                self.engine.add(expression, id, weight)

    def gone(self, now: int) -> tuple[Any, Any]:
        """Return the ids that do not count at a time: those of the version, and those of the small engine."""
        if self._gone is None or not self._gone[0] <= now < self._gone[1]:
            self._gone = self._gone_from(now)
        return self._gone[2:]

    def _gone_from(self, now: int) -> tuple[int, int, Any, Any]:
        """Return the same, with the times between which it is so."""
        table = self.directory.ends
        first_ends = table["end"].to_numpy()
        n_over = int(first_ends.searchsorted(now, side="right"))
        over = table["subscription"].slice(0, n_over).to_pylist()
        gone = self.touched | {id for id in over if id not in self.ends}
        gone |= {id for id, end in self.ends.items() if end <= now}
        own = [id for id, put in self.puts.items() if put.end <= now]
        moments = [*self.ends.values(), *(put.end for put in self.puts.values())]
        moments += first_ends[max(n_over - 1, 0) : n_over + 1].tolist()
        since = max((moment for moment in moments if moment <= now), default=0)
        until = min((moment for moment in moments if moment > now), default=NEVER)
        kind = table["subscription"].type
        return since, until, pa.array(list(gone), kind), pa.array(own, kind)

    def engines(self, engines: Sequence[Engine], now: int) -> list[Any]:
        """Return what events are matched with at a time, instead of the engines of the version."""
        gone, own = self.gone(now)
        if not len(gone) and not len(self.engine):
            return list(engines)
        last = Masked(self.engine, own) if len(own) else self.engine
        return [*(Masked(engine, gone) if len(gone) else engine for engine in engines), last]


_overlays: OrderedDict[Any, Overlay] = OrderedDict()


def overlay_of(path: str, state: State) -> tuple[IndexDirectory, Overlay]:
    """Return a version and what changed since, as of a state; this process keeps the last ones."""
    key = path, state.version, stamp_of(str(IndexDirectory.folder_of(path, state.version)))
    overlay = _overlays.pop(key, None)
    if overlay is None or overlay.number > state.delta:
        overlay = Overlay(IndexDirectory.open(path, state.version))
    overlay.advance(state.delta)
    _overlays[key] = overlay
    while len(_overlays) > _MOST_KEPT:
        _overlays.popitem(last=False)
    return overlay.directory, overlay


def engines_of(path: str, state: State) -> list[Any]:
    """Return what events are matched with in a state of an index."""
    directory, overlay = overlay_of(path, state)
    shards = open_shards([str(directory.shard_path(number)) for number in range(len(directory.shards))])
    return overlay.engines(shards, state.time)


def engine_of_shard(path: str, state: State, number: int) -> Any:
    """Return what events are matched with in one shard; the number after the last is what changed since."""
    directory, overlay = overlay_of(path, state)
    gone, own = overlay.gone(state.time)
    if number == len(directory.shards):
        return Masked(overlay.engine, own) if len(own) else overlay.engine
    (engine,) = open_shards([str(directory.shard_path(number))])
    return Masked(engine, gone) if len(gone) else engine


@dataclass(frozen=True)
class LiveMatcher:
    """Matches with a state of an index that was fixed when the job was planned."""

    matcher: Matcher
    path: str
    state: State

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Match the events of one task."""
        load_modules(self.matcher.operators)
        yield from self.matcher.run(batches, engines_of(self.path, self.state))
