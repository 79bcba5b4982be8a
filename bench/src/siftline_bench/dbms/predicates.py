"""Coded literals back as rows with typed values, for a database that knows nothing of codes.

A predicate is the set of values that satisfy a literal. It becomes one row for each of its ranges, and a value lies in
at most one of them:

    price < 580                  (kind NUMBER, op LT, number 580)
    price between 1 and 9        (kind NUMBER, op CLOSED, number 1, upper 9)
    color in ('red', 'blue')     (kind STRING, op EQ, text 'blue'), (kind STRING, op EQ, text 'red')
    price != 5                   (kind NUMBER, op NE, number 5)
    price is not null            (kind FALSE), (kind TRUE), (kind NUMBER, op ANY), (kind STRING, op ANY)

Numbers are doubles. Where a number is none, `rest` has what is missing: 2**53 + 1 is (2.0**53, 1). Rounding keeps the
order, so pairs compare as the numbers do. Strings are their bytes in UTF-8, which order by code point.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.encoding.clauses import VETO
from siftline.encoding.domain import FIRST_NUMBER, FIRST_STRING, LAST_NUMBER, LAST_STRING
from siftline.encoding.domains import PATTERN_OPS
from siftline.encoding.moments import append_moments
from siftline.indexes.counting.layout_kernels import same_sets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from siftline.encoding.clauses import Clauses
    from siftline.encoding.domain import Domain, Line
    from siftline.encoding.domains import Domains
    from siftline.model import Event, Leaf

# Kinds of values; the first three are the codes of these values too.
NULL, FALSE, TRUE, NUMBER, STRING = range(5)

# What a value of the kind must be, compared with the row: anything, equal, less, ..., within, outside.
ANY, EQ, LT, LE, GT, GE, CLOSED, OPEN_ABOVE, OPEN_BELOW, OPEN, NE = range(11)

_LINES: Final = ((NUMBER, FIRST_NUMBER, LAST_NUMBER), (STRING, FIRST_STRING, LAST_STRING))
# By whether the lower and the upper bound are excluded.
_WITHIN: Final = {(False, False): CLOSED, (False, True): OPEN_ABOVE, (True, False): OPEN_BELOW, (True, True): OPEN}

# A vetoed predicate that holds takes away more than all others can give.
VETO_POINTS: Final = -(2**20)

# Column types of a row; `pid` numbers predicates, and the ranges of one share it.
ROW_TYPES: Final = {
    "pid": "INTEGER",
    "attr": "INTEGER",
    "kind": "INTEGER",
    "op": "INTEGER",
    "number": "DOUBLE",
    "rest": "BIGINT",
    "upper": "DOUBLE",
    "upper_rest": "BIGINT",
    "text": "BLOB",
    "upper_text": "BLOB",
}
Key = tuple[int, ...]
Range = tuple[int, int]


class Uses(NamedTuple):
    """Which clauses use which predicates, and what each clause needs to hold."""

    clauses: NDArray[np.int64]  # positions in the batch
    predicates: NDArray[np.int64]  # positions in `keys`
    points: NDArray[np.int64]  # 1, or VETO_POINTS
    needed: NDArray[np.int64]  # by clause: how many different predicates that are no vetoes
    keys: list[Key]  # the different predicates: attribute, then low and high of each range


def uses_of(clauses: Clauses) -> Uses:
    """Find the different predicates of clauses; each counts once in a clause."""
    owners = np.repeat(np.arange(clauses.n_clauses), np.diff(clauses.starts))
    firsts = same_sets(clauses.set_starts, clauses.set_lows, clauses.set_highs)
    sets = np.full(len(owners), -1, dtype=np.int64)
    has_set = clauses.sets >= 0
    sets[has_set] = firsts[clauses.sets[has_set]]
    ones, numbers = _numbered(clauses.attributes, clauses.lows, clauses.highs, sets)
    points = np.where(clauses.kinds >= VETO, VETO_POINTS, 1)
    kept, _ = _numbered(owners, numbers, points)
    kept.sort()
    needed = np.bincount(owners[kept][points[kept] > 0], minlength=clauses.n_clauses)
    keys = [_key(clauses, literal) for literal in ones.tolist()]
    return Uses(owners[kept], numbers[kept], points[kept], needed, keys)


def _numbered(*columns: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return one place of each different row, and for every row the number of its own."""
    order = np.lexsort(columns[::-1])
    is_first = np.zeros(len(order), dtype=np.bool_)
    is_first[:1] = True
    for column in columns:
        is_first[1:] |= np.diff(column[order]) != 0
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.cumsum(is_first) - 1
    return order[is_first], numbers


def _key(clauses: Clauses, literal: int) -> Key:
    attribute, number = int(clauses.attributes[literal]), int(clauses.sets[literal])
    if number < 0:
        return attribute, int(clauses.lows[literal]), int(clauses.highs[literal])
    items = slice(clauses.set_starts[number], clauses.set_starts[number + 1])
    pairs = zip(clauses.set_lows[items].tolist(), clauses.set_highs[items].tolist(), strict=True)
    return attribute, *(bound for pair in pairs for bound in pair)


