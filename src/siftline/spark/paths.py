"""Paths of index directories: local ones, those of other file systems, and what a machine has of the latter.

/data/index, file:///data/index     a folder here, which all machines have mounted
hdfs://cluster/index, s3a://...     on a file system that Spark knows (`remote.py`)
mirror:NAME/...                     what each machine keeps of a version there (`mirror.py`); workers get such paths
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from siftline.errors import SparkError
from siftline.spark import mirror

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is on a file system that only Spark can reach.

    >>> [is_remote(path) for path in ("/data/index", "file:///data/index", "hdfs://cluster/index")]
    [False, False, True]
    """
    return _scheme(os.fspath(path)) not in ("", "file", mirror.SCHEME)


def local_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a local name, a `file:` URI or something of a mirror, which this machine then has.

    >>> local_path("file:///tmp/an%20index")
    PosixPath('/tmp/an index')
    """
    text = os.fspath(path)
    scheme = _scheme(text)
    if not scheme:
        return Path(text).absolute()
    if scheme == mirror.SCHEME:
        return mirror.mirrored(text.partition(":")[2])
    if scheme == "file":
        return Path(unquote(urlsplit(text).path))
    raise SparkError(
        f"{text}: this must be on a file system that all machines have mounted, not on {scheme}:; "
        "an index there can be compiled and matched with, but not changed, compacted or streamed with"
    )


def _scheme(text: str) -> str:
    found = _SCHEME.match(text)
    return "" if found is None else found[1].lower()
