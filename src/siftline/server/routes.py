"""What each route does: take the request apart, ask the broker, put the answer together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from importlib import resources
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from siftline.broker.keys import ADMIN, PUBLISH, SUBSCRIBE
from siftline.broker.leases import Webhook
from siftline.broker.notifications import START, Everybody, Position
from siftline.broker.snapshots import READER
from siftline.errors import SiftlineError
from siftline.server.access import bearer, is_local
from siftline.server.bodies import body_of, events_of, json_of, matches_of, object_of
from siftline.server.open_streams import OpenStreams, Right
from siftline.server.openapi import DOCUMENT
from siftline.server.problems import JsonResponse, ProblemError, problem_of
from siftline.server.streams import EventStream, position_of, send_over, token_of
from siftline.storage.rows import microseconds, moment_of
from siftline.storage.written import CLOUDEVENTS, EVENTBRIDGE, TEXT, Written

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.requests import Request
    from starlette.websockets import WebSocket

    from siftline.broker.broker import Broker
    from siftline.broker.keys import Key
    from siftline.broker.leases import Proof
    from siftline.server.access import Access
    from siftline.server.metrics import Metrics
    from siftline.server.rates import Rate
    from siftline.server.streams import Stream
    from siftline.storage.rows import Change, StoredSubscription

# How an expression may be given, and what dialect it is in unless the request says so.
_FORMS: Final = {"expression": TEXT, "pattern": EVENTBRIDGE, "filters": CLOUDEVENTS}
_CLOSED: Final = 4000  # a WebSocket is refused with this number and the status
_MOST_LISTED: Final = 1000
_MOST_PUBLISHED: Final = 10_000
_POLICY: Final = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Routes:
    """The routes of one broker."""

    def __init__(self, broker: Broker, access: Access, metrics: Metrics, publishes: Rate, subscribes: Rate) -> None:
        self._broker, self._access, self._metrics = broker, access, metrics
        self._publishes, self._subscribes = publishes, subscribes
        self._streams = OpenStreams(broker)
        self.is_ready = True

    # subscriptions

    async def subscribe(self, request: Request) -> Response:
        """`POST /subscriptions`."""
        key = self._access.require(request, SUBSCRIBE)
        self._subscribes.take(_client(request, key))
        document = object_of(
            await body_of(request, self._broker.limits),
            (*_FORMS, "dialect", "validity", "deliver", "owner", "weight"),
        )
        expression, dialect = _expression(document)
        owner = self._owner(request, key, document.get("owner"))
        lease = await run_in_threadpool(
            self._broker.subscribe,
            expression,
            document.get("validity", "1d"),
            deliver=_webhook(document.get("deliver")),
            owner=owner,
            dialect=dialect,
            weight=document.get("weight", 1.0),
        )
        answer = {"id": lease.id, "ticket": lease.ticket, "expires": _time(lease.expires)}
        if lease.secret is not None:
            answer["secret"] = lease.secret
        return JsonResponse(answer, 201, {"Location": f"/subscriptions/{lease.id}", "Cache-Control": "no-store"})

    def _owner(self, request: Request, key: Key | None, asked: object) -> str | None:
        if asked is not None and not (isinstance(asked, str) and 0 < len(asked) <= 200):
            raise ProblemError(422, "an owner must be a text of at most 200 characters", path="owner")
        if key is not None and key.role == SUBSCRIBE:
            if asked not in (None, key.owner):
                raise ProblemError(403, "this key is for another owner", path="owner")
            return key.owner
        if asked is not None and key is None:
            self._access.require(request, ADMIN)
        return asked

    async def listed(self, request: Request) -> Response:
        """`GET /subscriptions`."""
        self._access.require(request, ADMIN)
        limit = _number(request, "limit", 50, _MOST_LISTED)
        search = request.query_params.get("search", "")[:1000]
        rows = await run_in_threadpool(self._found, search, request.query_params.get("owner"), limit + 1)
        return JsonResponse({"subscriptions": rows[:limit], "more": len(rows) > limit})

    def _found(self, search: str, owner: str | None, limit: int) -> list[dict[str, Any]]:
        query = (
            "SELECT s.id, s.owner, s.expires, c.dialect, c.text, c.created FROM subscriptions s JOIN changes c USING"
            " (sequence) WHERE (s.expires IS NULL OR s.expires > ?1) AND (?2 = '' OR instr(lower(c.text), lower(?2))"
            " OR CAST(s.id AS TEXT) = ?2) AND (?3 IS NULL OR s.owner = ?3) ORDER BY s.sequence DESC LIMIT ?4"
        )
        now = microseconds(self._broker.now())
        return [
            {
                "id": id,
                "owner": owner,
                "expires": None if expires is None else _time(moment_of(expires)),
                "created": _time(moment_of(created)),
                "dialect": dialect,
                "expression": text.decode("utf-8", "replace") if isinstance(text, bytes) else text,
            }
            for id, owner, expires, dialect, text, created in self._broker.store.select(
                query, (now, _plain(search), None if owner is None else _plain(owner), limit)
            )
        ]

    async def get(self, request: Request) -> Response:
        """`GET /subscriptions/{id}`."""
        proof = self._access.proof(request)
        found = await run_in_threadpool(self._broker.get, self._id(request), proof)
        return JsonResponse(_shown(found))

    async def replace(self, request: Request) -> Response:
        """`PUT /subscriptions/{id}`."""
        proof = self._access.proof(request)
        document = object_of(await body_of(request, self._broker.limits), (*_FORMS, "dialect"))
        expression, dialect = _expression(document)
        id = self._id(request)
        replaced = await run_in_threadpool(self._broker.replace, id, proof, expression, dialect=dialect)
        return JsonResponse(_shown(replaced))

    async def renew(self, request: Request) -> Response:
        """`POST /subscriptions/{id}/renew`."""
        proof = self._access.proof(request)
        body = await body_of(request, self._broker.limits)
        document = object_of(body, ("validity",)) if body.strip() else {}
        id = self._id(request)
        expires = await run_in_threadpool(self._broker.renew, id, proof, document.get("validity", "1d"))
        return JsonResponse({"id": id, "expires": _time(expires)})

    async def unsubscribe(self, request: Request) -> Response:
        """`DELETE /subscriptions/{id}`."""
        proof = self._access.proof(request)
        await run_in_threadpool(self._broker.unsubscribe, self._id(request), proof)
        return Response(status_code=204)

    async def notifications(self, request: Request) -> Response:
        """`GET /subscriptions/{id}/notifications`."""
        proof = self._access.proof(request)
        id, after = self._id(request), position_of(request) or START
        limit = _number(request, "limit", 100, _MOST_LISTED)
        found = await run_in_threadpool(self._broker.notifications, id, proof, after, limit)
        gap = b"null" if found.gap is None else json.dumps(found.gap.document).encode()
        body = b'{"gap":%b,"notifications":[%b]}' % (gap, b",".join(each.envelope() for each in found))
        return Response(body, media_type="application/json")

    def _id(self, request: Request | WebSocket) -> int | str:
        return self._broker.id_of(_plain(request.path_params["id"]))

    # events

    async def publish(self, request: Request) -> Response:
        """`POST /events`."""
        key = self._access.require(request, PUBLISH)
        self._publishes.take(_client(request, key))
        limits = self._broker.limits
        events = events_of(request, await body_of(request, limits))
        answer = self._broker.publish_later(events)
        try:
            async with asyncio.timeout(limits.request_seconds):
                published = await asyncio.wrap_future(answer)
        except TimeoutError:
            raise ProblemError(503, "not acknowledged in time: it may happen yet", retry_seconds=1) from None
        return JsonResponse({"accepted": published.events}, 202)

    # a cluster that matches instead

    async def published(self, request: Request) -> Response:
        """`GET /events`."""
        self._access.require(request, ADMIN)
        cluster = self._broker.cluster
        if cluster is None:
            raise ProblemError(404, "events are not kept here", hint="siftline serve --match-elsewhere keeps them")
        after = _number(request, "after", cluster.first - 1, 10**15, least=0)
        limit = _number(request, "limit", 1000, _MOST_PUBLISHED)
        found = await run_in_threadpool(cluster.read, after, limit)
        events = [
            {"sequence": each.sequence, "at": _time(moment_of(each.at)), "event": each.payload.decode()}
            for each in found
        ]
        return JsonResponse({"first": cluster.first, "last": cluster.last, "events": events})

    async def deliver(self, request: Request) -> Response:
        """`POST /matches`."""
        self._access.require(request, ADMIN)
        matches = matches_of(await body_of(request, self._broker.limits))
        delivered = await run_in_threadpool(self._broker.deliver, matches)
        return JsonResponse(delivered._asdict())

    async def changes(self, request: Request) -> Response:
        """`GET /changes`."""
        self._access.require(request, ADMIN)
        after, limit = _number(request, "after", 0, 10**15, least=0), _number(request, "limit", 1000, _MOST_PUBLISHED)
        return JsonResponse(await run_in_threadpool(self._changed, after, limit))

    def _changed(self, after: int, limit: int) -> dict[str, Any]:
        store = self._broker.store
        last, are_ids_text = store.sequence, store.are_ids_text()
        with contextlib.closing(store.changes(after)) as changes:
            found = [_change(change) for change in islice(changes, limit)]
        return {"last": last, "ids": "integer" if are_ids_text is False else "text", "changes": found}

    async def acknowledge(self, request: Request) -> Response:
        """`PUT /readers/{name}`."""
        self._access.require(request, ADMIN)
        document = object_of(await body_of(request, self._broker.limits), ("sequence",))
        sequence, name = document.get("sequence"), _plain(request.path_params["name"])
        if type(sequence) is not int or not 0 <= sequence <= self._broker.store.sequence:
            raise ProblemError(422, "a reader's sequence is the number of a change", path="sequence")
        if name == READER:
            raise ProblemError(403, "this is the name of the broker itself")
        await run_in_threadpool(self._broker.store.acknowledge, name, sequence)
        return Response(status_code=204)

    async def match(self, request: Request) -> Response:
        """`POST /match`."""
        self._access.require(request, ADMIN)
        events = events_of(request, await body_of(request, self._broker.limits))
        if len(events) != 1:
            raise ProblemError(422, "one event, not several, can be tried at a time")
        ids = await run_in_threadpool(self._broker.match, events[0])
        limit = _number(request, "limit", 10_000, 1_000_000)
        return JsonResponse({"matches": len(ids), "subscriptions": ids[:limit]})

    async def explain(self, request: Request) -> Response:
        """`POST /explain`."""
        self._access.require(request, ADMIN)
        body = await body_of(request, self._broker.limits)
        document = object_of(body, (*_FORMS, "dialect", "id", "event"))
        if not isinstance(document.get("event"), dict):
            raise ProblemError(422, "the event must be a JSON object", path="event")
        return JsonResponse(await run_in_threadpool(self._explained, document))

    def _explained(self, document: dict[str, Any]) -> dict[str, Any]:
        from siftline.explanation import explain

        if "id" in document:
            if type(document["id"]) not in (int, str):
                raise ProblemError(422, "an id is an integer or a text", path="id")
            id = self._broker.id_of(_plain(str(document["id"])))
            return explain(self._broker.get(id, None).expression(), document["event"], id).to_dict()
        return explain(Written.of(*_expression(document)).expression(), document["event"]).to_dict()

    # streams

    async def stream(self, request: Request) -> Any:
        """`GET /subscriptions/{id}/stream`, `/owners/{owner}/stream`, `/stream`."""
        opened = await self._opened(request, bearer(request), position_of(request))
        return EventStream(opened)

    async def socket(self, websocket: WebSocket) -> None:
        """Do the same over WebSocket."""
        await websocket.accept()
        try:
            token, after = await token_of(websocket, bearer(websocket), self._broker.limits.header_seconds)
            after = Position.of(str(after)) if after is not None else position_of(websocket)
            opened = await self._opened(websocket, token, after)
        except (ProblemError, SiftlineError) as error:
            problem = error if isinstance(error, ProblemError) else problem_of(error)
            await websocket.close(_CLOSED + problem.status, problem.reason[:100])
            return
        await send_over(websocket, opened)

    async def _opened(self, connection: Request | WebSocket, token: str | None, after: Position | None) -> Stream:
        return await self._streams.open(await self._right(connection, token), after)

    async def _right(self, connection: Request | WebSocket, token: str | None) -> Right:
        broker, access = self._broker, self._access
        if "id" in connection.path_params:
            id, proof = self._id(connection), access.proof_of(connection, token)
            found = await run_in_threadpool(broker.get, id, proof)
            return Right(
                lambda wake: broker.listen(id, wake=wake),
                lambda: _check_same(proof, access.proof_of(connection, token)),
                id,
                found.owner,
            )
        if "owner" in connection.path_params:
            owner = _plain(connection.path_params["owner"])
            access.check_owner(connection, token, owner)
            return Right(
                lambda wake: broker.listen(None, owner=owner, wake=wake),
                lambda: access.check_owner(connection, token, owner),
                owner=owner,
            )
        access.permit(connection, token, ADMIN)
        return Right(
            lambda wake: broker.listen(Everybody(), wake=wake), lambda: access.permit(connection, token, ADMIN)
        )

    # looking in

    async def healthz(self, request: Request) -> Response:
        """`GET /healthz`: the process answers."""
        return JsonResponse({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        """`GET /readyz`: it takes requests, and the store can be read."""
        if not self.is_ready:
            raise ProblemError(503, "the server is about to stop")
        sequence = await run_in_threadpool(lambda: self._broker.store.sequence)
        return JsonResponse({"status": "ok", "change": sequence})

    async def metrics(self, request: Request) -> Response:
        """`GET /metrics`."""
        self._access.require(request, ADMIN)
        text = await run_in_threadpool(self._metrics.text)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def stats(self, request: Request) -> Response:
        """`GET /stats`: the same for the console, and how the index is built."""
        self._access.require(request, ADMIN)
        stats = await run_in_threadpool(self._metrics.stats)
        if "structure" in request.query_params:
            stats["structure"] = await run_in_threadpool(self._broker.engine.describe)
        return JsonResponse(stats)

    async def dead_letters(self, request: Request) -> Response:
        """`GET /dead-letters`."""
        self._access.require(request, ADMIN)
        letters = await run_in_threadpool(
            self._broker.log.deliveries.dead_letters, _number(request, "limit", 100, _MOST_LISTED)
        )
        shown = [
            {
                "subscription": each.subscription,
                "notification": each.notification,
                "at": _time(moment_of(each.at)),
                "attempts": each.attempts,
                "reason": each.reason,
                "event": json_of(each.payload),
            }
            for each in letters
        ]
        return JsonResponse({"dead_letters": shown})

    async def openapi(self, request: Request) -> Response:
        """`GET /openapi.json`."""
        return JsonResponse(DOCUMENT)

    async def console(self, request: Request) -> Response:
        """`GET /`: the page; with keys it asks for one, without it is for this machine alone."""
        if not self._broker.keys.has_role(ADMIN) and not is_local(request):
            self._access.require(request, ADMIN)
        page = resources.files("siftline.server").joinpath("console.html").read_text(encoding="utf-8")
        nonce = secrets.token_urlsafe(16)
        headers = {
            "Content-Security-Policy": _POLICY.format(nonce=nonce),
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        return HTMLResponse(page.replace("{{nonce}}", nonce), headers=headers)


def _check_same(before: Proof, now: Proof) -> None:
    """Raise if a token proves something else than before: it is taken for a ticket when its key was revoked."""
    if before != now:
        raise ProblemError(401, "the key is not known")


def _client(request: Request, key: Key | None) -> str:
    """Return whom a rate limit is for."""
    if key is not None:
        return key.id
    return "" if request.client is None else request.client.host


def _expression(document: dict[str, Any]) -> tuple[Any, str]:
    given = [name for name in _FORMS if name in document]
    if len(given) != 1:
        raise ProblemError(422, f"exactly one of {', '.join(_FORMS)} is needed")
    name = given[0]
    dialect = document.get("dialect", _FORMS[name])
    if not isinstance(dialect, str):
        raise ProblemError(422, "the dialect must be a text", path="dialect")
    expression = document[name]
    wanted = str if dialect == TEXT else (str, dict, list)
    if not isinstance(expression, wanted):
        raise ProblemError(422, f"the {name} has the wrong type", path=name)
    return expression, dialect


def _webhook(deliver: Any) -> Webhook | None:
    if deliver is None:
        return None
    if not isinstance(deliver, dict) or not deliver.keys() <= {"webhook", "secret"} or "webhook" not in deliver:
        raise ProblemError(422, 'deliver must be {"webhook": URL, "secret": optional}', path="deliver")
    secret = deliver.get("secret")
    if secret is not None and not isinstance(secret, str):
        raise ProblemError(422, "a secret must be a text", path="deliver.secret")
    return Webhook(deliver["webhook"], secret)


def _number(request: Request, name: str, default: int, most: int, least: int = 1) -> int:
    text = request.query_params.get(name, str(default))
    if not text.isdecimal() or not text.isascii() or len(text) > 18 or not least <= int(text) <= most:
        raise ProblemError(422, f"{name} must be a number from {least} to {most:,}", path=name)
    return int(text)


def _plain(text: str) -> str:
    """Return text that SQLite takes."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def _time(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _change(change: Change) -> dict[str, Any]:
    shown = {"sequence": change.sequence, "change": change.kind, "id": change.id}
    found = change.subscription
    if found is None:
        return shown
    expires = None if found.expires is None else _time(found.expires)
    return shown | {
        "expression": found.written.text,
        "dialect": found.written.dialect,
        "weight": found.weight,
        "expires": expires,
    }


def _shown(found: StoredSubscription) -> dict[str, Any]:
    return {
        "id": found.id,
        "expression": found.written.text,
        "dialect": found.written.dialect,
        "weight": found.weight,
        "owner": found.owner,
        "created": _time(found.created),
        "expires": None if found.expires is None else _time(found.expires),
    }
