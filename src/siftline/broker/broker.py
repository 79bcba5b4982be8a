"""The broker: subscriptions with leases and tickets, publishing, and notifications that are kept until delivery.

    subscribe, renew, replace, unsubscribe ──► store ──► (feed of changes) ──► engine
    publish ──► engine ──► log of notifications ──► hub ──► streams
                                                ──► webhooks

The store is the source of truth for subscriptions, the log for notifications; the engine follows the store. When a
method returns, its effect is durable in one of the two files, so it survives a crash of the process at any moment.

Leases and tickets follow section 2 of the expensive-operators paper (subscriptions with a validity, renewed and
cancelled by a ticket). The paper makes a ticket by hashing the content with a random number; ours is random, and the
store keeps a salted hash of it.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final

from siftline.broker.acceptance import accepted_text, accepted_webhook, check_room, named_id, new_id
from siftline.broker.clock import ForwardClock, SteadyClock
from siftline.broker.cluster import Cluster, checked
from siftline.broker.health import Health, without_paths
from siftline.broker.hub import Hub, Listener
from siftline.broker.keys import Keys
from siftline.broker.leases import (
    Lease,
    Proof,
    Renewals,
    Webhook,
    check_lease,
    put_lease,
    webhooks_of,
)
from siftline.broker.limits import DAY, Limits
from siftline.broker.live_engine import MOST_DROPPED, LiveEngine
from siftline.broker.log import NotificationLog
from siftline.broker.matching import matched_ids
from siftline.broker.notifications import START, Everybody
from siftline.broker.publisher import Publisher, Request, event_text
from siftline.broker.remembered import call_name, named_event
from siftline.broker.tickets import new_secret, sealed
from siftline.broker.upkeep import Upkeep
from siftline.broker.webhooks import Webhooks
from siftline.errors import BusyError, EventError, LimitError, SiftlineError
from siftline.storage.batch import Batch
from siftline.storage.rows import microseconds
from siftline.storage.sqlite_files import plain_errors
from siftline.storage.store import Store
from siftline.storage.written import TEXT

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future
    from datetime import datetime

    from siftline.broker.logged import LoggedEvent
    from siftline.broker.notifications import Delivered, Page, Position
    from siftline.broker.publisher import Pairs, Published
    from siftline.broker.remembered import Answer, Done
    from siftline.engine import Engine
    from siftline.ids import Id
    from siftline.storage.rows import Change, StoredSubscription
    from siftline.storage.transaction import Transaction

    Observer = Callable[[int, int, float], None]

# With fewer changed subscriptions their webhooks are looked up one by one, with more in one query.
_SINGLE_LOOKUPS_MAX: Final = 1000
# Upper bound of the transactions in one second that compact the store.
_COMPACTIONS_MAX: Final = 20
# A batch of this size runs other kernels than a small one, so `warm_up` needs one of each.
_LARGE_BATCH_EVENTS: Final = 2048


class Broker:
    """Keeps subscriptions that expire unless they are renewed, and notifies them of published events; thread-safe.

    Parameters
    ----------
    path : path
        The file of the store; the log of notifications and a snapshot of the engine are kept beside it.
    index : str
        The index of the engine.
    limits : Limits
        The largest sizes, counts and rates that are accepted.
    clock : callable, optional
        Returns the time, with a time zone; the default is the wall clock without its jumps (`clock.py`). If it is set
        back by a few minutes, the broker's time stands still; if it is set back further, the broker follows it.
    allow_private : bool
        Whether webhooks may be sent to private and loopback addresses.
    retry_seconds : sequence of float
        How long to wait after each failed delivery; after the last one the notification becomes a dead letter.
    matches_here : bool
        Whether events are matched here. Otherwise they are kept for a cluster, whose matches `deliver` takes.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> broker = Broker(folder.name + "/subscriptions.db")
    >>> lease = broker.subscribe("model = 'iphone5s' and price <= 580")
    >>> broker.publish({"model": "iphone5s", "price": 550}).events
    1
    >>> [each.payload for each in broker.notifications(lease.id, lease.ticket)]
    [b'{"model": "iphone5s", "price": 550}']
    >>> broker.renew(lease.id, lease.ticket, "7d") > lease.expires
    True
    >>> broker.unsubscribe(lease.id, lease.ticket)
    >>> broker.close(); folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        index: str = "sift",
        limits: Limits | None = None,
        clock: Callable[[], datetime] | None = None,
        allow_private: bool = False,
        retry_seconds: Iterable[float] | None = None,
        matches_here: bool = True,
    ) -> None:
        self.limits = Limits() if limits is None else limits
        self._clock = ForwardClock(SteadyClock() if clock is None else clock)
        self._allow_private = allow_private
        self._renewals = Renewals(self.limits.renewal_seconds)
        self.observers: list[Observer] = []
        # Called with the ids of subscriptions that have ended: a later subscription with the same id must not inherit
        # any state that is kept by id.
        self.end_observers: list[Callable[[list[Id]], None]] = [self._renewals.forget]
        self.store = Store(path)
        for file in (f"{self.store.path}{suffix}" for suffix in ("", "-wal", "-shm")):
            with contextlib.suppress(FileNotFoundError):
                os.chmod(file, 0o600)  # it holds the secrets of webhooks
        try:
            self.keys = Keys(self.store)
            self._live = LiveEngine(self.store, index, self.now, self._on_changes)
            self._webhook_of = webhooks_of(self.store)
            self.log = NotificationLog(f"{self.store.path}-notifications", self.limits, self._now_us())
        except BaseException:
            self.store.close()
            raise
        self.cluster = None if matches_here else Cluster(self.log, self.limits)
        self.hub = Hub(self.limits.hub_bytes)
        self.webhooks = Webhooks(
            self.log.deliveries,
            self._webhook_of.get,
            self._now_us,
            allow_private=allow_private,
            retry_seconds=retry_seconds,
        )
        match = checked if self.cluster is not None else self._match_all
        self._publisher = Publisher(match, self.log.numbered, self._write, self._answers, self._observe, self.limits)
        self._files = {"the store": self.store.path, "the log of notifications": self.log.path}
        self._health = Health(self._files)
        self._is_closed = False
        self._upkeep = Upkeep(self._steps)

    def close(self) -> None:
        """Finish the requests under way, end all streams, save the engine, and close the files."""
        if self._is_closed:
            return
        self._is_closed = True
        self._upkeep.stop()
        self._publisher.close()
        self.hub.end()
        self.webhooks.close()
        self.save()
        if self.cluster is not None:
            self.cluster.close()
        self.log.close()
        self.store.close()

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<siftline.Broker: {len(self.engine):,} subscriptions, {self.store.path}>"

    def now(self) -> datetime:
        """Return the time that decides whether a lease has ended."""
        return self._clock()

    def _now_us(self) -> int:
        moment = microseconds(self.now())
        assert moment is not None
        return moment

    # subscriptions

    def subscribe(
        self,
        expression: Any,
        validity: Any = DAY,
        *,
        deliver: Webhook | None = None,
        owner: str | None = None,
        dialect: str = TEXT,
        weight: float = 1.0,
    ) -> Lease:
        """Add a subscription that expires after a time.

        Parameters
        ----------
        expression
            Text, an Expression, or JSON of another dialect.
        validity : timedelta, seconds, or text such as '12h'
            When it expires unless it is renewed.
        deliver : Webhook, optional
            Where notifications are sent to; without a webhook they are kept in the log for a stream.
        owner : str, optional
            The owner of the subscription.
        dialect : {'text', 'eventbridge', 'sns', 'cloudevents'}
            The language of the expression.
        weight : float
            The weight by which the best matches are ranked.

        Raises
        ------
        SubscriptionError
            If the expression cannot be accepted; it says where and why.
        LimitError
            If the expression or the validity is too long, or there are too many subscriptions.
        """
        expires = self._expiry(validity)
        written = accepted_text(expression, dialect, self.limits)
        webhook = None if deliver is None else accepted_webhook(deliver, allow_private=self._allow_private)
        if len(self.engine) >= self.limits.subscriptions:
            raise LimitError(f"there are {self.limits.subscriptions:,} subscriptions already, which is the limit")
        id = new_id(are_ids_text=self.store.are_ids_text())
        ticket = new_secret("ticket_")
        batch = Batch()
        batch.add(written, id, weight=weight, owner=owner, expires=expires)

        def work(transaction: Transaction, connection: sqlite3.Connection) -> int:
            check_room(connection, owner, self.limits)
            batch.apply(transaction)
            put_lease(connection, id, sealed(ticket), webhook)
            return transaction.sequence

        self.follow(self.store.transact(work, self.now()))
        return Lease(id, ticket, expires, None if webhook is None else webhook.secret)

    def renew(self, id: Id, ticket: Proof, validity: Any = DAY) -> datetime:
        """Renew a subscription from now on, and return when it expires. Admins pass None as the ticket.

        Raises
        ------
        BusyError
            If it was renewed too often in the last seconds.
        """
        expires = self._expiry(validity)
        self._change(id, ticket, lambda batch: batch.renew(id, expires), before=self._check_renewal)
        return expires

    def _check_renewal(self, connection: sqlite3.Connection, id: Id, now: int) -> None:
        """Refuse to renew too often."""
        (expires,) = connection.execute("SELECT expires FROM subscriptions WHERE id = ?", (id,)).fetchone()
        self._renewals.take(id, now, expires)

    def replace(self, id: Id, ticket: Proof, expression: Any, *, dialect: str = TEXT) -> StoredSubscription:
        """Replace the expression of a subscription, and return it; every event meets either the old or the new one."""
        written = accepted_text(expression, dialect, self.limits)
        replaced = self._change(id, ticket, lambda batch: batch.replace(id, written))
        assert replaced is not None
        return replaced

    def unsubscribe(self, id: Id, ticket: Proof) -> None:
        """End a subscription."""
        self._change(id, ticket, lambda batch: batch.remove(id))

    def get(self, id: Id, ticket: Proof) -> StoredSubscription:
        """Return a subscription as the store has it."""
        now = self.now()
        found = self.store.get(id, now)
        if ticket is not None:
            self.check(id, ticket)
        return found

    def check(self, id: Id, ticket: Proof) -> None:
        """Raise unless the subscription exists and the ticket, or the owner's key in place of it, belongs to it."""
        check_lease(self.store.select, id, ticket, self._now_us())

    def id_of(self, text: str) -> Id:
        """Return the id that a text of a request stands for: the ids of one store are all integers or all strings."""
        return named_id(text, are_ids_text=self.store.are_ids_text())

    def _change(
        self,
        id: Id,
        ticket: Proof,
        change: Callable[[Batch], None],
        before: Callable[[sqlite3.Connection, Id, int], None] = lambda *_: None,
    ) -> StoredSubscription | None:
        """Make a change if the ticket allows it; return the changed subscription, read in the same transaction."""
        batch = Batch()
        change(batch)
        now = self.now()
        moment = microseconds(now)
        assert moment is not None

        def work(transaction: Transaction, connection: sqlite3.Connection) -> tuple[int, StoredSubscription | None]:
            check_lease(lambda query, given: connection.execute(query, given).fetchall(), id, ticket, moment)
            before(connection, id, moment)
            batch.apply(transaction)
            return transaction.sequence, transaction.find(id)

        changed: StoredSubscription | None
        sequence, changed = self.store.transact(work, now)
        self.follow(sequence)
        return changed

    def _expiry(self, validity: Any) -> datetime:
        return self.now() + self.limits.lease(validity)

    # the engine

    def follow(self, sequence: int | None = None) -> None:
        """Apply the changes of the store to the engine, up to a number or all of them."""
        self._live.follow(sequence)

    def _on_changes(self, changes: list[Change]) -> None:
        """Apply changes of the store to webhooks and streams."""
        gone = [change.id for change in changes if change.subscription is None]
        here = [change.id for change in changes if change.subscription is not None]
        for id in gone:
            if self._webhook_of.pop(id, None) is not None:
                with contextlib.suppress(SiftlineError):  # they are dropped later, when they become due
                    self.log.deliveries.forget(id)
        self.hub.removed(gone)
        for observer in self.end_observers:
            observer(gone)
        self._webhook_of.update(webhooks_of(self.store, here if len(here) < _SINGLE_LOOKUPS_MAX else None))
        for change in changes:
            if change.subscription is not None:
                self.hub.added(change.id, change.subscription.owner)

    def purge(self) -> int:
        """Remove expired subscriptions from the store; return how many.

        A running broker does this itself, some seconds after a lease ends.
        """
        return self._live.purge()

    def _steps(self) -> tuple[Callable[[], object], ...]:
        """Return the background tasks of every second."""
        return self.keys.refresh, self.follow, self._live.purge_patiently, self._compact, self.log.tend

    def problems(self) -> list[str]:
        """Return why the broker cannot do its work, as texts; an empty list if it is ready.

        Files are probed by a small durable write, at most every few seconds, so this may wait for the disk.
        """
        if self._is_closed:
            return ["the broker is closed"]
        known = [without_paths(reason, self._files) for reason in self._upkeep.failures()]
        return list(dict.fromkeys(self._health.problems() + known))

    def _compact(self) -> None:
        """Compact the store in small transactions, so that other writers do not wait for long."""
        for _ in range(_COMPACTIONS_MAX):
            if self._live.compact() < MOST_DROPPED or self._upkeep.is_stopping:
                return

    def save(self) -> None:
        """Write a snapshot of the engine, so that the next start is quick."""
        self._live.save()

    @property
    def engine(self) -> Engine:
        """The engine, with all subscriptions that have not expired."""
        return self._live.engine

    @property
    def unreadable(self) -> set[Id]:
        """The ids of stored subscriptions that can no longer be parsed, and so match nothing."""
        return self._live.unreadable

    @property
    def lag(self) -> int:
        """How many changes of the store the engine has not applied yet."""
        return self.store.sequence - self._live.sequence

    # events

    def publish(self, event: Any, *, idempotency: str | None = None, scope: str = "") -> Published:
        """Publish one event; return when its notifications are durable.

        Parameters
        ----------
        event
            A dict, or JSON text.
        idempotency : str, optional
            A key for this publish. Publishing the same again with the same key returns the first answer, and sends no
            notifications again; the key is remembered as long as the log has the notifications.
        scope : str
            The publisher: keys of different scopes are independent.

        Raises
        ------
        EventError
            If it is not a valid event.
        IdempotencyError
            If other events were published with the same key.
        """
        return self.publish_later([event], idempotency=idempotency, scope=scope).result()

    def publish_many(
        self,
        events: Iterable[Any],
        *,
        idempotency: str | None = None,
        scope: str = "",
        names: Iterable[str | None] | None = None,
    ) -> Published:
        """Publish events together: all, or none if one is invalid. `names` has a key for each event, or None."""
        return self.publish_later(events, idempotency=idempotency, scope=scope, names=names).result()

    def publish_later(
        self,
        events: Iterable[Any],
        *,
        idempotency: str | None = None,
        scope: str = "",
        names: Iterable[str | None] | None = None,
    ) -> Future[Published]:
        """Publish events together; the future has its result when the notifications are durable."""
        texts = []
        for position, event in enumerate(events):
            try:
                texts.append(event_text(event, self.limits))
            except EventError as error:
                raise EventError(f"event {position}: {error}" if position else str(error)) from None
        name = None if idempotency is None else call_name(scope, idempotency, texts)
        pairs = () if names is None else zip(names, texts, strict=True)
        event_names = [None if each is None else named_event(scope, each, text) for each, text in pairs]
        return self._publisher.submit(Request(texts, name, event_names))

    def match(self, event: Any) -> list[Id]:
        """Return the subscriptions that an event matches, without notifying them."""
        self._live.evict()
        return self.engine.match(event_text(event, self.limits), now=self.now())

    def warm_up(self) -> None:
        """Load the compiled kernels, so that the first events do not wait for them."""
        for n_events in (1, 2, _LARGE_BATCH_EVENTS):
            for _ in matched_ids(self.engine, [b'{"": 0, " ": ""}'] * n_events, self.now()):
                pass

    def _match_all(self, events: list[bytes]) -> Iterator[list[Id] | EventError]:
        return matched_ids(self.engine, events, self.now(), before=self._live.evict)

    def _answers(self, keys: set[bytes]) -> dict[bytes, Answer]:
        with plain_errors(self.log.path):
            return self.log.remembered.find(keys)

    def _write(self, pairs: Pairs, done: list[Done]) -> int:
        now = self._now_us()
        if self.cluster is not None:
            return self.cluster.publish([event for event, _ in pairs], now, done)
        self._tell(self.log.append([pair for pair in pairs if len(pair[1])], now, self._webhook_of, done=done))
        return self.log.last

    def _tell(self, logged: list[LoggedEvent]) -> None:
        if logged:
            self.hub.tell(logged)
            if self._webhook_of:
                self.webhooks.wake()

    def deliver(self, matches: Iterable[tuple[int, list[Id]]]) -> Delivered:
        """Notify the subscriptions of matches that a cluster has found, once each, even if a match is sent repeatedly.

        Parameters
        ----------
        matches : iterable of (int, list of ids)
            Numbers of published events (`cluster.read`), each with the subscriptions that it matches.
        """
        if self.cluster is None:
            raise LimitError("this broker matches events itself, and accepts no matches")
        self._live.evict()
        return self.cluster.deliver(matches, self._now_us(), self.engine.__contains__, self._webhook_of, self._tell)

    def _observe(self, n_events: int, n_matches: int, seconds: float) -> None:
        for observer in self.observers:
            observer(n_events, n_matches, seconds)

    @property
    def n_waiting(self) -> int:
        """How many events wait in the publisher's queue."""
        return self._publisher.n_waiting

    # notifications

    def notifications(self, id: Id, ticket: Proof, after: Position = START, limit: int = 1000) -> Page:
        """Return the notifications of a subscription after a position, oldest first, as far as the log has them.

        If some are missing, the attribute `gap` of the page says so, and the page has those that follow.
        """
        self.get(id, ticket)
        return self.log.page({id}, after, limit)

    def listen(self, wanted: Id | Everybody | None, *, owner: str | None = None, wake: Callable[[], None]) -> Listener:
        """Join the hub for one subscription, for all of an owner (`wanted` is None), or for all subscriptions."""
        if len(self.hub) >= self.limits.streams:
            raise BusyError(f"there are {self.limits.streams:,} streams already")
        chosen: set[Id] | Everybody
        with self._live.lock:  # otherwise a subscription added between the query and `join` would be missed
            if owner is not None:
                chosen = {id for (id,) in self.store.select("SELECT id FROM subscriptions WHERE owner = ?", (owner,))}
            else:
                assert wanted is not None
                chosen = wanted if isinstance(wanted, Everybody) else {wanted}
            listener = Listener(
                chosen, owner=owner, most_items=self.limits.stream_items, most_bytes=self.limits.stream_bytes, wake=wake
            )
            self.hub.join(listener)
        return listener
