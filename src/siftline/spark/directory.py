"""The index directory: versions of compiled subscriptions, of which readers see one, whole.

    PATH/
      manifest.json              the number of the current version
      lock                       held while something is being compiled into the directory
      versions/
        <n>/                     never changed after the commit
          version.json           what it holds: counts, shards with their pivots, a checksum of all this
          statistics.json        if the subscriptions were compiled with any
          shards/<k>/            a snapshot of an engine (`Engine.open`)
          quarantine/*.parquet   subscriptions that were refused, with the reason and the place
        .draft-.../              a version in the making

A version is made as a draft, renamed to its number, and becomes current when `manifest.json` is replaced, which is one
step of the file system. Whoever is killed before leaves the old version current; what is left over goes away when the
next draft begins. The lock goes away with the process that holds it.

An event needs to visit a shard only if it has a value (not null) for one of the shard's pivots, or if every event must
(`is_always`), because some subscription there has no pivot.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import zlib
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import unquote, urlsplit

import siftline
from siftline.encoding.statistics import Statistics
from siftline.errors import SnapshotError, SparkError, StorageError
from siftline.storage.files import File, sync_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

_MANIFEST: Final = "manifest.json"
_VERSION: Final = "version.json"
_STATISTICS: Final = "statistics.json"
_LOCK: Final = "lock"
_FORMAT: Final = "siftline-index"
_FORMAT_VERSION: Final = 1
_DRAFT: Final = ".draft-"
# How many versions stay: jobs that began before a commit go on with the one that they began with.
_KEPT: Final = 3
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")


class Shard(NamedTuple):
    """A part of the subscriptions, as a snapshot of an engine."""

    name: str
    path: Path
    subscriptions: int
    bytes: int
    pivots: tuple[str, ...] = ()
    is_always: bool = True


def local_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a local name or a `file:` URI.

    >>> local_path("file:///tmp/an%20index")
    PosixPath('/tmp/an index')
    """
    text = os.fspath(path)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return Path(text).absolute()
    if scheme[1].lower() != "file":
        raise SparkError(
            f"{text}: an index directory must be on a file system that all machines have mounted, not on {scheme[1]}:"
        )
    return Path(unquote(urlsplit(text).path))


class IndexDirectory:
    """One version of an index directory, checked when it is opened.

    Attributes
    ----------
    path : Path
        Of the directory.
    version : int
        The number of the version.
    shards : list of Shard
        All of its shards.
    subscriptions, quarantined : int
        How many were taken, and how many were refused.
    id_type : str
        Of the subscriptions, as Spark calls it: "bigint" or "string".
    created : str
        When, in UTC.
    """

    def __init__(self, path: Path, version: int, description: dict[str, Any]) -> None:
        self.path = path
        self.version = version
        self.folder = path / "versions" / str(version)
        self.subscriptions: int = description["subscriptions"]
        self.quarantined: int = description["quarantined"]
        self.id_type: str = description["id_type"]
        self.created: str = description["created"]
        self._statistics_checksum: int | None = description["statistics"]
        self.shards = [self._shard(**shard) for shard in description["shards"]]

    def _shard(
        self,
        name: str,
        subscriptions: int,
        bytes: int,  # noqa: A002
        pivots: Sequence[str],
        is_always: bool,
    ) -> Shard:
        return Shard(name, self.folder / "shards" / name, subscriptions, bytes, tuple(pivots), is_always)

    def __repr__(self) -> str:
        return f"<IndexDirectory {self.path}, version {self.version}: {self.subscriptions:,} subscriptions>"

    @classmethod
    def open(cls, path: str | os.PathLike[str], version: int | None = None) -> IndexDirectory:
        """Read which version is current, or a given one, and what it holds."""
        folder = local_path(path)
        chosen = _current(folder) if version is None else version
        file = folder / "versions" / str(chosen) / _VERSION
        if not file.is_file():
            raise SnapshotError(f"the index {folder} has no version {chosen}: there is no {file}")
        try:
            return cls(folder, chosen, _read(file))
        except (KeyError, TypeError) as error:
            raise SnapshotError(f"{file} is damaged: {error!r}") from None

    def shard_path(self, number: int) -> Path:
        """Return the snapshot of one shard; raise SnapshotError if it is gone."""
        path = self.shards[number].path
        if not path.is_dir():
            raise SnapshotError(f"the index {self.path} is damaged: version {self.version} lacks the shard {path}")
        return path

    @cached_property
    def statistics(self) -> Statistics | None:
        """What the subscriptions were compiled with."""
        if self._statistics_checksum is None:
            return None
        file = self.folder / _STATISTICS
        if not file.is_file() or zlib.crc32(file.read_bytes()) != self._statistics_checksum:
            raise SnapshotError(f"{file} is damaged or missing")
        return Statistics.load(file)

    @property
    def quarantine_path(self) -> Path:
        """Where the refused subscriptions are; there is nothing if none was."""
        return self.folder / "quarantine"


