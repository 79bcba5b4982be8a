"""The arrays of `sift`, by name: of an event, of a thread's scratch, and of a part.

A kernel that is called for every event takes addresses, because Python passes a number faster than an array. It makes
these tuples from them (`pointers.arrays_at`), which costs nothing in compiled code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from siftline.kernels.literals import Literals

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Event(NamedTuple):
    """The values of one event."""

    attributes: NDArray[np.int32]
    codes: NDArray[np.int32]
    ordinals: NDArray[np.int32]  # scratch, written by `find_ordinals`


class Wanted(NamedTuple):
    """Which slots a match may return."""

    is_live: NDArray[np.bool_]  # empty if all slots are live
    weights: NDArray[np.float64]
    heaviest: NDArray[np.float64]  # a heap of the best weights so far; empty if all slots are wanted


class Ids(NamedTuple):
    """The ids of slots, and where the ids of matches are written; empty if the caller wants slots."""

    ids: NDArray[np.int64]
    found: NDArray[np.int64]
    plain: NDArray[np.uint64]  # this and the next two: the duplicates of slots, see `kernels/sharing.py`
    next_duplicates: NDArray[np.int32]
    is_member: NDArray[np.bool_]


class Findings(NamedTuple):
    """What each step of a match writes for the next step; a batch has two, because the steps of two events overlap."""

    lists: NDArray[np.int32]  # first and end of each list
    records: NDArray[np.int32]  # of blocks
    survivors: NDArray[np.int32]  # entries of lists, then their rows


class Scratch(NamedTuple):
    """The scratch of one thread. A match restores all of it but `groups`, `waiting`, `work` and the results."""

    dense: NDArray[np.int32]  # by attribute + 1: the code of its value
    seen: NDArray[np.uint64]  # the signatures of the event's attributes, as bits
    marks: NDArray[np.uint8]  # by lane: in which sixteenths of its ordinals a value lies; then bytes of signatures
    bits: NDArray[np.uint64]  # by attribute + 1: the ordinal of its value as a bit
    groups: NDArray[np.uint64]
    waiting: NDArray[np.int32]
    sure: NDArray[np.int32]  # the slots that match
    possible: NDArray[np.int32]  # the slots whose expressions must be checked
    work: NDArray[np.int64]  # counts events, candidates, literals tested, and lists
    is_skipped: NDArray[np.bool_]  # by attribute: its tree is skipped, because its clauses are matched in bitmaps
    ordinals: NDArray[np.int32]  # of the values of one event
    signatures: NDArray[np.uint16]  # not scratch: a view of the layout's `flat`, by halves of its words


class Cuts(NamedTuple):
    """Where the codes of attributes are cut into spaces; an ordinal is the number of a space."""

    cut_starts: NDArray[np.int64]
    cuts: NDArray[np.int32]
    guide_bases: NDArray[np.int64]
    guides: NDArray[np.int32]


class Layout(NamedTuple):
    """A part of `sift`; `index.py` describes each array. The first fields are those of `Cuts`."""

    cut_starts: NDArray[np.int64]
    cuts: NDArray[np.int32]
    guide_bases: NDArray[np.int64]
    guides: NDArray[np.int32]
    lanes: NDArray[np.uint8]
    node_bases: NDArray[np.int64]
    node_starts: NDArray[np.int32]
    rises: NDArray[np.uint8]
    marked: NDArray[np.uint8]
    cold: NDArray[np.int32]
    rows: NDArray[np.int32]
    owners: NDArray[np.int32]
    alone_starts: NDArray[np.int32]
    alone_slots: NDArray[np.int32]
    alone_clauses: NDArray[np.int32]
    blocks: NDArray[np.int32]
    flat: NDArray[np.int32]
    expected: NDArray[np.float64]  # for `describe` only


class Workspace(NamedTuple):
    """Everything that one thread needs to match events against one part."""

    wanted: Wanted
    ids: Ids
    findings: Findings
    scratch: Scratch
    literals: Literals
    layout: Layout


def words_of(group: str, field: str = "") -> slice:
    """Return which words of the table of a workspace describe a group of arrays, or one of them."""
    kinds: tuple[Any, ...] = (Wanted, Ids, Findings, Scratch, Literals, Layout)
    named = zip(Workspace._fields, kinds, strict=True)
    names = [(of_group, name) for of_group, kind in named for name in kind._fields]
    places = [place for place, (of_group, name) in enumerate(names) if of_group == group and field in ("", name)]
    return slice(2 * places[0], 2 * places[-1] + 2)
