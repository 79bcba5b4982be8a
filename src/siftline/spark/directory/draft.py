"""Draft: the next version of an index directory, until it is committed."""

from __future__ import annotations

import shutil
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from siftline.errors import SparkError, StorageError
from siftline.spark.directory.deltas import has_changes, last_delta
from siftline.spark.directory.documents import write_document
from siftline.spark.directory.layout import (
    DRAFT_PREFIX,
    ENDS,
    LOCK,
    MANIFEST,
    QUARANTINE,
    SHARDS,
    STATISTICS,
    VERSION,
    VERSIONS,
    version_numbers,
)
from siftline.spark.directory.retention import RETENTION_PERIOD, remove_old_versions
from siftline.spark.directory.versions import IndexDirectory, current_version, description_of, ends_table
from siftline.spark.runtime.paths import file_uri, local_path
from siftline.storage.files import File, named_errors

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from siftline.encoding.statistics import Statistics
    from siftline.spark.directory.versions import Shard

# The choices of `compile` for changes that its table of subscriptions does not contain.
KEEP: Final = "keep"
DROP: Final = "drop"


class Draft:
    """A version that is being written, and the lock that allows one at a time; use it in a `with`.

    It contains the deltas that existed when it began; later ones are applied on top of it.
    """

    def __init__(self, path: str | os.PathLike[str], keep: timedelta = RETENTION_PERIOD) -> None:
        self.path = local_path(path)
        self._keep = keep
        self._versions = self.path / VERSIONS
        with named_errors(self.path, "written"):
            self._versions.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(self.path)
            try:
                self._begin(_remove_left_over(self.path))
            except BaseException:
                self._lock.close()
                raise

    def _begin(self, current: int) -> None:
        self._number = current + 1
        self.delta, self._marks = last_delta(self.path) if current else (0, {})
        self.folder = Path(tempfile.mkdtemp(prefix=DRAFT_PREFIX, dir=self._versions))
        self.folder.chmod(0o755)  # mkdtemp makes it private
        self.shards = self.folder / SHARDS
        self.shards.mkdir()

    @property
    def quarantine_uri(self) -> str:
        """Where Spark writes the refused subscriptions."""
        return file_uri(self.folder / QUARANTINE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.close()

    def commit(
        self,
        shards: Sequence[Shard],
        *,
        id_type: str,
        quarantined: int,
        statistics: Statistics | None,
        ends: Mapping[Any, int] | None = None,
        operators: Sequence[str] = (),
        schedule: str | None = None,
        compiled: int | None = None,
    ) -> IndexDirectory:
        """Make the draft the current version; each shard is moved to its name."""
        self.check_ids(id_type)
        with named_errors(self.folder, "written"):
            for shard in shards:
                shard.path.rename(self.shards / shard.name)
            _remove_others(self.shards, {shard.name for shard in shards})
            description = {
                **description_of(shards, id_type, quarantined),
                "statistics": self._written_statistics(statistics),
                "ends": self._written_ends(ends_table(ends, id_type)) if ends else None,
                "delta": self.delta,
                "compiled": self.delta if compiled is None else compiled,
                "marks": self._marks,
                "operators": list(operators),
                "schedule": schedule,
            }
            write_document(self.folder / VERSION, description)
            self.folder.rename(self._versions / str(self._number))
            write_document(self.path / MANIFEST, {"current": self._number})
            remove_old_versions(self.path, self._number, self._keep)
        return IndexDirectory.open(self.path, self._number)

    def settle_changes(self, changes: str | None) -> None:
        """Keep or drop the changes since the last compilation, which a new table of subscriptions does not contain."""
        if self._number == 1:
            return
        before = IndexDirectory.open(self.path)
        if before.delta == before.compiled and not has_changes(self.path, before.delta, self.delta):
            return
        if changes is None:
            raise SparkError(
                f"{self.path}: there are changes since this index was compiled (deltas {before.compiled + 1} to "
                f"{self.delta}), which the table does not contain; nothing was changed: use changes={KEEP!r} to keep "
                f"them on top of the new version, or changes={DROP!r} if the table is complete without them"
            )
        if changes == DROP:
            return
        if before.delta > before.compiled:
            raise SparkError(
                f"{self.path}: the changes up to delta {before.delta} are compacted into version {before.version} and "
                f"cannot be kept apart from it; nothing was changed: compile a table that has them, with "
                f"changes={DROP!r}"
            )
        self.delta, self._marks = before.delta, before.marks

    def check_ids(self, id_type: str) -> None:
        """Raise SparkError if the version before has ids of another type: changes and streams rely on it."""
        before = IndexDirectory.open(self.path).id_type if self._number > 1 else id_type
        if before != id_type:
            raise SparkError(
                f"{self.path}: the ids of this index are {before}, and those of the new version would be {id_type}; "
                "nothing was changed, compile into another directory"
            )

    def _written_statistics(self, statistics: Statistics | None) -> int | None:
        if statistics is None:
            return None
        statistics.save(self.folder / STATISTICS)
        return zlib.crc32((self.folder / STATISTICS).read_bytes())

    def _written_ends(self, ends: Any) -> int:
        with pa.OSFile(str(self.folder / ENDS), "wb") as file, pa.ipc.new_file(file, ends.schema) as writer:
            writer.write_table(ends)
        return zlib.crc32((self.folder / ENDS).read_bytes())


def _locked(folder: Path) -> File:
    file = File.opened(folder / LOCK, is_new=True)
    try:
        file.lock()
    except StorageError:
        file.close()
        raise SparkError(
            f"{folder}: something else is being compiled into this directory; nothing was changed, try again later"
        ) from None
    return file


def _remove_left_over(folder: Path) -> int:
    """Remove drafts that were never committed; return the number of the current version, 0 if there is none."""
    current = current_version(folder) if (folder / MANIFEST).exists() else 0
    if not current:
        _check_first(folder)
    for version in (folder / VERSIONS).iterdir():
        if version.name.startswith(DRAFT_PREFIX) or (version.name.isdecimal() and int(version.name) > current):
            shutil.rmtree(version, ignore_errors=True)
    return current


def _check_first(folder: Path) -> None:
    """Raise SparkError if there are versions that a first compilation cannot have left behind."""
    others = [str(number) for number in version_numbers(folder) if number != 1]
    if others:
        raise SparkError(
            f"{folder} has versions ({', '.join(others)}) but no {MANIFEST}: nothing was changed; "
            "if it was an index, bring that file back, or remove the versions"
        )


def _remove_others(folder: Path, names: set[str]) -> None:
    """Remove the output of tasks that Spark had to repeat."""
    for entry in folder.iterdir():
        if entry.name not in names:
            shutil.rmtree(entry, ignore_errors=True)
