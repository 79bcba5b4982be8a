"""A revoked key gives no access, and its open streams end; the limits of open streams."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from server.serving import Service, bearer, data_of, serving, wait_for
from siftline.broker.keys import Keys
from siftline.broker.limits import Limits
from siftline.storage.store import Store

if TYPE_CHECKING:
    from pathlib import Path


def revoke(service: Service, secret: str) -> None:
    service.broker.keys.revoke(secret.partition(".")[0])


def test_a_revoked_key_ends_its_streams_and_no_others(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db") as service, contextlib.ExitStack() as stack:
        keys = service.broker.keys
        keys.add("admin")
        publish = bearer(keys.add("publish"))
        admin, ann, other = keys.add("admin"), keys.add("subscribe", "ann"), keys.add("subscribe", "ann")
        lease = service.client.post("/subscriptions", json={"expression": "a > 0"}, headers=bearer(ann)).json()
        one = f"/subscriptions/{lease['id']}/stream"
        opened = {
            name: stack.enter_context(service.stream(path, bearer(token)))
            for name, path, token in (
                ("everything", "/stream", admin),
                ("hers", "/owners/ann/stream", ann),
                ("one of hers", one, ann),
                ("by an admin", one, admin),
                ("by ticket", one, lease["ticket"]),
                ("by another key", "/owners/ann/stream", other),
            )
        }
        for token in (admin, ann):
            revoke(service, token)
        service.client.post("/events", json={"a": 1}, headers=publish)
        for name, events in opened.items():
            first = next(events)
            if name in ("by ticket", "by another key"):
                assert data_of(first) == {"a": 1}, name
            else:
                assert first["event"] == "end", name
        assert service.client.get("/stream", headers=bearer(admin)).status_code == 401
        assert service.client.get(one, headers=bearer(ann)).status_code == 403


def test_a_revoked_key_ends_a_stream_that_is_far_behind(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db") as service:
        ann = service.broker.keys.add("subscribe", "ann")
        service.broker.subscribe("a > 0", owner="ann")
        for _ in range(20):
            service.broker.publish_many([{"a": 1, "text": "x" * 20_000}] * 100)
        with service.stream("/owners/ann/stream?after=0-0", bearer(ann)) as events:
            next(events)
            revoke(service, ann)
            assert sum(event["event"] == "match" for event in events) < 1_900


def test_a_websocket_reports_that_its_key_was_revoked(tmp_path: Path) -> None:
    from websockets.exceptions import ConnectionClosed
    from websockets.sync.client import connect

    with serving(tmp_path / "store.db") as service:
        ann = service.broker.keys.add("subscribe", "ann")
        url = f"{service.url.replace('http', 'ws')}/owners/ann/ws"
        with connect(url, additional_headers=bearer(ann), proxy=None) as socket:
            wait_for(lambda: len(service.broker.hub))
            revoke(service, ann)
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(20)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401


def test_the_first_key_ends_streams_that_needed_none(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db") as service, service.stream("/stream") as events:
        wait_for(lambda: len(service.broker.hub))
        service.broker.keys.add("admin")
        assert next(events)["event"] == "end"


def test_revoking_the_last_key_opens_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with serving(path) as service:
        for role, owner in (("admin", None), ("publish", None), ("subscribe", "ann")):
            revoke(service, service.broker.keys.add(role, owner))
        assert service.broker.keys.listed() == []
    with serving(path) as service:  # and not after a restart either
        for method, place in (
            ("GET", "/stats"),
            ("GET", "/stream"),
            ("POST", "/events"),
            ("POST", "/subscriptions"),
            ("POST", "/match"),
            ("GET", "/subscriptions/x"),
        ):
            assert service.client.request(method, place, json={}).status_code == 401, place
        admin = service.broker.keys.add("admin")
        assert service.client.get("/stats", headers=bearer(admin)).status_code == 200


def test_a_key_is_revoked_once(tmp_path: Path) -> None:
    from siftline.errors import UnknownIdError

    with Store(tmp_path / "store.db") as store:
        keys = Keys(store)
        name = keys.add("admin").partition(".")[0]
        keys.revoke(name)
        with pytest.raises(UnknownIdError):
            keys.revoke(name)
        assert keys.has_role("admin")


def test_an_id_that_went_to_another_owner(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db") as service:
        keys = service.broker.keys
        ann, publish = keys.add("subscribe", "ann"), keys.add("publish")
        keys.add("admin")
        lease = service.client.post("/subscriptions", json={"expression": "a > 0"}, headers=bearer(ann)).json()
        ticket, id = bearer(lease["ticket"]), lease["id"]
        with (
            service.stream(f"/subscriptions/{id}/stream", ticket) as one,
            service.stream("/owners/ann/stream", bearer(ann)) as hers,
        ):
            wait_for(lambda: len(service.broker.hub) == 2)
            with service.broker.store.batch() as batch:
                batch.remove(id)
                batch.add("a > 0", id, owner="bob")
            service.broker.follow()
            service.broker.subscribe("b > 0", owner="ann")
            for event in ({"a": 1}, {"b": 1}):
                service.client.post("/events", json=event, headers=bearer(publish))
            assert next(one)["event"] == "end"
            assert data_of(next(hers)) == {"b": 1}
        for token in (ticket, bearer(ann)):
            assert service.client.get(f"/subscriptions/{id}", headers=token).status_code == 403


def test_streams_of_a_ticket_and_of_an_owner_are_limited(tmp_path: Path) -> None:
    limits = Limits(streams=6, streams_per_ticket=2, streams_per_owner=3)
    with serving(tmp_path / "store.db", limits=limits) as service, contextlib.ExitStack() as stack:
        kept = []

        def refused(path: str, headers: dict[str, str]) -> bool:
            answer = stack.enter_context(service.client.stream("GET", path, headers=headers))
            if answer.status_code == 200:
                kept.append(answer.iter_bytes())  # closing it would end the stream
                next(kept[-1])
                return False
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) >= 1
            answer.read()
            assert answer.json()["error"]["kind"] == "BusyError"
            return True

        first, second, unowned = (service.subscribe(owner=owner) for owner in ("ann", "ann", None))
        assert [refused(f"/subscriptions/{first[0]}/stream", first[1]) for _ in range(3)] == [False, False, True]
        assert [refused(f"/subscriptions/{second[0]}/stream", second[1]) for _ in range(2)] == [False, True]
        assert refused("/owners/ann/stream", {})
        assert [refused(f"/subscriptions/{unowned[0]}/stream", unowned[1]) for _ in range(3)] == [False, False, True]
        assert [refused("/stream", {}) for _ in range(2)] == [False, True]
    with serving(tmp_path / "store.db", limits=limits) as service:
        for _ in range(10):  # one that was closed counts no more
            with service.stream(f"/subscriptions/{first[0]}/stream", first[1]):
                pass
            wait_for(lambda: not len(service.broker.hub))
