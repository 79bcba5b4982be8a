"""Logical reasoning: the facts that follow from an event's facts by the rules of a program.

    reason(program, relation, ?x, ...)      the facts of a relation

An event brings its facts as `{"facts": {"parent": [["ann", "bob"], ...]}}`.

>>> define_program("family", "ancestor(X, Y) :- parent(X, Y). ancestor(X, Z) :- parent(X, Y), ancestor(Y, Z).")
>>> sorted(reason({"facts": {"parent": [["ann", "bob"], ["bob", "cy"]]}}, "family", "ancestor"))
[('ann', 'bob'), ('ann', 'cy'), ('bob', 'cy')]
"""

from __future__ import annotations

from typing import Any, Final

from siftline.errors import OperatorError
from siftline.operators.datalog import Program
from siftline.operators.operator import operator

_programs: Final[dict[str, Program]] = {}


def define_program(name: str, text: str) -> None:
    """Name a program of rules and facts (see `datalog.py`)."""
    _programs[name] = Program(text)


@operator("reason", cost=2.0, timeout=10, binds=...)
def reason(event: Any, program: str, relation: str) -> Any:
    """Return the facts of a relation that follow from the event's facts."""
    rules = _programs.get(program)
    if rules is None:
        raise OperatorError(f"there is no program {program!r}; define_program adds one")
    facts = {name: {tuple(row) for row in rows} for name, rows in (event.get("facts") or {}).items()}
    return list(rules.solved(facts).get(relation, ()))
