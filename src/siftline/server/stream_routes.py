"""The routes of streams of a subscription, an owner or everybody, as server-sent events and over WebSocket."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response
from starlette.websockets import WebSocketDisconnect

from siftline.broker.keys import ADMIN
from siftline.broker.notifications import Everybody, Position
from siftline.errors import SiftlineError
from siftline.server.access import bearer
from siftline.server.open_streams import OpenStreams, Right
from siftline.server.parts import path_part
from siftline.server.problems import ProblemError, problem_of
from siftline.server.streams import MEDIA, EventStream, position_of, send_over, token_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.websockets import WebSocket

    from siftline.broker.leases import Proof
    from siftline.server.shared import Shared
    from siftline.server.streams import Stream
    from siftline.storage.rows import StoredSubscription

# A WebSocket is refused with a close code that is this plus the HTTP status.
_CLOSED: Final = 4000
# The longest reason that a close frame may have.
_REASON_BYTES: Final = 123


class StreamRoutes:
    """Handlers of the routes of streams."""

    def __init__(self, shared: Shared) -> None:
        self._shared, self._broker, self._access = shared, shared.broker, shared.access
        self._streams = OpenStreams(shared.broker)

    async def stream(self, request: Request) -> Any:
        """`GET /subscriptions/{id}/stream`, `/owners/{owner}/stream`, `/stream`."""
        token, after = bearer(request), position_of(request)
        if request.method == "HEAD":
            await self._right(request, token)
            return Response(media_type=MEDIA)
        return EventStream(await self._opened(request, token, after))

    async def socket(self, websocket: WebSocket) -> None:
        """Send the same stream over WebSocket."""
        with contextlib.suppress(WebSocketDisconnect):  # a client that has disconnected needs no answer
            await websocket.accept()
            try:
                opened = await self._of_socket(websocket)
            except (ProblemError, SiftlineError) as error:
                problem = error if isinstance(error, ProblemError) else problem_of(error)
                await websocket.close(_CLOSED + problem.status, _short(problem.reason))
                return
            await send_over(websocket, opened)

    async def _of_socket(self, websocket: WebSocket) -> Stream:
        token, after = await token_of(websocket, bearer(websocket), self._shared.limits.header_seconds)
        position = Position.of(str(after)) if after is not None else position_of(websocket)
        return await self._opened(websocket, token, position)

    async def _opened(self, connection: Request | WebSocket, token: str | None, after: Position | None) -> Stream:
        return await self._streams.open(await self._right(connection, token), after)

    async def _right(self, connection: Request | WebSocket, token: str | None) -> Right:
        broker, access = self._broker, self._access
        if "id" in connection.path_params:
            proof = access.proof_of(connection, token)
            found = await self._shared.threads.wait(self._subscription, path_part(connection, "id"), proof)
            return Right(
                lambda wake: broker.listen(found.id, wake=wake),
                lambda: _check_same(proof, access.proof_of(connection, token)),
                found.id,
                found.owner,
            )
        if "owner" in connection.path_params:
            owner = path_part(connection, "owner")
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

    def _subscription(self, text: str, proof: Proof) -> StoredSubscription:
        return self._broker.get(self._broker.id_of(text), proof)


def _short(reason: str) -> str:
    """Return a reason, cut to the length that a close frame may have."""
    return reason.encode("utf-8", "replace")[:_REASON_BYTES].decode("utf-8", "ignore")


def _check_same(before: Proof, now: Proof) -> None:
    """Raise if a token means something else than before: once its key is revoked, it is read as a ticket."""
    if before != now:
        raise ProblemError(401, "the key is unknown")
