"""Wildcard patterns (`like`) and simple case folding (`ilike`)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from siftline.errors import SubscriptionError

# A character and what escapes it, a wildcard, or characters that stand for themselves.
_TOKEN: Final = re.compile(r"\\.|[%_]|[^\\%_]+", re.DOTALL)


@lru_cache(maxsize=4096)
def parse_like(pattern: str) -> tuple[tuple[str | None, ...], ...]:
    r"""Split a pattern at `%` into segments of characters, None standing for `_`.

    >>> parse_like("a%b_")
    (('a',), ('b', None))
    >>> parse_like(r"100\%")
    (('1', '0', '0', '%'),)
    """
    check_like(pattern)
    segments: list[list[str | None]] = [[]]
    for token in _TOKEN.findall(pattern):
        if token == "%":
            segments.append([])
        elif token == "_":
            segments[-1].append(None)
        else:
            segments[-1].extend(token.removeprefix("\\") if len(token) == 2 else token)
    return tuple(tuple(segment) for segment in segments)


def check_like(pattern: str) -> None:
    """Raise SubscriptionError if a pattern ends with an escape character that escapes nothing."""
    n_escapes = len(pattern) - len(pattern.rstrip("\\"))
    if n_escapes % 2:
        shown = pattern if pattern.isprintable() else repr(pattern)[1:-1]
        raise SubscriptionError(
            f"the pattern '{shown}' ends with the escape character '\\'", hint=r"write '\\' for a backslash itself"
        )


def like(value: str, pattern: str) -> bool:
    """Return whether the whole of `value` fits the pattern; time is at worst len(value) * len(pattern)."""
    segments = parse_like(pattern)
    first, last = segments[0], segments[-1]
    if len(segments) == 1:
        return len(value) == len(first) and _fits(value, 0, first)
    end = len(value) - len(last)
    if end < len(first) or not _fits(value, 0, first) or not _fits(value, end, last):
        return False
    position = len(first)
    # Taking each middle segment as early as possible leaves the most room for the rest.
    for segment in segments[1:-1]:
        while not _fits(value, position, segment):
            position += 1
            if position > end:
                return False
        position += len(segment)
    return position <= end


def _fits(value: str, start: int, segment: tuple[str | None, ...]) -> bool:
    if start + len(segment) > len(value):
        return False
    return all(wanted is None or value[start + i] == wanted for i, wanted in enumerate(segment))


def literal_like(text: str) -> str:
    r"""Return the pattern that only the text itself fits.

    >>> print(literal_like("100%"))
    100\%
    """
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def fold(text: str) -> str:
    """Return `text` with simple case folding, code point by code point (Unicode CaseFolding, status C and S).

    >>> fold("STRASSE") == fold("strasse"), fold("ß")  # never changes the length
    (True, 'ß')
    """
    return text.lower() if text.isascii() else "".join(map(_fold_character, text))


@lru_cache(maxsize=65536)
def _fold_character(character: str) -> str:
    # Full folding differs from simple folding only where it gives several characters.
    for folded in (character.casefold(), character.lower()):
        if len(folded) == 1:
            return folded
    return character
