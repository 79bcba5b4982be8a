"""Parsing and formatting that several routes share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

from siftline.server.clients import client_of
from siftline.server.problems import ProblemError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from starlette.requests import HTTPConnection

    from siftline.broker.keys import Key
    from siftline.storage.rows import StoredSubscription

# A response with many rows ends with the row that makes it larger than this.
_ANSWER_BYTES: Final = 8 << 20


def path_part(connection: HTTPConnection, name: str) -> str:
    """Return an id, an owner or a name from the path, where it is percent-encoded."""
    try:
        return unquote_to_bytes(connection.path_params[name]).decode()
    except UnicodeDecodeError:
        raise ProblemError(400, "the path is not UTF-8, percent-encoded", path=name) from None


def number_of(connection: HTTPConnection, name: str, default: int, most: int, least: int = 1) -> int:
    """Return a number from the query string."""
    text = connection.query_params.get(name, str(default))
    if not text.isdecimal() or not text.isascii() or len(text) > 18 or not least <= int(text) <= most:
        raise ProblemError(422, f"{name} must be a number from {least} to {most:,}", path=name)
    return int(text)


def client_name(connection: HTTPConnection, key: Key | None) -> str:
    """Return the name of the client for rate limits: its key, or its address."""
    if key is not None:
        return key.id
    return "" if connection.client is None else client_of(connection.client.host)


def time_text(moment: datetime) -> str:
    """Return a time in the form of responses."""
    return moment.isoformat().replace("+00:00", "Z")


def shown(found: StoredSubscription) -> dict[str, Any]:
    """Return a subscription in the form of responses."""
    return {
        "id": found.id,
        "expression": found.written.text,
        "dialect": found.written.dialect,
        "weight": found.weight,
        "owner": found.owner,
        "created": time_text(found.created),
        "expires": None if found.expires is None else time_text(found.expires),
    }


def first_rows(rows: Iterable[dict[str, Any]], text: str) -> Iterator[dict[str, Any]]:
    """Yield rows until the lengths of one of their members fill a response."""
    n_bytes = 0
    for row in rows:
        if n_bytes >= _ANSWER_BYTES:
            return
        n_bytes += len(row.get(text) or "")
        yield row
