"""Events as flat arrays of (attribute, code), and how a dict becomes one.

Attributes that no subscription uses leave no trace in the arrays. What an index cannot decide from codes is checked on
the event itself, which the `source` gives back on demand.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, runtime_checkable

import numpy as np

from siftline.encoding.domain import FIRST_NUMBER
from siftline.encoding.flat_domains import read_only, split_numbers
from siftline.encoding.moments import append_moments
from siftline.encoding.patterns import append_patterns
from siftline.errors import EventError
from siftline.kernels.locate import (
    INEXACT,
    KIND_BOOLEAN,
    KIND_INTEGER,
    KIND_NUMBER,
    KIND_TEXT,
    locate_values,
)
from siftline.kernels.pointers import HEADER_SIZE, event_describer
from siftline.model import MAX_EVENT_DEPTH, Event, NotPlainError, check_integer, leaf_of, plain_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from siftline.encoding.domain import Domain
    from siftline.encoding.domains import Domains
    from siftline.encoding.one_event import EventEncoder

_KINDS: Final[dict[type, int]] = {
    int: KIND_INTEGER,
    float: KIND_NUMBER,
    str: KIND_TEXT,
    bool: KIND_BOOLEAN,
    type(None): 0,
}
_NUMBERS: Final = frozenset((int, float))
_PLAIN: Final = frozenset(_KINDS)

_NO_INTEGERS: Final = np.zeros(0, dtype=np.int64)
_NO_BYTES: Final = read_only(np.zeros(0, dtype=np.uint8))


@runtime_checkable
class Source(Protocol):
    """Where encoded events came from."""

    @property
    def errors(self) -> Mapping[int, str]:
        """What is wrong with which event, if bad ones are skipped."""

    def __len__(self) -> int:
        """Return the number of events."""

    def tree(self, position: int) -> Mapping[str, Any]:
        """Return one event as nested Python objects."""

    def encode(self, domains: Domains, now: int = 0) -> Arrays:
        """Encode all events, with ages at the instant `now`."""


Arrays = tuple["NDArray[np.int64]", "NDArray[np.int32]", "NDArray[np.int32]"]


class EncodedEvents:
    """Events located in the domains of one engine, at one version of them.

    Attributes
    ----------
    starts : int64[n + 1]
        The values of event i are at starts[i] : starts[i + 1].
    attributes, codes : int32[m]
        An attribute occurs once for each of its values; absent attributes do not occur. A pattern attribute occurs
        once, as true, if some value satisfies its pattern.
    errors : mapping of int to str
        What is wrong with events that the source was told to skip: they match nothing.
    is_single : bool
        Whether this is one event, and it could be read.
    domains, version, now
        What they were encoded for. The instant counts only if the domains have ages; 0 if they have none.
    address : int
        Of a header with the addresses of the arrays, for kernels; 0 before `described`.
    """

    __slots__ = (
        "_events",
        "_header",
        "_latest",
        "address",
        "attributes",
        "codes",
        "domains",
        "errors",
        "is_single",
        "now",
        "source",
        "starts",
        "version",
    )

    def __init__(self, source: Source, domains: Domains, now: int | None = None) -> None:
        self.source = source
        self.domains = domains
        self.version = domains.version
        # Most engines have nothing that depends on the time, and need not be told what time it is.
        self.now = now if now is not None else time.time_ns() if domains.has_ages else None
        self.starts, self.attributes, self.codes = source.encode(domains, self.now or 0)
        self.errors: Mapping[int, str] = source.errors
        self.is_single = len(self.starts) == 2 and not self.errors
        self.address = 0
        self._header = np.empty(HEADER_SIZE if self.is_single else 0, dtype=np.int64)
        self._events: dict[int, Event] = {}
        self._latest: EncodedEvents | None = None

    @classmethod
    def of_one(
        cls,
        source: Source,
        encoder: EventEncoder,
        now: int | None,
        attributes: NDArray[np.int32],
        codes: NDArray[np.int32],
    ) -> EncodedEvents:
        """Return one event that was encoded already."""
        events = cls.__new__(cls)
        events.source, events.domains, events.version, events.now = source, encoder.domains, encoder.version, now
        events.starts, events.attributes, events.codes = np.array((0, len(codes))), attributes, codes
        events.errors, events.is_single = source.errors, True
        events.address, events._header = 0, np.empty(HEADER_SIZE, dtype=np.int64)
        events._events, events._latest = {}, None
        return events

    def __len__(self) -> int:
        return len(self.starts) - 1

    def fits(self, domains: Domains) -> bool:
        """Return whether the codes are those that encoding now would give."""
        return self.domains is domains and self.version == domains.version

    def latest_for(self, domains: Domains) -> EncodedEvents | None:
        """Return these events with the codes of now if they were encoded already."""
        if self.domains is domains and self.version == domains.version:
            return self
        latest = self._latest
        return latest if latest is not None and latest.fits(domains) else None

    def encoded_for(self, domains: Domains) -> EncodedEvents:
        """Return these events with the codes of now, encoded again if need be, and remembered."""
        if self.fits(domains):
            return self
        if self._latest is None or not self._latest.fits(domains):
            self._latest = EncodedEvents(self.source, domains, self.now)
        return self._latest

    def at(self, now: int | None, domains: Domains) -> EncodedEvents:
        """Return these events as they are at an instant, at this one if none is given."""
        if self.now == now:
            return self
        if domains.has_ages:
            return EncodedEvents(self.source, domains, now)
        return self if now is None else self.encoded_for(domains)._dated(now)

    def _dated(self, now: int) -> EncodedEvents:
        """Return the same events for an instant, which counts as soon as the domains have ages."""
        other = EncodedEvents.__new__(EncodedEvents)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other.now, other.address, other._events, other._latest = now, 0, {}, None
        other._header = np.empty_like(self._header)
        return other

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        return None, {name: getattr(self, name) for name in self.__slots__} | {"address": 0}

    def described(self) -> int:
        """Return the address of the header of a single event; threads that come at the same time write the same."""
        self.address = event_describer()(self.attributes, self.codes, self._header)
        return self.address

    def event(self, position: int) -> Event:
        """Return one event for the exact check."""
        event = self._events.get(position)
        if event is None:
            # Candidates of one event come together, so the last one is all that is worth keeping.
            event = Event(self.source.tree(position), self.now)
            self._events = {position: event}
        return event


class DictSource:
    """Events as Python dicts."""

    __slots__ = ("trees",)

    errors: ClassVar[Mapping[int, str]] = {}

    def __init__(self, trees: Sequence[Mapping[str, Any]]) -> None:
        self.trees = trees

    def __len__(self) -> int:
        return len(self.trees)

    def check(self) -> None:
        """Raise EventError for what is not an event."""
        for tree in self.trees:
            Event(tree)

    def tree(self, position: int) -> Mapping[str, Any]:
        """Return one event as it was given."""
        return self.trees[position]

    def encode(self, domains: Domains, now: int = 0) -> Arrays:
        """Encode the dicts, all values together."""
        try:
            return self._encoded(domains, now)
        except NotPlainError:  # sets, dataclasses and the like, which cost nothing where there are none
            self.trees = [plain_tree(tree) for tree in self.trees]
            return self._encoded(domains, now)

    def _encoded(self, domains: Domains, now: int) -> Arrays:
        if len(self.trees) == 1:
            return encode_dict(self.trees[0], domains, now)
        owners: list[int] = []
        values: list[Any] = []
        ends = [0]
        for position, tree in enumerate(self.trees):
            try:
                append_leaves(tree, domains, owners, values, now)
            except NotPlainError:
                raise
            except EventError as error:
                raise EventError(f"event {position}: {error}") from None
            ends.append(len(owners))
        return locate(owners, values, np.array(ends, dtype=np.int64), domains)


def encode_dict(tree: Mapping[str, Any], domains: Domains, now: int = 0) -> Arrays:
    """Encode one event, after the model `Event`; plain dicts have a shorter way in `one_event.py`."""
    owners: list[int] = []
    values: list[Any] = []
    append_leaves(tree, domains, owners, values, now)
    return locate(owners, values, np.array((0, len(owners))), domains)


def append_leaves(tree: Mapping[str, Any], domains: Domains, owners: list[int], values: list[Any], now: int) -> None:
    """Append the leaves of one event that some subscription asks about, and their attributes; patterns as true."""
    if not isinstance(tree, Mapping):
        Event(tree)  # raises the error that says what it is instead
        raise NotPlainError("it stands for an object")
    ids, first = domains.ids, len(owners)
    for key, value in tree.items():
        _check_key(key)
        if type(value) in _PLAIN:
            attribute = ids.get(key)
            if attribute is not None:
                owners.append(attribute)
                values.append(value)
            elif type(value) is int:
                check_integer(value, key)
        else:
            _append_below(value, key, ids, owners, values, 1)
    if domains.moments:
        append_moments(owners, values, first, domains, now)
    if domains.pattern_attributes:
        append_patterns(tree, domains, owners, values)


def _append_below(
    value: Any, path: str, ids: Mapping[str, int], owners: list[int], values: list[Any], depth: int
) -> None:
    """Append what stands at `path`: a value, or everything below an object or array."""
    if isinstance(value, (Mapping, list, tuple)):
        if depth >= MAX_EVENT_DEPTH:
            raise EventError(f"the event nests deeper than {MAX_EVENT_DEPTH} levels")
        if isinstance(value, Mapping):
            for key, child in value.items():
                _check_key(key)
                _append_below(child, f"{path}.{key}", ids, owners, values, depth + 1)
        else:
            for element in value:
                _append_below(element, path, ids, owners, values, depth + 1)
        return
    leaf = leaf_of(value, path)
    attribute = ids.get(path)
    if attribute is not None:
        owners.append(attribute)
        values.append(leaf)


def _check_key(key: object) -> None:
    if not isinstance(key, str):
        raise EventError(f"a key of an event must be a string, not {type(key).__name__}: {key!r}")


def locate(owners: list[int], values: list[Any], starts: NDArray[np.int64], domains: Domains) -> Arrays:
    """Return events whose leaves belong to the owners, those of event i being at starts[i] : starts[i + 1].

    What belongs to nobody (-1) is left out. The starts are written to.
    """
    try:
        return _located(owners, values, starts, domains)
    except OverflowError:
        return _located_one_by_one(owners, values, starts, domains)


def _located(owners: list[int], values: list[Any], starts: NDArray[np.int64], domains: Domains) -> Arrays:
    base, changed = domains.lines
    owned, found = np.array(owners, dtype=np.int64), np.empty((2, len(owners)), dtype=np.int32)
    kinds = {*map(type, values)}
    text_ends, texts, value_kinds, numbers = _NO_INTEGERS, _NO_BYTES, _NO_BYTES, values
    if not kinds <= _NUMBERS:
        value_kinds = np.frombuffer(bytes(map(_KINDS.__getitem__, map(type, values))), dtype=np.uint8)
        if str in kinds:
            text_ends, texts = _joined([value for value in values if type(value) is str])
            numbers = [0 if type(value) is str else value for value in values]
    doubles, residuals = np.array(numbers, dtype=np.float64), _NO_INTEGERS
    n_found = INEXACT
    while n_found == INEXACT:
        n_found = locate_values(owned, value_kinds, doubles, residuals, text_ends, texts, starts, found, base.handle)
        if n_found == INEXACT:
            _, residuals = split_numbers(numbers)
    attributes, codes = found if n_found == len(owners) else found[:, :n_found]
    if changed and not changed.keys().isdisjoint(attributes.tolist()):
        _locate_beside(owners, values, changed, codes)
    return starts, attributes, codes


def _joined(strings: list[str]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return where each string ends in the UTF-8 bytes of all, and the bytes."""
    text = "".join(strings)
    if text.isascii():
        return np.cumsum([*map(len, strings)]), np.frombuffer(text.encode(), dtype=np.uint8)
    encoded = [string.encode("utf-8", "surrogatepass") for string in strings]
    return np.cumsum([*map(len, encoded)]), np.frombuffer(b"".join(encoded), dtype=np.uint8)


def _locate_beside(
    owners: list[int], values: list[Any], changed: Mapping[int, Domain], codes: NDArray[np.int32]
) -> None:
    """Correct the codes of values whose attributes have constants that the flat arrays lack."""
    place = 0
    for owner, value in zip(owners, values, strict=True):
        if owner in changed and codes[place] >= FIRST_NUMBER:
            codes[place] = changed[owner].code_beside(value, int(codes[place]))
        place += owner >= 0


def _located_one_by_one(owners: list[int], values: list[Any], starts: NDArray[np.int64], domains: Domains) -> Arrays:
    """Do as `locate` with integers beyond all doubles."""
    all_domains = domains.domains
    is_kept = np.array(owners) >= 0
    pairs = zip(owners, values, strict=True)
    leaves = [(owner, leaf_of(value, "")) for owner, value in pairs]
    codes = [all_domains[owner].code(leaf) for owner, leaf in leaves if owner >= 0]
    before = np.concatenate([[0], np.cumsum(is_kept)])
    return before[starts], np.array(owners, dtype=np.int32)[is_kept], np.array(codes, dtype=np.int32)
