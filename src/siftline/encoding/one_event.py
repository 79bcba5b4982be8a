"""One event at a time, from JSON text or a dict to attributes and codes: the short way.

    bytes   ─┐
    str     ─┼─► text in UTF-8 ─► one kernel call: leaves, codes ─► patterns of the same leaves ─► arrays of the thread
    dict    ─┘

A dict takes the same way, written as JSON by orjson, if it holds nothing but what JSON has: what orjson makes of
anything else (enumerations, fragments of JSON) is not what it means in an event. The short way gives up on whatever is
odd: a text that only Python reads right or that is no JSON at all, constants that came since the flat arrays were made,
comparisons with times. The careful way (`json_events.py`, `events.py`) then gives the same result, or says what is wrong.

An encoder never changes; it is made under the lock of whoever changes the domains, and used without one.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from siftline.encoding.domain import TRUE
from siftline.encoding.domain_tables import tables_of
from siftline.encoding.events import DictSource, EncodedEvents
from siftline.encoding.json_events import OneText
from siftline.encoding.json_leaves import empty_columns, empty_statuses, parser_scratch
from siftline.encoding.patterns import matcher_of
from siftline.kernels.compiler import direct
from siftline.kernels.json_event import NO_ROOM, EventPlaces, EventScratch, encode_event
from siftline.kernels.json_leaves import TEXT_MARGIN
from siftline.kernels.leaves import LeafColumns
from siftline.kernels.pointers import HEADER_SIZE, IS_COMPILED, address_of, handle_of
from siftline.model import MAX_EVENT_DEPTH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from siftline.encoding.domains import Domains
    from siftline.encoding.patterns import Matcher

# A longer text takes the careful way: its arrays should not be kept, and making them does not count.
_MOST_BYTES: Final = 1 << 16
_FEWEST_BYTES: Final = 1 << 12

_LEAVES: Final = frozenset((str, int, float, bool, type(None)))
_NESTED: Final = frozenset((dict, list, tuple))
_PLAIN: Final = _LEAVES | _NESTED
# What these types may hold is opened by `model.opened` or refused, but orjson has a reading of its own.
_OPTIONS: Final = (
    orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
)


class Workspace:
    """Where one thread encodes single events.

    Attributes
    ----------
    address : int
        Of the scratch, for the kernel.
    header : int
        The address of the header of the event that was encoded last, see `EncodedEvents.described`.
    n_leaves : int
        How many leaves it has, pattern attributes included.
    """

    __slots__ = ("_handle", "_starts", "address", "header", "n_leaves", "scratch")

    def __init__(self) -> None:
        self.scratch = _scratch(_FEWEST_BYTES, 1024)
        self._starts = np.zeros(2, dtype=np.int64)
        self.n_leaves = 0
        self._describe()

    def _describe(self) -> None:
        self._handle: Any = handle_of(self.scratch)
        self.address: Any = address_of(self._handle)
        self.header: Any = self.scratch.header.ctypes.data

    def make_room(self, n_bytes: int, n_slots: int, n_found: int = 0) -> None:
        """Make room for a text of this many bytes, a table of paths, and so many pattern attributes."""
        n_bytes = max(n_bytes, 2 * n_found, len(self.scratch.leaves.texts) - TEXT_MARGIN)
        self.scratch = _scratch(2 * n_bytes, max(n_slots, len(self.scratch.parser.stamps)))
        self._describe()

    def columns(self) -> LeafColumns:
        """Return the leaves, as views."""
        n, leaves = self.n_leaves, self.scratch.leaves
        return LeafColumns(
            attributes=leaves.attributes[:n],
            kinds=leaves.kinds[:n],
            numbers=leaves.numbers[:n],
            residuals=leaves.residuals[:n],
            text_starts=leaves.text_starts[:n],
            text_ends=leaves.text_ends[:n],
            texts=leaves.texts,
        )

    def starts(self) -> NDArray[np.int64]:
        """Return where the leaves of the event start and end."""
        self._starts[1] = self.n_leaves
        return self._starts

    def taken(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return copies of the attributes and the codes."""
        n = self.n_leaves
        return self.scratch.leaves.attributes[:n].copy(), self.scratch.codes[:n].copy()


def _scratch(n_bytes: int, n_slots: int) -> EventScratch:
    """Return scratch for texts of this many bytes and tables of paths with this many slots."""
    n_leaves = n_bytes // 2 + 1
    return EventScratch(
        parser=parser_scratch(n_slots, n_bytes // 8 + 1),
        outcome=empty_statuses(1),
        bounds=np.zeros(2, dtype=np.int64),
        leaves=empty_columns(n_leaves, n_bytes + TEXT_MARGIN),
        codes=np.empty(n_leaves, dtype=np.int32),
        header=np.empty(HEADER_SIZE, dtype=np.int64),
    )


class _OfThread(threading.local):
    workspace: Workspace | None = None


_of_thread = _OfThread()


class EventEncoder:
    """Encodes single events for some domains at one version of them.

    Attributes
    ----------
    domains, version
        What events are encoded for.
    """

    __slots__ = ("_address", "_encode", "_handle", "_matcher", "_n_slots", "_places", "domains", "version")

    def __init__(self, domains: Domains, places: EventPlaces) -> None:
        self.domains, self.version = domains, domains.version
        self._places = places
        self._handle: Any = handle_of(places)
        self._address: Any = address_of(self._handle)
        self._n_slots = len(places.paths.slots) >> 2
        self._matcher: Matcher | None = matcher_of(domains) if domains.pattern_attributes else None
        self._encode = _event_encoder()

    def locate(self, event: object) -> Workspace | None:
        """Encode one event in the arrays of this thread; None if it must take the careful way."""
        text = _text_of(event)
        if text is None:
            return None
        workspace = _of_thread.workspace
        if workspace is None:
            workspace = _of_thread.workspace = Workspace()
        n_leaves = self._encode(text, self._address, workspace.address)
        if n_leaves == NO_ROOM and len(text) <= _MOST_BYTES:
            workspace.make_room(len(text), self._n_slots)
            n_leaves = self._encode(text, self._address, workspace.address)
        if n_leaves < 0:
            return None
        workspace.n_leaves = n_leaves
        if self._matcher is not None:
            self._add_patterns(self._matcher, workspace)
        return workspace

    def _add_patterns(self, matcher: Matcher, workspace: Workspace) -> None:
        """Append the pattern attributes of the event."""
        _, found = matcher.found_in(workspace.columns(), workspace.starts())
        ...

    def encoded(self, workspace: Workspace, event: Any, now: int | None) -> EncodedEvents:
        """Return the event that was located last in arrays of its own."""
        attributes, codes = workspace.taken()
        source = DictSource((event,)) if type(event) is dict else OneText(_text_of(event))
        return EncodedEvents.of_one(source, self.domains, self.version, now, attributes, codes)
