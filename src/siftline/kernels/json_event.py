"""One event from its JSON text to attributes and codes, in one call, and one more for each layer of patterns.

All that a call writes to is kept by its thread (`EventScratch`), so nothing is allocated. Matching goes on with the
address of `header`; whoever needs the leaves finds them there until the next call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from siftline.kernels.codes import TRUE
from siftline.kernels.compiler import inline_kernel, kernel
from siftline.kernels.json_leaves import OK, Scratch, Statuses, _parse_events
from siftline.kernels.json_path import SLOT_WORDS, PathHash
from siftline.kernels.leaves import LeafColumns
from siftline.kernels.locate import FlatDomains, _locate_leaves
from siftline.kernels.pointers import EventValues, arrays_at, describe, octets_of, part_of
from siftline.kernels.text_search import N_SEARCHED, N_STRINGS, NEVER_REMEMBERED, Found, search_leaves

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# What `encode_event` returns instead of the number of values: Python must read the text; there is no room for it.
ODD_TEXT: Final = -1
NO_ROOM: Final = -2
# What `search_event` returns instead of the number of values: there is no room for what may be found; some character
# has to be folded, and the table for that is missing.
NO_ROOM_FOR_PATTERNS: Final = -1
NOT_FOLDED: Final = -2

# The columns of `EventScratch.counts`: where the text begins and ends, and how many values the event has.
_START, _END, VALUES, N_COUNTS = 0, 1, 2, 3


class EventPlaces(NamedTuple):
    """Where the values of events are located."""

    paths: PathHash
    path_attributes: NDArray[np.int32]  # the attribute of each path; empty if it is its position
    flat: FlatDomains


class EventScratch(NamedTuple):
    """What one thread keeps for encoding single events."""

    counts: NDArray[np.int64]
    parser: Scratch
    outcome: Statuses
    leaves: LeafColumns
    attributes: NDArray[np.int32]
    codes: NDArray[np.int32]
    header: NDArray[np.int64]  # see `EventValues`


class PatternScratch(NamedTuple):
    """What one thread keeps for the patterns of single events."""

    found: Found
    handle: NDArray[np.int64]  # of a `SearchScratch`
    serials: NDArray[np.int64]  # those of it


class PatternCounts(NamedTuple):
    """How many strings there were, how many of them were searched, and how many tests were left to the caller."""

    counts: NDArray[np.int64]


@kernel
def encode_event(text: bytes, places_at: Any, scratch_at: Any, others: int) -> int:
    """Encode one event; return how many values it has, ODD_TEXT, or NO_ROOM.

    Places and scratch come as addresses of handles (`pointers.address_of`). For `others` see `parse_events`; the leaves
    of an attribute below zero are no values.
    """
    places, scratch = arrays_at(places_at, EventPlaces), arrays_at(scratch_at, EventScratch)
    outcome, leaves, counts = scratch.outcome, scratch.leaves, scratch.counts
    if len(places.paths.slots) > SLOT_WORDS * len(scratch.parser.stamps):
        return NO_ROOM
    data = octets_of(text)
    counts[_END] = len(data)
    starts, ends = part_of(counts, _START, _START + 1), part_of(counts, _END, _END + 1)
    n_done, _ = _parse_events(data, starts, ends, places.paths, scratch.parser, outcome, leaves, 0, 0, others)
    if n_done == 0:
        return NO_ROOM
    if outcome.statuses[0] != OK:
        return ODD_TEXT
    n_leaves = outcome.event_starts[1]
    if len(places.path_attributes):
        for i in range(n_leaves):
            leaves.attributes[i] = places.path_attributes[leaves.attributes[i]]
    found = LeafColumns(
        attributes=part_of(leaves.attributes, 0, n_leaves),
        kinds=part_of(leaves.kinds, 0, n_leaves),
        numbers=part_of(leaves.numbers, 0, n_leaves),
        residuals=part_of(leaves.residuals, 0, n_leaves),
        text_starts=part_of(leaves.text_starts, 0, n_leaves),
        text_ends=part_of(leaves.text_ends, 0, n_leaves),
        texts=leaves.texts,
    )
    codes = scratch.codes
    _locate_leaves(found, places.flat, codes)
    n_values = 0
    for i in range(n_leaves):
        if found.attributes[i] >= 0:
            scratch.attributes[n_values], codes[n_values] = found.attributes[i], codes[i]
            n_values += 1
    _count_values(scratch, n_values)
    return n_values


@kernel
def search_event(table: Any, counts_at: Any, pattern_scratch_at: Any, scratch_at: Any) -> Any:
    """Search the strings of the event that was encoded last for one layer of patterns, whose attributes become values.

    Returns how many values the event has, NO_ROOM_FOR_PATTERNS or NOT_FOLDED. Which patterns are left open is in
    `PatternScratch.found`.
    """
    scratch, patterns = arrays_at(scratch_at, EventScratch), arrays_at(pattern_scratch_at, PatternScratch)
    found, n_values = patterns.found, scratch.counts[VALUES]
    serials, counts = patterns.serials, arrays_at(counts_at, PatternCounts).counts
    serials[N_STRINGS] = serials[N_SEARCHED] = 0
    event_starts = scratch.outcome.event_starts
    done = search_leaves(scratch.leaves, event_starts, table, patterns.handle, found, 0, NEVER_REMEMBERED)
    if done < 0:
        return NOT_FOLDED
    n_found = found.starts[1]
    if done == 0 or n_values + n_found > len(scratch.codes):
        return NO_ROOM_FOR_PATTERNS
    counts[0] += serials[N_STRINGS]
    counts[1] += serials[N_SEARCHED]
    counts[2] += found.open_starts[1]
    for i in range(n_found):
        scratch.attributes[n_values + i], scratch.codes[n_values + i] = found.targets[i], TRUE
    _count_values(scratch, n_values + n_found)
    return n_values + n_found


@inline_kernel
def _count_values(scratch: EventScratch, n_values: int) -> None:
    scratch.counts[VALUES] = n_values
    values = EventValues(part_of(scratch.attributes, 0, n_values), part_of(scratch.codes, 0, n_values))
    describe(values, scratch.header)
