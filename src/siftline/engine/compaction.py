"""Tidying up behind changes: a small engine at once, a large one in two threads of its own.

    flusher      brings the write buffer into the index, and merges small parts: milliseconds
    compactor    merges large parts, sweeps, deals out labels again: seconds; at low priority

A thread lives only while there is something to do, and holds the writers' lock only to choose what to do and to put the
result in place. While it holds a lock it has the usual priority, because a writer would otherwise wait until the
processor has nobody else to serve. Matching never waits for either. In a process that forks meanwhile, the child does
the work again when it next changes something.

A writer that adds faster than the flusher flushes is slowed down (`stall`): it would keep the interpreter's lock from
the flusher, which needs it sixty times for a flush, and gets it from a busy thread only every five milliseconds.
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

# Merges of at most this many clauses, or constants, are done at once in a small engine, in a few milliseconds.
_AT_ONCE: Final = 1024
# An engine of at most this many slots is small.
_FEW_SLOTS: Final = 1024
# Merges of at most this many clauses are left to the flusher.
_QUICK_CLAUSES: Final = 8192
# How long a writer waits for a flush before each addition that comes meanwhile.
_STALL_S: Final = 0.0005
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
        self._flusher: threading.Thread | None = None
        self._merges: list[Merge] = []  # under way
        self._is_left = False  # whether a large merge waits for the thread: to choose it again would cost every change
        self._error: Exception | None = None

    def __getstate__(self) -> dict[str, object]:
        return {}  # a thread stays where it runs

    def __setstate__(self, state: dict[str, object]) -> None:
        Compactor.__init__(self)

    def stall(self, updates: Updates) -> None:
        """Wait a little if the write buffer is due and being flushed; without any lock."""
        flusher = self._flusher
        if flusher is not None and updates.state.buffer.is_due:
            flusher.join(_STALL_S)

    def tidy(self, updates: Updates, *, is_bulk: bool = False) -> None:
        """Do what is to be done if the engine is small; otherwise leave it to the threads.

        Additions in bulk bring domains of their own, so that a renewal in the thread is overtaken by each of them. When
        that has happened a few times, the next one waits for a renewal.
        """
        state = updates.state
        is_small = state.table.n_slots <= _FEW_SLOTS
        if is_small and updates.wants_flush():
            updates.flush()
        if self._flusher is None and (updates.wants_flush() or self._leaves_merge(updates, is_small)):
            self._flusher = self._started("siftline-flush", self._run_flusher, updates)
        domains = state.domains
        if domains.wants_merge:
            if domains.n_constants > _AT_ONCE:
                self._start(updates)
            else:
                with state.publishing:
                    domains.merge()
        if updates.take_in_patterns():
            self._start(updates)
        if updates.wants_renewal():
            if is_small or (is_bulk and state.n_overtaken >= _PATIENCE):
                updates.renew()
            else:
                self._start(updates)
        if updates.has_many_dead():
            if is_small:
                updates.sweep()
            else:
                self._start(updates)

    def _leaves_merge(self, updates: Updates, is_small: bool) -> bool:
        """Merge parts at once if the engine is small; return whether merges are left that no thread knows of."""
        if self._is_left and self._thread is not None:
            return False
        while (merge := updates.state.index.merge()) is not None:
            if not is_small or merge.n_clauses > _AT_ONCE:
                merge.give_up()
                return True
            _done(merge, updates)
        return False

    def settle(self, updates: Updates) -> None:
        """Do everything now."""
        if updates.wants_flush():
            updates.flush()
        if updates.has_many_dead():
            updates.sweep()
        if updates.wants_renewal():
            updates.renew()
        while (merge := updates.state.index.merge()) is not None:
            _done(merge, updates)
        updates.merge_patterns()

    def join(self) -> None:
        """Wait for the threads, and raise what they met."""
        for thread in (self._flusher, self._thread):
            if thread is not None:
                thread.join()
        thread = self._thread
        if thread is not None:  # which the flusher has started
            thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise SiftlineError(f"merging in the background failed: {error!r}") from error

    def _start(self, updates: Updates) -> None:
        if self._thread is None:
            self._thread = self._started("siftline-compaction", self._run, updates)

    def _started(self, name: str, run: Callable[[Updates], None], updates: Updates) -> threading.Thread:
        _watched.add(updates)
        thread = threading.Thread(target=run, args=(updates,), name=name, daemon=True)
        thread.start()
        return thread

    # the flusher

    def _run_flusher(self, updates: Updates) -> None:
        try:
            while self._flushes_or_merges(updates):
                pass
        except Exception as error:
            self._error = error
            raise  # shown by threading.excepthook; what matches has not changed
        finally:
            with updates.state.writing:
                if self._flusher is threading.current_thread():
                    self._flusher = None

    def _flushes_or_merges(self, updates: Updates) -> bool:
        """Flush if it is due, otherwise merge what is small; return whether there was anything to do."""
        with updates.state.writing:
            wants_flush = updates.wants_flush()
            merge = None if wants_flush else updates.state.index.merge()
            if merge is not None and merge.n_clauses > _QUICK_CLAUSES:
                merge.give_up()
                merge, self._is_left = None, True
                self._start(updates)
            if merge is not None:
                self._merges.append(merge)
            elif not wants_flush:
                self._flusher = None  # under the lock, so that the next change starts another one
                return False
        if merge is not None:
            self._carry_out(merge, updates, at_once)
        else:
            self._flush(updates)
        return True

    def _flush(self, updates: Updates) -> None:
        version = updates.state.domains.version
        try:
            updates.flush()
        except Exception:
            if updates.state.domains.version == version:
                raise
            # Constants came in while it looked at them: once more.

    # the thread for what takes long

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
            self._is_left = False
            merge = updates.state.index.merge()
            if merge is None:
                self._thread = None  # under the lock, so that the next change starts another one
                return False
            self._merges.append(merge)
        self._carry_out(merge, updates, stepped_back)
        return True

    def _carry_out(self, merge: Merge, updates: Updates, run: Run) -> None:
        """Carry out a merge; one that failed because constants came in while it looked at them is given up."""
        version = updates.state.domains.version
        try:
            run(merge.run)
        except Exception:
            with updates.state.writing:
                self._merges.remove(merge)
                merge.give_up()
                if updates.state.domains.version == version:
                    raise
            return
        with updates.state.writing, updates.state.fast_paths:
            self._merges.remove(merge)
            merge.finish()

    def forked(self, updates: Updates) -> None:
        """Forget the threads, which are not there in a child process, and what they were at."""
        self._thread = self._flusher = None
        while self._merges:
            self._merges.pop().give_up()
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
