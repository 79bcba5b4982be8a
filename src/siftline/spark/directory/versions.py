"""The index directory: versions of compiled subscriptions, of which readers see one, whole.

    PATH/
      manifest.json              the number of the current version
      lock                       held while something is being compiled into the directory
      versions/
        <n>/                     never changed after the commit
          version.json           what it holds: counts, shards with their pivots, a checksum of all this
          statistics.json        if the subscriptions were compiled with any
          ends.arrow             when subscriptions end, of those that do
          shards/<k>/            a snapshot of an engine (`Engine.open`)
          quarantine/*.parquet   subscriptions that were refused, with the reason and the place
        .draft-.../              a version in the making
      deltas/<n>.json            changes since, in order (`deltas.py`); a version says up to which it has them
      streams/<query>/<n>.json   which state a micro-batch was matched with (`claims.py`)

A version is made as a draft, renamed to its number, and becomes current when `manifest.json` is replaced, which is one
step of the file system. Whoever is killed before leaves the old version current; what is left over goes away when the
next draft begins. The lock goes away with the process that holds it. Versions stay while a job may need them: the last
three, those that were current within the last day (or `keep`), for jobs that began then, and those that the last
micro-batches of a stream were matched with, because a stream that starts again repeats its last one. (A job could hold
what it reads, but not where it may only read, and not on an object store; and it would hold it when it was killed.)

An event needs to visit a shard only if it has a value (not null) for one of the shard's pivots and for a partner of it
(`pairs.py`), or if every event must (`is_always`), because some subscription there has no pivot.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import zlib
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import pyarrow as pa

import siftline
from siftline.encoding.statistics import Statistics
from siftline.errors import SnapshotError, SparkError, StorageError
from siftline.spark.directory.documents import read_document, write_document
from siftline.spark.directory.mirror import unpacked
from siftline.spark.runtime.paths import file_uri, is_remote, local_path
from siftline.storage.files import File, named_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_MANIFEST: Final = "manifest.json"
_VERSION: Final = "version.json"
_STATISTICS: Final = "statistics.json"
_ENDS: Final = "ends.arrow"
_LOCK: Final = "lock"
_DRAFT: Final = ".draft-"
# So many versions stay in any case, and others for so long after another one has taken their place: jobs that began
# before a commit go on with the version that they began with.
KEPT: Final = 3
KEPT_FOR: Final = timedelta(days=1)
# What becomes of changes that a compilation knows nothing of.
KEEP, DROP = "keep", "drop"
# A stream that has not run for so long is taken for one that never will again.
_STREAM_SECONDS: Final = 7 * 24 * 3600
# A claim takes milliseconds to write: what is as old was left by a task that was killed.
_DRAFT_SECONDS: Final = 3600


class Shard(NamedTuple):
    """A part of the subscriptions, as a snapshot of an engine."""

    name: str
    path: Path
    subscriptions: int
    bytes: int
    pivots: tuple[str, ...] = ()
    is_always: bool = True
    # A checksum of the filter of pairs, if there is one (`pairs.py`).
    pairs: int | None = None


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
    delta : int
        The number of the last delta that is in it; later ones go on top.
    compiled : int
        The number of the last delta when it was compiled; `compact` has put those in between into it.
    marks : dict
        How far each source of changes had been followed by then (`deltas.py`).
    operators : tuple of str
        The modules of operators that its subscriptions may call.
    schedule : str or None
        In which order calls are made; None is the default.
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
        return Shard(name, self.folder / "shards" / name, subscriptions, bytes, tuple(pivots), is_always, pairs)

    def __repr__(self) -> str:
        return f"<IndexDirectory {self.path}, version {self.version}: {self.subscriptions:,} subscriptions>"

    @staticmethod
    def folder_of(path: str | os.PathLike[str], version: int) -> Path:
        """Return where a version stands."""
        return local_path(path) / "versions" / str(version)

    @classmethod
    def open(cls, path: str | os.PathLike[str], version: int | None = None) -> IndexDirectory:
        """Read which version is current, or a given one, and what it holds."""
        if is_remote(path):
            from siftline.spark.directory.remote import open_remote

            return open_remote(os.fspath(path), version)
        folder = local_path(path)
        chosen = _current(folder) if version is None else version
        file = cls.folder_of(folder, chosen) / _VERSION
        if not file.is_file():
            raise missing(file)
        try:
            return cls(folder, chosen, read_document(file))
        except (KeyError, TypeError) as error:
            raise SnapshotError(f"{file} is damaged: {error!r}") from None

    def shard_path(self, number: int) -> Path:
        """Return the snapshot of one shard; raise SnapshotError if it is gone."""
        path = self.shards[number].path
        if not path.is_dir() and not unpacked(path):
            if not self.folder.is_dir():
                raise missing(path)
            raise SnapshotError(f"the index {self.path} is damaged: version {self.version} lacks the shard {path}")
        return path

    @property
    def reference(self) -> str:
        """What workers call the directory."""
        return str(self.path)

    @property
    def learning_path(self) -> str | None:
        """Where workers write down what they learn about calls; None if they cannot."""
        return str(self.path)

    def shard_references(self) -> tuple[str, ...]:
        """Return what workers call the snapshots; raise SnapshotError if one is gone."""
        return tuple(str(self.shard_path(number)) for number in range(len(self.shards)))

    def share(self, spark: Any) -> None:
        """See to it that workers find what they are referred to."""

    @cached_property
    def statistics(self) -> Statistics | None:
        """What the subscriptions were compiled with."""
        if self._statistics_checksum is None:
            return None
        file = self.folder / _STATISTICS
        if not file.is_file() or zlib.crc32(file.read_bytes()) != self._statistics_checksum:
            raise SnapshotError(f"{file} is damaged or missing")
        return Statistics.load(file)

    @cached_property
    def ends(self) -> Any:
        """When subscriptions end: an Arrow table (subscription, microseconds since 1970), by time."""
        if self._ends_checksum is None:
            return ends_table({}, self.id_type)
        file = self.folder / _ENDS
        if not file.is_file() or zlib.crc32(content := file.read_bytes()) != self._ends_checksum:
            raise SnapshotError(f"{file} is damaged or missing")
        return pa.ipc.open_file(content).read_all()

    def learned(self) -> dict[str, dict[str, Any]]:
        """Return what jobs have learned about calls, by operator: how many there were, how often they are true, ..."""
        from siftline.spark.worker.learning import learned_of

        return learned_of(self.path).shown()

    @property
    def quarantine_path(self) -> Path | str:
        """Where the refused subscriptions are; there is nothing if none was."""
        return self.folder / "quarantine"


def ends_table(ends: Mapping[Any, int], id_type: str) -> Any:
    """Return a table of when subscriptions end, by time."""
    ids = pa.array(list(ends), pa.string() if id_type == "string" else pa.int64())
    return pa.table({"subscription": ids, "end": pa.array(list(ends.values()), pa.int64())}).sort_by("end")


def described(shards: Sequence[Shard], id_type: str, quarantined: int) -> dict[str, Any]:
    """Return what every version says about itself."""
    return {
        "siftline": siftline.__version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "id_type": id_type,
        "subscriptions": sum(shard.subscriptions for shard in shards),
        "quarantined": quarantined,
        "shards": [{name: value for name, value in shard._asdict().items() if name != "path"} for shard in shards],
    }


class Draft:
    """A version in the making, and the lock that lets one at a time be made; use it in a `with`.

    Changes that are made from now on are not in it; they go on top.
    """

    def __init__(self, path: str | os.PathLike[str], keep: timedelta = KEPT_FOR) -> None:
        self.path = local_path(path)
        self._keep = keep
        self._versions = self.path / "versions"
        with named_errors(self.path, "written"):
            self._versions.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(self.path)
            try:
                self._begin(_clean_up(self.path))
            except BaseException:
                self._lock.close()
                raise

    def _begin(self, current: int) -> None:
        self._number = current + 1
        self.delta, self._marks = last_delta(self.path) if current else (0, {})
        self.folder = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=self._versions))
        self.folder.chmod(0o755)  # mkdtemp makes it private
        self.shards = self.folder / "shards"
        self.shards.mkdir()

    @property
    def quarantine_uri(self) -> str:
        """Where Spark shall write what was refused."""
        return file_uri(self.folder / "quarantine")

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
                **described(shards, id_type, quarantined),
                "statistics": self._written_statistics(statistics),
                "ends": self._written_ends(ends_table(ends, id_type)) if ends else None,
                "delta": self.delta,
                "compiled": self.delta if compiled is None else compiled,
                "marks": self._marks,
                "operators": list(operators),
                "schedule": schedule,
            }
            write_document(self.folder / _VERSION, description)
            self.folder.rename(self._versions / str(self._number))
            write_document(self.path / _MANIFEST, {"current": self._number})
            _remove_old(self.path, self._number, self._keep)
        return IndexDirectory.open(self.path, self._number)

    def settle_changes(self, changes: str | None) -> None:
        """Keep or drop what changed since the last compilation, of which a new table knows nothing."""
        if self._number == 1:
            return
        before = IndexDirectory.open(self.path)
        if before.delta == before.compiled and not _has_changes(self.path, before.delta, self.delta):
            return
        if changes is None:
            raise SparkError(
                f"{self.path}: there are changes since this index was compiled (deltas {before.compiled + 1} to "
                f"{self.delta}), of which a table knows nothing; nothing was changed: say changes={KEEP!r} to have "
                f"them on top of the new version too, or changes={DROP!r} if the table has all that it shall have"
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
        statistics.save(self.folder / _STATISTICS)
        return zlib.crc32((self.folder / _STATISTICS).read_bytes())

    def _written_ends(self, ends: Any) -> int:
        with pa.OSFile(str(self.folder / _ENDS), "wb") as file, pa.ipc.new_file(file, ends.schema) as writer:
            writer.write_table(ends)
        return zlib.crc32((self.folder / _ENDS).read_bytes())


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
    if not current:
        _check_first(folder)
    for version in (folder / "versions").iterdir():
        if version.name.startswith(_DRAFT) or (version.name.isdecimal() and int(version.name) > current):
            shutil.rmtree(version, ignore_errors=True)
    return current


def _check_first(folder: Path) -> None:
    """Raise SparkError if there are versions that no first compilation can have left."""
    others = [each.name for each in (folder / "versions").iterdir() if each.name.isdecimal() and each.name != "1"]
    if others:
        raise SparkError(
            f"{folder} has versions ({', '.join(sorted(others, key=int))}) but no {_MANIFEST}: nothing was changed; "
            "if it was an index, bring that file back, or remove the versions"
        )


def _remove_others(folder: Path, names: set[str]) -> None:
    """Remove what tasks left that Spark had to repeat."""
    for entry in folder.iterdir():
        if entry.name not in names:
            shutil.rmtree(entry, ignore_errors=True)


def _remove_old(folder: Path, current: int, keep: timedelta) -> None:
    """Remove versions that nobody needs any more, and deltas that are in all that are left; what is damaged stays."""
    claimed = set(_claimed_versions(folder))
    names = (version.name for version in (folder / "versions").iterdir())
    numbers = sorted(int(name) for name in names if name.isdecimal())
    kept = []
    for number, successor in zip(numbers, [*numbers[1:], current], strict=True):
        replaced = _seconds_old(IndexDirectory.folder_of(folder, successor) / _VERSION)
        if number <= current - KEPT and number not in claimed and replaced > keep.total_seconds():
            _remove_version(IndexDirectory.folder_of(folder, number))
        else:
            kept.append(number)
    first = _delta_of(folder, kept[0])  # later ones have at least as many
    for number in delta_numbers(folder):
        if number <= first:
            delta_file(folder, number).unlink(missing_ok=True)


def _remove_version(version: Path) -> None:
    """Remove a version in one step: whoever opens it finds all of it, or nothing."""
    removed = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=version.parent))
    version.rename(removed / version.name)
    shutil.rmtree(removed, ignore_errors=True)


def missing(path: Path) -> SnapshotError:
    """Return the error for a version, or something in one, that is not there."""
    for version in (path, *path.parents):
        if version.parent.name == "versions" and version.name.isdecimal():
            return _missing_version(version.parent.parent, int(version.name), path)
    return SnapshotError(f"cannot open {path}: No such file or directory")


def _missing_version(folder: Path, number: int, path: Path) -> SnapshotError:
    current = _current(folder)
    if number >= current or IndexDirectory.folder_of(folder, number).exists():
        return SnapshotError(f"the index {folder} has no version {number}: there is no {path}")
    return SnapshotError(
        f"the index {folder} has no version {number} any more: version {current} is current, and a version is removed "
        "some time after another one has taken its place; make this DataFrame anew by `match`, or let `compact` and "
        "`compile` keep versions for longer (keep=...)"
    )


def _has_changes(folder: Path, first: int, last: int) -> bool:
    """Return whether deltas after one number, up to another, change anything."""
    return any(read_document(delta_file(folder, number))["changes"] for number in range(first + 1, last + 1))


def _delta_of(folder: Path, version: int) -> int:
    """Return the last delta that is in a version; 0 if it cannot be read, as if it had none."""
    try:
        return IndexDirectory.open(folder, version).delta
    except SnapshotError:
        return 0


def _claimed_versions(folder: Path) -> Iterator[int]:
    """Return the versions that streams may still need: those of their last two micro-batches."""
    for stream in (folder / "streams").glob("*"):
        batches = sorted((file for file in stream.glob("*.json") if file.stem.isdecimal()), key=lambda f: int(f.stem))
        if batches and _seconds_old(batches[-1]) > _STREAM_SECONDS:
            shutil.rmtree(stream, ignore_errors=True)
            continue
        for draft in stream.glob(f"{_DRAFT}*"):
            if _seconds_old(draft) > _DRAFT_SECONDS:
                shutil.rmtree(draft, ignore_errors=True)
        for file in batches[-2:]:
            # A claim that is damaged names no version, and one that is gone is no longer needed.
            with suppress(SnapshotError, LookupError, TypeError, ValueError):
                yield int(read_document(file)["state"][0])


def _seconds_old(path: Path) -> float:
    """Return how long ago a file was written; 0 if it is gone."""
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def delta_file(folder: Path, number: int) -> Path:
    """Return where a delta stands."""
    return folder / "deltas" / f"{number}.json"


def delta_numbers(folder: Path) -> list[int]:
    """Return the numbers of all deltas that are there."""
    try:
        names = os.listdir(folder / "deltas")
    except FileNotFoundError:
        return []
    return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdecimal())


def last_delta(folder: Path) -> tuple[int, dict[str, int]]:
    """Return the number of the last delta, whether it is in a version by now or not, and the marks by then."""
    directory = IndexDirectory.open(folder)
    last = delta_numbers(folder)[-1:]
    if not last or last[0] <= directory.delta:
        return directory.delta, directory.marks
    return last[0], read_document(delta_file(folder, last[0]))["marks"]


def _current(folder: Path) -> int:
    file = folder / _MANIFEST
    if not file.is_file():
        raise SnapshotError(f"there is no index at {folder}: it has no {_MANIFEST}")
    current = read_document(file).get("current")
    if not isinstance(current, int):
        raise SnapshotError(f"{file} is damaged: it names no version")
    return current
