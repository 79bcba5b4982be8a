"""`counting`: satisfied predicates first, each once, then clauses by counting theirs.

Paper
-----
ToPSS, the Toronto publish/subscribe system: predicate tables and counting. Numbers below are its sections.

Idea
----
Each distinct predicate has one number, however many clauses use it. Stage 1 finds the predicates that an event
satisfies and sets their bits in the predicate bit vector. Stage 2 adds one hit to every clause of every satisfied
predicate; a clause with as many hits as it has predicates holds. Numbers are in the order of attribute, list and
operand. So the predicates of a sorted list that a value satisfies are a run of numbers (predicate inference), and stage
2 reads the clauses of a run in one stream.

Worked example (operands instead of codes)
------------------------------------------
    clauses      0: x > 3 and y = 1      1: x > 3 and x < 9      2: x > 7 and x != 5      3: x between 4 and 6

    list         at most   at least    not equal   between   |   =
    attribute    x         x           x           x         |   y
    operand      < 9       > 3   > 7   != 5        4 .. 6    |   1
    predicate    0         1     2     3           4         |   5
    clauses      1         0 1   2     2           3         |   0            needed by clause: 2 2 2 1

    event {x: 5}     at most upwards from 5: 0, at least downwards: 1; one run 0 1.  Not equal: all but 5: none.
                     Between: 4 begins at or below 5 and reaches it: 4.
    bit vector       1 1 0 0 1 0        hits 1 2 0 1        clauses 1 and 3 have all they need

    with a table     value      at most   at least   not equal   between         [value][operator] -> where to begin
    (3.2, Fig. 1)    5          0         2          3           5               at most from here on, at least before
                     6 .. 7     0         2          4           5               here, not equal but here, ...

Arrays
------
groups : int32[n_attributes]
    The place of an attribute among those in use, its group; -1 if no predicate is about it.
heads : uint32[10 * n_groups + 1]
    The predicates of list l of group g are heads[10 g + l] : heads[10 g + l + 1]. Lists: `=`; at most, at least, `!=`
    of numbers; the same of strings; between; in; other sets.
operands : int32[n_predicates], ends : int32[n_predicates]
    The code that a list is sorted by, ascending in each of the first eight lists; the last code of a range.
entry_heads : uint32[2 * n_groups + 1], entry_lows, entry_highs : int32[n_entries], entry_predicates : uint32[n_entries]
    The ranges of the sets in the last two lists, sorted by low code, two lists a group: codes of `in`, other ranges.
table_ids : int32[2 * n_groups], tables : int64[n_tables, 4], bucket_rows : uint32, rows : uint32[8 * n_rows]
    The tables for numbers and for strings of a group (-1: none): first and last code, shift, first bucket. Bucket b
    begins in row bucket_rows[b]; row r is rows[8 r : 8 r + 8], its first code and where its values stand in the lists.
posting_starts : uint32[n_predicates + 1], postings : uint32
    Association "list": the clauses of each predicate, ascending. Empty for the matrices.
matrix : uint8[n_predicates, n_padded] or uint64[n_predicates, n_padded / 64]
    Association "byte-matrix" and "bit-matrix": which clauses have the predicate. Empty for lists.
needed : uint8, uint16 or uint32 [n_padded]
    Distinct predicates of each clause; the type's largest value, which hits never reach, if it has none.
has_veto : bool[n_clauses]
    Clauses that counting alone does not decide.

Cost (n clauses of k predicates, s of m distinct predicates satisfied)
----------------------------------------------------------------------
Stage 1: a search in every list of every attribute of the event, or one look-up with a table; then one step for 64
predicates of a run, and one test for every `between` and other range that begins at or below the value.
Stage 2: s n k / m hits with lists, s n with the matrices (and m n bits or bytes of memory); the comparison of n counts
takes 8 clauses a step, and is replaced by a second walk over the hits where these are few.

Departures
----------
D1  Additions and removals by parts instead of in place, so that other threads match meanwhile (see parts.py). Numbers
    of predicates that no clause uses any more are reused when a part is rebuilt; so no list from clauses to their
    predicates is kept for deletion, and each part numbers its own predicates.
D2  Lists are sorted arrays, found by binary search, of codes: `<` and `<=` share one list, `>` and `>=` another.
D3  The table has a row for each space between the constants in use instead of one for each value of the domain, and
    holds where the walk begins in each list instead of the numbers themselves: empty places are not walked. An event
    is known by its codes only, so a bucket over the codes gives the row; codes before the first or behind the last
    constant of the domain, which is where values outside of a range lie, take the lists.
D4  Operators that the paper does not have: `between` is a list sorted by low code, in which each range that begins at
    or below the value is tested; `in` has an entry for each code, other sets one for each range. The ranges of one set
    do not overlap, so that a value finds a predicate once.
D5  A predicate counts once for an event even if several values satisfy it: its bit is set once. So counting is exact
    for arrays too; only clauses with vetoes are verified.
D6  Counts have the width that the longest clause needs: more than 255 predicates are allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np

from siftline.encoding.clauses import VETO
from siftline.encoding.domain import FIRST_STRING
from siftline.indexes.counting.kernels import (
    N_LISTS,
    ROW,
    Lists,
    count_by_bits,
    count_by_bytes,
    count_by_lists,
    find_predicates,
)
from siftline.indexes.counting.layout_kernels import (
    distinct_predicates,
    fill_bits,
    fill_bytes,
    group_literals,
    lay_out_tables,
    list_clauses,
    number_predicates,
    same_sets,
    spread_sets,
)
from siftline.indexes.counting.publication_types import check_constants, publication_types
from siftline.indexes.parts import Found, PartedIndex, check_memory, checked_limit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from siftline.encoding.clauses import Clauses
    from siftline.encoding.domains import Domains
    from siftline.indexes.parts import Context, OneEvent, Part
    from siftline.indexes.protocol import Batch

_PREDICATES: Final = ("list", "table")

# D6: the unsigned chars of the paper, and wider types.
_COUNT_TYPES: Final = (np.uint8, np.uint16, np.uint32)

# Rows of a matrix and counts are padded to whole words of 64 clauses.
_WORD: Final = 64


class Arrays(NamedTuple):
    """One part; see the header."""

    groups: NDArray[np.int32]
    heads: NDArray[np.uint32]
    operands: NDArray[np.int32]
    ends: NDArray[np.int32]
    entry_heads: NDArray[np.uint32]
    entry_lows: NDArray[np.int32]
    entry_highs: NDArray[np.int32]
    entry_predicates: NDArray[np.uint32]
    table_ids: NDArray[np.int32]
    tables: NDArray[np.int64]
    bucket_rows: NDArray[np.uint32]
    rows: NDArray[np.uint32]
    posting_starts: NDArray[np.uint32]
    postings: NDArray[np.uint32]
    matrix: NDArray[Any]
    needed: NDArray[Any]
    has_veto: NDArray[np.bool_]


# How each association counts: the kernel, and the arrays that it reads.
_COUNTS: Final[dict[str, tuple[Any, tuple[str, ...]]]] = {
    "list": (count_by_lists, ("posting_starts", "postings")),
    "bit-matrix": (count_by_bits, ("matrix",)),
    "byte-matrix": (count_by_bytes, ("matrix",)),
}


class Counting(PartedIndex):
    """The counting algorithm.

    Parameters
    ----------
    predicates : {"list", "table"}
        How stage 1 finds the place of a value: by searching, or, for attributes with a finite type, in a table.
    association : {"list", "bit-matrix", "byte-matrix"}
        How stage 2 gets from predicates to clauses. A matrix has a bit or byte for every predicate and clause.
    types : dict, optional
        Publication types by attribute: `{"from": 0, "to": 120}`, `{"values": ["red", "green"]}`, `"integer"` or
        `"string"`. A subscription with a constant outside is refused; events may have any value.
    memory_limit_mb : int
        A matrix that would be larger is refused.

    Examples
    --------
    >>> from siftline import Engine
    >>> types = {"age": {"from": 0, "to": 120}, "color": {"values": ["red", "green"]}, "name": "string"}
    >>> engine = Engine("counting", predicates="table", types=types)
    >>> engine.add("age > 17 and color = 'red'", id=1)
    1
    >>> engine.match({"age": 30, "color": "red"}), engine.match({"age": 300, "color": "red"})
    ([1], [1])
    >>> engine.add("age > 170", id=2)
    Traceback (most recent call last):
        ...
    siftline.errors.SubscriptionError: 170 is outside of the domain of 'age', which takes integers from 0 to 120
      hint: the domain is declared by the option types of the index
    """

    name: ClassVar[str] = "counting"
    arrays_type: ClassVar[type] = Arrays

    def __init__(
        self,
        *,
        predicates: str = "list",
        association: str = "list",
        types: Mapping[str, Any] | None = None,
        memory_limit_mb: int = 8192,
    ) -> None:
        if predicates not in _PREDICATES:
            raise ValueError(f"predicates must be one of {', '.join(_PREDICATES)}, not {predicates!r}")
        if association not in _COUNTS:
            raise ValueError(f"association must be one of {', '.join(_COUNTS)}, not {association!r}")
        self._has_tables = predicates == "table"
        self._association = association
        self._types = publication_types(types)
        self._memory_limit_mb = checked_limit(memory_limit_mb)
        super().__init__()

    def build(self, batch: Batch) -> None:
        """Lay out all subscriptions, if their constants are in the domains of their attributes."""
        check_constants(self._types, batch)
        super().build(batch)

    def prepare(self, batch: Batch) -> Any:
        """Lay out new subscriptions, if their constants are in the domains of their attributes."""
        check_constants(self._types, batch)
        return super().prepare(batch)

    def _lay_out(self, clauses: Clauses, chosen: NDArray[np.int32], context: Context) -> Arrays:
        groups, group_starts, keys, owners, needed, has_veto = group_literals(
            chosen,
            len(context.domains),
            clauses.starts,
            clauses.attributes,
            clauses.lows,
            clauses.highs,
            clauses.kinds,
            clauses.sets,
            same_sets(clauses.set_starts, clauses.set_lows, clauses.set_highs),
        )
        found, predicate_keys, lengths, predicate_starts = distinct_predicates(group_starts, keys, owners, needed)
        numbers, heads, operands, ends, predicate_sets = number_predicates(
            predicate_starts, predicate_keys, clauses.set_starts, clauses.set_lows, clauses.set_highs
        )
        entry_heads, entry_lows, entry_highs, entry_predicates = spread_sets(
            heads, predicate_sets, clauses.set_starts, clauses.set_lows, clauses.set_highs
        )
        covered = self._covered(groups, context.domains)
        table_ids, tables, bucket_rows, rows = lay_out_tables(covered, heads, operands, entry_heads, entry_lows)
        posting_starts, postings, matrix = self._associate(found, owners, numbers, lengths, clauses.n_clauses)
        return Arrays(
            groups=groups,
            heads=heads,
            operands=operands,
            ends=ends,
            entry_heads=entry_heads,
            entry_lows=entry_lows,
            entry_highs=entry_highs,
            entry_predicates=entry_predicates,
            table_ids=table_ids,
            tables=tables,
            bucket_rows=bucket_rows,
            rows=rows,
            posting_starts=posting_starts,
            postings=postings,
            matrix=matrix,
            needed=_padded(needed),
            has_veto=has_veto,
        )

    def _covered(self, groups: NDArray[np.int32], domains: Domains) -> NDArray[np.int64]:
        """Return which tables to make: group, whether of strings, first and last label of the values in the type."""
        rows: list[tuple[int, int, int, int]] = []
        for name, publication in self._types.items() if self._has_tables else ():
            attribute = domains.ids.get(name)
            if attribute is None or not publication.is_finite or groups[attribute] < 0:
                continue
            domain = domains.domains[attribute]
            for is_string, line in enumerate((domain.numbers, domain.strings)):
                reach = publication.reach(line)
                if reach is not None:
                    rows.append((int(groups[attribute]), is_string, *reach))
        return np.array(rows, dtype=np.int64).reshape(-1, 4)

    def _associate(
        self,
        found: NDArray[np.int32],
        owners: NDArray[np.int32],
        numbers: NDArray[np.int32],
        lengths: NDArray[np.uint32],
        n_clauses: int,
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[Any]]:
        """Return the clauses of each predicate as lists and as a matrix, one of them empty (3.3)."""
        if self._association == "list":
            starts, postings = list_clauses(found, owners, numbers, lengths)
            return starts, postings, np.empty((0, 0), dtype=np.uint8)
        n_words = -(-n_clauses // _WORD)
        has_bits = self._association == "bit-matrix"
        shape = (len(numbers), n_words if has_bits else n_words * _WORD)
        dtype = np.dtype(np.uint64 if has_bits else np.uint8)
        n_bytes = shape[0] * shape[1] * dtype.itemsize
        why = f"a {self._association} of {len(numbers):,} predicates and {n_clauses:,} clauses ({n_bytes:,} bytes)"
        check_memory(self.name, n_bytes, self._memory_limit_mb, why)
        matrix = np.zeros(shape, dtype=dtype)
        (fill_bits if has_bits else fill_bytes)(found, owners, numbers, matrix)
        nothing = np.empty(0, dtype=np.uint32)
        return nothing, nothing, matrix

    def _match_part(self, part: Part, event: OneEvent) -> Found:
        """Find satisfied predicates, then clauses.

        Counted are the clauses whose hits are compared, the predicates that stage 1 sets or tests, and the lists or
        matrix rows that stage 2 walks.
        """
        arrays: Arrays = part.arrays
        scratch, needed = self._scratch, arrays.needed
        n_words = len(arrays.operands) // _WORD + 1
        vector = scratch.array("vector", n_words, np.uint64)
        words = scratch.array("words", n_words, np.uint32)
        hits = scratch.array(needed.dtype.name, len(needed), needed.dtype)
        count, names = _COUNTS[self._association]
        association = [getattr(arrays, name) for name in names]
        try:
            n_touched, n_seen = find_predicates(event.attributes, event.codes, part.handle(Lists), vector, words)
            sure, doubtful, n_compared, n_lists = count(
                n_touched, vector, words, *association, needed, arrays.has_veto, hits
            )
        except BaseException:  # interrupted between the stages: the bits of stage 1 are still set
            scratch.arrays.clear()
            raise
        if len(doubtful):
            held, n_tested = self._verified(part, doubtful, event)
            sure = np.concatenate([sure, held])
            n_seen += n_tested
        return Found(sure, n_compared, n_seen, n_lists)

    def _check_part(self, part: Part) -> None:
        arrays: Arrays = part.arrays
        heads, n_predicates = arrays.heads.astype(np.int64), len(arrays.operands)
        assert heads[0] == 0
        assert heads[-1] == n_predicates == len(arrays.ends)
        assert (np.diff(heads) >= 0).all()
        used = arrays.groups[arrays.groups >= 0]
        assert used.tolist() == list(range(len(heads) // N_LISTS))
        for head in range(len(heads) - 1):
            operands = arrays.operands[heads[head] : heads[head + 1]]
            is_strict = head % N_LISTS < 7  # ranges may begin at the same code, if they end at different ones
            assert (np.diff(operands) >= is_strict).all()
        self._check_entries(arrays)
        self._check_tables(arrays)
        assert _uses(arrays, part.n_clauses) == _distinct_predicates(part)

    def _check_entries(self, arrays: Arrays) -> None:
        heads = arrays.entry_heads.astype(np.int64)
        assert heads[-1] == len(arrays.entry_lows) == len(arrays.entry_highs) == len(arrays.entry_predicates)
        for head in range(len(heads) - 1):
            assert (np.diff(arrays.entry_lows[heads[head] : heads[head + 1]]) >= 0).all()
        assert (arrays.entry_lows <= arrays.entry_highs).all()

    def _check_tables(self, arrays: Arrays) -> None:
        assert np.count_nonzero(arrays.table_ids >= 0) == len(arrays.tables)
        assert len(arrays.rows) % ROW == 0
        for place in np.flatnonzero(arrays.table_ids >= 0):
            first, last, _, bucket = arrays.tables[arrays.table_ids[place]].tolist()
            assert first <= last
            assert (first >= FIRST_STRING) == bool(place % 2)
            assert arrays.rows[arrays.bucket_rows[bucket] * ROW] == first

    def _describe_part(self, part: Part) -> list[str]:
        arrays: Arrays = part.arrays
        sizes = np.diff(arrays.heads.astype(np.int64)).reshape(-1, N_LISTS).sum(axis=0).tolist()
        names = ("=", "at most", "at least", "!=", "between", "in", "other sets")
        merged = (sizes[0], *(sizes[1 + k] + sizes[4 + k] for k in range(3)), *sizes[7:])
        shown = ", ".join(f"{n:,} {name}" for name, n in zip(names, merged, strict=True) if n)
        lines = [
            f"{len(arrays.operands):,} distinct predicates on {len(arrays.heads) // N_LISTS:,} attributes: {shown}"
        ]
        if len(arrays.tables):
            lines.append(f"{len(arrays.tables):,} tables with {len(arrays.rows) // ROW:,} rows")
        elif self._has_tables:
            lines.append("no table: no attribute in use has a finite type (option types), so lists are searched")
        if self._association == "list":
            lines.append(f"lists with {len(arrays.postings):,} clauses")
        else:
            lines.append(f"{self._association}: {arrays.matrix.nbytes:,} bytes")
        return lines

    def _stats_of_part(self, part: Part) -> dict[str, int]:
        arrays: Arrays = part.arrays
        return {
            "distinct_predicates": len(arrays.operands),
            "tables": len(arrays.tables),
            "table_rows": len(arrays.rows) // ROW,
        }


def _padded(needed: NDArray[np.uint32]) -> NDArray[Any]:
    """Return counts in the narrowest type, padded to whole words; a clause without predicates gets the maximum."""
    most = int(needed.max(initial=0))
    dtype = next(dtype for dtype in _COUNT_TYPES if most < np.iinfo(dtype).max)
    padded = np.full(-(-len(needed) // _WORD) * _WORD, np.iinfo(dtype).max, dtype=dtype)
    np.copyto(padded[: len(needed)], needed, casting="unsafe", where=needed > 0)
    return padded


def _uses(arrays: Arrays, n_clauses: int) -> int:
    """Return how many pairs of predicate and clause the association holds, and assert that `needed` agrees."""
    if len(arrays.matrix):
        columns = arrays.matrix.view(np.uint8)
        if arrays.matrix.dtype == np.uint64:
            columns = np.unpackbits(columns, axis=1, bitorder="little")
        counts = columns.sum(axis=0)[:n_clauses]
    else:
        counts = np.bincount(arrays.postings, minlength=n_clauses)
    unreachable = np.iinfo(arrays.needed.dtype).max
    assert np.where(counts, counts, unreachable).tolist() == arrays.needed[:n_clauses].tolist()
    return int(counts.sum())


def _distinct_predicates(part: Part) -> int:
    """Return how many distinct literals the clauses have that are no vetoes, for the check of invariants."""
    clauses, is_other = part.clauses, np.zeros(part.n_clauses, dtype=np.bool_)
    is_other[part.others] = True
    total = 0
    for c in np.flatnonzero(~is_other):
        seen = set()
        for i in range(clauses.starts[c], clauses.starts[c + 1]):
            if clauses.kinds[i] >= VETO:
                continue
            ranges: tuple[Any, ...] = (clauses.lows[i], clauses.highs[i])
            if clauses.sets[i] >= 0:
                items = slice(clauses.set_starts[clauses.sets[i]], clauses.set_starts[clauses.sets[i] + 1])
                ranges = (*clauses.set_lows[items].tolist(), *clauses.set_highs[items].tolist(), "set")
            seen.add((clauses.attributes[i], ranges))
        total += len(seen)
    return total
