"""All attributes that subscriptions use: their ids and their value domains."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.encoding.domain import NO_LABEL, Domain
from siftline.encoding.flat_domains import Base, empty_base, merged, merged_with
from siftline.encoding.path_hash import Paths
from siftline.model.predicate import IGNORING_CASE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from siftline.encoding.domain import Line, Relabelling
    from siftline.encoding.one_event import EventEncoder
    from siftline.encoding.patterns import Matcher
    from siftline.kernels.lines import NewNumbers, NewTexts

# (attribute, labels before, labels after)
Move = tuple[int, "NDArray[np.int32]", "NDArray[np.int32]"]
# An attribute, and whether its strings are meant; otherwise its numbers.
LineKey = tuple[int, bool]

# New constants are merged into the flat arrays when they are this many and a quarter of those that are there, or many.
_MERGE_MIN: Final = 256
_MERGE_MAX: Final = 1 << 14
# Without a table of paths, an event takes longer by what it takes to enter this many paths.
_PATHS_PER_EVENT: Final = 32


# A list of strings to find in any case, written as JSON to be one operand.
CASELESS_LIST: Final = f"in{IGNORING_CASE}"
# A list of whole strings, written likewise; where single attributes are meant, codes decide it.
TEXT_LIST: Final = "in strings"
# Operators that look inside strings; their negative forms go to the exact check.
PATTERN_OPS: Final = frozenset(
    ("starts with", "ends with", "contains", "like", "ilike", "matches", "cidr", CASELESS_LIST, TEXT_LIST)
)
# Instead of an attribute, for patterns that are tried on all strings of an event.
ANY_STRING: Final = -1


# What a string that is a time has beside itself, as numbers of nanoseconds (see `moments.py`).
INSTANT: Final = "instant"
AGE: Final = "age"
_MOMENT_OPS: Final = (INSTANT, AGE)


class MomentOf(NamedTuple):
    """The instants or the ages of an attribute, where the path of an attribute would stand."""

    path: str
    op: str


class Pattern(NamedTuple):
    """What some predicates ask of the strings of an attribute; with an op of moments, that they are times.

    With ANY_STRING for an attribute, it is asked of all strings, those of attributes without a name here among them.
    """

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

    Constants for which there was no room are in `crowded`, by line, until labels are dealt out again. While an owner
    follows that up, new constants go into the line and into its heir, which will take its place.

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
        # What encodes single events, as `one_event.encoder_of` made it last; never changed, but replaced.
        self.encoder: EventEncoder | None = None
        self.crowded: dict[LineKey, dict[Any, None]] = {}  # in the order in which they came
        self.heirs: dict[LineKey, Heir | None] = {}  # None: not there yet, and no constant gets a label meanwhile
        self._placed: list[tuple[int, Any, int]] | None = None  # what came while new flat arrays are being made
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
        state = self.__dict__ | {
            "matcher": None,
            "encoder": None,
            "_paths": None,
            "_n_new": 0,
            "heirs": {},
            "_placed": None,
        }
        return state | {"lines": (self.merged_base(), {})}

    def __len__(self) -> int:
        return len(self.names)

    @property
    def takes_all_strings(self) -> bool:
        """Whether some pattern is tried on all strings of an event, whatever attributes they belong to."""
        return self.pattern_counts[ANY_STRING] > 0

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
        """Return the label of a constant of an attribute, NO_LABEL if the value is none."""
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
        if self.wants_merge:
            self.merge()
        return moves

    def place_all(self, constants: Mapping[Any, Iterable[Any]]) -> bool:
        """Take in attributes and constants, and move no label; return whether there was room for all of them."""
        has_room = True
        for path, values in constants.items():
            attribute = self.intern_any(path)
            for value in values:
                has_room &= self.place(attribute, value) != NO_LABEL
        return has_room

    def place(self, attribute: int, value: float | str) -> int:
        """Return the label of a constant, a new one if it is new, NO_LABEL if there is no room for it."""
        key = attribute, isinstance(value, str)
        domain = self._domain(attribute)
        label, gap = (domain.strings if key[1] else domain.numbers).find(value)
        if label != NO_LABEL:
            return label
        if key in self.crowded and value in self.crowded[key]:
            return NO_LABEL  # gaps do not become wider
        domain = self._own(attribute)
        line = domain.strings if key[1] else domain.numbers
        heir = self.heirs.get(key)
        has_room = key not in self.heirs if heir is None else heir.has_room(value)
        label = line.place(value, gap) if has_room else NO_LABEL
        if label == NO_LABEL:
            self.crowded.setdefault(key, {})[value] = None
            return NO_LABEL
        if heir is not None:
            heir.place(value, label)
        if self._placed is not None:
            self._placed.append((attribute, value, label))
        self._n_new += 1
        self.version += 1
        return label

    def abandon(self) -> None:
        """Forget heirs and flat arrays that somebody was making."""
        self.heirs, self._placed = {}, None

    def renewed(self, heirs: Mapping[LineKey, Heir]) -> Domains:
        """Return domains in which heirs are in the place of their lines; everything else is shared."""
        other = Domains()
        other.__dict__.update(self.__dict__ | {"encoder": None})
        base, changed = self.lines
        changed = changed.copy()
        for (attribute, is_text), heir in heirs.items():
            domain = changed.get(attribute) or base.domain(attribute)
            changed[attribute] = Domain(domain.numbers, heir.line) if is_text else Domain(heir.line, domain.strings)
            other._n_new += len(heir.line)
        other.lines, other.heirs, other._placed = (base, changed), {}, None
        other.version += 1
        return other

    @property
    def wants_merge(self) -> bool:
        """Whether so many constants are new that they should be merged into the flat arrays."""
        return self._n_new >= _MERGE_MIN + min(self.lines[0].n_constants // 4, _MERGE_MAX)

    def merge(self) -> None:
        """Lay all constants into flat arrays; no code changes."""
        self.lines = self.merged_base(), {}
        self._n_new = 0

    def take_fresh(self, numbers: NewNumbers, texts: NewTexts) -> None:
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

    def start_merge(self) -> Merging:
        """Return what makes new flat arrays while others go on adding constants."""
        return Merging(self)

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
            name = "any string" if pattern.attribute == ANY_STRING else self.names[pattern.attribute]
            operand = "" if pattern.op in _MOMENT_OPS else f" {pattern.operand!r}"
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

    def known_id(self, path: str | MomentOf) -> int | None:
        """Return the id of an attribute or of its moments, None if it is new."""
        if type(path) is str:
            return self.ids.get(path)
        assert isinstance(path, MomentOf)
        attribute = self.ids.get(path.path)
        return None if attribute is None else self.known_pattern_attribute(Pattern(attribute, path.op, ""))

    def known_pattern_attribute(self, pattern: Pattern) -> int | None:
        """Return the pattern attribute of a pattern, None if there is none yet."""
        return self._pattern_attribute_ids.get(pattern)

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
        other.crowded = {key: values.copy() for key, values in self.crowded.items()}
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
            assert pattern.attribute in paths or pattern.attribute == ANY_STRING
            assert are_moments[attribute] or not len(self.domains[attribute].numbers)
            assert not len(self.domains[attribute].strings)
            assert ((attribute, pattern.op) in self.moments.get(pattern.attribute, ())) is are_moments[attribute]
        assert self.has_ages is any(pattern.op == AGE for pattern in self.pattern_attributes.values())
        assert [self._pattern_ids[pattern] for pattern in self.patterns] == list(range(len(self.patterns)))
        assert all(0 <= pattern.attribute < len(self.names) for pattern in self.patterns)
        for domain in self.domains:
            domain.numbers.check()
            domain.strings.check()


class Heir:
    """The line that takes the place of another: with its constants, whose labels were dealt out again."""

    __slots__ = ("_placed", "_relabelling", "line")

    def __init__(self, line: Line, relabelling: Relabelling) -> None:
        self.line = line
        self._relabelling = relabelling
        self._placed: list[tuple[int, int]] = []  # labels that constants got in both lines since

    def has_room(self, value: Any) -> bool:
        """Return whether a new constant can have a label here, too."""
        return self.line.has_room(self.line.gap(value))

    def place(self, value: Any, label: int) -> None:
        """Take in a constant that got this label in the other line."""
        self._placed.append((label, self.line.place(value)))

    def relabelling(self) -> Relabelling:
        """Return the labels in the other line, ascending, and those of the same constants here."""
        placed = np.array(sorted(self._placed), dtype=np.int32).reshape(-1, 2)
        old, new = self._relabelling
        places = np.searchsorted(old, placed[:, 0])
        return np.insert(old, places, placed[:, 0]), np.insert(new, places, placed[:, 1])


class Merging:
    """New flat arrays on their way: made by `run` without a lock, and taken in by `finish`.

    Constants that come meanwhile are noted, and entered into domains beside the new arrays; `catch_up` does most of
    that before the owner's lock is held for `finish`.
    """

    def __init__(self, domains: Domains) -> None:
        base, changed = domains.lines
        self._domains, self._old = domains, base
        self._n_attributes = len(domains)
        self._changed = {attribute: domain.copied() for attribute, domain in changed.items()}
        self._placed: list[tuple[int, Any, int]] = []
        domains._placed = self._placed
        self._n_done = 0
        self._base = base
        self._new: dict[int, Domain] = {}

    def run(self) -> None:
        """Make the arrays."""
        self._base = merged(self._old, self._n_attributes, self._changed)

    @property
    def n_behind(self) -> int:
        """How many constants came that are not entered yet."""
        return len(self._placed) - self._n_done

    def catch_up(self) -> None:
        """Enter the constants that came until now."""
        end = len(self._placed)
        for attribute, value, label in self._placed[self._n_done : end]:
            domain = self._new.get(attribute)
            if domain is None:
                domain = self._new[attribute] = self._base.domain(attribute).copied()
            (domain.strings if isinstance(value, str) else domain.numbers).enter(value, label)
        self._n_done = end

    def give_up(self) -> None:
        """Leave everything as it is, and note no more constants."""
        if self._domains._placed is self._placed:
            self._domains._placed = None

    def finish(self) -> None:
        """Use the arrays from now on, unless others were made meanwhile; no code changes."""
        domains = self._domains
        self.give_up()
        if domains.lines[0] is self._old:
            self.catch_up()
            domains.lines = self._base, self._new
            domains._n_new = len(self._placed)


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
