"""One event at a time, from JSON text or a dict to attributes and codes: the short way.

    bytes   ─┐
    str     ─┼─► text in UTF-8 ─► one kernel call: leaves, codes ─► patterns of the same leaves ─► arrays of the thread
    dict    ─┘

A dict takes the same way, written as JSON by orjson, if it holds nothing but what JSON has: what orjson makes of
anything else (enumerations, fragments of JSON) is not what it means in an event. The short way gives up on whatever is
odd: a text that only Python reads right, or that is no JSON at all. The careful way (`json_events.py`, `events.py`)
then gives the same result, or the error.

An encoder never changes; it is made under the lock of whoever changes the domains, and used without one.
"""

from __future__ import annotations

import functools
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from siftline.encoding.domain import FIRST_NUMBER, TRUE
from siftline.encoding.domain_tables import tables_of
from siftline.encoding.domains import ANY_STRING, INSTANT
from siftline.encoding.events import EncodedEvents
from siftline.encoding.json_events import OneText
from siftline.encoding.json_leaves import empty_columns, empty_statuses, parser_scratch
from siftline.encoding.patterns import empty_found, empty_search_scratch, folded_characters, matcher_of
from siftline.kernels.compiler import direct
from siftline.kernels.json_event import (
    N_COUNTS,
    NO_ROOM,
    NOT_FOLDED,
    VALUES,
    EventPlaces,
    EventScratch,
    PatternCounts,
    PatternScratch,
    encode_event,
    search_event,
)
from siftline.kernels.json_leaves import NO_OTHERS, STRING, TEXT_MARGIN
from siftline.kernels.json_path import SLOT_WORDS
from siftline.kernels.pointers import HEADER_SIZE, address_of, event_describer, handle_of
from siftline.model import MAX_EVENT_DEPTH, instant_of_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from numpy.typing import NDArray

    from siftline.encoding.domain import Domain
    from siftline.encoding.domains import Domains
    from siftline.encoding.flat_domains import Base
    from siftline.encoding.path_hash import Paths
    from siftline.encoding.patterns import Layer

# A longer text takes the careful way: its arrays should not be kept, and making them does not count.
_MOST_BYTES: Final = 1 << 16
_FEWEST_BYTES: Final = 1 << 12
_FEWEST_SLOTS: Final = 1 << 10

_LEAVES: Final = frozenset((str, int, float, bool, type(None)))
_NESTED: Final = frozenset((dict, list, tuple))
_PLAIN: Final = _LEAVES | _NESTED
# Whatever is not of the plain types is an error to orjson, except enumerations, UUIDs and fragments.
_OPTIONS: Final = orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


