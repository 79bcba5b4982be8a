"""Conditions written in Python: `attr("price") <= 580` instead of text.

>>> (attr("model") == "iphone5s") & (attr("price") <= 580)
And((Predicate('model', '=', 'iphone5s'), Predicate('price', '<=', 580)))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from siftline.errors import EventError, SubscriptionError
from siftline.model import (
    THIS,
    AnyElement,
    AnyString,
    AttributeComparison,
    Expression,
    Length,
    Now,
    Predicate,
    Timestamp,
    instant_of,
    leaf_of,
)
from siftline.model.predicate import IGNORING_CASE

if TYPE_CHECKING:
    import datetime
    import decimal
    import enum
    from collections.abc import Iterable

    from siftline.model import Constant, Moment

    Value = Constant | Moment | datetime.date | decimal.Decimal | enum.Enum
    # What a comparison or a method makes.
    Test = Predicate | AttributeComparison | AnyString | Length

__all__ = ["Attribute", "any_string", "attr", "now", "this"]

_CONSTANTS: Final = (str, int, float, bool, type(None), Timestamp, Now)


def attr(path: str) -> Attribute:
    """Name an attribute, to build predicates from.

    Parameters
    ----------
    path : str
        The dotted path, as it is: quotes and keywords have no meaning here.

    Examples
    --------
    >>> attr("detail.state").is_in(["running", "pending"])
    Predicate('detail.state', 'in', ('running', 'pending'))
    """
    if not isinstance(path, str):
        raise TypeError(f"a path is a string, not {type(path).__name__}")
    return Attribute(path)


def now() -> Now:
    """Name the instant at which an event is matched, to compare attributes with.

    >>> import datetime
    >>> attr("at") > now() - datetime.timedelta(days=1)
    Predicate('at', '>', Now(offset=-86400000000000))
    """
    return Now()


class Attribute:
    """An attribute of events: comparing it, or calling its methods, makes predicates.

    Constants are booleans, numbers, decimals, strings, dates, timestamps, `now()` and members of enumerations. Combine
    predicates with ``&``, ``|`` and ``~``, each in parentheses, because Python binds these tighter than comparisons.

    Parameters
    ----------
    path : str or None
        Dotted path; None is the element itself inside `any`.
    """

    __slots__ = ("path",)

    def __init__(self, path: str | None) -> None:
        self.path = path

    def __repr__(self) -> str:
        return "this" if self.path is None else f"attr({self.path!r})"

    def __bool__(self) -> bool:
        raise TypeError("an attribute has no truth value: to test a boolean, write attribute == True")

    # `==` makes a predicate, so an attribute can be neither a key nor an element of a set.
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, value: Value | Attribute | _Shifted) -> Test:  # type: ignore[override]
        return self._one("=", value)

    def __ne__(self, value: Value | Attribute | _Shifted) -> Test:  # type: ignore[override]
        return self._one("!=", value)

    def __lt__(self, value: Value | Attribute | _Shifted) -> Test:
        return self._one("<", value)

    def __le__(self, value: Value | Attribute | _Shifted) -> Test:
        return self._one("<=", value)

    def __gt__(self, value: Value | Attribute | _Shifted) -> Test:
        return self._one(">", value)

    def __ge__(self, value: Value | Attribute | _Shifted) -> Test:
        return self._one(">=", value)

    def is_in(self, values: Iterable[Value]) -> Test:
        """Ask that some element is one of the values.

        >>> attr("color").is_in(["red", "blue"])
        Predicate('color', 'in', ('red', 'blue'))
        """
        return self._many("in", values)

    def not_in(self, values: Iterable[Value]) -> Test:
        """Ask that some element is none of the values."""
        return self._many("not in", values)

    def between(self, low: Value, high: Value) -> Test:
        """Ask that some element lies between the bounds, both included.

        >>> attr("price").between(10, 20)
        Predicate('price', 'between', (10, 20))
        """
        return self._many("between", (low, high))

    def not_between(self, low: Value, high: Value) -> Test:
        """Ask that some element lies outside the bounds."""
        return self._many("not between", (low, high))

    def starts_with(self, prefix: str) -> Test:
        """Ask that some element begins with a string."""
        return self._one("starts with", prefix)

    def not_starts_with(self, prefix: str) -> Test:
        """Ask that some element does not begin with a string."""
        return self._one("not starts with", prefix)

    def ends_with(self, suffix: str) -> Test:
        """Ask that some element ends with a string."""
        return self._one("ends with", suffix)

    def not_ends_with(self, suffix: str) -> Test:
        """Ask that some element does not end with a string."""
        return self._one("not ends with", suffix)

    def contains(self, part: str) -> Test:
        """Ask that some element holds a string as a part."""
        return self._one("contains", part)

    def not_contains(self, part: str) -> Test:
        """Ask that some element does not hold a string as a part."""
        return self._one("not contains", part)

    def like(self, pattern: str) -> Test:
        """Ask that some element fits a pattern of ``%`` and ``_``."""
        return self._one("like", pattern)

    def not_like(self, pattern: str) -> Test:
        """Ask that some element does not fit a pattern."""
        return self._one("not like", pattern)

    def ilike(self, pattern: str) -> Test:
        """Ask that some element fits a pattern, upper and lower case being the same."""
        return self._one("ilike", pattern)

    def not_ilike(self, pattern: str) -> Test:
        """Ask that some element does not fit a pattern, upper and lower case being the same."""
        return self._one("not ilike", pattern)

    def matches(self, regex: str) -> Test:
        """Ask that some element holds a match of a regular expression."""
        return self._one("matches", regex)

    def not_matches(self, regex: str) -> Test:
        """Ask that some element holds no match of a regular expression."""
        return self._one("not matches", regex)

    def cidr(self, network: str) -> Test:
        """Ask that some element is an address of a network."""
        return self._one("cidr", network)

    def not_cidr(self, network: str) -> Test:
        """Ask that some element is an address outside a network."""
        return self._one("not cidr", network)

    def is_null(self) -> Test:
        """Ask that the attribute is absent, null, or an empty array."""
        return self._made("is null", None)

    def is_not_null(self) -> Test:
        """Ask that the attribute has a value."""
        return self._made("is not null", None)

    def exists(self) -> Test:
        """Ask that the attribute has a value or an explicit null."""
        return self._made("exists", None)

    def any(self, expression: Expression) -> AnyElement:
        """Ask that some element of this array satisfies the whole expression; paths inside begin at the element.

        >>> attr("items").any((attr("sku") == "x") & (attr("qty") > 2))
        AnyElement('items', And((Predicate('sku', '=', 'x'), Predicate('qty', '>', 2))))
        """
        if self.path is None or type(self) is not Attribute:
            raise SubscriptionError(f"'any' asks about the elements of an attribute, not about {self!r}")
        if not isinstance(expression, Expression):
            raise TypeError(f"any() takes an Expression, not {type(expression).__name__}")
        return AnyElement(self.path, expression)

    def ignoring_case(self) -> Attribute:
        """Return the attribute for tests that ignore case: ``==``, ``!=``, `is_in`, `contains` and their like.

        >>> attr("color").ignoring_case() == "red"
        Predicate('color', '= ignoring case', 'red')
        """
        return _IgnoringCase(self)

    def length(self) -> Attribute:
        """Return the length of each string of the attribute, in code points, to be compared with numbers.

        >>> attr("name").length() > 5
        Length('name', '>', 5)
        """
        return _Length(self.path)

    def __add__(self, number: float | decimal.Decimal) -> _Shifted:
        """Return the attribute with a number added, to compare another attribute with.

        >>> attr("price") < attr("limit") - 5
        AttributeComparison('price', '<', 'limit', -5)
        """
        return _Shifted(self, _number(number))

    def __sub__(self, number: float | decimal.Decimal) -> _Shifted:
        return _Shifted(self, -_number(number))

    def _one(self, op: str, value: Any) -> Test:
        if isinstance(value, (Attribute, _Shifted)):
            return self._compared(op, value if isinstance(value, _Shifted) else _Shifted(value, None))
        return self._made(op, _constant(value))

    def _many(self, op: str, values: Iterable[Value]) -> Test:
        if isinstance(values, str):
            raise TypeError(f"'{op}' takes a list of constants, not a string")
        return self._made(op, tuple(map(_constant, values)))

    def _compared(self, op: str, right: _Shifted) -> AttributeComparison:
        if type(self) is not Attribute or type(right.attribute) is not Attribute:
            raise SubscriptionError("only attributes themselves are compared with each other")
        return AttributeComparison(self.path, op, right.attribute.path, right.offset)

    def _made(self, op: str, operand: Any) -> Test:
        return Predicate(self.path, op, operand)


class _Shifted:
    """An attribute, and the number that is added to it."""

    __slots__ = ("attribute", "offset")

    def __init__(self, attribute: Attribute, offset: int | float | None) -> None:
        self.attribute = attribute
        self.offset = offset


class _Length(Attribute):
    """The lengths of the strings of an attribute."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{super().__repr__()}.length()"

    def _made(self, op: str, operand: Any) -> Test:
        return Length(self.path, op, operand)


