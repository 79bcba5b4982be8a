"""Files as they are read: which format, how compressed, and where the bytes come from.

The extension names the format: `.jsonl`, `.csv`, `.parquet`, `.txt`, and with `.gz` or `.zst` behind it a compressed
one. That bytes are compressed is seen from how they begin. Standard input (`-`) and pipes without an extension are JSON
Lines.
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
# How compressed bytes begin, and what Arrow calls what wrote them.
_CODECS: Final = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_BOM: Final = b"\xef\xbb\xbf"
_HEAD_BYTES: Final = 256
_BUFFER_BYTES: Final = 1 << 18
# A line of JSON Lines may be an array by mistake, but not one of objects, and not one that goes on below.
_ARRAY: Final = re.compile(rb"\[[ \t]*(\{|\r?\n)")
_SPREAD_OBJECT: Final = re.compile(rb"\{[ \t]*\r?\n")


def format_of(path: str, accepted: tuple[str, ...]) -> str:
    """Return the format of a file that is written, by its extension; standard output is JSON Lines."""
    return JSONL if path == STANDARD else _by_suffix(path, Path(path).suffix.lower(), accepted)


def input_format(path: str, accepted: tuple[str, ...]) -> str:
    """Return the format of a file that is read: by its extension, before that of a compression.

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
        raise FileError(f"{path}: Parquet is compressed inside: its name ends in .parquet")
    return found


def _by_suffix(path: str, suffix: str, accepted: tuple[str, ...]) -> str:
    found = _FORMATS.get(suffix)
    if found in accepted:
        return found
    known = ", ".join(extension for extension, name in _FORMATS.items() if name in accepted)
    raise FileError(f"{path}: the extension {suffix!r} names no format that fits here (there are: {known})")


def _inner(path: str) -> Path:
    """Return a path without the extension of a compression."""
    return Path(path).with_suffix("") if _is_named_compressed(path) else Path(path)


def _is_named_compressed(path: str) -> bool:
    return Path(path).suffix.lower() in _COMPRESSED


def _is_pipe(path: str) -> bool:
    """Return whether a path is there and is no plain file: a named pipe, /dev/stdin, what a shell puts for <(…)."""
    return Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir()


def shown_name(path: str, standard: str = "<stdin>") -> str:
    """Return how errors name a file."""
    return standard if path == STANDARD else path


@contextlib.contextmanager
def open_bytes(path: str) -> Iterator[IO[bytes]]:
    """Open a file, or standard input, for reading its text; a byte order mark is passed over."""
    if path == STANDARD:
        with _readable(sys.stdin.buffer, path) as file:
            yield file
        return
    with Path(path).open("rb") as raw, _readable(raw, path) as file:
        yield file


@contextlib.contextmanager
def _readable(raw: Any, path: str) -> Iterator[IO[bytes]]:
    """Give the text of a file, which may be compressed."""
    codec = next((codec for begins, codec in _CODECS.items() if raw.peek(4).startswith(begins)), None)
    if codec is None:
        if _is_named_compressed(path) and raw.peek(1):
            raise FileError(f"{path}: this is not compressed, though its name ends in {Path(path).suffix}")
        yield _checked(raw, path)
        return
    yield _checked(io.BufferedReader(_Unpacked(raw, codec, shown_name(path)), _BUFFER_BYTES), path)


class _Unpacked(io.RawIOBase):
    """What a compressed file holds, as a raw file for `io.BufferedReader`; several streams may follow each other."""

    def __init__(self, raw: Any, codec: str, name: str) -> None:
        import pyarrow as pa

        self._stream = pa.CompressedInputStream(pa.PythonFile(_KeptOpen(raw), "r"), codec)
        self._name = name

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes, as many as there is room for or fewer."""
        import pyarrow as pa

        try:
            found = self._stream.read(len(buffer))
        except (OSError, pa.ArrowException) as error:
            raise FileError(f"{self._name}: cannot be unpacked: {error}") from None
        buffer[: len(found)] = found
        return len(found)


class _KeptOpen:
    """A file that Arrow may close without closing ours: standard input stays open."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        """Read what is there, at most this many bytes; of a pipe without waiting for more."""
        return cast("bytes", self._file.read1(size))

    def close(self) -> None:
        """Forget the file."""
        self.closed = True


def _checked(file: Any, path: str) -> IO[bytes]:
    """Refuse what is no UTF-8 text at all by its first bytes."""
    head = file.peek(4)[:4]
    if head == b"PAR1":
        raise FileError(f"{shown_name(path)}: this is a Parquet file; its name must end in .parquet")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in head:
        raise FileError(f"{shown_name(path)}: looks like UTF-16; save it as UTF-8")
    if head.startswith(_BOM):
        file.read(len(_BOM))
    return cast("IO[bytes]", file)


def refuse_document(file: Any, path: str) -> None:
    """Refuse JSON that is one document over the whole file instead of JSON Lines, by how it begins."""
    head = file.peek(_HEAD_BYTES)[:_HEAD_BYTES].lstrip()
    is_array = head.startswith(b"[") and _inner(path).suffix.lower() == ".json"
    if is_array or _ARRAY.match(head):
        raise array_error(path)
    if _SPREAD_OBJECT.match(head):
        name = shown_name(path)
        raise FileError(
            f"{name}: this is a JSON object over several lines; Siftline reads JSON Lines, one object a line "
            f"(jq -c . {name})"
        )


def array_error(path: str) -> FileError:
    """Return the error for a file that holds one JSON array."""
    name = shown_name(path)
    return FileError(f"{name}: this is a JSON array; Siftline reads JSON Lines, one object a line (jq -c '.[]' {name})")


def size_of(path: str) -> int | None:
    """Return how many bytes there are to read; None if it cannot be known: of pipes, and of what is compressed."""
    if path == STANDARD or _is_named_compressed(path):
        return None
    return Path(path).stat().st_size or None


def open_parquet(path: str) -> Any:
    """Open a Parquet file, or say why that is impossible."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with Path(path).open("rb"):  # the plain error for a missing file or a directory
        pass
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise FileError(f"{path}: not a readable Parquet file: {error}") from None
