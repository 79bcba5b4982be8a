"""IndexDirectory: one version of an index, which a reader sees completely or not at all.

An event has to visit a shard only if it has a value (not null) for one of the shard's pivots and for a partner of that
pivot (`sharding/pairs.py`). A shard with a subscription that has no pivot is visited by every event (`is_always`).
"""

from __future__ import annotations

import os
import zlib
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

import siftline
from siftline.encoding.statistics import Statistics
from siftline.errors import SnapshotError
from siftline.spark.directory.documents import read_document
from siftline.spark.directory.layout import (
    ENDS,
    MANIFEST,
    QUARANTINE,
    SHARDS,
    STATISTICS,
    VERSION,
    VERSIONS,
    version_folder,
)
from siftline.spark.directory.learned import learned_of
from siftline.spark.directory.mirror import located, unpacked
from siftline.spark.runtime.paths import is_remote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class Shard(NamedTuple):
    """A part of the subscriptions, as a snapshot of an engine."""

    name: str
    path: Path
    subscriptions: int
    bytes: int
    pivots: tuple[str, ...] = ()
    is_always: bool = True
    # A checksum of the filter of pairs, if there is one (`sharding/pairs.py`).
    pairs: int | None = None


class IndexDirectory:
    """One version of an index directory, checked when it is opened.

    Attributes
    ----------
    path : Path
        The path of the directory.
    version : int
        The number of the version.
    shards : list of Shard
        All of its shards.
    subscriptions, quarantined : int
        How many subscriptions were accepted, and how many were refused.
    id_type : str
        The type of the ids in Spark: "bigint" or "string".
    created : str
        When it was made, in UTC.
    delta : int
        The number of the last delta that it contains; later ones are applied on top.
    compiled : int
        The number of the last delta when it was compiled; `compact` has merged those in between into it.
    marks : dict
        The last change that was applied of each source by then (`deltas.py`).
    operators : tuple of str
        The modules of operators that its subscriptions may call.
    schedule : str or None
        The order in which operators are called; None means the default.
    """

    def __init__(self, path: Path, version: int, description: dict[str, Any]) -> None:
        self.path = path
        self.version = version
        self.folder = self.folder_of(path, version)
        self.subscriptions: int = description["subscriptions"]
        self.quarantined: int = description["quarantined"]
        self.id_type: str = description["id_type"]
        self.created: str = description["created"]
        self.delta: int = description.get("delta", 0)
        self.compiled: int = description.get("compiled", self.delta)
        self.marks: dict[str, int] = description.get("marks", {})
        self.operators: tuple[str, ...] = tuple(description.get("operators", ()))
        self.schedule: str | None = description.get("schedule")
        self._statistics_checksum: int | None = description["statistics"]
        self._ends_checksum: int | None = description.get("ends")
        self.shards = [self._shard(**shard) for shard in description["shards"]]

    def _shard(
        self,
        name: str,
        subscriptions: int,
        bytes: int,  # noqa: A002
        pivots: Sequence[str],
        is_always: bool,
        pairs: int | None = None,
    ) -> Shard:
        return Shard(name, self.folder / SHARDS / name, subscriptions, bytes, tuple(pivots), is_always, pairs)

    def __repr__(self) -> str:
        return f"<IndexDirectory {self.path}, version {self.version}: {self.subscriptions:,} subscriptions>"

    @staticmethod
    def folder_of(path: str | os.PathLike[str], version: int) -> Path:
        """Return the folder of a version."""
        return version_folder(located(path), version)

    @classmethod
    def open(cls, path: str | os.PathLike[str], version: int | None = None) -> IndexDirectory:
        """Read the description of the current version, or of a given one."""
        if is_remote(path):
            from siftline.spark.directory.remote import open_remote

            return open_remote(os.fspath(path), version)
        folder = located(path)
        chosen = current_version(folder) if version is None else version
        file = version_folder(folder, chosen) / VERSION
        if not file.is_file():
            raise missing(file)
        try:
            return cls(folder, chosen, read_document(file))
        except (KeyError, TypeError) as error:
            raise SnapshotError(f"{file} is damaged: {error!r}") from None

    def shard_path(self, number: int) -> Path:
        """Return the snapshot of one shard; raise SnapshotError if it is missing."""
        path = self.shards[number].path
        if not path.is_dir() and not unpacked(path):
            if not self.folder.is_dir():
                raise missing(path)
            raise SnapshotError(f"the index {self.path} is damaged: version {self.version} lacks the shard {path}")
        return path

    @property
    def reference(self) -> str:
        """The name by which workers find the directory (`mirror.located`)."""
        return str(self.path)

    @property
    def learning_path(self) -> str | None:
        """Where workers record what they learn about calls; None if they cannot write there."""
        return str(self.path)

    def shard_references(self) -> tuple[str, ...]:
        """Return the names by which workers find the snapshots; raise SnapshotError if one is missing."""
        return tuple(str(self.shard_path(number)) for number in range(len(self.shards)))

    def share(self, spark: Any) -> None:
        """Copy the version to every executor; a mounted directory needs no copy."""

    @cached_property
    def statistics(self) -> Statistics | None:
        """The statistics that the subscriptions were compiled with."""
        if self._statistics_checksum is None:
            return None
        file = self.folder / STATISTICS
        if not file.is_file() or zlib.crc32(file.read_bytes()) != self._statistics_checksum:
            raise SnapshotError(f"{file} is damaged or missing")
        return Statistics.load(file)

    @cached_property
    def ends(self) -> Any:
        """When subscriptions end: an Arrow table (subscription, microseconds since 1970), by time."""
        if self._ends_checksum is None:
            return ends_table({}, self.id_type)
        file = self.folder / ENDS
        if not file.is_file() or zlib.crc32(content := file.read_bytes()) != self._ends_checksum:
            raise SnapshotError(f"{file} is damaged or missing")
        return pa.ipc.open_file(content).read_all()

    def learned(self) -> dict[str, dict[str, Any]]:
        """Return the statistics of calls by operator: how many there were, how often they were true, ..."""
        return learned_of(self.path).shown()

    @property
    def quarantine_path(self) -> Path | str:
        """The folder of the refused subscriptions; it does not exist if none was refused."""
        return self.folder / QUARANTINE


