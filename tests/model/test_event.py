"""Events: what becomes a leaf, and what is refused."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
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
        (decimal.Decimal("19.99"), 19.99),
        (decimal.Decimal("5.00"), 5.0),
        (decimal.Decimal("9007199254740993"), 2**53 + 1),
        (decimal.Decimal("9007199254740993.0"), float(2**53)),
        (decimal.Decimal("1" + "0" * 400), 10**400),
        (decimal.Decimal("1E+30"), 1e30),
        (decimal.Decimal("-1E-400"), 0.0),
        (decimal.Decimal("-Infinity"), None),
        (decimal.Decimal("sNaN"), None),
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
    decimal.Decimal("-1E+400"),
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


def test_a_decimal_means_what_its_digits_mean_in_json() -> None:
    for text in (
        "19.99",
        "20",
        "20.0",
        "1E2",
        "0.1",
        "9007199254740993",
        "9007199254740993.0",
        "-0.0",
        "5e-324",
        "1e22",
    ):
        (leaf,) = Event({"a": decimal.Decimal(text)}).leaves["a"]
        assert (type(leaf), leaf) == (type(json.loads(text)), json.loads(text))
    with pytest.raises(EventError, match=r"the decimal 1E\+400 is too large for a double"):
        Event({"a": decimal.Decimal("1E400")})


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
