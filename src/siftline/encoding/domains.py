"""All attributes that subscriptions use: their ids and their value domains."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.encoding.domain import Domain, Line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from siftline.encoding.domain import Relabelling
    from siftline.encoding.patterns import Matcher

# (attribute, labels before, labels after)
Move = tuple[int, list[int], list[int]]


# Operators that look inside strings; their negative forms go to the exact check.
PATTERN_OPS: Final = frozenset(("starts with", "ends with", "contains", "like", "ilike", "matches", "cidr"))


class Pattern(NamedTuple):
    """What some predicates ask of the strings of an attribute."""

    attribute: int
    op: str
    operand: str


class Domains:
    """Attribute ids and value domains, growing with the subscriptions.

    Beside the attributes that events have there are *pattern attributes*, one for each pattern that some literal asks
    about: an encoded event carries it, as true, if some string of the attribute satisfies the pattern. To an index it
    is an attribute like any other. It has no path: `ids` does not know it, and its name only shows what it is.

    Encoded events are good for one `version` only: a new constant may split the space that a value was located in, and
    a new pattern is one more to be tried.

    Examples
    --------
    >>> domains = Domains()
    >>> domains.add({"price": {580}})
    []
    >>> domains.names, domains.domains[0].numbers.keys
    (['price'], [580])
    """

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.names: list[str] = []
        self.domains: list[Domain] = []
        self.patterns: list[Pattern] = []
        self._pattern_ids: dict[Pattern, int] = {}
        self.pattern_attributes: dict[int, Pattern] = {}  # ascending
        self.pattern_counts: Counter[int] = Counter()  # how many of them look at an attribute
        self._pattern_attribute_ids: dict[Pattern, int] = {}
        # What tries all patterns on a string, as `patterns.matcher_of` made it last; never changed, but replaced.
        self.matcher: Matcher | None = None
        self.version = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "matcher": None}  # an automaton cannot be pickled, nor need it be

    def __len__(self) -> int:
        return len(self.names)

    def attribute_id(self, path: str) -> int:
        """Return the id of an attribute that `add` has seen."""
        return self.ids[path]

    def add(self, constants: Mapping[str, Iterable[Any]]) -> list[Move]:
        """Take in attributes and the constants of their predicates; return the labels that had to move."""
        moves: list[Move] = []
        for path, values in constants.items():
            attribute = self._intern(path)
            for line, keys in _by_line(self.domains[attribute], values):
                self._insert(line, keys, attribute, moves)
        return moves

    def has_room(self, constants: Mapping[str, Iterable[Any]]) -> bool:
        """Return whether `add` would leave all labels where they are."""
        return all(
            line.has_room(keys)
            for path, values in constants.items()
            if path in self.ids
            for line, keys in _by_line(self.domains[self.ids[path]], values)
        )

    def add_pattern(self, pattern: Pattern) -> int:
        """Return the id of a pattern, a new one if it is new."""
        known = self._pattern_ids.setdefault(pattern, len(self.patterns))
        if known == len(self.patterns):
            self.patterns.append(pattern)
        return known

    def pattern_attribute(self, pattern: Pattern) -> int:
        """Return the pattern attribute of a pattern, a new one if there is none yet."""
        attribute = self._pattern_attribute_ids.get(pattern)
        if attribute is None:
            attribute = len(self.names)
            self.append_pattern_attribute(f"{self.names[pattern.attribute]} {pattern.op} {pattern.operand!r}", pattern)
            self.version += 1
        return attribute

    def append_pattern_attribute(self, name: str, pattern: Pattern) -> None:
        """Take in a pattern attribute as the last of all attributes."""
        attribute = len(self.names)
        self.pattern_attributes[attribute] = pattern
        self.pattern_counts[pattern.attribute] += 1
        self._pattern_attribute_ids[pattern] = attribute
        self.names.append(name)
        self.domains.append(_NO_CONSTANTS)

    def _intern(self, path: str) -> int:
        attribute = self.ids.get(path)
        if attribute is None:
            attribute = len(self.names)
            self.names.append(path)
            self.domains.append(Domain())
            self.ids[path] = attribute
            self.version += 1
        return attribute

    def _insert(self, line: Line, keys: list[Any], attribute: int, moves: list[Move]) -> None:
        if not keys:
            return
        n_keys = len(line.keys)
        relabelling: Relabelling | None = line.insert(keys)
        if len(line.keys) != n_keys:
            self.version += 1
        if relabelling is not None:
            moves.append((attribute, *relabelling))

    def copied(self) -> Domains:
        """Return an independent copy, for changing it while others still encode with this one."""
        other = Domains()
        other.ids, other.names, other.version = self.ids.copy(), self.names.copy(), self.version
        other.domains = [
            _NO_CONSTANTS if attribute in self.pattern_attributes else domain.copied()
            for attribute, domain in enumerate(self.domains)
        ]
        other.patterns, other._pattern_ids = self.patterns.copy(), self._pattern_ids.copy()
        other.pattern_attributes, other.pattern_counts = self.pattern_attributes.copy(), self.pattern_counts.copy()
        other._pattern_attribute_ids = self._pattern_attribute_ids.copy()
        other.matcher = self.matcher
        return other

    def equals(self, other: Domains) -> bool:
        """Return whether a copy and what it was copied from are still the same."""
        return self.version == other.version and len(self.patterns) == len(other.patterns)

    def frozen(self) -> Domains:
        """Return these domains with as many attributes as now, for looking at them while others add more.

        The lines are shared: constants may still come in between those that are there.
        """
        other = Domains()
        other.ids, other.names, other.domains = self.ids, self.names.copy(), self.domains.copy()
        other.patterns, other.version = self.patterns.copy(), self.version
        other.pattern_attributes, other.pattern_counts = self.pattern_attributes.copy(), self.pattern_counts.copy()
        return other

    def check(self) -> None:
        """Assert that ids and names agree and that every line is in order."""
        paths = {
            attribute: name for attribute, name in enumerate(self.names) if attribute not in self.pattern_attributes
        }
        assert list(self.ids.items()) == [(name, attribute) for attribute, name in paths.items()]
        assert list(self.pattern_attributes) == sorted(self._pattern_attribute_ids.values())
        assert self.pattern_counts == Counter(pattern.attribute for pattern in self.pattern_attributes.values())
        for attribute, pattern in self.pattern_attributes.items():
            assert self._pattern_attribute_ids[pattern] == attribute
            assert pattern.attribute in paths
            assert not self.domains[attribute].numbers.keys
            assert not self.domains[attribute].strings.keys
        assert [self._pattern_ids[pattern] for pattern in self.patterns] == list(range(len(self.patterns)))
        assert all(pattern.attribute < len(self.names) for pattern in self.patterns)
        for domain in self.domains:
            domain.numbers.check()
            domain.strings.check()


def prefixes_of(paths: Iterable[str]) -> frozenset[str]:
    """Return what stands before a dot in some path.

    >>> sorted(prefixes_of(["a.b.c", "d"]))
    ['a', 'a.b']
    """
    dotted = [path for path in paths if "." in path]
    return frozenset(path[:i] for path in dotted for i, character in enumerate(path) if character == ".")


# Of all pattern attributes: there may be many.
_NO_CONSTANTS: Final = Domain()


def _by_line(domain: Domain, values: Iterable[Any]) -> list[tuple[Line, list[Any]]]:
    numbers = [value for value in values if type(value) is not str]
    strings = [value for value in values if type(value) is str]
    return [(domain.numbers, numbers), (domain.strings, strings)]
