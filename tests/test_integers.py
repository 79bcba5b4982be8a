"""Integers of many digits: up to 4,300 they are integers like any other, beyond that no event has them."""

from __future__ import annotations

import decimal
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from siftline import Engine
from siftline.errors import EventError
from siftline.model import MAX_INTEGER_DIGITS, Event

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 10**MAX_INTEGER_DIGITS - 1
PLACES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "asked for": lambda n: {"x": n},
    "not asked for": lambda n: {"x": 1, "y": n},
    "in an array": lambda n: {"x": [1, n]},
    "in an array that nobody asks for": lambda n: {"x": 1, "y": [n]},
    "below an object": lambda n: {"x": 1, "z": {"x": n}},
    "beside an object": lambda n: {"x": 1, "y": n, "z": {"x": 1}},
}
WAYS: dict[str, Callable[[Engine, dict[str, Any]], Any]] = {
    "dict": lambda engine, event: engine.match(event),
    "json": lambda engine, event: engine.match(text_of(event)),
    "dicts": lambda engine, event: ids_of(engine.match_batch([event, {"x": 0}])),
    "texts": lambda engine, event: ids_of(engine.match_batch([text_of(event), b'{"x": 0}'])),
    "lines": lambda engine, event: ids_of(engine.match_batch(text_of(event) + b'\n{"x": 0}\n')),
    "arrow": lambda engine, event: ids_of(engine.match_batch(pa.array([text_of(event), b'{"x": 0}'], pa.binary()))),
}


def text_of(event: dict[str, Any]) -> bytes:
    """Write an event, also with integers that Python would not write."""

    def written(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{json.dumps(key)}: {written(each)}" for key, each in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(written, value)) + "]"
        sign = "-" if value < 0 else ""
        return sign + (f"{abs(value):d}" if abs(value) <= MOST else "1" + "0" * MAX_INTEGER_DIGITS)

    return written(event).encode()


def ids_of(pairs: Any) -> list[Any]:
    return [
        id
        for event, id in zip(pairs["event"].to_pylist(), pairs["subscription"].to_pylist(), strict=True)
        if event == 0
    ]


@pytest.mark.parametrize("index", ["sift", "scan", "be-tree"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", PLACES)
def test_the_longest_integer_is_one_and_a_longer_one_is_refused(index: str, way: str, place: str) -> None:
    engine = Engine(index)
    engine.add("x >= 1", id="large")
    engine.add("x < 0", id="negative")
    for number in (MOST, -MOST):
        event = PLACES[place](number)
        assert sorted(WAYS[way](engine, event)) == expected(event)
    for number in (MOST + 1, -MOST - 1):
        with pytest.raises(EventError, match="4,300 digits"):
            WAYS[way](engine, PLACES[place](number))


def expected(event: dict[str, Any]) -> list[str]:
    values = [value for value in Event(event).values("x") if isinstance(value, int)]
    return ["large"] * any(value >= 1 for value in values) + ["negative"] * any(value < 0 for value in values)


def test_the_oracle_refuses_it_too() -> None:
    for place in PLACES.values():
        Event(place(MOST))
        with pytest.raises(EventError, match="4,300 digits"):
            Event(place(MOST + 1))
    with pytest.raises(EventError, match="4,300 digits"):
        Event({"x": decimal.Decimal(MOST + 1)})


@pytest.mark.parametrize("value", ['"%s"' % ("9" * 5000), "0." + "9" * 5000, "9" * 5000 + ".5", "1" * 5000 + "e-4999"])
def test_digits_that_are_no_integer(value: str) -> None:
    engine = Engine()
    engine.add("x = 1", id=1)
    text = f'{{"x": 1, "y": {value}}}'.encode()
    assert engine.match(text) == [1]
    assert ids_of(engine.match_batch([text, b"{}"])) == [1]
