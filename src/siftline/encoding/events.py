"""Events as flat arrays of (attribute, code), and how a dict becomes one.

Attributes that no subscription uses leave no trace in the arrays. What an index cannot decide from codes is checked on
the event itself, which the `source` gives back on demand.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from siftline.encoding.domain import FALSE, NULL, TRUE
from siftline.encoding.patterns import append_patterns
from siftline.errors import EventError
from siftline.model import MAX_EVENT_DEPTH, Event, leaf_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from siftline.encoding.domains import Domains


class Source(Protocol):
    """Where encoded events came from."""

    def __len__(self) -> int:
        """Return the number of events."""

    def tree(self, position: int) -> Mapping[str, Any]:
        """Return one event as nested Python objects."""

    def encode(self, domains: Domains) -> Arrays:
        """Encode all events."""


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
    """

    __slots__ = ("_domains", "_events", "_latest", "_version", "attributes", "codes", "errors", "source", "starts")

    def __init__(self, source: Source, domains: Domains) -> None:
        self.source = source
        self._domains = domains
        self._version = domains.version
        self.starts, self.attributes, self.codes = source.encode(domains)
        self.errors: Mapping[int, str] = getattr(source, "errors", {})
        self._events: dict[int, Event] = {}
        self._latest: EncodedEvents | None = None

    def __len__(self) -> int:
        return len(self.starts) - 1

    def fits(self, domains: Domains) -> bool:
        """Return whether the codes are those that encoding now would give."""
        return self._domains is domains and self._version == domains.version

    def latest_for(self, domains: Domains) -> EncodedEvents | None:
        """Return these events with the codes of now if they were encoded already."""
        if self._domains is domains and self._version == domains.version:
            return self
        latest = self._latest
        return latest if latest is not None and latest.fits(domains) else None

    def encoded_for(self, domains: Domains) -> EncodedEvents:
        """Return these events with the codes of now, encoded again if need be, and remembered."""
        if self.fits(domains):
            return self
        if self._latest is None or not self._latest.fits(domains):
            self._latest = EncodedEvents(self.source, domains)
        return self._latest

    def event(self, position: int) -> Event:
        """Return one event for the exact check."""
        event = self._events.get(position)
        if event is None:
            # Candidates of one event come together, so the last one is all that is worth keeping.
            event = Event(self.source.tree(position))
            self._events = {position: event}
        return event


class DictSource:
    """Events as Python dicts."""

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

    def encode(self, domains: Domains) -> Arrays:
        """Encode the dicts, one after the other."""
        attributes: list[int] = []
        codes: list[int] = []
        ends = [0]
        for position, tree in enumerate(self.trees):
            try:
                encode_tree(tree, domains, attributes, codes)
            except EventError as error:
                raise error if len(self.trees) == 1 else EventError(f"event {position}: {error}") from None
            ends.append(len(codes))
        return np.array(ends, dtype=np.int64), np.array(attributes, dtype=np.int32), np.array(codes, dtype=np.int32)


def encode_tree(tree: Mapping[str, Any], domains: Domains, attributes: list[int], codes: list[int]) -> None:
    """Append the attributes and codes of one event, after the model `Event`."""
    if not isinstance(tree, Mapping):
        Event(tree)  # raises the error that says what it is instead
    ids, all_domains = domains.ids, domains.domains
    # This loop is the hot path of matching single dicts: plain values are located right here, as in `Line.code`.
    for key, value in tree.items():
        kind = type(value)
        if kind is str or kind is int or (kind is float and isfinite(value)):
            attribute = ids.get(key)
            if attribute is not None:
                domain = all_domains[attribute]
                line = domain.strings if kind is str else domain.numbers
                keys = line.keys
                i = bisect_left(keys, value)
                attributes.append(attribute)
                if i < len(keys) and keys[i] == value:
                    codes.append(line.labels[i])
                else:
                    codes.append(line.labels[i - 1] + 1 if i else line.section[0])
            elif type(key) is not str:
                _check_key(key)
        else:
            _check_key(key)
            _encode_value(value, key, domains, attributes, codes, 1)
    if domains.pattern_attributes:
        append_patterns(tree, domains, attributes, codes)


def _encode_value(value: Any, path: str, domains: Domains, attributes: list[int], codes: list[int], depth: int) -> None:
    """Append what stands at `path`: a value, or everything below an object or array."""
    if isinstance(value, (Mapping, list, tuple)):
        if depth >= MAX_EVENT_DEPTH:
            raise EventError(f"the event nests deeper than {MAX_EVENT_DEPTH} levels")
        if isinstance(value, Mapping):
            for key, child in value.items():
                _check_key(key)
                _encode_value(child, f"{path}.{key}", domains, attributes, codes, depth + 1)
        else:
            for element in value:
                _encode_value(element, path, domains, attributes, codes, depth + 1)
        return
    leaf = leaf_of(value, path)
    attribute = domains.ids.get(path)
    if attribute is not None:
        attributes.append(attribute)
        if leaf is None:
            codes.append(NULL)
        elif isinstance(leaf, bool):
            codes.append(TRUE if leaf else FALSE)
        else:
            codes.append(domains.domains[attribute].code(leaf))


def _check_key(key: object) -> None:
    if not isinstance(key, str):
        raise EventError(f"a key of an event must be a string, not {type(key).__name__}: {key!r}")
