"""The routes of a cluster, by the client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import siftline
from server.serving import serving
from siftline.errors import AccessError, GoneError, LimitError, ServerError, StoreError

if TYPE_CHECKING:
    from pathlib import Path


def test_events_changes_and_matches(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "s.db", matches_here=False) as service,
        siftline.Client(service.url, use_proxies=False) as client,
    ):
        one = client.published().first
        assert client.published() == (one, one - 1, [])
        lease = client.subscribe("a > 0", weight=2.0)
        client.publish_many([{"a": 1}, '{"a":  2.50}'])
        found = client.published(limit=1)
        assert (found.first, found.last, [each.event for each in found.events]) == (one, one + 1, ['{"a": 1}'])
        assert [each.event for each in client.published(one).events] == ['{"a":  2.50}']
        with pytest.raises(LimitError):
            client.published(one + 6)
        assert client.deliver([(one, [lease.id]), (one + 1, [])]) == (1, 0, 0)
        assert client.deliver([(one, [lease.id, 5])]) == (0, 1, 1)
        assert [each.event for each in client.notifications(lease.id, lease.ticket)] == [{"a": 1}]
        client.renew(lease.id, lease.ticket)
        client.unsubscribe(lease.id, lease.ticket)
        changes = client.changes()
        assert (changes.last, changes.are_ids_text) == (3, True)
        assert [each.change for each in changes.changes] == ["added", "renewed", "removed"]
        first = changes.changes[0]
        assert (first.id, first.expression, first.weight, first.expires) == (lease.id, "a > 0", 2.0, lease.expires)
        assert client.changes(1, 1).changes == changes.changes[1:2]
        with pytest.raises(StoreError, match="lost"):
            client.changes(9)
        client.acknowledge("spark", 2)
        assert service.broker.store.readers()["spark"] == 2
        with pytest.raises(AccessError):
            client.acknowledge("broker", 1)
        with pytest.raises(LimitError):
            client.acknowledge("spark", 9)
        for body in (b"[]", b'{"event": "x", "subscriptions": []}', b'{"event": 1, "subscriptions": [null]}', b"\xff"):
            assert service.client.post("/matches", content=body).status_code in (400, 422)


def test_only_for_admins(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db") as service:
        with (
            siftline.Client(service.url, use_proxies=False) as client,
            pytest.raises(ServerError, match="keeps no events"),
        ):
            client.published()
        key = service.broker.keys.add("publish")
        service.broker.keys.add("admin")
        with siftline.Client(service.url, key=key, use_proxies=False) as client:
            for wrong in (client.published, client.changes):
                with pytest.raises(AccessError):
                    wrong()
            with pytest.raises(AccessError):
                client.deliver([])


def test_changes_that_were_compacted(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db") as service, siftline.Client(service.url, use_proxies=False) as client:
        store = service.broker.store
        for n in range(5):
            store.add(f"a = {n}", f"x{n}")
        for n in range(4):
            store.remove(f"x{n}")
        store.acknowledge("spark", 8)
        service.broker.follow()
        service.broker.save()
        store.compact()  # the broker may have dropped some before
        answer = service.client.get("/changes?after=2")
        assert answer.status_code == 410
        error = answer.json()["error"]
        assert (error["kind"], error["first"], error["last"]) == ("GoneError", 8, 9)
        assert "from 0; from 8 on" in error["reason"]
        with pytest.raises(GoneError, match="compacted") as caught:
            client.changes(2)
        assert (caught.value.first, caught.value.last) == (8, 9)
        assert [each.sequence for each in client.changes(caught.value.first).changes] == [9]
        assert [each.id for each in client.changes(0).changes][-1] == "x3"
        assert service.client.get("/changes?after=10").status_code == 410
