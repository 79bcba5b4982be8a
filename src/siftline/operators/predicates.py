"""When two calls are the same: their constants are equal and their variables unify.

    near('A', ?x, ?y)   near('A', ?u, ?v)   the same predicate
    near('A', ?x, ?x)   near('A', 5, ?x)    two other predicates, satisfied by some of the same solutions

All four pass the same constants to the function, so an event needs one call for all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from siftline.model import Variable, same
from siftline.operators.registry import get

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from siftline.model import Call, Constant, Solution

# A constant with whether it is a boolean: True == 1 in Python.
_Typed = tuple[bool, "Constant"]


class CallKey(NamedTuple):
    """A function and its arguments: equal keys have equal results."""

    name: str
    constants: tuple[_Typed, ...]

    def values(self) -> list[Constant]:
        """Return the constants themselves."""
        return [value for _, value in self.constants]


class CallPredicate(NamedTuple):
    """A call, regardless of the names of its variables.

    `pattern` has for each value of a solution the number of a variable, or the constant that it must equal.
    """

    key: CallKey
    pattern: tuple[int | tuple[_Typed], ...]


def predicate_of(call: Call) -> CallPredicate:
    """Return the predicate of a call; raise SubscriptionError if the operator does not take the arguments.

    >>> from siftline.model import Call
    >>> from siftline.operators.operator import operator
    >>> _ = operator("pair", binds=["a", "b"], replace=True)(lambda event: (1, 2))
    >>> x, y, z = (Variable(name) for name in "xyz")
    >>> predicate_of(Call("pair", [x, y])) == predicate_of(Call("pair", [y, z]))
    True
    >>> predicate_of(Call("pair", [x, y])) == predicate_of(Call("pair", [x, x]))
    False
    """
    n = get(call.name).n_constants(call.arguments)
    constants = tuple(typed(argument) for argument in call.arguments[:n])  # type: ignore[arg-type]
    numbers: dict[str, int] = {}
    pattern = tuple(
        numbers.setdefault(argument.name, len(numbers)) if isinstance(argument, Variable) else (typed(argument),)
        for argument in call.arguments[n:]
    )
    return CallPredicate(CallKey(call.name, constants), pattern)


def typed(value: Constant) -> _Typed:
    """Return a constant with its type, because True == 1."""
    return type(value) is bool, value


def unified(rows: Iterable[Sequence[Constant]], predicate: CallPredicate) -> list[Solution]:
    """Return the solutions that agree with a predicate: one value for each variable, in order."""
    pattern = predicate.pattern
    if pattern == tuple(range(len(pattern))):
        return [tuple(row) for row in rows if len(row) == len(pattern)]
    return [solution for row in rows if (solution := _unified(row, pattern)) is not None]


def _unified(row: Sequence[Constant], pattern: tuple[int | tuple[_Typed], ...]) -> Solution | None:
    if len(row) != len(pattern):
        return None
    taken: list[Constant] = []
    for value, part in zip(row, pattern, strict=True):
        if not isinstance(part, int):
            if not same(value, part[0][1]):
                return None
        elif part == len(taken):
            taken.append(value)
        elif not same(value, taken[part]):
            return None
    return tuple(taken)
