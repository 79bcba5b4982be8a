"""Which strings are times, and which instants they mean: against Python's own reading, and a slow one of our own."""

from __future__ import annotations

import datetime
import pickle
import weakref
from fractions import Fraction

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siftline.model import (
    Event,
    Now,
    Predicate,
    Timestamp,
    compare,
    evaluate,
    instant_of,
    instant_of_text,
    semantics,
    text_of_instant,
)
from siftline.model.timestamp import FIRST_INSTANT, LAST_INSTANT, SECOND

UTC = datetime.UTC
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)

digits = st.text("0123456789", min_size=1, max_size=12)
zones = st.one_of(
    st.sampled_from(["", "Z", "z", "+00:00", "-00:00"]),
    st.builds("{}{:02d}:{:02d}".format, st.sampled_from("+-"), st.integers(0, 23), st.integers(0, 59)),
)
moments = st.datetimes() | st.sampled_from([datetime.datetime.min, datetime.datetime.max])


def slow_instant(moment: datetime.datetime, fraction: str, zone: str) -> int | None:
    """Add up days, seconds and the fraction as exact numbers."""
    days = sum(366 if is_leap(year) else 365 for year in range(1, moment.year))
    days += sum(days_in_month(moment.year, month) for month in range(1, moment.month)) + moment.day - 1
    seconds = days * 86_400 + moment.hour * 3_600 + moment.minute * 60 + moment.second - 62_135_596_800
    if len(zone) > 1:
        seconds -= (60 * int(zone[1:3]) + int(zone[4:6])) * 60 * (-1 if zone[0] == "-" else 1)
    nanoseconds = int(Fraction(f"0.{fraction}") * 10**9) if fraction else 0
    instant = seconds * 10**9 + nanoseconds
    return instant if FIRST_INSTANT <= instant <= LAST_INSTANT else None


def is_leap(year: int) -> bool:
    return year % 400 == 0 or (year % 4 == 0 and year % 100 != 0)


def days_in_month(year: int, month: int) -> int:
    return (31, 28 + is_leap(year), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month - 1]


@given(moments, st.sampled_from("Tt "), st.none() | digits, zones)
def test_every_spelling(moment: datetime.datetime, between: str, fraction: str | None, zone: str) -> None:
    text = moment.strftime("%H:%M:%S") + ("" if fraction is None else f".{fraction}") + zone
    assert instant_of_text(f"{moment.date()}{between}{text}") == slow_instant(moment, fraction or "", zone)


@given(st.datetimes(timezones=st.just(UTC)))
def test_what_python_writes_and_reads(moment: datetime.datetime) -> None:
    instant = instant_of_text(moment.isoformat())
    assert instant == (moment - EPOCH) // datetime.timedelta(microseconds=1) * 1_000
    assert instant is not None
    assert datetime.datetime.fromisoformat(text_of_instant(instant)) == moment
    assert instant_of(moment) == instant_of(moment.replace(tzinfo=None)) == instant


@given(st.text("0123456789-:. TtZz+", max_size=32) | st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}.{0,12}"))
def test_what_is_read_is_what_python_reads(text: str) -> None:
    """Python also reads dates by weeks, commas, hours alone and such; none of it otherwise than here."""
    instant = instant_of_text(text)
    if instant is None or ":60" in text:
        return
    head, point, tail = text.partition(".")
    n_digits = len(tail) - len(tail.lstrip("0123456789"))
    python = datetime.datetime.fromisoformat(head + point + (tail[:n_digits][:6] if point else "") + tail[n_digits:])
    python = python if python.tzinfo else python.replace(tzinfo=UTC)
    assert instant // 1_000 == (python - EPOCH) // datetime.timedelta(microseconds=1)


