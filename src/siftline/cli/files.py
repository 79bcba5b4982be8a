"""Files that commands write: never one of their inputs, and only when they are complete."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from siftline.cli.problems import CannotRunError
from siftline.files.formats import STANDARD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


def refuse_overwriting(output: str, *inputs: str | None) -> None:
    """Refuse an output that is the same file as one of the inputs."""
    for path in inputs:
        if path is not None and STANDARD not in (path, output) and _are_same(output, path):
            raise CannotRunError(f"{output}: the output is also an input")


def _are_same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:  # one of them does not exist
        return os.path.realpath(one) == os.path.realpath(other)


def csv_bytes(rows: Iterable[Sequence[Any]]) -> bytes:
    """Return rows as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "surrogatepass")


def is_stream(path: str) -> bool:
    """Return whether a path is a stream: standard output, a device or a named pipe."""
    return path == STANDARD or (Path(path).exists() and not Path(path).is_file())


@contextlib.contextmanager
def written_whole(path: str) -> Iterator[Path]:
    """Yield a temporary path that is renamed to `path` at the end, or deleted after an error."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(21, "Is a directory", path)
    if is_stream(path):
        yield target
        return
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(13, "Permission denied", path)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:  # starts before the file exists, because a signal may come at any moment
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
    """Set the mode of a temporary file, which is private, to that of the replaced file or to the default."""
    if target.exists():
        mode = target.stat().st_mode & 0o777
    else:
        mask = os.umask(0)
        os.umask(mask)
        mode = 0o666 & ~mask
    os.chmod(draft, mode)
