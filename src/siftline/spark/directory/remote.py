"""An index directory on a file system that only Spark can reach: HDFS, an object store, ...

    URI/
      commits/<n>.json            names the folder of version n; the greatest n is current
      versions/<name>/            never changed after the commit, and never shared by two compilations
        version.json              as in a local index directory (`layout.py`)
        statistics.json           if there are any
        shards/*.parquet          snapshots of engines, in chunks of their files
        quarantine/*.parquet      refused subscriptions

Executors build shards on their own disks, and Spark writes the chunks. So nothing large goes through the driver, no
file system needs to be shared, and Spark itself handles repeated tasks. No folder is ever renamed, because an object
store cannot do that in one step. One small file decides: the driver that creates `commits/<n>.json` has made version n,
and all others that started from the same current version get an error. Readers only read commits, so they see a version
completely or not at all.
"""

from __future__ import annotations

import json
import time
import uuid
import zlib
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self

from siftline.encoding.statistics import Statistics
from siftline.errors import SnapshotError, SparkError
from siftline.spark.directory.documents import document_bytes, parsed_document
from siftline.spark.directory.hadoop import HadoopFolder
from siftline.spark.directory.layout import SHARDS, STATISTICS, VERSION
from siftline.spark.directory.mirror import PREFIX, mirror_of, reference_to
from siftline.spark.directory.retention import MIN_VERSIONS, RETENTION_PERIOD
from siftline.spark.directory.versions import IndexDirectory, Shard, description_of
from siftline.spark.runtime.sessions import session

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

# An uncommitted folder of this age was left by a killed driver.
_DRAFT_LIFETIME_MS: Final = 7 * 24 * 3600 * 1000
# The columns of a shard that the driver needs when it is written.
_SUMMARY: Final = ("shard", "subscriptions", "bytes", "pairs", "pivots")


class RemoteDirectory(IndexDirectory):
    """One version of an index directory on another file system; `path` is the place of this machine's mirror."""

    def __init__(self, folder: HadoopFolder, version: int, name: str, description: dict[str, Any]) -> None:
        super().__init__(mirror_of(name), version, description)
        self.uri = folder.uri
        self._files = folder
        self._name = name

    def __repr__(self) -> str:
        return f"<RemoteDirectory {self.uri}, version {self.version}: {self.subscriptions:,} subscriptions>"

    @property
    def reference(self) -> str:
        """The name by which workers find the directory: each machine has its own mirror."""
        return reference_to(self._name)

    @property
    def learning_path(self) -> None:
        """None: workers cannot write there, so each one learns for itself."""

    def shard_references(self) -> tuple[str, ...]:
        """Return the names by which workers find the snapshots, which they unpack when they need them."""
        return tuple(f"{self.reference}/versions/{self.version}/{SHARDS}/{shard.name}" for shard in self.shards)

    def share(self, spark: Any) -> None:
        """Let Spark copy the version to every executor, once per application."""
        context = spark.sparkContext
        shared = _shared.setdefault((context.applicationId, self.uri), set())
        if self._name in shared:
            return
        removed = {name for name in shared if not self._files.exists(f"versions/{name}")}
        _forget(context, [self._files.encoded(f"versions/{name}") for name in removed])
        # Unlike other calls of Spark, this one decodes the URI, and takes `#` for the start of a fragment.
        context.addFile(self._files.encoded(f"versions/{self._name}"), recursive=True)
        shared -= removed
        shared.add(self._name)

    @cached_property
    def statistics(self) -> Statistics | None:
        """The statistics that the subscriptions were compiled with."""
        if self._statistics_checksum is None:
            return None
        name = f"versions/{self._name}/{STATISTICS}"
        content = self._files.read(name)
        if content is None or zlib.crc32(content) != self._statistics_checksum:
            raise SnapshotError(f"{self._files.path_of(name)} is damaged or missing")
        return Statistics.from_dict(json.loads(content))

    @property
    def quarantine_path(self) -> str:
        """The folder of the refused subscriptions; it does not exist if none was refused."""
        return self._files.path_of(f"versions/{self._name}/quarantine")


# The versions that have been copied to the executors, by application and index.
_shared: dict[tuple[str, str], set[str]] = {}


def _forget(context: Any, uris: Sequence[str]) -> None:
    """Let Spark forget removed versions: executors that join later would fail to find them.

    Spark has no call for this, so its internal list is changed; if a Spark version has no such list, nothing happens.
    """
    from py4j.protocol import Py4JError

    with suppress(Py4JError):
        lists = context._jsc.sc().addedFiles().values().iterator()
        while lists.hasNext():
            files = lists.next()
            for uri in uris:
                files.remove(uri)


