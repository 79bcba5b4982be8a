"""All attributes that subscriptions use: their ids and their value domains."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.encoding.flat_domains import Base, empty_base, merged, merged_with
from siftline.encoding.path_hash import Paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from siftline.encoding.domain import Domain, Line, Relabelling
    from siftline.encoding.flat_domains import NewConstants
    from siftline.encoding.patterns import Matcher

# (attribute, labels before, labels after)
Move = tuple[int, list[int], list[int]]

# New constants are merged into the flat arrays when they are this many and a quarter of those that are there.
_FEW: Final = 256
# Without a table of paths, an event takes longer by what it takes to enter this many paths.
_PATHS_PER_EVENT: Final = 32


# Operators that look inside strings; their negative forms go to the exact check.
PATTERN_OPS: Final = frozenset(("starts with", "ends with", "contains", "like", "ilike", "matches", "cidr"))


# What a string that is a time has beside itself, as numbers of nanoseconds (see `moments.py`).
INSTANT: Final = "instant"
AGE: Final = "age"
_MOMENT_OPS: Final = (INSTANT, AGE)


class MomentOf(NamedTuple):
    """The instants or the ages of an attribute, where the path of an attribute would stand."""

    path: str
    op: str


class Pattern(NamedTuple):
    """What some predicates ask of the strings of an attribute; with an op of moments, that they are times."""

    attribute: int
    op: str
    operand: str


class Domains:
    """Attribute ids and value domains, growing with the subscriptions.

    Beside the attributes that events have there are *pattern attributes*, one for each pattern that some literal asks
    about: an encoded event carries it, as true, if some string of the attribute satisfies the pattern. To an index it
    is an attribute like any other. It has no path: `ids` does not know it, and its name only shows what it is. The
    instants of an attribute, and its ages, are pattern attributes too: an event carries them with numbers, one for
    each string that is a time.

    The constants lie in flat arrays (`base`), except those that came since these were made: `changed` has the domains
    of their attributes. Both are replaced together, so that a reader takes `lines` once.

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
        self.names: list[str] = []
        self.ids: dict[str, int] = {}
        self.lines: tuple[Base, dict[int, Domain]] = empty_base(), {}
        self._n_new = 0
        self._paths: Paths | None = None
        self._n_waiting = 0
        self.patterns: list[Pattern] = []
        self._pattern_ids: dict[Pattern, int] = {}
        self.pattern_attributes: dict[int, Pattern] = {}  # ascending
        self.pattern_counts: Counter[int] = Counter()  # how many of them look at an attribute
        self._pattern_attribute_ids: dict[Pattern, int] = {}
        self.moments: dict[int, tuple[tuple[int, str], ...]] = {}  # of an attribute: the derived ones, and what of it
        self.has_ages = False  # whether what is encoded depends on the time
        # What tries all patterns on a string, as `patterns.matcher_of` made it last; never changed, but replaced.
        self.matcher: Matcher | None = None
        self.version = 0

    @classmethod
    def restored(cls, names: list[str], patterns: Mapping[int, Pattern], base: Base) -> Domains:
        """Return domains with these attributes, some of which are those of patterns."""
        domains = cls()
        domains.names, domains.lines = names, (base, {})
        domains.ids = dict(zip(names, range(len(names)), strict=True))
        if patterns:
            domains.ids = {name: attribute for attribute, name in enumerate(names) if attribute not in patterns}
        for attribute in sorted(patterns):
            domains._enter_pattern(attribute, patterns[attribute])
        return domains

    def __getstate__(self) -> dict[str, Any]:
        # An automaton cannot be pickled, nor need it be; nor can domains that look into the memory of others.
        return {**self.__dict__, "matcher": None, "_paths": None, "lines": (self.merged_base(), {}), "_n_new": 0}

    def __len__(self) -> int:
        return len(self.names)

    @property
    def domains(self) -> _DomainsOf:
        """The domain of each attribute; to be read only."""
        return _DomainsOf(*self.lines, len(self.names))

    @property
    def n_constants(self) -> int:
        """The number of all constants."""
        return self.lines[0].n_constants + self._n_new

    def paths(self) -> Paths:
        """Return a table of the paths of all attributes."""
        if self._paths is None or self._paths.n_paths != len(self.ids):
            self._paths = Paths(list(self.ids))
            self._n_waiting = 0
        return self._paths

    def current_paths(self) -> Paths | None:
        """Return the table of paths, None if making it again would take longer than to do without it so far."""
        if self._paths is None or self._paths.n_paths != len(self.ids):
            self._n_waiting += 1
            if self._n_waiting * _PATHS_PER_EVENT < len(self.ids):
                return None
        return self.paths()

    def attribute_id(self, path: str) -> int:
        """Return the id of an attribute that `add` has seen."""
        return self.ids[path]

    def label(self, attribute: int, value: float | str) -> int:
        """Return the label of a constant of an attribute, -1 if the value is none."""
        base, changed = self.lines
        if attribute in changed:
            domain = changed[attribute]
            return (domain.strings if isinstance(value, str) else domain.numbers).label(value)
        return base.label(attribute, value)

    def add(self, constants: Mapping[Any, Iterable[Any]]) -> list[Move]:
        """Take in attributes (paths, or moments of them) and their constants; return the labels that had to move."""
        return self.add_to({self.intern_any(path): values for path, values in constants.items()})

    def add_to(self, constants: Mapping[int, Iterable[Any]]) -> list[Move]:
        """Take in constants of attributes that are there; return the labels that had to move."""
        moves: list[Move] = []
        for attribute, values in constants.items():
            domain = self._domain(attribute)
            for kind, keys in enumerate(_by_kind(values)):
                line = domain.strings if kind else domain.numbers
                if keys and any(not line.has(key) for key in keys):
                    domain = self._own(attribute)
                    self._insert(domain.strings if kind else domain.numbers, keys, attribute, moves)
        if self._n_new >= _FEW + self.lines[0].n_constants // 4:
            self.merge()
        return moves

    def has_room(self, constants: Mapping[Any, Iterable[Any]]) -> bool:
        """Return whether `add` would leave all labels where they are."""
        for path, values in constants.items():
            attribute = self._moment_id(path) if isinstance(path, MomentOf) else self.ids.get(path)
            if attribute is not None:
                domain = self._domain(attribute)
                numbers, strings = _by_kind(values)
                if not (domain.numbers.has_room(numbers) and domain.strings.has_room(strings)):
                    return False
        return True

    def merge(self) -> None:
        """Lay all constants into flat arrays; no code changes."""
        self.lines = self.merged_base(), {}
        self._n_new = 0

    def take_fresh(self, numbers: NewConstants, texts: NewConstants) -> None:
        """Take in constants of attributes that had none of their kind."""
        self.merge()
        if len(numbers.labels) or len(texts.labels):
            self.lines = merged_with(self.lines[0], numbers, texts), {}
            self.version += 1

    def merged_base(self) -> Base:
        """Return flat arrays with all attributes and constants."""
        base, changed = self.lines
        is_complete = not changed and base.n_attributes == len(self.names)
        return base if is_complete else merged(base, len(self.names), changed)

    def _domain(self, attribute: int) -> Domain:
        base, changed = self.lines
        return changed[attribute] if attribute in changed else base.domain(attribute)

    def _own(self, attribute: int) -> Domain:
        """Return the domain of an attribute for changing it."""
        base, changed = self.lines
        domain = changed.get(attribute)
        if domain is None:
            domain = changed[attribute] = base.domain(attribute).copied()
        return domain

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
            name, operand = self.names[pattern.attribute], "" if pattern.op in _MOMENT_OPS else f" {pattern.operand!r}"
            self.append_pattern_attribute(f"{name} {pattern.op}{operand}", pattern)
            self.version += 1
        return attribute

    def append_pattern_attribute(self, name: str, pattern: Pattern) -> None:
        """Take in a pattern attribute as the last of all attributes."""
        self._enter_pattern(len(self.names), pattern)
        self.names.append(name)

    def _enter_pattern(self, attribute: int, pattern: Pattern) -> None:
        self.pattern_attributes[attribute] = pattern
        self._pattern_attribute_ids[pattern] = attribute
        if pattern.op in _MOMENT_OPS:
            self.moments[pattern.attribute] = (*self.moments.get(pattern.attribute, ()), (attribute, pattern.op))
            self.has_ages |= pattern.op == AGE
        else:
            self.pattern_counts[pattern.attribute] += 1

    def _moment_id(self, of: MomentOf) -> int | None:
        owner = self.ids.get(of.path)
        return None if owner is None else self._pattern_attribute_ids.get(Pattern(owner, of.op, ""))

    def intern_any(self, path: str | MomentOf) -> int:
        """Return the id of an attribute or of its moments, a new one if it is new."""
        if isinstance(path, MomentOf):
            return self.pattern_attribute(Pattern(self.intern(path.path), path.op, ""))
        return self.intern(path)

    def intern(self, path: str) -> int:
        """Return the id of an attribute, a new one if it is new."""
        attribute = self.ids.get(path)
        if attribute is None:
            attribute = len(self.names)
            self.names.append(path)
            self.ids[path] = attribute
            self.version += 1
        return attribute

    def _insert(self, line: Line, keys: list[Any], attribute: int, moves: list[Move]) -> None:
        n_keys = len(line)
        relabelling: Relabelling | None = line.insert(keys)
        self._n_new += len(line) - n_keys
        self.version += 1
        if relabelling is not None:
            moves.append((attribute, *relabelling))

    def copied(self) -> Domains:
        """Return an independent copy, for changing it while others still encode with this one."""
        other = Domains()
        base, changed = self.lines
        other.ids, other.names, other.version = self.ids.copy(), self.names.copy(), self.version
        other.lines = base, {attribute: domain.copied() for attribute, domain in changed.items()}
        other._n_new = self._n_new
        other._paths = self._paths
        other.patterns, other._pattern_ids = self.patterns.copy(), self._pattern_ids.copy()
        other.pattern_attributes, other.pattern_counts = self.pattern_attributes.copy(), self.pattern_counts.copy()
        other._pattern_attribute_ids = self._pattern_attribute_ids.copy()
        other.moments, other.has_ages = self.moments.copy(), self.has_ages
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
        base, changed = self.lines
        other.ids, other.names, other.lines = self.ids, self.names.copy(), (base, changed.copy())
        other.patterns, other.version = self.patterns.copy(), self.version
        other.pattern_attributes, other.pattern_counts = self.pattern_attributes.copy(), self.pattern_counts.copy()
        other.moments, other.has_ages = self.moments.copy(), self.has_ages
        return other

    def check(self) -> None:
        """Assert that ids and names agree and that every line is in order."""
        paths = {
            attribute: name for attribute, name in enumerate(self.names) if attribute not in self.pattern_attributes
        }
        assert list(self.ids.items()) == [(name, attribute) for attribute, name in paths.items()]
        assert list(self.pattern_attributes) == sorted(self._pattern_attribute_ids.values())
        are_moments = {a: pattern.op in _MOMENT_OPS for a, pattern in self.pattern_attributes.items()}
        counted = (pattern.attribute for a, pattern in self.pattern_attributes.items() if not are_moments[a])
        assert self.pattern_counts == Counter(counted)
        for attribute, pattern in self.pattern_attributes.items():
            assert self._pattern_attribute_ids[pattern] == attribute
            assert pattern.attribute in paths
            assert are_moments[attribute] or not len(self.domains[attribute].numbers)
            assert not len(self.domains[attribute].strings)
            assert ((attribute, pattern.op) in self.moments.get(pattern.attribute, ())) is are_moments[attribute]
        assert self.has_ages is any(pattern.op == AGE for pattern in self.pattern_attributes.values())
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


class _DomainsOf:
    """The domains of all attributes, each made when it is asked for."""

    __slots__ = ("_base", "_changed", "_length")

    def __init__(self, base: Base, changed: dict[int, Domain], length: int) -> None:
        self._base, self._changed, self._length = base, changed, length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Domain]:
        return map(self.__getitem__, range(self._length))

    def __getitem__(self, attribute: int) -> Domain:
        return self._changed[attribute] if attribute in self._changed else self._base.domain(attribute)


def _by_kind(values: Iterable[Any]) -> tuple[list[Any], list[str]]:
    """Return numbers and strings apart."""
    numbers: list[Any] = []
    strings: list[str] = []
    for value in values:
        (strings if type(value) is str else numbers).append(value)
    return numbers, strings
