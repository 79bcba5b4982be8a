"""The routes of events: publishing, trying out matches, and the interface of a cluster."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from siftline.broker.keys import ADMIN, PUBLISH
from siftline.broker.snapshots import READER
from siftline.server.bodies import SMALL_BYTES, matches_of, object_of
from siftline.server.events import events_of, idempotency_key
from siftline.server.parts import client_name, first_rows, number_of, path_part, time_text
from siftline.server.problems import JsonResponse, ProblemError
from siftline.server.subscription_routes import FORMS, expression_in
from siftline.storage.rows import moment_of
from siftline.storage.written import Written

if TYPE_CHECKING:
    from concurrent.futures import Future

    from starlette.datastructures import Headers
    from starlette.requests import Request

    from siftline.broker.keys import Key
    from siftline.broker.publisher import Published
    from siftline.server.bodies import Body
    from siftline.server.shared import Shared
    from siftline.storage.rows import Change

_MOST_PUBLISHED: Final = 10_000
_MOST_MATCHES: Final = 1_000_000
# Larger bodies are split by the few threads that compute.
_LARGE_BYTES: Final = 64 << 10


class EventRoutes:
    """Handlers of publish, match, explain, and of the routes for a cluster."""

    def __init__(self, shared: Shared) -> None:
        self._shared, self._broker, self._access = shared, shared.broker, shared.access

    async def publish(self, request: Request) -> Response:
        """`POST /events`."""
        key = self._access.require(request, PUBLISH)
        self._shared.publishes.take(client_name(request, key))
        scope = self._scope(request, key)
        seconds, threads = self._shared.limits.request_seconds, self._shared.threads
        async with self._shared.bodies.of(request) as body:
            run = threads.compute if len(body) > _LARGE_BYTES else threads.wait
            answer = await run(self._submitted, request.headers, body, scope)
            try:
                async with asyncio.timeout(seconds):
                    published = await asyncio.wrap_future(answer)
            except TimeoutError:
                raise ProblemError(
                    503, "not acknowledged in time: the events may still be published", retry_seconds=1
                ) from None
        return JsonResponse({"accepted": published.events}, 202)

    def _scope(self, request: Request, key: Key | None) -> str:
        """Return the scope of idempotency keys, so that those of different clients are independent."""
        if key is not None:
            return key.id
        return f"anonymous:{client_name(request, None)}" if self._access.is_open(PUBLISH) else ""

    def _submitted(self, headers: Headers, body: Body, scope: str) -> Future[Published]:
        events, names = events_of(headers, body, self._shared.limits)
        return self._broker.publish_later(events, idempotency=idempotency_key(headers), scope=scope, names=names)

    async def match(self, request: Request) -> Response:
        """`POST /match`."""
        self._access.require(request, ADMIN)
        limit = number_of(request, "limit", 10_000, _MOST_MATCHES)
        async with self._shared.bodies.of(request) as body:
            return JsonResponse(await self._shared.threads.wait(self._matched, request.headers, body, limit))

    def _matched(self, headers: Headers, body: Body, limit: int) -> bytes:
        events, _ = events_of(headers, body, self._shared.limits)
        if len(events) != 1:
            raise ProblemError(422, "only one event can be matched at a time")
        ids = self._broker.match(events[0])
        return JsonResponse.written({"matches": len(ids), "subscriptions": ids[:limit]})

    async def explain(self, request: Request) -> Response:
        """`POST /explain`."""
        self._access.require(request, ADMIN)
        async with self._shared.bodies.of(request, self._shared.bodies.explained_bytes) as body:
            return JsonResponse(await self._shared.threads.compute(self._explained, body))

    def _explained(self, body: Body) -> bytes:
        from siftline.engine.explanation import explain
        from siftline.model import instant_of

        document = object_of(body, (*FORMS, "dialect", "id", "event"))
        event, now = document.get("event"), instant_of(self._broker.now())
        if not isinstance(event, dict):
            raise ProblemError(422, "the event must be a JSON object", path="event")
        if "id" not in document:
            expression = Written.of(*expression_in(document, self._shared.limits)).expression()
            return JsonResponse.written(explain(expression, event, now=now).to_dict())
        if type(document["id"]) not in (int, str):
            raise ProblemError(422, "an id is an integer or a text", path="id")
        id = self._broker.id_of(str(document["id"]))
        expression = self._broker.get(id, None).expression()
        return JsonResponse.written(explain(expression, event, id, now=now).to_dict())

    # for a cluster that matches instead of the broker

    async def published(self, request: Request) -> Response:
        """`GET /events`."""
        self._access.require(request, ADMIN)
        if self._broker.cluster is None:
            raise ProblemError(
                404, "this server keeps no events for a cluster", hint="siftline serve --match-elsewhere keeps them"
            )
        after = number_of(request, "after", 0, 10**15, least=0) if "after" in request.query_params else None
        return await self._shared.answer(self._kept, after, number_of(request, "limit", 1000, _MOST_PUBLISHED))

    def _kept(self, after: int | None, limit: int) -> dict[str, Any]:
        cluster = self._broker.cluster
        assert cluster is not None
        found = cluster.read(cluster.first - 1 if after is None else after, limit)
        events = (
            {"sequence": each.sequence, "at": time_text(moment_of(each.at)), "event": each.payload.decode()}
            for each in found
        )
        return {"first": cluster.first, "last": cluster.last, "events": list(first_rows(events, "event"))}

    async def deliver(self, request: Request) -> Response:
        """`POST /matches`."""
        self._access.require(request, ADMIN)
        async with self._shared.bodies.of(request) as body:
            matches = await self._shared.threads.compute(matches_of, body)
            return await self._shared.answer(lambda: self._broker.deliver(matches)._asdict())

    async def changes(self, request: Request) -> Response:
        """`GET /changes`."""
        self._access.require(request, ADMIN)
        after, limit = (
            number_of(request, "after", 0, 10**15, least=0),
            number_of(request, "limit", 1000, _MOST_PUBLISHED),
        )
        return await self._shared.answer(self._changed, after, limit)

    def _changed(self, after: int, limit: int) -> dict[str, Any]:
        store = self._broker.store
        last, are_ids_text = store.sequence, store.are_ids_text()
        with contextlib.closing(store.changes(after)) as changes:
            found = list(first_rows((_change(change) for change in islice(changes, limit)), "expression"))
        return {"last": last, "ids": "integer" if are_ids_text is False else "text", "changes": found}

    async def acknowledge(self, request: Request) -> Response:
        """`PUT /readers/{name}`."""
        self._access.require(request, ADMIN)
        async with self._shared.bodies.of(request, SMALL_BYTES) as body:
            document = object_of(body, ("sequence",))
        await self._shared.threads.wait(self._acknowledged, path_part(request, "name"), document.get("sequence"))
        return Response(status_code=204)

    def _acknowledged(self, name: str, sequence: Any) -> None:
        if type(sequence) is not int or not 0 <= sequence <= self._broker.store.sequence:
            raise ProblemError(422, "a reader's sequence is the number of a change", path="sequence")
        if name == READER:
            raise ProblemError(403, "this is the name of the broker itself")
        self._broker.store.acknowledge(name, sequence)


def _change(change: Change) -> dict[str, Any]:
    shown = {"sequence": change.sequence, "change": change.kind, "id": change.id}
    found = change.subscription
    if found is None:
        return shown
    expires = None if found.expires is None else time_text(found.expires)
    return shown | {
        "expression": found.written.text,
        "dialect": found.written.dialect,
        "weight": found.weight,
        "expires": expires,
    }
