r"""What a string must have so that a regular expression can match: one of a few texts, and a length.

The expression is read once, from the inside out. Of each part it is known, as far as it is certain,

    exact     the few texts, all of which together it stands for               [Pp]ower(?:shell|sploit)?
    needed    a few texts, one of which is in whatever it matches              (?:cmd|power).* : "cmd" or "power"
    shortest  how many characters it takes at least                            .{200,} : 200

Parts that follow each other are joined as long as their texts are few. All texts are folded, and are looked for in
folded strings: so `(?i)` and classes like `[Pp]` change nothing. Folding maps each character by itself, and whatever
RE2 takes for an ASCII letter that ignores case is folded to this letter; of other characters that ignore case, nothing
is known. With anything that is not read (`\Q`, `\x41`, `(?-i)`), nothing is known of the whole expression.
"""

from __future__ import annotations

import re
from itertools import product
from typing import Final, NamedTuple

from siftline.model.wildcard import fold

Texts = frozenset[str]

_TOKEN: Final = re.compile(
    r"""
      (?P<text> \\[^\w\s] | \\[afnrtv] | [^\\^$.|?*+()\[{] )
    | (?P<place> \\[bBAz] | [\^$] | \(\? [imsU]+ \) )          # no character
    | (?P<any> \\[dDsSwW] | \. )                               # one character of many
    | (?P<class> \[ \^?+ \]?+ (?: \\. | [^\]\\\[] )*+ \] )
    | (?P<repeat> (?: [?*+] | \{ [0-9]+ (?: , [0-9]* )? \} ) \?? )
    | (?P<open> \( (?: \? [imsU]* : | \?P?<[A-Za-z_][A-Za-z0-9_]*> | (?!\?) ) )
    | (?P<close> \) )
    | (?P<or> \| )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_CONTROLS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_IGNORES_CASE: Final = re.compile(r"\(\?[msU]*i")
_SMALL_CLASS: Final = re.compile(r"\[([^\\^\]-]+)\]", re.DOTALL)

# Not more texts than these are kept of one part, and not longer ones.
_TEXTS_MAX: Final = 16
_LENGTH_MAX: Final = 64
# Expressions with more groups are not read: each group inside of another one takes room on the stack.
GROUPS_MAX: Final = 100
# RE2 sees this in the place of a lone surrogate, which no search for a text would.
_REPLACEMENT: Final = "\ufffd"
_EMPTY: Final[Texts] = frozenset([""])


class Needs(NamedTuple):
    """What strings with a match have.

    Attributes
    ----------
    texts : tuple of str
        One of them is in each such string, if both are folded; empty if nothing is known.
    shortest : int
        The least number of characters.
    """

    texts: tuple[str, ...]
    shortest: int


class _Part(NamedTuple):
    exact: Texts | None
    needed: Texts | None
    shortest: int


_NOTHING: Final = _Part(_EMPTY, None, 0)
_ANY: Final = _Part(None, None, 1)


def needs_of(regex: str) -> Needs:
    r"""Return what strings must have in which a regular expression, which RE2 accepts, matches somewhere.

    >>> needs_of(r"(?i)power(shell|sploit)\.exe.{5}")
    Needs(texts=('powershell.exe', 'powersploit.exe'), shortest=19)
    >>> needs_of("[0-9a-f]{8}")
    Needs(texts=(), shortest=8)
    """
    tokens = tokens_of(regex)
    if tokens is None or _REPLACEMENT in regex or regex.count("(") > GROUPS_MAX:
        return Needs((), 0)
    part, end = _alternatives(tokens, 0, _IGNORES_CASE.search(regex) is not None)
    if end < len(tokens):
        return Needs((), 0)
    return Needs(tuple(sorted(_best(part.needed, part.exact) or ())), part.shortest)


def tokens_of(regex: str) -> list[tuple[str, str]] | None:
    """Return the kinds and texts of all tokens, None if one is unknown."""
    tokens, position = [], 0
    while position < len(regex):
        found = _TOKEN.match(regex, position)
        if found is None:
            return None
        tokens.append((str(found.lastgroup), found.group()))
        position = found.end()
    return tokens


def _alternatives(tokens: list[tuple[str, str]], place: int, ignores_case: bool) -> tuple[_Part, int]:
    """Read what stands between two brackets; return it, and the place of the closing one."""
    parts: list[_Part] = []
    while True:
        part, place = _sequence(tokens, place, ignores_case)
        parts.append(part)
        if place == len(tokens) or tokens[place][0] != "or":
            break
        place += 1
    if len(parts) == 1:
        return parts[0], place
    exact: Texts | None = _EMPTY - _EMPTY
    needed: Texts | None = _EMPTY - _EMPTY
    for part in parts:
        best = _best(part.needed, part.exact)
        exact = _few(None if exact is None or part.exact is None else exact | part.exact)
        needed = _few(None if needed is None or best is None else needed | best)
    return _Part(exact, needed, min(part.shortest for part in parts)), place


def _sequence(tokens: list[tuple[str, str]], place: int, ignores_case: bool) -> tuple[_Part, int]:
    """Read parts that follow each other, up to an `or` or a closing bracket."""
    whole = _NOTHING
    run: Texts = _EMPTY  # one of these texts ends where the next part begins
    is_exact = True
    needed: Texts | None = None
    while place < len(tokens) and tokens[place][0] not in ("or", "close"):
        part, place = _one(tokens, place, ignores_case)
        low, high = 1, 1
        while place < len(tokens) and tokens[place][0] == "repeat":
            next_low, next_high = bounds_of(tokens[place][1])
            low, high = low * next_low, (-1 if -1 in (high, next_high) else high * next_high)
            place += 1
        whole = whole._replace(shortest=whole.shortest + low * part.shortest)
        for each in _repeated(part, low, high):
            needed = _best(needed, each.needed)
            joined = _few(frozenset(map("".join, product(run, each.exact))) if each.exact is not None else None)
            if joined is None:
                needed, is_exact = _best(needed, run), False
                run = each.exact if each.exact is not None else _EMPTY
            else:
                run = joined
    needed = _best(needed, None if is_exact else run)
    return _Part(run if is_exact else None, needed, whole.shortest), place


def _one(tokens: list[tuple[str, str]], place: int, ignores_case: bool) -> tuple[_Part, int]:
    """Read one part, without its repetition."""
    kind, token = tokens[place]
    if kind == "open":
        part, place = _alternatives(tokens, place + 1, ignores_case)
        return part, place + 1
    if kind == "place":
        return _NOTHING, place + 1
    characters: str | None = None
    if kind == "text":
        characters = _CONTROLS.get(token[1:], token[-1]) if token[0] == "\\" else token
    elif kind == "class" and (found := _SMALL_CLASS.fullmatch(token)):
        characters = found[1]
    if characters is None or (ignores_case and not characters.isascii()):
        return _ANY, place + 1
    return _Part(_few(frozenset(map(fold, characters))), None, 1), place + 1


def bounds_of(token: str) -> tuple[int, int]:
    """Return how often a part is repeated at least and at most, -1 if there is no limit."""
    if token[0] != "{":
        return {"?": (0, 1), "*": (0, -1), "+": (1, -1)}[token[0]]
    low, comma, high = token.rstrip("?")[1:-1].partition(",")
    return int(low), int(high) if high else (-1 if comma else int(low))


def _repeated(part: _Part, low: int, high: int) -> list[_Part]:
    """Return parts that follow each other and mean as much as one part that is repeated."""
    if (low, high) == (0, 1):
        return [_Part(_few(part.exact | _EMPTY) if part.exact is not None else None, None, 0)]
    if low == 0:
        return [_NOTHING] if high == 0 else [_ANY]
    # The first ones, then anything, then the last one: it is another one, unless there is only one.
    known = [part] * min(low, _LENGTH_MAX)
    return known if low == high and low <= _LENGTH_MAX else [*known, _ANY, part] if low > 1 else [part, _ANY, part]


def _few(texts: Texts | None) -> Texts | None:
    """Return texts if they are few and short."""
    if texts is None or len(texts) > _TEXTS_MAX or max(map(len, texts), default=0) > _LENGTH_MAX:
        return None
    return texts


def _best(one: Texts | None, other: Texts | None) -> Texts | None:
    """Return those of two sets of texts that are found more rarely: the longer ones, then the fewer ones."""
    useful = [texts for texts in (one, other) if texts and "" not in texts]
    return max(useful, key=lambda texts: (min(map(len, texts)), -len(texts)), default=None)
