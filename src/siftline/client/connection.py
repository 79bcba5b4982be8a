"""What both clients share: how they are made, and the translation of its errors."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import httpx

from siftline.client.answers import error_of
from siftline.client.calls import bearer
from siftline.errors import ServerError, SiftlineError

if TYPE_CHECKING:
    from siftline.client.calls import Call

Http = TypeVar("Http", httpx.Client, httpx.AsyncClient)
Result = TypeVar("Result")

# How long a stream may be silent; a server sends something every 15 s.
_SILENT_SECONDS: Final = 60.0


class HttpClient(Generic[Http]):
    """The base of both clients; `_http_type` is the client of httpx that they use."""

    _http_type: type[Http]

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: float = 30.0,
        ca: str | None = None,
        certificate: str | None = None,
        certificate_key: str | None = None,
        use_proxies: bool = True,
        retries: int = 3,
    ) -> None:
        verify: ssl.SSLContext | bool = False  # without TLS, because loading the system's certificates takes 30 ms
        if url.lower().startswith("https:"):
            verify = ssl.create_default_context(cafile=ca)
            if certificate is not None:
                verify.load_cert_chain(certificate, certificate_key)
        self._timeout, self._retries = timeout, retries
        self._http: Http = self._http_type(
            base_url=url,
            headers={"User-Agent": "siftline"} | ({} if key is None else bearer(key)),
            verify=verify,
            timeout=timeout,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),  # each stream keeps one
            trust_env=use_proxies,
        )

    def __repr__(self) -> str:
        return f"<siftline.{type(self).__name__}: {self._http.base_url}>"


def stream_timeout(timeout: float) -> httpx.Timeout:
    """Return the timeouts of a stream, which may be silent for longer than a response."""
    return httpx.Timeout(timeout, read=max(timeout, _SILENT_SECONDS))


def result_of(call: Call[Result], response: httpx.Response) -> Result:
    """Return the result of a call; raise the error of the response."""
    if response.status_code // 100 != 2:
        raise refusal_of(response, response.content, call.refusal, call.text)
    try:
        return call.read(call.parse(response.content.decode()) if response.content else None)
    except (ValueError, KeyError, TypeError) as error:
        raise ServerError(f"the response is not one of a broker: {error!r}", response.status_code) from None


def refusal_of(
    response: httpx.Response, body: bytes, refusal: type[SiftlineError], text: str | None = None
) -> SiftlineError:
    """Return the error of a response, with the time after which to try again."""
    seconds = response.headers.get("retry-after", "")
    retry_after = float(seconds) if seconds.isascii() and seconds.isdecimal() and len(seconds) < 9 else None
    return error_of(response.status_code, body, refusal, text, retry_after=retry_after)


def unreachable(error: Exception) -> ServerError:
    """Return the error for an exception of httpx."""
    if isinstance(error, httpx.TimeoutException):
        return ServerError(f"the server did not answer in time ({type(error).__name__})")
    return ServerError(f"no connection to the server: {str(error) or type(error).__name__}")
