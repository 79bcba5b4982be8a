"""Work after changes: flushes, merges, sweeps. A small engine does it at once, a large one in two threads.

    flusher      moves the write buffer to the index, and merges small parts: milliseconds
    compactor    merges large parts, sweeps, assigns labels again: seconds; at low priority

A thread lives only while there is work, and holds the writers' lock only to choose the work and to put the result in
place. While it holds the lock it has normal priority; otherwise a writer would wait until the processor is idle.
Matching never waits for either thread. If a process forks meanwhile, the child starts the work again at its next
change.

A writer that adds faster than the flusher flushes is slowed down (`stall`). Otherwise it would keep the interpreter's
lock from the flusher, which needs it sixty times for a flush and gets it from a busy thread only every five
milliseconds.
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

    # Runs a slow function, in this thread or another, and waits for it.
    Run = Callable[[Callable[[], None]], None]

# A small engine does merges of at most this many clauses, or constants, at once; they take a few milliseconds.
_AT_ONCE: Final = 1024
# An engine of at most this many slots is small.
_FEW_SLOTS: Final = 1024
# The flusher does merges of at most this many clauses, the compactor larger ones.
_QUICK_CLAUSES: Final = 8192
# How long a writer waits before each addition while a flush is due.
_STALL_S: Final = 0.0005
# A merge of constants is finished under the lock once at most this many new constants are left.
_FEW_CONSTANTS: Final = 256
# After this many renewals in a row that bulk additions made useless, the next bulk addition waits for a renewal.
_PATIENCE: Final = 2
# The niceness of the compactor; see nice(1).
_NICENESS: Final = 5

# Engines with a background thread; a fork holds their locks.
_watched: weakref.WeakSet[Updates] = weakref.WeakSet()


class Compactor:
    """The background work of one engine. Methods run under the writers' lock, except `join`, `stall` and threads."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._flusher: threading.Thread | None = None
        self._merges: list[Merge] = []  # under way
        self._is_left = False  # whether a large merge waits for the compactor, so that changes need not choose it again
        self._error: Exception | None = None

    def __getstate__(self) -> dict[str, object]:
        return {}  # threads belong to the original

    def __setstate__(self, state: dict[str, object]) -> None:
        Compactor.__init__(self)

    def stall(self, updates: Updates) -> None:
        """Wait a little if a flush is due and running; the caller holds no lock."""
        flusher = self._flusher
        if flusher is not None and updates.state.buffer.is_due:
            flusher.join(_STALL_S)

    def tidy(self, updates: Updates, *, is_bulk: bool = False) -> None:
        """Do the work if the engine is small; otherwise start the threads.

        Each bulk addition replaces the domains, which makes a running renewal useless. When that has happened a few
        times, the next bulk addition waits for a renewal.
        """
        state = updates.state
        is_small = state.table.n_slots <= _FEW_SLOTS
        if is_small and updates.wants_flush():
            updates.flush()
        if self._flusher is None and (updates.wants_flush() or self._leaves_merge(updates, is_small)):
            self._flusher = self._started("siftline-flush", self._flush_or_merge, updates)
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
        """Merge parts at once if the engine is small; return whether merges are left for a thread."""
        if self._is_left and self._thread is not None:
            return False
        while (merge := updates.state.index.merge()) is not None:
            if not is_small or merge.n_clauses > _AT_ONCE:
                merge.give_up()
                return True
            _done(merge, updates)
        return False

    def settle(self, updates: Updates) -> None:
        """Do all work now."""
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
        """Wait for the threads, and raise their error."""
        for thread in (self._flusher, self._thread):
            if thread is not None:
                thread.join()
        thread = self._thread
        if thread is not None:  # the flusher may have started it
            thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise SiftlineError(f"merging in the background failed: {error!r}") from error

    # the threads

    def _start(self, updates: Updates) -> None:
        if self._thread is None:
            self._thread = self._started("siftline-compaction", self._compact_once, updates)

    def _started(self, name: str, step: Callable[[Updates], bool], updates: Updates) -> threading.Thread:
        _watched.add(updates)
        thread = threading.Thread(target=self._repeat, args=(step, updates), name=name, daemon=True)
        thread.start()
        return thread

    def _repeat(self, step: Callable[[Updates], bool], updates: Updates) -> None:
        """Repeat a step until there is no more work: the loop of both threads."""
        try:
            while step(updates):
                pass
        except Exception as error:
            self._error = error
            raise  # shown by threading.excepthook; the set of matches has not changed
        finally:
            with updates.state.writing:  # another thread may have been started since
                if self._flusher is threading.current_thread():
                    self._flusher = None
                if self._thread is threading.current_thread():
                    self._thread = None

    def _flush_or_merge(self, updates: Updates) -> bool:
        """Flush if that is due, otherwise merge small parts; return whether there was any work. For the flusher."""
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
            self._carry_out(merge, updates, run_here)
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
            # New constants changed the domains during the flush: the next step tries again.

    def _compact_once(self, updates: Updates) -> bool:
        """Sweep, renew, merge constants, patterns and parts; return whether there was work. For the compactor."""
        with updates.state.writing:
            has_many_dead = updates.has_many_dead()
        if has_many_dead:
            updates.sweep(run_at_low_priority)
        with updates.state.writing:
            wants_renewal = updates.wants_renewal()
        if wants_renewal:
            updates.renew(run_at_low_priority)
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
        self._carry_out(merge, updates, run_at_low_priority)
        return True

    def _carry_out(self, merge: Merge, updates: Updates, run: Run) -> None:
        """Carry out a merge; if it fails because new constants changed the domains meanwhile, give it up."""
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
        """Drop the threads, which a child process does not have, and their unfinished work."""
        self._thread = self._flusher = None
        while self._merges:
            self._merges.pop().give_up()
        updates.state.domains.abandon()
        updates.state.table.removed = None


class NoCompactor(Compactor):
    """Does no work: for an engine whose parts will become those of another engine."""

    def tidy(self, updates: Updates, *, is_bulk: bool = False) -> None:
        """Do nothing."""


def _merge_constants(updates: Updates) -> None:
    """Merge new constants into the flat arrays, if they are many."""
    with updates.state.writing:
        if not updates.state.domains.wants_merge:
            return
        merging = updates.state.domains.start_merge()
    try:
        run_at_low_priority(merging.run)
        while merging.n_behind > _FEW_CONSTANTS:
            merging.catch_up()
    except BaseException:
        with updates.state.writing:
            merging.give_up()
        raise
    with updates.state.writing, updates.state.publishing:  # a bulk addition may merge them too
        merging.finish()


def _done(merge: Merge, updates: Updates) -> None:
    try:
        merge.run()
    except BaseException:
        merge.give_up()
        raise
    with updates.state.fast_paths:
        merge.finish()


def run_here(work: Callable[[], None]) -> None:
    """Run a function in this thread."""
    work()


def run_at_low_priority(work: Callable[[], None]) -> None:
    """Run a function in a new thread at low priority, and wait for it; it must hold no lock."""
    errors: list[BaseException] = []

    def run() -> None:
        _lower_priority()
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name=threading.current_thread().name, daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def _lower_priority() -> None:
    """Lower the priority of this thread, if the system can."""
    with contextlib.suppress(AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


# A fork holds the writers' locks, so that none of them is held by a thread that the child does not have.
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
