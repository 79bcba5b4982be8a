"""Predicates about more than the values of one attribute: two attributes, all strings of an event, lengths of strings.

Each is a leaf of an expression, as a `Predicate` is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from siftline.errors import SubscriptionError
from siftline.model.expression import Expression
from siftline.model.predicate import (
    COMPARISONS,
    PRESENCES,
    RANGES,
    SETS,
    check_constant,
    checked_operand,
    constants_of,
    kind_of,
)

if TYPE_CHECKING:
    from siftline.model.predicate import Operand

# What a length, which is a number, can be asked for.
_NUMBER_TESTS: Final = COMPARISONS | SETS | RANGES


class AttributeComparison(Expression):
    """A comparison of two attributes, as in `a > b` and `a > b + 5`.

    Parameters
    ----------
    attribute : str
        The attribute on the left, a dotted path.
    op : str
        One of `=`, `!=`, `<`, `<=`, `>`, `>=`.
    other : str
        The attribute on the right.
    offset : int, float or None
        What is added to the other attribute; with an offset, even 0, only numbers are compared.

    Examples
    --------
    >>> AttributeComparison("price", "<", "limit", -5)
    AttributeComparison('price', '<', 'limit', -5)
    """

    __slots__ = ("attribute", "offset", "op", "other")
    __match_args__ = ("attribute", "op", "other", "offset")

    attribute: str
    op: str
    other: str
    offset: int | float | None

    def __init__(self, attribute: str | None, op: str, other: str | None, offset: int | float | None = None) -> None:
        if op not in COMPARISONS:
            raise SubscriptionError(f"'{op}' does not compare two attributes", hint="=, !=, <, <=, > and >= do")
        if attribute is None or other is None:
            raise SubscriptionError("'this' is compared with constants only", hint="two attributes have names")
        if offset is not None:
            check_constant(offset)
            if kind_of(offset) != "number":
                raise SubscriptionError(f"an offset is a number, not a {kind_of(offset)}")
        self.__setstate__((attribute, op, other, offset))


class _Test(Expression):
    """An operator and its constants."""

    __slots__ = ("op", "operand")

    op: str
    operand: Operand


class AnyString(_Test):
    """Some string of the event, whichever attribute it belongs to, satisfies a test; inside `any`, of the element.

    Parameters
    ----------
    op : str
        Any operator but those of presence.
    operand : str or tuple of str
        As a `Predicate` has it.

    Examples
    --------
    >>> AnyString("contains", "error")
    AnyString('contains', 'error')
    """

    __slots__ = ()
    __match_args__ = ("op", "operand")

    def __init__(self, op: str, operand: Operand = None) -> None:
        if op in PRESENCES:
            raise SubscriptionError(f"'{op}' tests an attribute, not all strings")
        operand = checked_operand(op, operand)
        for constant in constants_of(operand):
            if not isinstance(constant, str):
                raise SubscriptionError(f"'any string' is compared with strings, not with a {kind_of(constant)}")
        self.__setstate__((op, operand))


class Length(_Test):
    """A test of the number of code points of each string of an attribute, as in `length(name) > 5`.

    Parameters
    ----------
    attribute : str or None
        Dotted path; None (`THIS`) is the element itself inside `any`.
    op : str
        A comparison, `in`, `between`, or one of their negative forms.
    operand : number or tuple of numbers
        As a `Predicate` has it.

    Examples
    --------
    >>> Length("name", "between", (3, 5))
    Length('name', 'between', (3, 5))
    """

    __slots__ = ("attribute",)
    __match_args__ = ("attribute", "op", "operand")

    attribute: str | None

    def __init__(self, attribute: str | None, op: str, operand: Operand = None) -> None:
        if op not in _NUMBER_TESTS:
            raise SubscriptionError(f"a length is a number, which '{op}' does not test")
        operand = checked_operand(op, operand)
        for constant in constants_of(operand):
            if kind_of(constant) != "number":
                raise SubscriptionError(f"a length is compared with numbers, not with a {kind_of(constant)}")
        self.__setstate__((attribute, op, operand))