class Draft:
    """A version in the making, and the lock that lets one at a time be made; use it in a `with`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = local_path(path)
        self._versions = self.path / "versions"
        self._versions.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self.path)
        try:
            self._number = _clean_up(self.path) + 1
            self.folder = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=self._versions))
            self.folder.chmod(0o755)  # mkdtemp makes it private
            self.shards = self.folder / "shards"
            self.shards.mkdir()
        except BaseException:
            self._lock.close()
            raise

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
    ) -> IndexDirectory:
        """Make the draft the current version; each shard is moved to its name."""
        for shard in shards:
            shard.path.rename(self.shards / shard.name)
        checksum = None
        if statistics is not None:
            statistics.save(self.folder / _STATISTICS)
            checksum = zlib.crc32((self.folder / _STATISTICS).read_bytes())
        description = {
            "siftline": siftline.__version__,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "id_type": id_type,
            "subscriptions": sum(shard.subscriptions for shard in shards),
            "quarantined": quarantined,
            "statistics": checksum,
            "shards": [{name: value for name, value in shard._asdict().items() if name != "path"} for shard in shards],
        }
        _write(self.folder / _VERSION, description)
        self.folder.rename(self._versions / str(self._number))
        _write(self.path / _MANIFEST, {"current": self._number})
        _remove_old(self._versions, self._number)
        return IndexDirectory.open(self.path, self._number)


def _locked(folder: Path) -> File:
    file = File.opened(folder / _LOCK, is_new=True)
    try:
        file.lock()
    except StorageError:
        file.close()
        raise SparkError(
            f"{folder}: something else is being compiled into this directory; nothing was changed, try again later"
        ) from None
    return file


def _clean_up(folder: Path) -> int:
    """Remove what was never committed; return the number of the current version, 0 if there is none."""
    current = _current(folder) if (folder / _MANIFEST).exists() else 0
    for version in (folder / "versions").iterdir():
        if version.name.startswith(_DRAFT) or (version.name.isdecimal() and int(version.name) > current):
            shutil.rmtree(version, ignore_errors=True)
    return current


def _remove_old(versions: Path, current: int) -> None:
    for version in versions.iterdir():
        if version.name.isdecimal() and int(version.name) <= current - _KEPT:
            shutil.rmtree(version, ignore_errors=True)


def _current(folder: Path) -> int:
    file = folder / _MANIFEST
    if not file.is_file():
        raise SnapshotError(f"there is no index at {folder}: it has no {_MANIFEST}")
    current = _read(file).get("current")
    if not isinstance(current, int):
        raise SnapshotError(f"{file} is damaged: it names no version")
    return current


def _write(file: Path, content: dict[str, Any]) -> None:
    """Write a document with a checksum, in one step and for good."""
    document = {"format": _FORMAT, "version": _FORMAT_VERSION, **content}
    document["checksum"] = _checksum(document)
    draft = file.with_name(f".{file.name}-draft")
    with draft.open("w", encoding="utf-8") as stream:
        json.dump(document, stream)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(file)
    sync_folder(file.parent)


def _read(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise SnapshotError(f"{file} cannot be read: {error}") from None
    if not isinstance(document, dict) or document.pop("format", None) != _FORMAT:
        raise SnapshotError(f"{file} does not belong to an index directory")
    version, checksum = document.get("version"), document.pop("checksum", None)
    if version != _FORMAT_VERSION:
        raise SnapshotError(f"{file} is of version {version!r}; this Siftline reads {_FORMAT_VERSION}")
    if checksum != _checksum({"format": _FORMAT, **document}):
        raise SnapshotError(f"{file} is damaged: it is not as it was written")
    return document


def _checksum(document: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(document, sort_keys=True).encode("ascii"))
