"""Paths of users: on this machine, on a file system that only Spark can reach, and private folders.

/data/index, file:///data/index     a folder that all machines have mounted
hdfs://cluster/index, s3a://...     on a file system that Spark knows
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from siftline.errors import SparkError

# `2026-11-17T10:00` and `a:b` are local names: a scheme is followed by a colon and a slash.
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_FILE: Final = re.compile(r"file:(//[^/]*)?/", re.IGNORECASE)
# Characters that have a meaning in the patterns of Hadoop.
_PATTERN: Final = re.compile(r"[][{}*?\\]")


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is on a file system that only Spark can reach.

    >>> [is_remote(path) for path in ("/data/index", "file:///data/index", "hdfs://cluster/index", "run:7/index")]
    [False, False, True, False]
    """
    return _scheme(os.fspath(path)) not in ("", "file")


def local_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a local name or of a `file:` URI.

    >>> local_path("file:///tmp/an%20index")
    PosixPath('/tmp/an index')
    """
    text = os.fspath(path)
    scheme = _scheme(text)
    if not scheme:
        return Path(text).absolute()
    if scheme == "file":
        # A `#` or `?` is a character of the name, because such a URI has neither a fragment nor a query here.
        return Path(unquote(_FILE.sub("/", text, count=1)))
    raise SparkError(
        f"{text}: this must be on a file system that all machines have mounted, not on {scheme}:; "
        "an index there can be compiled and matched with, but not changed, compacted or streamed with"
    )


def spark_path(path: str | os.PathLike[str]) -> str:
    """Return an absolute path for Spark, with any characters: the JVM has its own working directory.

    A path without a scheme gets none, because the default file system of Spark may be another one.

    >>> spark_path("file:///tmp/an%20index"), spark_path("/tmp/1:30"), spark_path("hdfs://cluster/index")
    ('file:///tmp/an index', '/tmp/1:30', 'hdfs://cluster/index')
    """
    text = os.fspath(path)
    if is_remote(text):
        return text
    return file_uri(local_path(text)) if _scheme(text) else str(local_path(text))


def file_uri(path: Path) -> str:
    """Return the URI of a local path for Hadoop, which decodes nothing.

    >>> file_uri(Path("/data/10:30 #1%"))
    'file:///data/10:30 #1%'
    """
    return f"file://{path}"


def literal(text: str) -> str:
    r"""Return a path with escapes, so that Spark does not read it as a pattern.

    >>> print(literal("/data/[1]"))
    /data/\[1\]
    """
    return _PATTERN.sub(r"\\\g<0>", text)


def private_folder(name: str) -> Path | None:
    """Return a folder among the temporary files that only this user can write to; None if it cannot be made."""
    folder = Path(tempfile.gettempdir(), f"{name}-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    is_ours = status.st_uid == os.getuid() and status.st_mode & 0o077 == 0 and not folder.is_symlink()
    return folder if is_ours else None


def _scheme(text: str) -> str:
    found = _SCHEME.match(text)
    return "" if found is None else found[1].lower()