class _AnyString(Attribute):
    """All strings of an event."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "any_string"

    def _made(self, op: str, operand: Any) -> Test:
        return AnyString(op, operand)


class _IgnoringCase(Attribute):
    """What another attribute has, in any case."""

    __slots__ = ("_of",)

    def __init__(self, of: Attribute) -> None:
        super().__init__(of.path)
        self._of = of

    def __repr__(self) -> str:
        return f"{self._of!r}.ignoring_case()"

    def _made(self, op: str, operand: Any) -> Test:
        return self._of._made(op + IGNORING_CASE, operand)


def _constant(value: Value) -> Any:
    """Return dates, NumPy scalars, enumerations and the like as the constant that an event would hold instead."""
    if type(value) in _CONSTANTS:
        return value
    if value is None:
        raise SubscriptionError("null cannot be compared", hint="write attr(…).is_null() or .is_not_null()")
    if isinstance(value, (Attribute, _Shifted)):
        raise SubscriptionError("only == != < <= > >= compare two attributes")
    try:
        instant = instant_of(value)
        if instant is not None:
            return Timestamp(instant)
        return leaf_of(value, "constant")
    except EventError as error:
        raise SubscriptionError(str(error).removeprefix("attribute 'constant': ")) from None


def _number(value: Any) -> int | float:
    constant = _constant(value)
    if type(constant) not in (int, float):
        raise SubscriptionError(f"an offset is a number, not {value!r}")
    return constant  # type: ignore[no-any-return]


this: Final = Attribute(THIS)
any_string: Final = _AnyString(None)
