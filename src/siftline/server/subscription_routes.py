"""The routes of subscriptions: by ticket, by the key of their owner, or as an admin."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from starlette.responses import Response

from siftline.broker.keys import ADMIN, SUBSCRIBE
from siftline.broker.leases import Webhook
from siftline.broker.notifications import START
from siftline.errors import SubscriptionError
from siftline.server.access import bearer
from siftline.server.bodies import SMALL_BYTES, object_of
from siftline.server.parts import client_name, first_rows, number_of, path_part, shown, time_text
from siftline.server.problems import JsonResponse, ProblemError
from siftline.server.shared import replacements_of
from siftline.server.streams import position_of
from siftline.storage.rows import LIVE, LIVE_COLUMNS, live_change, microseconds
from siftline.storage.written import CLOUDEVENTS, EVENTBRIDGE, TEXT, Written

if TYPE_CHECKING:
    from starlette.requests import Request

    from siftline.broker.keys import Key
    from siftline.broker.leases import Lease, Proof
    from siftline.broker.limits import Limits
    from siftline.broker.notifications import Position
    from siftline.ids import Id
    from siftline.server.bodies import Body
    from siftline.server.shared import Shared

# The members that may hold an expression, and their default dialects.
FORMS: Final = {"expression": TEXT, "pattern": EVENTBRIDGE, "filters": CLOUDEVENTS}
MOST_LISTED: Final = 1000
_OWNER_CHARACTERS: Final = 200
_IS_LIVE: Final = "(s.expires IS NULL OR s.expires > ?1)"
# Yields the newest changes first, without reading all of them.
_NEWEST: Final = (
    "changes r CROSS JOIN subscriptions s ON s.id = r.id AND s.sequence = r.sequence"
    " LEFT JOIN changes c ON c.sequence = r.content"
)


class SubscriptionRoutes:
    """Handlers of the routes of subscriptions."""

    def __init__(self, shared: Shared) -> None:
        self._shared, self._broker, self._access = shared, shared.broker, shared.access

    async def subscribe(self, request: Request) -> Response:
        """`POST /subscriptions`."""
        key = self._access.require(request, SUBSCRIBE)
        self._shared.subscribes.take(client_name(request, key))
        async with self._shared.bodies.of(request, self._shared.bodies.expression_bytes) as body:
            known = (*FORMS, "dialect", "validity", "deliver", "owner", "weight")
            document, written = await self._shared.threads.compute(_read, body, known, self._shared.limits)
            owner = self._owner(request, key, document.get("owner"))
            lease = await self._shared.threads.wait(
                self._broker.subscribe,
                written,
                document.get("validity", "1d"),
                deliver=_webhook(document.get("deliver")),
                owner=owner,
                dialect=written.dialect,
                weight=document.get("weight", 1.0),
            )
        return _leased(lease)

    def _owner(self, request: Request, key: Key | None, asked: object) -> str | None:
        if asked is not None and not (isinstance(asked, str) and 0 < len(asked) <= _OWNER_CHARACTERS):
            raise ProblemError(422, f"an owner must be a text of at most {_OWNER_CHARACTERS} characters", path="owner")
        if key is not None and key.role == SUBSCRIBE:
            if asked not in (None, key.owner):
                raise ProblemError(403, "this key is for another owner", path="owner")
            return key.owner
        if asked is not None and key is None:
            self._access.require(request, ADMIN)
        if asked is None and key is None and self._access.is_open(SUBSCRIBE):
            return f"anonymous:{client_name(request, None)}"  # limited like an owner
        return asked

    async def get(self, request: Request) -> Response:
        """`GET /subscriptions/{id}`."""
        proof, text = self._access.proof(request), path_part(request, "id")
        return await self._shared.answer(lambda: shown(self._broker.get(self._broker.id_of(text), proof)))

    async def replace(self, request: Request) -> Response:
        """`PUT /subscriptions/{id}`."""
        proof, wait = self._access.proof(request), self._shared.threads.wait
        id = await wait(self._checked_id, path_part(request, "id"), proof)
        self._shared.subscribes.take(replacements_of(id))
        async with self._shared.bodies.of(request, self._shared.bodies.expression_bytes) as body:
            known = (*FORMS, "dialect")
            _, written = await self._shared.threads.compute(_read, body, known, self._shared.limits)
            replaced = await wait(self._broker.replace, id, proof, written, dialect=written.dialect)
        return JsonResponse(shown(replaced))

    async def renew(self, request: Request) -> Response:
        """`POST /subscriptions/{id}/renew`."""
        proof, wait = self._access.proof(request), self._shared.threads.wait
        id = await wait(self._checked_id, path_part(request, "id"), proof)
        async with self._shared.bodies.of(request, SMALL_BYTES) as body:
            document = object_of(body, ("validity",)) if body.strip() else {}
        expires = await wait(self._broker.renew, id, proof, document.get("validity", "1d"))
        return JsonResponse({"id": id, "expires": time_text(expires)})

    def _checked_id(self, text: str, proof: Proof) -> Id:
        """Return the id that a text stands for; raise unless the subscription exists and the proof belongs to it."""
        id = self._broker.id_of(text)
        self._broker.check(id, proof)
        return id

    async def unsubscribe(self, request: Request) -> Response:
        """`DELETE /subscriptions/{id}`."""
        proof, text = self._access.proof(request), path_part(request, "id")
        await self._shared.threads.wait(lambda: self._broker.unsubscribe(self._broker.id_of(text), proof))
        return Response(status_code=204)

    async def notifications(self, request: Request) -> Response:
        """`GET /subscriptions/{id}/notifications`."""
        proof, text, after = self._access.proof(request), path_part(request, "id"), position_of(request) or START
        limit = number_of(request, "limit", 100, MOST_LISTED)
        body = await self._shared.threads.wait(self._envelopes, text, proof, after, limit)
        return Response(body, media_type="application/json")

    def _envelopes(self, text: str, proof: Proof, after: Position, limit: int) -> bytes:
        page = self._broker.notifications(self._broker.id_of(text), proof, after, limit)
        gap = b"null" if page.gap is None else json.dumps(page.gap.document).encode()
        return b'{"gap":%b,"notifications":[%b]}' % (gap, b",".join(each.envelope() for each in page))

    # lists

    async def listed(self, request: Request) -> Response:
        """`GET /subscriptions`."""
        self._access.require(request, ADMIN)
        limit = number_of(request, "limit", 50, MOST_LISTED)
        search, owner = request.query_params.get("search", "")[:1000], request.query_params.get("owner")
        return await self._shared.answer(self._found, search, owner, limit)

    def _found(self, search: str, owner: str | None, limit: int) -> dict[str, Any]:
        query = (
            f"SELECT {LIVE_COLUMNS} FROM {_NEWEST if owner is None else LIVE} WHERE {_IS_LIVE}"
            " AND (?2 = '' OR instr(lower(coalesce(c.text, r.text)), lower(?2)) OR CAST(s.id AS TEXT) = ?2)"
            f" AND {'?3 IS NULL' if owner is None else 's.owner = ?3'} ORDER BY r.sequence DESC LIMIT ?4"
        )
        found, is_more = self._rows(query, (_plain(search), owner and _plain(owner), limit + 1))
        return {"subscriptions": found, "more": is_more}

    async def owned(self, request: Request) -> Response:
        """`GET /owners/{owner}/subscriptions`: in the order of their ids, a page at a time."""
        owner = path_part(request, "owner")
        self._access.check_owner(request, bearer(request), owner)
        limit = number_of(request, "limit", 100, MOST_LISTED)
        return await self._shared.answer(self._page, owner, request.query_params.get("after"), limit)

    def _page(self, owner: str, after: str | None, limit: int) -> dict[str, Any]:
        query, given = (
            f"SELECT {LIVE_COLUMNS} FROM {LIVE} WHERE {_IS_LIVE} AND s.owner = ?2",
            (owner, "" if after is None else self._broker.id_of(_plain(after))),
        )
        is_after = "" if after is None else " AND s.id > ?3"
        found, is_more = self._rows(f"{query}{is_after} ORDER BY s.id LIMIT ?4", (*given, limit + 1))
        return {"subscriptions": found, "next": str(found[-1]["id"]) if is_more else None}

    def _rows(self, query: str, given: tuple[Any, ...]) -> tuple[list[dict[str, Any]], bool]:
        """Return the rows of one response, and whether there are more; the query selects one row too many."""
        store = self._broker.store
        rows = store.select(query, (microseconds(self._broker.now()), *given))
        changes = (live_change(row, store.path).subscription for row in rows[: given[-1] - 1])
        found = list(first_rows((shown(each) for each in changes if each is not None), "expression"))
        return found, len(found) < len(rows)


def expression_in(document: dict[str, Any], limits: Limits) -> tuple[Any, str]:
    """Return the expression of a document, and its dialect."""
    given = [name for name in FORMS if name in document]
    if len(given) != 1:
        raise ProblemError(422, f"exactly one of {', '.join(FORMS)} is needed")
    name = given[0]
    dialect = document.get("dialect", FORMS[name])
    if not isinstance(dialect, str):
        raise ProblemError(422, "the dialect must be a text", path="dialect")
    expression = document[name]
    wanted = str if dialect == TEXT else (str, dict, list)
    if not isinstance(expression, wanted):
        raise ProblemError(422, f"the {name} has the wrong type", path=name)
    if _is_longer(expression, limits.expression_bytes):  # before it is parsed
        most = f"at most {limits.expression_bytes:,} are allowed"
        raise SubscriptionError(f"the expression has more than {limits.expression_bytes:,} bytes: {most}")
    return expression, dialect


def _is_longer(document: Any, most: int) -> bool:
    """Return whether a document certainly has more characters; stop reading it as soon as that is known.

    >>> _is_longer({"a": ["b" * 7]}, 14), _is_longer({"a": ["b" * 7]}, 13)
    (False, True)
    """
    pending, n = [document], 0
    while pending and n <= most:
        each = pending.pop()
        n += len(each) + 2 if isinstance(each, str) else 2 if isinstance(each, (dict, list)) else 1
        if isinstance(each, dict):
            n += sum(map(len, each))
            pending += each.values()
        elif isinstance(each, list):
            pending += each
    return n > most


def _read(body: Body, known: tuple[str, ...], limits: Limits) -> tuple[dict[str, Any], Written]:
    document = object_of(body, known)
    return document, Written.of(*expression_in(document, limits))


def _leased(lease: Lease) -> Response:
    answer = {"id": lease.id, "ticket": lease.ticket, "expires": time_text(lease.expires)}
    if lease.secret is not None:
        answer["secret"] = lease.secret
    place = f"/subscriptions/{quote(str(lease.id), safe='')}"
    return JsonResponse(answer, 201, {"Location": place, "Cache-Control": "no-store"})


def _webhook(deliver: Any) -> Webhook | None:
    if deliver is None:
        return None
    if not isinstance(deliver, dict) or not deliver.keys() <= {"webhook", "secret"} or "webhook" not in deliver:
        raise ProblemError(422, 'deliver must be {"webhook": URL, "secret": optional}', path="deliver")
    secret = deliver.get("secret")
    if secret is not None and not isinstance(secret, str):
        raise ProblemError(422, "a secret must be a text", path="deliver.secret")
    return Webhook(deliver["webhook"], secret)


def _plain(text: str) -> str:
    """Return a text that SQLite accepts, without halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode()
