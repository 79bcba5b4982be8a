"""The format and the compression of a file, and opening it.

The extension gives the format: `.jsonl`, `.csv`, `.parquet`, `.txt`, followed by `.gz` or `.zst` if it is compressed.
Compression itself is detected by the first bytes. Standard input (`-`) and pipes without an extension are JSON Lines.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast

from siftline.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Iterator

JSONL: Final = "jsonl"
CSV: Final = "csv"
PARQUET: Final = "parquet"
TEXT: Final = "text"

STANDARD: Final = "-"

_FORMATS: Final = {
    ".jsonl": JSONL,
    ".ndjson": JSONL,
    ".json": JSONL,
    ".csv": CSV,
    ".parquet": PARQUET,
    ".txt": TEXT,
    ".sift": TEXT,
}
_COMPRESSED: Final = (".gz", ".zst")
# The first bytes of a compressed file, and Arrow's name of the codec.
_CODECS: Final = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_BOM: Final = b"\xef\xbb\xbf"
_HEAD_BYTES: Final = 256
_BUFFER_BYTES: Final = 1 << 18
# The start of a JSON document that is not JSON Lines: an array of objects or over several lines, or such an object.
_ARRAY: Final = re.compile(rb"\[[ \t]*(\{|\r?\n)")
_SPREAD_OBJECT: Final = re.compile(rb"\{[ \t]*\r?\n")


def format_of(path: str, accepted: tuple[str, ...]) -> str:
    """Return the format of an output file by its extension; standard output is JSON Lines."""
    return JSONL if path == STANDARD else _by_suffix(path, Path(path).suffix.lower(), accepted)


def input_format(path: str, accepted: tuple[str, ...]) -> str:
    """Return the format of an input file by its extension, without that of a compression.

    >>> input_format("rules.csv.gz", (JSONL, CSV)), input_format("-", (JSONL, CSV))
    ('csv', 'jsonl')
    """
    if path == STANDARD:
        return JSONL
    suffix = _inner(path).suffix.lower()
    if not suffix and _is_pipe(path):
        return JSONL
    found = _by_suffix(path, suffix, accepted)
    if found == PARQUET and _is_named_compressed(path):
        raise FileError(f"{path}: Parquet files are compressed inside: the name must end in .parquet")
    return found


def _by_suffix(path: str, suffix: str, accepted: tuple[str, ...]) -> str:
    found = _FORMATS.get(suffix)
    if found in accepted:
        return found
    known = ", ".join(extension for extension, name in _FORMATS.items() if name in accepted)
    raise FileError(f"{path}: the extension {suffix!r} is not supported here (supported: {known})")


def _inner(path: str) -> Path:
    """Return a path without the extension of its compression."""
    return Path(path).with_suffix("") if _is_named_compressed(path) else Path(path)


def _is_named_compressed(path: str) -> bool:
    return Path(path).suffix.lower() in _COMPRESSED


def _is_pipe(path: str) -> bool:
    """Return whether a path exists and is a pipe or device: a named pipe, /dev/stdin, or what a shell makes of <(…)."""
    return Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir()


def shown_name(path: str) -> str:
    """Return the name of a file in messages."""
    return "<stdin>" if path == STANDARD else path


@contextlib.contextmanager
def open_bytes(path: str) -> Iterator[IO[bytes]]:
    """Open a file, or standard input, for reading its text; a byte order mark is skipped."""
    if path == STANDARD:
        with _readable(sys.stdin.buffer, path) as file:
            yield file
        return
    with Path(path).open("rb") as raw, _readable(raw, path) as file:
        yield file


@contextlib.contextmanager
def _readable(raw: Any, path: str) -> Iterator[IO[bytes]]:
    """Yield the text of a file, which may be compressed."""
    codec = next((codec for begins, codec in _CODECS.items() if raw.peek(4).startswith(begins)), None)
    if codec is None:
        if _is_named_compressed(path) and raw.peek(1):
            raise FileError(f"{path}: this is not compressed, though its name ends in {Path(path).suffix}")
        yield _checked(raw, path)
        return
    yield _checked(io.BufferedReader(_Unpacked(raw, codec, shown_name(path)), _BUFFER_BYTES), path)


class _Unpacked(io.RawIOBase):
    """The contents of a compressed file, for `io.BufferedReader`; a file may have several compressed streams."""

    def __init__(self, raw: Any, codec: str, name: str) -> None:
        import pyarrow as pa

        self._stream = pa.CompressedInputStream(pa.PythonFile(_KeptOpen(raw), "r"), codec)
        self._name = name

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read bytes into a buffer, and return how many."""
        import pyarrow as pa

        try:
            found = self._stream.read(len(buffer))
        except (OSError, pa.ArrowException) as error:
            raise FileError(f"{self._name}: cannot be unpacked: {error}") from None
        buffer[: len(found)] = found
        return len(found)


class _KeptOpen:
    """A wrapper that Arrow may close without closing the file itself: standard input stays open."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        """Read at most this many bytes; a pipe is not waited for if some are available."""
        return cast("bytes", self._file.read1(size))

    def close(self) -> None:
        """Mark the wrapper as closed."""
        self.closed = True


def _checked(file: Any, path: str) -> IO[bytes]:
    """Refuse a file whose first bytes show that it is not UTF-8 text."""
    head = file.peek(4)[:4]
    if head == b"PAR1":
        raise FileError(f"{shown_name(path)}: this is a Parquet file; its name must end in .parquet")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in head:
        raise FileError(f"{shown_name(path)}: looks like UTF-16; save it as UTF-8")
    if head.startswith(_BOM):
        file.read(len(_BOM))
    return cast("IO[bytes]", file)


def refuse_document(file: Any, path: str) -> None:
    """Refuse a file whose first bytes show that it is one JSON document instead of JSON Lines."""
    head = file.peek(_HEAD_BYTES)[:_HEAD_BYTES].lstrip()
    is_array = head.startswith(b"[") and _inner(path).suffix.lower() == ".json"
    if is_array or _ARRAY.match(head):
        raise array_error(path)
    if _SPREAD_OBJECT.match(head):
        name = shown_name(path)
        raise FileError(
            f"{name}: this is a JSON object over several lines; Siftline reads JSON Lines, one object per line "
            f"(jq -c . {name})"
        )


def array_error(path: str) -> FileError:
    """Return the error for a file that is one JSON array."""
    name = shown_name(path)
    return FileError(
        f"{name}: this is a JSON array; Siftline reads JSON Lines, one object per line (jq -c '.[]' {name})"
    )


def size_of(path: str) -> int | None:
    """Return the size of a file in bytes; None for pipes and compressed files, where it is unknown."""
    if path == STANDARD or _is_named_compressed(path):
        return None
    return Path(path).stat().st_size or None


def open_parquet(path: str) -> Any:
    """Open a Parquet file; raise FileError with the reason if that is impossible."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with Path(path).open("rb"):  # raises the usual error for a missing file or a directory
        pass
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise FileError(f"{path}: not a readable Parquet file: {error}") from None
