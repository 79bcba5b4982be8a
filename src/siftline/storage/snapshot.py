"""Snapshots: a directory of flat arrays and tables, versioned, checksummed, memory-mapped when opened.

    manifest.json    format, version, the owner's header, size and checksum of every file, and a checksum of all this
    NAME.npy         an array
    NAME.arrow       a table
    NAME.json        a document

A snapshot is written under a temporary name and then renamed, so that readers see all of it or nothing. Every byte is
checked when it is opened, at the speed of memory. Checking only what is needed first would be quicker, but then a match
would meet the damage later, or nobody would notice it.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import tempfile
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from siftline.errors import SnapshotError
from siftline.kernels.checksum import N_LANES, mix_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FORMAT: Final = "siftline-snapshot"
_VERSION: Final = 8
_MANIFEST: Final = "manifest.json"
# Where the system can do that, a file is mapped with all its pages at once; page by page takes twice as long.
_ALL_AT_ONCE: Final[dict[str, int]] = (
    {"flags": mmap.MAP_SHARED | mmap.MAP_POPULATE, "prot": mmap.PROT_READ}
    if hasattr(mmap, "MAP_POPULATE")
    else {"access": mmap.ACCESS_READ}
)
# How often reading is tried again while a snapshot is being replaced.
_PATIENCE: Final = 100


class Snapshot(NamedTuple):
    """The contents of a snapshot, by name; names may contain slashes."""

    header: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    tables: dict[str, Any]
    documents: dict[str, Any]


def write_snapshot(path: str | Path, snapshot: Snapshot) -> None:
    """Write a snapshot; an existing one is replaced only when the new one is complete."""
    target = Path(path)
    if target.exists() and not (target / _MANIFEST).is_file():
        raise SnapshotError(f"{target} exists and is not a snapshot: it will not be replaced")
    draft: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        _write(snapshot, draft)
        _move_into_place(draft, target)
    except OSError as error:
        raise SnapshotError(f"{target} cannot be written: {error}") from error
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)


def _write(snapshot: Snapshot, folder: Path) -> None:
    for name, array in snapshot.arrays.items():
        np.save(_file(folder, name, "npy"), array, allow_pickle=False)
    for name, table in snapshot.tables.items():
        with pa.OSFile(str(_file(folder, name, "arrow")), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    for name, document in snapshot.documents.items():
        _file(folder, name, "json").write_text(json.dumps(document), encoding="ascii")
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    manifest = {
        "format": _FORMAT,
        "version": _VERSION,
        "header": snapshot.header,
        "files": {file.relative_to(folder).as_posix(): [file.stat().st_size, _checksum(file)] for file in files},
    }
    manifest["checksum"] = document_checksum(manifest)
    (folder / _MANIFEST).write_text(json.dumps(manifest), encoding="ascii")


def _file(folder: Path, name: str, ending: str) -> Path:
    file = folder / f"{name}.{ending}"
    file.parent.mkdir(exist_ok=True)
    return file


def _move_into_place(draft: Path, target: Path) -> None:
    os.chmod(draft, 0o755)  # mkdtemp makes it private
    if not target.exists():
        draft.rename(target)
        return
    # A directory cannot be replaced in one step: between these two renames there is none. A failure restores the old
    # one.
    old = draft.with_name(draft.name + "-old")
    target.rename(old)
    try:
        draft.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _checksum(file: Path) -> str:
    """Return the checksum of a file."""
    size = file.stat().st_size
    lanes = np.arange(size, size + N_LANES, dtype=np.uint64)
    if size:
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, **_ALL_AT_ONCE) as content:
            words = np.frombuffer(content, dtype=np.uint64, count=size // 8)
            mix_words(words, lanes)
            del words  # otherwise the map cannot be closed
            rest = bytes(content[size - size % 8 :])
        mix_words(np.frombuffer(rest.ljust(8, b"\0"), dtype=np.uint64), lanes)
    return lanes.astype(">u8").tobytes().hex()


def document_checksum(document: dict[str, Any]) -> int:
    """Return the checksum of a JSON document, which does not depend on the order of its members."""
    return zlib.crc32(json.dumps(document, sort_keys=True).encode("ascii"))


def read_snapshot(path: str | Path, *, check: bool = True) -> Snapshot:
    """Open a snapshot after comparing every file with its checksum; arrays and tables are memory maps.

    With `check=False` only the manifest is checked, for callers that know that the files have been checked before.
    """
    folder = Path(path)
    for _ in range(_PATIENCE):
        before = _identity(folder)
        try:
            return _read(folder, check)
        except (SnapshotError, OSError) as error:
            # Another process may be replacing the snapshot; then the new one appears in a moment.
            if before == _identity(folder) and not _is_being_replaced(folder):
                if isinstance(error, OSError):
                    raise SnapshotError(f"the snapshot {folder} cannot be read: {error}") from error
                raise
        time.sleep(0.01)
    return _read(folder, check)


def read_table(path: str | Path, name: str) -> Any:
    """Read one table of a snapshot and check it, without reading the rest."""
    folder, file = Path(path), f"{name}.arrow"
    files = {file: _read_manifest(folder).get("files", {}).get(file)}
    _verified(folder, {"files": files})
    return _read_arrow(folder / file)


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = (folder / _MANIFEST).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _is_being_replaced(folder: Path) -> bool:
    return not folder.exists() and any(folder.parent.glob(f".{folder.name}-*-old"))


def _read(folder: Path, check: bool) -> Snapshot:
    manifest = _read_manifest(folder)
    files = _verified(folder, manifest) if check else manifest["files"]
    try:
        return Snapshot(
            manifest["header"],
            {name.removesuffix(".npy"): _mapped(folder / name) for name in files if name.endswith(".npy")},
            {name.removesuffix(".arrow"): _read_arrow(folder / name) for name in files if name.endswith(".arrow")},
            {name.removesuffix(".json"): _read_json(folder / name) for name in files if name.endswith(".json")},
        )
    except (KeyError, ValueError, pa.ArrowInvalid, OSError) as error:
        raise SnapshotError(f"the snapshot {folder} is damaged: {error}") from error


def _read_manifest(folder: Path) -> dict[str, Any]:
    file = folder / _MANIFEST
    if not file.is_file():
        raise SnapshotError(f"there is no snapshot at {folder}: it has no {_MANIFEST}")
    try:
        manifest = _read_json(file)
    except (ValueError, OSError) as error:
        raise SnapshotError(f"{file} cannot be read: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise SnapshotError(f"{file} does not belong to a snapshot")
    if manifest.get("version") != _VERSION:
        version = manifest.get("version")
        reason = f"the snapshot {folder} is of version {version!r}; this Siftline reads {_VERSION}"
        raise SnapshotError(f"{reason}: make it again from its subscriptions")
    if manifest.pop("checksum", None) != document_checksum(manifest):
        raise SnapshotError(f"{file} is damaged: it is not as it was written")
    return manifest


def _verified(folder: Path, manifest: dict[str, Any]) -> list[str]:
    """Compare all files with their sizes and checksums, and return their names."""
    files = manifest.get("files")
    if not isinstance(files, dict):
        raise SnapshotError(f"{folder / _MANIFEST} lists no files")
    for name in files:
        if not (folder / name).is_file():
            raise SnapshotError(f"the snapshot {folder} lacks the file {name}")
    # The largest first, so that the threads finish at about the same time.
    names = sorted(files, key=lambda name: (folder / name).stat().st_size, reverse=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda name: [(folder / name).stat().st_size, _checksum(folder / name)], names)
        for name, entry in zip(names, found, strict=True):
            if entry != files[name]:
                raise SnapshotError(f"the snapshot {folder} is damaged: {name} is not as it was written")
    return list(files)


def _mapped(file: Path) -> NDArray[Any]:
    """Return an array as a memory map of its file.

    The map is private (writes to it stay in this process), because kernels would be compiled a second time for
    read-only arrays; and it is a plain view, because memmap objects are slow to slice.
    """
    return np.load(file, mmap_mode="c", allow_pickle=False).view(np.ndarray)  # type: ignore[no-any-return]


def _read_arrow(file: Path) -> Any:
    return pa.ipc.open_file(pa.memory_map(str(file))).read_all()


def _read_json(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))
