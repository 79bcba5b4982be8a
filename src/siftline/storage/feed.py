"""From a store to an engine: all subscriptions at first, then what changed.

Changes may be applied again, or from an earlier point than necessary: what an engine ends up with is the same. Only the
last state of each id goes in, so an engine that is far behind catches up quickly.
"""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING, Any, Final

from siftline.errors import StoreError, SubscriptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from siftline.model import Expression
    from siftline.storage.rows import Change, StoredSubscription
    from siftline.storage.written import Written
    from siftline.subscriptions import Id

# Fewer subscriptions of one tenant than this are added one by one.
_FEW: Final = 8


def fill(engine: Any, subscriptions: Iterable[StoredSubscription], *, by_owner: bool) -> None:
    """Add subscriptions to an engine; texts that repeat are parsed once."""
    with _no_search_for_cycles():
        for tenant, rows in _by_tenant(subscriptions, by_owner).items():
            if len(rows) >= _FEW:
                engine.add_many(rows, tenant=tenant)
            else:
                for id, expression, weight in rows:
                    engine.add(expression, id, weight, tenant=tenant)


def _by_tenant(
    subscriptions: Iterable[StoredSubscription], by_owner: bool
) -> dict[str | None, list[tuple[Id, Expression, float]]]:
    parsed: dict[Written, Expression] = {}
    tenants: dict[str | None, list[tuple[Id, Expression, float]]] = {}
    for subscription in subscriptions:
        expression = parsed.get(subscription.written)
        if expression is None:
            expression = parsed[subscription.written] = _expression(subscription)
        tenant = subscription.owner if by_owner else None
        tenants.setdefault(tenant, []).append((subscription.id, expression, subscription.weight))
    return tenants


@contextlib.contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Let the collector rest: it would look through all expressions again and again, a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def catch_up(engine: Any, changes: Iterable[Change], *, by_owner: bool) -> int | None:
    """Apply changes to an engine; return the number of the last one, None if there was none."""
    gone: set[Id] = set()
    latest: dict[Id, StoredSubscription] = {}
    sequence = None
    for change in changes:
        sequence = change.sequence
        if change.subscription is None:
            latest.pop(change.id, None)
            gone.add(change.id)
        else:
            latest[change.id] = change.subscription
    # What was removed and added again is a new subscription, which may have another owner.
    engine.remove_many([id for id in gone if id in engine])
    for subscription in latest.values():
        if subscription.id in engine:
            engine.replace(subscription.id, _expression(subscription), subscription.weight)
    fill(engine, [each for id, each in latest.items() if id not in engine], by_owner=by_owner)
    return sequence


def _expression(subscription: StoredSubscription) -> Expression:
    try:
        return subscription.expression()
    except SubscriptionError as error:
        raise StoreError(f"the subscription {subscription.id!r} of the store cannot be read: {error}") from error
