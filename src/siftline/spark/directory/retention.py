"""Retention: a version is kept while a job may need it.

These versions are kept: the last three; those that were current within the last day (or `keep`), for the jobs that
began then; and those of the last micro-batches of a stream, because a restarted stream repeats its last one. (A job
could mark the version that it reads. But that is impossible if it may only read, or on an object store, and the mark of
a killed job would stay forever.)
"""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from siftline.errors import SnapshotError
from siftline.spark.directory.documents import read_document
from siftline.spark.directory.layout import (
    DRAFT_PREFIX,
    STREAMS,
    VERSION,
    delta_file,
    delta_numbers,
    version_folder,
    version_numbers,
)
from siftline.spark.directory.versions import IndexDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator

# This many versions are always kept, and older ones for this long after they were replaced.
MIN_VERSIONS: Final = 3
RETENTION_PERIOD: Final = timedelta(days=1)
# A stream whose last micro-batch is older counts as one that will not be restarted.
_STREAM_LIFETIME_SECONDS: Final = 7 * 24 * 3600
# A claim is written within milliseconds, so an older draft was left by a killed task.
_CLAIM_DRAFT_LIFETIME_SECONDS: Final = 3600


def remove_old_versions(folder: Path, current: int, keep: timedelta) -> None:
    """Remove the versions that no job needs, and the deltas that all other versions contain.

    A damaged version is kept until it is old enough.
    """
    claimed = set(_claimed_versions(folder))
    numbers = version_numbers(folder)
    kept = []
    for number, successor in zip(numbers, [*numbers[1:], current], strict=True):
        replaced = _seconds_old(version_folder(folder, successor) / VERSION)
        if number <= current - MIN_VERSIONS and number not in claimed and replaced > keep.total_seconds():
            _remove_version(version_folder(folder, number))
        else:
            kept.append(number)
    first = _delta_of(folder, kept[0])  # later versions contain at least as many deltas
    for number in delta_numbers(folder):
        if number <= first:
            delta_file(folder, number).unlink(missing_ok=True)


def _remove_version(version: Path) -> None:
    """Remove a version in one step: a reader that opens it finds everything or nothing."""
    removed = Path(tempfile.mkdtemp(prefix=DRAFT_PREFIX, dir=version.parent))
    version.rename(removed / version.name)
    shutil.rmtree(removed, ignore_errors=True)


def _delta_of(folder: Path, version: int) -> int:
    """Return the last delta that a version contains; 0 if its description cannot be read."""
    try:
        return IndexDirectory.open(folder, version).delta
    except SnapshotError:
        return 0


def _claimed_versions(folder: Path) -> Iterator[int]:
    """Return the versions that streams may still need: those of their last two micro-batches."""
    for stream in (folder / STREAMS).glob("*"):
        batches = sorted((file for file in stream.glob("*.json") if file.stem.isdecimal()), key=lambda f: int(f.stem))
        if batches and _seconds_old(batches[-1]) > _STREAM_LIFETIME_SECONDS:
            shutil.rmtree(stream, ignore_errors=True)
            continue
        for draft in stream.glob(f"{DRAFT_PREFIX}*"):
            if _seconds_old(draft) > _CLAIM_DRAFT_LIFETIME_SECONDS:
                shutil.rmtree(draft, ignore_errors=True)
        for file in batches[-2:]:
            # A damaged claim names no version, and a missing one is no longer needed.
            with suppress(SnapshotError, LookupError, TypeError, ValueError):
                yield int(read_document(file)["state"][0])


def _seconds_old(path: Path) -> float:
    """Return how long ago a file was written; 0 if it does not exist."""
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
