"""The owner of a store: one process at a time, which writes its identity into a small file beside the store.

    store.db            the subscriptions
    store.db-owner      {"pid": 4711, "host": "mail", "command": "siftline serve ...", "since": "2026-01-31T10:00:00Z"}

The file is locked (`flock`) while the owner lives. The kernel releases the lock when the process ends in any way, so
there is nothing to clean up after a crash. The file itself is never deleted: otherwise two processes could each lock a
different file of that name, and both believe that they are the owner.

A forked child shares the lock of its parent, and would keep it after the parent's death; so it closes its copy at once.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
import weakref
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from siftline.errors import StorageError, StoreError, StoreLockedError
from siftline.storage.files import File

# On these file systems locks may not reach other machines, and SQLite's shared memory never does.
_NETWORK: Final = frozenset(
    {"afs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2"}
    | {"orangefs", "smb3", "smbfs"}
    | {f"fuse.{name}" for name in ("ceph", "davfs", "glusterfs", "juicefs", "rclone", "s3fs", "sshfs")}
)
_MOUNTS: Final = Path("/proc/self/mountinfo")
_COMMAND_LENGTH: Final = 200
_MOST_BYTES: Final = 4096


class Owner:
    """The lock of a store, held until `close`."""

    def __init__(self, store: str) -> None:
        # Beside the file itself, not beside a link to it, so that all names of the store lead to the same lock.
        self.path = Path(os.path.realpath(store) + "-owner")
        refuse_network(store)
        try:
            self._file = File.opened(self.path, is_made=True)
        except StorageError as error:
            raise StoreError(str(error)) from error
        try:
            if not self._file.try_lock():
                raise StoreLockedError(f"{store} is owned by {self._description()}: {_ADVICE}")
            self._check_lock(store)
            self._write_identity()
        except BaseException as error:
            self._file.close()
            if isinstance(error, StorageError) and not isinstance(error, StoreError):
                raise StoreError(str(error)) from error
            raise
        _OWNERS.add(self)

    def _check_lock(self, store: str) -> None:
        """Raise if the file system grants the lock twice."""
        second = File.opened(self.path)
        try:
            if second.try_lock():
                raise StoreError(f"{store}: this file system does not lock files; put the store on a local disk")
        finally:
            second.close()

    def _write_identity(self) -> None:
        """Write the identity of this process."""
        who = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "command": " ".join(shlex.join(sys.orig_argv).split())[:_COMMAND_LENGTH],
            "since": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        }
        try:
            self._file.truncate(0)
            self._file.write(json.dumps(who).encode() + b"\n", 0)
        except StorageError:  # the disk is full, but the lock is held
            return

    def _description(self) -> str:
        """Return a description of the owner, as far as it is known."""
        try:
            who: dict[str, Any] = json.loads(self._file.read(_MOST_BYTES, 0))
            is_here = who["pid"] == os.getpid() and who["host"] == socket.gethostname()
            name = "this process itself" if is_here else f"process {who['pid']} on {who['host']} ({who['command']})"
            return f"{name} since {who['since']}"
        except (ValueError, TypeError, KeyError):  # the owner has not written it yet
            return "a process that has not said who it is"

    def close(self) -> None:
        """Release the lock."""
        self._file.close()
        _OWNERS.discard(self)


_ADVICE: Final = (
    "one writer owns a store. Stop it first, or open the store read-only (is_read_only=True), or beside its owner for "
    "a short change (is_guest=True)"
)
_OWNERS: Final[weakref.WeakSet[Owner]] = weakref.WeakSet()


def _leave_to_parent() -> None:
    for owner in list(_OWNERS):
        owner.close()


os.register_at_fork(after_in_child=_leave_to_parent)


def refuse_network(store: str, mounts: Path = _MOUNTS) -> None:
    """Raise if a store would be on a network file system."""
    kind = _file_system(os.path.dirname(os.path.realpath(store)), mounts)
    if kind in _NETWORK:
        raise StoreError(
            f"{store} is on a network file system ({kind}), where locks and shared memory do not reach other machines: "
            "put the store on a local disk, and let others reach it by `siftline serve`"
        )


def _file_system(folder: str, mounts: Path) -> str | None:
    """Return the type of the file system of a folder, None if it is unknown."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        device = os.stat(folder).st_dev
    except OSError:
        return None
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        fields = line.split()
        if fields[2] == number:
            return fields[fields.index("-") + 1]
    return None
