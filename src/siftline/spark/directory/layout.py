"""The files of an index directory, and their names.

    PATH/
      manifest.json              the number of the current version
      lock                       held while something is being compiled into the directory
      versions/
        <n>/                     never changed after the commit
          version.json           its description: counts, shards with their pivots, a checksum of all this
          statistics.json        if the subscriptions were compiled with statistics
          ends.arrow             the times at which subscriptions end
          shards/<k>/            a snapshot of an engine (`Engine.open`)
          quarantine/*.parquet   refused subscriptions, with the reason and the position
        .draft-.../              a version that is being written
      deltas/<n>.json            later changes, in order (`deltas.py`); a version contains those up to a number
      streams/<query>/<n>.json   the state with which a micro-batch was matched (`claims.py`)
      learned/*.json             statistics of the calls of operators (`learned.py`)

A version is written as a draft (`draft.py`), renamed to its number, and becomes current when `manifest.json` is
replaced, which the file system does in one step. A driver that is killed before that leaves the old version current;
its draft is removed when the next one begins. The operating system releases the lock of a process that ends.
`retention.py` decides when a version is removed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST: Final = "manifest.json"
LOCK: Final = "lock"
VERSIONS: Final = "versions"
VERSION: Final = "version.json"
STATISTICS: Final = "statistics.json"
ENDS: Final = "ends.arrow"
SHARDS: Final = "shards"
QUARANTINE: Final = "quarantine"
STREAMS: Final = "streams"
LEARNED: Final = "learned"
_DELTAS: Final = "deltas"
# The prefix of folders that are being written; readers skip them.
DRAFT_PREFIX: Final = ".draft-"


def version_folder(folder: Path, version: int) -> Path:
    """Return the folder of a version."""
    return folder / VERSIONS / str(version)


def version_numbers(folder: Path) -> list[int]:
    """Return the numbers of all existing versions, in order."""
    return sorted(int(each.name) for each in (folder / VERSIONS).iterdir() if each.name.isdecimal())


def delta_folder(folder: Path) -> Path:
    """Return the folder of the deltas."""
    return folder / _DELTAS


def delta_file(folder: Path, number: int) -> Path:
    """Return the file of a delta."""
    return folder / _DELTAS / f"{number}.json"


def delta_numbers(folder: Path) -> list[int]:
    """Return the numbers of all existing deltas, in order."""
    try:
        names = os.listdir(folder / _DELTAS)
    except FileNotFoundError:
        return []
    return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdecimal())


def claim_file(folder: Path, query: str, batch: int) -> Path:
    """Return the file of a micro-batch's claim."""
    return folder / STREAMS / query / f"{batch}.json"
