"""The engine of a broker: the subscriptions of the store, without those whose leases have ended.

    store                              engine
    change 7   added X until 12:00     X                          follow: what changed
    change 8   replaced X              X with its new expression
               (12:00)                 -                          evict: before each match, by the broker's clock
    change 9   expired X                                          purge: some seconds later

Two rules keep an expired subscription from matching, whatever happens at the same time. First, all changes of the
engine are made under one lock, and the time is read under it; a change whose subscription has expired by then removes
it instead of adding it. Second, the time at which the next subscription expires is set before the engine has that
subscription: a match, which reads that time without the lock, either sees it and evicts first, or started earlier.

A subscription is removed from the store only after two checks, some seconds apart, have found it expired. So a clock
that was wrong for a moment deletes nothing, and evicted subscriptions come back once it is right again.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from siftline.broker.snapshots import READER, opened_engine, save_engine
from siftline.storage.feed import catch_up, fill
from siftline.storage.rows import microseconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from siftline.ids import Id
    from siftline.storage.rows import Change
    from siftline.storage.store import Store

# The time between the two checks that find a lease expired, after which it is removed from the store.
PATIENCE_SECONDS: Final = 3.0
# How many leases one transaction ends, so that other writers do not wait for long.
_MOST_ENDS: Final = 1000
# How many such transactions one tick of the background thread makes, because it has other work to do.
_MOST_PURGES: Final = 10
# How many changes one transaction drops from the store's feed, and how many of the newest are always kept.
MOST_DROPPED: Final = 500
KEPT_CHANGES: Final = 100_000


class LiveEngine:
    """An engine that follows a store and a clock.

    Parameters
    ----------
    store : Store
        The store with the subscriptions.
    index : str
        The index of the engine.
    now : callable
        Returns the time that decides whether a lease has ended.
    on_changes : callable
        Called under the lock with changes that the engine has applied.

    Attributes
    ----------
    sequence : int
        The number of the last change that the engine has.
    """

    def __init__(
        self, store: Store, index: str, now: Callable[[], datetime], on_changes: Callable[[list[Change]], None]
    ) -> None:
        self._store, self._index, self._now, self._on_changes = store, index, now, on_changes
        self.lock = threading.Lock()
        self._saving = threading.Lock()
        self.unreadable: set[Id] = set()
        # Subscriptions that expire by `_evicted_until` may be missing from the engine; those that expire by
        # `_clean_until` are.
        self.engine, self.sequence, self._evicted_until = opened_engine(store, index, now(), self.unreadable)
        self._clean_until = datetime.min.replace(tzinfo=UTC)
        self._next_expiry = store.next_expiry()
        self._first_check: tuple[float, datetime] | None = None

    def follow(self, sequence: int | None = None) -> None:
        """Apply the changes of the store to the engine, up to a number or all of them."""
        with self.lock:
            if sequence is not None and self.sequence >= sequence:
                return
            changes = list(self._store.changes(self.sequence))
            self._expect(changes)
            now = self._now()
            taken = [_in_force(each, now) for each in changes]
            self._clean_until = min(self._clean_until, now)
            if taken != changes:
                self._evicted_until = max(self._evicted_until, now)
            last = catch_up(self.engine, taken, by_owner=False, skipped=self.unreadable)
            if last is not None:
                self._on_changes(changes)
                self.sequence = last  # set last: if `_on_changes` raises, the changes are applied again

    def _expect(self, changes: list[Change]) -> None:
        """Update the time at which the next lease ends."""
        ends = [each.subscription.expires for each in changes if each.subscription is not None]
        known = [end for end in (self._next_expiry, *ends) if end is not None]
        self._next_expiry = min(known, default=None)

    def evict(self) -> None:
        """Remove expired subscriptions from the engine; the store is purged a little later."""
        now = self._now()
        if now < self._evicted_until:
            self._revive()
        if self._next_expiry is None or now < self._next_expiry:
            return
        with self.lock:
            now = self._now()
            query = "SELECT id FROM subscriptions WHERE expires > ? AND expires <= ?"
            rows = self._store.select(query, (microseconds(self._clean_until), microseconds(now)))
            self.engine.remove_many([id for (id,) in rows if id in self.engine])
            self._next_expiry = self._store.next_expiry(after=now)
            self._clean_until, self._evicted_until = now, max(self._evicted_until, now)

    def _revive(self) -> None:
        """Put evicted subscriptions back after the clock was set back."""
        with self.lock:
            now = self._now()
            if now >= self._evicted_until:  # another thread read a slightly later time than the caller
                return
            gone = [each for each in self._store.ending(now, self._evicted_until) if each.id not in self.engine]
            self._next_expiry = self._store.next_expiry(after=now)
            self._clean_until = min(self._clean_until, now)
            fill(self.engine, gone, by_owner=False, skipped=self.unreadable)
            self._evicted_until = now

    def purge(self) -> int:
        """Remove expired subscriptions from the store; return how many."""
        now, total = self._now(), 0
        while n := self._purge(now):
            total += n
        return total

    def purge_patiently(self) -> None:
        """Remove some subscriptions from the store that were already expired some seconds ago."""
        now, at = self._now(), time.monotonic()
        if self._first_check is None or now < self._first_check[1]:
            self._first_check = at, now
        then, found = self._first_check
        if at - then < PATIENCE_SECONDS:
            return
        for _ in range(_MOST_PURGES):
            if not self._purge(found):
                self._first_check = at, now
                return

    def _purge(self, moment: datetime) -> int:
        """End some of the leases that had expired at a time; return how many."""
        query = "SELECT exists(SELECT 1 FROM subscriptions WHERE expires <= ?)"
        if self._store.select(query, (microseconds(moment),)) == [(0,)]:
            return 0
        n = self._store.transact(lambda transaction, _: transaction.expire(_MOST_ENDS), moment)
        self.follow()
        return int(n)

    def compact(self) -> int:
        """Drop up to `MOST_DROPPED` old changes from the store, and return how many.

        A snapshot that lags by more changes than there are subscriptions is given up: it would not make the next start
        quicker, and the store would have to keep the tombstones of all subscriptions since.
        """
        behind = self.sequence - self._store.readers().get(READER, self.sequence)
        if behind > max(KEPT_CHANGES, len(self.engine)):
            self._store.forget_reader(READER)
        return self._store.compact_some(MOST_DROPPED, reader=READER, seen=self.sequence, n_kept=KEPT_CHANGES)

    def save(self) -> None:
        """Write a snapshot of the engine, so that the next start is quick."""
        with self._saving, self.lock:
            if not self.unreadable:  # otherwise the next start tries to parse them again
                save_engine(self.engine, self._store, self._index, self.sequence, self._evicted_until)


def _in_force(change: Change, now: datetime) -> Change:
    """Return a change as the engine applies it: a change of an expired subscription removes it."""
    subscription = change.subscription
    if subscription is None or subscription.expires is None or subscription.expires > now:
        return change
    return change._replace(subscription=None)