def rows_of(pid: int, key: Key, domains: Domains) -> list[tuple[Any, ...]]:
    """Return the rows of one predicate, in the columns of ROW_TYPES."""
    attribute = key[0]
    ranges = list(zip(key[1::2], key[2::2], strict=True))
    domain = domains.domains[attribute]
    unequal = _unequal(ranges, domain)
    if unequal is not None:
        return [_row(pid, attribute, unequal[0], NE, unequal[1])]
    return [row for low, high in ranges for row in _rows_of_range(pid, attribute, low, high, domain)]


def _unequal(ranges: list[Range], domain: Domain) -> tuple[int, Any] | None:
    """Return kind and constant if all values of a kind but one satisfy the predicate."""
    if len(ranges) != 2 or ranges[0][1] + 2 != ranges[1][0]:
        return None
    for (kind, first, last), line in zip(_LINES, (domain.numbers, domain.strings), strict=True):
        if (ranges[0][0], ranges[1][1]) == (first, last):
            return kind, line.keys[bisect_left(line.labels, ranges[0][1] + 1)]
    return None


def _rows_of_range(pid: int, attribute: int, low: int, high: int, domain: Domain) -> Iterator[tuple[Any, ...]]:
    for kind in (NULL, FALSE, TRUE):
        if low <= kind <= high:
            yield _row(pid, attribute, kind, ANY)
    for (kind, first, last), line in zip(_LINES, (domain.numbers, domain.strings), strict=True):
        if low <= last and high >= first:
            yield _row(pid, attribute, kind, *_comparison(max(low, first), min(high, last), first, last, line))


def _comparison(low: int, high: int, first: int, last: int, line: Line) -> tuple[Any, ...]:
    """Return the operator and the constants for a range of codes: a bound is a label, or stands right beside one."""
    below = None if low == first else _constant(line, low, low - 1)
    above = None if high == last else _constant(line, high, high + 1)
    if below is None and above is None:
        return (ANY,)
    if below is None:
        assert above is not None
        return (LT if above[1] else LE), above[0]
    if above is None:
        return (GT if below[1] else GE), below[0]
    if low == high and not below[1]:
        return EQ, below[0]
    return _WITHIN[below[1], above[1]], below[0], above[0]


def _constant(line: Line, code: int, beside: int) -> tuple[Any, bool]:
    """Return the constant at a bound, and whether it is excluded."""
    place = bisect_left(line.labels, min(code, beside))
    label = line.labels[place]
    if label == code:
        return line.keys[place], False
    assert label == beside
    return line.keys[place], True


def _row(pid: int, attribute: int, kind: int, op: int, value: Any = None, upper: Any = None) -> tuple[Any, ...]:
    if kind == STRING:
        texts = (None if value is None else encoded(value), None if upper is None else encoded(upper))
        return pid, attribute, kind, op, None, 0, None, 0, *texts
    number, rest = (None, 0) if value is None else split(value)
    top, upper_rest = (None, 0) if upper is None else split(upper)
    return pid, attribute, kind, op, number, rest, top, upper_rest, None, None


def encoded(text: str) -> bytes:
    """Return the bytes of a string, whatever it holds."""
    return text.encode("utf-8", "surrogatepass")


def split(number: int | float) -> tuple[float, int]:
    """Return the nearest double and what is missing to the number itself.

    >>> split(2**53 + 1), split(-1.5), split(10**400)
    ((9007199254740992.0, 1), (-1.5, 0), (inf, 0))
    """
    if isinstance(number, float):
        return number, 0
    try:
        nearest = float(number)
    except OverflowError:  # beyond all constants
        return (math.inf if number > 0 else -math.inf), 0
    missing = number - int(nearest)
    # Of constants little is missing; where much is, only the sign counts.
    return nearest, max(-(2**62), min(missing, 2**62))


def event_rows(event: Event, domains: Domains, attributes: Any, codes: Any) -> list[tuple[Any, ...]]:
    """Return the values of an event: attribute, kind, number, rest, text; and the patterns that it satisfies."""
    owners: list[int] = []
    values: list[Any] = []
    for path, leaves in event.leaves.items():
        attribute = domains.ids.get(path)
        if attribute is not None:
            owners += [attribute] * len(leaves)
            values += leaves
    if domains.moments:
        append_moments(owners, values, 0, domains, event.now)
    rows = [(owner, *_value(value)) for owner, value in zip(owners, values, strict=True)]
    if domains.pattern_attributes:
        patterns = domains.pattern_attributes
        for attribute, code in zip(attributes.tolist(), codes.tolist(), strict=True):
            if attribute in patterns and patterns[attribute].op in PATTERN_OPS:
                rows.append((attribute, code, None, 0, None))
    return rows


def _value(leaf: Leaf) -> tuple[Any, ...]:
    if isinstance(leaf, str):
        return STRING, None, 0, encoded(leaf)
    if leaf is None:
        return NULL, None, 0, None
    if isinstance(leaf, bool):
        return (TRUE if leaf else FALSE), None, 0, None
    return NUMBER, *split(leaf), None
