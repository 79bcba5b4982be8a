r"""Literal text in regular expressions: what a string must contain so that the expression can match at all.

RE2 tries one expression at a time, or a few at once. Most expressions hold literal text, and looking for all of these
texts takes one pass over the string, however many they are. Read is only what is beyond doubt; with anything else
(flags, `\Q`, `\x41`, an `or` outside of groups) nothing is known of the expression.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r"""
      (?P<text> \\[^\w\s] | [^\\^$.|?*+()\[\]{}] )      # an escaped sign, or a character that stands for itself
    | (?P<break> \\[dDsSwWbBAzafnrtv] | [.^$] )           # one character, or a place between two
    | (?P<class> \[ \^?+ \]?+ (?: \\. | [^\]\\\[] )*+ \] )  # possessive: a `]` right at the start is a member
    | (?P<optional> [?*] )
    | (?P<repeat> \+ )
    | (?P<count> \{ [0-9]+ (?: , [0-9]* )? \} )
    | (?P<open> \( (?: \?: | \?P?<[A-Za-z_][A-Za-z0-9_]*> | (?!\?) ) )
    | (?P<close> \) )
    | (?P<or> \| )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)

# RE2 sees this in the place of a lone surrogate, which no search for literal text would.
_REPLACEMENT: Final = "\ufffd"


class Literal(NamedTuple):
    """A text that a matching string contains.

    Attributes
    ----------
    text : str
        The longest such text.
    is_all : bool
        The expression is nothing but this text, between anchors or not.
    is_at_start, is_at_end : bool
        Of such an expression: the string starts, or ends, with the text.
    """

    text: str
    is_all: bool = False
    is_at_start: bool = False
    is_at_end: bool = False


def literal_of(regex: str) -> Literal | None:
    r"""Return the longest text that every string with a match contains, None if none is certain.

    >>> literal_of("^error: [0-9]+ (times|days)$").text, literal_of("a|b")
    ('error: ', None)
    >>> literal_of(r"^1\.5$")
    Literal(text='1.5', is_all=True, is_at_start=True, is_at_end=True)
    """
    tokens = _tokens(regex)
    if tokens is None or _REPLACEMENT in regex:
        return None
    is_at_start = tokens[:1] == [("break", "^")]
    is_at_end = tokens[-1:] == [("break", "$")]
    inner = tokens[is_at_start : len(tokens) - is_at_end]
    if inner and all(kind == "text" for kind, _ in inner):
        return Literal("".join(token[-1] for _, token in inner), True, is_at_start, is_at_end)
    runs = _runs(tokens)
    return Literal(max(runs, key=len)) if runs else None


def _tokens(regex: str) -> list[tuple[str, str]] | None:
    """Return the kinds and texts of all tokens, None if one is unknown."""
    tokens, position = [], 0
    while position < len(regex):
        found = _TOKEN.match(regex, position)
        if found is None:
            return None
        tokens.append((str(found.lastgroup), found.group()))
        position = found.end()
    return tokens


def _runs(tokens: list[tuple[str, str]]) -> list[str]:
    """Return the texts outside of groups that are not optional; none if there is an `or` outside of groups."""
    runs, run, depth = [], "", 0
    for kind, token in [*tokens, ("break", "")]:
        if kind == "text" and depth == 0:
            run += token[-1]
            continue
        if kind in ("optional", "count"):
            run = run[:-1]  # `{0}` as well
        if kind == "or" and depth == 0:
            return []
        if run and depth == 0:
            runs.append(run)
        run = ""
        depth += (kind == "open") - (kind == "close")
    return runs
