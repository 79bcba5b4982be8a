"""The methods of a broker as HTTP requests: what to send, and how to read the response. Nothing here sends anything."""

from __future__ import annotations

import json
import secrets
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import quote

from siftline.broker.notifications import Delivered
from siftline.broker.raw_json import json_text, raw_members
from siftline.client.answers import (
    changes_of,
    expiry_of,
    lease_of,
    notifications_of,
    published_of,
    subscription_of,
    subscription_page_of,
)
from siftline.errors import EventError, LimitError, SiftlineError, SubscriptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from siftline.broker.leases import Lease, Webhook
    from siftline.broker.notifications import Page
    from siftline.client.answers import Changes, Published, Subscription, SubscriptionPage
    from siftline.ids import Id

Result = TypeVar("Result")

TEXT: Final = "text"
_JSON: Final = "application/json"
_LINES: Final = "application/x-ndjson"
_MOST_MATCHES: Final = 1_000_000


class Call(NamedTuple, Generic[Result]):
    """One request, and how to read its response.

    Attributes
    ----------
    read : callable
        From the JSON document of the response, None if it has none, to the result.
    token : str or None
        The ticket; without one, the key of the client is sent.
    refusal : type
        The error if the server finds the request invalid.
    text : str or None
        The expression, to show the position of an error in it.
    idempotency : str or None
        The key of a publish: sent again with the same key, it counts once.
    parse : callable
        From the text of the response to the argument of `read`.
    """

    method: str
    path: str
    read: Callable[[Any], Result]
    token: str | None = None
    body: bytes | None = None
    media: str = _JSON
    refusal: type[SiftlineError] = SubscriptionError
    text: str | None = None
    idempotency: str | None = None
    parse: Callable[[str], Any] = json.loads

    def headers(self) -> dict[str, str]:
        """Return the headers of the request."""
        headers = {} if self.body is None else {"Content-Type": self.media}
        if self.idempotency is not None:
            headers["Idempotency-Key"] = _quoted(self.idempotency)
        return headers if self.token is None else headers | bearer(self.token)


def bearer(token: str) -> dict[str, str]:
    """Return the header with a ticket or an API key."""
    return {"Authorization": f"Bearer {token}"}


def subscribe(
    expression: Any,
    validity: Any,
    *,
    deliver: Webhook | None,
    owner: str | None,
    dialect: str,
    weight: float,
) -> Call[Lease]:
    """Add a subscription."""
    document = _expression(expression, dialect) | {"validity": _validity(validity), "weight": weight}
    if deliver is not None:
        secret = {} if deliver.secret is None else {"secret": deliver.secret}
        document["deliver"] = {"webhook": deliver.url} | secret
    if owner is not None:
        document["owner"] = owner
    return Call("POST", "/subscriptions", lease_of, body=_document(document), text=_text(document))


def renew(id: Id, ticket: str | None, validity: Any) -> Call[datetime]:
    """Renew a subscription."""
    body = _document({"validity": _validity(validity)})
    return Call("POST", f"{_place(id)}/renew", expiry_of, ticket, body, refusal=LimitError)


def replace(id: Id, ticket: str | None, expression: Any, *, dialect: str) -> Call[None]:
    """Replace the expression of a subscription."""
    document = _expression(expression, dialect)
    return Call("PUT", _place(id), _nothing, ticket, _document(document), text=_text(document))


def unsubscribe(id: Id, ticket: str | None) -> Call[None]:
    """End a subscription."""
    return Call("DELETE", _place(id), _nothing, ticket)


def get(id: Id, ticket: str | None) -> Call[Subscription]:
    """Ask for a subscription."""
    return Call("GET", _place(id), subscription_of, ticket)


def publish_many(events: Iterable[Any], idempotency: str | None) -> Call[int]:
    """Publish events together, with a new idempotency key if none is given."""
    call = _events("/events", list(events), lambda document: int(document["accepted"]))
    return call._replace(idempotency=secrets.token_hex(16) if idempotency is None else idempotency)


def match(event: Any) -> Call[list[Id]]:
    """Ask which subscriptions an event matches."""
    return _events(f"/match?limit={_MOST_MATCHES}", [event], lambda document: list(document["subscriptions"]))


def explain(event: Any, expression: Any, *, id: Id | None, dialect: str) -> Call[dict[str, Any]]:
    """Ask why an event matches an expression or a subscription, or does not."""
    asked = {"id": id} if expression is None else _expression(expression, dialect)
    body = b'%b,"event":%b}' % (_document(asked)[:-1], _object(event))
    return Call("POST", "/explain", dict, body=body, text=_text(asked))


