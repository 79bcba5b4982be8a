"""Reads the bodies of requests: each has a limit of size and time, and all together have a limit of size."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any, Final, NoReturn

from starlette.requests import ClientDisconnect

from siftline.errors import BusyError
from siftline.server.problems import ProblemError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.requests import Request

    from siftline.broker.limits import Limits

Body = bytes | bytearray
# The limit of a document without an expression or an event.
SMALL_BYTES: Final = 4096
# How much longer an expression may be in JSON: each byte may be written as \\u0000.
_ESCAPED: Final = 6


class Bodies:
    """Reads the bodies of requests.

    Attributes
    ----------
    expression_bytes : int
        The limit of a document with an expression.
    explained_bytes : int
        The limit of a document with an expression and an event.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._n_bytes = 0
        self.expression_bytes = min(limits.body_bytes, _ESCAPED * limits.expression_bytes + SMALL_BYTES)
        self.explained_bytes = min(limits.body_bytes, self.expression_bytes + limits.event_bytes)

    @contextlib.asynccontextmanager
    async def of(self, request: Request, most: int | None = None) -> AsyncIterator[Body]:
        """Yield the body of a request, which counts in the limit of all bodies until the block ends.

        Parameters
        ----------
        request : Request
            A request whose permissions and rate have been checked: reading the body is the first expensive step.
        most : int, optional
            The limit of this body; `body_bytes` if it is not given.
        """
        held = [0]
        try:
            yield await self._read(request, self._limits.body_bytes if most is None else most, held)
        finally:
            self._n_bytes -= held[0]

    async def _read(self, request: Request, most: int, held: list[int]) -> Body:
        announced = request.headers.get("content-length", "")
        _check_size(int(announced) if announced.isdecimal() and announced.isascii() else 0, most)
        body = bytearray()  # joining 16 MB of chunks at the end would block the event loop for 15 ms
        try:
            async with asyncio.timeout(self._limits.request_seconds):
                async for chunk in request.stream():
                    held[0] += len(chunk)
                    self._n_bytes += len(chunk)
                    _check_size(held[0], most)
                    if self._n_bytes > self._limits.bodies_bytes:
                        raise BusyError("the bodies of all current requests are too large together")
                    body += chunk
        except TimeoutError:
            reason = f"the request was not complete within {self._limits.request_seconds:g} s"
            raise ProblemError(408, reason) from None
        except ClientDisconnect:  # not a bug, although nobody gets this response
            raise ProblemError(400, "the connection ended before the request") from None
        return body


def _check_size(n_bytes: int, most: int) -> None:
    if n_bytes > most:
        raise ProblemError(413, f"the body is too large: at most {most:,} bytes are allowed")


def json_of(body: Body) -> Any:
    """Return the JSON document of a body; an error has the position."""
    try:
        return json.loads(body.decode("utf-8-sig"), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise ProblemError(400, "the body is not UTF-8", position=error.start) from None
    except json.JSONDecodeError as error:
        reason = f"the body is not JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        raise ProblemError(400, reason, line=error.lineno, column=error.colno, position=error.pos) from None
    except (RecursionError, ValueError):
        raise ProblemError(
            400, "the body is not readable JSON: it is nested too deeply, or a number is too long"
        ) from None


def _refuse(name: str) -> NoReturn:
    raise ProblemError(400, f"the body is not JSON: {name} is not a JSON number")


def object_of(body: Body, known: tuple[str, ...]) -> dict[str, Any]:
    """Return a JSON object with no other members than the known ones."""
    document = json_of(body)
    if not isinstance(document, dict):
        raise ProblemError(400, "the body must be a JSON object")
    for name in document:
        if name not in known:
            raise ProblemError(400, f"unknown member {name[:60]!r}", path=name[:60], hint=f"known: {', '.join(known)}")
    return document


def line_spans(body: Body, start: int = 0) -> Iterator[tuple[int, int]]:
    """Yield the starts and ends of lines one at a time: splitting 16 MB at once would block all threads."""
    while start < len(body):
        end = body.find(b"\n", start)
        end = len(body) if end < 0 else end
        yield start, end
        start = end + 1


def matches_of(body: Body) -> list[tuple[int, list[Any]]]:
    """Return the matches of a cluster: a line `{"event": 417, "subscriptions": ["ann", "bob"]}` for each event."""
    matches = []
    for start, end in line_spans(body):
        line = body[start:end]
        if line and not line.isspace():
            document = object_of(line, ("event", "subscriptions"))
            event, ids = document.get("event"), document.get("subscriptions")
            if type(event) is not int or not 0 <= event < 2**63 or not isinstance(ids, list):
                raise ProblemError(422, 'a match must be {"event": number, "subscriptions": [ids]}')
            if not all(type(id) in (int, str) for id in ids):
                raise ProblemError(422, "an id is an integer or a text", path="subscriptions")
            matches.append((event, ids))
    return matches
