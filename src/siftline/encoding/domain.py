"""Value domains: per attribute, the constants of the subscriptions cut the values into elementary spaces.

A value is located once, to its *code*; from then on every comparison is integer work. Codes are int32 and have fixed
sections, so that "any number" is the same range for every attribute:

    0      1      2     3 ............ 2**30 - 1     2**30 ........... 2**31 - 2
    null   false  true  numbers                      strings

Inside a section each constant has a *label*, a code of its own; a value between two constants gets the lower label + 1.
With the number constants 5 and 9 labelled 100 and 200:

    value     4     5     7     9     12
    code      3    100   101   200   201        a < 9  is  3 .. 199,   a >= 9  is  200 .. 2**30 - 1

Labels leave gaps: a new constant 7 becomes 150, and no predicate that is already encoded changes. When a gap is
used up, a constant gets no label: what compares with it is encoded by the codes around it (`ranges.py`), until somebody
has the time to deal out the labels of that line again (`dealt`), and to follow that up in all that was encoded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from siftline.kernels import codes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from siftline.model import Leaf

NULL: Final = int(codes.NULL)
FALSE: Final = int(codes.FALSE)
TRUE: Final = int(codes.TRUE)
FIRST_NUMBER: Final = int(codes.FIRST_NUMBER)
LAST_NUMBER: Final = int(codes.LAST_NUMBER)
FIRST_STRING: Final = int(codes.FIRST_STRING)
LAST_STRING: Final = int(codes.LAST_STRING)

# A label is this far from its neighbours if there is room.
_WIDEST_GAP: Final = 1 << 20
# Constants that arrive in order (timestamps, ids) are this far apart, and take up at most this part of a gap each,
# instead of half of what is left.
_STEP_OF_RUN: Final = 4096
_SHARE_OF_GAP: Final = 64
# The first constants beyond an end of the line leave much room between them: others may come there in any order.
_FIRST_BEYOND: Final = 8
_SHARE_BEYOND: Final = 16
# More new constants than this, and more than a quarter of the old ones: labels are dealt out again for all.
_RELABELLING_MIN: Final = 16
# A gap below this cannot take a label: the label itself needs a code on either side for values in between.
_NARROWEST_GAP: Final = 4

NO_LABEL: Final = -1
# Below this, every integer is a double of its own.
_EXACT_INTEGERS: Final = 2**53

# The labels of a line before and after they were dealt out again.
Relabelling = tuple["NDArray[np.int32]", "NDArray[np.int32]"]
# Where a constant goes among the old ones and among the new ones of a line.
Gap = tuple[int, int]


class Section(NamedTuple):
    """A range of codes, both ends included."""

    first: int
    last: int


class Bounds(NamedTuple):
    """The codes that values equal to a constant can have; if it is exact, only they have them."""

    low: int
    high: int
    is_exact: bool


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


class SearchedKeys(ABC):
    """Constants in order that know a shorter way to a place among them than a search over Python objects."""

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int:
        """Return how many they are."""

    @abstractmethod
    def __getitem__(self, i: int, /) -> Any:
        """Return one of them; raise IndexError behind the last."""

    @abstractmethod
    def place(self, value: Any) -> int:
        """Return what `bisect_left` would."""


class Line:
    """The constants of one kind of one attribute in order, each with its label.

    Most constants lie in sequences that never change and that other lines share (`flat_domains`); those that came
    since are in lists beside them. The code of a value is the greater of its codes in the two. Of a line whose labels
    were dealt out again (`is_dealt`), the flat arrays know nothing.

    Examples
    --------
    >>> line = Line(NUMBERS)
    >>> line.insert([5, 9]) is None, line.code(5) < line.code(7) < line.code(9) < line.code(9.5)
    (True, True)
    """

    __slots__ = ("_n_beyond", "_newest", "_old_keys", "_old_labels", "is_dealt", "new_keys", "new_labels", "section")

    def __init__(self, section: Section, keys: Keys = (), labels: Keys = (), *, is_dealt: bool = False) -> None:
        self.section = section
        self.is_dealt = is_dealt
        self._old_keys = keys
        self._old_labels = labels
        self.new_keys: list[Any] = []
        self.new_labels: list[int] = []
        self._newest = -1  # the label given last
        self._n_beyond = 0  # how many were given beyond the ends

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
    def unmerged(self) -> tuple[list[Any], list[int]]:
        """The constants that the flat arrays lack, ascending, and their labels."""
        return (self.keys, self.labels) if self.is_dealt and len(self._old_keys) else (self.new_keys, self.new_labels)

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the greatest label; there must be one."""
        found = [labels[i] for labels in (self._old_labels, self.new_labels) if len(labels) for i in (0, -1)]
        return min(found), max(found)

    def code(self, value: Any) -> int:
        """Return the code of a value of this line's kind: a label, or the space between two labels."""
        code = self.section.first
        if len(self._old_keys):
            code = _code_in(self._old_keys, self._old_labels, value, code)
        return _code_in(self.new_keys, self.new_labels, value, code) if self.new_keys else code

    def code_beside(self, value: Any, code: int) -> int:
        """Return the code of a value whose code in the flat arrays is known."""
        if self.is_dealt:
            return self.code(value)
        return _code_in(self.new_keys, self.new_labels, value, code if len(self._old_keys) else self.section.first)

    def codes_within(self, gap: Gap) -> tuple[int, int]:
        """Return the first and the last code that values between the neighbours of a new constant can have."""
        below, above = self._neighbours(gap)
        return below + 1, above - 1

    def has(self, value: Any) -> bool:
        """Return whether a value is one of the constants."""
        return any(_has(keys, value) for keys in (self._old_keys, self.new_keys))

    def constants_at(self, label: int) -> list[Any]:
        """Return the constant with this label, if there is one."""
        pairs = (self._old_keys, self._old_labels), (self.new_keys, self.new_labels)
        return [keys[bisect_left(labels, label)] for keys, labels in pairs if _has(labels, label)]

    def label(self, value: Any) -> int:
        """Return the label of a constant, NO_LABEL if the value is none."""
        return self.find(value)[0]

    def find(self, value: Any) -> tuple[int, Gap]:
        """Return the label of a constant, and where it stands; of a new one NO_LABEL, and where it would stand."""
        old, new = gap = self.gap(value)
        if old < len(self._old_keys) and self._old_keys[old] == value:
            return int(self._old_labels[old]), gap
        if new < len(self.new_keys) and self.new_keys[new] == value:
            return self.new_labels[new], gap
        return NO_LABEL, gap

    def gap(self, value: Any) -> Gap:
        """Return where a new constant would stand."""
        old = self._old_keys
        place = old.place(value) if isinstance(old, SearchedKeys) else bisect_left(old, value)
        return place, bisect_left(self.new_keys, value)

    def has_room(self, gap: Gap) -> bool:
        """Return whether a new constant can have a label there while all others keep theirs."""
        return self._fits(gap, 1)

    def place(self, value: Any, gap: Gap | None = None) -> int:
        """Give a label to one new constant and return it, NO_LABEL if there is no room for it."""
        gap = self.gap(value) if gap is None else gap
        below, above = self._neighbours(gap)
        return self._squeeze_in(gap[1], below, above, [value]) if above - below >= _NARROWEST_GAP else NO_LABEL

    def enter(self, value: Any, label: int) -> None:
        """Take in a constant that has a label already."""
        i = bisect_left(self.new_keys, value)
        self.new_labels.insert(i, label)
        self.new_keys.insert(i, value)
        self._newest = label

    def insert(self, values: Iterable[Any]) -> Relabelling | None:
        """Give labels to new constants; return (old labels, their new labels) if the old ones had to move."""
        new = self.unknown(values)
        if not new:
            return None
        if not len(self) or self._are_many(new):
            return self._deal(new, ())
        groups = self._by_gap(new)
        for gap, group in groups.items():
            if not self._fits(gap, len(group)):
                return self._deal(new, group)
        for gap in sorted(groups, reverse=True):  # from the end, so that the places before stay what they are
            self._squeeze_in(gap[1], *self._neighbours(gap), groups[gap])
        return None

    def unknown(self, values: Iterable[Any]) -> list[Any]:
        """Return which values are no constants yet, ascending."""
        return sorted(value for value in set(values) if not self.has(value))

    def _by_gap(self, new: list[Any]) -> dict[Gap, list[Any]]:
        """Return new constants by the places, among old and new ones, where they go."""
        groups: dict[Gap, list[Any]] = {}
        for value in new:
            groups.setdefault(self.gap(value), []).append(value)
        return groups

    def _fits(self, gap: Gap, n: int) -> bool:
        below, above = self._neighbours(gap)
        return above - below >= _NARROWEST_GAP // 2 * (n + 1)

    def _are_many(self, new: list[Any]) -> bool:
        return len(new) > _RELABELLING_MIN and 4 * len(new) > len(self)

    def _neighbours(self, gap: Gap) -> tuple[int, int]:
        """Return the labels below and above a gap; at the ends, the codes just outside the section."""
        below, above = self.section.first - 1, self.section.last + 1
        for i, labels in ((gap[0], self._old_labels), (gap[1], self.new_labels)):
            if i > 0 and labels[i - 1] > below:
                below = labels[i - 1]
            if i < len(labels) and labels[i] < above:
                above = labels[i]
        return below, above

    def _squeeze_in(self, i: int, below: int, above: int, group: list[Any]) -> int:
        """Insert constants between two labels, evenly, or behind one another if they continue a run.

        They go to place i of the new ones. Labels come before keys, so that one who looks on without a lock finds a
        label for every key. Returns the first label.
        """
        n, gap = len(group), above - below
        is_first, is_last = below < self.section.first, above > self.section.last
        step = self._step(gap // n, is_first or is_last)
        if is_first == is_last and self._newest not in (below, above):
            step = gap // (n + 1)
            first = newest = below + step
        elif is_last or below == self._newest:
            first, newest = below + step, below + n * step
        else:
            first = newest = above - n * step
        self._newest = newest
        self.new_labels[i:i] = range(first, first + n * step, step)
        self.new_keys[i:i] = group
        return first

    def _step(self, gap: int, is_beyond: bool) -> int:
        """Return how far the labels of a run are apart; where it goes beyond the ends, its beginning is wider."""
        if is_beyond and self._n_beyond < _FIRST_BEYOND:
            self._n_beyond += 1
            return max(2, gap // _SHARE_BEYOND)
        return min(_STEP_OF_RUN, max(2, gap // _SHARE_OF_GAP))

    def _deal(self, new: Sequence[Any], crowded: Sequence[Any]) -> Relabelling | None:
        """Deal out all labels again, as `dealt` does; return the old labels and what they became."""
        line, (old_labels, labels) = self.dealt(new, crowded)
        self.is_dealt = True
        self._old_keys = self._old_labels = ()
        self.new_keys, self.new_labels = _listed(line._old_keys), _listed(line._old_labels)
        self._newest, self._n_beyond = -1, 0
        return (old_labels, labels) if len(old_labels) else None

    def dealt(self, new: Sequence[Any], crowded: Sequence[Any]) -> tuple[Line, Relabelling]:
        """Return a line of these and of new constants whose labels are even, but for more room beside the crowded.

        With it come the labels that the constants had, and those that they have in the other line.
        """
        keys = _joined(self._old_keys, [*self.new_keys, *new])
        places = [bisect_left(keys, value) for value in crowded]
        latest = [bisect_left(keys, value) for value in (*crowded[-1:], *self.constants_at(self._newest))]
        labels = even_labels(len(keys), self.section)
        if places:
            labels = roomy_labels(len(keys), places, latest, self.section)
        is_old = np.ones(len(keys), dtype=np.bool_)
        is_old[[bisect_left(keys, value) for value in new]] = False
        line = Line(self.section, keys, _view(labels), is_dealt=True)
        old_labels = np.concatenate([np.array(each, dtype=np.int32) for each in (self._old_labels, self.new_labels)])
        return line, (np.sort(old_labels), labels[is_old])

    def copied(self) -> Line:
        """Return an independent copy; what never changes is shared."""
        line = Line(self.section, self._old_keys, self._old_labels, is_dealt=self.is_dealt)
        line.new_keys, line.new_labels = self.new_keys.copy(), self.new_labels.copy()
        line._newest, line._n_beyond = self._newest, self._n_beyond
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
    if isinstance(keys, memoryview):
        return keys.tolist()
    return [*keys] if isinstance(keys, (list, tuple)) else [keys[i] for i in range(len(keys))]


def _view(array: Any) -> memoryview:
    # Memory views are quicker to index than arrays, and a binary search can run over them.
    return memoryview(array)


def _joined(old: Keys, new: list[Any]) -> Keys:
    """Return constants in order: as doubles, which sort without holding up other threads, if all of them are such."""
    if isinstance(old, memoryview) and all(type(key) is float or abs(key) < _EXACT_INTEGERS for key in new):
        return _view(np.sort(np.concatenate([np.asarray(old), np.array(new, dtype=np.float64)])))
    return sorted([*_listed(old), *new])


def _has(keys: Keys, value: Any) -> bool:
    i = bisect_left(keys, value)
    return i < len(keys) and bool(keys[i] == value)


def even_labels(n: int, section: Section) -> NDArray[np.int32]:
    """Return n ascending labels with equal gaps around the middle of a section."""
    room = section.last - section.first
    gap = max(_NARROWEST_GAP, min(_WIDEST_GAP, room // 2 // (n + 1)))
    first = section.first + room // 2 - (n * gap) // 2
    return np.arange(first, first + n * gap, gap, dtype=np.int32)


def roomy_labels(n: int, crowded: Sequence[int], latest: Sequence[int], section: Section) -> NDArray[np.int32]:
    """Return n ascending labels; the gaps on both sides of the crowded places share a third of the section.

    Half of it is for the latest ones, because constants that fill a gap often continue a run.

    >>> labels = roomy_labels(1000, [500], [500], NUMBERS)
    >>> bool(labels[500] - labels[499] > 100 * (labels[1] - labels[0]) > 0), bool(labels[-1] < NUMBERS.last)
    (True, True)
    """
    room = section.last - section.first
    gaps = np.full(n + 1, max(_NARROWEST_GAP, min(_WIDEST_GAP, room // 3 // (n + 1))), dtype=np.int64)
    for places in (np.array(crowded), np.array(latest)):
        for beside in (places, places + 1):
            np.add.at(gaps, beside, room // 6 // (2 * len(places)))
    gaps[0] = section.first + (room - gaps[1:-1].sum()) // 2
    return np.cumsum(gaps[:-1]).astype(np.int32)


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
        """Return the code of a number or a string whose code in the flat arrays is known."""
        return (self.strings if isinstance(value, str) else self.numbers).code_beside(value, code)

    def bounds(self, constant: float | str) -> Bounds:
        """Return the codes of a constant of a predicate: its label, or what is around it if it has none."""
        if isinstance(constant, bool):
            return Bounds(self.code(constant), self.code(constant), True)
        line = self.strings if isinstance(constant, str) else self.numbers
        label, gap = line.find(constant)
        return Bounds(*line.codes_within(gap), False) if label == NO_LABEL else Bounds(label, label, True)


def after_prefix(prefix: str) -> str | None:
    """Return the least string above every string that starts with `prefix`, None if there is none.

    >>> after_prefix("ab"), after_prefix("a" + chr(0x10FFFF)), after_prefix("")
    ('ac', 'b', None)
    """
    for i in range(len(prefix) - 1, -1, -1):
        if prefix[i] != chr(0x10FFFF):
            return prefix[:i] + chr(ord(prefix[i]) + 1)
    return None
