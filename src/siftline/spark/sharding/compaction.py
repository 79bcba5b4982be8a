"""Compaction: a version and the deltas on top of it become the shards of the next version.

Each shard is opened, changed and saved again; an unchanged shard is linked. A new subscription is added to a shard that
events with its attributes visit anyway, or else to the smallest one, which then gets another pivot. Streams continue
with the versions that they have claimed. Their next micro-batch claims the new version, which has the same
subscriptions.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

from siftline.engine import Engine
from siftline.language.text import parse_stored
from siftline.spark.directory.overlay import NEVER
from siftline.spark.directory.versions import Shard
from siftline.spark.sharding.pairs import FILE
from siftline.spark.sharding.parsed import required_attributes
from siftline.spark.sharding.shards import folder_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from siftline.encoding.statistics import Statistics
    from siftline.ids import Id
    from siftline.spark.directory.overlay import Overlay, Put


def compacted_ends(overlay: Overlay, now: int) -> dict[Id, int]:
    """Return the times at which subscriptions of the new version end."""
    ends = {id: end for id, end in overlay.version_ends.items() if id not in overlay.touched} | overlay.ends
    ends |= {id: put.end for id, put in overlay.puts.items()}
    return {id: end for id, end in ends.items() if now < end < NEVER}


def compacted_shards(overlay: Overlay, now: int, folder: Path) -> list[Shard]:
    """Write the shards of the new version into a folder, and return them."""
    return _Shards(overlay, now).saved(folder)


class _Shards:
    """The shards of a version, and the changes in them."""

    def __init__(self, overlay: Overlay, now: int) -> None:
        directory = overlay.directory
        self._directory = directory
        self._tombstones = set(overlay.tombstones(now).of_version.to_pylist())
        self._sizes = [shard.subscriptions for shard in directory.shards]
        self._pivots = [set(shard.pivots) for shard in directory.shards]
        self._is_always = [shard.is_always for shard in directory.shards]
        self._puts: list[dict[Id, Put]] = [{} for _ in directory.shards]
        for id, put in overlay.puts.items():
            if put.end > now:
                self._puts[self._place(put.text)][id] = put

    def _place(self, text: str) -> int:
        """Choose the shard of a new subscription, and add the pivots by which events find it there."""
        clauses = required_attributes(parse_stored(text))
        fitting = [number for number in range(len(self._sizes)) if self._is_found(clauses, number)]
        chosen = min(fitting or range(len(self._sizes)), key=self._sizes.__getitem__)
        if not fitting:
            self._pivots[chosen] |= {min(clause, key=self._frequency) for clause in clauses if clause}
            self._is_always[chosen] |= not all(clauses)
        self._sizes[chosen] += 1
        return chosen

    def _is_found(self, clauses: list[list[str]], number: int) -> bool:
        """Return whether every event that satisfies one of these conjunctions visits a shard."""
        return self._is_always[number] or all(self._pivots[number].intersection(clause) for clause in clauses)

    def _frequency(self, attribute: str) -> float:
        statistics: Statistics | None = self._directory.statistics
        return 0.0 if statistics is None else statistics.frequency(attribute)

    def saved(self, folder: Path) -> list[Shard]:
        """Write all shards, and return them."""
        return [self._saved(number, folder / f".{number}") for number in range(len(self._sizes))]

    def _saved(self, number: int, place: Path) -> Shard:
        shard = self._directory.shards[number]
        engine = Engine.open(self._directory.shard_path(number))
        n_subscriptions = _changed(engine, self._tombstones, self._puts[number])
        pairs = None if self._puts[number] else shard.pairs  # a new subscription may need other pairs
        if n_subscriptions is None:
            shutil.copytree(shard.path, place, copy_function=os.link)
            n_subscriptions = shard.subscriptions
        else:
            engine.save(place)
            if pairs is not None:
                os.link(shard.path / FILE, place / FILE)
        pivots = tuple(sorted(self._pivots[number]))
        return Shard(shard.name, place, n_subscriptions, folder_bytes(place), pivots, self._is_always[number], pairs)


def _changed(engine: Engine, tombstones: set[Id], puts: Mapping[Id, Put]) -> int | None:
    """Change an engine; return how many subscriptions it has then, None if nothing changed."""
    dropped = [id for id in tombstones if id in engine]
    if not dropped and not puts:
        return None
    engine.remove_many(dropped)
    rows: list[Any] = [(id, parse_stored(put.text), put.weight) for id, put in puts.items()]
    if rows:
        engine.add_many(rows)
    return len(engine)
