"""Which expressions an engine or a store accepts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from siftline.errors import SubscriptionError
from siftline.language.text import parse
from siftline.model import And, AnyElement, Expression, Length, Predicate, check_size, children, has_calls

# A conjunction of at most this many predicates, each with at most this many constants, needs no further checks.
SMALL_CONJUNCTION: Final = 64


def accepted(expression: str | Expression) -> Expression:
    """Return an expression that an engine can hold, or raise SubscriptionError."""
    if isinstance(expression, str):
        expression = parse(expression)
    elif not isinstance(expression, Expression):
        kind = type(expression).__name__
        raise SubscriptionError(f"an expression must be text or an Expression, not {kind}", hint=_type_hint(expression))
    if _is_small_conjunction(expression):
        return expression
    check_size(expression)
    if has_calls(expression):
        from siftline.operators.checks import check_calls

        check_calls(expression)
    _check_this(expression)
    return expression


def _type_hint(given: object) -> str | None:
    """Return a hint for an argument that is no expression."""
    if isinstance(given, Mapping):
        return "add siftline.parse_pattern(…) of an event pattern"
    if isinstance(given, (list, tuple)):
        return "add siftline.parse_filters(…) of CloudEvents filters; add_many takes many subscriptions"
    return "decode it first: text.decode()" if isinstance(given, bytes) else None


def _is_small_conjunction(expression: Expression) -> bool:
    """Return whether this is a small conjunction of predicates, which is always valid."""
    operands = expression.operands if type(expression) is And else (expression,)
    if len(operands) > SMALL_CONJUNCTION:
        return False
    for node in operands:
        if type(node) is not Predicate or node.attribute is None:
            return False
        if type(node.operand) is tuple and len(node.operand) > SMALL_CONJUNCTION:
            return False
    return True


def _check_this(expression: Expression) -> None:
    """Refuse `this` outside of `any`."""
    pending = [expression]
    while pending:
        node = pending.pop()
        if isinstance(node, (Predicate, Length)) and node.attribute is None:
            raise SubscriptionError("'this' has a meaning only inside 'any path ( ... )'")
        if not isinstance(node, AnyElement):
            pending.extend(children(node))
