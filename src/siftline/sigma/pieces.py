"""Pieces of a condition, before it is text: what `or` can still merge, and what a very long rule is parsed by.

>>> either = any_of([Equality("EventID", ("1",)), Equality("EventID", ("3",)), "Image is null"])
>>> text_of(all_of([either, Negation("User is null")]))
'(EventID in (1, 3) or Image is null) and (User is null) is not true'
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from siftline.errors import SubscriptionError
from siftline.language.text import parse
from siftline.language.tokens import MAX_TEXT
from siftline.model import And, IsTrue, Not, Or
from siftline.model.expression import check_size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from siftline.model import Expression

# A rule whose condition is longer than the language reads at once is parsed piece by piece, up to this length.
MAX_CONDITION: Final = 2 * MAX_TEXT


@dataclass(frozen=True, slots=True)
class Equality:
    """An attribute that is one of some constants, each as it is written."""

    path: str
    constants: tuple[str, ...]
    ignores_case: bool = False


@dataclass(frozen=True, slots=True)
class Negation:
    """The piece is not true: what Sigma means by `not`, because it knows no third truth value."""

    piece: Piece


@dataclass(frozen=True, slots=True)
class Group:
    """At least two pieces joined by `and` or by `or`."""

    word: str
    pieces: tuple[Piece, ...]


# A string is a whole predicate.
Piece = str | Equality | Negation | Group


def all_of(pieces: Iterable[Piece]) -> Piece:
    """Return the conjunction of one or more pieces."""
    return _joined("and", pieces)


def any_of(pieces: Iterable[Piece]) -> Piece:
    """Return the disjunction of one or more pieces; constants of one attribute become one list.

    >>> any_of([Equality("a", ("1", "'1'")), Equality("a", ("2",))])
    Equality(path='a', constants=('1', "'1'", '2'), ignores_case=False)
    """
    lists: dict[tuple[str, bool], dict[str, None]] = {}
    places: dict[object, Piece | tuple[str, bool]] = {}
    for piece in _flat("or", pieces):
        if isinstance(piece, Equality):
            key = piece.path, piece.ignores_case
            lists.setdefault(key, {}).update(dict.fromkeys(piece.constants))
            places.setdefault(key, key)
        else:
            places.setdefault(piece, piece)
    merged = {key: Equality(key[0], tuple(constants), key[1]) for key, constants in lists.items()}
    return _joined("or", [merged[place] if isinstance(place, tuple) else place for place in places.values()])


def _joined(word: str, pieces: Iterable[Piece]) -> Piece:
    flat = tuple(_flat(word, pieces))
    return flat[0] if len(flat) == 1 else Group(word, flat)


def _flat(word: str, pieces: Iterable[Piece]) -> Iterable[Piece]:
    for piece in pieces:
        if isinstance(piece, Group) and piece.word == word:
            yield from piece.pieces
        else:
            yield piece


def text_of(piece: Piece) -> str:
    """Return a piece in Siftline's language."""
    if isinstance(piece, str):
        return piece
    if isinstance(piece, Equality):
        return _equality_text(piece)
    if isinstance(piece, Negation):
        return f"({text_of(piece.piece)}) is not true"
    return f" {piece.word} ".join(map(_operand_text, piece.pieces))


def _operand_text(piece: Piece) -> str:
    return f"({text_of(piece)})" if isinstance(piece, Group) else text_of(piece)


def _equality_text(piece: Equality) -> str:
    listed = ", ".join(piece.constants)
    test = f"= {listed}" if len(piece.constants) == 1 else f"in ({listed})"
    return f"{piece.path} {test}" + (" ignoring case" if piece.ignores_case else "")


def expression_of(piece: Piece) -> Expression:
    """Return the expression of a piece; raise SubscriptionError if it is too large, or has what is not supported."""
    text = text_of(piece)
    if len(text) <= MAX_TEXT:
        return parse(text)
    if len(text) > MAX_CONDITION:
        raise SubscriptionError(f"the condition has {len(text):,} characters, and at most {MAX_CONDITION:,} are read")
    expression = _expression_by_parts(piece, text)
    check_size(expression)
    return expression


def _expression_by_parts(piece: Piece, text: str) -> Expression:
    if isinstance(piece, Negation):
        return Not(IsTrue(expression_of(piece.piece)))
    if isinstance(piece, Group):
        operands = [expression_of(each) for each in piece.pieces]
        return And(operands) if piece.word == "and" else Or(operands)
    return parse(text)  # which refuses it
