"""What operator calls, variables and constraints mean: the paper's joint substitution, made executable by trying all.

A call has *solutions*: the values that its variables may take together. An event satisfies a condition if some
substitution of values for its variables makes it true. Under a given substitution, a call is true if its variables take
the values of one of its solutions, a constraint compares, and `and`, `or`, `not` combine three-valued as always.

A variable belongs to the innermost `not (...)` that holds all its occurrences, or to the whole condition. So
`p(?x) and not q(?x)` asks for a solution of p that is none of q, and `not (p(?x) and ?x > 5)` asks that no solution of
p is above 5.

>>> from siftline.model import Event
>>> people = lambda call: [(30,), (60,)]
>>> crowded = And([Call("crowd", [Variable("n")]), Constraint(">", Variable("n"), 50)])
>>> evaluate_solutions(crowded, Event({}), people), evaluate_solutions(Not(crowded), Event({}), people)
(True, False)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from siftline.model.expression import And, Arithmetic, Call, Constraint, Expression, IsTrue, Not, Or, Variable, children
from siftline.model.predicate import Constant, kind_of
from siftline.model.semantics import Truth, compare, evaluate

if TYPE_CHECKING:
    from siftline.model.event import Event
    from siftline.model.expression import Term

# One value for each variable of a call, in the order in which they first occur in it.
Solution = tuple[Constant, ...]
# What a call gives for an event: its solutions, none if it is false, or None if it is unknown.
Solve = Callable[[Call], Sequence[Solution] | None]
Substitution = Mapping[str, Constant | None]

# This many substitutions are looked at for an explanation.
_MOST_TRIED = 1000


def evaluate_solutions(expression: Expression, event: Event, solve: Solve) -> Truth:
    """Return the truth of a condition with calls, trying every substitution that the calls allow."""
    return _some_substitution(expression, event, solve, {})


def _some_substitution(expression: Expression, event: Event, solve: Solve, outer: Substitution) -> Truth:
    """Return whether some substitution of the variables that belong here makes the expression true."""
    names = sorted(own_variables(expression) - outer.keys())
    # Where there is no solution, one substitution is left, which no call agrees to.
    choices: list[Sequence[Constant | None]] = [_values(expression, name, solve) or [None] for name in names]
    result: Truth = False
    for values in itertools.product(*choices):
        truth = truth_under(expression, event, solve, {**outer, **dict(zip(names, values, strict=True))})
        if truth is True:
            return True
        result = None if truth is None else result
    return result


def best_substitution(expression: Expression, event: Event, solve: Solve, outer: Substitution) -> Substitution:
    """Return a substitution that makes an expression true, or else as much of a conjunction as possible."""
    names = sorted(own_variables(expression) - outer.keys())
    choices: list[Sequence[Constant | None]] = [_values(expression, name, solve) or [None] for name in names]
    parts = children(expression) if isinstance(expression, And) else (expression,)

    def worth(substitution: Substitution) -> int:
        return sum(truth_under(part, event, solve, substitution) is True for part in parts)

    tried = itertools.islice(itertools.product(*choices), _MOST_TRIED)
    return max(({**outer, **dict(zip(names, values, strict=True))} for values in tried), key=worth)


def truth_under(expression: Expression, event: Event, solve: Solve, substitution: Substitution) -> Truth:
    """Return the truth of an expression under a substitution of the variables that belong around it."""
    match expression:
        case Call():
            return _call(expression, solve, substitution)
        case Constraint():
            return constraint_truth(expression, substitution)
        case And(operands) | Or(operands):
            truths = [truth_under(operand, event, solve, substitution) for operand in operands]
            return _joined(truths, decisive=isinstance(expression, Or))
        case Not(operand):
            truth = _some_substitution(operand, event, solve, substitution)
            return None if truth is None else not truth
        case IsTrue(operand):
            return truth_under(operand, event, solve, substitution) is True
    return evaluate(expression, event)


def _joined(truths: Sequence[Truth], *, decisive: bool) -> Truth:
    if decisive in truths:
        return decisive
    return None if None in truths else not decisive


def _call(call: Call, solve: Solve, substitution: Substitution) -> Truth:
    solutions = solve(call)
    if solutions is None:
        return None
    taken = [substitution[name] for name in variables_of(call)]
    return any(all(map(same, solution, taken)) for solution in solutions)


def same(value: Constant | None, other: Constant | None) -> bool:
    """Return whether two values unify: true and 1 do not, 1 and 1.0 do."""
    return value is not None and other is not None and kind_of(value) == kind_of(other) and value == other


def constraint_truth(constraint: Constraint, substitution: Substitution) -> Truth:
    """Return the truth of a constraint; unknown if the kinds differ or a term has no value.

    >>> constraint_truth(Constraint(">", Variable("y"), Arithmetic("*", 2, Variable("z"))), {"y": 5, "z": 2})
    True
    """
    left, right = value_of(constraint.left, substitution), value_of(constraint.right, substitution)
    if left is None or right is None:
        return None
    if isinstance(left, bool) and constraint.op not in ("=", "!="):
        return None
    return compare(left, constraint.op, right)


def value_of(term: Term, substitution: Substitution) -> Constant | None:
    """Return the value of a term, None if it has none: of a division by zero, of arithmetic on texts."""
    if isinstance(term, Variable):
        return substitution[term.name]
    if not isinstance(term, Arithmetic):
        return term
    left, right = value_of(term.left, substitution), value_of(term.right, substitution)
    if not _is_number(left) or not _is_number(right):
        return None
    try:
        value = _computed(term.op, left, right)  # type: ignore[arg-type]
    except (ZeroDivisionError, OverflowError):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


def _is_number(value: Constant | None) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _computed(op: str, left: float, right: float) -> float:
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
    return left / right


# Variables


def variables_of(node: Call | Constraint | Term) -> tuple[str, ...]:
    """Return the variables of a call, a constraint or a term, each once, in order.

    >>> variables_of(Call("near", [Variable("x"), 5, Variable("y"), Variable("x")]))
    ('x', 'y')
    """
    if isinstance(node, Variable):
        return (node.name,)
    if isinstance(node, Call):
        parts: tuple[object, ...] = node.arguments
    elif isinstance(node, (Arithmetic, Constraint)):
        parts = (node.left, node.right)
    else:
        return ()
    found = (name for part in parts for name in variables_of(part))  # type: ignore[arg-type]
    return tuple(dict.fromkeys(found))


def all_variables(expression: Expression) -> set[str]:
    """Return all variables in an expression, wherever they belong."""
    if isinstance(expression, (Call, Constraint)):
        return set(variables_of(expression))
    return {name for child in children(expression) for name in all_variables(child)}


def own_variables(expression: Expression) -> set[str]:
    """Return the variables that do not belong to a `not (...)` inside the expression alone.

    >>> p, q = Call("p", [Variable("x")]), Call("q", [Variable("x"), Variable("y")])
    >>> own_variables(And([p, Not(q)])), own_variables(And([Not(q)]))
    ({'x'}, set())
    """
    counts: dict[str, int] = {}
    direct: set[str] = set()
    for place in _places(expression):
        names = all_variables(place)
        if not isinstance(place, Not):
            direct |= names
        for name in names:
            counts[name] = counts.get(name, 0) + 1
    return {name for name, n in counts.items() if n > 1 or name in direct}


def _places(expression: Expression) -> list[Expression]:
    """Return the calls, constraints and negations of an expression that stand in no negation."""
    if isinstance(expression, (Call, Constraint, Not)):
        return [expression]
    return [place for child in children(expression) for place in _places(child)]


def _values(expression: Expression, name: str, solve: Solve) -> list[Constant]:
    """Return every value that a call outside negations has for a variable."""
    found: dict[tuple[object, Constant], None] = {}
    for place in _places(expression):
        if isinstance(place, Call) and name in variables_of(place):
            position = variables_of(place).index(name)
            for solution in solve(place) or ():
                value = solution[position]
                found[kind_of(value), value] = None
    return [value for _, value in found]
