"""Texts that almost satisfy a test of strings: one byte off, cut at an end, in another case, or just where they belong.

Random texts hardly ever come near a pattern. These begin with one that satisfies it, and change little.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from siftline.model import AnyString, Expression, Predicate

if TYPE_CHECKING:
    from collections.abc import Callable

# Letters that fold to the same one, or look as if they did; and of which folding changes the length in bytes.
SIBLINGS: Final = [
    "sS\u017f",
    "kK\u212a",
    "iI\u0130\u0131",
    "\u00df\u1e9e",
    "\u03c3\u03c2\u03a3",
    "\u00e9\u00c9",
    "\u2c65\u023a",
    "bB",
]
_SIBLINGS_OF: Final = {letter: letters for letters in SIBLINGS for letter in letters}
LETTERS: Final = "".join(SIBLINGS) + "a0%_\\ .\n\ud800\ufffd\U00010400\U00010428"
# Lengths around those of grams and of the words that strings are compared by.
LENGTHS: Final = [1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 33]

literals = st.one_of(
    st.text(alphabet=LETTERS, min_size=1, max_size=9),
    st.sampled_from(LENGTHS).flatmap(lambda n: st.text(alphabet="abkK\u017f", min_size=n, max_size=n)),
)
# Expressions, and texts that they match.
REGEXES: Final[dict[str, list[str]]] = {
    "ab+c": ["abbc", "abc"],
    "(?i)sk[0-9]": ["sk1", "\u017f\u212a2"],
    r"^a\.b$": ["a.b"],
    "[Kk]ab?.x": ["kabyx", "Ka\nx"],
    "(?:abc|b{2,3})[^k]": ["abcs", "bb\ud800"],
    r"\ba_s\b": ["a_s", "x a_s."],
    "a{3}|k.*k": ["aaa", "kk"],
    "(?is)\u00df.\u03c3": ["\u1e9e\n\u03a3"],
    "[0-9a-f]{8}-": ["0123abcd-"],
    ".{20,}": ["a" * 20],
}
NETWORKS: Final = ["10.0.0.0/8", "10.1.2.4/30", "255.255.255.255", "0.0.0.0/0", "2001:db8::/33", "::/0", "fe80::1"]


@st.composite
def near(draw: st.DrawFn, text: str) -> str:
    """Draw a text that is the same, or almost."""
    for _ in range(draw(st.integers(0, 2))):
        change = draw(st.sampled_from(_CHANGES))
        text = change(draw, text)
    before, behind = draw(st.sampled_from(_PADS)), draw(st.sampled_from(_PADS))
    return draw(st.sampled_from([text, text, before + text, text + behind, before + text + behind]))


_PADS: Final = [*(letter * n for letter in "a\u017f" for n in range(10)), "\ud83d", "\u00e9", "x" * 40]


def _cut(draw: st.DrawFn, text: str) -> str:
    return draw(st.sampled_from([text[1:], text[:-1], text[1:-1], text[: len(text) // 2]]))


def _in_another_case(draw: st.DrawFn, text: str) -> str:
    return draw(st.sampled_from([text.upper(), text.lower(), text.swapcase(), text.casefold()]))


def _with_sibling(draw: st.DrawFn, text: str) -> str:
    """Replace all letters, or one, by one that is like it."""
    chosen = draw(st.integers(-1, max(0, len(text) - 1)))
    letters: list[str] = [
        draw(st.sampled_from(_SIBLINGS_OF.get(letter, letter))) if chosen in (-1, place) else letter
        for place, letter in enumerate(text)
    ]
    return "".join(letters)


def _one_off(draw: st.DrawFn, text: str) -> str:
    place = draw(st.integers(0, len(text)))
    left_out = draw(st.integers(0, 1))
    new: str = draw(st.sampled_from(["", *LETTERS]))
    return text[:place] + new + text[place + left_out :]


def _twice(draw: st.DrawFn, text: str) -> str:
    return text + draw(st.sampled_from(["", text[:1], text[:-1], text]))


_CHANGES: Final[list[Callable[[st.DrawFn, str], str]]] = [_cut, _in_another_case, _with_sibling, _one_off, _twice]


@st.composite
def addresses(draw: st.DrawFn, network: str) -> str:
    """Draw an address at an end of a network, or beside it, and how it should not be written."""
    parsed = ipaddress.ip_network(network, strict=False)
    ends = int(parsed.network_address), int(parsed.broadcast_address)
    number = draw(st.sampled_from(ends)) + draw(st.integers(-1, 1))
    address = type(parsed.network_address)(max(0, min(number, 2**parsed.max_prefixlen - 1)))
    parts = str(address).split(".")
    ways = [
        str(address),
        address.exploded,
        f"{address}/{parsed.prefixlen}",
        f" {address}",
        f"{address}.",
        f"{address}%1",
    ]
    ways += [".".join([*parts[:-1], f"0{parts[-1]}"]), ".".join(parts[:-1]), str(number), f"::ffff:{address}"]
    return draw(st.sampled_from(ways))


def _as_pattern(text: str, wildcards: list[str]) -> str:
    """Return a wildcard pattern in which some letters became wildcards."""
    return "".join(
        wildcard if wildcard else f"\\{letter}" if letter in "%_\\" else letter
        for letter, wildcard in zip(text, wildcards, strict=True)
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, list[str]]:
    """Draw what makes a test of strings (an operator and its constants), and texts that almost satisfy it."""
    kind = draw(st.sampled_from(["plain", "plain", "list", "like", "matches", "cidr"]))
    if kind == "cidr":
        network = draw(st.sampled_from(NETWORKS))
        return ("cidr", network), draw(st.lists(addresses(network), min_size=1, max_size=4))
    if kind == "matches":
        regex = draw(st.sampled_from(sorted(REGEXES)))
        return ("matches", regex), draw(_several(draw(st.sampled_from(REGEXES[regex]))))
    text = draw(literals)
    texts = draw(_several(text))
    if kind == "like":
        wildcards = draw(st.lists(st.sampled_from(["", "", "", "%", "_"]), min_size=len(text), max_size=len(text)))
        return (draw(st.sampled_from(["like", "ilike"])), _as_pattern(text, wildcards)), texts
    if kind == "list":
        others = draw(st.lists(literals, max_size=3))
        return (draw(st.sampled_from(["in", "in ignoring case"])), (text, *others)), texts
    word = draw(st.sampled_from(["=", "starts with", "ends with", "contains"]))
    return (word + draw(st.sampled_from(["", " ignoring case"])), text), texts


def _several(text: str) -> st.SearchStrategy[list[str]]:
    return st.lists(near(text), min_size=1, max_size=4)


def expressions_of(op: str, operand: Any) -> list[Expression]:
    """Return tests of one attribute and of all strings, and what is not so."""
    negative = "!=" if op == "=" else f"!= {op[2:]}" if op.startswith("= ") else f"not {op}"
    each: list[Expression] = [Predicate("a", op, operand), Predicate("a", negative, operand), AnyString(op, operand)]
    return [*each, *(~expression for expression in each)]
