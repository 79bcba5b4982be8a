"""The routes of a cluster, by the client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import siftline
from server.serving import serving
from siftline.errors import AccessError, LimitError, ServerError, StoreError

if TYPE_CHECKING:
    from pathlib import Path


def test_events_changes_and_matches(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "s.db", matches_here=False) as service,
        siftline.Client(service.url, use_proxies=False) as client,
    ):
        assert client.published() == (1, 0, [])
        lease = client.subscribe("a > 0", weight=2.0)
        client.publish_many([{"a": 1}, '{"a":  2.50}'])
        found = client.published(limit=1)
        assert (found.first, found.last, [each.event for each in found.events]) == (1, 2, ['{"a": 1}'])
        assert [each.event for each in client.published(1).events] == ['{"a":  2.50}']
        with pytest.raises(LimitError):
            client.published(7)
        assert client.deliver([(1, [lease.id]), (2, [])]) == (1, 0, 0)
        assert client.deliver([(1, [lease.id, 5])]) == (0, 1, 1)
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
        with siftline.Client(service.url, use_proxies=False) as client, pytest.raises(ServerError, match="not kept"):
            client.published()
        key = service.broker.keys.add("publish")
        service.broker.keys.add("admin")
        with siftline.Client(service.url, key=key, use_proxies=False) as client:
            for wrong in (client.published, client.changes):
                with pytest.raises(AccessError):
                    wrong()
            with pytest.raises(AccessError):
                client.deliver([])
