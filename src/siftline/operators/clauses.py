"""A condition with calls as chains: conditions on the event itself, literals over calls, and the rest.

    a = 1 and p('x') and (not q() or r(?n) and ?n > 5)

    chain 0    guards: a = 1    literals: p('x'), not q()
    chain 1    guards: a = 1    literals: p('x'), r(?n)      join: r(?n), then ?n > 5

A literal depends only on whether its call is true. Conditions on the values of variables are evaluated when all
literals of a chain hold. So are negations that have their own variables, or use variables from outside; their calls are
made only then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from siftline.language.normal_form import Asked, dnf, literal, parts_of
from siftline.model import (
    And,
    Call,
    Constraint,
    Expression,
    IsTrue,
    Not,
    Or,
    all_variables,
    constraint_truth,
    evaluate,
    own_variables,
    same,
    truth_under,
    variables_of,
)
from siftline.operators.predicates import CallPredicate, predicate_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from siftline.model import Constant, Event, Solution, Solve


class Literal(NamedTuple):
    """A call that must be true, or false."""

    predicate: CallPredicate
    is_denied: bool


class Chain(NamedTuple):
    """One way to satisfy a condition."""

    guards: tuple[Expression, ...]  # literals without calls
    literals: tuple[Literal, ...]
    joined: tuple[Call, ...]  # the calls that bind variables
    constraints: tuple[Constraint, ...]
    rest: tuple[Expression, ...]

    @property
    def is_plain(self) -> bool:
        """Whether the chain holds if its literals do."""
        return not self.joined and not self.constraints and not self.rest

    def is_guarded(self, event: Event) -> bool:
        """Return whether the event satisfies the guards."""
        return all(evaluate(guard, event) is True for guard in self.guards)

    def holds(self, event: Event, solve: Solve) -> bool:
        """Return whether some substitution satisfies the chain, given that its literals hold."""
        if self.is_plain:
            return True
        return any(
            all(truth_under(part, event, solve, substitution) is True for part in self.rest)
            for substitution in self._substitutions(solve)
        )

    def _substitutions(self, solve: Solve) -> Iterator[dict[str, Constant]]:
        """Yield the joint substitutions of the calls that satisfy all constraints."""
        # Calls with few solutions come first, so that the join stays small.
        sides = sorted(((variables_of(call), solve(call) or ()) for call in self.joined), key=lambda side: len(side[1]))
        yield from self._extended({}, sides, self.constraints)

    def _extended(
        self,
        taken: dict[str, Constant],
        sides: Sequence[tuple[tuple[str, ...], Sequence[Solution]]],
        constraints: Sequence[Constraint],
    ) -> Iterator[dict[str, Constant]]:
        """Yield a substitution joined with those of more calls; each constraint is checked as early as possible."""
        ready = [constraint for constraint in constraints if taken.keys() >= set(variables_of(constraint))]
        if not all(constraint_truth(constraint, taken) is True for constraint in ready):
            return
        if not sides:
            yield taken
            return
        waiting = [constraint for constraint in constraints if constraint not in ready]
        (names, solutions), *others = sides
        for solution in solutions:
            new = dict(zip(names, solution, strict=True))
            if all(same(taken[name], value) for name, value in new.items() if name in taken):
                yield from self._extended({**new, **taken}, others, waiting)


class _Closed(Expression):
    """A negation that is not multiplied out, because it has its own variables."""

    __slots__ = ("operand",)
    __match_args__ = ("operand",)

    operand: Not

    def __init__(self, operand: Not) -> None:
        object.__setattr__(self, "operand", operand)


def chains_of(expression: Expression) -> list[Chain]:
    """Return the chains of an accepted condition; the condition holds if one of them does."""
    own = own_variables(expression)
    clauses = dnf(_closed(expression, own))
    if clauses is None:  # too many clauses: the condition is evaluated as a whole
        return [Chain((), (), (), (), (Not(Not(expression)),))]
    return [chain for clause in clauses if (chain := _chain(clause, own)) is not None]


def _closed(expression: Expression, own: set[str]) -> Expression:
    """Wrap negations that have their own variables, except negations of a single call."""
    match expression:
        case And(operands):
            return And([_closed(operand, own) for operand in operands])
        case Or(operands):
            return Or([_closed(operand, own) for operand in operands])
        case IsTrue(operand):
            return IsTrue(_closed(operand, own))
        case Not(Call()):
            return expression
        case Not(operand):
            return _Closed(expression) if all_variables(operand) - own else Not(_closed(operand, own))
    return expression


def _chain(clause: tuple[Expression, ...], own: set[str]) -> Chain | None:
    """Sort the parts of a clause; None if two of its literals exclude each other."""
    guards: list[Expression] = []
    literals: dict[CallPredicate, bool] = {}
    joined: list[Call] = []
    constraints: list[Constraint] = []
    rest: list[Expression] = []
    for part in clause:
        leaf, asked = parts_of(part)
        if isinstance(leaf, Call) and (asked is Asked.TRUE or (asked is Asked.FALSE and _is_alone(leaf, own))):
            is_denied = asked is Asked.FALSE
            if literals.setdefault(predicate_of(leaf), is_denied) is not is_denied:
                return None
            if not is_denied and variables_of(leaf):
                joined.append(leaf)
        elif isinstance(leaf, Constraint) and asked is Asked.TRUE:
            constraints.append(leaf)
        elif isinstance(leaf, _Closed):
            rest.append(literal(leaf.operand, asked))
        else:
            (rest if isinstance(leaf, (Call, Constraint)) else guards).append(part)
    asked_of = tuple(Literal(predicate, is_denied) for predicate, is_denied in literals.items())
    return Chain(tuple(guards), asked_of, tuple(joined), tuple(constraints), tuple(rest))


def _is_alone(call: Call, own: set[str]) -> bool:
    """Return whether no variable of a call is used outside of it."""
    return own.isdisjoint(variables_of(call))