@pytest.mark.parametrize(
    "text",
    [
        *("", "2026", "2026-01", "2026-1-31", "2026-13-01", "2026-02-29", "2026-00-01", "2026-01-00", "0000-01-01"),
        *("2026-01-31Z", "2026-01-31T", "2026-01-31T10", "2026-01-31T10Z", "2026-01-31T24:00", "2026-01-31T10:60"),
        *("2026-01-31T10:00:", "2026-01-31T10:00:61", "2026-01-31T10:00:00.", "2026-01-31T10:00:00,5Z"),
        *("2026-01-31T10:00:00.Z", "2026-01-31T10:00.5Z", "2026-01-31T10:00:00+01", "2026-01-31T10:00:00+0100"),
        *("2026-01-31T10:00:00+24:00", "2026-01-31T10:00:00+01:60", "2026-01-31T10:00:00 Z", "2026-01-31T10:00:00ZZ"),
        *(
            " 2026-01-31",
            "2026-01-31 ",
            "2026-01-31\n",
            "2026-01-31_10:00",
            "\uff12026-01-31",
            "+2026-01-31",
            "20260131",
        ),
        *("0001-01-01T00:00:00+00:01", "9999-12-31T23:59:60Z", "9999-12-31T23:59:00-00:01", "2026-01-31T1a:00"),
    ],
)
def test_what_is_no_time(text: str) -> None:
    assert instant_of_text(text) is None


def test_long_texts_are_read_and_not_remembered() -> None:
    long = f"2026-01-31T10:00:00.5{'0' * 100_000}Z"
    reference = weakref.ref(text := Text(long))
    assert instant_of_text(text) == instant_of_text("2026-01-31T10:00:00.5Z")
    del text
    assert reference() is None
    n_remembered = semantics._remembered_address.cache_info().currsize
    assert compare("x" * 100_000, "cidr", "10.0.0.0/8") is None
    assert semantics._remembered_address.cache_info().currsize == n_remembered


class Text(str):
    """A string that tells whether somebody keeps it."""


def test_decisions() -> None:
    assert instant_of_text("2016-12-31T23:59:60.5Z") == instant_of_text("2017-01-01T00:00:00.5Z")
    assert instant_of_text("2026-01-31T10:00:00.9999999999Z") == instant_of_text("2026-01-31T10:00:00.999999999Z")
    assert instant_of_text("2026-01-31") == instant_of_text("2026-01-31T00:00:00Z")
    assert instant_of_text("0001-01-01") == FIRST_INSTANT
    assert instant_of_text("9999-12-31T23:59:59.999999999Z") == LAST_INSTANT


def test_timestamps_of_python_numpy_and_pandas() -> None:
    instant = instant_of_text("2026-01-31T10:00:00.000000001Z")
    assert instant_of(np.datetime64("2026-01-31T10:00:00.000000001")) == instant
    assert instant_of(pandas.Timestamp("2026-01-31T11:00:00.000000001+01:00")) == instant
    zone = datetime.timezone(datetime.timedelta(hours=-5))
    assert instant_of(datetime.datetime(2026, 1, 31, 5, tzinfo=zone)) == instant_of_text("2026-01-31T10:00Z")
    assert [instant_of(value) for value in (pandas.NaT, datetime.date(2026, 1, 31), "2026-01-31", 5)] == [None] * 4


def test_constants_print_compare_and_travel() -> None:
    early, late = Timestamp(0), Timestamp(1_500_000_000)
    assert [str(early), str(late)] == ["timestamp '1970-01-01T00:00:00Z'", "timestamp '1970-01-01T00:00:01.5Z'"]
    day = datetime.timedelta(days=1)
    texts = [Now(), Now() - day, Now() + 8 * day, Now(-1), Now(60 * SECOND), Now(-90_061 * SECOND)]
    assert [str(now) for now in texts] == [
        "now()",
        "now() - interval '1 day'",
        "now() + interval '8 days'",
        "now() - interval '0.000000001 seconds'",
        "now() + interval '1 minute'",
        "now() - interval '1 day 1 hour 1 minute 1 second'",
    ]
    assert early < late
    assert len({early, Timestamp(0), Now(), Now(0), 0}) == 3
    assert [pickle.loads(pickle.dumps(value)) for value in (late, *texts)] == [late, *texts]
    assert Now() - pandas.Timedelta(1, "ns") == Now(-1)
    with pytest.raises(TypeError, match="timedelta"):
        Now() + 5  # type: ignore[operator]


def test_one_event_has_one_now() -> None:
    event = Event({"at": [{"x": "1970-01-01"}], "y": "1970-01-01"}, 0)
    assert evaluate(Predicate("y", "=", Now()), event) is True
    assert all(element.now == 0 for element in event.elements("at"))
    lazy = Event({})
    assert lazy.now == lazy.now
