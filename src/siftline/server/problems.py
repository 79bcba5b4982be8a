"""Errors as JSON responses: the status, the reason, and, if they are known, the place and a hint.

{"error": {"status": 422, "kind": "SubscriptionError", "reason": "expected an operator after 'price', found 'betwen'",
           "line": 1, "column": 7, "position": 6, "hint": "did you mean 'between'?"}}
"""

from __future__ import annotations

import json
import logging
import math
from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from siftline.errors import (
    BusyError,
    DuplicateIdError,
    EventError,
    GoneError,
    IdempotencyError,
    LimitError,
    SiftlineError,
    StorageError,
    SubscriptionError,
    TooLargeError,
    UnknownIdError,
    WrongTicketError,
)

if TYPE_CHECKING:
    from starlette.requests import Request

# The first class that fits decides; any other error is a bug, and has status 500.
_STATUSES: Final[tuple[tuple[type[SiftlineError], int], ...]] = (
    (SubscriptionError, 422),
    (EventError, 422),
    (IdempotencyError, 422),
    (LimitError, 422),
    (WrongTicketError, 403),
    (UnknownIdError, 404),
    (DuplicateIdError, 409),
    (GoneError, 410),
    (BusyError, 503),
    (TooLargeError, 503),
    (StorageError, 503),
)
_LOG: Final = logging.getLogger("uvicorn.error")
_BUG: Final = "this is a bug of the server; its log says more"
_UNUSABLE: Final = "a file of the server cannot be read or written"


class Rendered(bytes):
    """A JSON text, which needs no rendering."""


class JsonResponse(JSONResponse):
    """JSON in ASCII, the only form in which a string may contain half of a surrogate pair."""

    def render(self, content: Any) -> bytes:
        """Return the body of the response."""
        return content if isinstance(content, Rendered) else self.written(content)

    @staticmethod
    def written(content: Any) -> Rendered:
        """Return the JSON text of a document, from which a response can be made without further work."""
        return Rendered(json.dumps(content, allow_nan=False, separators=(",", ":")).encode())


class ProblemError(Exception):
    """A request that is refused; becomes the response."""

    def __init__(self, status: int, reason: str, *, retry_seconds: float | None = None, **more: Any) -> None:
        super().__init__(reason)
        self.status, self.reason, self.more = status, reason, more
        self.headers: dict[str, str] = {}
        if retry_seconds is not None:
            self.headers["Retry-After"] = str(max(1, math.ceil(retry_seconds)))
        if status == 401:
            self.headers["WWW-Authenticate"] = "Bearer"

    def response(self) -> JsonResponse:
        """Return the problem as a response."""
        document = {"status": self.status, "reason": self.reason}
        document |= {name: value for name, value in self.more.items() if value is not None}
        return JsonResponse({"error": document}, self.status, self.headers)


def problem_of(error: SiftlineError) -> ProblemError:
    """Return an error of the library as a problem."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    kind = type(error).__name__
    if isinstance(error, SubscriptionError):
        return ProblemError(
            status,
            error.reason,
            kind=kind,
            line=error.line,
            column=error.column,
            position=error.position,
            path=error.path or None,
            hint=error.hint,
        )
    if isinstance(error, GoneError):
        return ProblemError(status, error.public or "gone", kind=kind, first=error.first, last=error.last)
    if isinstance(error, StorageError):  # its text may have paths, which clients must not see
        reason = _UNUSABLE if error.public is None else f"{_UNUSABLE}: {error.public}"
        return ProblemError(status, reason, kind=kind)
    if status == 500:
        return ProblemError(status, _BUG, kind=kind)
    retry_seconds = (error.retry_after or 1) if isinstance(error, BusyError) else None
    return ProblemError(status, str(error), kind=kind, retry_seconds=retry_seconds)


def on_problem(request: Request, error: Exception) -> JsonResponse:
    """Answer with a problem."""
    assert isinstance(error, ProblemError)
    return error.response()


def on_error(request: Request, error: Exception) -> JsonResponse:
    """Answer with an error of the library."""
    assert isinstance(error, SiftlineError)
    problem = problem_of(error)
    if problem.status == 500:
        _LOG.error("a request failed", exc_info=error)
    return problem.response()


def on_http(request: Request, error: Exception) -> JsonResponse:
    """Answer with an error of the framework: an unknown path or method."""
    assert isinstance(error, HTTPException)
    response = ProblemError(error.status_code, error.detail.lower()).response()
    response.headers.update(error.headers or {})
    return response


def on_bug(request: Request, error: Exception) -> JsonResponse:
    """Answer after a bug; the traceback is only in the log."""
    return ProblemError(500, _BUG).response()
