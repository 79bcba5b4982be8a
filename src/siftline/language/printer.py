"""Expressions as text: the inverse of the parser.

`parse(to_text(e)) == e` holds for every expression that the parser can make. What it never makes, and what therefore
reads back differently or not at all: a group of one operand (printed as that operand), `this` outside `any`, a
constraint without a variable, and a text longer than `MAX_TEXT`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from siftline.errors import SubscriptionError
from siftline.language.tokens import ARITHMETIC, KEYWORDS, quoted, write_path, write_right_path, write_variable
from siftline.model import (
    MAX_DEPTH,
    And,
    AnyElement,
    AnyString,
    Arithmetic,
    AttributeComparison,
    Call,
    Constraint,
    Expression,
    IsTrue,
    Length,
    Not,
    Now,
    Or,
    Predicate,
    Timestamp,
    Variable,
    check_size,
)
from siftline.model.predicate import IGNORING_CASE, INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from siftline.model import Constant, Moment, Operand, Term

__all__ = ["to_text"]

# What an expression may be without parentheses: the whole, an operand of `or`, or an operand of `and` and `not`.
_WHOLE: Final = 0
_IN_OR: Final = 1
_IN_AND: Final = 2


def to_text(expression: Expression) -> str:
    """Print an expression in the text language.

    Parameters
    ----------
    expression : Expression

    Returns
    -------
    str
        A text that parses to an equal expression.

    Raises
    ------
    SubscriptionError
        If the expression breaks a limit of size, or a call holds a number that no text can write.

    Examples
    --------
    >>> from siftline.language.text import parse
    >>> to_text(parse("NOT(a<>1 OR b IN('x'))AND c is not null"))
    "not (a != 1 or b in ('x')) and c is not null"
    """
    check_size(expression)
    return _text(expression, _WHOLE)


def _text(expression: Expression, place: int) -> str:
    while isinstance(expression, (And, Or)) and len(expression.operands) == 1:
        expression = expression.operands[0]
    match expression:
        case Predicate():
            return _predicate(expression)
        case And(operands):
            return _group(operands, " and ", _IN_AND, place) or "true"
        case Or(operands):
            return _group(operands, " or ", _IN_OR, place) or "false"
        case Not(IsTrue(operand)):
            return f"({_text(operand, _WHOLE)}) is not true"
        case Not(operand):
            return f"not {_text(operand, _IN_AND)}"
        case IsTrue(operand):
            return f"({_text(operand, _WHOLE)}) is true"
        case AnyElement(attribute, operand):
            return f"any {write_path(attribute)} ({_text(operand, _WHOLE)})"
        case AttributeComparison():
            return _attribute_comparison(expression)
        case AnyString(op, operand):
            return f"any string {_test(op, operand)}"
        case Length(attribute, op, operand):
            return f"length({_name(attribute)}) {_test(op, operand)}"
    return _operator_layer(expression)


def _group(operands: tuple[Expression, ...], connective: str, inside: int, place: int) -> str:
    text = connective.join([_text(operand, inside) for operand in operands])
    return f"({text})" if place >= inside and operands else text


def _predicate(predicate: Predicate) -> str:
    name = _name(predicate.attribute)
    return f"exists {name}" if predicate.op == "exists" else f"{name} {_test(predicate.op, predicate.operand)}"


def _name(attribute: str | None) -> str:
    return "this" if attribute is None else write_path(attribute)


def _test(op: str, operand: Operand) -> str:
    """Print what stands behind an attribute."""
    if op.endswith(IGNORING_CASE):
        return _test(op.removesuffix(IGNORING_CASE), operand) + IGNORING_CASE
    if operand is None:
        return op
    if not isinstance(operand, tuple):
        return f"{op} {_constant(operand)}"
    if op.endswith("between"):
        return f"{op} {_constant(operand[0])} and {_constant(operand[1])}"
    return f"{op} ({', '.join(map(_constant, operand))})"


def _attribute_comparison(comparison: AttributeComparison) -> str:
    text = f"{write_path(comparison.attribute)} {comparison.op} {write_right_path(comparison.other)}"
    offset = comparison.offset
    if offset is None:
        return text
    return f"{text} {'-' if math.copysign(1, offset) < 0 else '+'} {abs(offset)!r}"


def _constant(value: Constant | Moment) -> str:
    if isinstance(value, str):
        return quoted(value, "'")
    if isinstance(value, (Timestamp, Now)):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    # Predicates hold no other numbers; operator calls and constraints might.
    if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
        raise SubscriptionError("an integer beyond 64 bits cannot be written")
    if isinstance(value, float) and not math.isfinite(value):
        raise SubscriptionError(f"the number {value} cannot be written")
    return repr(value)


def _operator_layer(expression: Expression) -> str:
    match expression:
        case Call(name, arguments):
            return f"{write_path(name, KEYWORDS)}({', '.join(map(_argument, arguments))})"
        case Constraint(op, left, right):
            return f"{_term(left, 1, 1)} {op} {_term(right, 1, 1)}"
    hint = "siftline.parse(text) makes an expression of a text" if isinstance(expression, str) else None
    raise SubscriptionError(f"a {type(expression).__name__} is not a condition", hint=hint)


def _argument(argument: Variable | Constant) -> str:
    return write_variable(argument.name) if isinstance(argument, Variable) else _constant(argument)


def _term(term: Term, strength: int, depth: int) -> str:
    """Print a term, in parentheses if it binds less tightly than its place asks for."""
    if depth > MAX_DEPTH:
        raise SubscriptionError(f"the expression nests deeper than {MAX_DEPTH} levels")
    if not isinstance(term, Arithmetic):
        return _argument(term)
    own = ARITHMETIC[term.op]
    # Operators of one strength group from the left, so an equal one on the right needs parentheses.
    text = f"{_term(term.left, own, depth + 1)} {term.op} {_term(term.right, own + 1, depth + 1)}"
    return text if own >= strength else f"({text})"
