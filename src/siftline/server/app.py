"""The application: which path leads to which route."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route, WebSocketRoute

from siftline.errors import SiftlineError
from siftline.server.access import Access
from siftline.server.metrics import Metrics
from siftline.server.problems import ProblemError, on_bug, on_error, on_http, on_problem
from siftline.server.rates import Rate
from siftline.server.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Collection

    from siftline.broker.broker import Broker


def application(broker: Broker, *, is_open: Collection[str] = ()) -> Starlette:
    """Return the ASGI application of a broker.

    Parameters
    ----------
    broker : Broker
        Stays the caller's to close.
    is_open : collection of str
        The roles `publish` and `subscribe`, if they need no key wherever a request comes from.
    """
    limits = broker.limits
    routes = Routes(
        broker,
        Access(broker, is_open),
        Metrics(broker),
        Rate(limits.publishes_per_second),
        Rate(limits.subscribes_per_second),
    )
    app = Starlette(
        routes=_table(routes),
        exception_handlers={
            ProblemError: on_problem,
            SiftlineError: on_error,
            HTTPException: on_http,
            Exception: on_bug,
        },
    )
    app.state.routes = routes
    return app


def _table(routes: Routes) -> list[Route | WebSocketRoute]:
    one = "/subscriptions/{id}"
    return [
        Route("/", routes.console),
        Route("/openapi.json", routes.openapi),
        Route("/healthz", routes.healthz),
        Route("/readyz", routes.readyz),
        Route("/metrics", routes.metrics),
        Route("/stats", routes.stats),
        Route("/dead-letters", routes.dead_letters),
        Route("/events", routes.publish, methods=["POST"]),
        Route("/events", routes.published, methods=["GET"]),
        Route("/matches", routes.deliver, methods=["POST"]),
        Route("/changes", routes.changes),
        Route("/readers/{name}", routes.acknowledge, methods=["PUT"]),
        Route("/match", routes.match, methods=["POST"]),
        Route("/explain", routes.explain, methods=["POST"]),
        Route("/stream", routes.stream),
        WebSocketRoute("/ws", routes.socket),
        Route("/owners/{owner}/stream", routes.stream),
        WebSocketRoute("/owners/{owner}/ws", routes.socket),
        Route("/subscriptions", routes.subscribe, methods=["POST"]),
        Route("/subscriptions", routes.listed, methods=["GET"]),
        Route(one, routes.get, methods=["GET"]),
        Route(one, routes.replace, methods=["PUT"]),
        Route(one, routes.unsubscribe, methods=["DELETE"]),
        Route(f"{one}/renew", routes.renew, methods=["POST"]),
        Route(f"{one}/notifications", routes.notifications),
        Route(f"{one}/stream", routes.stream),
        WebSocketRoute(f"{one}/ws", routes.socket),
    ]
