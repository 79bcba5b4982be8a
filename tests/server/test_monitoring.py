"""The console, and frequent requests for statistics, hardly delay other requests."""

from __future__ import annotations

import threading
import time
from importlib import resources
from typing import TYPE_CHECKING, Any

from server.serving import Service, bearer, serving, wait_for
from siftline.broker.limits import Limits
from siftline.storage.rows import LIVE_COLUMNS

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def recent(service: Service, **query: Any) -> dict[str, Any]:
    answer = service.client.get("/recent", params=query)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def test_the_newest_notifications(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db", limits=Limits(log_events=30)) as service:
        assert recent(service) == {"position": recent(service)["position"], "notifications": []}
        for _ in range(2):
            service.subscribe("a > 0")
        for n in range(1, 51):
            service.publish({"a": n})
        found = recent(service, limit=10)
        assert [each["data"]["a"] for each in found["notifications"]] == [n for n in range(41, 46) for _ in range(2)]
        assert recent(service, after=found["position"])["notifications"] == []
        service.publish({"a": 51}, {"b": 1})
        later = recent(service, after=found["position"])
        assert [each["data"]["a"] for each in later["notifications"]] == [51, 51]
        assert len(recent(service, after="1-0", limit=100)["notifications"]) <= 60
        service.broker.keys.add("admin")
        assert service.client.get("/recent").status_code == 401


def test_the_console_reads_no_stream_of_everything() -> None:
    page = resources.files("siftline.server").joinpath("console.html").read_text(encoding="utf-8")
    assert '"/recent"' in page
    assert "/stream" not in page


def test_the_newest_subscriptions_are_found_without_looking_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "store.db") as service:
        store = service.broker.store
        with store.batch() as batch:
            for n in range(200):
                batch.add(f"a = {n}", f"s{n:03}", owner=f"owner {n % 2}")
        store.replace("s007", "needle = 1")
        store.renew("s003", None)
        service.broker.follow()
        plans: list[str] = []
        select = store.select

        def explained(query: str, arguments: Any = ()) -> list[tuple[Any, ...]]:
            if LIVE_COLUMNS in query:
                plans.extend(str(row[-1]) for row in select(f"EXPLAIN QUERY PLAN {query}", arguments))
            return select(query, arguments)

        monkeypatch.setattr(store, "select", explained)
        shown = service.client.get("/subscriptions?limit=4").json()
        assert [each["id"] for each in shown["subscriptions"]] == ["s003", "s007", "s199", "s198"]
        assert shown["more"] is True
        assert plans
        assert not any("TEMP B-TREE" in step for step in plans), plans
        for query, ids in (
            ("search=NEEDLE", ["s007"]),
            ("search=s198", ["s198"]),
            ("owner=owner 1&limit=2", ["s003", "s007"]),
            ("owner=owner 0&search=a = 1&limit=1", ["s198"]),
            ("search=nowhere", []),
        ):
            found = service.client.get(f"/subscriptions?{query}").json()["subscriptions"]
            assert [each["id"] for each in found] == ids, query


def test_asking_again_and_again_looks_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path / "store.db") as service:
        looked: list[float] = []
        stats = service.broker.log.stats

        def counted() -> Any:
            looked.append(time.monotonic())
            return stats()

        monkeypatch.setattr(service.broker.log, "stats", counted)
        start = time.monotonic()
        for n in range(1, 41):
            service.publish({"n": n})
            assert service.client.get("/stats").json()["events"] == n  # what is counted is always new
            assert f"siftline_events_total {n}" in service.client.get("/metrics").text
        assert len(looked) <= 2 + (time.monotonic() - start) / 0.25


def test_others_have_their_turn_while_much_is_streamed(tmp_path: Path) -> None:
    """A stream that is given more than it can take at once lets requests through all the time."""
    with serving(tmp_path / "store.db") as service:
        for _ in range(100):
            service.broker.subscribe("a > 0")
        service.broker.publish_many([{"a": 1}] * 300)
        n_read, is_over = [0], threading.Event()

        def read() -> None:
            with service.stream("/stream?after=0-0") as events:
                for _ in events:
                    n_read[0] += 1
                    if n_read[0] == 30_000:
                        is_over.set()
                        return

        thread = threading.Thread(target=read)
        thread.start()
        wait_for(lambda: n_read[0])
        n_answers = 0
        while not is_over.is_set():
            assert service.client.get("/healthz").status_code == 200
            n_answers += 1
        thread.join()
        assert n_answers > 20
        assert service.client.get("/stats", headers=bearer("x")).status_code == 401
