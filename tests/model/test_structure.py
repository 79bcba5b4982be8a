"""Events as programs have them: dataclasses, models, sets, UUIDs; and what is refused with the way to send it."""

from __future__ import annotations

import datetime
import fractions
import ipaddress
import pathlib
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

import attrs
import numpy as np
import pandas as pd
import pyarrow as pa
import pydantic
import pytest

import siftline
from siftline.broker.broker import Broker
from siftline.client.calls import _line
from siftline.encoding.statistics import Statistics
from siftline.errors import EventError
from siftline.model import Event

if TYPE_CHECKING:
    from pathlib import Path

KEY = UUID("550e8400-e29b-41d4-a716-446655440000")


@dataclass
class Item:
    sku: str
    qty: int = 1


@dataclass(frozen=True, slots=True)
class Order:
    id: UUID
    items: tuple[Item, ...]
    tags: frozenset[str] = frozenset({"new", "red"})
    extra: Any = None


class Price(pydantic.BaseModel):
    amount: float
    currency: str = "EUR"

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def is_cheap(self) -> bool:
        return self.amount < 10


class Offer(pydantic.BaseModel):
    id: UUID
    price: Price
    tags: set[str]
    sent: datetime.date = datetime.date(2026, 1, 31)


@attrs.define
class Parcel:
    kilos: float
    stops: set[str] = attrs.field(factory=set)


@dataclass
class Loop:
    me: list[Any] = field(default_factory=list)


# Each event with what it is as JSON has it.
EVENTS: list[tuple[Any, dict[str, Any]]] = [
    (
        Order(KEY, (Item("x"), Item("y", 5))),
        {
            "id": str(KEY),
            "items": [{"sku": "x", "qty": 1}, {"sku": "y", "qty": 5}],
            "tags": ["new", "red"],
            "extra": None,
        },
    ),
    ({"order": Order(KEY, ())}, {"order": {"id": str(KEY), "items": [], "tags": ["new", "red"], "extra": None}}),
    (
        Offer(id=KEY, price=Price(amount=5), tags={"a"}),
        {
            "id": str(KEY),
            "price": {"amount": 5.0, "currency": "EUR", "is_cheap": True},
            "tags": ["a"],
            "sent": "2026-01-31",
        },
    ),
    ({"price": Price(amount=50)}, {"price": {"amount": 50.0, "currency": "EUR", "is_cheap": False}}),
    (Parcel(2.5, {"Bonn"}), {"kilos": 2.5, "stops": ["Bonn"]}),
    ({"tags": {"red"}, "n": 1}, {"tags": ["red"], "n": 1}),
    ({"tags": [{"red"}, frozenset({"new"})]}, {"tags": [["red"], ["new"]]}),
    ({"a": {"b": {1, 2}}, "id": KEY}, {"a": {"b": [1, 2]}, "id": str(KEY)}),
    ({"id": [KEY]}, {"id": [str(KEY)]}),
]
CONDITIONS = [
    "any items (sku = 'y' and qty > 2)",
    "any items (sku = 'x' and qty > 2)",
    f"id = '{KEY}'",
    "id starts with '550e'",
    f"order.id = '{KEY}'",
    "tags = 'red'",
    "not (tags = 'red')",
    "tags contains 'e'",
    "price.amount < 10",
    "price.is_cheap = true",
    "sent >= '2026-01-01'",
    "kilos > 2 and stops = 'Bonn'",
    "a.b > 1",
    "exists extra",
    "extra is null",
    "any order (id is not null)",
]


def engine_of(index: str) -> siftline.Engine:
    engine = siftline.Engine(index)
    engine.add_many(enumerate(CONDITIONS))
    return engine


@pytest.mark.parametrize("index", siftline.indexes())
def test_they_match_as_their_json_does(index: str) -> None:
    engine = engine_of(index)
    expected = []
    for event, plain in EVENTS:
        ids = sorted(engine.match(plain))
        assert sorted(engine.match(event)) == ids
        assert sorted(engine.match(engine.encode(event))) == ids
        assert [engine.explain(event, id).matched for id in range(len(CONDITIONS))] == [
            id in ids for id in range(len(CONDITIONS))
        ]
        assert (
            engine.match_batch(event)["subscription"].to_pylist()
            == engine.match_batch(plain)["subscription"].to_pylist()
        )
        expected.append(ids)
    assert any(expected)
    table = engine.match_batch(event for event, _ in EVENTS)
    found = sorted(zip(table["event"].to_pylist(), table["subscription"].to_pylist(), strict=True))
    assert found == [(position, id) for position, ids in enumerate(expected) for id in ids]


def test_the_model_sees_plain_objects() -> None:
    for event, plain in EVENTS:
        made = Event(event).leaves
        assert {path: sorted(map(repr, values)) for path, values in made.items()} == {
            path: sorted(map(repr, values)) for path, values in Event(plain).leaves.items()
        }


def test_operators_get_plain_objects() -> None:
    seen: list[Any] = []

    @siftline.operator("structure_seen", replace=True)
    def structure_seen(event: Any) -> bool:
        seen.append(event)
        return True

    engine = siftline.Engine()
    engine.add("structure_seen()", id=1)
    assert engine.match(Order(KEY, (Item("x"),))) == [1]
    assert seen[0]["items"] == [{"sku": "x", "qty": 1}]