class Workspace:
    """Where one thread encodes single events.

    Attributes
    ----------
    address : int
        Of the scratch, for the kernel.
    encoder : EventEncoder or None
        What encoded an event here last.
    header : int
        The address of the header of the event that was encoded last, see `EncodedEvents.described`.
    n_values : int
        How many values it has, pattern attributes included.
    now : int or None
        The instant of which its ages are.
    text : bytes
        The event itself.
    """

    __slots__ = ("_handle", "_patterns", "address", "encoder", "header", "n_values", "now", "scratch", "text")

    def __init__(self) -> None:
        self.scratch = _scratch(_FEWEST_BYTES, _FEWEST_SLOTS)
        self._patterns: _PatternSearch | None = None
        self.encoder: EventEncoder | None = None
        self.text = b""
        self.n_values = 0
        self.now: int | None = None
        self._describe()

    def _describe(self) -> None:
        self._handle: Any = handle_of(self.scratch)
        self.address: Any = address_of(self._handle)
        self.header: int = self.scratch.header.ctypes.data

    def make_room(self, n_bytes: int, n_slots: int) -> None:
        """Make room for a text of this many bytes, and a table of this many paths; what is there is lost."""
        n_bytes = max(n_bytes, len(self.scratch.leaves.texts) - TEXT_MARGIN)
        self.scratch = _scratch(2 * n_bytes, max(n_slots, len(self.scratch.parser.stamps)))
        self._describe()

    def make_room_for_values(self, n_more: int) -> None:
        """Make room for more values than there are."""
        n = self.n_values
        # Never less than there is: every leaf of the next event has a place, before patterns are looked for.
        size = max(len(self.scratch.codes), 2 * (n + n_more))
        attributes, codes = (np.empty(size, dtype=np.int32) for _ in range(2))
        attributes[:n], codes[:n] = self.values()
        self.scratch = self.scratch._replace(attributes=attributes, codes=codes)
        self._describe()

    def add_patterns(self, layer: Layer, layer_at: Any, counts_at: Any) -> None:
        """Append the pattern attributes of one layer that the event has."""
        patterns = self._patterns
        if patterns is None:
            patterns = self._patterns = _PatternSearch()
        patterns.make_room(len(self.scratch.leaves.texts), layer)
        search = _pattern_searcher()
        n_values = search(layer_at, counts_at, patterns.address, self.address)
        while n_values < 0:
            if n_values == NOT_FOLDED:
                patterns.take_folded()
            else:
                self.make_room_for_values(layer.n_targets)
                patterns.make_room_for_targets(2 * patterns.n_targets)
            n_values = search(layer_at, counts_at, patterns.address, self.address)
        self.n_values = n_values
        if patterns.n_open:
            found = layer.confirmed(self.scratch.leaves, *patterns.opened())
            if found:
                self._append(found, TRUE)

    def add_moments(self, domains: Domains) -> None:
        """Append the instants and ages of the strings that are times."""
        leaves, moments = self.scratch.leaves, domains.moments
        found: list[int] = []
        codes: list[int] = []
        for leaf, owner in enumerate(leaves.attributes[: self.n_leaves].tolist()):
            instant = instant_of_text(self._text(leaf)) if owner in moments and leaves.kinds[leaf] == STRING else None
            if instant is not None:
                for attribute, op in moments[owner]:
                    found.append(attribute)
                    number = instant if op == INSTANT else (self.now or 0) - instant
                    codes.append(domains.domains[attribute].code(number))
        if found:
            self._append(found, codes)

    def _append(self, attributes: Collection[int], codes: Any) -> None:
        """Append values."""
        n, end = self.n_values, self.n_values + len(attributes)
        if end > len(self.scratch.codes):
            self.make_room_for_values(len(attributes))
        self.scratch.attributes[n:end], self.scratch.codes[n:end] = list(attributes), codes
        self.scratch.counts[VALUES] = self.n_values = end
        event_describer()(*self.values(), self.scratch.header)

    @property
    def n_leaves(self) -> int:
        """How many leaves the event has."""
        return self.scratch.outcome.event_starts.item(1)

    def correct(self, changed: Mapping[int, Domain]) -> None:
        """Correct the codes of values whose attributes have constants that the flat arrays lack."""
        leaves, codes, n_values = self.scratch.leaves, self.scratch.codes, 0
        for leaf, attribute in enumerate(leaves.attributes[: self.n_leaves].tolist()):
            if attribute in changed and codes[n_values] >= FIRST_NUMBER:
                codes[n_values] = changed[attribute].code_beside(self._value(leaf), codes.item(n_values))
            n_values += attribute >= 0

    def _value(self, leaf: int) -> int | float | str:
        """Return the number or the string of a leaf."""
        leaves = self.scratch.leaves
        if leaves.kinds[leaf] == STRING:
            return self._text(leaf)
        number, residual = leaves.numbers.item(leaf), leaves.residuals.item(leaf)
        return int(number) + residual if residual else number

    def _text(self, leaf: int) -> str:
        leaves = self.scratch.leaves
        text = leaves.texts[leaves.text_starts[leaf] : leaves.text_ends[leaf]]
        return text.tobytes().decode("utf-8", "surrogatepass")

    def encoded(self, event: Any) -> EncodedEvents:
        """Return the event that was encoded last, in arrays of its own."""
        assert self.encoder is not None
        attributes, codes = self.values()
        source = OneText(self.text, event if type(event) is dict else None)
        return EncodedEvents.of_one(source, self.encoder, self.now, attributes.copy(), codes.copy())

    def values(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the attributes and the codes of the event, as views."""
        n = self.n_values
        return self.scratch.attributes[:n], self.scratch.codes[:n]


def _scratch(n_bytes: int, n_slots: int) -> EventScratch:
    """Return scratch for texts of this many bytes and tables of paths with this many slots."""
    n_leaves = n_bytes // 2 + 1
    return EventScratch(
        counts=np.zeros(N_COUNTS, dtype=np.int64),
        parser=parser_scratch(n_slots, n_bytes // 8 + 1, n_bytes),
        outcome=empty_statuses(1),
        leaves=empty_columns(n_leaves, n_bytes + TEXT_MARGIN),
        attributes=np.empty(n_leaves, dtype=np.int32),
        codes=np.empty(n_leaves, dtype=np.int32),
        header=np.empty(HEADER_SIZE, dtype=np.int64),
    )


class _PatternSearch:
    """Where one thread searches the strings of single events for patterns."""

    __slots__ = ("_found", "_handle", "_n_bytes", "_scratch", "_whole", "address")

    def __init__(self) -> None:
        self._n_bytes = 0
        self._scratch = empty_search_scratch(0, 0, 0)
        self._found = empty_found(1, 0)
        self._describe()

    def _describe(self) -> None:
        self._handle: Any = handle_of(self._scratch)
        self._whole: Any = handle_of(PatternScratch(self._found, self._handle, self._scratch.serials))
        self.address: Any = address_of(self._whole)

    def make_room(self, n_bytes: int, layer: Layer) -> None:
        """Make room for strings of this many bytes and the patterns of a layer."""
        if n_bytes > self._n_bytes or layer.n_owners > len(self._scratch.stamps):
            self._n_bytes = max(self._n_bytes, n_bytes)
            n_owners = max(2 * layer.n_owners, len(self._scratch.stamps))
            scratch = empty_search_scratch(self._n_bytes, n_owners, len(self._scratch.hits))
            self._scratch = scratch._replace(folded=self._scratch.folded)
            self._describe()
        if layer.n_targets > len(self._scratch.hits):
            self._scratch = self._scratch._replace(hits=np.zeros(2 * layer.n_targets, dtype=np.int32))
            self.make_room_for_targets(2 * layer.n_targets)

    def make_room_for_targets(self, n_targets: int) -> None:
        """Make room for this many targets."""
        self._found = empty_found(1, n_targets)
        self._describe()

    def take_folded(self) -> None:
        """Take the table of folded characters."""
        self._scratch = self._scratch._replace(folded=folded_characters())
        self._describe()

    @property
    def n_targets(self) -> int:
        """How many targets there is room for."""
        return len(self._found.targets)

    @property
    def n_open(self) -> int:
        """How many patterns were left open in some string."""
        return self._found.open_starts.item(1)

    def opened(self) -> tuple[list[int], list[int]]:
        """Return the leaves and the targets that were left open."""
        n_open = self.n_open
        return self._found.open_leaves[:n_open].tolist(), self._found.open_targets[:n_open].tolist()


class _OfThread(threading.local):
    workspace: Workspace | None = None


_of_thread = _OfThread()


class _Places:
    """Where values are located, with what the kernel takes for it."""

    __slots__ = ("_handle", "_places", "address", "base", "is_mapped", "paths")

    def __init__(self, domains: Domains, paths: Paths, base: Base, is_mapped: bool) -> None:
        self.paths, self.base, self.is_mapped = paths, base, is_mapped
        attributes = np.array([*domains.ids.values(), ANY_STRING] if is_mapped else [], dtype=np.int32)
        self._places = EventPlaces(paths=paths.hash, path_attributes=attributes, flat=base.flat)
        self._handle: Any = handle_of(self._places)
        self.address: Any = address_of(self._handle)

    def are_for(self, paths: Paths, base: Base, is_mapped: bool) -> bool:
        """Return whether the places are those of these paths and flat arrays; the same paths have the same ids."""
        return self.paths is paths and self.base is base and self.is_mapped == is_mapped


class EventEncoder:
    """Encodes single events for some domains at one version of them.

    Attributes
    ----------
    domains, version
        What events are encoded for.
    needs_lock : bool
        Whether there are constants beside the flat arrays, or moments: then `locate` looks into the domains, and
        whoever calls it keeps others from changing them.
    """

    __slots__ = (
        "_address",
        "_changed",
        "_counts",
        "_counts_at",
        "_encode",
        "_has_moments",
        "_layers",
        "_matcher",
        "_n_slots",
        "_others",
        "domains",
        "needs_lock",
        "places",
        "version",
    )

    def __init__(self, domains: Domains, places: _Places, changed: Mapping[int, Domain]) -> None:
        self.domains, self.version = domains, domains.version
        self._has_moments = bool(domains.moments)
        self.places, self._changed = places, changed
        self.needs_lock = bool(changed) or self._has_moments
        self._address = places.address
        self._others = len(domains.ids) if domains.takes_all_strings else NO_OTHERS
        self._n_slots = len(places.paths.hash.slots) // SLOT_WORDS
        self._matcher = matcher_of(domains)
        self._layers = [(layer, address_of(layer.handle)) for layer in self._matcher.layers]
        self._counts: Any = handle_of(PatternCounts(self._matcher.counts))
        self._counts_at: Any = address_of(self._counts)
        self._encode = _event_encoder()

    def is_current(self) -> bool:
        """Return whether the domains are as they were, and the arrays and layers of patterns that may be merged."""
        domains = self.domains
        is_same = self.version == domains.version and self._matcher is domains.matcher
        return is_same and (not self._changed or self.places.base is domains.lines[0])

    def locate(self, event: object, now: int | None = None) -> Workspace | None:
        """Encode one event in the arrays of this thread; None if it must take the careful way.

        `now` is the instant of which its ages are; the current time if left out.
        """
        text = _text_of(event)
        if text is None:
            return None
        workspace = _of_thread.workspace
        if workspace is None:
            workspace = _of_thread.workspace = Workspace()
        n_values = self._encode(text, self._address, workspace.address, self._others)
        if n_values == NO_ROOM and len(text) <= _MOST_BYTES:
            workspace.make_room(len(text), self._n_slots)
            n_values = self._encode(text, self._address, workspace.address, self._others)
        if n_values < 0:
            return None
        workspace.encoder, workspace.text, workspace.n_values, workspace.now = self, text, n_values, now
        if self._changed:
            workspace.correct(self._changed)
        for layer, layer_at in self._layers:
            workspace.add_patterns(layer, layer_at, self._counts_at)
        if self._has_moments:
            if now is None and self.domains.has_ages:
                workspace.now = time.time_ns()
            workspace.add_moments(self.domains)
        return workspace


@functools.cache
def _event_encoder() -> Callable[[bytes, Any, Any, int], int]:
    """Return `encode_event` for arguments whose types are known."""
    return direct(encode_event, b"", 0, 0, 0)


@functools.cache
def _pattern_searcher() -> Callable[[Any, Any, Any, Any], int]:
    """Return `search_event` for arguments whose types are known."""
    return direct(search_event, 0, 0, 0, 0)


def encoder_of(domains: Domains) -> EventEncoder | None:
    """Return the encoder for the domains as they are now; None if single events must take the careful way.

    New constants are merged into the flat arrays, and new attributes into the table of paths, when that takes no longer
    than the events since the last change would do without.
    """
    previous = domains.encoder
    if previous is not None and previous.is_current():
        return previous
    paths = domains.current_paths()
    if paths is None:
        return None
    tables = tables_of(domains)
    if domains.lines[1] and tables.is_worth_merging(1):
        domains.merge()
    base, changed = domains.lines
    is_mapped, places = bool(domains.pattern_attributes), None if previous is None else previous.places
    if places is None or not places.are_for(paths, base, is_mapped):
        places = _Places(domains, paths, base, is_mapped)
    domains.encoder = EventEncoder(domains, places, changed)
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
