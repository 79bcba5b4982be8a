"""The events in the body of a request, by its content type; as texts that are not parsed, as far as possible.

application/json                     one event, or an array of events
application/x-ndjson                 one event per line
application/cloudevents+json         a CloudEvent; the whole of it is the event, with its data under `data`
application/cloudevents-batch+json   an array of CloudEvents
any, with ce-* headers               a CloudEvent in binary mode, which becomes the same object
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from siftline.broker.remembered import event_name
from siftline.encoding.json_array import array_elements
from siftline.errors import EventError, LimitError
from siftline.server.bodies import json_of, line_spans
from siftline.server.problems import ProblemError

if TYPE_CHECKING:
    from starlette.datastructures import Headers

    from siftline.broker.limits import Limits
    from siftline.server.bodies import Body

JSON: Final = "application/json"
CLOUDEVENT: Final = "application/cloudevents+json"
CLOUDEVENTS: Final = "application/cloudevents-batch+json"
LINES: Final = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")

_REQUIRED: Final = ("specversion", "id", "source", "type")
_PREFIX: Final = "ce-"
_MARK: Final = b"\xef\xbb\xbf"
_ARRAY: Final = re.compile(rb"\s*\[")
# A string in quotes, in which \\ precedes quotes and \\; or a token without quotes.
_STRING: Final = re.compile(r'"((?:[^"\\]|\\["\\])*)"|[^"\s]+')
_ESCAPE: Final = re.compile(r'\\(["\\])')


class Events(NamedTuple):
    """The events of a request, as JSON texts or parsed objects; CloudEvents have names, which identify repeats."""

    events: list[Any]
    names: list[str] | None = None


def events_of(headers: Headers, body: Body, limits: Limits) -> Events:
    """Return the events of a request."""
    most = limits.batch_events
    kind = headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if f"{_PREFIX}specversion" in headers:
        _check_size(len(body), limits)
        event = _binary(headers, kind, body)
        return Events([_joined(event, kind, body)], [_name(event)])
    if kind == CLOUDEVENT:
        _check_size(len(body), limits)
        return Events([body], [_name(_checked(body))])
    if kind == CLOUDEVENTS:
        texts = _array(body, most)
        for text in texts:
            _check_size(len(text), limits)
        return Events(list(texts), [_name(_checked(text, position)) for position, text in enumerate(texts)])
    if kind in LINES:
        return Events(_lines(body, limits))
    if kind == JSON:
        if _ARRAY.match(body):
            return Events(list(_array(body, most)))
        _check_size(len(body), limits)
        return Events([body])
    raise ProblemError(
        415,
        f"events cannot be read from {kind[:60]!r}",
        hint=f"one of {', '.join((JSON, LINES[0], CLOUDEVENT, CLOUDEVENTS))}",
    )


def idempotency_key(headers: Headers) -> str | None:
    """Return the idempotency key of a publish: a string of RFC 9651, as in the IETF draft, or a bare token.

    >>> from starlette.datastructures import Headers
    >>> [idempotency_key(Headers({"Idempotency-Key": text})) for text in ('"8e03978e"', "8e03978e")]
    ['8e03978e', '8e03978e']
    """
    given = headers.getlist("idempotency-key")
    if not given:
        return None
    found = _STRING.fullmatch(given[0].strip())
    if len(given) > 1 or not found:
        raise ProblemError(400, "the header Idempotency-Key must be one text, with or without quotes")
    return _ESCAPE.sub(r"\1", found[1]) if found[1] is not None else found[0]


def _check_size(n_bytes: int, limits: Limits) -> None:
    """Raise if an event is too large, before it is parsed."""
    if n_bytes > limits.event_bytes:
        raise LimitError(f"an event of {n_bytes:,} bytes: at most {limits.event_bytes:,} are allowed")


def _lines(body: Body, limits: Limits) -> list[Any]:
    most, found = limits.batch_events, []
    for n, (start, end) in enumerate(line_spans(body, len(_MARK) if body.startswith(_MARK) else 0)):
        _check_size(end - start, limits)
        line = body[start:end]
        if line and not line.isspace():
            found.append(line)
        # Blank lines are bounded as well, because a body may consist of nothing else.
        if len(found) > most or n > 2 * most:
            raise LimitError(f"more than {most:,} events at once")
    return found


def _array(body: Body, most: int) -> list[Body]:
    try:
        return array_elements(body, most)
    except LimitError:
        raise LimitError(f"more than {most:,} events at once") from None
    except EventError as error:
        raise ProblemError(400, f"the body is {error}") from None


def _checked(text: Body, position: int | None = None) -> Any:
    where = "" if position is None else f"event {position}: "
    try:
        return _check_cloudevent(json_of(text), where)
    except ProblemError as problem:
        raise ProblemError(problem.status, f"{where}{problem.reason}", **problem.more) from None


def _check_cloudevent(event: Any, where: str = "") -> Any:
    if not isinstance(event, dict):
        raise EventError(f"{where}a CloudEvent must be a JSON object")
    for name in _REQUIRED:
        if not isinstance(event.get(name), str) or not event[name]:
            raise EventError(f"{where}the attribute {name!r} of a CloudEvent is missing or not a text")
    if event["specversion"] != "1.0":
        raise EventError(f"{where}only CloudEvents of version 1.0 are supported, not {event['specversion'][:20]!r}")
    return event


def _name(event: dict[str, Any]) -> str:
    return event_name(event["source"], event["id"])


def _binary(headers: Headers, kind: str, body: Body) -> Any:
    """Return a CloudEvent in binary mode as one object, without JSON data."""
    event: dict[str, Any] = {
        name.removeprefix(_PREFIX): unquote(value) for name, value in headers.items() if name.startswith(_PREFIX)
    }
    if not body:
        return _check_cloudevent(event)
    event["datacontenttype"] = headers.get("content-type", JSON)
    if not _is_json(kind):
        try:
            event["data"] = body.decode()
        except UnicodeDecodeError:
            event["data_base64"] = base64.b64encode(body).decode()
    return _check_cloudevent(event)


def _joined(event: dict[str, Any], kind: str, body: Body) -> Any:
    """Return a CloudEvent with its JSON data as it was sent, so that numbers keep their form."""
    if not body or not _is_json(kind):
        return event
    json_of(body)
    attributes = json.dumps({name: value for name, value in event.items() if name != "data"}).encode()
    return attributes[:-1] + b',"data":' + body.removeprefix(_MARK) + b"}"


def _is_json(kind: str) -> bool:
    return kind == JSON or kind.endswith("+json")
