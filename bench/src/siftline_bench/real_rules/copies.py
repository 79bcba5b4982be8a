"""Many times as many rules: copies that differ from the rule in what is rarest.

In a copy, the rarest string of every conjunct is replaced by a string that another rule has on that attribute with that
operator, drawn from all their uses. So most copies keep the channel, which most rules name, and have words of others:

    Channel = 'Sysmon' and (Image ends with 'cmd.exe' or Image ends with 'rare.exe') and CommandLine contains 'secret'
    Channel = 'Sysmon' and (Image ends with 'cmd.exe' or Image ends with 'msdt.exe') and CommandLine contains 'iex'
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from siftline.model.derived import AnyString
from siftline.model.expression import And, Expression, IsTrue, Not, Or, walk
from siftline.model.predicate import IGNORING_CASE, POSITIVE_OF, PRESENCES, Predicate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_Rules = list[tuple[str, Expression]]


class _Place(NamedTuple):
    """Where a string stands: strings of one place can replace each other."""

    attribute: str | None
    op: str


def copied(rules: _Rules, n_copies: int, seed: int) -> _Rules:
    """Return the rules and copies of them, `n_copies` times as many in all."""
    maker, chance = _Maker(expression for _, expression in rules), random.Random(seed)
    copies = [
        (f"{id}#{number}", maker.changed(expression, chance))
        for number in range(1, n_copies)
        for id, expression in rules
    ]
    return [*rules, *copies]


class _Maker:
    """Knows all strings of the rules, and how often each is used."""

    def __init__(self, expressions: Iterator[Expression]) -> None:
        self._uses: Counter[tuple[_Place, str]] = Counter()
        self._all: dict[_Place, list[str]] = {}
        for expression in expressions:
            for node in walk(expression):
                for text in _strings(node):
                    self._uses[_place(node), text] += 1
                    self._all.setdefault(_place(node), []).append(text)

    def changed(self, rule: Expression, chance: random.Random) -> Expression:
        """Return a rule with the rarest string of every conjunct replaced; of alternatives, each conjunction's."""
        if isinstance(rule, And):
            return And([self._replaced(conjunct, chance) for conjunct in rule.operands])
        if isinstance(rule, Or) and any(isinstance(operand, And) for operand in rule.operands):
            return Or([self.changed(operand, chance) for operand in rule.operands])
        return self._replaced(rule, chance)

    def _replaced(self, conjunct: Expression, chance: random.Random) -> Expression:
        """Return a conjunct with its rarest string replaced, wherever in it the string stands."""
        used = {(_place(node), text) for node in walk(conjunct) for text in _strings(node)}
        if not used:
            return conjunct
        place, rarest = min(used, key=lambda each: (self._uses[each], -len(each[1]), each[1]))
        others = self._all[place]
        return _with_other(conjunct, place, rarest, others[chance.randrange(len(others))])


def _with_other(node: Expression, place: _Place, text: str, other: str) -> Expression:
    """Return an expression with another string where it has one at a place."""
    if isinstance(node, (And, Or)):
        return type(node)([_with_other(operand, place, text, other) for operand in node.operands])
    if isinstance(node, (Not, IsTrue)):
        return type(node)(_with_other(node.operand, place, text, other))
    if _place(node) != place or not _strings(node):
        return node
    assert isinstance(node, (Predicate, AnyString))
    operand = tuple(other if each == text else each for each in _strings(node))
    return _with_operand(node, operand if isinstance(node.operand, tuple) else operand[0])


def _place(node: Expression) -> _Place:
    op = str(getattr(node, "op", ""))
    return _Place(getattr(node, "attribute", None), op.removesuffix(IGNORING_CASE).replace("ilike", "like"))


def _strings(node: Expression) -> Sequence[str]:
    """Return the constants of a positive test, if they are strings and no addresses."""
    if not isinstance(node, (Predicate, AnyString)) or node.op in PRESENCES | POSITIVE_OF.keys() | {"cidr"}:
        return ()
    constants = node.operand if isinstance(node.operand, tuple) else (node.operand,)
    texts = [constant for constant in constants if isinstance(constant, str)]
    return texts if len(texts) == len(constants) else ()


def _with_operand(node: Predicate | AnyString, operand: tuple[str, ...] | str) -> Expression:
    if isinstance(node, AnyString):
        return AnyString(node.op, operand)
    return Predicate(node.attribute, node.op, operand)
