"""Value domains: per attribute, the constants of the subscriptions cut the values into elementary spaces.

A value is located once, to its *code*; from then on every comparison is integer work. Codes are int32 and have fixed
sections, so that "any number" is the same range for every attribute:

    0      1      2     3 ............ 2**30 - 1     2**30 ........... 2**31 - 2
    null   false  true  numbers                      strings

Inside a section each constant has a *label*, a code of its own; a value between two constants gets the lower label + 1.
With the number constants 5 and 9 labelled 100 and 200:

    value     4     5     7     9     12
    code      3    100   101   200   201        a < 9  is  3 .. 199,   a >= 9  is  200 .. 2**30 - 1

Labels leave gaps: a new constant 7 becomes 150, and no predicate that is already encoded changes. Only when a gap is
used up are the labels of one section of one attribute dealt out again (`relabelled`), which the owner must follow up.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from siftline.model import Leaf

NULL: Final = 0
FALSE: Final = 1
TRUE: Final = 2
FIRST_NUMBER: Final = 3
LAST_NUMBER: Final = 2**30 - 1
FIRST_STRING: Final = 2**30
LAST_STRING: Final = 2**31 - 2

# A label is this far from its neighbours if there is room.
_WIDEST_GAP: Final = 4096
# Constants that arrive in order (timestamps, ids) take up this part of a gap each, instead of half of what is left.
_SHARE_OF_GAP: Final = 64
# More new constants than this, and more than a quarter of the old ones: labels are dealt out again for all.
_MANY: Final = 16
# A gap below this cannot take a label: the label itself needs a code on either side for values in between.
_NARROWEST_GAP: Final = 4

# The labels of a line before and after they were dealt out again.
Relabelling = tuple[list[int], list[int]]
# Where a constant goes among the old ones and among the new ones of a line.
_Gap = tuple[int, int]


class Section(NamedTuple):
    """A range of codes, both ends included."""

    first: int
    last: int


NUMBERS: Final = Section(FIRST_NUMBER, LAST_NUMBER)
STRINGS: Final = Section(FIRST_STRING, LAST_STRING)
BOOLEANS: Final = Section(FALSE, TRUE)
NOT_NULL: Final = Section(FALSE, LAST_STRING)
PRESENT: Final = Section(NULL, LAST_STRING)


class Keys(Protocol):
    """Constants in order."""

    def __len__(self) -> int:
        """Return how many they are."""

    def __getitem__(self, i: int, /) -> Any:
        """Return one of them; raise IndexError behind the last."""


class Line:
    """The constants of one kind of one attribute in order, each with its label.

    Most constants lie in sequences that never change and that other lines share (`flat_domains`); those that came
    since are in lists beside them. The code of a value is the greater of its codes in the two.

    Examples
    --------
    >>> line = Line(NUMBERS)
    >>> line.insert([5, 9]) is None, line.code(5) < line.code(7) < line.code(9) < line.code(9.5)
    (True, True)
    """

    __slots__ = ("_newest", "_old_keys", "_old_labels", "new_keys", "new_labels", "section")

    def __init__(self, section: Section, keys: Keys = (), labels: Keys = ()) -> None:
        self.section = section
        self._old_keys = keys
        self._old_labels = labels
        self.new_keys: list[Any] = []
        self.new_labels: list[int] = []
        self._newest = -1  # the label given last

    def __len__(self) -> int:
        return len(self._old_keys) + len(self.new_keys)

    @property
    def keys(self) -> list[Any]:
        """All constants, ascending."""
        return sorted([*_listed(self._old_keys), *self.new_keys])

    @property
    def labels(self) -> list[int]:
        """The labels of all constants, ascending like them."""
        return sorted([*_listed(self._old_labels), *self.new_labels])

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the greatest label; there must be one."""
        found = [labels[i] for labels in (self._old_labels, self.new_labels) if len(labels) for i in (0, -1)]
        return min(found), max(found)

    @property
    def has_old(self) -> bool:
        """Whether some constants are not in the lists of new ones."""
        return len(self._old_keys) > 0

    def code(self, value: Any) -> int:
        """Return the code of a value of this line's kind: a label, or the space between two labels."""
        code = self.section.first
        if len(self._old_keys):
            code = _code_in(self._old_keys, self._old_labels, value, code)
        return _code_in(self.new_keys, self.new_labels, value, code) if self.new_keys else code

    def code_beside(self, value: Any, code: int) -> int:
        """Return the code of a value whose code among the old constants is known.

        Where labels were dealt out again, all constants are among the new ones, and the old labels mean nothing.
        """
        return _code_in(self.new_keys, self.new_labels, value, code if self.has_old else self.section.first)

    def has(self, value: Any) -> bool:
        """Return whether a value is one of the constants."""
        return any(_has(keys, value) for keys in (self._old_keys, self.new_keys))

    def constants_at(self, label: int) -> list[Any]:
        """Return the constant with this label, if there is one."""
        pairs = (self._old_keys, self._old_labels), (self.new_keys, self.new_labels)
        return [keys[bisect_left(labels, label)] for keys, labels in pairs if _has(labels, label)]

    def label(self, value: Any) -> int:
        """Return the label of a constant, -1 if the value is none."""
        for keys, labels in ((self._old_keys, self._old_labels), (self.new_keys, self.new_labels)):
            i = bisect_left(keys, value)
            if i < len(keys) and keys[i] == value:
                return int(labels[i])
        return -1

    def insert(self, values: Iterable[Any]) -> Relabelling | None:
        """Give labels to new constants; return (old labels, their new labels) if the old ones had to move."""
        new = self.unknown(values)
        if not new:
            return None
        if not len(self) or self._are_many(new):
            return self._deal(new, None)
        groups = self._by_gap(new)
        for gap, group in groups.items():
            if not self._fits(gap, group):
                return self._deal(new, group[-1])
        for gap in sorted(groups, reverse=True):  # from the end, so that the places before stay what they are
            self._squeeze_in(gap, groups[gap])
        return None

    def has_room(self, values: Iterable[Any]) -> bool:
        """Return whether `insert` would leave all labels where they are."""
        new = self.unknown(values)
        if not new or not len(self):
            return True
        return not self._are_many(new) and all(self._fits(gap, group) for gap, group in self._by_gap(new).items())

    def unknown(self, values: Iterable[Any]) -> list[Any]:
        """Return which values are no constants yet, ascending."""
        return sorted(value for value in set(values) if not self.has(value))

    def _by_gap(self, new: list[Any]) -> dict[_Gap, list[Any]]:
        """Return new constants by the places, among old and new ones, where they go."""
        groups: dict[_Gap, list[Any]] = {}
        for value in new:
            gap = bisect_left(self._old_keys, value), bisect_left(self.new_keys, value)
            groups.setdefault(gap, []).append(value)
        return groups

    def _fits(self, gap: _Gap, group: list[Any]) -> bool:
        below, above = self._neighbours(gap)
        return above - below >= _NARROWEST_GAP // 2 * (len(group) + 1)

    def _are_many(self, new: list[Any]) -> bool:
        return len(new) > _MANY and 4 * len(new) > len(self)

    def _neighbours(self, gap: _Gap) -> tuple[int, int]:
        """Return the labels below and above a gap; at the ends, the codes just outside the section."""
        below, above = self.section.first - 1, self.section.last + 1
        for i, labels in zip(gap, (self._old_labels, self.new_labels), strict=True):
            if i > 0:
                below = max(below, labels[i - 1])
            if i < len(labels):
                above = min(above, labels[i])
        return below, above

    def _squeeze_in(self, place: _Gap, group: list[Any]) -> None:
        """Insert constants into one gap, evenly, or behind one another if they continue a run."""
        below, above = self._neighbours(place)
        n, gap = len(group), above - below
        step = min(_WIDEST_GAP, max(2, gap // (_SHARE_OF_GAP * n)))
        if above > self.section.last or below == self._newest:
            first, newest = below + step, below + n * step
        elif below < self.section.first or above == self._newest:
            first, newest = above - n * step, above - n * step
        else:
            step = gap // (n + 1)
            first = newest = below + step
        self._newest = newest
        i = place[1]
        self.new_keys[i:i] = group
        self.new_labels[i:i] = range(first, first + n * step, step)

    def _deal(self, new: list[Any], crowded: Any) -> Relabelling | None:
        """Deal out all labels again, evenly; where it became too crowded, half of the section stays free."""
        old_keys, old_labels = self.keys, self.labels
        self._old_keys = self._old_labels = ()
        self.new_keys = keys = sorted([*old_keys, *new])  # nearly sorted already: linear time
        self._newest = -1
        if crowded is None:
            self.new_labels = even_labels(len(keys), self.section)
        else:
            first, last = self.section
            quarter = (last - first) // 4
            n_below = bisect_left(keys, crowded) + 1
            self.new_labels = even_labels(n_below, Section(first, first + quarter))
            self.new_labels += even_labels(len(keys) - n_below, Section(last - quarter, last))
            self._newest = self.new_labels[n_below - 1]
        if not old_keys:
            return None
        return old_labels, [self.new_labels[bisect_left(keys, key)] for key in old_keys]

    def copied(self) -> Line:
        """Return an independent copy; what never changes is shared."""
        line = Line(self.section, self._old_keys, self._old_labels)
        line.new_keys, line.new_labels, line._newest = self.new_keys.copy(), self.new_labels.copy(), self._newest
        return line

    def check(self) -> None:
        """Assert that keys and labels ascend together and that every gap has a code."""
        for keys, labels in ((self._old_keys, self._old_labels), (self.new_keys, self.new_labels)):
            assert len(keys) == len(labels)
            assert all(a < b for a, b in pairwise(_listed(keys)))
            assert all(self.code(keys[i]) == labels[i] for i in range(len(keys)))
        assert len(set(self.keys)) == len(self)
        ends = [self.section.first - 1, *self.labels, self.section.last + 1]
        assert all(b - a >= 2 for a, b in pairwise(ends))


def _code_in(keys: Keys, labels: Keys, value: Any, least: int) -> int:
    """Return the code of a value among some constants, or `least` if that is greater."""
    i = bisect_left(keys, value)
    if i < len(keys) and keys[i] == value:
        return int(labels[i])
    return max(labels[i - 1] + 1, least) if i else least


def _listed(keys: Keys) -> list[Any]:
    return [keys[i] for i in range(len(keys))]


def _has(keys: Keys, value: Any) -> bool:
    i = bisect_left(keys, value)
    return i < len(keys) and bool(keys[i] == value)


def even_labels(n: int, section: Section) -> list[int]:
    """Return n ascending labels with equal gaps around the middle of a section."""
    room = section.last - section.first
    gap = max(_NARROWEST_GAP, min(_WIDEST_GAP, room // 2 // (n + 1)))
    first = section.first + room // 2 - (n * gap) // 2
    return list(range(first, first + n * gap, gap))


class Domain:
    """All values of one attribute: a line of numbers and a line of strings."""

    __slots__ = ("numbers", "strings")

    def __init__(self, numbers: Line | None = None, strings: Line | None = None) -> None:
        self.numbers = Line(NUMBERS) if numbers is None else numbers
        self.strings = Line(STRINGS) if strings is None else strings

    def copied(self) -> Domain:
        """Return an independent copy."""
        return Domain(self.numbers.copied(), self.strings.copied())

    def code(self, leaf: Leaf) -> int:
        """Return the code of an event's value.

        >>> Domain().code(None), Domain().code(True), Domain().code(1.5), Domain().code("x") == FIRST_STRING
        (0, 2, 3, True)
        """
        if isinstance(leaf, str):
            return self.strings.code(leaf)
        if leaf is None:
            return NULL
        if isinstance(leaf, bool):
            return TRUE if leaf else FALSE
        return self.numbers.code(leaf)

    def code_beside(self, value: float | str, code: int) -> int:
        """Return the code of a number or a string whose code among the old constants is known."""
        return (self.strings if isinstance(value, str) else self.numbers).code_beside(value, code)


def after_prefix(prefix: str) -> str | None:
    """Return the least string above every string that starts with `prefix`, None if there is none.

    >>> after_prefix("ab"), after_prefix("a" + chr(0x10FFFF)), after_prefix("")
    ('ac', 'b', None)
    """
    for i in range(len(prefix) - 1, -1, -1):
        if prefix[i] != chr(0x10FFFF):
            return prefix[:i] + chr(ord(prefix[i]) + 1)
    return None
