"""Matcher: matches Arrow batches of events, and returns Arrow batches of matches.

    batch of 50,000 rows → pieces of 4,096 → encoded from their buffers → matched by each shard → ids as Arrow arrays

No Python object is made for an event or a match, only for unreadable events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siftline.model import Timestamp
from siftline.operators.modules import load_modules
from siftline.spark.worker.learning import Learning
from siftline.spark.worker.loading import open_shards
from siftline.spark.worker.reading import are_whole, joined, pieces, readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from siftline.engine import Engine
    from siftline.spark.worker.dead_letters import DeadLetters, TaskLetters
    from siftline.spark.worker.events import Shape

PAIRS, LISTS, COUNTS, TOP = "pairs", "arrays", "counts", "top-k"
HOW: Final = (PAIRS, LISTS, COUNTS, TOP)


class Found(NamedTuple):
    """Matches, by ascending events; within one event by weight, if only the best are wanted."""

    events: NDArray[np.int64]
    ids: Any
    weights: Any


@dataclass(frozen=True, kw_only=True)
class Matcher:
    """The input of a worker that matches events.

    Attributes
    ----------
    shape : Shape
        Where the keys and the event are in a row.
    shards : sequence of str
        References to the snapshots that every event is matched with (`directory/mirror.py`).
    are_ids_text : bool
        Whether the ids are strings.
    how : str
        One of HOW.
    k : int
        For `top-k`, how many.
    has_weights : bool
        Whether matches have their weights.
    dead_letters : DeadLetters
        How unreadable events are handled.
    learning : Learning
        Where tasks record statistics of calls.
    operators : tuple of str
        Modules that define operators; they are loaded before an index is opened.
    now : int
        The value of `now()`, in nanoseconds since 1970.
    """

    shape: Shape
    shards: tuple[str, ...]
    are_ids_text: bool
    how: str = PAIRS
    k: int | None = None
    has_weights: bool = False
    dead_letters: DeadLetters
    learning: Learning = field(default_factory=Learning)
    operators: tuple[str, ...] = ()
    now: int

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Match the events of one task."""
        load_modules(self.operators)
        yield from self.run(batches, open_shards(self.shards))

    def run(self, batches: Iterable[Any], engines: Sequence[Any]) -> Iterator[Any]:
        """Match events with these engines."""
        with self.dead_letters.task(self.shape) as letters, self.learning.task() as learning:
            learning.watch(engines)
            whole = are_whole(engines)
            cut = (piece for batch in batches for piece in pieces(batch, whole=whole))
            yield from joined(self._result(piece, letters, engines) for piece in cut)

    def _result(self, piece: Any, letters: TaskLetters, engines: Sequence[Engine]) -> Any:
        piece, found = self.matched(piece, letters, engines)
        letters.count(piece.num_rows, len(found.events))
        return self.columns(piece, found)

    def matched(self, piece: Any, letters: TaskLetters, engines: Sequence[Engine]) -> tuple[Any, Found]:
        """Return the readable events, and their matches."""
        good, encoded, now = piece, list[Any](), Timestamp(self.now)
        for engine in engines:
            left, events = readable(good, self.shape, letters, partial(engine.encode, now=now))
            if left.num_rows < good.num_rows:
                encoded = [earlier.encode(self.shape.source(left), now=now) for earlier in engines[: len(encoded)]]
            good = left
            encoded.append(events)
        found = [self._matches(engine, events) for engine, events in zip(engines, encoded, strict=True)]
        return good, found[0] if len(found) == 1 else self.united(found)

    def _matches(self, engine: Engine, events: Any) -> Found:
        now = Timestamp(self.now)
        table = engine.match_batch(events, top=self.k, threads=1, weights=self.has_weights, now=now)
        ids = table["subscription"].combine_chunks()
        if not len(ids):
            ids = pa.array([], self.id_type)
        weights = table["weight"].to_numpy() if self.has_weights else None
        return Found(table["event"].to_numpy(), ids, weights)

    def united(self, parts: Sequence[Found]) -> Found:
        """Return the matches of several shards together."""
        events = np.concatenate([part.events for part in parts])
        ids = pa.concat_arrays([part.ids for part in parts])
        weights = np.concatenate([part.weights for part in parts]) if self.has_weights else None
        if self.k is None:
            order = np.argsort(events, kind="stable")
        else:
            rows = pa.table({"event": events, "weight": weights, "id": ids})
            keys = [("event", "ascending"), ("weight", "descending"), ("id", "ascending")]
            order = pc.sort_indices(rows, keys).to_numpy()
            ranks = np.arange(len(order)) - np.searchsorted(events[order], events[order])
            order = order[ranks < self.k]
        return Found(events[order], ids.take(pa.array(order)), None if weights is None else weights[order])

    @property
    def id_type(self) -> Any:
        """The Arrow type of the ids."""
        return pa.string() if self.are_ids_text else pa.int64()

    def columns(self, piece: Any, found: Found) -> Any:
        """Return matches as rows of the result."""
        keys, names = self.shape.keys_of(piece), self.shape.keys
        if self.how in (PAIRS, TOP):
            rows = pa.array(found.events)
            parts = [*(key.take(rows) for key in keys), found.ids]
            if not self.has_weights:
                return pa.RecordBatch.from_arrays(parts, names=[*names, "subscription"])
            return pa.RecordBatch.from_arrays(
                [*parts, pa.array(found.weights)], names=[*names, "subscription", "weight"]
            )
        counts = np.bincount(found.events, minlength=piece.num_rows)
        if self.how == COUNTS:
            return pa.RecordBatch.from_arrays([*keys, pa.array(counts)], names=[*names, "matches"])
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), found.ids)
        return pa.RecordBatch.from_arrays([*keys, lists], names=[*names, "subscriptions"])
