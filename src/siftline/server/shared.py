"""The objects that all routes share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from siftline.server.bodies import Bodies
from siftline.server.problems import JsonResponse
from siftline.server.rates import Rate
from siftline.server.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response

    from siftline.broker.broker import Broker
    from siftline.ids import Id
    from siftline.server.access import Access


def replacements_of(id: Id) -> str:
    """Return the client name that limits the rate of replacements of a subscription."""
    return f"id {id}"


class Shared:
    """A broker, its permissions and limits, and the threads that call it.

    Attributes
    ----------
    is_ready : bool
        Whether the server accepts requests; false when it is about to stop.
    """

    def __init__(self, broker: Broker, access: Access) -> None:
        self.broker, self.access, self.limits = broker, access, broker.limits
        self.threads, self.bodies = Threads(), Bodies(broker.limits)
        self.publishes, self.subscribes = (
            Rate(self.limits.publishes_per_second),
            Rate(self.limits.subscribes_per_second),
        )
        broker.end_observers.append(self._ended)
        self.is_ready = True

    def _ended(self, ids: list[Id]) -> None:
        """Forget the rate limits of removed subscriptions, whose ids may be used again."""
        for id in ids:
            self.subscribes.forget(replacements_of(id))

    async def answer(self, function: Callable[..., Any], *args: Any, **options: Any) -> Response:
        """Answer with the result of a function; it is also converted to JSON in the thread."""
        return JsonResponse(await self.threads.wait(lambda: JsonResponse.written(function(*args, **options))))
