"""The fast path from one encoded event to its ids, which a thread keeps until the engine changes.

If few subscriptions match, the kernel takes one or two microseconds, and collecting its arguments in Python would take
as long. So each thread keeps these arguments from its second match on. It then checks only that the event was encoded
for the same domains and that the generation has not changed. Every change of the set of matches discards all fast
paths.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from threading import get_ident
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from siftline.encoding.one_event import encoder_of
from siftline.indexes.protocol import MOST_FOUND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from siftline.encoding.domains import Domains
    from siftline.encoding.events import EncodedEvents
    from siftline.encoding.one_event import Workspace
    from siftline.engine.state import State
    from siftline.engine.subscriptions import SubscriptionTable
    from siftline.engine.write_buffer import WriteBuffer
    from siftline.ids import Id
    from siftline.indexes.protocol import Finder


_CLOSED: Final[Mapping[int, Any]] = MappingProxyType({})


def fast_ids(state: State, event: EncodedEvents) -> list[Id] | None:
    """Return the ids that one encoded event matches; None if it needs the full pipeline."""
    path = state.fast_paths.by_thread.get(get_ident()) or _new_path(state)
    if path is None:
        return None
    if event.version != path.version or event.domains is not path.domains:
        latest = event.latest_for(path.domains)
        if latest is None:
            return None
        event = latest
    n_found = path.call(event.address or event.described(), path.table_at)
    if not 0 <= n_found <= MOST_FOUND:
        return None
    ids: Any = path.ids_found[:n_found].tolist()
    if path.has_more:
        ids = path.with_more(ids, event.address, event.attributes, event.codes)
    return ids if state.generation == path.generation else None


def fast_ids_at(state: State, workspace: Workspace) -> list[Id] | None:
    """Return the ids that the event matches which was encoded last in the arrays of this thread; None as above."""
    path = state.fast_paths.by_thread.get(get_ident()) or _new_path(state)
    encoder: Any = workspace.encoder
    if path is None or encoder.version != path.version or encoder.domains is not path.domains:
        return None
    n_found = path.call(workspace.header, path.table_at)
    if not 0 <= n_found <= MOST_FOUND:
        return None
    ids: Any = path.ids_found[:n_found].tolist()
    if path.has_more:
        ids = path.with_more(ids, workspace.header, *workspace.values())
    return ids if state.generation == path.generation else None


def located_event(state: State, event: Any, now: int | None) -> Workspace | None:
    """Return one event in the arrays of this thread; None if it must take the careful way."""
    encoder = state.domains.encoder
    if encoder is not None and not encoder.needs_lock and encoder.is_current():
        return encoder.locate(event, now)
    with state.publishing:
        encoder = encoder_of(state.domains)
        return None if encoder is None else encoder.locate(event, now)


def _new_path(state: State) -> FastPath | None:
    """Make and keep a fast path for this thread; None if there is none, or this is its first match after a change.

    Making one takes longer than a match, so the first match after a change goes without.
    """
    by_thread = state.fast_paths.by_thread
    if not isinstance(by_thread, dict):
        return None  # the engine is being changed
    if get_ident() not in by_thread:
        _put(by_thread, None)
        return None
    generation, table, domains = state.generation, state.table, state.domains
    version, buffer = domains.version, state.buffer
    # Read before the index, so that an id that is removed and added again is found at most once.
    n_buffered = buffer.n_clauses
    finders = None if table.numbers is None else state.index.finders(table.numbers, table.sharing)
    if generation & 1 or state.generation != generation:
        return None
    path = NO_PATH
    if finders is not None:
        path = FastPath(generation, domains, version, finders, table, buffer, n_buffered)
    _put(by_thread, path)
    return path


class FastPaths:
    """The fast paths of an engine, by thread.

    Code that changes the set of matches does so inside `with state.fast_paths`, under the writers' lock. Meanwhile
    there are no fast paths, and no thread can keep one. A thread puts a new fast path into the dict that was there when
    it began; if the engine changed since, that dict is no longer in use. An interrupt at a bad moment leaves the engine
    without fast paths until the next change, and never with outdated ones.
    """

    def __init__(self) -> None:
        self.by_thread: Mapping[int, FastPath | None] = {}
        _watched.add(self)

    def __enter__(self) -> None:
        self.by_thread = _CLOSED

    def __exit__(self, *_: object) -> None:
        self.by_thread = {}

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return FastPaths, ()  # fast paths hold addresses of this process


def _nothing(event_at: int, table_at: int) -> int:
    """Find nothing: the finder of an index without parts."""
    return 0


class FastPath:
    """What one thread needs to find the ids that match an event.

    Attributes
    ----------
    generation, domains, version
        The state of the engine for which the path is valid, and the domains and version of its events.
    call, table_at, ids_found
        See `Finder`: of the first part of the index.
    has_more : bool
        Whether there are other parts, or subscriptions in the write buffer: `with_more` finds these.
    """

    __slots__ = (
        "_buffer",
        "_finders",
        "_n_buffered",
        "_table",
        "call",
        "domains",
        "generation",
        "has_more",
        "ids_found",
        "table_at",
        "version",
    )

    def __init__(
        self,
        generation: int,
        domains: Domains,
        version: int,
        finders: Sequence[Finder],
        table: SubscriptionTable,
        buffer: WriteBuffer,
        n_buffered: int,
    ) -> None:
        self.generation = generation
        self.domains = domains
        self.version = version
        self.call: Callable[[int, int], int] = _nothing
        self.table_at, self.ids_found = 0, memoryview(b"")
        if finders:
            self.call, self.table_at, self.ids_found, _ = finders[0]
        self.has_more = len(finders) > 1 or n_buffered > 0
        self._finders = finders
        self._table, self._buffer, self._n_buffered = table, buffer, n_buffered

    def with_more(
        self, ids: list[Id], header: int, attributes: NDArray[np.int32], codes: NDArray[np.int32]
    ) -> list[Id] | None:
        """Return these ids and those of the other parts and the write buffer; None if the full pipeline is needed."""
        for call, table_at, ids_found, _ in self._finders[1:]:
            n_found = call(header, table_at)
            if not 0 <= n_found <= MOST_FOUND:
                return None
            ids += ids_found[:n_found].tolist()
        if self._n_buffered:
            slots, possible = self._buffer.match(attributes, codes, self._n_buffered)
            if len(possible):
                return None
            if self._table.sharing is not None:
                slots = self._table.with_duplicates(slots)
            ids += self._table.ids(slots)
        return ids


# For an engine without fast paths. No event has its domains, so it is never used.
NO_PATH: Final = FastPath(0, cast("Any", None), -1, [], cast("Any", None), cast("Any", None), 0)


def _put(by_thread: dict[int, FastPath | None], path: FastPath | None) -> None:
    """Keep a fast path for this thread, or None for its first match, and drop those of threads that ended."""
    if len(by_thread) > 1 or threading.get_ident() not in by_thread:
        for ended in by_thread.keys() - sys._current_frames().keys():
            by_thread.pop(ended, None)
    by_thread[threading.get_ident()] = path


def _after_fork() -> None:
    """Drop all: a thread may get the number of one that was in the middle of a match in the parent process."""
    for fast_paths in list(_watched):
        fast_paths.by_thread = {}


_watched: Final[weakref.WeakSet[FastPaths]] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
