"""An engine beside its store: the next start opens the snapshot and hears only of what changed since.

The name of the snapshot says of which store it is, and up to which change it goes. If the store cannot tell what
happened after that, because it was compacted, or if it is another one, the engine is loaded anew.
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

# As which reader the store knows us, so that it keeps what happened after the snapshot.
READER: Final = "broker"
# Fewer subscriptions are loaded quickly enough; and this many changes are not worth a new snapshot at the start.
_SNAPSHOT_MIN: Final = 10_000
_UNTIL: Final = "evicted_until"


def opened_engine(store: Store, index: str, now: datetime, skipped: set[Id]) -> tuple[Engine, int, datetime]:
    """Return an engine with the subscriptions of a store, the number of the last change in it, and a time.

    What ends by that time may be missing: it had expired when the engine was saved, or has by now.

    What cannot be parsed any more is left out, and goes to `skipped`; then no snapshot is written, because the next
    start may be able to. If that took long, a snapshot is written at once, because the next start may follow a crash.
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
    """Write a snapshot, drop older ones, and drop from the store what nobody needs any more.

    What ends by `until` may be missing from the engine, which the store notes: the clock may be set back later.
    """
    older = _snapshots(store, index)
    target = _path(store, index, sequence)
    if sequence == 0 or target in older:
        return
    with contextlib.suppress(OSError, SiftlineError):  # a full disk: the next start takes longer, and that is all
        store.transact(lambda _, connection: set_fact(connection.execute, _UNTIL, microseconds(until) or 0))
        engine.save(target)
        store.acknowledge(READER, sequence)
        store.compact()
        for path in older:
            shutil.rmtree(path, ignore_errors=True)


def _evicted_until(store: Store) -> datetime:
    """Return up to when subscriptions may be missing from snapshots."""
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