@pytest.mark.parametrize("index", ["sift", "scan", "pb-tree"])
def test_tables_hold_uuids_too(index: str) -> None:
    engine = siftline.Engine(index)
    engine.add(f"id = '{KEY}'", id=1)
    engine.add("id starts with '550e'", id=2)
    engine.add(f"ids = '{KEY}' and id is null", id=3)
    engine.add("any s (k ends with '0000')", id=4)
    rows = [{"id": KEY}, {"id": None, "ids": [KEY, UUID(int=1)]}, {"s": {"k": KEY}}]
    ids = pa.array([KEY.bytes, None, None], pa.uuid())
    lists = pa.ListArray.from_arrays([0, 0, 2, 2], pa.array([KEY.bytes, UUID(int=1).bytes], pa.uuid()))
    keys = pa.StructArray.from_arrays([pa.array([None, None, KEY.bytes], pa.uuid())], names=["k"])
    table = pa.table({"id": ids, "ids": lists, "s": keys})
    expected = [(0, 1), (0, 2), (1, 3), (2, 4)]
    for events in (rows, table, table.slice(0, 3).combine_chunks()):
        found = engine.match_batch(events)
        assert sorted(zip(found["event"].to_pylist(), found["subscription"].to_pylist(), strict=True)) == expected
    late = engine.match_batch(table.slice(1))
    assert sorted(late["subscription"].to_pylist()) == [3, 4]
    assert engine.match_batch(pd.DataFrame({"id": [KEY]}))["subscription"].to_pylist() == [1, 2]


def test_statistics_take_them() -> None:
    statistics = Statistics.from_events([event for event, _ in EVENTS])
    assert statistics.n_events == len(EVENTS)


def test_a_broker_and_a_client_send_their_json(tmp_path: Path) -> None:
    with Broker(tmp_path / "s.db") as broker:
        lease = broker.subscribe("tags = 'red' or id is not null or price.amount > 9 or kilos > 1 or true")
        for event, plain in EVENTS:
            broker.publish(event)
            sent = list(broker.notifications(lease.id, lease.ticket))[-1]
            assert sorted(str(sent.event)) == sorted(str(plain))
    assert (
        _line({"at": datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC)})
        == b'{"at": "2026-01-31T00:00:00.000000000Z"}'
    )


REFUSED: list[tuple[Any, str]] = [
    (datetime.time(10), "value.isoformat()"),
    (datetime.timedelta(1), "value.total_seconds()"),
    (b"x", "value.decode()"),
    (bytearray(b"x"), "value.decode()"),
    (pathlib.PurePosixPath("/x"), "str(value)"),
    (ipaddress.ip_address("10.0.0.1"), "str(value)"),
    (fractions.Fraction(1, 3), "float(value)"),
    (np.array([1, 2]), "value.tolist()"),
    (range(3), "list(value)"),
    (deque([1]), "list(value)"),
    ((n for n in (1, 2)), "list(value)"),
    (object(), "object has no meaning in an event"),
    (1j, "complex has no meaning in an event"),
]


@pytest.mark.parametrize(("value", "way"), REFUSED, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("index", ["sift", "scan", "pb-tree"])
def test_what_is_refused_says_what_to_send(index: str, value: Any, way: str) -> None:
    engine = siftline.Engine(index)
    engine.add("a = 1", id=1)
    for event in ({"a": value}, {"b": {"c": [value]}}, {"a": {1}, "b": value}):
        with pytest.raises(EventError) as error:
            engine.match(event)
        assert way in str(error.value)
        with pytest.raises(EventError, match="event 1"):
            engine.match_batch([{}, event])
        with pytest.raises(EventError):
            engine.explain(event, 1)


def test_what_is_no_object_is_no_event() -> None:
    engine = siftline.Engine()
    engine.add("a = 1", id=1)
    for event in ({1, 2}, Item, 5, None, [Item("x"), {2}]):
        with pytest.raises(EventError):
            engine.match(event)


@pytest.mark.parametrize(
    ("event", "way"),
    [
        ([{"a": 1}], "match_batch"),
        (pd.DataFrame({"a": [1]}), "match_batch"),
        (pd.DataFrame({"a": [1]}).iloc[0], "value.to_dict()"),
        ("events.jsonl", "looks like the path"),
    ],
    ids=["list", "frame", "row", "path"],
)
def test_mistakes_are_told_the_way_out(event: Any, way: str) -> None:
    engine = siftline.Engine()
    engine.add("a = 1", id=1)
    with pytest.raises(EventError) as error:
        engine.match(event)
    assert way in str(error.value)


def test_objects_that_hold_themselves_are_refused() -> None:
    loop = Loop()
    loop.me.append(loop)
    engine = siftline.Engine()
    engine.add("me = 1", id=1)
    with pytest.raises(EventError, match="nests deeper"):
        engine.match(loop)
    with pytest.raises(EventError, match="nests deeper"):
        Event({"a": loop})
