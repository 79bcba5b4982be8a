"""Many times as many rules: copies that differ from the rule in what is rarest.

In a copy, the rarest string of every conjunction is replaced by a string that another rule has on that attribute with
that operator. Of `channel and (image or (image and word))` these are the first image and the rarer of the second
image and the word: the copies share channels, as rules do, and nothing makes them equal or impossible.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from siftline.model.derived import AnyString
from siftline.model.expression import And, Expression, IsTrue, Or, walk
from siftline.model.predicate import IGNORING_CASE, POSITIVE_OF, PRESENCES, Predicate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_Rules = list[tuple[str, Expression]]


class _Place(NamedTuple):
    """Where a string stands: strings of one place can replace each other."""

    attribute: str | None
    op: str


class _Rarity(NamedTuple):
    """How rare something is; what is less is rarer. Of strings that occur as often, the longer is rarer."""

    n_uses: int
    shortness: int


_ANYTHING: Final = _Rarity(2**62, 0)


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
        for expression in expressions:
            for node in walk(expression):
                self._uses.update((_place(node), text) for text in _strings(node))
        self._others: dict[_Place, list[str]] = {}
        for place, text in sorted(self._uses, key=repr):
            self._others.setdefault(place, []).append(text)

    def changed(self, node: Expression, chance: random.Random) -> Expression:
        """Return an expression with the rarest string of every conjunction replaced."""
        if isinstance(node, Or):
            return Or([self.changed(operand, chance) for operand in node.operands])
        if isinstance(node, And) and node.operands:
            rarest = min(range(len(node.operands)), key=lambda i: self._rarity(node.operands[i]))
            return And([self.changed(each, chance) if i == rarest else each for i, each in enumerate(node.operands)])
        if isinstance(node, IsTrue):
            return IsTrue(self.changed(node.operand, chance))
        return self._replaced(node, chance) if _strings(node) else node

    def _rarity(self, node: Expression) -> _Rarity:
        """Return how rare what an expression asks for is: of alternatives, the commonest counts."""
        if isinstance(node, Or):
            return max(map(self._rarity, node.operands), default=_ANYTHING)
        if isinstance(node, And):
            return min(map(self._rarity, node.operands), default=_ANYTHING)
        if isinstance(node, IsTrue):
            return self._rarity(node.operand)
        return max((self._of(_place(node), text) for text in _strings(node)), default=_ANYTHING)

    def _of(self, place: _Place, text: str) -> _Rarity:
        return _Rarity(self._uses[place, text], -len(text))

    def _replaced(self, node: Expression, chance: random.Random) -> Expression:
        assert isinstance(node, (Predicate, AnyString))
        place, strings = _place(node), _strings(node)
        rarest = min(strings, key=lambda text: self._of(place, text))
        others = self._others[place]
        if len(others) < 2:
            return node
        other = rarest
        while other == rarest:
            other = others[chance.randrange(len(others))]
        operand = tuple(other if text == rarest else text for text in strings)
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
