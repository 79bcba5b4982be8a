"""Matching with one state of an index: the engines of a version, and the overlay of the changes on top of it.

A worker keeps its overlays, and applies new deltas to them.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from siftline.operators.modules import load_modules
from siftline.spark.directory.claims import claim
from siftline.spark.directory.overlay import Overlay, masked
from siftline.spark.directory.versions import IndexDirectory
from siftline.spark.runtime.tasks import micro_batch
from siftline.spark.worker.learning import STREAM_MERGE_PAUSE_SECONDS
from siftline.spark.worker.loading import open_shards, stamp_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from siftline.spark.directory.state import State
    from siftline.spark.worker.matcher import Matcher

# How many overlays stay in memory: of the current version, and of the one before, for tasks that still run.
_OVERLAY_CAPACITY: Final = 2

_overlays: OrderedDict[Any, Overlay] = OrderedDict()


def overlay_of(path: str, state: State) -> Overlay:
    """Return the changes since a version, as of a state."""
    key = path, state.version, stamp_of(str(IndexDirectory.folder_of(path, state.version)))
    overlay = _overlays.pop(key, None)
    if overlay is None or overlay.number > state.delta:
        overlay = Overlay(IndexDirectory.open(path, state.version))
    overlay.advance(state.delta)
    _overlays[key] = overlay
    while len(_overlays) > _OVERLAY_CAPACITY:
        _overlays.popitem(last=False)
    return overlay


def engines_of(path: str, state: State) -> list[Any]:
    """Return the engines for matching events in a state of an index."""
    overlay = overlay_of(path, state)
    numbers = range(len(overlay.directory.shards))
    shards = open_shards([str(overlay.directory.shard_path(number)) for number in numbers])
    return overlay.engines(shards, state.time)


def engine_of_shard(path: str, state: State, number: int) -> Any:
    """Return the engine of one shard; the number after the last shard stands for the changes since the version."""
    overlay = overlay_of(path, state)
    if number == len(overlay.directory.shards):
        return overlay.own_engine(state.time)
    (engine,) = open_shards([str(overlay.directory.shard_path(number))])
    return masked(engine, overlay.tombstones(state.time).of_version)


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


@dataclass(frozen=True)
class StreamMatcher:
    """Matches the events of a micro-batch with the state that the batch has claimed."""

    matcher: Matcher
    path: str

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Match the events of one task."""
        query, batch, start = micro_batch()
        load_modules(self.matcher.operators)
        state = claim(self.path, query, batch)
        run = f"{query}-{batch}"
        letters = replace(self.matcher.dead_letters, run=run, start=start)
        learning = replace(self.matcher.learning, run=run, merge_pause=STREAM_MERGE_PAUSE_SECONDS)
        matcher = replace(self.matcher, dead_letters=letters, learning=learning, now=state.time * 1000)
        yield from matcher.run(batches, engines_of(self.path, state))