def owned(owner: str, after: str | None) -> Call[SubscriptionPage]:
    """Ask for subscriptions of an owner."""
    since = "" if after is None else f"?after={quote(after, safe='')}"
    return Call("GET", f"/owners/{_part(owner)}/subscriptions{since}", subscription_page_of, refusal=LimitError)


def notifications(id: Id, ticket: str | None, after: str | None, limit: int) -> Call[Page]:
    """Ask for the notifications of a subscription."""
    since = "" if after is None else f"&after={quote(after, safe='')}"
    path = f"{_place(id)}/notifications?limit={limit}{since}"
    return Call("GET", path, notifications_of, ticket, refusal=LimitError, parse=raw_members)


def published(after: int | None, limit: int) -> Call[Published]:
    """Ask for events that wait for a cluster."""
    since = "" if after is None else f"&after={after}"
    return Call("GET", f"/events?limit={limit}{since}", published_of, refusal=LimitError)


def changes(after: int, limit: int) -> Call[Changes]:
    """Ask for changes of subscriptions."""
    return Call("GET", f"/changes?after={after}&limit={limit}", changes_of, refusal=LimitError)


def acknowledge(reader: str, sequence: int) -> Call[None]:
    """Acknowledge the changes that a reader has."""
    body = _document({"sequence": sequence})
    return Call("PUT", f"/readers/{_part(reader)}", _nothing, body=body, refusal=LimitError)


def deliver(matches: Iterable[tuple[int, list[Id]]]) -> Call[Delivered]:
    """Send matches that a cluster has found."""
    lines = b"\n".join(_document({"event": event, "subscriptions": ids}) for event, ids in matches)
    return Call("POST", "/matches", _delivered, body=lines, media=_LINES, refusal=LimitError)


def _delivered(document: dict[str, Any]) -> Delivered:
    return Delivered(**document)


def stream_path(id: Id | None, owner: str | None) -> str:
    """Return the path of the stream of a subscription, of an owner, or of all subscriptions."""
    if id is not None:
        return f"{_place(id)}/stream"
    return "/stream" if owner is None else f"/owners/{_part(owner)}/stream"


def _place(id: Id) -> str:
    return f"/subscriptions/{_part(str(id))}"


def _part(text: str) -> str:
    """Return a part of a path, percent-encoded; `.` and `..` have a meaning in paths."""
    return text.replace(".", "%2E") if text in (".", "..") else quote(text, safe="", errors="surrogatepass")


def _quoted(text: str) -> str:
    """Return a text as a string of RFC 9651, the form of the header `Idempotency-Key`."""
    if not (text.isascii() and text.isprintable()):
        raise LimitError("an idempotency key is a text of printable ASCII characters")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _nothing(document: Any) -> None:
    return None


def _document(document: dict[str, Any]) -> bytes:
    try:
        return json.dumps(document, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise SubscriptionError(f"it cannot be written as JSON: {error}") from None


def _expression(expression: Any, dialect: str) -> dict[str, Any]:
    from siftline.language.printer import to_text
    from siftline.model import Expression

    written = to_text(expression) if isinstance(expression, Expression) else expression
    return {"expression": written, "dialect": dialect}


def _text(document: dict[str, Any]) -> str | None:
    expression = document.get("expression")
    return expression if isinstance(expression, str) and document["dialect"] == TEXT else None


def _validity(validity: Any) -> Any:
    return validity.total_seconds() if isinstance(validity, timedelta) else validity


def _events(path: str, events: list[Any], read: Callable[[Any], Result]) -> Call[Result]:
    lines = b"\n".join(map(_line, events))
    return Call("POST", path, read, body=lines, media=_LINES, refusal=EventError)


def _object(event: Any) -> bytes:
    """Return an event as a JSON object that can be put into another one, as it was written."""
    line = _line(event).removeprefix(b"\xef\xbb\xbf")
    try:
        raw_members(line.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise EventError(f"not a JSON object: {error}") from None
    return line


def _line(event: Any) -> bytes:
    """Return an event as JSON on one line; line feeds can only be between tokens."""
    if isinstance(event, str):
        event = event.encode("utf-8", "surrogatepass")
    if not isinstance(event, (bytes, bytearray, memoryview)):
        return json_text(event)
    line = bytes(event).replace(b"\n", b" ")
    if not line.strip():
        raise EventError("not a JSON object: it is empty")
    return line
