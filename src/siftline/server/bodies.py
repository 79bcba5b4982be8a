"""Bodies of requests: read up to a limit and in time, and understood by their content type.

application/json                     one event, or an array of events
application/x-ndjson                 events, one a line
application/cloudevents+json         a CloudEvent; the event is all of it, its data under `data`
application/cloudevents-batch+json   an array of CloudEvents
any, with ce-* headers               a CloudEvent in binary form; becomes the same object
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import unquote

from siftline.errors import EventError
from siftline.server.problems import ProblemError

if TYPE_CHECKING:
    from starlette.requests import Request

    from siftline.broker.limits import Limits

JSON: Final = "application/json"
CLOUDEVENT: Final = "application/cloudevents+json"
CLOUDEVENTS: Final = "application/cloudevents-batch+json"
LINES: Final = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")

_REQUIRED: Final = ("specversion", "id", "source", "type")
_PREFIX: Final = "ce-"


async def body_of(request: Request, limits: Limits) -> bytes:
    """Read the body; refuse one that is too large, or that takes too long to come."""
    announced = request.headers.get("content-length", "")
    _check_size(int(announced) if announced.isdecimal() and announced.isascii() else 0, limits)
    chunks: list[bytes] = []
    n_bytes = 0
    try:
        async with asyncio.timeout(limits.request_seconds):
            async for chunk in request.stream():
                n_bytes += len(chunk)
                _check_size(n_bytes, limits)
                chunks.append(chunk)
    except TimeoutError:
        raise ProblemError(408, f"the request was not complete within {limits.request_seconds:g} s") from None
    return b"".join(chunks)


def _check_size(n_bytes: int, limits: Limits) -> None:
    if n_bytes > limits.body_bytes:
        raise ProblemError(413, f"the body is too large: at most {limits.body_bytes:,} bytes may be")


def json_of(body: bytes) -> Any:
    """Return a JSON document; an error says where it is broken."""
    try:
        return json.loads(body.decode("utf-8-sig"), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise ProblemError(400, "the body is not UTF-8", position=error.start) from None
    except json.JSONDecodeError as error:
        reason = f"the body is not JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        raise ProblemError(400, reason, line=error.lineno, column=error.colno, position=error.pos) from None
    except (RecursionError, ValueError):
        raise ProblemError(400, "the body is not JSON that can be read: too deep, or a number too long") from None


def _refuse(name: str) -> NoReturn:
    raise ProblemError(400, f"the body is not JSON: {name} is not a JSON number")


def object_of(body: bytes, known: tuple[str, ...]) -> dict[str, Any]:
    """Return a JSON object with no other members than the known ones."""
    document = json_of(body)
    if not isinstance(document, dict):
        raise ProblemError(400, "the body must be a JSON object")
    for name in document:
        if name not in known:
            raise ProblemError(400, f"unknown member {name[:60]!r}", path=name[:60], hint=f"known: {', '.join(known)}")
    return document


def events_of(request: Request, body: bytes) -> list[Any]:
    """Return the events of a request: JSON texts, or parsed objects."""
    kind = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if f"{_PREFIX}specversion" in request.headers:
        return [_binary(request, kind, body)]
    if kind == CLOUDEVENT:
        _check_cloudevent(json_of(body))
        return [body]
    if kind == CLOUDEVENTS:
        return [_check_cloudevent(each, position) for position, each in enumerate(_array(body))]
    if kind in LINES:
        return [line for line in body.removeprefix(b"\xef\xbb\xbf").split(b"\n") if line.strip()]
    if kind == JSON:
        return _array(body) if body.lstrip()[:1] == b"[" else [body]
    raise ProblemError(
        415,
        f"events cannot be read from {kind[:60]!r}",
        hint=f"one of {', '.join((JSON, LINES[0], CLOUDEVENT, CLOUDEVENTS))}",
    )


def matches_of(body: bytes) -> list[tuple[int, list[Any]]]:
    """Return the matches of a cluster: a line `{"event": 417, "subscriptions": ["ann", "bob"]}` for each event."""
    matches = []
    for line in body.split(b"\n"):
        if line.strip():
            document = object_of(line, ("event", "subscriptions"))
            event, ids = document.get("event"), document.get("subscriptions")
            if type(event) is not int or not 0 <= event < 2**63 or not isinstance(ids, list):
                raise ProblemError(422, 'a match must be {"event": number, "subscriptions": [ids]}')
            if not all(type(id) in (int, str) for id in ids):
                raise ProblemError(422, "an id is an integer or a text", path="subscriptions")
            matches.append((event, ids))
    return matches


def _array(body: bytes) -> list[Any]:
    document = json_of(body)
    if not isinstance(document, list):
        raise ProblemError(400, "the body must be a JSON array")
    return document


def _check_cloudevent(event: Any, position: int | None = None) -> Any:
    where = "" if position is None else f"event {position}: "
    if not isinstance(event, dict):
        raise EventError(f"{where}a CloudEvent must be a JSON object")
    for name in _REQUIRED:
        if not isinstance(event.get(name), str) or not event[name]:
            raise EventError(f"{where}the attribute {name!r} of a CloudEvent is missing or no text")
    if event["specversion"] != "1.0":
        raise EventError(f"{where}CloudEvents of version 1.0 are understood, not {event['specversion'][:20]!r}")
    return event


def _binary(request: Request, kind: str, body: bytes) -> Any:
    """Put the headers and the body of a CloudEvent together."""
    event: dict[str, Any] = {
        name.removeprefix(_PREFIX): unquote(value)
        for name, value in request.headers.items()
        if name.startswith(_PREFIX)
    }
    if not body:
        return _check_cloudevent(event)
    event["datacontenttype"] = request.headers.get("content-type", JSON)
    if kind == JSON or kind.endswith("+json"):
        event["data"] = json_of(body)
    else:
        try:
            event["data"] = body.decode()
        except UnicodeDecodeError:
            event["data_base64"] = base64.b64encode(body).decode()
    return _check_cloudevent(event)
