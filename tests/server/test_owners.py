"""Owners and their subscriptions by key; ids and owners with any characters; subscribing without a key."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, example, given, settings

import siftline
from server.serving import Service, bearer, data_of, serving, wait_for
from siftline.broker.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def part(text: str) -> str:
    """Percent-encode all of a text; `.` and `..` alone would be taken for places in a path."""
    return "".join(f"%{byte:02X}" for byte in text.encode()) if set(text) <= {"."} else quote(text, safe="")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    limits = Limits(subscribes_per_second=None)
    with serving(tmp_path_factory.mktemp("owners") / "store.db", limits=limits) as service:
        yield service


def test_an_owner_lists_reads_renews_and_ends_with_the_key(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db") as service:
        keys, http = service.broker.keys, service.client
        keys.add("admin")
        ann, bob, publish = (
            bearer(keys.add(*key)) for key in (("subscribe", "ann"), ("subscribe", "bob"), ("publish",))
        )
        lease = http.post("/subscriptions", json={"expression": "a > 0"}, headers=ann).json()
        path = f"/subscriptions/{lease['id']}"
        assert http.get(path, headers=ann).json()["owner"] == "ann"
        assert http.post(f"{path}/renew", headers=ann, json={"validity": "2d"}).json()["expires"] > lease["expires"]
        assert http.put(path, headers=ann, json={"expression": "a > 1"}).json()["expression"] == "a > 1"
        with service.stream(f"{path}/stream", ann) as events:
            wait_for(lambda: len(service.broker.hub))
            http.post("/events", json={"a": 2}, headers=publish)
            assert data_of(next(events)) == {"a": 2}
        assert len(http.get(f"{path}/notifications", headers=ann).json()["notifications"]) == 1
        for token, statuses in ((bob, {403}), (publish, {403}), ({}, {401})):
            for method, place, body in (
                ("GET", path, None),
                ("GET", f"{path}/notifications", None),
                ("GET", f"{path}/stream", None),
                ("POST", f"{path}/renew", {}),
                ("PUT", path, {"expression": "b = 1"}),
                ("DELETE", path, None),
                ("GET", "/owners/ann/subscriptions", None),
                ("GET", "/owners/ann/stream", None),
            ):
                assert http.request(method, place, headers=token, json=body).status_code in statuses, (method, place)
        listed = http.get("/owners/ann/subscriptions", headers=ann).json()
        assert [each["expression"] for each in listed["subscriptions"]] == ["a > 1"]
        assert listed["next"] is None
        assert http.delete(path, headers=ann).status_code == 204
        assert http.get("/owners/ann/subscriptions", headers=ann).json()["subscriptions"] == []


@pytest.mark.parametrize("are_numbers", [True, False])
def test_pages(tmp_path: Path, are_numbers: bool) -> None:
    ids: list[Any] = list(range(-3, 22)) if are_numbers else sorted(["", "a/b", "ü", *map(str, range(22))])
    with serving(tmp_path / "store.db") as service:
        with service.broker.store.batch() as batch:
            for id in ids:
                batch.add("a > 0", id, owner="ann")
                batch.add("a > 0", id + 100 if are_numbers else f"bob {id}", owner="bob")
        found, after = [], None
        for _ in range(10):
            query = {"limit": "7"} | ({} if after is None else {"after": after})
            page = service.client.get("/owners/ann/subscriptions", params=query).json()
            found += [each["id"] for each in page["subscriptions"]]
            after = page["next"]
            if after is None:
                break
        assert found == ids
        with siftline.Client(service.url, use_proxies=False) as client:
            assert [each.id for each in client.subscriptions("ann")] == ids


def test_a_page_has_no_more_than_an_answer_may(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db") as service:
        with service.broker.store.batch() as batch:
            for n in range(300):
                batch.add(f"a = '{'x' * 60_000}'", f"s{n:03}", owner="ann")
        service.broker.follow()
        answer = service.client.get("/owners/ann/subscriptions?limit=1000")
        assert len(answer.content) < 9 << 20
        assert answer.json()["next"] == answer.json()["subscriptions"][-1]["id"]
        with siftline.Client(service.url, use_proxies=False) as client:
            assert len(list(client.subscriptions("ann"))) == 300
            assert len(client.changes(limit=10_000).changes) < 300
        assert service.client.get("/subscriptions?limit=1000").json()["more"] is True


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(id=NAMES, owner=NAMES.filter(bool))
@example(id="", owner="/")
@example(id="..", owner="..")
@example(id="a/renew", owner="%2F")
@example(id="%2F", owner="a b?c#d")
@example(id="\0", owner="\0")
@example(id="ü€\U0001f600", owner="+&=;")
@example(id="x/../../stats", owner="\r\n")
def test_any_characters(service: Service, id: str, owner: str) -> None:
    store, http = service.broker.store, service.client
    if id in store:
        store.remove(id)
    store.add("n = 1", id, owner=owner)
    service.broker.follow()
    path = f"/subscriptions/{part(id)}"
    assert http.get(path).json()["id"] == id
    assert http.post(f"{path}/renew", json={"validity": "1h"}).json()["id"] == id
    assert http.put(path, json={"expression": "n = 2"}).json()["id"] == id
    assert http.post("/events", json={"n": 2}).status_code == 202
    assert http.get(f"{path}/notifications").json()["notifications"][-1]["data"] == {"n": 2}
    for place in (f"{path}/stream", f"/owners/{part(owner)}/stream"):
        with service.stream(f"{place}?after=0-0") as events:
            assert next(events)["event"] in ("match", "gap")
    listed = http.get(f"/owners/{part(owner)}/subscriptions").json()["subscriptions"]
    assert id in [each["id"] for each in listed]
    with siftline.Client(service.url, use_proxies=False) as client:
        assert client.get(id).owner == owner
        assert id in [each.id for each in client.subscriptions(owner)]
        assert next(iter(client.stream(id, after="0-0"))).subscription == id
        assert next(iter(client.stream(owner=owner, after="0-0"))).event == {"n": 2}
        client.unsubscribe(id)
    assert http.get(path).status_code == 404


def test_any_characters_over_websockets(service: Service) -> None:
    from websockets.sync.client import connect

    for id, owner in (("a/b?c#d %2F", "e/f"), ("ü", "%"), ("", "x")):
        service.broker.store.add("socket = 1", id, owner=owner)
        service.broker.follow()
        for place in (f"subscriptions/{part(id)}", f"owners/{part(owner)}"):
            url = f"{service.url.replace('http', 'ws')}/{place}/ws"
            with connect(url, proxy=None) as socket:
                wait_for(lambda: len(service.broker.hub))
                service.publish({"socket": 1})
                assert json.loads(socket.recv(20))["data"] == {"socket": 1}
            wait_for(lambda: not len(service.broker.hub))
        service.broker.store.remove(id)
        service.broker.follow()


def test_a_websocket_is_refused_in_any_language(service: Service) -> None:
    from websockets.exceptions import ConnectionClosed
    from websockets.sync.client import connect

    id = part("\U0001f600" * 60)
    url = f"{service.url.replace('http', 'ws')}/subscriptions/{id}/ws"
    with connect(url, proxy=None) as socket, pytest.raises(ConnectionClosed) as closed:
        socket.recv(20)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4404


def test_paths_that_name_nothing(service: Service) -> None:
    for path, status in (
        ("/subscriptions/%FF", 400),
        ("/subscriptions/a%2Frenew", 404),
        ("/%73tats", 200),
        ("/stats/", 404),
        ("/subscriptions%2Fx", 404),
    ):
        assert service.client.get(path).status_code == status, path


def test_integer_ids(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db") as service:
        service.broker.store.add("a > 0", 7)
        service.broker.store.add("a > 0", -(2**63))
        for text, status in (("7", 200), (str(-(2**63)), 200), ("07", 404), ("+7", 404), ("%207", 404), ("7.0", 404),
                             ("7_0", 404), ("%D9%A7", 404), ("9" * 20, 404), ("9" * 5000, 404), ("", 404)):  # fmt: skip
            assert service.client.get(f"/subscriptions/{text}").status_code == status, text[:30]


def test_who_subscribes_without_a_key_has_the_limits_of_an_owner(tmp_path: Path) -> None:
    limits = Limits(subscriptions_per_owner=5, subscribes_per_second=None)
    with serving(tmp_path / "store.db", limits=limits, is_open=["subscribe"]) as service:
        admin = bearer(service.broker.keys.add("admin"))
        answers = [service.client.post("/subscriptions", json={"expression": "a > 0"}) for _ in range(8)]
        assert [answer.status_code for answer in answers] == [201] * 5 + [422] * 3
        shown = service.client.get(answers[0].headers["location"], headers=admin).json()
        assert shown["owner"] == "anonymous:127.0.0.1"
        ticket = bearer(answers[0].json()["ticket"])
        assert service.client.delete(answers[0].headers["location"], headers=ticket).status_code == 204
        assert service.client.post("/subscriptions", json={"expression": "a > 0"}).status_code == 201
        assert service.client.post("/subscriptions", json={"expression": "a > 0", "owner": "x"}).status_code == 401
        assert service.client.get("/owners/anonymous%3A127.0.0.1/subscriptions").status_code == 401
        assert service.client.post("/subscriptions", json={"expression": "a > 0"}, headers=admin).status_code == 201
    with serving(tmp_path / "rates.db", limits=Limits(subscribes_per_second=1.0), is_open=["subscribe"]) as service:
        service.broker.keys.add("admin")
        statuses = {service.client.post("/subscriptions", json={"expression": "a=1"}).status_code for _ in range(5)}
        assert statuses == {201, 429}
