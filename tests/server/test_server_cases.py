"""The cases of cases.json over HTTP, and random requests."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from server.serving import Service, serving
from siftline.broker.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "cases.json").read_text(encoding="utf-8"))

# Pieces of which requests are put together; many are wrong, and some are right.
_VALUES: list[Any] = [
    None, True, 0, -1, 1e308, 10**30, 0.5, "", "a = 1", "a = ", "price betwen 1", "1d", "9" * 40, "\u0000", "\ud800",
    "é" * 300,
    [], [[]], [{"exact": {"type": "x"}}], {}, {"a": [1]}, {"a": [{"numeric": ["<", 5]}]}, {"webhook": "http://[::1/"},
    {"webhook": "https://example.com/x"}, "text", "eventbridge", "cloudevents", {"a": {"b": [{"c": None}]}}, "1-0",
    "x" * 5000,
]  # fmt: skip
_NAMES = [
    "expression",
    "pattern",
    "filters",
    "dialect",
    "validity",
    "deliver",
    "owner",
    "weight",
    "id",
    "event",
    "other",
]
_TYPES = [
    "application/json", "application/x-ndjson", "application/cloudevents+json", "application/cloudevents-batch+json",
    "text/plain", "", ";", "application/json; charset=x", "a" * 300,
]  # fmt: skip
_PATHS = [
    "/", "/openapi.json", "/healthz", "/readyz", "/metrics", "/stats", "/dead-letters", "/events", "/match", "/explain",
    "/subscriptions", "/subscriptions/{}", "/subscriptions/{}/renew", "/subscriptions/{}/notifications", "/nowhere",
    "/subscriptions/%00", "/subscriptions/%ff", "/owners/x", "//", "/subscriptions/../events",
    "/subscriptions/" + "x" * 3000,
]  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    limits = Limits(subscribes_per_second=None)
    with serving(tmp_path_factory.mktemp("cases") / "store.db", limits=limits) as service:
        yield service


def test_cases_are_delivered_as_expected(service: Service) -> None:
    ids = [service.subscribe(case["subscription"])[0] for case in CASES]
    body = "\n".join(json.dumps(case["event"]) for case in CASES)
    first = service.broker.log.last
    answer = service.client.post("/events", content=body, headers={"Content-Type": "application/x-ndjson"})
    assert answer.json() == {"accepted": len(CASES)}
    kind = {"Content-Type": "application/json"}
    for case, id in zip(CASES, ids, strict=True):
        found = service.client.get(f"/subscriptions/{id}/notifications?limit=1000").json()["notifications"]
        events = [json.dumps(each["data"]) for each in found]  # as text: in Python true is 1
        assert (json.dumps(case["event"]) in events) is case["expected"], case["name"]
        matched = service.client.post("/match?limit=1000000", content=json.dumps(case["event"]), headers=kind).json()[
            "subscriptions"
        ]
        assert (id in matched) is case["expected"], case["name"]
    assert service.broker.log.last > first


def fuzz(service: Service, n_requests: int) -> None:
    chance = random.Random(8)
    ids = [service.subscribe()[0] for _ in range(5)]
    counts: dict[int, int] = {}
    for _ in range(n_requests):
        request = service.client.build_request(
            chance.choice(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"]),
            chance.choice(_PATHS).replace("{}", str(chance.choice([*ids, "unknown", "7", "%2e"]))),
            params=_params(chance),
            headers=_headers(chance),
            content=_body(chance),
        )
        try:
            answer = service.client.send(request)
        except httpx.RemoteProtocolError:  # refused before it was a request
            continue
        assert answer.status_code < 500, (request.method, request.url, request.headers, request.content, answer.text)
        counts[answer.status_code] = counts.get(answer.status_code, 0) + 1
        if answer.status_code >= 400 and request.method != "HEAD":
            assert answer.json()["error"]["reason"]
    assert {200, 202, 204, 401, 403, 404, 405, 422} <= counts.keys() or n_requests < 5_000
    assert service.client.get("/readyz").status_code == 200


def _params(chance: random.Random) -> dict[str, str]:
    names = chance.sample(["limit", "after", "search", "owner", "structure"], chance.choice([0, 0, 1, 2]))
    return {name: chance.choice(["", "1", "1-0", "x", "-5", "99999999999", "٣", "%"]) for name in names}


def _headers(chance: random.Random) -> dict[str, str]:
    headers = {"Content-Type": chance.choice(_TYPES)}
    if chance.random() < 0.2:
        headers["Authorization"] = chance.choice(["Bearer x", "Bearer", "Basic x", "x", "Bearer key_1.2"])
    if chance.random() < 0.1:
        headers |= {"ce-specversion": chance.choice(["1.0", "2"]), "ce-id": "1", "ce-source": "%zz", "ce-type": "x"}
    if chance.random() < 0.1:
        headers["Last-Event-ID"] = chance.choice(["1-0", "x", "0-0"])
    return headers


def _body(chance: random.Random) -> bytes:
    kind = chance.random()
    if kind < 0.15:
        return chance.randbytes(chance.randrange(40))
    document: Any = {chance.choice(_NAMES): chance.choice(_VALUES) for _ in range(chance.randrange(4))}
    if kind < 0.3:
        document = chance.choice(_VALUES)
    if kind < 0.4:
        document = [document, chance.choice(_VALUES)]
    text = json.dumps(document).encode()
    return text[: chance.randrange(len(text) + 1)] if chance.random() < 0.1 else text


def test_no_request_breaks_the_server(service: Service) -> None:
    fuzz(service, 600)


@pytest.mark.slow
def test_ten_thousand_requests_do_not_break_the_server(service: Service) -> None:
    fuzz(service, 10_000)


def test_a_full_disk_is_reported_and_survived(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db") as service:
        id, ticket = service.subscribe()
        for connection in (service.broker.log._writer, service.broker.store._writer._connection):  # type: ignore[union-attr]
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages}")
        event = {"a": 1, "text": "x" * 50_000}
        answer = service.client.post("/events", json=event)
        assert answer.status_code == 503
        assert "disk is full" in answer.json()["error"]["reason"]
        statuses = {service.client.post("/subscriptions", json={"expression": f"b = '{'x' * 9000}'"}).status_code}
        assert statuses == {503}
        for connection in (service.broker.log._writer, service.broker.store._writer._connection):  # type: ignore[union-attr]
            connection.execute("PRAGMA max_page_count = 1073741823")
        service.publish(event)
        found = service.client.get(f"/subscriptions/{id}/notifications", headers=ticket).json()["notifications"]
        assert [each["data"] for each in found] == [event]


def test_half_a_surrogate_pair_goes_everywhere(service: Service) -> None:
    lease = service.client.post("/subscriptions", content=json.dumps({"expression": "a = '\ud800'"})).json()
    path = f"/subscriptions/{lease['id']}"
    assert service.client.get(path).json()["expression"] == "a = '\ud800'"
    assert service.client.get("/subscriptions").status_code == 200
    service.client.post("/events", content=json.dumps({"a": "\ud800"}))
    found = service.client.get(f"{path}/notifications").json()["notifications"]
    assert found[0]["data"] == {"a": "\ud800"}
