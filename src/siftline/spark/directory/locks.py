"""Locks: files of an index directory that one process at a time holds; the operating system releases them."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from siftline.storage.files import File

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_POLL_SECONDS: Final = 0.005


@contextmanager
def held(path: Path, wait_seconds: float) -> Iterator[bool]:
    """Hold a lock during a `with`; yields whether it could be acquired within some seconds."""
    file = File.opened(path, is_new=True)
    end = time.monotonic() + wait_seconds
    try:
        while not (is_held := file.try_lock()) and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
        yield is_held
    finally:
        file.close()
