"""One event from its JSON text to attributes and codes, in one call.

All that a call writes to is kept by its thread (`EventScratch`), so nothing is allocated: matching on the fast path goes
on with the address of `header`, and whoever needs the leaves finds them there until the next call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.kernels.compiler import kernel
from siftline.kernels.json_leaves import NO_OTHERS, OK, Scratch, Statuses, _parse_events
from siftline.kernels.json_path import SLOT_WORDS, PathHash
from siftline.kernels.leaves import LeafColumns
from siftline.kernels.locate import FlatDomains, _locate_leaves
from siftline.kernels.pointers import EventValues, arrays_at, describe, octets_of, part_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

# What `encode_event` returns instead of the number of leaves: Python must read the text; there is no room for it.
ODD_TEXT: Final = -1
NO_ROOM: Final = -2


class EventPlaces(NamedTuple):
    """Where the values of events are located."""

    paths: PathHash
    path_attributes: NDArray[np.int32]  # the attribute of each path; empty if it is its position
    flat: FlatDomains


class EventScratch(NamedTuple):
    """What one thread keeps for encoding single events."""

    parser: Scratch
    outcome: Statuses
    bounds: NDArray[np.int64]  # where the text begins and ends
    leaves: LeafColumns
    codes: NDArray[np.int32]
    header: NDArray[np.int64]  # see `EventValues`


@kernel
def encode_event(text: bytes, places_at: Any, scratch_at: Any) -> int:
    """Encode one event; return how many leaves it has, ODD_TEXT, or NO_ROOM.

    Places and scratch come as addresses of handles (`pointers.address_of`).
    """
    places, scratch = arrays_at(places_at, EventPlaces), arrays_at(scratch_at, EventScratch)
    outcome, leaves, bounds = scratch.outcome, scratch.leaves, scratch.bounds
    data = octets_of(text)
    bounds[1] = len(data)
    if len(places.paths.slots) > SLOT_WORDS * len(scratch.parser.stamps):
        return NO_ROOM
    starts, ends = part_of(bounds, 0, 1), part_of(bounds, 1, 2)
    n_done, _ = _parse_events(data, starts, ends, places.paths, scratch.parser, outcome, leaves, 0, 0, NO_OTHERS)
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
    codes = part_of(scratch.codes, 0, n_leaves)
    _locate_leaves(found, places.flat, codes)
    describe(EventValues(found.attributes, codes), scratch.header)
    return n_leaves
