"""Expressions: predicates under and, or, not; quantified over array elements; operator calls.

All nodes are immutable and compare by structure. They combine with `&`, `|` and `~`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from siftline.errors import SubscriptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from siftline.model.predicate import Constant

# An expression may nest this deep ...
MAX_DEPTH: Final = 100
# ... and hold this many leaves: predicates, calls and constraints, and the constants of their lists.
MAX_LEAVES: Final = 100_000


class Expression:
    """A node of a subscription's condition; see the subclasses."""

    __slots__ = ()
    __match_args__: tuple[str, ...] = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"expressions are immutable: cannot set {name!r}")

    def __getstate__(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__match_args__)

    def __setstate__(self, state: tuple[object, ...]) -> None:
        for name, value in zip(self.__match_args__, state, strict=True):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        arguments = ", ".join(repr(getattr(self, name)) for name in self.__match_args__)
        return f"{type(self).__name__}({arguments})"

    def _key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__match_args__)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._key()))

    def __and__(self, other: Expression) -> Expression:
        return And(_operands(And, self) + _operands(And, other))

    def __or__(self, other: Expression) -> Expression:
        return Or(_operands(Or, self) + _operands(Or, other))

    def __invert__(self) -> Expression:
        return Not(self)

    def __bool__(self) -> bool:
        raise TypeError("an Expression has no truth value: combine with & | ~, not with and / or / not")


class _Group(Expression):
    """Zero or more operands under one connective."""

    __slots__ = ("operands",)
    __match_args__ = ("operands",)

    operands: tuple[Expression, ...]

    def __init__(self, operands: tuple[Expression, ...] | list[Expression]) -> None:
        object.__setattr__(self, "operands", tuple(operands))


class And(_Group):
    """All operands hold; the empty conjunction is `true`."""

    __slots__ = ()


class Or(_Group):
    """At least one operand holds; the empty disjunction is `false`."""

    __slots__ = ()


class _Wrapper(Expression):
    """One operand."""

    __slots__ = ("operand",)
    __match_args__ = ("operand",)

    operand: Expression

    def __init__(self, operand: Expression) -> None:
        object.__setattr__(self, "operand", operand)


class Not(_Wrapper):
    """Three-valued negation: unknown stays unknown."""

    __slots__ = ()


class IsTrue(_Wrapper):
    """Two-valued: true if the operand is true, false if it is false *or unknown*."""

    __slots__ = ()


class AnyElement(Expression):
    """Some element of the array (or the single object or value) at `attribute` satisfies `operand`.

    Attribute paths inside are relative to the element; a `Predicate` with attribute `THIS` tests the element itself.
    """

    __slots__ = ("attribute", "operand")
    __match_args__ = ("attribute", "operand")

    attribute: str
    operand: Expression

    def __init__(self, attribute: str, operand: Expression) -> None:
        object.__setattr__(self, "attribute", attribute)
        object.__setattr__(self, "operand", operand)


class Variable(Expression):
    """A variable `?name` that an operator call binds."""

    __slots__ = ("name",)
    __match_args__ = ("name",)

    name: str

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "name", name)


class _Terms(Expression):
    """Two terms and what stands between them."""

    __slots__ = ("left", "op", "right")
    __match_args__ = ("op", "left", "right")

    op: str
    left: Term
    right: Term

    def __init__(self, op: str, left: Term, right: Term) -> None:
        object.__setattr__(self, "op", op)
        object.__setattr__(self, "left", left)
        object.__setattr__(self, "right", right)

    def _key(self) -> tuple[Any, ...]:
        return self.op, self.left, self.right, type(self.left) is bool, type(self.right) is bool


class Arithmetic(_Terms):
    """A term `left op right` with op one of + - * / over variables and numbers."""

    __slots__ = ()


class Constraint(_Terms):
    """A comparison of two terms over variables, such as `?y > 2 * ?z`."""

    __slots__ = ()


class Call(Expression):
    """An operator call such as `loc_in('Bronx')` or `mob_pattern(?people)`."""

    __slots__ = ("arguments", "name")
    __match_args__ = ("name", "arguments")

    name: str
    arguments: tuple[Variable | Constant, ...]

    def __init__(self, name: str, arguments: tuple[Variable | Constant, ...] | list[Variable | Constant]) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "arguments", tuple(arguments))

    def _key(self) -> tuple[Any, ...]:
        return self.name, self.arguments, tuple(type(argument) is bool for argument in self.arguments)


Term = Variable | Arithmetic | bool | int | float | str

TRUE: Final = And(())
FALSE: Final = Or(())


def _operands(connective: type[_Group], expression: Expression) -> tuple[Expression, ...]:
    if not isinstance(expression, Expression):
        raise TypeError(f"cannot combine an Expression with {type(expression).__name__}")
    # `true & x` must stay a conjunction of x alone, so only non-empty groups dissolve.
    if type(expression) is connective and expression.operands:
        return expression.operands
    return (expression,)


def children(expression: Expression) -> tuple[Expression, ...]:
    """Return the direct sub-expressions (terms of constraints and arguments of calls are not sub-expressions)."""
    if isinstance(expression, _Group):
        return expression.operands
    if isinstance(expression, (_Wrapper, AnyElement)):
        return (expression.operand,)
    return ()


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield the expression and everything below it, parents first, without recursion."""
    pending = [expression]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(children(node)))


def has_calls(expression: Expression) -> bool:
    """Return whether an operator call or a constraint stands anywhere in the expression."""
    return any(isinstance(node, (Call, Constraint)) for node in walk(expression))


def check_size(expression: Expression) -> None:
    """Raise SubscriptionError if the expression is larger or deeper than Siftline accepts."""
    leaves = 0
    pending = [(expression, 1)]
    while pending:
        node, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise SubscriptionError(f"the expression nests deeper than {MAX_DEPTH} levels")
        below = children(node) or _terms(node)
        if not below:
            constants = getattr(node, "operand", None) or getattr(node, "arguments", None)
            leaves += len(constants) if isinstance(constants, tuple) else 1
            if leaves > MAX_LEAVES:
                raise SubscriptionError(f"the expression has more than {MAX_LEAVES:,} predicates and constants")
        # Terms nest on their own account, below the constraint that holds them.
        deeper = 1 if isinstance(node, Constraint) else depth + 1
        pending.extend((child, deeper) for child in below)


def _terms(node: Expression) -> tuple[Expression, ...]:
    """Return the terms of a constraint or a term that are more than a constant."""
    terms = (node.left, node.right) if isinstance(node, _Terms) else ()
    return tuple(term for term in terms if isinstance(term, Expression))
