"""Mirror: a machine's copy of an index on another file system, as an index directory with one version.

    MIRRORS/<name>/versions/<n>/version.json
                                shards/<k>/      a snapshot, unpacked when a worker of this machine first needs it

Spark copies the folder of the version to every executor (`SparkContext.addFile`). Its snapshots are Parquet files of
chunks, because Spark has written them. One worker unpacks a shard under a lock, and the others of the machine map its
files. MIRRORS is `$SIFTLINE_MIRRORS` of the executors, or a private folder of the user among the temporary files.

Workers are given references: the path of a mounted index, or `mirror:NAME/...`, which `located` turns into the path of
this machine's copy.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from siftline.errors import SnapshotError, SparkError
from siftline.spark.directory.documents import read_document
from siftline.spark.directory.layout import DRAFT_PREFIX, SHARDS, VERSION, version_folder
from siftline.spark.runtime.paths import local_path, private_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

# Names are unique among all folders that a Spark application may copy.
PREFIX: Final = "siftline-index-"
_SCHEME: Final = "mirror:"
_FOLDER: Final = "SIFTLINE_MIRRORS"
# A mirror that was not used for this long is removed when another one is made.
_UNUSED_SECONDS: Final = 7 * 24 * 3600
# How many chunks are in memory at a time; each has a few megabytes.
_CHUNKS_AT_A_TIME: Final = 8


def reference_to(name: str) -> str:
    """Return the reference by which workers find the mirror of a version."""
    return f"{_SCHEME}{name}"


def located(reference: str | os.PathLike[str]) -> Path:
    """Return the local path of an index, or of a snapshot in it; a mirror is made if this machine has none yet."""
    text = os.fspath(reference)
    if text.startswith(f"{_SCHEME}{PREFIX}"):
        return _mirrored(text.removeprefix(_SCHEME))
    return local_path(text)


def mirror_of(name: str) -> Path:
    """Return the path of this machine's mirror of a version, whether it exists or not."""
    given = os.environ.get(_FOLDER)
    folder = Path(given).absolute() if given else private_folder("siftline-mirrors")
    if folder is None:
        raise SparkError(f"there is no folder for mirrors of indexes: set {_FOLDER}")
    return folder / name


def _mirrored(place: str) -> Path:
    """Make sure that a mirror, or a snapshot in it (NAME/versions/N/shards/K), exists, and return its path."""
    name, _, inner = place.partition("/")
    root = mirror_of(name)
    if not root.is_dir():
        _make(root)
    with suppress(OSError):
        os.utime(root)  # the mirror is in use
    path = root / inner
    if inner and not path.is_dir() and not unpacked(path):
        raise SnapshotError(f"the version folder {name} has no shard {path.name}")
    return path


def _make(root: Path) -> None:
    """Make a mirror without shards, in one step."""
    source = _copied_folder(root.name) / VERSION
    root.parent.mkdir(parents=True, exist_ok=True)
    _remove_unused(root.parent)
    draft = Path(tempfile.mkdtemp(prefix=DRAFT_PREFIX, dir=root.parent))
    folder = version_folder(draft, read_document(source)["number"])
    (folder / SHARDS).mkdir(parents=True)
    shutil.copyfile(source, folder / VERSION)
    try:
        draft.rename(root)
    except OSError:
        shutil.rmtree(draft)
        if not root.is_dir():
            raise


def _copied_folder(name: str) -> Path:
    """Return the folder that Spark has copied."""
    from pyspark import SparkFiles

    folder = Path(SparkFiles.get(name))
    if not folder.is_dir():
        raise SnapshotError(f"Spark has not copied the version folder {name}: there is no {folder}")
    return folder


def _remove_unused(mirrors: Path) -> None:
    for root in mirrors.glob(f"{PREFIX}*"):
        if root.stat().st_mtime < time.time() - _UNUSED_SECONDS:
            shutil.rmtree(root, ignore_errors=True)


def unpacked(path: Path) -> bool:
    """Unpack a snapshot of a mirror, unless another worker has; return False if the path is not in a mirror."""
    root = path.parents[3]
    if not root.name.startswith(PREFIX):
        return False
    with _lock(root):
        if path.is_dir():
            return True
        with tempfile.TemporaryDirectory(prefix=DRAFT_PREFIX, dir=root) as folder:
            draft = Path(folder, path.name)
            for batch in _chunks(_copied_folder(root.name) / SHARDS, int(path.name)):
                _write(batch, draft)
            if not draft.is_dir():
                return False
            draft.rename(path)
    return True


@contextmanager
def _lock(root: Path) -> Iterator[None]:
    """Hold the lock that allows one worker of the machine at a time to unpack, and mark the mirror as used."""
    with (root / "lock").open("w") as file:
        os.utime(root)
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _chunks(folder: Path, shard: int) -> Iterator[Any]:
    """Read the chunks of a shard; row groups that cannot have any, by their statistics, are skipped."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    for file in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(file) as opened:
            column = opened.schema_arrow.names.index("shard")
            metadata = [opened.metadata.row_group(number).column(column) for number in range(opened.num_row_groups)]
            groups = [number for number, each in enumerate(metadata) if _may_have(each.statistics, shard)]
            names = ["shard", "file", "offset", "content"]
            for batch in opened.iter_batches(_CHUNKS_AT_A_TIME, groups, columns=names):
                is_ours = pc.and_(pc.equal(batch.column("shard"), shard), pc.is_valid(batch.column("file")))
                yield batch.filter(is_ours)


def _may_have(statistics: Any, shard: int) -> bool:
    return statistics is None or not statistics.has_min_max or statistics.min <= shard <= statistics.max


def _write(batch: Any, folder: Path) -> None:
    names, offsets = batch.column("file").to_pylist(), batch.column("offset").to_pylist()
    for name, offset, content in zip(names, offsets, batch.column("content"), strict=True):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("r+b" if file.exists() else "wb") as stream:
            stream.seek(offset)
            stream.write(content.as_buffer())