def ends_table(ends: Mapping[Any, int], id_type: str) -> Any:
    """Return a table of the times at which subscriptions end, ordered by time."""
    ids = pa.array(list(ends), pa.string() if id_type == "string" else pa.int64())
    return pa.table({"subscription": ids, "end": pa.array(list(ends.values()), pa.int64())}).sort_by("end")


def description_of(shards: Sequence[Shard], id_type: str, quarantined: int) -> dict[str, Any]:
    """Return the part of `version.json` that local and remote directories have in common."""
    return {
        "siftline": siftline.__version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "id_type": id_type,
        "subscriptions": sum(shard.subscriptions for shard in shards),
        "quarantined": quarantined,
        "shards": [{name: value for name, value in shard._asdict().items() if name != "path"} for shard in shards],
    }


def current_version(folder: Path) -> int:
    """Return the number of the current version; raise SnapshotError if there is no index."""
    file = folder / MANIFEST
    if not file.is_file():
        raise SnapshotError(f"there is no index at {folder}: it has no {MANIFEST}")
    current = read_document(file).get("current")
    if not isinstance(current, int):
        raise SnapshotError(f"{file} is damaged: it names no version")
    return current


def missing(path: Path) -> SnapshotError:
    """Return the error for a missing version, or a missing file of one."""
    for version in (path, *path.parents):
        if version.parent.name == VERSIONS and version.name.isdecimal():
            return _missing_version(version.parent.parent, int(version.name), path)
    return SnapshotError(f"cannot open {path}: No such file or directory")


def _missing_version(folder: Path, number: int, path: Path) -> SnapshotError:
    current = current_version(folder)
    if number >= current or version_folder(folder, number).exists():
        return SnapshotError(f"the index {folder} has no version {number}: there is no {path}")
    return SnapshotError(
        f"the index {folder} has no version {number} any more: version {current} is current, and a version is removed "
        "some time after it was replaced; make this DataFrame again with `match`, or let `compact` and "
        "`compile` keep versions for longer (keep=...)"
    )
