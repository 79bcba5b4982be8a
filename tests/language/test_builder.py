"""Conditions built in Python are those that the text language writes."""

from __future__ import annotations

import datetime
import decimal
import enum
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from siftline.errors import SubscriptionError
from siftline.language.builder import any_string, attr, now, this
from siftline.language.text import parse
from siftline.model import OPERATORS, Expression, Predicate
from siftline.model.predicate import CASELESS

if TYPE_CHECKING:
    from collections.abc import Callable

price = attr("price")
wrong: Any = price


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (price == 1, "price = 1"),
        (price == True, "price = true"),  # noqa: E712
        (price != "x", "price != 'x'"),
        (price < 1.5, "price < 1.5"),
        (price <= 1, "price <= 1"),
        (price > 1, "price > 1"),
        (price >= 1, "price >= 1"),
        (1 < price, "price > 1"),  # noqa: SIM300
        (price == decimal.Decimal("19.99"), "price = 19.99"),
        (price.between(decimal.Decimal("5"), decimal.Decimal("1E1")), "price between 5 and 10.0"),
        (price > now(), "price > now()"),
        (price.between(now() - datetime.timedelta(1), now()), "price between now() - interval '1 day' and now()"),
        (price.is_in([1, "x"]), "price in (1, 'x')"),
        (price.is_in([]), "price in ()"),
        (price.not_in({1}), "price not in (1)"),
        (price.between(1, 2), "price between 1 and 2"),
        (price.not_between("a", "b"), "price not between 'a' and 'b'"),
        (price.starts_with("x"), "price starts with 'x'"),
        (price.not_starts_with("x"), "price not starts with 'x'"),
        (price.ends_with("x"), "price ends with 'x'"),
        (price.not_ends_with("x"), "price not ends with 'x'"),
        (price.contains("x"), "price contains 'x'"),
        (price.not_contains("x"), "price not contains 'x'"),
        (price.like("x%"), "price like 'x%'"),
        (price.not_like("x%"), "price not like 'x%'"),
        (price.ilike("x%"), "price ilike 'x%'"),
        (price.not_ilike("x%"), "price not ilike 'x%'"),
        (price.matches("^x"), "price matches '^x'"),
        (price.not_matches("^x"), "price not matches '^x'"),
        (price.cidr("10.0.0.0/8"), "price cidr '10.0.0.0/8'"),
        (price.not_cidr("10.0.0.0/8"), "price not cidr '10.0.0.0/8'"),
        (price.is_null(), "price is null"),
        (price.is_not_null(), "price is not null"),
        (price.exists(), "exists price"),
        (attr("a b.not").is_null(), '"a b.not" is null'),
        (attr("x").any((attr("y") == 1) & (this > 2)), "any x (y = 1 and this > 2)"),
        (price > attr("limit"), "price > limit"),
        (price == attr("limit") + 5, "price = limit + 5"),
        (price <= attr("a b") - 2.5, 'price <= "a b" - 2.5'),
        (attr("limit") - decimal.Decimal("5") < price, "price > limit - 5"),
        (price.length() > 5, "length(price) > 5"),
        (price.length().not_in([1, 2]), "length(price) not in (1, 2)"),
        (attr("x").any(this.length().between(1, 2)), "any x (length(this) between 1 and 2)"),
        (price.ignoring_case() == "x", "price = 'x' ignoring case"),
        (price.ignoring_case() != "x", "price != 'x' ignoring case"),
        (price.ignoring_case().is_in(["x", "y"]), "price in ('x', 'y') ignoring case"),
        (price.ignoring_case().not_in(["x"]), "price not in ('x') ignoring case"),
        (any_string.contains("x"), "any string contains 'x'"),
        (any_string != "x", "any string != 'x'"),
        (any_string.ignoring_case().not_ends_with("x"), "any string not ends with 'x' ignoring case"),
        (
            (price == 1) & (price == 2) & ~((price == 3) | (price == 4)),
            "price = 1 and price = 2 and not (price = 3 or price = 4)",
        ),
    ],
)
def test_same_as_text(built: Expression, text: str) -> None:
    assert built == parse(text)


def test_every_operator_can_be_built() -> None:
    built = {price.is_null().op, price.is_not_null().op, price.exists().op, price.is_in([1]).op, price.not_in([1]).op}
    built |= {(price == 1).op, (price != 1).op, (price < 1).op, (price <= 1).op, (price > 1).op, (price >= 1).op}
    built |= {price.between(1, 2).op, price.not_between(1, 2).op}
    for op in OPERATORS - built - CASELESS:
        method = getattr(price, op.replace(" ", "_"))
        assert method("10.0.0.0/8") == Predicate("price", op, "10.0.0.0/8")
    for op in CASELESS:
        positive = op.removesuffix(" ignoring case")
        if positive not in built:
            method = getattr(price.ignoring_case(), positive.replace(" ", "_"))
            assert method("X") == Predicate("price", op, "X")


