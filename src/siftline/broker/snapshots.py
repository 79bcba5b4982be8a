"""Snapshots of the engine beside its store: the next start opens one and applies only the changes since then.

The name of a snapshot has the identity of its store and the number of its last change. If the store no longer has all
changes since then, because it was compacted, or if it is another store, the engine is loaded from the store.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from siftline.engine import Engine
from siftline.errors import SiftlineError
from siftline.storage.rows import microseconds, moment_of, set_fact

if TYPE_CHECKING:
    from datetime import datetime

    from siftline.ids import Id
    from siftline.storage.store import Store

# The name of the broker among the readers of the store, which keeps the changes since the snapshot for it.
READER: Final = "broker"
# With fewer subscriptions to load, or fewer changes to apply, the start writes no snapshot.
_SNAPSHOT_MIN: Final = 10_000
_UNTIL: Final = "evicted_until"


def opened_engine(store: Store, index: str, now: datetime, skipped: set[Id]) -> tuple[Engine, int, datetime]:
    """Return an engine with the subscriptions of a store, the number of its last change, and a time.

    Subscriptions that expire by that time may be missing: they had expired when the engine was saved, or have by now.

    Subscriptions that can no longer be parsed go to `skipped`; then no snapshot is written, because the next start may
    be able to parse them. If there was much to load, a snapshot is written at once, in case the broker crashes.
    """
    for path, number in sorted(_snapshots(store, index).items(), key=lambda item: -item[1]):
        with contextlib.suppress(SiftlineError, OSError):
            engine = Engine.open(path)
            sequence = store.follow(engine, number, skipped=skipped)
            until = max(now, _evicted_until(store))
            if sequence - number > _SNAPSHOT_MIN and not skipped:
                save_engine(engine, store, index, sequence, until)
            return engine, sequence, until
    engine = Engine(index)
    sequence = store.load_into(engine, now=now, skipped=skipped)
    if len(engine) > _SNAPSHOT_MIN and not skipped:
        save_engine(engine, store, index, sequence, now)
    return engine, sequence, now


def save_engine(engine: Engine, store: Store, index: str, sequence: int, until: datetime) -> None:
    """Write a snapshot, delete older ones, and compact the store.

    Subscriptions that expire by `until` may be missing from the engine. The store keeps this time, because the clock
    may be set back later.
    """
    older = _snapshots(store, index)
    target = _path(store, index, sequence)
    if sequence == 0 or target in older:
        return
    with contextlib.suppress(OSError, SiftlineError):  # if the disk is full, only the next start takes longer
        store.transact(lambda _, connection: set_fact(connection.execute, _UNTIL, microseconds(until) or 0))
        engine.save(target)
        store.acknowledge(READER, sequence)
        store.compact()
        for path in older:
            shutil.rmtree(path, ignore_errors=True)


def _evicted_until(store: Store) -> datetime:
    """Return the time until which expired subscriptions may be missing from snapshots."""
    stored = store.fact(_UNTIL)
    return moment_of(stored if isinstance(stored, int) else 0)


def _path(store: Store, index: str, sequence: int) -> Path:
    return Path(f"{store.path}-{index}-{store.identity()}-{sequence}")


def _snapshots(store: Store, index: str) -> dict[Path, int]:
    place = Path(store.path)
    prefix = f"{place.name}-{index}-{store.identity()}-"
    names = [path.name for path in place.absolute().parent.iterdir() if path.name.startswith(prefix)]
    numbers = [int(name.removeprefix(prefix)) for name in names if name.removeprefix(prefix).isdecimal()]
    return {_path(store, index, number): number for number in numbers}
