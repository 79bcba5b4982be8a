"""Accepted events can be delivered: every event that `POST /events` accepts is readable by all ways of delivery."""

from __future__ import annotations

import http.server
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import siftline
from server.serving import Service, serving, wait_for
from siftline.broker.leases import Webhook
from siftline.broker.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator

_space = st.sampled_from(["", " ", "\n", "\t", "\r\n", "  \r "])
_numbers = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(
        ["-0", "0.0", "1e400", "-1e999999999", "1E-400", "9" * 4300, "-" + "9" * 4300, "9" * 4301, "9" * 5000]
    ),
    st.sampled_from(["NaN", "Infinity", "-Infinity", "01", "1.", ".5", "+1", "0x1"]),  # these are none
)
_characters = st.one_of(
    st.characters(exclude_categories=["Cs"], min_codepoint=32).filter(lambda c: c not in '"\\'),
    st.sampled_from(
        ["\\ud800", "\\udc00\\ud800", "\\u0000", "\\n", '\\"', "\\\\", "\u2028", "\u0085", "\ufeff", "\\/"]
    ),
    st.sampled_from(["\n", "\r", "\t", "\x01", "\\x", "\x7f"]),  # some of these may not stand in a text
)
_texts = st.lists(_characters, max_size=5).map(lambda parts: '"' + "".join(parts) + '"')
_scalars = st.one_of(_numbers, _texts, st.sampled_from(["null", "true", "false", "nul"]))


def _containers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    arrays = st.builds(lambda s, each: f"[{s}{','.join(each)}{s}]", _space, st.lists(inner, max_size=3))
    members = st.lists(st.tuples(_texts, inner), max_size=3)  # keys may repeat
    objects = st.builds(lambda s, each: "{" + s + ",".join(f"{k}:{s}{v}" for k, v in each) + s + "}", _space, members)
    deep = st.builds(lambda n, x: "[" * n + x + "]" * n, st.sampled_from([50, 97, 98, 99, 100, 500, 2000]), inner)
    return arrays | objects | deep


_values = st.recursive(_scalars, _containers, max_leaves=6)
_events = st.builds(lambda s, value: f'{s}{{"p": 1,{s}"x":{s}{value}{s}}}{s}', _space, _values)


class Sink:
    """A webhook that takes nothing, and keeps what it got."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        sink = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sink.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(410)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Ways:
    """One service, and every way in which notifications leave it."""

    def __init__(self, service: Service, sink: Sink) -> None:
        self.service, self.sink = service, sink
        self.broker = service.broker
        self.client = siftline.Client(service.url, use_proxies=False)
        self.lease = self.client.subscribe("p = 1")
        self.stream = self.client.stream(self.lease.id, self.lease.ticket, after="0-0")
        self.dead = self.client.subscribe("p = 1", deliver=Webhook(sink.url))
        self.n = 0

    def check(self, text: bytes) -> None:
        """Publish an event, and if it is accepted, find it everywhere."""
        answer = self.service.client.post("/events", content=text, headers={"Content-Type": "application/json"})
        if answer.status_code != 202:
            assert 400 <= answer.status_code < 500, answer.text
            return
        self.n += 1
        expected = json.loads(text)
        found = next(self.stream)
        assert same(found.event, expected)
        assert same(self.broker.notifications(self.lease.id, None, limit=10_000)[-1].event, expected)
        assert same(self.client.notifications(self.lease.id, self.lease.ticket, limit=1000)[-1].event, expected)
        assert found.id == self.client.notifications(self.lease.id, self.lease.ticket, limit=1000)[-1].id
        wait_for(lambda: self.broker.log.deliveries.n_waiting() == 0 and len(self.sink.bodies) == self.n)
        assert same(json.loads(self.sink.bodies[-1])["data"], expected)
        letters = self.service.client.get("/dead-letters?limit=1")
        assert letters.status_code == 200
        assert same(letters.json()["dead_letters"][0]["event"], expected)


def same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)  # infinities and the sign of zero count


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    sink = Sink()
    limits = Limits(log_events=900, subscribes_per_second=None)
    with serving(tmp_path_factory.mktemp("poison") / "store.db", limits=limits, allow_private=True) as service:
        yield Ways(service, sink)
    sink.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_events)
def test_accepted_events_can_be_delivered(ways: Ways, text: str) -> None:
    ways.check(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    "value",
    [
        *(b"9" * 4300, b"9" * 5000, b"1e400", b"-0", b'"\\ud800"', b'"\\u0000"', b'"\xe2\x80\xa8\xc2\x85"'),
        *(b"[" * 98 + b"]" * 98, b"[" * 2000 + b"]" * 2000, b'{"a": 1, "a": 2}', b'"\xed\xa0\x80"', b'"a\rb"'),
        *(b'"a\nb"', b'"a\\\nb"', b'"\\"\n"', b'[1,\r\n 2, "\\\\"\n]'),
    ],
)
def test_poison(ways: Ways, value: bytes) -> None:
    ways.check(b'{"p": 1, "x": %b}' % value)


def test_an_integer_that_is_too_long_is_refused(ways: Ways) -> None:
    for text in (b'{"p": 1, "x": %b}' % (b"9" * 4301), b'{"q": 1, "x": [-%b]}' % (b"9" * 4301)):
        answer = ways.service.client.post("/events", content=text, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422
        assert "4,300 digits" in answer.json()["error"]["reason"]
