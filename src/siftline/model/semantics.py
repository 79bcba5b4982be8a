"""What a match is: the specification of LANGUAGE.md, made executable. Every index gives exactly these answers.

Truth is three-valued: True, False, or None for unknown. Only True matches.
"""

from __future__ import annotations

import ipaddress
import re
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from siftline.model.derived import AnyString, AttributeComparison, Length
from siftline.model.expression import And, AnyElement, Expression, IsTrue, Not, Or
from siftline.model.predicate import IGNORING_CASE, POSITIVE_OF, Predicate, compile_regex, kind_of, parse_network
from siftline.model.timestamp import Now, Timestamp, instant_of_text
from siftline.model.wildcard import fold, like

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from siftline.model.event import Element, Event, Leaf
    from siftline.model.predicate import Constant, Moment, Operand

Truth = bool | None

# Longer strings are read again each time: remembered, thousands of them might fill the memory.
_MOST_REMEMBERED = 64
_SURROGATE = re.compile("[\ud800-\udfff]")


def matches(expression: Expression, event: Event) -> bool:
    """Return whether the event satisfies the expression.

    >>> from siftline.model import Event, Predicate
    >>> matches(Predicate("price", "<=", 580), Event({"price": 550}))
    True
    """
    return evaluate(expression, event) is True


def evaluate(expression: Expression, event: Event | Element) -> Truth:
    """Return True, False, or None (unknown)."""
    match expression:
        case Predicate():
            return _predicate(expression, event)
        case And(operands):
            return _all(evaluate(operand, event) for operand in operands)
        case Or(operands):
            return _any(evaluate(operand, event) for operand in operands)
        case Not(operand):
            truth = evaluate(operand, event)
            return None if truth is None else not truth
        case IsTrue(operand):
            return evaluate(operand, event) is True
        case AnyElement(attribute, operand):
            return _some(evaluate(operand, element) for element in event.elements(attribute))
        case AttributeComparison():
            return _attribute_comparison(expression, event)
        case AnyString(op, operand):
            return _some(compare(text, op, operand) for text in event.strings())
        case Length(attribute, op, operand):
            texts = (leaf for leaf in event.values(attribute) if isinstance(leaf, str))
            return _some(compare(len(text), op, operand) for text in texts)
    raise NotImplementedError(f"{type(expression).__name__} needs the operator layer")


def _all(truths: Iterable[Truth]) -> Truth:
    result: Truth = True
    for truth in truths:
        if truth is False:
            return False
        if truth is None:
            result = None
    return result


def _any(truths: Iterable[Truth]) -> Truth:
    result: Truth = False
    for truth in truths:
        if truth is True:
            return True
        if truth is None:
            result = None
    return result


def _some(truths: Iterable[Truth]) -> Truth:
    """Combine the truths of elements: true if any is true, else false if any is false, else unknown."""
    result: Truth = None
    for truth in truths:
        if truth is True:
            return True
        if truth is False:
            result = False
    return result


def _predicate(predicate: Predicate, event: Event | Element) -> Truth:
    leaves = event.values(predicate.attribute)
    op, operand = predicate.op, predicate.operand
    if op == "exists":
        return bool(leaves)
    if op == "is null":
        return all(leaf is None for leaf in leaves)
    if op == "is not null":
        return any(leaf is not None for leaf in leaves)
    return _some(compare(leaf, op, operand, event.now) for leaf in leaves if leaf is not None)


def _attribute_comparison(comparison: AttributeComparison, event: Event | Element) -> Truth:
    """Compare every value of one attribute with every value of another that is of its kind."""
    op, offset = comparison.op, comparison.offset
    left, right = _by_kind(event.values(comparison.attribute)), _by_kind(event.values(comparison.other))
    kinds = ["number"]
    if offset is not None:
        right["number"] = [_sum(value, offset) for value in right["number"]]
    else:
        kinds += ["string", "boolean"] if op in ("=", "!=") else ["string"]
    return _some(_some_pair(left[kind], op, right[kind]) for kind in kinds)


def _by_kind(leaves: Sequence[Leaf]) -> dict[str, list[Any]]:
    values: dict[str, list[Any]] = {"number": [], "string": [], "boolean": []}
    for leaf in leaves:
        if leaf is not None:
            values[kind_of(leaf)].append(leaf)
    return values


