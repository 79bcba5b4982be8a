"""Clients do not change JSON texts: numbers, names and escapes stay as they were written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from server.serving import Service, serving

import siftline
from client.waiting import WaitingClient
from siftline.broker.raw_json import raw_elements, raw_members
from siftline.errors import EventError

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXTS = [
    '{"k":1,"x":1e400}',
    '{"k":1,"x":-1E+999}',
    '{"k":1,"x":-0.0,"y":-0,"z":0e0}',
    '{"k":1,"x":1.10,"y":1E2,"z":100000000000000000000.0}',
    '{"k":1,"x":%s}' % ("9" * 4300),
    '{"k":1,"x":0.1234567890123456789012345678901234567890}',
    '{"k":1,"x":1,"x":2,"o":{"a":1,"a":1}}',
    '{"k":1,"x":"\\u00e9\\/\\ud83d\\ude00","é":"😀"}',
    '{ "k" : 1 , "x" : [ ] }',
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("written") / "store.db") as service:
        yield service


@pytest.mark.parametrize("kind", [siftline.Client, WaitingClient], ids=["sync", "async"])
def test_events_come_out_as_they_went_in(service: Service, kind: Any) -> None:
    with kind(service.url, use_proxies=False) as client:
        lease = client.subscribe("k = 1")
        client.publish_many(TEXTS)
        kept = client.notifications(lease.id, lease.ticket)
        assert [each.payload.decode() for each in kept] == TEXTS
        stream = client.stream(lease.id, lease.ticket, after="0-0")
        assert [next(stream).payload.decode() for _ in TEXTS] == TEXTS
        stream.close()
        client.publish_many(each.payload for each in kept)  # and so they may be sent on
        again = client.notifications(lease.id, lease.ticket, kept[-1].id)
        assert [each.payload.decode() for each in again] == TEXTS


def test_explanations_of_events_as_they_were_written(service: Service) -> None:
    with siftline.Client(service.url, use_proxies=False) as client:
        for text in TEXTS:
            assert client.explain(text, "k = 1")["matched"] is True
            assert client.explain(b"\xef\xbb\xbf" + text.encode(), "k = 2")["matched"] is False
        assert client.explain('{"x":1e400}', "x = 1")["matched"] is False
        for wrong in ('{"k":1},"expression":"k = 2"', "[1]", "", "{", '{"k":NaN}', '{"k":1} {}', "1"):
            with pytest.raises(EventError):
                client.explain(wrong, "k = 1")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinity_are_never_sent(service: Service, number: float) -> None:
    with siftline.Client(service.url, use_proxies=False) as client:
        for send in (client.publish, client.match, lambda event: client.explain(event, "k = 1")):
            with pytest.raises(EventError):
                send({"k": number})
            with pytest.raises(EventError):
                send(json.dumps({"k": [number]}))


def test_binary_cloudevents_keep_their_data(service: Service) -> None:
    lease = service.client.post("/subscriptions", json={"expression": "data.k = 1"}).json()
    headers = {
        "ce-specversion": "1.0",
        "ce-source": "/s",
        "ce-type": "t",
        "ce-data": "x",
        "Content-Type": "application/json",
    }
    for n, text in enumerate(TEXTS):
        answer = service.client.post("/events", content=text.encode(), headers=headers | {"ce-id": str(n)})
        assert answer.status_code == 202, answer.text
    bad = service.client.post("/events", content=b'{"k":1},"x":2', headers=headers | {"ce-id": "bad"})
    assert bad.status_code == 400
    with siftline.Client(service.url, use_proxies=False) as client:
        found = client.notifications(lease["id"], lease["ticket"])
        assert [raw_members(each.payload.decode())["data"] for each in found] == TEXTS
        assert [json.loads(each.payload)["source"] for each in found] == ["/s"] * len(TEXTS)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), VALUES), st.sampled_from([None, 1]), st.booleans())
def test_members_and_elements(document: dict[str, Any], indent: int | None, is_ascii: bool) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=is_ascii)
    assert {name: json.loads(value) for name, value in raw_members(text).items()} == document
    text = json.dumps(list(document.values()), indent=indent, ensure_ascii=is_ascii)
    assert [json.loads(each) for each in raw_elements(text)] == list(document.values())


@pytest.mark.parametrize(
    "text", ["", "{", "[", "1", "{,}", '{"a"}', '{"a":}', '{"a":1,}', "{a:1}", '{"a":1}}', '{"a":NaN}', '{"a":1 "b":2}']
)
def test_events_that_are_not_objects(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        raw_members(text)
    with pytest.raises(ValueError, match=r"."):
        raw_elements(f"[{text}],")
