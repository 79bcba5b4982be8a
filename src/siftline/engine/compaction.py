"""Tidying up behind changes: small merges at once, large ones in a thread of their own.

The thread lives only while there is something to do, and holds the writers' lock only to choose a merge and to put its
result in place. What takes long runs in a second thread at low priority. The first one has
the usual priority, because while it holds a lock, a writer would wait until the processor has nobody else to serve.
Matching never waits for it. In a process that forks meanwhile, the child does the merge again when it next changes
something.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import TYPE_CHECKING, Final

from siftline.errors import SiftlineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from siftline.engine.updates import Updates
    from siftline.indexes.protocol import Merge

    # Does some work that takes long, here or elsewhere, and waits for it.
    Run = Callable[[Callable[[], None]], None]

# Merges of at most this many clauses, or constants, are done at once, in a few milliseconds.
_AT_ONCE: Final = 1024
# The same for what builds the whole index, by slots.
_FEW_SLOTS: Final = 1024
# This many constants are entered while the lock is held.
_FEW_CONSTANTS: Final = 256
# This many renewals in a row may be overtaken by additions in bulk.
_PATIENCE: Final = 2
# How much the thread steps back behind others; see nice(1).
_NICENESS: Final = 5

# Engines whose thread may be running; a fork must not find it in the middle of something.
_watched: weakref.WeakSet[Updates] = weakref.WeakSet()


class Compactor:
    """Does the merges of one engine. All but `join` and the thread itself run under the writers' lock."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._merge: Merge | None = None
        self._is_left = False  # whether a large merge waits for the thread: to choose it again would cost every change
        self._error: Exception | None = None

    def __getstate__(self) -> dict[str, object]:
        return {}  # a thread stays where it runs

    def __setstate__(self, state: dict[str, object]) -> None:
        Compactor.__init__(self)

    def tidy(self, updates: Updates, *, is_bulk: bool = False) -> None:
        """Do what is small, and leave what is large to the thread, which looks again before it ends.

        Additions in bulk bring domains of their own, so that a renewal in the thread is overtaken by each of them. When
        that has happened a few times, the next one waits for a renewal.
        """
        is_left = self._is_left and self._thread is not None
        while not is_left and (merge := updates.state.index.merge()) is not None:
            if merge.n_clauses > _AT_ONCE:
                merge.give_up()
                self._start(updates)
                self._is_left = is_left = True
                continue
            _done(merge, updates)
        domains = updates.state.domains
        if domains.wants_merge:
            if domains.n_constants > _AT_ONCE:
                self._start(updates)
            else:
                with updates.state.publishing:
                    domains.merge()
        if updates.take_in_patterns():
            self._start(updates)
        if updates.wants_renewal():
            if is_bulk and updates.state.n_overtaken >= _PATIENCE:
                updates.renew()
            else:
                self._do(updates, updates.renew)
        if updates.has_many_dead():
            self._do(updates, updates.sweep)

    def _do(self, updates: Updates, work: Callable[[], None]) -> None:
        """Do what takes as long as building the index, at once if that is small."""
        if updates.state.table.n_slots > _FEW_SLOTS:
            self._start(updates)
        else:
            work()

    def settle(self, updates: Updates) -> None:
        """Do everything now."""
        if updates.has_many_dead():
            updates.sweep()
        if updates.wants_renewal():
            updates.renew()
        while (merge := updates.state.index.merge()) is not None:
            _done(merge, updates)
        updates.merge_patterns()

    def join(self) -> None:
        """Wait for the thread, and raise what it met."""
        thread = self._thread
        if thread is not None:
            thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise SiftlineError(f"merging in the background failed: {error!r}") from error

    def _start(self, updates: Updates) -> None:
        if self._thread is not None:
            return
        _watched.add(updates)
        self._thread = threading.Thread(target=self._run, args=(updates,), name="siftline-compaction", daemon=True)
        self._thread.start()

    def _run(self, updates: Updates) -> None:
        try:
            while self._does_something(updates):
                pass
        except Exception as error:
            self._error = error
            raise  # shown by threading.excepthook; what matches has not changed
        finally:
            with updates.state.writing:
                if self._thread is threading.current_thread():  # another one may have been started since
                    self._thread = None

    def _does_something(self, updates: Updates) -> bool:
        with updates.state.writing:
            has_many_dead = updates.has_many_dead()
        if has_many_dead:
            updates.sweep(stepped_back)
        with updates.state.writing:
            wants_renewal = updates.wants_renewal()
        if wants_renewal:
            updates.renew(stepped_back)
        _merge_constants(updates)
        updates.merge_patterns()
        with updates.state.writing:
            if updates.has_many_dead() or updates.wants_renewal() or updates.state.domains.wants_merge:
                return True
            index, version = updates.state.index, updates.state.domains.version
            self._is_left = False
            self._merge = merge = index.merge()
            if merge is None:
                self._thread = None  # under the lock, so that the next change starts another one
                return False
        try:
            stepped_back(merge.run)
        except Exception:
            with updates.state.writing:
                self._give_up()
                if updates.state.domains.version == version:
                    raise
            return True  # constants came in while it looked at them: once more
        with updates.state.writing:
            self._merge = None
            with updates.state.fast_paths:
                merge.finish()
        return True

    def _give_up(self) -> None:
        merge, self._merge = self._merge, None
        if merge is not None:
            merge.give_up()

    def forked(self, updates: Updates) -> None:
        """Forget the thread, which is not there in a child process, and what it was at."""
        self._thread = None
        self._give_up()
        updates.state.domains.abandon()
        updates.state.table.removed = None


class Nobody(Compactor):
    """Leaves everything as it is, for an engine that is only on its way to become another's parts."""

    def tidy(self, updates: Updates, *, is_bulk: bool = False) -> None:
        """Do nothing."""


def _merge_constants(updates: Updates) -> None:
    """Merge new constants into the flat arrays, if they are many."""
    with updates.state.writing:
        if not updates.state.domains.wants_merge:
            return
        merging = updates.state.domains.start_merge()
    try:
        stepped_back(merging.run)
        while merging.n_behind > _FEW_CONSTANTS:
            merging.catch_up()
    except BaseException:
        with updates.state.writing:
            merging.give_up()
        raise
    with updates.state.writing, updates.state.publishing:  # a batch may merge them, too
        merging.finish()


def _done(merge: Merge, updates: Updates) -> None:
    try:
        merge.run()
    except BaseException:
        merge.give_up()
        raise
    with updates.state.fast_paths:
        merge.finish()


def at_once(work: Callable[[], None]) -> None:
    """Do some work in this thread."""
    work()


def stepped_back(work: Callable[[], None]) -> None:
    """Do some work in a thread at low priority, and wait for it; it must hold no lock."""
    errors: list[BaseException] = []

    def run() -> None:
        _step_back()
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name=threading.current_thread().name, daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def _step_back() -> None:
    """Lower the priority of this thread, where the system has such a thing."""
    with contextlib.suppress(AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


# What a fork does: writers' locks are held during it, so that none is held by a thread that the child does not have.
_held: list[Updates] = []


def _before_fork() -> None:
    for updates in list(_watched):
        updates.state.writing.acquire()
        _held.append(updates)


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop().state.writing.release()


def _after_fork_in_child() -> None:
    for updates in _held:
        updates.state.compactor.forked(updates)
    _after_fork_in_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
