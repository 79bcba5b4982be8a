"""All strings of events in JSON, for conditions that ask about any of them."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from siftline.encoding.flat_domains import read_only
from siftline.kernels.compiler import direct
from siftline.kernels.json_leaves import TEXT_MARGIN, Statuses
from siftline.kernels.json_strings import KeyScratch, read_strings
from siftline.kernels.leaves import LeafColumns
from siftline.kernels.pointers import handle_of, no_arrays
from siftline.model import MAX_EVENT_DEPTH

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

# A string in JSON, and what stands between it and the next one, has at least this many bytes.
_STRING_BYTES: Final = 3
# A thread begins with room for the keys of events of so many bytes, and keeps at most so much.
_USUAL_BYTES: Final = 1 << 13
_KEPT_ROOM: Final = 1 << 18


class Strings(NamedTuple):
    """The strings of events: those of event i are from starts[i] to starts[i + 1]. SLOW events have none."""

    starts: NDArray[np.int64]
    statuses: NDArray[np.uint8]
    columns: LeafColumns  # without attributes and numbers


class _Workspace:
    """What one thread keeps for the keys of events."""

    def __init__(self) -> None:
        self.make_room(_USUAL_BYTES)

    def make_room(self, longest: int) -> None:
        """Make room for the keys of an event of this many bytes."""
        n_slots = 1 << max(longest // 2, 4).bit_length()
        self.room = 2 * n_slots - 1
        self.scratch = KeyScratch(
            events=np.zeros(n_slots, dtype=np.int64),
            hashes=np.zeros(n_slots, dtype=np.uint64),
            objects=np.zeros(MAX_EVENT_DEPTH + 1, dtype=np.int64),
            serials=np.zeros(1, dtype=np.int64),
        )
        self.handle: Any = handle_of(self.scratch)


class _OfThread(threading.local):
    workspace: _Workspace | None = None


_of_thread = _OfThread()


@functools.cache
def _reader() -> Callable[..., int]:
    """Return `read_strings` for arguments whose types are known."""
    data, places = read_only(np.empty(0, np.uint8)), read_only(np.empty(0, np.int64))
    handle = np.empty(0, dtype=np.int64)
    return direct(read_strings, data, places, places, no_arrays(Statuses), no_arrays(LeafColumns), handle)


def strings_of_json(data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Strings:
    r"""Return all strings of events that are JSON objects in order.

    >>> text = b'{"a": ["x", 1], "b": {"c": "\\u00e9"}}'
    >>> strings = strings_of_json(np.frombuffer(text, np.uint8), np.array([0]), np.array([len(text)]))
    >>> strings.starts, strings.columns.texts.tobytes().decode()
    (array([0, 2]), 'xé')
    """
    sizes = ends - starts
    n_events, n_bytes, longest = len(starts), int(sizes.sum()), int(sizes.max(initial=0))
    workspace = _of_thread.workspace
    if workspace is None:
        workspace = _of_thread.workspace = _Workspace()
    if longest > workspace.room:
        workspace.make_room(longest)
    n_strings = n_bytes // _STRING_BYTES + n_events
    columns: LeafColumns = no_arrays(LeafColumns)._replace(
        kinds=np.empty(n_strings, dtype=np.uint8),
        text_starts=np.empty(n_strings, dtype=np.int64),
        text_ends=np.empty(n_strings, dtype=np.int64),
        texts=np.empty(n_bytes + TEXT_MARGIN, dtype=np.uint8),
    )
    outcome = Statuses(
        np.zeros(n_events + 1, dtype=np.int64), np.empty(n_events, dtype=np.uint8), np.empty(0, dtype=np.int64)
    )
    n_texts = _reader()(read_only(data), read_only(starts), read_only(ends), outcome, columns, workspace.handle)
    if workspace.room > _KEPT_ROOM:
        workspace.make_room(_USUAL_BYTES)
    n = int(outcome.event_starts[-1])
    kept = {name: getattr(columns, name)[:n] for name in ("kinds", "text_starts", "text_ends")}
    return Strings(outcome.event_starts, outcome.statuses, columns._replace(texts=columns.texts[:n_texts], **kept))
