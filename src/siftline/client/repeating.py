"""Decides when a publish is sent again, with the same idempotency key: if there was no answer or the server was busy.

Nothing here sends or waits; the two clients do that, each in its own way.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from siftline.errors import BusyError, ServerError

if TYPE_CHECKING:
    from siftline.client.calls import Call
    from siftline.errors import SiftlineError

_FIRST_SECONDS: Final = 0.25
# A longer `Retry-After` is reported to the caller instead of being waited for.
_MOST_SECONDS: Final = 30.0
# The statuses after which a call is sent again; None is a broken connection, after which the outcome is unknown.
_AGAIN: Final = (None, 408, 429, 502, 503, 504)


class Repeating:
    """Decides when a call is sent again.

    Parameters
    ----------
    call : Call
        The call; without an idempotency key it is not sent again, because it might count twice.
    retries : int
        The largest number of repeats.
    """

    def __init__(self, call: Call[Any], retries: int) -> None:
        self._n_left = retries if call.idempotency is not None else 0
        self._seconds = _FIRST_SECONDS

    def pause(self, error: SiftlineError) -> float:
        """Return how many seconds to wait before the next attempt; raise the error if there is none."""
        if not isinstance(error, (BusyError, ServerError)) or not self._n_left:
            raise error
        asked = error.retry_after or 0.0
        if asked > _MOST_SECONDS or (isinstance(error, ServerError) and error.status not in _AGAIN):
            raise error
        self._n_left -= 1
        seconds, self._seconds = self._seconds * random.uniform(0.5, 1.0), min(self._seconds * 2, _MOST_SECONDS)
        return max(asked, seconds)
