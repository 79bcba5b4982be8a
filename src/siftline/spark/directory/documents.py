"""The small documents of an index directory: JSON with a format and a checksum, written in one step."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

from siftline.errors import SnapshotError
from siftline.storage.files import named_errors, sync_folder
from siftline.storage.snapshot import document_checksum

if TYPE_CHECKING:
    from pathlib import Path

_FORMAT: Final = "siftline-index"
_FORMAT_VERSION: Final = 1


def write_document(file: Path, content: dict[str, Any]) -> None:
    """Write a document in one step, and wait until it is on the disk."""
    draft = file.with_name(f".{file.name}-draft")
    with named_errors(file, "written"):
        with draft.open("wb") as stream:
            stream.write(document_bytes(content))
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(file)
    sync_folder(file.parent)


def read_document(file: Path) -> dict[str, Any]:
    """Return a document; raise SnapshotError if it is damaged."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise SnapshotError(f"{file} cannot be read: {error}") from None
    return parsed_document(content, str(file))


def document_bytes(content: dict[str, Any]) -> bytes:
    """Return a document with its format and checksum."""
    document = {"format": _FORMAT, "version": _FORMAT_VERSION, **content}
    document["checksum"] = document_checksum(document)
    return json.dumps(document).encode("ascii")


def parsed_document(content: bytes, name: str) -> dict[str, Any]:
    """Return the content of a document; raise SnapshotError if it is damaged."""
    try:
        document = json.loads(content)
    except ValueError as error:
        raise SnapshotError(f"{name} cannot be read: {error}") from None
    if not isinstance(document, dict) or document.pop("format", None) != _FORMAT:
        raise SnapshotError(f"{name} does not belong to an index directory")
    version, checksum = document.get("version"), document.pop("checksum", None)
    if version != _FORMAT_VERSION:
        raise SnapshotError(f"{name} is of version {version!r}; this Siftline reads {_FORMAT_VERSION}")
    if checksum != document_checksum({"format": _FORMAT, **document}):
        raise SnapshotError(f"{name} is damaged: it is not as it was written")
    return document
