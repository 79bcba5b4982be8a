"""Conditions written in Python: `attr("price") <= 580` instead of text.

>>> (attr("model") == "iphone5s") & (attr("price") <= 580)
And((Predicate('model', '=', 'iphone5s'), Predicate('price', '<=', 580)))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from siftline.errors import EventError, SubscriptionError
from siftline.model import THIS, AnyElement, Expression, Now, Predicate, Timestamp, instant_of, leaf_of

if TYPE_CHECKING:
    import datetime
    import decimal
    import enum
    from collections.abc import Iterable

    from siftline.model import Constant, Moment

    Value = Constant | Moment | datetime.date | decimal.Decimal | enum.Enum

__all__ = ["Attribute", "attr", "now", "this"]

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

    def __eq__(self, value: Value) -> Predicate:  # type: ignore[override]
        return self._one("=", value)

    def __ne__(self, value: Value) -> Predicate:  # type: ignore[override]
        return self._one("!=", value)

    def __lt__(self, value: Value) -> Predicate:
        return self._one("<", value)

    def __le__(self, value: Value) -> Predicate:
        return self._one("<=", value)

    def __gt__(self, value: Value) -> Predicate:
        return self._one(">", value)

    def __ge__(self, value: Value) -> Predicate:
        return self._one(">=", value)

    def is_in(self, values: Iterable[Value]) -> Predicate:
        """Ask that some element is one of the values.

        >>> attr("color").is_in(["red", "blue"])
        Predicate('color', 'in', ('red', 'blue'))
        """
        return self._many("in", values)

    def not_in(self, values: Iterable[Value]) -> Predicate:
        """Ask that some element is none of the values."""
        return self._many("not in", values)

    def between(self, low: Value, high: Value) -> Predicate:
        """Ask that some element lies between the bounds, both included.

        >>> attr("price").between(10, 20)
        Predicate('price', 'between', (10, 20))
        """
        return self._many("between", (low, high))

    def not_between(self, low: Value, high: Value) -> Predicate:
        """Ask that some element lies outside the bounds."""
        return self._many("not between", (low, high))

    def starts_with(self, prefix: str) -> Predicate:
        """Ask that some element begins with a string."""
        return self._one("starts with", prefix)

    def not_starts_with(self, prefix: str) -> Predicate:
        """Ask that some element does not begin with a string."""
        return self._one("not starts with", prefix)

    def ends_with(self, suffix: str) -> Predicate:
        """Ask that some element ends with a string."""
        return self._one("ends with", suffix)

    def not_ends_with(self, suffix: str) -> Predicate:
        """Ask that some element does not end with a string."""
        return self._one("not ends with", suffix)

    def contains(self, part: str) -> Predicate:
        """Ask that some element holds a string as a part."""
        return self._one("contains", part)

    def not_contains(self, part: str) -> Predicate:
        """Ask that some element does not hold a string as a part."""
        return self._one("not contains", part)

    def like(self, pattern: str) -> Predicate:
        """Ask that some element fits a pattern of ``%`` and ``_``."""
        return self._one("like", pattern)

    def not_like(self, pattern: str) -> Predicate:
        """Ask that some element does not fit a pattern."""
        return self._one("not like", pattern)

    def ilike(self, pattern: str) -> Predicate:
        """Ask that some element fits a pattern, upper and lower case being the same."""
        return self._one("ilike", pattern)

    def not_ilike(self, pattern: str) -> Predicate:
        """Ask that some element does not fit a pattern, upper and lower case being the same."""
        return self._one("not ilike", pattern)

    def matches(self, regex: str) -> Predicate:
        """Ask that some element holds a match of a regular expression."""
        return self._one("matches", regex)

    def not_matches(self, regex: str) -> Predicate:
        """Ask that some element holds no match of a regular expression."""
        return self._one("not matches", regex)

    def cidr(self, network: str) -> Predicate:
        """Ask that some element is an address of a network."""
        return self._one("cidr", network)

    def not_cidr(self, network: str) -> Predicate:
        """Ask that some element is an address outside a network."""
        return self._one("not cidr", network)

    def is_null(self) -> Predicate:
        """Ask that the attribute is absent, null, or an empty array."""
        return Predicate(self.path, "is null")

    def is_not_null(self) -> Predicate:
        """Ask that the attribute has a value."""
        return Predicate(self.path, "is not null")

    def exists(self) -> Predicate:
        """Ask that the attribute has a value or an explicit null."""
        return Predicate(self.path, "exists")

    def any(self, expression: Expression) -> AnyElement:
        """Ask that some element of this array satisfies the whole expression; paths inside begin at the element.

        >>> attr("items").any((attr("sku") == "x") & (attr("qty") > 2))
        AnyElement('items', And((Predicate('sku', '=', 'x'), Predicate('qty', '>', 2))))
        """
        if self.path is None:
            raise SubscriptionError("'any this' has no meaning: nested arrays count as one")
        if not isinstance(expression, Expression):
            raise TypeError(f"any() takes an Expression, not {type(expression).__name__}")
        return AnyElement(self.path, expression)

    def _one(self, op: str, value: Value) -> Predicate:
        return Predicate(self.path, op, _constant(value))

    def _many(self, op: str, values: Iterable[Value]) -> Predicate:
        if isinstance(values, str):
            raise TypeError(f"'{op}' takes a list of constants, not a string")
        return Predicate(self.path, op, tuple(map(_constant, values)))


def _constant(value: Value) -> Any:
    """Return dates, NumPy scalars, enumerations and the like as the constant that an event would hold instead."""
    if type(value) in _CONSTANTS:
        return value
    if value is None:
        raise SubscriptionError("null cannot be compared", hint="write attr(…).is_null() or .is_not_null()")
    if isinstance(value, Attribute):
        raise SubscriptionError("two attributes cannot be compared")
    try:
        instant = instant_of(value)
        if instant is not None:
            return Timestamp(instant)
        return leaf_of(value, "constant")
    except EventError as error:
        raise SubscriptionError(str(error).removeprefix("attribute 'constant': ")) from None


this: Final = Attribute(THIS)
