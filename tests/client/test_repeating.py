"""A repeated publish is delivered once: over broken connections, with a hanging server, and after `kill -9`."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from server.serving import Service, bearer, serving
from server.test_serve_command import served

import siftline
from client.flaky import Flaky
from client.test_client_restart import free_port
from client.waiting import WaitingClient
from siftline import errors
from siftline.broker.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(
        tmp_path_factory.mktemp("repeating") / "store.db", limits=Limits(publishes_per_second=None)
    ) as service:
        yield service


@pytest.fixture(params=[siftline.Client, WaitingClient], ids=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


class BreaksFirst(Flaky):
    """Passes requests on, and breaks before the answers of the first connections."""

    n_bad = 2

    @property
    def n_bytes(self) -> int:
        return 10 if self.n_connections <= self.n_bad else 1 << 30

    @n_bytes.setter
    def n_bytes(self, _: int) -> None:
        pass


def delivered(service: Service, lease: tuple[str, dict[str, str]]) -> list[Any]:
    found = service.client.get(f"/subscriptions/{lease[0]}/notifications?limit=1000", headers=lease[1]).json()
    return [each["data"] for each in found["notifications"]]


def test_over_broken_connections(service: Service, kind: Any) -> None:
    lease = service.subscribe("broken = 1")
    with (
        contextlib.closing(BreaksFirst(service.server.port, 0)) as between,
        kind(between.url, use_proxies=False) as client,
    ):
        assert client.publish({"broken": 1}) == 1
        assert between.n_connections == 3
        assert client.publish({"broken": 1}) == 1  # another call is another event
    assert delivered(service, lease) == [{"broken": 1}] * 2


def test_no_more_often_than_it_may(service: Service, kind: Any) -> None:
    lease = service.subscribe("often = 1")
    name = f"often {kind.__name__}"
    with (
        contextlib.closing(BreaksFirst(service.server.port, 0)) as between,
        kind(between.url, use_proxies=False, retries=1) as client,
    ):
        with pytest.raises(errors.ServerError):
            client.publish({"often": 1}, idempotency=name)
        assert between.n_connections == 2
        assert client.publish({"often": 1}, idempotency=name) == 1  # who does it himself is safe, too
    assert delivered(service, lease) == [{"often": 1}]
    with (
        kind(f"http://127.0.0.1:{free_port()}", use_proxies=False, retries=0) as client,
        pytest.raises(errors.ServerError),
    ):
        client.publish({})


def test_the_same_name_with_another_body(service: Service, kind: Any) -> None:
    with kind(service.url, use_proxies=False) as client:
        name = f'{kind.__name__} "7\\'
        assert client.publish({"a": 1}, idempotency=name) == 1
        with pytest.raises(errors.IdempotencyError, match="other events"):
            client.publish({"a": 2}, idempotency=name)
        for wrong in ("", "ü", "x" * 300, "a\nb"):
            with pytest.raises((errors.LimitError, errors.EventError)):
                client.publish({"a": 2}, idempotency=wrong)


def test_when_to_come_back_reaches_the_caller(tmp_path: Path, kind: Any) -> None:
    limits = Limits(subscribes_per_second=0.5, publishes_per_second=0.5)
    with serving(tmp_path / "store.db", limits=limits) as service, kind(service.url, use_proxies=False) as client:
        client.subscribe("a = 1")
        with pytest.raises(errors.BusyError) as refused:
            client.subscribe("a = 1")
        assert refused.value.retry_after in (1.0, 2.0)
        for _ in range(2):  # the second waits as long as it is told to
            client.publish({})


def test_names_over_http(service: Service) -> None:
    lease = service.subscribe("http > 0")

    def publish(event: str, **headers: str) -> int:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return service.client.post("/events", content=event, headers=JSON | names).status_code

    for name in ('"one"', "one", '"one"'):
        assert publish('{"http": 1}', Idempotency_Key=name) == 202
    assert publish('{"http": 2}', Idempotency_Key="one") == 422
    assert publish('[{"http": 1}]', Idempotency_Key="two") == 202
    for name in ('"', 'a"b', '"a', "a b", '""', "x" * 256):
        assert publish('{"http": 3}', Idempotency_Key=name) in (400, 422), name
    assert publish('{"http": ', Idempotency_Key="three") == 422
    assert publish('{"http": 4}', Idempotency_Key="three") == 202  # what was refused was not published
    assert delivered(service, lease) == [{"http": 1}, {"http": 1}, {"http": 4}]


def test_cloudevents_are_known_by_source_and_id(service: Service) -> None:
    lease = service.subscribe("type = 'known'")
    event = {"specversion": "1.0", "id": "1", "source": "/known", "type": "known", "data": 1}

    def publish(events: Any, kind: str) -> int:
        return service.client.post("/events", json=events, headers={"Content-Type": kind}).status_code

    one, many = "application/cloudevents+json", "application/cloudevents-batch+json"
    assert [publish(event, one) for _ in range(2)] == [202, 202]
    assert publish(event | {"data": 2}, one) == 422
    assert publish([event, event | {"id": "2"}], many) == 202
    assert publish([event | {"id": "2"}, event | {"source": "/other"}], many) == 202
    binary = {f"ce-{name}": str(value) for name, value in event.items() if name != "data"} | {"ce-id": "3"} | JSON
    for _ in range(2):
        assert service.client.post("/events", content="1", headers=binary).status_code == 202
    found = [(each["source"], each["id"]) for each in delivered(service, lease)]
    assert found == [("/known", "1"), ("/known", "2"), ("/other", "1"), ("/known", "3")]


def test_names_count_within_a_key(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db") as service:
        lease = service.subscribe("a = 1")
        keys = [bearer(service.broker.keys.add("publish")) for _ in range(2)]
        for key in keys * 2:
            answer = service.client.post("/events", json={"a": 1}, headers=key | {"Idempotency-Key": "x"})
            assert answer.status_code == 202
        assert len(service.broker.notifications(lease[0], None)) == 2


def test_names_of_strangers_do_not_meet(tmp_path: Path) -> None:
    with serving(tmp_path / "store.db", is_open=["publish"]) as service:
        service.subscribe("a > 0")
        for address in ("127.0.0.2", "127.0.0.3"):
            transport = httpx.HTTPTransport(local_address=address)
            with httpx.Client(base_url=service.url, transport=transport) as stranger:
                for _ in range(2):
                    answer = stranger.post("/events", json={"a": 1}, headers={"Idempotency-Key": "1"})
                    assert answer.status_code == 202, answer.text
        assert service.broker.log.stats()["log_events"] == 2


def test_a_server_that_hangs(tmp_path: Path, kind: Any) -> None:
    with (
        served("--store", str(tmp_path / "store.db"), "--port", "0") as (process, http),
        kind(str(http.base_url), use_proxies=False, timeout=1.0, retries=20) as client,
    ):
        lease = http.post("/subscriptions", json={"expression": "a = 1"}).json()
        os.kill(process.pid, signal.SIGSTOP)
        threading.Timer(2.5, os.kill, (process.pid, signal.SIGCONT)).start()
        assert client.publish({"a": 1}) == 1
        time.sleep(0.5)  # what the earlier attempts have left in the server
        found = http.get(f"/subscriptions/{lease['id']}/notifications", headers=bearer(lease["ticket"])).json()
        assert [each["data"] for each in found["notifications"]] == [{"a": 1}]


def test_kills_while_publishing(tmp_path: Path) -> None:
    options = "--store", str(tmp_path / "store.db"), "--port", str(free_port())
    url = f"http://127.0.0.1:{options[3]}"
    sent: list[int] = []
    is_over = threading.Event()

    def publish() -> None:
        with siftline.Client(url, use_proxies=False, timeout=5.0, retries=30) as client:
            while not is_over.is_set():
                client.publish({"n": len(sent)})
                sent.append(len(sent))

    with served(*options) as (process, http):
        client = siftline.Client(str(http.base_url), use_proxies=False)
        lease = client.subscribe("n >= 0")
        thread = threading.Thread(target=publish)
        thread.start()
        time.sleep(1.0)
        process.kill()
    with served(*options) as (process, _):
        time.sleep(1.0)
        process.kill()
    with served(*options), client:
        is_over.set()
        thread.join()
        found: list[int] = []
        after = None
        while page := client.notifications(lease.id, lease.ticket, after=after):
            found += [each.event["n"] for each in page]
            after = page[-1].id
        assert found == sent
