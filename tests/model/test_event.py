"""Events: what becomes a leaf, and what is refused."""

from __future__ import annotations

import datetime
import decimal
import enum
from typing import Any

import numpy as np
import pandas
import pytest

from siftline import EventError
from siftline.model import MAX_EVENT_DEPTH, Event, iso_text

UTC = datetime.UTC


class Color(enum.StrEnum):
    RED = "red"


class Plain(enum.Enum):
    BLUE = "blue"


@pytest.mark.parametrize(
    ("value", "leaf"),
    [
        (True, True),
        (5, 5),
        (2**80, 2**80),
        (1.5, 1.5),
        (float("nan"), None),
        (float("-inf"), None),
        ("x", "x"),
        (Color.RED, "red"),
        (np.int64(5), 5),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (datetime.date(2026, 1, 31), "2026-01-31"),
        (datetime.datetime(2026, 1, 31, 10), "2026-01-31T10:00:00.000000000Z"),
        (datetime.datetime(2026, 1, 31, 10, 0, 0, 5, tzinfo=UTC), "2026-01-31T10:00:00.000005000Z"),
        (pandas.Timestamp(1, unit="ns"), "1970-01-01T00:00:00.000000001Z"),
        (pandas.NaT, None),
        (np.datetime64("2026-01-31"), "2026-01-31T00:00:00.000000000Z"),
        (np.datetime64("2500-01-01T00:00:00.5"), "2500-01-01T00:00:00.500000000Z"),
        (np.datetime64(-1, "ns"), "1969-12-31T23:59:59.999999999Z"),
        (np.datetime64("NaT"), None),
        (decimal.Decimal("5"), 5),
        (decimal.Decimal("0.5"), 0.5),
        (decimal.Decimal("1E+30"), 10**30),
        (decimal.Decimal("-1E+400000"), -(10**400)),
        (Plain.BLUE, "blue"),
        (decimal.Decimal("NaN"), None),
    ],
)
def test_leaves(value: Any, leaf: Any) -> None:
    (found,) = Event({"a": value}).leaves["a"]
    assert found == leaf
    assert type(found) is type(leaf)


BAD_VALUES = [
    object(),
    b"x",
    {1, 2},
    decimal.Decimal("0.1"),
    1j,
    datetime.timedelta(1),
    np.array([1, 2]),
    np.timedelta64(1, "s"),
    np.longdouble(3),
    np.datetime64("-0005"),
]


@pytest.mark.parametrize("value", BAD_VALUES, ids=lambda value: type(value).__name__)
def test_values_without_a_meaning_are_refused(value: Any) -> None:
    with pytest.raises(EventError, match=r"attribute 'a\.b'"):
        Event({"a": {"b": value}})


@pytest.mark.parametrize("tree", [[], 5, "x", None, True])
def test_only_objects_are_events(tree: Any) -> None:
    with pytest.raises(EventError, match="must be a JSON object"):
        Event(tree)


def test_keys_are_strings() -> None:
    with pytest.raises(EventError, match="must be a string"):
        Event({"a": {5: 1}})


def test_depth_is_limited() -> None:
    tree: Any = 1
    for _ in range(MAX_EVENT_DEPTH - 1):
        tree = [tree]
    assert Event({"a": tree}).leaves == {"a": [1]}
    with pytest.raises(EventError, match="nests deeper"):
        Event({"a": [tree]})


def test_time_zones_become_utc() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=2))
    assert iso_text(datetime.datetime(2026, 1, 1, 1, tzinfo=zone)) == "2025-12-31T23:00:00.000000000Z"
    with pytest.raises(EventError, match="outside the years"):
        iso_text(datetime.datetime(1, 1, 1, tzinfo=zone))


def elements(tree: Any, path: str) -> list[Any]:
    return [getattr(element, "tree", getattr(element, "leaf", None)) for element in Event(tree).elements(path)]


def test_elements_see_all_spellings() -> None:
    assert elements({"a": [{"x": 1}, [2, None]]}, "a") == [{"x": 1}, 2, None]
    assert elements({"a": {"b": {"x": 1}}, "a.b": {"y": 2}}, "a.b") == [{"x": 1, "y": 2}]
    assert elements({"a.b.x": 1, "a": {"b": [{"y": 1}, {"y": 2}]}}, "a.b") == [{"y": 1, "x": 1}, {"y": 2, "x": 1}]
    assert elements({"a": 5, "a.y": 2}, "a") == [5, {"y": 2}]
    assert elements({"a": {"x": 1}, "b": 2}, "c") == []


def test_too_many_spellings_are_refused() -> None:
    many = [{"x": i} for i in range(200)]
    with pytest.raises(EventError, match="too many ways"):
        Event({"a": {"b": many}, "a.b": many}).elements("a.b")
