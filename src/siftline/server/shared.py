"""What all routes share."""

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
    """Return the name under which replacements of a subscription are limited."""
    return f"id {id}"


class Shared:
    """A broker, who may use it, and the means of doing so.

    Attributes
    ----------
    is_ready : bool
        Whether the server takes requests; not when it is about to stop.
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
        """Forget how often subscriptions were replaced that are there no more: their ids may be given again."""
        for id in ids:
            self.subscribes.forget(replacements_of(id))

    async def answer(self, function: Callable[..., Any], *args: Any, **options: Any) -> Response:
        """Answer with what a function returns; writing it as JSON is work for its thread too."""
        return JsonResponse(await self.threads.wait(lambda: JsonResponse.written(function(*args, **options))))
