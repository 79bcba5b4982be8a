"""The application, and the table of its routes.

Ids and owners may contain any character, even slashes. So routes are matched against the path as it was sent, with each
part in a canonical percent-encoded form: `%2F` does not separate parts, and `%73tats` is `stats`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_to_bytes

from starlette.applications import Starlette
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route, WebSocketRoute

from siftline.errors import SiftlineError
from siftline.server.access import Access
from siftline.server.admin_routes import AdminRoutes
from siftline.server.event_routes import EventRoutes
from siftline.server.problems import ProblemError, on_bug, on_error, on_http, on_problem
from siftline.server.shared import Shared
from siftline.server.stream_routes import StreamRoutes
from siftline.server.subscription_routes import SubscriptionRoutes

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Receive, Scope, Send

    from siftline.broker.broker import Broker


def application(broker: Broker, *, is_open: Collection[str] = ()) -> Starlette:
    """Return the ASGI application of a broker.

    Parameters
    ----------
    broker : Broker
        The broker, which the caller closes.
    is_open : collection of str
        The roles, of `publish` and `subscribe`, that need no key for requests from anywhere.
    """
    shared = Shared(broker, Access(broker, is_open))
    app = Starlette(
        routes=_table(shared),
        middleware=[Middleware(SentPaths)],
        exception_handlers={
            ProblemError: on_problem,
            SiftlineError: on_error,
            HTTPException: on_http,
            Exception: on_bug,
        },
    )
    app.router.redirect_slashes = False  # the part after the last slash may be an empty id
    app.state.shared = shared
    return app


class SentPaths:
    """Middleware that sets the path to the one that was sent, in canonical form."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if "raw_path" in scope:
            scope["path"] = "/".join(map(_encoded, scope["raw_path"].split(b"/")))
        await self._app(scope, receive, send)


def _encoded(part: bytes) -> str:
    return quote(unquote_to_bytes(part), safe="")


class _Part(StringConvertor):
    """One part of a path, which may be empty."""

    regex = "[^/]*"


register_url_convertor("part", _Part())


def _table(shared: Shared) -> list[Route | WebSocketRoute]:
    subscriptions, events = SubscriptionRoutes(shared), EventRoutes(shared)
    streams, admin = StreamRoutes(shared), AdminRoutes(shared)
    one, owner = "/subscriptions/{id:part}", "/owners/{owner:part}"
    return [
        Route("/", admin.console),
        Route("/openapi.json", admin.openapi),
        Route("/healthz", admin.healthz),
        Route("/readyz", admin.readyz),
        Route("/metrics", admin.metrics),
        Route("/stats", admin.stats),
        Route("/recent", admin.recent),
        Route("/dead-letters", admin.dead_letters),
        Route("/events", events.publish, methods=["POST"]),
        Route("/events", events.published, methods=["GET"]),
        Route("/matches", events.deliver, methods=["POST"]),
        Route("/changes", events.changes),
        Route("/readers/{name:part}", events.acknowledge, methods=["PUT"]),
        Route("/match", events.match, methods=["POST"]),
        Route("/explain", events.explain, methods=["POST"]),
        Route("/stream", streams.stream),
        WebSocketRoute("/ws", streams.socket),
        Route(f"{owner}/subscriptions", subscriptions.owned),
        Route(f"{owner}/stream", streams.stream),
        WebSocketRoute(f"{owner}/ws", streams.socket),
        Route("/subscriptions", subscriptions.subscribe, methods=["POST"]),
        Route("/subscriptions", subscriptions.listed, methods=["GET"]),
        Route(one, subscriptions.get, methods=["GET"]),
        Route(one, subscriptions.replace, methods=["PUT"]),
        Route(one, subscriptions.unsubscribe, methods=["DELETE"]),
        Route(f"{one}/renew", subscriptions.renew, methods=["POST"]),
        Route(f"{one}/notifications", subscriptions.notifications),
        Route(f"{one}/stream", streams.stream),
        WebSocketRoute(f"{one}/ws", streams.socket),
    ]
