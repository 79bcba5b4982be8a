"""compact: a version and the deltas on top of it become the next version, while streams go on.

Each shard is opened, changed and saved again; one that nothing changed in is linked. What was added goes to a shard
that events with its attributes visit anyway, or else to the smallest, which is then visited for one more pivot.
Streams go on with what they have claimed; their next micro-batch claims the new version, in which the same
subscriptions are.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING, Any

from siftline.engine import Engine
from siftline.language.text import parse_stored
from siftline.operators.modules import load_modules
from siftline.spark.directory.versions import KEPT_FOR, Draft, IndexDirectory, Shard
from siftline.spark.sharding.pairs import FILE
from siftline.spark.sharding.parsed import required_attributes
from siftline.spark.sharding.shards import folder_bytes
from siftline.spark.worker.live import NEVER, Overlay
from siftline.storage.files import named_errors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta
    from pathlib import Path

    from siftline.encoding.statistics import Statistics
    from siftline.spark.worker.live import Put
    from siftline.subscriptions import Id


def compact(path: str | os.PathLike[str], *, now: int | None = None, keep: timedelta = KEPT_FOR) -> IndexDirectory:
    """Merge all changes of an index into a new version, and return it; it needs no Spark.

    Streams and jobs may run meanwhile, and changes may come: those that come later stay on top of the new version.
    What is over by now is dropped.

    Parameters
    ----------
    path : str or path
        The index directory.
    now : int, optional
        Microseconds since 1970.
    keep : timedelta
        How long a version stays after another has taken its place, beside the last three: jobs that began before still
        read it. Streams need none of it: what they still need stays in any case.

    Raises
    ------
    SparkError
        If something is being compiled into the directory, or compacted, at this time.
    StorageError
        If something cannot be written.
    """
    moment = time.time_ns() // 1000 if now is None else now
    with Draft(path, keep) as draft, named_errors(draft.folder, "written"):
        directory = IndexDirectory.open(draft.path)
        load_modules(directory.operators)
        overlay = Overlay(directory)
        overlay.advance(draft.delta)
        if draft.delta == directory.delta and not any(end <= moment for end in directory.ends["end"].to_pylist()):
            return directory
        shards = _Shards(directory, overlay, moment).saved(draft.shards)
        return draft.commit(
            shards,
            id_type=directory.id_type,
            quarantined=directory.quarantined,
            statistics=directory.statistics,
            ends=_ends(overlay, moment),
            operators=directory.operators,
            schedule=directory.schedule,
            compiled=directory.compiled if overlay.has_changes or directory.compiled < directory.delta else None,
        )


def _ends(overlay: Overlay, now: int) -> dict[Id, int]:
    """Return when the subscriptions of the new version end, of those that do."""
    ends = {id: end for id, end in overlay.first_ends.items() if id not in overlay.touched} | overlay.ends
    ends |= {id: put.end for id, put in overlay.puts.items()}
    return {id: end for id, end in ends.items() if now < end < NEVER}


class _Shards:
    """The shards of a version, and what changes in them."""

    def __init__(self, directory: IndexDirectory, overlay: Overlay, now: int) -> None:
        self._directory = directory
        self._gone = set(overlay.gone(now)[0].to_pylist())
        self._sizes = [shard.subscriptions for shard in directory.shards]
        self._pivots = [set(shard.pivots) for shard in directory.shards]
        self._is_always = [shard.is_always for shard in directory.shards]
        self._puts: list[dict[Id, Put]] = [{} for _ in directory.shards]
        for id, put in overlay.puts.items():
            if put.end > now:
                self._puts[self._place(put.text)][id] = put

    def _place(self, text: str) -> int:
        """Choose the shard of a new subscription, and see to it that events find it there."""
        clauses = required_attributes(parse_stored(text))
        fitting = [number for number in range(len(self._sizes)) if self._is_found(clauses, number)]
        chosen = min(fitting or range(len(self._sizes)), key=self._sizes.__getitem__)
        if not fitting:
            self._pivots[chosen] |= {min(clause, key=self._frequency) for clause in clauses if clause}
            self._is_always[chosen] |= not all(clauses)
        self._sizes[chosen] += 1
        return chosen

    def _is_found(self, clauses: list[list[str]], number: int) -> bool:
        """Whether every event that satisfies one of some conjunctions visits a shard."""
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
        n_subscriptions = _changed(engine, self._gone, self._puts[number])
        pairs = None if self._puts[number] else shard.pairs  # what was put may need other pairs
        if n_subscriptions is None:
            shutil.copytree(shard.path, place, copy_function=os.link)
            n_subscriptions = shard.subscriptions
        else:
            engine.save(place)
            if pairs is not None:
                os.link(shard.path / FILE, place / FILE)
        pivots = tuple(sorted(self._pivots[number]))
        return Shard(shard.name, place, n_subscriptions, folder_bytes(place), pivots, self._is_always[number], pairs)


def _changed(engine: Engine, gone: set[Id], puts: Mapping[Id, Put]) -> int | None:
    """Change an engine; return how many subscriptions it has then, None if nothing changed."""
    dropped = [id for id in gone if id in engine]
    if not dropped and not puts:
        return None
    engine.remove_many(dropped)
    rows: list[Any] = [(id, parse_stored(put.text), put.weight) for id, put in puts.items()]
    if rows:
        engine.add_many(rows)
    return len(engine)
