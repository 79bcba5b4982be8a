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
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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


class Section(NamedTuple):
    """A range of codes, both ends included."""

    first: int
    last: int


NUMBERS: Final = Section(FIRST_NUMBER, LAST_NUMBER)
STRINGS: Final = Section(FIRST_STRING, LAST_STRING)
BOOLEANS: Final = Section(FALSE, TRUE)
NOT_NULL: Final = Section(FALSE, LAST_STRING)
PRESENT: Final = Section(NULL, LAST_STRING)


class Line:
    """The constants of one kind of one attribute in order, each with its label.

    Examples
    --------
    >>> line = Line(NUMBERS)
    >>> line.insert([5, 9]) is None, line.code(5) < line.code(7) < line.code(9) < line.code(9.5)
    (True, True)
    """

    __slots__ = ("_newest", "keys", "labels", "section")

    def __init__(self, section: Section) -> None:
        self.section = section
        self.keys: list[Any] = []
        self.labels: list[int] = []
        self._newest = -1  # the label given last

    def code(self, value: Any) -> int:
        """Return the code of a value of this line's kind: a label, or the space between two labels."""
        keys = self.keys
        i = bisect_left(keys, value)
        if i < len(keys) and keys[i] == value:
            return self.labels[i]
        return self.labels[i - 1] + 1 if i else self.section.first

    def label(self, value: Any) -> int:
        """Return the label of a constant, -1 if the value is none."""
        keys = self.keys
        i = bisect_left(keys, value)
        return self.labels[i] if i < len(keys) and keys[i] == value else -1

    def insert(self, values: Iterable[Any]) -> Relabelling | None:
        """Give labels to new constants; return (old labels, their new labels) if the old ones had to move."""
        new = self._unknown(values)
        if not new:
            return None
        if not self.keys or self._are_many(new):
            return self._deal(new, None)
        groups = self._by_gap(new)
        for i, group in groups.items():
            if not self._fits(i, group):
                return self._deal(new, group[-1])
        for i in sorted(groups, reverse=True):  # from the end, so that the places before stay what they are
            self._squeeze_in(i, groups[i])
        return None

    def has_room(self, values: Iterable[Any]) -> bool:
        """Return whether `insert` would leave all labels where they are."""
        new = self._unknown(values)
        if not self.keys or not new:
            return True
        return not self._are_many(new) and all(self._fits(i, group) for i, group in self._by_gap(new).items())

    def _by_gap(self, new: list[Any]) -> dict[int, list[Any]]:
        """Return new constants by the place in `keys` where they go."""
        groups: dict[int, list[Any]] = {}
        for value in new:
            groups.setdefault(bisect_left(self.keys, value), []).append(value)
        return groups

    def _fits(self, i: int, group: list[Any]) -> bool:
        below, above = self._neighbours(i)
        return above - below >= _NARROWEST_GAP // 2 * (len(group) + 1)

    def _are_many(self, new: list[Any]) -> bool:
        return len(new) > _MANY and 4 * len(new) > len(self.keys)

    def _unknown(self, values: Iterable[Any]) -> list[Any]:
        keys, unknown = self.keys, []
        for value in set(values):
            i = bisect_left(keys, value)
            if i == len(keys) or keys[i] != value:
                unknown.append(value)
        return sorted(unknown)

    def _neighbours(self, i: int) -> tuple[int, int]:
        """Return the labels below and above place i; at the ends, the codes just outside the section."""
        below = self.labels[i - 1] if i else self.section.first - 1
        return below, self.labels[i] if i < len(self.labels) else self.section.last + 1

    def _squeeze_in(self, i: int, group: list[Any]) -> None:
        """Insert constants into one gap, evenly, or behind one another if they continue a run."""
        below, above = self._neighbours(i)
        n, gap = len(group), above - below
        step = min(_WIDEST_GAP, max(2, gap // (_SHARE_OF_GAP * n)))
        if i == len(self.labels) or below == self._newest:
            first, newest = below + step, below + n * step
        elif i == 0 or above == self._newest:
            first, newest = above - n * step, above - n * step
        else:
            step = gap // (n + 1)
            first = newest = below + step
        self._newest = newest
        self.keys[i:i] = group
        self.labels[i:i] = range(first, first + n * step, step)

    def _deal(self, new: list[Any], crowded: Any) -> Relabelling | None:
        """Deal out all labels again, evenly; where it became too crowded, half of the section stays free."""
        old_keys, old_labels = self.keys, self.labels
        self.keys = sorted([*old_keys, *new])  # nearly sorted already: linear time
        self._newest = -1
        if crowded is None:
            self.labels = even_labels(len(self.keys), self.section)
        else:
            first, last = self.section
            quarter = (last - first) // 4
            n_below = bisect_left(self.keys, crowded) + 1
            self.labels = even_labels(n_below, Section(first, first + quarter))
            self.labels += even_labels(len(self.keys) - n_below, Section(last - quarter, last))
            self._newest = self.labels[n_below - 1]
        if not old_keys:
            return None
        return old_labels, [self.labels[bisect_left(self.keys, key)] for key in old_keys]

    def kept(self, labels: set[int]) -> Line:
        """Return a line of the constants with these labels only; the labels stay."""
        line = Line(self.section)
        pairs = [(key, label) for key, label in zip(self.keys, self.labels, strict=True) if label in labels]
        line.keys, line.labels = [key for key, _ in pairs], [label for _, label in pairs]
        return line

    def copied(self) -> Line:
        """Return an independent copy."""
        line = Line(self.section)
        line.keys, line.labels = self.keys.copy(), self.labels.copy()
        return line

    def check(self) -> None:
        """Assert that keys and labels ascend and that every gap has a code."""
        assert len(self.keys) == len(self.labels)
        assert all(a < b for a, b in pairwise(self.keys))
        ends = [self.section.first - 1, *self.labels, self.section.last + 1]
        assert all(b - a >= 2 for a, b in pairwise(ends))


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
        self.numbers = numbers or Line(NUMBERS)
        self.strings = strings or Line(STRINGS)

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


def after_prefix(prefix: str) -> str | None:
    """Return the least string above every string that starts with `prefix`, None if there is none.

    >>> after_prefix("ab"), after_prefix("a" + chr(0x10FFFF)), after_prefix("")
    ('ac', 'b', None)
    """
    for i in range(len(prefix) - 1, -1, -1):
        if prefix[i] != chr(0x10FFFF):
            return prefix[:i] + chr(ord(prefix[i]) + 1)
    return None
