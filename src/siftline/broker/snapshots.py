"""An engine beside its store: the next start opens the snapshot and hears only of what changed since.

The name of the snapshot says up to which change it goes. If the store cannot tell what happened after that, because it
was compacted or is another one, the engine is loaded anew.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from siftline.engine import Engine
from siftline.errors import SiftlineError, StoreError

if TYPE_CHECKING:
    from datetime import datetime

    from siftline.storage.store import Store

# As which reader the store knows us, so that it keeps what happened after the snapshot.
_READER: Final = "broker"


def opened_engine(store: Store, index: str, now: datetime) -> tuple[Engine, int]:
    """Return an engine with all subscriptions of a store, and the number of the last change in it."""
    for path, sequence in sorted(_snapshots(store).items(), key=lambda item: -item[1]):
        with contextlib.suppress(SiftlineError, OSError):
            engine = Engine.open(path)
            if engine.stats()["index"] == index:
                return engine, store.follow(engine, sequence)
    engine = Engine(index)
    return engine, store.load_into(engine, now=now)


def save_engine(engine: Engine, store: Store, sequence: int) -> None:
    """Write a snapshot, drop older ones, and drop from the store what nobody needs any more."""
    older = _snapshots(store)
    target = _path(store, sequence)
    if sequence == 0 or target in older:
        return
    engine.save(target)
    with contextlib.suppress(StoreError):  # in a store that was compacted further by somebody else
        store.acknowledge(_READER, sequence)
        store.compact()
    for path in older:
        shutil.rmtree(path, ignore_errors=True)


def _path(store: Store, sequence: int) -> Path:
    return Path(f"{store.path}-engine-{sequence}")


def _snapshots(store: Store) -> dict[Path, int]:
    place = Path(store.path)
    prefix = f"{place.name}-engine-"
    names = [path.name for path in place.absolute().parent.iterdir() if path.name.startswith(prefix)]
    numbers = [int(name.removeprefix(prefix)) for name in names if name.removeprefix(prefix).isdecimal()]
    return {_path(store, number): number for number in numbers}
