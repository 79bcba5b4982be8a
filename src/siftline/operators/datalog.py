"""A small Datalog: facts and rules without negation, evaluated bottom-up and semi-naively.

    ancestor(X, Y) :- parent(X, Y).
    ancestor(X, Z) :- parent(X, Y), ancestor(Y, Z), X != Z.
    parent('ann', 'bob').

Names that begin with a capital or `_` are variables. Constants are numbers, 'texts' and lower-case words.

>>> program = Program("path(X, Y) :- edge(X, Y). path(X, Z) :- edge(X, Y), path(Y, Z).")
>>> sorted(program.solved({"edge": {(1, 2), (2, 3)}})["path"])
[(1, 2), (1, 3), (2, 3)]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from siftline.errors import OperatorError

Fact = tuple[Any, ...]
Facts = Mapping[str, set[Fact]]

_TOKEN: Final = re.compile(
    r"\s*(?:%[^\n]*\n\s*)*(?:(?P<symbol>:-|!=|<=|>=|[=<>(),.])|(?P<number>-?\d+(?:\.\d+)?)"
    r"|'(?P<text>(?:[^']|'')*)'|(?P<name>\w+))"
)
_COMPARISONS: Final = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


class _Variable(NamedTuple):
    name: str


class _Atom(NamedTuple):
    relation: str
    terms: tuple[Any, ...]


class _Rule(NamedTuple):
    head: _Atom
    body: tuple[_Atom, ...]
    tests: tuple[_Atom, ...]  # comparisons


class Program:
    """Rules and facts, parsed once."""

    def __init__(self, text: str) -> None:
        rules = list(_Reader(text).rules())
        for rule in rules:
            _check_safe(rule)
        self._rules = [rule for rule in rules if rule.body]
        self._facts: dict[str, set[Fact]] = {}
        for rule in rules:
            if not rule.body:
                self._facts.setdefault(rule.head.relation, set()).add(rule.head.terms)

    def solved(self, facts: Facts) -> dict[str, set[Fact]]:
        """Return all facts that follow from the program and some more facts."""
        known: dict[str, set[Fact]] = {name: set(rows) for name, rows in self._facts.items()}
        for name, rows in facts.items():
            known.setdefault(name, set()).update(rows)
        new = {name: set(rows) for name, rows in known.items()}
        while new:
            found: dict[str, set[Fact]] = {}
            for rule in self._rules:
                for place, atom in enumerate(rule.body):
                    if atom.relation in new:  # one of the facts that are used is new
                        rows = set(_derived(rule, place, known, new)) - known.get(rule.head.relation, set())
                        if rows:
                            found.setdefault(rule.head.relation, set()).update(rows)
            for name, rows in found.items():
                known.setdefault(name, set()).update(rows)
            new = found
        return known


def _check_safe(rule: _Rule) -> None:
    bound = {term for atom in rule.body for term in atom.terms if isinstance(term, _Variable)}
    for atom in (rule.head, *rule.tests):
        for term in atom.terms:
            if isinstance(term, _Variable) and term not in bound:
                raise OperatorError(f"no fact in the rule for {rule.head.relation!r} gives {term.name} a value")


def _derived(rule: _Rule, place: int, known: Facts, new: Facts) -> Iterator[Fact]:
    """Yield the facts of a rule whose atom number `place` holds by a new fact."""
    order = [place, *(i for i in range(len(rule.body)) if i != place)]
    for taken in _joined(rule, order, 0, {}, known, new):
        if all(_compared(test, taken) for test in rule.tests):
            yield tuple(taken[term] if isinstance(term, _Variable) else term for term in rule.head.terms)


def _joined(
    rule: _Rule, order: list[int], n: int, taken: dict[_Variable, Any], known: Facts, new: Facts
) -> Iterator[dict[_Variable, Any]]:
    if n == len(order):
        yield taken
        return
    atom = rule.body[order[n]]
    for row in (new if n == 0 else known).get(atom.relation, set()):
        extended = _unified(atom, row, taken)
        if extended is not None:
            yield from _joined(rule, order, n + 1, extended, known, new)


def _unified(atom: _Atom, row: Fact, taken: dict[_Variable, Any]) -> dict[_Variable, Any] | None:
    if len(row) != len(atom.terms):
        return None
    extended = dict(taken)
    for term, value in zip(atom.terms, row, strict=True):
        expected = extended.setdefault(term, value) if isinstance(term, _Variable) else term
        if expected != value or isinstance(expected, bool) is not isinstance(value, bool):
            return None
    return extended


def _compared(test: _Atom, taken: dict[_Variable, Any]) -> bool:
    left, right = (taken[term] if isinstance(term, _Variable) else term for term in test.terms)
    try:
        return bool(_COMPARISONS[test.relation](left, right))
    except TypeError:  # a number and a text have no order
        return False


class _Reader:
    """Reads a program."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        end = len(text.rstrip())
        position = 0
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                if text[position:].lstrip().startswith("%"):  # a comment at the end
                    break
                raise OperatorError(f"no rule begins with {text[position : position + 20]!r}")
            self._tokens.append((match.lastgroup or "", match[match.lastgroup or 0]))
            position = match.end()
        self._place = 0

    def rules(self) -> Iterator[_Rule]:
        """Yield rules and facts."""
        while self._place < len(self._tokens):
            yield self._rule()

    def _rule(self) -> _Rule:
        head = self._atom()
        body: list[_Atom] = []
        tests: list[_Atom] = []
        if self._is_next(":-"):
            while True:
                atom = self._condition()
                (tests if atom.relation in _COMPARISONS else body).append(atom)
                if not self._is_next(","):
                    break
        if not self._is_next("."):
            raise OperatorError(f"the rule for {head.relation!r} does not end with a full stop")
        return _Rule(head, tuple(body), tuple(tests))

    def _condition(self) -> _Atom:
        """Read an atom, or a comparison of two terms."""
        following = self._tokens[self._place + 1 : self._place + 2]
        if following and following[0][1] in _COMPARISONS and following[0][0] == "symbol":
            left = self._term()
            relation = self._next()[1]
            return _Atom(relation, (left, self._term()))
        return self._atom()

    def _atom(self) -> _Atom:
        kind, name = self._next()
        if kind != "name" or not self._is_next("("):
            raise OperatorError(f"expected a relation such as parent(X, Y), found {name!r}")
        terms: list[Any] = []
        while not self._is_next(")"):
            terms.append(self._term())
            if not self._is_next(",") and self._tokens[self._place : self._place + 1] != [("symbol", ")")]:
                raise OperatorError(f"expected ',' or ')' after the terms of {name!r}")
        return _Atom(name, tuple(terms))

    def _term(self) -> Any:
        kind, text = self._next()
        if kind == "number":
            return float(text) if "." in text else int(text)
        if kind == "text":
            return text.replace("''", "'")
        if kind == "name":
            return _Variable(text) if text[0].isupper() or text[0] == "_" else text
        raise OperatorError(f"expected a variable or a constant, found {text!r}")

    def _next(self) -> tuple[str, str]:
        if self._place == len(self._tokens):
            raise OperatorError("the program ends in the middle of a rule")
        self._place += 1
        return self._tokens[self._place - 1]

    def _is_next(self, symbol: str) -> bool:
        is_here = self._tokens[self._place : self._place + 1] == [("symbol", symbol)]
        self._place += is_here
        return is_here
