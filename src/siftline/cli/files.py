"""Files as the commands see them: which format, where the bytes come from, and output that is whole or not there."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast

from siftline.cli.problems import CannotRunError

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
_BOM: Final = b"\xef\xbb\xbf"
_HEAD_BYTES: Final = 256
# A line of JSON Lines may be an array by mistake, but not one of objects, and not one that goes on below.
_ARRAY: Final = re.compile(rb"\[[ \t]*(\{|\r?\n)")
_SPREAD_OBJECT: Final = re.compile(rb"\{[ \t]*\r?\n")


def format_of(path: str, accepted: tuple[str, ...]) -> str:
    """Return the format of a file by its extension; standard input and output are JSON Lines."""
    if path == STANDARD:
        return JSONL
    suffix = Path(path).suffix.lower()
    found = _FORMATS.get(suffix)
    if found in accepted:
        return found
    known = ", ".join(extension for extension, name in _FORMATS.items() if name in accepted)
    raise CannotRunError(f"{path}: the extension {suffix!r} names no format that fits here (there are: {known})")


def shown_name(path: str, standard: str = "<stdin>") -> str:
    """Return how errors name a file."""
    return standard if path == STANDARD else path


@contextlib.contextmanager
def open_bytes(path: str) -> Iterator[IO[bytes]]:
    """Open a file, or standard input, for reading; a byte order mark is passed over."""
    if path == STANDARD:
        yield _checked(sys.stdin.buffer, path)
        return
    with Path(path).open("rb") as file:
        yield _checked(file, path)


def _checked(file: Any, path: str) -> IO[bytes]:
    """Refuse what is no UTF-8 text at all by its first bytes."""
    head = file.peek(4)[:4]
    if head == b"PAR1":
        raise CannotRunError(f"{shown_name(path)}: this is a Parquet file; its name must end in .parquet")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in head:
        raise CannotRunError(f"{shown_name(path)}: looks like UTF-16; save it as UTF-8")
    if head.startswith(_BOM):
        file.read(len(_BOM))
    return cast("IO[bytes]", file)


def refuse_document(file: Any, path: str) -> None:
    """Refuse JSON that is one document over the whole file instead of JSON Lines, by how it begins."""
    head = file.peek(_HEAD_BYTES)[:_HEAD_BYTES].lstrip()
    is_array = head.startswith(b"[") and Path(path).suffix.lower() == ".json"
    if is_array or _ARRAY.match(head):
        raise array_error(path)
    if _SPREAD_OBJECT.match(head):
        name = shown_name(path)
        raise CannotRunError(
            f"{name}: this is a JSON object over several lines; Siftline reads JSON Lines, one object a line "
            f"(jq -c . {name})"
        )


def array_error(path: str) -> CannotRunError:
    """Return the error for a file that holds one JSON array."""
    name = shown_name(path)
    return CannotRunError(
        f"{name}: this is a JSON array; Siftline reads JSON Lines, one object a line (jq -c '.[]' {name})"
    )


def refuse_overwriting(output: str, *inputs: str | None) -> None:
    """Refuse an output that is one of the inputs, under whatever name."""
    for path in inputs:
        if path is not None and STANDARD not in (path, output) and _are_same(output, path):
            raise CannotRunError(f"{output}: the output is also an input")


def _are_same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:  # one of them is not there
        return os.path.realpath(one) == os.path.realpath(other)


def size_of(path: str) -> int | None:
    """Return the size of a file in bytes; None if it cannot be known, as for standard input and pipes."""
    if path == STANDARD:
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
        raise CannotRunError(f"{path}: not a readable Parquet file: {error}") from None


def is_stream(path: str) -> bool:
    """Tell whether what is written is gone at once: to standard output, a device or a named pipe."""
    return path == STANDARD or (Path(path).exists() and not Path(path).is_file())


@contextlib.contextmanager
def written_whole(path: str) -> Iterator[Path]:
    """Give a temporary path beside `path` that takes its place when all went well, and vanishes otherwise."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(21, "Is a directory", path)
    if is_stream(path):
        yield target
        return
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(13, "Permission denied", path)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:  # from before it is there: a signal may come at any moment
        try:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError as error:
            raise CannotRunError(f"{path}: cannot be written: {error.strerror}") from None
        yield draft
        _give_usual_mode(draft, target)
        os.replace(draft, path)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def _give_usual_mode(draft: Path, target: Path) -> None:
    """Undo the private mode of temporary files: keep the mode of what is replaced, or take the usual one."""
    if target.exists():
        mode = target.stat().st_mode & 0o777
    else:
        mask = os.umask(0)
        os.umask(mask)
        mode = 0o666 & ~mask
    os.chmod(draft, mode)
