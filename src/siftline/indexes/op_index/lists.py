"""Lists for operators that look inside strings: what `op-index` plugs in beside its sorted lists (OpIndex 6.2, Fig. 6).

A list takes patterns (an attribute, an operand, a number) and says which of them a string matches; `op-index` then
counts the numbers down as it does with any other predicate.

    PrefixTrie      "brand#son" ─ "brand#sony"           one trie; the attribute is the first step of every path
    SuffixTrie      the same over reversed strings
    RegexSet        one automaton for all regular expressions of an attribute
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import re2

from siftline.model.semantics import compare

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from siftline.encoding.domains import Pattern
    from siftline.model import Leaf

# How many bytes the states of one automaton may take; RE2 makes them as strings need them.
_MOST_BYTES: Final = 64 << 20


class OperatorList(Protocol):
    """All patterns of one operator."""

    def insert(self, attribute: int, operand: str, number: int) -> None:
        """Add a pattern; before the first `match` only."""

    def match(self, attribute: int, text: str) -> list[int]:
        """Return the numbers of the attribute's patterns that a string matches."""


class PrefixTrie:
    """A trie over attribute#prefix.

    Examples
    --------
    >>> trie = PrefixTrie()
    >>> trie.insert(0, "so", 10), trie.insert(0, "sony", 11), trie.insert(1, "so", 12)
    (None, None, None)
    >>> trie.match(0, "sony"), trie.match(0, "son"), trie.match(1, "sony"), trie.match(2, "sony")
    ([10, 11], [10], [12], [])
    """

    def __init__(self) -> None:
        self._children: list[dict[str | int, int]] = [{}]
        self._numbers: dict[int, int] = {}

    def insert(self, attribute: int, operand: str, number: int) -> None:
        """Add a path, and the number at its end."""
        node = 0
        for step in (attribute, *self._path(operand)):
            children = self._children[node]
            node = children.setdefault(step, len(self._children))
            if node == len(self._children):
                self._children.append({})
        self._numbers[node] = number

    def match(self, attribute: int, text: str) -> list[int]:
        """Return the numbers on the path of a string."""
        node = self._children[0].get(attribute)
        if node is None:
            return []
        nodes = [node]
        for character in self._path(text):
            node = self._children[node].get(character)
            if node is None:
                break
            nodes.append(node)
        return [self._numbers[node] for node in nodes if node in self._numbers]

    def _path(self, text: str) -> str:
        return text


class SuffixTrie(PrefixTrie):
    """A trie over attribute#suffix, from the end of the strings.

    Examples
    --------
    >>> trie = SuffixTrie()
    >>> trie.insert(0, "ny", 10)
    >>> trie.match(0, "sony"), trie.match(0, "nyx")
    ([10], [])
    """

    def _path(self, text: str) -> str:
        return text[::-1]


class RegexSet:
    """All regular expressions of an attribute as one automaton of RE2.

    Examples
    --------
    >>> regexes = RegexSet()
    >>> regexes.insert(0, "^s", 10), regexes.insert(0, "n+y", 11)
    (None, None)
    >>> regexes.match(0, "sonny"), regexes.match(0, "many"), regexes.match(1, "sonny")
    ([10, 11], [11], [])
    """

    def __init__(self) -> None:
        self._patterns: dict[int, list[tuple[str, int]]] = {}
        self._automata: dict[int, Any] = {}

    def insert(self, attribute: int, operand: str, number: int) -> None:
        """Keep a regular expression until the automaton is made."""
        self._patterns.setdefault(attribute, []).append((operand, number))

    def match(self, attribute: int, text: str) -> list[int]:
        """Run the automaton over a string."""
        patterns = self._patterns.get(attribute)
        if patterns is None:
            return []
        if attribute not in self._automata:
            self._automata[attribute] = _automaton([operand for operand, _ in patterns])
        found = _places(self._automata[attribute], text)
        if len(patterns) in found:  # the one that always matches
            return [patterns[place][1] for place in found[:-1]]
        return [number for operand, number in patterns if compare(text, "matches", operand)]


def _places(automaton: Any, text: str) -> list[int]:
    """Return the places of the regular expressions that match; none if RE2 cannot tell."""
    try:
        return sorted(automaton.Match(text) or ()) if automaton is not None else []
    except UnicodeEncodeError:  # a lone surrogate, which the model replaces
        return []


def _automaton(operands: Sequence[str]) -> Any:
    """Return a set of regular expressions, the last of which always matches; None if it takes too much memory.

    RE2 also reports "no match" when it runs out of memory: if the last one does not match, that is the reason.
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MOST_BYTES
    regexes = re2.Set.SearchSet(options)
    for operand in (*operands, ""):
        regexes.Add(operand)
    try:
        regexes.Compile()
    except re2.error:
        return None
    return regexes


# The operators that have a list of their own; all others that look inside strings go to the exact check.
LISTS: Final[Mapping[str, type[OperatorList]]] = {
    "starts with": PrefixTrie,
    "ends with": SuffixTrie,
    "matches": RegexSet,
}


class PatternLists:
    """The lists of some patterns; each list tests every string of its attributes."""

    def __init__(self, patterns: Iterable[tuple[int, Pattern]], names: Sequence[str]) -> None:
        self._lists = {op: make() for op, make in LISTS.items()}
        self._asked: dict[str, set[tuple[str, int]]] = {}
        for number, (attribute, op, operand) in patterns:
            self._lists[op].insert(attribute, operand, number)
            self._asked.setdefault(names[attribute], set()).add((op, attribute))

    def match(self, leaves: Mapping[str, Sequence[Leaf]]) -> list[int]:
        """Return the patterns that some value of an event matches, each once."""
        found: set[int] = set()
        for name in self._asked.keys() & leaves.keys():
            for text in leaves[name]:
                if isinstance(text, str):
                    for op, attribute in self._asked[name]:
                        found.update(self._lists[op].match(attribute, text))
        return sorted(found)
