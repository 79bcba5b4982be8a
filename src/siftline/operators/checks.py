"""Checks of calls and variables when a subscription is added."""

from __future__ import annotations

from typing import TYPE_CHECKING

from siftline.errors import SubscriptionError
from siftline.model import (
    And,
    AnyElement,
    Call,
    Constraint,
    IsTrue,
    Not,
    Or,
    Variable,
    all_variables,
    children,
    has_calls,
    own_variables,
    variables_of,
    walk,
)
from siftline.operators.registry import get

if TYPE_CHECKING:
    from siftline.model import Expression


def check_calls(expression: Expression) -> None:
    """Raise SubscriptionError unless every call fits its operator and a call binds every variable.

    >>> from siftline.language.text import parse
    >>> check_calls(parse("?n > 5"))
    Traceback (most recent call last):
        ...
    siftline.errors.SubscriptionError: no call binds ?n: it occurs only in constraints or in several negations
      hint: add a call with ?n outside of 'not', or use different names
    """
    for node in walk(expression):
        if isinstance(node, AnyElement) and has_calls(node):
            raise SubscriptionError("operators see whole events: a call cannot stand inside 'any'")
        if isinstance(node, Call):
            _check_call(node)
    _check_scope(expression, set())


def _check_call(call: Call) -> None:
    operator = get(call.name)
    n = operator.n_constants(call.arguments)
    for position, argument in enumerate(call.arguments[:n]):
        if isinstance(argument, Variable):
            raise SubscriptionError(
                f"the operator {call.name!r} does not bind its argument {position + 1}: it needs a constant there",
                hint=f"write {operator.signature()}",
            )
        operator.check_constant(position, argument)


def _check_scope(expression: Expression, outer: set[str]) -> None:
    """Check the variables of a scope, given the variables that are bound outside of it."""
    unbound = own_variables(expression) - outer - _called(expression)
    if unbound:
        name = min(unbound)
        raise SubscriptionError(
            f"no call binds ?{name}: it occurs only in constraints or in several negations",
            hint=f"add a call with ?{name} outside of 'not', or use different names",
        )
    _check_uses(expression, outer, own_variables(expression) | outer)


def _check_uses(expression: Expression, bound: set[str], known: set[str]) -> None:
    """Check that a variable of a constraint or a negation has a value whenever the calls beside it are true.

    `known` has the variables of this scope and of those around it; a negation may have other variables.
    """
    match expression:
        case Constraint():
            for name in variables_of(expression):
                _check_bound(name, bound, "is compared")
        case Not(operand):
            for name in sorted(all_variables(operand) & known):
                _check_bound(name, bound, "is used under 'not'")
            _check_scope(operand, bound & all_variables(operand))
        case And(operands):
            binding = [_bound(operand) for operand in operands]
            for i, operand in enumerate(operands):
                others = binding[:i] + binding[i + 1 :]
                _check_uses(operand, bound.union(*others), known)
        case Or(operands):
            for operand in operands:
                _check_uses(operand, bound, known)
        case IsTrue(operand):
            _check_uses(operand, bound, known)


def _check_bound(name: str, bound: set[str], use: str) -> None:
    if name not in bound:
        raise SubscriptionError(
            f"no call binds ?{name} where it {use}",
            hint=f"a call with ?{name} must stand beside it, joined by 'and'",
        )


def _bound(expression: Expression) -> set[str]:
    """Return the variables that have a value whenever the expression is true."""
    match expression:
        case Call():
            return set(variables_of(expression))
        case And(operands):
            return set().union(*map(_bound, operands))
        case Or(operands):
            return set.intersection(*map(_bound, operands)) if operands else set()
        case IsTrue(operand):
            return _bound(operand)
    return set()


def _called(expression: Expression) -> set[str]:
    """Return the variables of all calls outside of negations."""
    if isinstance(expression, Call):
        return set(variables_of(expression))
    if isinstance(expression, Not):
        return set()
    return {name for child in children(expression) for name in _called(child)}
