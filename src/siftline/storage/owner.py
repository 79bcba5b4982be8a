"""Who owns a store: one process at a time, which says who it is in a small file beside the store.

    store.db            the subscriptions
    store.db-owner      {"pid": 4711, "host": "mail", "command": "siftline serve ...", "since": "2026-01-31T10:00:00Z"}

The file is locked (`flock`) for as long as the owner lives. The kernel lets go of the lock when the process ends, in
whatever way, so nothing has to be cleared up after a crash. The file itself is never deleted: two processes could then
hold the lock of one file each, and both believe that they are alone.

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

# Locks on these do not reach other machines for certain, and SQLite's shared memory never does.
_NETWORK: Final = frozenset(
    {"afs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2"}
    | {"orangefs", "smb3", "smbfs"}
    | {f"fuse.{name}" for name in ("ceph", "davfs", "glusterfs", "juicefs", "rclone", "s3fs", "sshfs")}
)
_MOUNTS: Final = Path("/proc/self/mountinfo")
_COMMAND_LENGTH: Final = 200
_MOST_BYTES: Final = 4096


class Owner:
    """The lock of a store, held from the beginning until `close`."""

    def __init__(self, store: str) -> None:
        # Beside the file itself, not beside a link to it: whoever opens it by another name finds the same lock.
        self.path = Path(os.path.realpath(store) + "-owner")
        refuse_network(store)
        try:
            self._file = File.opened(self.path, is_made=True)
        except StorageError as error:
            raise StoreError(str(error)) from error
        try:
            if not self._file.try_lock():
                raise StoreLockedError(f"{store} is taken by {self._whom()}: {_ADVICE}")
            self._check_lock(store)
            self._say()
        except BaseException as error:
            self._file.close()
            if isinstance(error, StorageError) and not isinstance(error, StoreError):
                raise StoreError(str(error)) from error
            raise
        _OWNERS.add(self)

    def _check_lock(self, store: str) -> None:
        """Raise if the file system lets a second one have the lock too."""
        second = File.opened(self.path)
        try:
            if second.try_lock():
                raise StoreError(f"{store}: this file system does not lock files; put the store on a local disk")
        finally:
            second.close()

    def _say(self) -> None:
        """Write down who we are."""
        who = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "command": " ".join(shlex.join(sys.orig_argv).split())[:_COMMAND_LENGTH],
            "since": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        }
        try:
            self._file.truncate(0)
            self._file.write(json.dumps(who).encode() + b"\n", 0)
        except StorageError:  # a full disk: the lock counts, not the words
            return

    def _whom(self) -> str:
        """Return by whom the store is taken, as far as it is known."""
        try:
            who: dict[str, Any] = json.loads(self._file.read(_MOST_BYTES, 0))
            is_here = who["pid"] == os.getpid() and who["host"] == socket.gethostname()
            name = "this process itself" if is_here else f"process {who['pid']} on {who['host']} ({who['command']})"
            return f"{name} since {who['since']}"
        except (ValueError, TypeError, KeyError):  # it has only just taken it
            return "a process that has not said who it is"

    def close(self) -> None:
        """Let others have the store."""
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
    """Return what kind of file system a folder is on; None if this machine does not tell."""
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