def _sum(value: int | float, offset: int | float) -> int | Fraction:
    """Return the exact sum: a double is the number that it stands for, and nothing is rounded."""
    if isinstance(value, int) and isinstance(offset, int):
        return value + offset
    return Fraction(value) + Fraction(offset)


def _some_pair(left: Sequence[Any], op: str, right: Sequence[Any]) -> Truth:
    """Return whether some pair of values of one kind satisfies a comparison; unknown if there is no pair.

    The extremes decide, so that two arrays of many elements take no longer than to read them.
    """
    if not left or not right:
        return None
    match op:
        case "=":
            return not set(left).isdisjoint(right)
        case "!=":
            return len({*left, *right}) > 1
        case "<":
            return bool(min(left) < max(right))
        case "<=":
            return bool(min(left) <= max(right))
        case ">":
            return bool(max(left) > min(right))
    return bool(max(left) >= min(right))


def compare(leaf: Leaf, op: str, operand: Operand, now: int = 0) -> Truth:
    """Compare one value with the constants of a predicate; unknown if it cannot be compared with any.

    A string is compared with strings as it is, and with timestamps as the instant that it means, if it is a time. `now`
    is what `now()` means.

    >>> compare(9007199254740993, "=", 9007199254740992.0), compare("1", "=", 1)
    (False, None)
    >>> compare("1970-01-01", "=", Timestamp(0)), compare("first of January", "=", Timestamp(0))
    (True, None)
    """
    positive = POSITIVE_OF.get(op, op)
    truth = _compare(leaf, positive, operand, now)
    return truth if positive == op or truth is None else not truth


def _compare(leaf: Leaf, op: str, operand: Operand, now: int) -> Truth:
    value: Any
    if op.endswith(IGNORING_CASE):
        value = fold(leaf) if isinstance(leaf, str) else leaf
        return _compare(value, op.removesuffix(IGNORING_CASE), _folded(operand), now)
    if op == "in":
        return _in(leaf, operand, now)  # type: ignore[arg-type]
    if op == "between":
        low, high = operand  # type: ignore[misc, str-unpack]
        value = _seen_by(low, leaf)
        return None if value is None else _value(low, now) <= value <= _value(high, now)
    value, constant = _seen_by(operand, leaf), _value(operand, now)
    if value is None:
        return None
    match op:
        case "=":
            return bool(value == constant)
        case "<":
            return bool(value < constant)
        case "<=":
            return bool(value <= constant)
        case ">":
            return bool(value > constant)
        case ">=":
            return bool(value >= constant)
    return _text_test(value, op, constant)


@lru_cache(maxsize=4096)
def _folded(operand: Any) -> Any:
    return tuple(map(fold, operand)) if isinstance(operand, tuple) else fold(operand)


def _in(leaf: Leaf, constants: tuple[Constant | Moment, ...], now: int) -> Truth:
    pairs = [(_seen_by(constant, leaf), _value(constant, now)) for constant in constants]
    comparable = [value == constant for value, constant in pairs if value is not None]
    return any(comparable) if comparable else None


def _seen_by(constant: Any, leaf: Leaf) -> Any:
    """Return a value as a constant is compared with it; None if they cannot be compared."""
    if isinstance(constant, (Timestamp, Now)):
        return instant_of_text(leaf) if isinstance(leaf, str) else None
    return leaf if kind_of(leaf) == kind_of(constant) else None


def _value(constant: Any, now: int) -> Any:
    return constant.at(now) if isinstance(constant, (Timestamp, Now)) else constant


def _text_test(value: str, op: str, operand: str) -> Truth:
    match op:
        case "starts with":
            return value.startswith(operand)
        case "ends with":
            return value.endswith(operand)
        case "contains":
            return operand in value
        case "like":
            return like(value, operand)
        case "ilike":
            return like(fold(value), fold(operand))
        case "matches":
            return compile_regex(operand).search(without_surrogates(value)) is not None
        case "cidr":
            address = _remembered_address(value) if len(value) <= _MOST_REMEMBERED else _address(value)
            return None if address is None else address in parse_network(operand)
    raise ValueError(f"unknown operator {op!r}")


def without_surrogates(value: str) -> str:
    """Return what RE2 sees of a string: it reads UTF-8, in which U+FFFD must stand in for a lone surrogate."""
    return _SURROGATE.sub("\ufffd", value)


def _address(value: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(value)
    except ValueError:
        return None


_remembered_address = lru_cache(maxsize=4096)(_address)
