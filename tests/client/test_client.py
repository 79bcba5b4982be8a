"""Both clients against a real server: the methods, the errors, and streams over bad connections."""

from __future__ import annotations

import inspect
import shutil
import socket
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from server.serving import Service, serving, wait_for

import siftline
from client.flaky import flaky
from client.waiting import WaitingClient
from siftline import errors
from siftline.broker.broker import Broker
from siftline.broker.limits import Limits
from siftline.client import following
from siftline.server.run import Tls, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KINDS = (siftline.Client, WaitingClient)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    limits = Limits(body_bytes=100_000, subscribes_per_second=None)
    with serving(tmp_path_factory.mktemp("client") / "store.db", limits=limits) as service:
        yield service


@pytest.fixture(params=KINDS, ids=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def client(service: Service, kind: Any) -> Iterator[Any]:
    with kind(service.url, use_proxies=False) as client:
        yield client


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_FIRST_SECONDS", 0.02)


def test_both_have_the_verbs_of_the_broker() -> None:
    for verb in ("subscribe", "renew", "replace", "unsubscribe", "get", "publish", "publish_many", "match"):
        # Whose names of publishes are meant, the key says; CloudEvents have their own.
        names = [name for name in inspect.signature(getattr(Broker, verb)).parameters if name not in ("scope", "names")]
        assert list(inspect.signature(getattr(siftline.Client, verb)).parameters) == names
    verbs = [name for name in vars(siftline.Client) if not name.startswith("_")]
    for verb in verbs:
        ours, other = (inspect.signature(getattr(kind, verb)) for kind in (siftline.Client, siftline.AsyncClient))
        assert ours.parameters == other.parameters


def test_the_life_of_a_subscription(client: Any) -> None:
    lease = client.subscribe("life > 1", timedelta(hours=2), weight=2.5, owner="ann")
    assert datetime.now(UTC) + timedelta(hours=1) < lease.expires
    found = client.get(lease.id, lease.ticket)
    assert (found.expression, found.weight, found.owner, found.expires) == ("life > 1", 2.5, "ann", lease.expires)
    assert client.renew(lease.id, lease.ticket, "3h") > lease.expires
    assert client.match({"life": 2}) == [lease.id]
    client.replace(lease.id, lease.ticket, {"life": [{"numeric": [">", 5]}]}, dialect="eventbridge")
    assert client.match(b'{"life":\n 2}') == []
    assert client.explain({"life": 6}, id=lease.id)["matched"] is True
    assert client.explain({"life": 6}, siftline.attr("life") > 7)["matched"] is False
    assert client.publish({"life": 6}) == 1
    assert client.publish_many([{"life": 1}, '{"life": 7}']) == 2
    first, second = client.notifications(lease.id, lease.ticket)
    assert (first.event, second.event, first.subscription) == ({"life": 6}, {"life": 7}, lease.id)
    assert client.notifications(lease.id, lease.ticket, after=first.id, limit=5) == [second]
    assert client.publish_many([]) == 0
    client.unsubscribe(lease.id, lease.ticket)
    with pytest.raises(errors.UnknownIdError):
        client.get(lease.id, lease.ticket)


def test_errors_are_those_of_the_library(client: Any) -> None:
    with pytest.raises(errors.SubscriptionError) as refused:
        client.subscribe("price betwen 1 and 2")
    with pytest.raises(errors.SubscriptionError) as expected:
        siftline.parse("price betwen 1 and 2")
    assert str(refused.value) == str(expected.value)
    lease = client.subscribe("errors > 1")
    wrongs: list[tuple[Callable[[], object], type[Exception]]] = [
        (lambda: client.subscribe("a = 1", "for ever"), errors.LimitError),
        (lambda: client.subscribe({"a": 1}), errors.SubscriptionError),
        (lambda: client.subscribe("a = 1", dialect="klingon"), errors.SubscriptionError),
        (lambda: client.subscribe("a = 1", weight=float("nan")), errors.SubscriptionError),
        (lambda: client.renew(lease.id, "ticket_guess"), errors.WrongTicketError),
        (lambda: client.renew("nobody", lease.ticket), errors.UnknownIdError),
        (lambda: client.publish("[1]"), errors.EventError),
        (lambda: client.publish({"a": float("nan")}), errors.EventError),
        (lambda: client.publish(""), errors.EventError),
        (lambda: client.publish_many([{"a": 1}, "{"]), errors.EventError),
        (lambda: client.publish({"a": "x" * 200_000}), errors.LimitError),
        (lambda: client.notifications(lease.id, lease.ticket, after="x"), errors.LimitError),
        (lambda: next(client.stream("nobody", lease.ticket)), errors.UnknownIdError),
        (lambda: next(client.stream(lease.id, "ticket_guess")), errors.WrongTicketError),
        (lambda: next(client.stream(lease.id, lease.ticket, after="x")), errors.LimitError),
    ]
    for wrong, error in wrongs:
        with pytest.raises(error):
            wrong()


def test_keys(tmp_path: Path, kind: Any) -> None:
    with serving(tmp_path / "store.db", limits=Limits(publishes_per_second=1.0)) as service:
        admin = service.broker.keys.add("admin")
        publish = service.broker.keys.add("publish")
        with kind(service.url, use_proxies=False) as stranger, pytest.raises(errors.AccessError):
            stranger.match({})
        with kind(service.url, key=publish, use_proxies=False, retries=0) as client:
            with pytest.raises(errors.AccessError):
                client.match({})
            with pytest.raises(errors.BusyError):
                [client.publish({}) for _ in range(5)]
        with kind(service.url, key=admin, use_proxies=False) as client:
            lease = client.subscribe("a > 1", owner="ann")
            assert client.get(lease.id).owner == "ann"


def test_no_server(kind: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with kind(url, timeout=0.2, use_proxies=False) as client, pytest.raises(errors.ServerError, match="in time"):
            client.publish({})
    with kind(url, use_proxies=False) as client:
        with pytest.raises(errors.ServerError, match="no connection"):
            client.publish({})
        with pytest.raises(errors.ServerError):
            next(client.stream(patience=0.1))


def test_a_server_that_is_no_broker(service: Service, kind: Any) -> None:
    with kind(f"{service.url}/elsewhere", use_proxies=False) as client:
        with pytest.raises(errors.ServerError) as error:
            client.publish({})
        assert error.value.status == 404
        with pytest.raises(errors.ServerError):
            next(client.stream())


def test_a_stream_survives_broken_connections(service: Service, kind: Any) -> None:
    port = service.server.port
    lease = service.broker.subscribe("flaky >= 0")
    service.broker.publish_many({"flaky": n, "text": "\u2028 é"} for n in range(40))
    with flaky(port, 2_000) as between, kind(between.url, use_proxies=False) as client:
        stream = client.stream(lease.id, lease.ticket, after="0-0")
        assert [next(stream).event["flaky"] for _ in range(40)] == list(range(40))
        assert between.n_connections > 3
        service.broker.unsubscribe(lease.id, lease.ticket)
        assert list(stream) == []


def test_nothing_is_missed_before_the_first_notification(service: Service, kind: Any) -> None:
    lease = service.broker.subscribe("early >= 0")
    service.broker.publish({"early": 0})
    # The first connection breaks after the head of the answer and the first id.
    with flaky(service.server.port, 250) as between, kind(between.url, use_proxies=False) as client:

        def publish() -> None:
            wait_for(lambda: between.n_connections)
            wait_for(lambda: len(service.broker.hub))
            for n in range(1, 4):
                service.broker.publish({"early": n})
            between.n_bytes = 10_000

        publisher = threading.Thread(target=publish)
        publisher.start()
        stream = client.stream(lease.id, lease.ticket)
        assert [next(stream).event["early"] for _ in range(3)] == [1, 2, 3]
        publisher.join()


def test_a_stream_survives_a_restart_of_the_server(tmp_path: Path, kind: Any) -> None:
    with Broker(tmp_path / "store.db") as broker:
        lease = broker.subscribe("a > 0", owner="ann")
        with running(broker) as server:
            port = server.port
            client = kind(server.url, use_proxies=False)
            stream = client.stream(owner="ann", after="0-0")
            broker.publish({"a": 1})
            assert next(stream).event == {"a": 1}
    with Broker(tmp_path / "store.db") as broker, running(broker, port=port), client:
        broker.publish({"a": 2})
        assert next(stream).event == {"a": 2}
        broker.publish({"a": 3})
        found = next(stream)
        assert (found.event, found.subscription) == ({"a": 3}, lease.id)


def test_gaps(tmp_path: Path, kind: Any) -> None:
    with serving(tmp_path / "store.db", limits=Limits(log_events=2)) as service:
        lease = service.broker.subscribe("a > 0")
        for n in range(1, 6):
            service.broker.publish({"a": n})
        with kind(service.url, use_proxies=False) as client:
            gaps: list[str] = []
            stream = client.stream(lease.id, lease.ticket, after="1-0", on_gap=gaps.append)
            assert next(stream).event == {"a": 4}
            assert len(gaps) == 1
            with pytest.warns(RuntimeWarning, match="no longer kept"):
                next(client.stream(lease.id, lease.ticket, after="1-0"))


def test_tls(tmp_path: Path, kind: Any) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl here to make a certificate")
    certificate, key = str(tmp_path / "certificate.pem"), str(tmp_path / "key.pem")
    made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
    subprocess.run([openssl, *made, *names], check=True, capture_output=True)
    with serving(tmp_path / "store.db", tls=Tls(certificate, key, ca=certificate)) as service:
        shown = {"certificate": certificate, "certificate_key": key}
        with kind(service.url, ca=certificate, use_proxies=False, **shown) as client:
            assert client.publish({}) == 1
        for options in ({"ca": certificate}, shown):
            with kind(service.url, use_proxies=False, **options) as client, pytest.raises(errors.ServerError):
                client.publish({})
