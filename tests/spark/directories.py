"""Index directories for tests of their use, made without a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from siftline import Engine
from siftline.spark.directory.draft import Draft
from siftline.spark.directory.versions import Shard

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def directory(path: Path, *groups: Sequence[Any], pivots: Sequence[Sequence[str] | None] | None = None) -> str:
    """Return the path of an index with a shard for each group of (id, expression, weight)."""
    texts = any(isinstance(row[0], str) for group in groups for row in group)
    with Draft(path) as draft:
        shards = []
        for number, group in enumerate(groups):
            engine = Engine()
            engine.add_many(group)
            place = draft.folder / f"draft-{number}"
            engine.save(place)
            owned = pivots[number] if pivots else None
            shards.append(Shard(str(number), place, len(group), 1, tuple(owned or ()), owned is None))
        draft.commit(shards, id_type="string" if texts else "bigint", quarantined=0, statistics=None)
    return str(path)
