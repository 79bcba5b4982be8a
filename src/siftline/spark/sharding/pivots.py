"""Pivots: a subscription is stored in the shard of its pivot, the rarest of the attributes that it needs.

The pivot of a clause is its rarest attribute (OpIndex's idea): an event without a value for it cannot satisfy the
clause. A subscription is stored in the shard of the most frequent one of its pivots. An event visits the shards that
have a pivot among its attributes, together with a second attribute that a clause with that pivot needs (`pairs.py`).

All subscriptions are put on one line: those that need no attribute first, then by pivot, the most frequent one first.
The line is cut into shards of equal length. So the attributes that nearly every event has are together in the first
shards, and most events do not visit the last ones. A pivot with many subscriptions extends over several shards.

    without pivot | price ........................ | brand ........ | model .. | ... rare ones
    shard 0                 | shard 1                    | shard 2                |
"""

from __future__ import annotations

import zlib
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.encoding.tables import spelling
from siftline.spark.sharding.pairs import name_hashes
from siftline.spark.sharding.parsed import WITHOUT_VALUE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from siftline.spark.sharding.parsed import Parsed

# The pivot of a clause that needs no attribute: greater than all ranks.
NO_PIVOT: Final = 2**31 - 1


class Ranks:
    """All attributes that subscriptions use, ordered from the rarest to the most frequent one."""

    def __init__(self, frequencies: Mapping[str, float]) -> None:
        self.names = sorted(frequencies, key=lambda name: (frequencies[name], name))
        self.ranks = {name: rank for rank, name in enumerate(self.names)}

    @cached_property
    def hashes(self) -> NDArray[np.uint64]:
        """The hashes of the names, by rank."""
        return name_hashes(self.names)


class Pivots(NamedTuple):
    """Pivots of some subscriptions, as ranks."""

    owners: NDArray[np.int64]  # of each clause, the position of its subscription
    clauses: NDArray[np.int64]  # of each clause, its pivot
    partners: NDArray[np.int64]  # of each clause, the next rarest attribute that it needs, or its pivot
    primary: NDArray[np.int64]  # of each subscription, the greatest pivot of its clauses


def pivots_of(parsed: Parsed, ranks: Ranks) -> Pivots:
    """Return the pivots of some subscriptions."""
    found = zip(_pivots_of_rows(parsed, ranks), _pivots_of_others(parsed, ranks), strict=True)
    owners, clauses, partners = (np.concatenate(parts) for parts in found)
    primary = np.full(len(parsed), -1, dtype=np.int64)
    np.maximum.at(primary, owners, clauses)
    primary[primary < 0] = NO_PIVOT  # a subscription without clauses never matches, but it is stored too
    return Pivots(owners, clauses, np.where(partners == NO_PIVOT, clauses, partners), primary)


def _pivots_of_rows(parsed: Parsed, ranks: Ranks) -> tuple[NDArray[np.int64], ...]:
    """Return owner, pivot and partner of each clause that has rows of predicates."""
    rows = parsed.predicates
    if not len(rows):
        return (np.zeros(0, dtype=np.int64),) * 3
    names, name_codes = coded(rows["attribute"])
    ops, op_codes = coded(rows["op"])
    pivots = np.array([ranks.ranks[name] for name in names], dtype=np.int64)[name_codes]
    pivots[np.array([spelling(op) in WITHOUT_VALUE for op in ops])[op_codes]] = NO_PIVOT
    owners = np.repeat(np.arange(len(parsed)), np.diff(parsed.starts))
    is_first = np.ones(len(rows), dtype=np.bool_)
    is_first[1:] = np.diff(owners) != 0
    if "clause" in rows.column_names:
        is_first[1:] |= np.diff(rows["clause"].to_numpy()) != 0
    firsts = np.flatnonzero(is_first)
    clauses = np.minimum.reduceat(pivots, firsts)
    pivots[pivots == clauses[np.cumsum(is_first) - 1]] = NO_PIVOT
    return owners[firsts], clauses, np.minimum.reduceat(pivots, firsts)


def coded(column: Any) -> tuple[list[str], NDArray[np.int64]]:
    """Return the different texts of a column, and which of them each row has."""
    encoded = column.combine_chunks()
    encoded = encoded if hasattr(encoded, "dictionary") else encoded.dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _pivots_of_others(parsed: Parsed, ranks: Ranks) -> tuple[NDArray[np.int64], ...]:
    """Return owner, pivot and partner of each clause of the subscriptions that are text alone."""
    has_others = "attributes" in parsed.subscriptions.column_names
    others = parsed.subscriptions["attributes"].to_pylist() if has_others else []
    found = [
        (position, *[*sorted({ranks.ranks[name] for name in clause}), NO_PIVOT, NO_PIVOT][:2])
        for position, clauses in enumerate(others)
        for clause in clauses or ()
    ]
    return tuple(np.array(found, dtype=np.int64).reshape(-1, 3).T)


class Line:
    """The line of all subscriptions: where the part of each pivot begins, and where the line is cut."""

    def __init__(self, counts: Mapping[int, int], n_shards: int) -> None:
        self.n_shards = n_shards
        self.order = np.array(sorted(counts, reverse=True), dtype=np.int64)
        self.counts = np.array([counts[pivot] for pivot in self.order.tolist()], dtype=np.int64)
        self.starts = np.cumsum(self.counts) - self.counts
        self.length = max(1, int(self.counts.sum()))

    def shards(self, primary: NDArray[np.int64], ids: Any) -> NDArray[np.int64]:
        """Return the shard of each subscription."""
        places = len(self.order) - 1 - np.searchsorted(self.order[::-1], primary)
        starts, counts = self.starts[places], self.counts[places]
        firsts = self._cut(starts)
        is_across = self._cut(starts + counts - 1) > firsts
        # If a pivot extends over several shards, its subscriptions are spread over its part of the line by their ids.
        across = np.flatnonzero(is_across)
        positions = starts[across] + (_shares(ids.take(across)) * counts[across]).astype(np.int64)
        firsts[across] = self._cut(positions)
        return firsts

    def _cut(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(positions * self.n_shards // self.length, dtype=np.int64)


def _shares(ids: Any) -> NDArray[np.float64]:
    """Return numbers from 0 to 1 that depend only on the ids."""
    digests = [zlib.crc32(str(id).encode("utf-8", "surrogatepass")) for id in ids.to_pylist()]
    return np.array(digests, dtype=np.float64) / 2**32
