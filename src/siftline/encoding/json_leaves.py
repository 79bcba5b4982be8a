"""JSON events as flat arrays of leaves: the meaning of `json.loads` and `siftline.model.Event`, without the objects.

A call on one small event costs about 8 microseconds, nearly all of it for creating and passing arrays: give it many
events at once where there are many.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from siftline.kernels.json_leaves import (
    BAD,
    FALSE,
    FRAME_FIELDS,
    FRAME_WORDS,
    NULL,
    NUMBER,
    OK,
    SLOW,
    STRING,
    TEXT_MARGIN,
    TRUE,
    parse_events,
)
from siftline.kernels.json_number import powers_of_five
from siftline.model import MAX_EVENT_DEPTH

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from siftline.encoding.path_hash import PathHash, Paths

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
    attributes : int32[n_leaves]
        Positions in the list of paths.
    kinds : uint8[n_leaves]
        NULL, FALSE, TRUE, NUMBER or STRING.
    numbers, residuals : float64[n_leaves], int64[n_leaves]
        Of a NUMBER: the nearest double, and the exact integer minus that double, so that (number, residual) orders
        exactly. Otherwise 0.
    text_starts, text_ends : int64[n_leaves]
        Of a STRING: its UTF-8 bytes are texts[start:end]. Otherwise both are the same.
    texts : uint8[n_bytes]
        The text of all strings, lone surrogates as by Python's 'surrogatepass'.
    statuses : uint8[n_events]
        OK; BAD: not a JSON object; SLOW: valid up to where the parser stopped, but only `json.loads` and `Event` know
        what it means.
    positions : int64[n_events]
        Where in the event the parser stopped, in bytes; 0 if its status is OK.
    """

    event_starts: NDArray[np.int64]
    attributes: NDArray[np.int32]
    kinds: NDArray[np.uint8]
    numbers: NDArray[np.float64]
    residuals: NDArray[np.int64]
    text_starts: NDArray[np.int64]
    text_ends: NDArray[np.int64]
    texts: NDArray[np.uint8]
    statuses: NDArray[np.uint8]
    positions: NDArray[np.int64]


class _Workspace(threading.local):
    """What the kernel needs besides its input and output, kept from call to call, one for each thread.

    Stamps stay valid whatever paths the next call brings: the serials that it compares them with are larger.
    """

    def __init__(self) -> None:
        self.stamps = np.zeros(1024, dtype=np.int64)
        self.frames = np.zeros(FRAME_FIELDS * (MAX_EVENT_DEPTH + 1), dtype=np.int64)
        self.frame_words = np.zeros(FRAME_WORDS * (MAX_EVENT_DEPTH + 1), dtype=np.uint64)
        self.path = np.zeros(1024, dtype=np.uint64)


_workspace = _Workspace()
powers = functools.cache(powers_of_five)