def open_remote(uri: str, version: int | None, spark: Any = None) -> RemoteDirectory:
    """Read the description of the current version, or of a given one."""
    folder = HadoopFolder(uri, spark or session())
    chosen = _current(folder) if version is None else version
    if not chosen:
        raise SnapshotError(f"there is no index at {uri}: it has no commits")
    name = _name_of(folder, chosen)
    if name is None:
        more = " any more" if chosen < _current(folder) else ""
        raise SnapshotError(
            f"the index {uri} has no version {chosen}{more}: there is no {folder.path_of(_commit(chosen))}"
        )
    file = f"versions/{name}/{VERSION}"
    content = folder.read(file)
    if content is None:
        raise SnapshotError(f"the index {uri} is damaged: there is no {folder.path_of(file)}")
    try:
        return RemoteDirectory(folder, chosen, name, parsed_document(content, folder.path_of(file)))
    except (KeyError, TypeError) as error:
        raise SnapshotError(f"{folder.path_of(file)} is damaged: {error!r}") from None


class RemoteDraft:
    """A version that is being written; use it in a `with`."""

    def __init__(self, uri: str, spark: Any, keep: timedelta = RETENTION_PERIOD) -> None:
        self._spark = spark
        self._keep = keep
        self._folder = HadoopFolder(uri, spark)
        self._number = _current(self._folder) + 1
        self._name = f"{PREFIX}{uuid.uuid4().hex}"
        self._is_done = False
        # The place of this machine's mirror; workers make it when they match.
        self.shards = mirror_of(self._name) / SHARDS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_done:
            self._folder.remove(f"versions/{self._name}")

    @property
    def quarantine_uri(self) -> str:
        """Where Spark writes the refused subscriptions."""
        return self._path_of("quarantine")

    def _path_of(self, name: str) -> str:
        return self._folder.path_of(f"versions/{self._name}/{name}")

    def written(self, chunks: Any) -> list[Any]:
        """Let Spark write the chunks of all shards, and return a summary of each shard."""
        target = self._path_of(SHARDS)
        # Values of megabytes do not repeat, so a dictionary would be useless.
        chunks.write.option("compression", "zstd").option("parquet.enable.dictionary", "false").parquet(target)
        found: list[Any] = self._spark.read.parquet(target).where("file is null").select(*_SUMMARY).collect()
        return found

    def commit(
        self,
        shards: Sequence[Shard],
        *,
        id_type: str,
        quarantined: int,
        statistics: Statistics | None,
        operators: Sequence[str] = (),
        schedule: str | None = None,
    ) -> RemoteDirectory:
        """Make the draft the current version."""
        checksum = None
        if statistics is not None:
            content = json.dumps(statistics.to_dict()).encode("utf-8")
            checksum = zlib.crc32(content)
            self._create(STATISTICS, content)
        description = {
            **description_of(shards, id_type, quarantined),
            "statistics": checksum,
            "number": self._number,
            "operators": list(operators),
            "schedule": schedule,
        }
        self._create(VERSION, document_bytes(description))
        if not self._folder.create(_commit(self._number), document_bytes({"folder": self._name})):
            raise SparkError(
                f"{self._folder.uri}: something else was compiled into this directory meanwhile and is version "
                f"{self._number} now; nothing was changed, try again"
            )
        self._is_done = True
        _remove_old_versions(self._folder, self._number, self._keep)
        return open_remote(self._folder.uri, self._number, self._spark)

    def _create(self, name: str, content: bytes) -> None:
        if not self._folder.create(f"versions/{self._name}/{name}", content):
            raise SparkError(f"{self._path_of(name)} exists already")


def _commit(number: int) -> str:
    return f"commits/{number}.json"


def _commits(folder: HadoopFolder) -> list[int]:
    stems = [name.removesuffix(".json") for name in folder.names("commits") if name.endswith(".json")]
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def _current(folder: HadoopFolder) -> int:
    return max(_commits(folder), default=0)


def _name_of(folder: HadoopFolder, number: int) -> str | None:
    """Return the folder of a version, None if there is no such version."""
    content = folder.read(_commit(number))
    if content is None:
        return None
    name = parsed_document(content, folder.path_of(_commit(number))).get("folder")
    if not isinstance(name, str):
        raise SnapshotError(f"{folder.path_of(_commit(number))} is damaged: it names no folder")
    return name


def _remove_old_versions(folder: HadoopFolder, current: int, keep: timedelta) -> None:
    """Remove the versions that no job needs, and folders that were never committed."""
    kept = set()
    now_ms = time.time_ns() // 1_000_000
    numbers, ages_ms = _commits(folder), folder.ages_ms("commits", now_ms)
    for number, successor in zip(numbers, [*numbers[1:], current], strict=True):
        name = _name_of(folder, number)
        replaced_ms = ages_ms.get(f"{successor}.json", 0)
        if number > current - MIN_VERSIONS or replaced_ms <= keep.total_seconds() * 1000:
            kept.add(name)
        elif name is not None:
            folder.remove(_commit(number))
            folder.remove(f"versions/{name}")
    for name, age_ms in folder.ages_ms("versions", now_ms).items():
        if name not in kept and age_ms > _DRAFT_LIFETIME_MS:
            folder.remove(f"versions/{name}")