@pytest.mark.parametrize(
    "make",
    [
        *(lambda: price.ignoring_case() < "x", lambda: price.ignoring_case().like("x"), lambda: any_string.is_null()),
        *(lambda: price.ignoring_case() == 5, lambda: any_string == 5, lambda: price.length() == "x"),
        *(lambda: price.length().exists(), lambda: price.length().ignoring_case() == 5, lambda: price.is_in([wrong])),
        *(lambda: price.length() > price, lambda: price > price.length(), lambda: any_string > price),
        *(lambda: price.contains(wrong), lambda: price.between(wrong, wrong), lambda: price > this),
        *(lambda: this > price, lambda: wrong + "x", lambda: price.length().any(price == 1)),
        *(lambda: price + True, lambda: price.contains(price + 5)),  # type: ignore[arg-type]
    ],
)
def test_impossible_combinations(make: Callable[[], object]) -> None:
    with pytest.raises(SubscriptionError):
        make()


def test_what_stands_for_attributes_is_shown() -> None:
    shown = price, this, any_string.ignoring_case(), price.length()
    assert list(map(repr, shown)) == ["attr('price')", "this", "any_string.ignoring_case()", "attr('price').length()"]


class Color(enum.StrEnum):
    RED = "red"


class Plain(enum.Enum):
    BLUE = "blue"
    SEVEN = 7
    DAY = datetime.date(2026, 1, 31)
    NOTHING = None
    PAIR = (1, 2)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime.date(2026, 1, 31), "date '2026-01-31'"),
        (datetime.datetime(2026, 1, 31, 10, tzinfo=datetime.UTC), "timestamp '2026-01-31T10:00Z'"),
        (np.int64(5), "5"),
        (np.float64(0.5), "0.5"),
        (np.bool_(True), "true"),
        (np.float32(0.5), "0.5"),
        (np.str_("x"), "'x'"),
        (np.datetime64("2026-01-31T10:00"), "timestamp '2026-01-31T10:00Z'"),
        (np.datetime64("2026-01-31"), "timestamp '2026-01-31'"),
        (Color.RED, "'red'"),
        (Plain.BLUE, "'blue'"),
        (Plain.SEVEN, "7"),
        (Plain.DAY, "date '2026-01-31'"),
    ],
)
def test_constants_that_stand_for_others(value: object, text: str) -> None:
    built = price == value
    assert built == parse(f"price = {text}")
    assert type(built.operand) is type(parse(f"price = {text}").operand)  # type: ignore[attr-defined]


def test_enumerations_in_every_method() -> None:
    assert price.is_in([Plain.BLUE, 5]) == price.is_in(["blue", 5])
    assert price.between(Plain.SEVEN, 9) == price.between(7, 9)
    assert (price < Plain.SEVEN) == (price < 7)


@pytest.mark.parametrize(
    "value",
    [
        *(None, float("nan"), 2**63, b"x", [1], object(), Plain.NOTHING, Plain.PAIR),
        *(np.timedelta64(1, "s"), np.complex128(1), np.bytes_(b"x"), np.array([1, 2])),
    ],
)
def test_impossible_constants(value: object) -> None:
    with pytest.raises(SubscriptionError):
        price == value  # noqa: B015


def test_null_is_refused_with_a_hint() -> None:
    with pytest.raises(SubscriptionError) as caught:
        price == None  # noqa: B015, E711
    assert "is null" in (caught.value.hint or "")


def test_misuse() -> None:
    with pytest.raises(TypeError, match="a path is a string"):
        attr(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a path is a string, not int"):
        attr(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not a string"):
        price.is_in("abc")
    with pytest.raises(TypeError, match="takes an Expression"):
        price.any("b = 1")  # type: ignore[arg-type]
    with pytest.raises(SubscriptionError, match="not about this"):
        this.any(price == 1)
    with pytest.raises(TypeError, match="truth value"):
        bool(price)
    with pytest.raises(TypeError, match="truth value"):
        assert 1 < price < 5  # Python would silently drop a bound
    with pytest.raises(TypeError, match="unhashable"):
        hash(price)


def test_repr() -> None:
    assert repr(price) == "attr('price')"
    assert repr(this) == "this"


def test_decimals_without_a_meaning() -> None:
    with pytest.raises(SubscriptionError, match="too large for a double"):
        assert price == decimal.Decimal("1E400")
    with pytest.raises(SubscriptionError, match="64 bits"):
        assert price == decimal.Decimal(2**70)
