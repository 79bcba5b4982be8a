"""The routes, their status codes, and their permissions."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from server.serving import Service, bearer, data_of, serving, wait_for
from siftline.broker.limits import Limits
from siftline.server.run import Tls

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMITS = Limits(body_bytes=100_000, subscribes_per_second=None)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("server") / "store.db", limits=LIMITS) as service:
        yield service


def error(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    document: dict[str, Any] = answer.json()["error"]
    assert document["status"] == status
    assert document["reason"]
    return document


def test_the_life_of_a_subscription(service: Service) -> None:
    answer = service.client.post("/subscriptions", json={"expression": "life > 1", "validity": "2h"})
    assert answer.status_code == 201
    assert answer.json().keys() == {"id", "ticket", "expires"}
    path, ticket = answer.headers["location"], bearer(answer.json()["ticket"])
    shown = service.client.get(path, headers=ticket).json()
    assert (shown["expression"], shown["dialect"], shown["expires"]) == ("life > 1", "text", answer.json()["expires"])
    renewed = service.client.post(f"{path}/renew", headers=ticket, json={"validity": "3h"})
    assert renewed.json()["expires"] > shown["expires"]
    assert service.client.post(f"{path}/renew", headers=ticket).status_code == 200
    replaced = service.client.put(path, headers=ticket, json={"expression": "life > 5"})
    assert replaced.json()["expression"] == "life > 5"
    assert service.client.post("/match", json={"life": 3}).json() == {"matches": 0, "subscriptions": []}
    assert service.client.post("/match", json={"life": 6}).json()["matches"] == 1
    assert service.client.delete(path, headers=ticket).status_code == 204
    error(service.client.delete(path, headers=ticket), 404)


def test_wrong_missing_and_stolen_tickets(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db", limits=LIMITS) as service:
        (mine, ticket), (_, other) = service.subscribe(), service.subscribe()
        service.broker.keys.add("admin")
        for method, path in [
            ("GET", ""),
            ("DELETE", ""),
            ("POST", "/renew"),
            ("GET", "/stream"),
            ("GET", "/notifications"),
        ]:
            request = method, f"/subscriptions/{mine}{path}"
            error(service.client.request(*request), 401)
            error(service.client.request(*request, headers=other), 403)
            error(service.client.request(*request, headers=bearer("ticket_guess")), 403)
            error(service.client.request(method, f"/subscriptions/unknown{path}", headers=ticket), 404)
        error(service.client.request("GET", f"/subscriptions/{mine}", headers={"Authorization": "Basic x"}), 401)
        put = service.client.put(f"/subscriptions/{mine}", headers=other, json={"expression": "b = 1"})
        error(put, 403)
        assert service.client.get(f"/subscriptions/{mine}", headers=ticket).json()["expression"] == "a > 0"


def test_bad_requests_say_where_and_why(service: Service) -> None:
    post = service.client.post
    found = error(post("/subscriptions", json={"expression": "price betwen 1 and 2"}), 422)
    assert (found["position"], found["column"], found["hint"]) == (6, 7, "did you mean 'between'?")
    assert error(post("/subscriptions", json={"pattern": {"a": [{"numeric": ["<"]}]}}), 422)["path"]
    assert error(post("/subscriptions", content='{"expression": '), 400)["position"] == 15
    assert error(post("/subscriptions", json={"expresion": "a = 1"}), 400)["path"] == "expresion"
    for document in ({}, {"expression": "a = 1", "pattern": {}}, {"expression": 5},
                     {"expression": "a=1", "validity": -1}, {"expression": "a=1", "weight": "x"},
                     {"expression": "a=1", "dialect": "x"},
                     {"expression": "a=1", "deliver": 5}, {"expression": "a=1", "deliver": {"webhook": 5}},
                     {"expression": "a=1", "deliver": {"webhook": "http://10.0.0.1/"}},
                     {"expression": "a=1", "owner": 5}, {"expression": "a" * 70_000}):  # fmt: skip
        error(post("/subscriptions", json=document), 422)
    for body in ("[]", "5", "null", '"x"', '{"expression": NaN}', b"\xff"):
        error(post("/subscriptions", content=body), 400)
    assert "byte" in error(post("/events", content='{"a": '), 422)["reason"]
    assert (
        "event 1"
        in error(post("/events", content='{"a": 1}\n[]', headers={"Content-Type": "application/x-ndjson"}), 422)[
            "reason"
        ]
    )
    error(post("/events", content="x", headers={"Content-Type": "text/plain"}), 415)
    error(post("/events", content="[" * 50_000), 400)
    error(post("/match", json=[{}, {}]), 422)
    error(post("/explain", json={"event": 5, "expression": "a = 1"}), 422)
    error(post("/explain", json={"event": {}, "id": "unknown"}), 404)
    error(service.client.get("/nowhere"), 404)
    error(service.client.patch("/events"), 405)
    error(service.client.get("/subscriptions?limit=x"), 422)


def test_events_in_every_form(service: Service) -> None:
    id, ticket = service.subscribe("type = 'com.example.sold' or form = 1")
    event = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "com.example.sold", "data": {"price": 5}}

    def publish(content: Any, kind: str, **headers: str) -> int:
        answer = service.client.post("/events", content=content, headers={"Content-Type": kind, **headers})
        assert answer.status_code == 202, answer.text
        return int(answer.json()["accepted"])

    assert publish('{"form": 1}', "application/json") == 1
    assert publish('[{"form": 1}, {"form": 2}]', "application/json; charset=utf-8") == 2
    assert publish('{"form": 1}\n\n{"form": 3}\r\n', "application/x-ndjson") == 2
    assert publish(json.dumps(event), "application/cloudevents+json") == 1
    batch = [event | {"id": "2"}, event | {"id": "3"}]
    assert publish(json.dumps(batch), "application/cloudevents-batch+json") == 2
    names = {f"ce-{name}": str(value) for name, value in event.items() if name not in ("data", "id")}
    assert publish('{"price": 5}', "application/json", **names, **{"ce-id": "4"}) == 1
    assert publish("hello", "text/plain", **names, **{"ce-id": "5"}) == 1
    assert publish(b"\xff\x00", "image/png", **names, **{"ce-id": "6"}) == 1
    found = service.client.get(f"/subscriptions/{id}/notifications", headers=ticket).json()["notifications"]
    data = [each["data"] for each in found]
    assert data[:3] == [{"form": 1}] * 3
    assert data[3:6] == [event, *batch]
    assert data[6]["data"] == {"price": 5}
    assert data[7]["data"] == "hello"
    assert data[8]["data_base64"] == "/wA="
    wrongs: list[Any] = [{"id": "1"}, event | {"specversion": "0.3"}, event | {"type": 5}, []]
    for wrong in wrongs:
        kind = {"Content-Type": "application/cloudevents+json"}
        error(service.client.post("/events", content=json.dumps(wrong), headers=kind), 422)


def test_lists_and_explanations(service: Service) -> None:
    service.subscribe("needle = 1", owner="ann")
    listed = service.client.get("/subscriptions", params={"search": "NEEDLE"}).json()["subscriptions"]
    assert [(each["expression"], each["owner"]) for each in listed] == [("needle = 1", "ann")]
    assert service.client.get("/subscriptions", params={"owner": "nobody"}).json()["subscriptions"] == []
    by_id = service.client.post("/explain", json={"id": listed[0]["id"], "event": {"needle": 1}}).json()
    assert by_id["matched"] is True
    free = service.client.post("/explain", json={"expression": "x = 1", "event": {}}).json()
    assert free["condition"]["truth"] == "unknown"


def test_health_metrics_and_description(service: Service) -> None:
    for path in ("/healthz", "/readyz"):
        assert service.client.get(path).json()["status"] == "ok"
    service.publish({"metric": 1})
    text = service.client.get("/metrics").text
    for name in ("events_total", "matches_total", "publish_seconds_bucket", "lag_changes", "index_bytes"):
        assert f"siftline_{name}" in text
    document = service.client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    paths = [str(getattr(route, "path_format", "")) for route in service.server._app.routes]
    served = {path for path in paths if not path.endswith("ws")}
    assert served - {"/", "/openapi.json"} == document["paths"].keys()
    assert "structure" in service.client.get("/stats?structure").json()


def test_a_stream_resumes_where_it_stopped(service: Service) -> None:
    id, ticket = service.subscribe("stream > 0")
    path = f"/subscriptions/{id}/stream"
    with service.stream(path, ticket) as events:
        wait_for(lambda: len(service.broker.hub))
        service.publish({"stream": 1}, {"other": 1}, {"stream": 2})
        first, second = next(events), next(events)
    assert [data_of(first), data_of(second)] == [{"stream": 1}, {"stream": 2}]
    service.publish({"stream": 3})
    with service.stream(path, ticket | {"Last-Event-ID": first["id"]}) as events:
        assert [next(events)["id"], data_of(next(events))] == [second["id"], {"stream": 3}]
        service.publish({"stream": 4})
        assert data_of(next(events)) == {"stream": 4}
        service.client.delete(f"/subscriptions/{id}", headers=ticket)
        assert next(events)["event"] == "end"
    wait_for(lambda: not len(service.broker.hub))


def test_the_streams_of_an_owner_and_of_all(service: Service) -> None:
    service.subscribe("owned > 0", owner="ann")
    with service.stream("/owners/ann/stream") as mine, service.stream("/stream") as everything:
        service.subscribe("owned > 1", owner="bob")
        service.subscribe("owned > 2", owner="ann")
        wait_for(lambda: len(service.broker.hub) == 2)
        service.publish({"owned": 3})
        service.publish({"owned": 1})
        assert [data_of(next(mine))["owned"] for _ in range(3)] == [3, 3, 1]
        assert [data_of(next(everything))["owned"] for _ in range(4)] == [3, 3, 3, 1]


def test_a_head_request_opens_no_stream(service: Service) -> None:
    id, ticket = service.subscribe("head > 0")
    for path in ("/stream", f"/subscriptions/{id}/stream", "/owners/ann/stream"):
        answer = service.client.head(path, headers=ticket if id in path else {})
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert service.client.head("/subscriptions/unknown/stream").status_code == 404
    wait_for(lambda: not len(service.broker.hub))


def test_a_gap_is_reported(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db", limits=Limits(log_events=2)) as service:
        id, ticket = service.subscribe()
        for n in range(1, 6):
            service.publish({"a": n})
        with service.stream(f"/subscriptions/{id}/stream?after=1-0", ticket) as events:
            assert next(events)["event"] == "gap"
            assert [data_of(next(events))["a"] for _ in range(2)] == [4, 5]


def test_websockets(service: Service) -> None:
    from websockets.exceptions import ConnectionClosed
    from websockets.sync.client import connect

    id, ticket = service.subscribe("socket > 0")
    url = f"{service.url.replace('http', 'ws')}/subscriptions/{id}/ws"
    with connect(url, additional_headers=ticket, proxy=None) as socket_:
        wait_for(lambda: len(service.broker.hub))
        service.publish({"socket": 1}, {"socket": 2})
        first = json.loads(socket_.recv(10))
        assert (first["data"], json.loads(socket_.recv(10))["data"]) == ({"socket": 1}, {"socket": 2})
    with connect(f"{url}?first-message", proxy=None) as socket_:
        token = ticket["Authorization"].removeprefix("Bearer ")
        socket_.send(json.dumps({"token": token, "after": first["id"]}))
        assert json.loads(socket_.recv(10))["data"] == {"socket": 2}
    for header in (bearer("ticket_guess"),):
        with connect(url, additional_headers=header, proxy=None) as socket_, pytest.raises(ConnectionClosed) as closed:
            socket_.recv(10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4403


def test_a_client_that_never_reads_delays_nobody(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db", limits=Limits(stream_items=10)) as service:
        id, ticket = service.subscribe()
        head = f"GET /subscriptions/{id}/stream HTTP/1.1\r\nHost: x\r\nAuthorization: {ticket['Authorization']}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", service.server.port)) as lazy:
            lazy.sendall(head.encode())
            wait_for(lambda: len(service.broker.hub))
            with service.stream(f"/subscriptions/{id}/stream?after=0-0", ticket) as events:
                for n in range(1, 31):
                    service.publish(*[{"a": n, "text": "x" * 20_000}] * 5)
                assert [data_of(next(events))["a"] for _ in range(150)] == [n for n in range(1, 31) for _ in range(5)]


def test_large_bodies(service: Service) -> None:
    error(service.client.post("/events", content=b"x" * 200_000), 413)
    error(service.client.post("/events", content=(b"x" * 50_000 for _ in range(9))), 413)


def test_slow_clients(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db", limits=Limits(request_seconds=0.5, header_seconds=0.5)) as service:
        address = "127.0.0.1", service.server.port
        with socket.create_connection(address) as slow:  # the first lines never end
            slow.sendall(b"POST /events HTTP/1.1\r\nHost: x\r\n")
            slow.settimeout(20)
            assert slow.recv(100) == b""
        with socket.create_connection(address) as slow:  # the body never comes
            slow.sendall(b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{")
            slow.settimeout(20)
            assert b"408" in slow.recv(1000)


def test_without_keys_only_this_machine(service: Service) -> None:
    for headers in (
        {"X-Forwarded-For": "1.2.3.4"},
        {"Via": "1.1 proxy"},
        {"Host": "evil.example"},
        {"Origin": "https://evil.example"},
    ):
        for path in ("/match", "/explain", "/events", "/subscriptions"):
            error(service.client.post(path, headers=headers), 401)
        for path in ("/subscriptions", "/stream", "/", "/metrics", "/stats", "/dead-letters"):
            error(service.client.get(path, headers=headers), 401)
    assert service.client.get("/", headers={"Origin": service.url}).status_code == 200


def test_keys_and_roles(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db") as service:
        keys = service.broker.keys
        admin, publish, ann = keys.add("admin"), keys.add("publish"), keys.add("subscribe", "ann")
        post, get = service.client.post, service.client.get
        for path in ("/match", "/explain", "/events", "/subscriptions"):
            error(post(path, json={}), 401)
            error(post(path, json={}, headers=bearer("key_x.y")), 401)
        error(post("/match", json={}, headers=bearer(publish)), 403)
        error(post("/events", json={}, headers=bearer(ann)), 403)
        assert post("/events", json={}, headers=bearer(publish)).status_code == 202
        assert post("/match", json={}, headers=bearer(admin)).status_code == 200
        lease = post("/subscriptions", json={"expression": "a > 0"}, headers=bearer(ann)).json()
        path = f"/subscriptions/{lease['id']}"
        assert get(path, headers=bearer(admin)).json()["owner"] == "ann"
        error(post("/subscriptions", json={"expression": "a > 0", "owner": "bob"}, headers=bearer(ann)), 403)
        error(get("/owners/bob/stream", headers=bearer(ann)), 403)
        error(get("/owners/ann/stream"), 401)
        with service.stream("/owners/ann/stream", bearer(ann)) as events:
            wait_for(lambda: len(service.broker.hub))
            post("/events", json={"a": 1}, headers=bearer(publish))
            assert data_of(next(events)) == {"a": 1}
        assert get("/").status_code == 200  # the page asks for the key


def test_rates(tmp_path: Path) -> None:
    limits = Limits(subscribes_per_second=1.0, publishes_per_second=1.0)
    with serving(tmp_path / "store.db", limits=limits) as service:
        statuses = [service.client.post("/events", json={}).status_code for _ in range(5)]
        assert 429 in statuses
        answers = [service.client.post("/subscriptions", json={"expression": "a=1"}) for _ in range(5)]
        assert {answer.status_code for answer in answers} == {201, 429}
        assert answers[-1].headers["retry-after"] == "1"


def test_a_lease_ends_for_streams_too(service: Service) -> None:
    id, ticket = service.subscribe("short > 0", validity=0.5)
    with service.stream(f"/subscriptions/{id}/stream", ticket) as events:
        assert next(events)["event"] == "end"
    service.publish({"short": 1})
    error(service.client.get(f"/subscriptions/{id}", headers=ticket), 404)


def test_stopping_ends_streams_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with serving(path) as service:
        id, ticket = service.subscribe()
        with service.stream(f"/subscriptions/{id}/stream", ticket) as events:
            wait_for(lambda: len(service.broker.hub))
            service.publish({"a": 1})
            assert data_of(next(events)) == {"a": 1}
            start = time.monotonic()
            service.server.should_exit = True
            assert next(events)["event"] == "end"
            assert time.monotonic() - start < 5
    with serving(path) as service:
        found = service.client.get(f"/subscriptions/{id}/notifications", headers=ticket).json()
        assert len(found["notifications"]) == 1


def test_tls(tmp_path: Path) -> None:
    import ssl

    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl here to make a certificate")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([openssl, *made, *names], check=True, capture_output=True)
    with serving(tmp_path / "store.db", tls=Tls(str(certificate), str(key))) as service:
        context = ssl.create_default_context(cafile=str(certificate))
        with httpx.Client(base_url=service.url, verify=context, trust_env=False) as client:
            assert client.get("/healthz").json() == {"status": "ok"}
        with pytest.raises(httpx.ConnectError):
            service.client.get("/healthz")


def test_an_invalid_origin(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db") as service:
        for origin in ("http://[", "null", "http://elsewhere.example"):
            assert service.client.get("/stats", headers={"Origin": origin}).status_code == 401, origin
        assert service.client.get("/stats", headers={"Origin": service.url}).status_code == 200


def test_a_new_subscription_does_not_inherit_the_limit_of_replacements(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db", limits=Limits(subscribes_per_second=0.01)) as service:
        for _ in range(2):
            service.broker.store.add("a = 1", "x")
            service.broker.follow()
            answers = [service.client.put("/subscriptions/x", json={"expression": "a > 1"}) for _ in range(2)]
            assert [each.status_code for each in answers] == [200, 429]
            assert service.client.delete("/subscriptions/x").status_code == 204
