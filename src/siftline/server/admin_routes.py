"""The routes for operation: the console, health, metrics, dead letters."""

from __future__ import annotations

import secrets
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import HTMLResponse, PlainTextResponse, Response

from siftline.broker.keys import ADMIN
from siftline.broker.notifications import LAST_PLACE, START, Everybody, Position
from siftline.server.access import is_local
from siftline.server.metrics import Metrics
from siftline.server.openapi import DOCUMENT
from siftline.server.parts import number_of, time_text
from siftline.server.problems import JsonResponse, ProblemError, Rendered
from siftline.server.streams import position_of
from siftline.server.subscription_routes import MOST_LISTED
from siftline.storage.rows import moment_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from siftline.broker.letters import DeadLetter
    from siftline.server.shared import Shared

_MOST_RECENT: Final = 100
_POLICY: Final = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class AdminRoutes:
    """Handlers of the routes for operation."""

    def __init__(self, shared: Shared) -> None:
        self._shared, self._broker, self._access = shared, shared.broker, shared.access
        self._metrics = Metrics(shared.broker)
        self._page = resources.files("siftline.server").joinpath("console.html").read_text(encoding="utf-8")
        self._document = JsonResponse.written(DOCUMENT)

    async def healthz(self, request: Request) -> Response:
        """`GET /healthz`: the process is alive."""
        return JsonResponse({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        """`GET /readyz`: the server accepts requests, and the store and the log can be written."""
        if not self._shared.is_ready:
            raise ProblemError(503, "the server is about to stop")
        problems = await self._shared.threads.wait(self._broker.problems)
        if problems:
            raise ProblemError(503, "; ".join(problems), retry_seconds=5)
        sequence = await self._shared.threads.wait(lambda: self._broker.store.sequence)
        return JsonResponse({"status": "ok", "change": sequence})

    async def metrics(self, request: Request) -> Response:
        """`GET /metrics`."""
        self._access.require(request, ADMIN)
        text = await self._shared.threads.wait(self._metrics.text)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def stats(self, request: Request) -> Response:
        """`GET /stats`: the metrics as JSON for the console, with the structure of the index on request."""
        self._access.require(request, ADMIN)
        return await self._shared.answer(self._stats, has_structure="structure" in request.query_params)

    def _stats(self, *, has_structure: bool) -> dict[str, Any]:
        stats = self._metrics.stats()
        return stats | {"structure": self._broker.engine.describe()} if has_structure else stats

    async def recent(self, request: Request) -> Response:
        """`GET /recent`: a few of the newest notifications, at a cost that does not depend on their number."""
        self._access.require(request, ADMIN)
        limit = number_of(request, "limit", 20, _MOST_RECENT)
        body = await self._shared.threads.wait(self._newest, position_of(request) or START, limit)
        return Response(body, media_type="application/json")

    def _newest(self, after: Position, limit: int) -> bytes:
        log = self._broker.log
        last = log.last
        found = log.page(Everybody(), max(after, Position(max(last - limit, 0), LAST_PLACE)), limit)
        envelopes = b",".join(each.envelope() for each in found)
        return b'{"position":"%b","notifications":[%b]}' % (str(Position(last, LAST_PLACE)).encode(), envelopes)

    async def dead_letters(self, request: Request) -> Response:
        """`GET /dead-letters`."""
        self._access.require(request, ADMIN)
        limit = number_of(request, "limit", 100, MOST_LISTED)
        return JsonResponse(await self._shared.threads.wait(lambda: self._letters(limit)))

    def _letters(self, limit: int) -> Rendered:
        letters = map(_letter, self._broker.log.deliveries.dead_letters(limit))
        return Rendered(b'{"dead_letters":[%b]}' % b",".join(letters))

    async def openapi(self, request: Request) -> Response:
        """`GET /openapi.json`."""
        return JsonResponse(self._document)

    async def console(self, request: Request) -> Response:
        """`GET /`: the console; it asks for an admin key, or is only served locally if there is none."""
        if not self._broker.keys.has_role(ADMIN) and not is_local(request):
            self._access.require(request, ADMIN)
        nonce = secrets.token_urlsafe(16)
        headers = {
            "Content-Security-Policy": _POLICY.format(nonce=nonce),
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        return HTMLResponse(self._page.replace("{{nonce}}", nonce), headers=headers)


def _letter(letter: DeadLetter) -> bytes:
    """Return a dead letter as JSON, with the event byte for byte."""
    shown = {
        "subscription": letter.subscription,
        "notification": letter.notification,
        "at": time_text(moment_of(letter.at)),
        "attempts": letter.attempts,
        "reason": letter.reason,
    }
    return b'%b,"event":%b}' % (JsonResponse.written(shown)[:-1], letter.payload)
