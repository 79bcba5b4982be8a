"""JSON events as flat arrays of leaves: the meaning of `json.loads` and `siftline.model.Event`, without the objects.

A call on one small event costs about 8 microseconds, nearly all of it for creating and passing arrays: give it many
events at once where there are many. Single events have a way of their own (`one_event.py`).
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from siftline.kernels.compiler import direct
from siftline.kernels.json_leaves import (
    BAD,
    FALSE,
    FRAME_FIELDS,
    FRAME_WORDS,
    NO_OTHERS,
    NULL,
    NUMBER,
    OK,
    SLOW,
    STRING,
    TEXT_MARGIN,
    TRUE,
    Scratch,
    Statuses,
    parse_events,
)
from siftline.kernels.json_number import powers_of_five
from siftline.kernels.leaves import LeafColumns
from siftline.kernels.pointers import handle_of, no_arrays
from siftline.model import MAX_EVENT_DEPTH

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from siftline.encoding.path_hash import Paths

__all__ = ["BAD", "FALSE", "NULL", "NUMBER", "OK", "SLOW", "STRING", "TRUE", "Leaves", "parse_json"]

# Below this many bytes the arrays have room for the most leaves there can be, one in two bytes; above, one in eight,
# and they grow when that is not enough.
_SMALL_BYTES = 1 << 16


class Leaves(NamedTuple):
    """The leaves of events, in document order, as far as their attributes are known.

    Attributes
    ----------
    event_starts : int64[n_events + 1]
        The leaves of event i are those from event_starts[i] to event_starts[i + 1]; none if its status is not OK.
    statuses : uint8[n_events]
        OK; BAD: not a JSON object; SLOW: valid up to where the parser stopped, but only `json.loads` and `Event` know
        what it means.
    positions : int64[n_events]
        Where in the event the parser stopped, in bytes; 0 if its status is OK.
    attributes : int32[n_leaves]
        Positions in the list of paths; one behind the last of them for strings at unknown paths, if these are kept.
    kinds : uint8[n_leaves]
        NULL, FALSE, TRUE, NUMBER or STRING.
    numbers, residuals : float64[n_leaves], int64[n_leaves]
        Of a NUMBER: the nearest double, and the exact integer minus that double, so that (number, residual) orders
        exactly. Otherwise 0.
    text_starts, text_ends : int64[n_leaves]
        Of a STRING: its UTF-8 bytes are texts[start:end]. Otherwise both are the same.
    texts : uint8[n_bytes]
        The text of all strings, lone surrogates as by Python's 'surrogatepass'.
    """

    event_starts: NDArray[np.int64]
    statuses: NDArray[np.uint8]
    positions: NDArray[np.int64]
    attributes: NDArray[np.int32]
    kinds: NDArray[np.uint8]
    numbers: NDArray[np.float64]
    residuals: NDArray[np.int64]
    text_starts: NDArray[np.int64]
    text_ends: NDArray[np.int64]
    texts: NDArray[np.uint8]

    @property
    def columns(self) -> LeafColumns:
        """The leaves, without the events that they belong to."""
        return LeafColumns(
            attributes=self.attributes,
            kinds=self.kinds,
            numbers=self.numbers,
            residuals=self.residuals,
            text_starts=self.text_starts,
            text_ends=self.text_ends,
            texts=self.texts,
        )

    def of_paths(self) -> Leaves:
        """Return the leaves without those whose attribute is negative."""
        is_kept = self.attributes >= 0
        ends = np.concatenate([[0], np.cumsum(is_kept)])
        kept: dict[str, Any] = {name: getattr(self, name)[is_kept] for name in LeafColumns._fields if name != "texts"}
        return self._replace(event_starts=ends[self.event_starts], **kept)


class _Workspace:
    """What the kernel needs besides its input and output, kept from call to call, one for each thread.

    Stamps stay valid whatever paths the next call brings: the serials that it compares them with are larger.
    """

    __slots__ = ("handle", "scratch")

    def __init__(self) -> None:
        self.scratch = parser_scratch(1024, 1024, 1024)
        self.handle: Any = handle_of(self.scratch)

    def replace(self, **arrays: NDArray[Any]) -> None:
        """Take larger arrays."""
        self.scratch = self.scratch._replace(**arrays)
        self.handle = handle_of(self.scratch)


def parser_scratch(n_slots: int, n_words: int, n_unknown: int) -> Scratch:
    """Return scratch for tables of paths with this many slots, paths of this many words, and so long a table of others.

    An event of n bytes needs n words in the table of unknown paths.
    """
    return Scratch(
        powers=powers(),
        stamps=np.zeros(n_slots, dtype=np.int64),
        frames=np.zeros(FRAME_FIELDS * (MAX_EVENT_DEPTH + 1), dtype=np.int64),
        frame_words=np.zeros(FRAME_WORDS * (MAX_EVENT_DEPTH + 1), dtype=np.uint64),
        path=np.zeros(n_words, dtype=np.uint64),
        unknown=np.zeros(n_unknown, dtype=np.uint64),
    )


class _OfThread(threading.local):
    workspace: _Workspace | None = None


_of_thread = _OfThread()
powers = functools.cache(powers_of_five)


@functools.cache
def _parser() -> Callable[..., tuple[int, int]]:
    """Return `parse_events` for arguments whose types are known: to look at them takes longer than a small event."""
    data, places = (_read_only(np.empty(0, dtype), dtype) for dtype in (np.uint8, np.int64))
    handle, outcome, columns = np.empty(0, dtype=np.int64), no_arrays(Statuses), no_arrays(LeafColumns)
    return direct(parse_events, data, places, places, handle, handle, outcome, columns, 0, 0, 0)


def parse_json(
    data: NDArray[np.uint8] | bytes,
    starts: NDArray[np.integer[Any]],
    ends: NDArray[np.integer[Any]],
    paths: Paths,
    *,
    keeps_strings: bool = False,
) -> Leaves:
    r"""Parse the events `data[starts[i]:ends[i]]`, each of them a JSON object in UTF-8, keeping known attributes.

    With `keeps_strings`, the strings at all other paths are kept as well, as one more attribute behind the last.

    SLOW are: a key twice in one object (and a dotted key behind the same path nested), integers beyond int64, decimals
    of which the nearest double is hard to tell, more than MAX_EVENT_DEPTH levels, and raw surrogates in UTF-8. UTF-16
    and UTF-32, which `json.loads` accepts, are BAD.

    Raises
    ------
    ValueError
        If there are more starts than ends or fewer, if they are no integers, or if an event lies outside the data.

    Examples
    --------
    >>> from siftline.encoding.path_hash import Paths
    >>> line = b'{"price": 9.5, "product": {"name": "caf\\u00e9", "id": 7}}'
    >>> leaves = parse_json(line, np.array([0]), np.array([len(line)]), Paths(["price", "product.name"]))
    >>> leaves.attributes, leaves.kinds, leaves.numbers, leaves.texts.tobytes().decode()
    (array([0, 1], dtype=int32), array([3, 4], dtype=uint8), array([9.5, 0. ]), 'café')
    """
    source = _read_only(np.frombuffer(data, dtype=np.uint8) if isinstance(data, bytes) else data, np.uint8)
    firsts = _read_only(starts, np.int64)
    lasts = _read_only(ends, np.int64)
    n_events = firsts.size
    if lasts.size != n_events:
        raise ValueError(f"{n_events} starts of events, but {lasts.size} ends")
    outcome = empty_statuses(n_events)
    n_bytes = source.size
    columns = empty_columns(n_bytes // 2 + 1 if n_bytes <= _SMALL_BYTES else n_bytes // 8, n_bytes + TEXT_MARGIN)
    workspace = _of_thread.workspace
    if workspace is None:
        workspace = _of_thread.workspace = _Workspace()
    if workspace.scratch.stamps.size < paths.hash.slots.size >> 2:
        workspace.replace(stamps=np.zeros(paths.hash.slots.size >> 2, dtype=np.int64))
    others = paths.n_paths if keeps_strings else NO_OTHERS
    event, n_texts, parse = 0, 0, _parser()
    while True:
        event, n_texts = parse(
            source, firsts, lasts, paths.handle, workspace.handle, outcome, columns, event, n_texts, others
        )
        if event == n_events:
            break
        start, end = int(firsts[event]), int(lasts[event])
        if not 0 <= start <= end <= n_bytes:
            raise ValueError(f"event {event} is from {start} to {end}, outside the {n_bytes} bytes of data")
        if (end - start) // 8 >= workspace.scratch.path.size:
            workspace.replace(path=np.zeros((end - start) // 4 + 1, dtype=np.uint64))
        if keeps_strings and end - start > workspace.scratch.unknown.size:
            workspace.replace(unknown=np.zeros(2 * (end - start), dtype=np.uint64))
        columns = _with_room(columns, end - start, int(outcome.event_starts[event]), n_texts)
    n_leaves = outcome.event_starts[n_events]
    return Leaves(
        event_starts=outcome.event_starts,
        statuses=outcome.statuses,
        positions=outcome.positions,
        attributes=columns.attributes[:n_leaves],
        kinds=columns.kinds[:n_leaves],
        numbers=columns.numbers[:n_leaves],
        residuals=columns.residuals[:n_leaves],
        text_starts=columns.text_starts[:n_leaves],
        text_ends=columns.text_ends[:n_leaves],
        texts=columns.texts[:n_texts],
    )


def _read_only(array: NDArray[Any], dtype: type[Any]) -> NDArray[Any]:
    """Return a contiguous read-only view: to the compiler, a writable array is another type, and another kernel."""
    flags = array.flags
    if array.dtype != dtype or array.ndim != 1 or not flags.c_contiguous or not flags.aligned:
        array = _converted(array, dtype)
    if array.flags.writeable:
        array = array[:]
        array.flags.writeable = False
    return array


def _converted(array: NDArray[Any], dtype: type[Any]) -> NDArray[Any]:
    if array.ndim != 1 or not np.can_cast(array.dtype, dtype, casting="same_kind"):
        raise ValueError(f"expected a one-dimensional array of {np.dtype(dtype)}, not {array.ndim}-d {array.dtype}")
    return np.require(array, dtype, ["C_CONTIGUOUS", "ALIGNED"])


def empty_statuses(n_events: int) -> Statuses:
    """Return room for the outcome of some events."""
    event_starts = np.empty(n_events + 1, dtype=np.int64)
    event_starts[0] = 0
    return Statuses(event_starts, np.empty(n_events, dtype=np.uint8), np.empty(n_events, dtype=np.int64))


def empty_columns(n_leaves: int, n_texts: int) -> LeafColumns:
    """Return room for some leaves and the bytes of their strings."""
    return LeafColumns(
        attributes=np.empty(n_leaves, dtype=np.int32),
        kinds=np.empty(n_leaves, dtype=np.uint8),
        numbers=np.empty(n_leaves, dtype=np.float64),
        residuals=np.empty(n_leaves, dtype=np.int64),
        text_starts=np.empty(n_leaves, dtype=np.int64),
        text_ends=np.empty(n_leaves, dtype=np.int64),
        texts=np.empty(n_texts, dtype=np.uint8),
    )


def _with_room(columns: LeafColumns, n_bytes: int, n_leaves: int, n_texts: int) -> LeafColumns:
    """Return columns in which an event of this many bytes fits behind what is there: it may be there already."""
    leaf_room = max(columns.attributes.size, n_leaves + n_bytes // 2 + 1)
    text_room = max(columns.texts.size, n_texts + n_bytes + TEXT_MARGIN)
    if leaf_room > columns.attributes.size:
        leaf_room *= 2
    if text_room > columns.texts.size:
        text_room *= 2
    larger = empty_columns(leaf_room, text_room)
    for name in LeafColumns._fields:
        n_used = n_texts if name == "texts" else n_leaves
        getattr(larger, name)[:n_used] = getattr(columns, name)[:n_used]
    return larger