def parse_json(
    data: NDArray[np.uint8] | bytes,
    starts: NDArray[np.integer[Any]],
    ends: NDArray[np.integer[Any]],
    path_hash: PathHash | Paths,
) -> Leaves:
    r"""Parse the events `data[starts[i]:ends[i]]`, each of them a JSON object in UTF-8, keeping known attributes.

    SLOW are: a key twice in one object (and a dotted key behind the same path nested), integers beyond int64, decimals
    of which the nearest double is hard to tell, more than MAX_EVENT_DEPTH levels, and raw surrogates in UTF-8. UTF-16
    and UTF-32, which `json.loads` accepts, are BAD.

    Raises
    ------
    ValueError
        If there are more starts than ends or fewer, if they are no integers, or if an event lies outside the data.

    Examples
    --------
    >>> from siftline.encoding.path_hash import build_path_hash
    >>> line = b'{"price": 9.5, "product": {"name": "caf\\u00e9", "id": 7}}'
    >>> leaves = parse_json(line, np.array([0]), np.array([len(line)]), build_path_hash(["price", "product.name"]))
    >>> leaves.attributes, leaves.kinds, leaves.numbers, leaves.texts.tobytes().decode()
    (array([0, 1], dtype=int32), array([3, 4], dtype=uint8), array([9.5, 0. ]), 'café')
    """
    source = _read_only(np.frombuffer(data, dtype=np.uint8) if isinstance(data, bytes) else data, np.uint8)
    firsts = _read_only(starts, np.int64)
    lasts = _read_only(ends, np.int64)
    n_events = firsts.size
    if lasts.size != n_events:
        raise ValueError(f"{n_events} starts of events, but {lasts.size} ends")
    event_starts = np.empty(n_events + 1, dtype=np.int64)
    event_starts[0] = 0
    statuses = np.empty(n_events, dtype=np.uint8)
    positions = np.empty(n_events, dtype=np.int64)
    n_bytes = source.size
    columns = _empty_columns(n_bytes // 2 + 1 if n_bytes <= _SMALL_BYTES else n_bytes // 8, n_bytes + TEXT_MARGIN)
    workspace = _workspace
    if workspace.stamps.size < path_hash.slots.size >> 2:
        workspace.stamps = np.zeros(path_hash.slots.size >> 2, dtype=np.int64)
    power_table = powers()
    event = n_texts = 0
    while True:
        attributes, kinds, numbers, residuals, text_starts, text_ends, texts = columns
        event, n_texts = parse_events(
            source, firsts, lasts, path_hash.slots, path_hash.words, power_table,
            workspace.stamps, workspace.frames, workspace.frame_words, workspace.path,
            event_starts, statuses, positions,
            attributes, kinds, numbers, residuals, text_starts, text_ends, texts, event, n_texts,
        )  # fmt: skip
        if event == n_events:
            break
        columns = _make_room(columns, n_bytes, int(firsts[event]), int(lasts[event]), event, event_starts, n_texts)
    m = event_starts[n_events]
    return Leaves(
        event_starts, attributes[:m], kinds[:m], numbers[:m], residuals[:m], text_starts[:m], text_ends[:m],
        texts[:n_texts], statuses, positions,
    )  # fmt: skip


def _read_only(array: NDArray[Any], dtype: type[Any]) -> NDArray[Any]:
    """Return a contiguous read-only view: to the compiler, a writable array is another type, and another kernel."""
    if array.dtype != dtype or array.ndim != 1 or not array.flags.c_contiguous:
        array = _converted(array, dtype)
    if array.flags.writeable:
        array = array[:]
        array.flags.writeable = False
    return array


def _converted(array: NDArray[Any], dtype: type[Any]) -> NDArray[Any]:
    if array.ndim != 1 or not np.can_cast(array.dtype, dtype, casting="same_kind"):
        raise ValueError(f"expected a one-dimensional array of {np.dtype(dtype)}, not {array.ndim}-d {array.dtype}")
    return np.ascontiguousarray(array, dtype=dtype)


def _empty_columns(n_leaves: int, n_texts: int) -> tuple[NDArray[Any], ...]:
    return (
        np.empty(n_leaves, dtype=np.int32),
        np.empty(n_leaves, dtype=np.uint8),
        np.empty(n_leaves, dtype=np.float64),
        np.empty(n_leaves, dtype=np.int64),
        np.empty(n_leaves, dtype=np.int64),
        np.empty(n_leaves, dtype=np.int64),
        np.empty(n_texts, dtype=np.uint8),
    )


def _make_room(
    columns: tuple[NDArray[Any], ...],
    n_data: int,
    start: int,
    end: int,
    event: int,
    event_starts: NDArray[np.int64],
    n_texts: int,
) -> tuple[NDArray[Any], ...]:
    """Return larger arrays, in which the next event fits; it may also have been the workspace that was too small."""
    if not 0 <= start <= end <= n_data:
        raise ValueError(f"event {event} is from {start} to {end}, outside the {n_data} bytes of data")
    n_bytes = end - start
    if n_bytes // 8 >= _workspace.path.size:
        _workspace.path = np.zeros(n_bytes // 4 + 1, dtype=np.uint64)
    n_leaves = int(event_starts[event])
    leaf_room = max(columns[0].size, n_leaves + n_bytes // 2 + 1)
    text_room = max(columns[-1].size, n_texts + n_bytes + TEXT_MARGIN)
    if leaf_room > columns[0].size:
        leaf_room *= 2
    if text_room > columns[-1].size:
        text_room *= 2
    larger = _empty_columns(leaf_room, text_room)
    for old, new in zip(columns, larger, strict=True):
        n_used = n_texts if new is larger[-1] else n_leaves
        new[:n_used] = old[:n_used]
    return larger
