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
from siftline.encoding.json_events import one_json
from siftline.encoding.json_leaves import empty_columns, empty_statuses, parser_scratch
from siftline.encoding.patterns import matcher_of
from siftline.kernels.compiler import direct
from siftline.kernels.json_event import NO_ROOM, EventPlaces, EventScratch, encode_event
from siftline.kernels.json_leaves import TEXT_MARGIN
from siftline.kernels.leaves import LeafColumns
from siftline.kernels.pointers import HEADER_SIZE, address_of, event_describer, handle_of
from siftline.model import MAX_EVENT_DEPTH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from siftline.encoding.domains import Domains
    from siftline.encoding.patterns import Matcher

# A longer text takes the careful way: its arrays should not be kept, and making them does not count.
_MOST_BYTES: Final = 1 << 16
_FEWEST_BYTES: Final = 1 << 12

_NOT_MAPPED: Final = np.zeros(0, dtype=np.int32)

_LEAVES: Final = frozenset((str, int, float, bool, type(None)))
_NESTED: Final = frozenset((dict, list, tuple))
_PLAIN: Final = _LEAVES | _NESTED
# What these types may hold is opened by `model.opened` or refused, but orjson has a reading of its own.
_OPTIONS: Final = orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


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

    def make_room(self, n_bytes: int, n_slots: int) -> None:
        """Make room for a text of this many bytes, and a table of this many paths; what is there is lost."""
        n_bytes = max(n_bytes, len(self.scratch.leaves.texts) - TEXT_MARGIN)
        self.scratch = _scratch(2 * n_bytes, max(n_slots, len(self.scratch.parser.stamps)))
        self._describe()

    def append(self, attributes: NDArray[np.int32], code: int) -> None:
        """Append attributes that all have the same code."""
        n, end = self.n_leaves, self.n_leaves + len(attributes)
        if end > len(self.scratch.codes):
            known = self.taken()
            self.make_room(2 * end, 0)
            self.scratch.leaves.attributes[:n], self.scratch.codes[:n] = known
        self.scratch.leaves.attributes[n:end] = attributes
        self.scratch.codes[n:end] = code
        self.n_leaves = end
        event_describer()(self.scratch.leaves.attributes[:end], self.scratch.codes[:end], self.scratch.header)

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

    def values(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the attributes and the codes, as views."""
        n = self.n_leaves
        return self.scratch.leaves.attributes[:n], self.scratch.codes[:n]

    def taken(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return copies of the attributes and the codes."""
        attributes, codes = self.values()
        return attributes.copy(), codes.copy()


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
        workspace.append(found, TRUE)

    def encoded(self, workspace: Workspace, event: Any, now: int | None) -> EncodedEvents:
        """Return the event that was located last, in arrays of its own."""
        attributes, codes = workspace.taken()
        source = DictSource((event,)) if type(event) is dict else one_json(_text_of(event) or b"")
        return EncodedEvents.of_one(source, self, now, attributes, codes)


@functools.cache
def _event_encoder() -> Callable[[bytes, Any, Any], int]:
    """Return `encode_event` for arguments whose types are known."""
    return direct(encode_event, b"", 0, 0)


def encoder_of(domains: Domains) -> EventEncoder | None:
    """Return the encoder for the domains as they are now; None if single events must take the careful way.

    Making one takes a while: then the events that wait for it count, as they do for the tables that batches need.
    """
    encoder = domains.encoder
    if encoder is not None and encoder.version == domains.version:
        return encoder
    domains.encoder = None
    if domains.moments:
        return None
    tables = tables_of(domains)
    if not tables.is_worth_merging(1) or domains.current_paths() is None:
        return None
    mapped = tables.path_attributes if domains.pattern_attributes else _NOT_MAPPED
    places = EventPlaces(paths=tables.path_hash.hash, path_attributes=mapped, flat=tables.base.flat)
    domains.encoder = EventEncoder(domains, places)
    return domains.encoder


def _text_of(event: object) -> bytes | None:
    """Return an event as JSON text in UTF-8; None if it must take the careful way."""
    kind = type(event)
    if kind is bytes:
        return event  # type: ignore[return-value]
    if kind is dict:
        return plain_json(event)  # type: ignore[arg-type]
    if kind is str:
        try:
            return event.encode()  # type: ignore[attr-defined, no-any-return]
        except UnicodeEncodeError:
            return None
    return None


def plain_json(tree: dict[str, Any]) -> bytes | None:
    """Return a dict as JSON text if it holds only what JSON has, and orjson can write it; else None.

    >>> plain_json({"a": [1, None], "b": {"c": 0.5}}), plain_json({"a": {1, 2}}), plain_json({"a": 2**64})
    (b'{"a":[1,null],"b":{"c":0.5}}', None, None)
    """
    kinds = {*map(type, tree.values())}
    if not kinds <= _LEAVES and not (kinds <= _PLAIN and _are_plain(tree.values(), MAX_EVENT_DEPTH)):
        return None
    try:
        return orjson.dumps(tree, None, _OPTIONS)
    except TypeError:
        return None


def _are_plain(values: Iterable[Any], depth: int) -> bool:
    """Return whether there is only plain JSON in objects and arrays among some values, which are plain on the surface.

    What nests deeper than an event may is not plain, so that this ends if an object contains itself.
    """
    for value in values:
        kind = type(value)
        if kind in _NESTED:
            inner = value.values() if kind is dict else value
            kinds = {*map(type, inner)}
            if kinds <= _LEAVES:
                continue
            if not (kinds <= _PLAIN and depth and _are_plain(inner, depth - 1)):
                return False
    return True
