"""Loads the subscriptions of a store into an engine, and applies later changes.

Changes may be applied twice, or from an earlier number than necessary: the result is the same. Only the last state of
each id is applied, so an engine that is far behind catches up quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from siftline.encoding.garbage import without_garbage_collection
from siftline.errors import StoreError, SubscriptionError
from siftline.storage.rows import RENEWED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from siftline.ids import Id
    from siftline.model import Expression
    from siftline.storage.rows import Change, StoredSubscription
    from siftline.storage.written import Written

# From this number of subscriptions on, adding them together is faster than one by one.
_BULK_MIN: Final = 8


def fill(
    engine: Any, subscriptions: Iterable[StoredSubscription], *, by_owner: bool, skipped: set[Id] | None = None
) -> None:
    """Add subscriptions to an engine; equal texts are parsed once.

    A subscription that can no longer be parsed is an error, unless `skipped` is given: then its id is added to it.
    """
    with without_garbage_collection():
        for tenant, rows in _by_tenant(subscriptions, by_owner, skipped).items():
            add_rows(engine, rows, tenant)


def add_rows(engine: Any, rows: list[tuple[Id, Expression, float]], tenant: str | None = None) -> None:
    """Add subscriptions to an engine, in the way that is faster for their number."""
    if len(rows) >= _BULK_MIN:
        engine.add_many(rows, tenant=tenant)
    else:
        for id, expression, weight in rows:
            engine.add(expression, id, weight, tenant=tenant)


def _by_tenant(
    subscriptions: Iterable[StoredSubscription], by_owner: bool, skipped: set[Id] | None
) -> dict[str | None, list[tuple[Id, Expression, float]]]:
    parsed: dict[Written, Expression] = {}
    tenants: dict[str | None, list[tuple[Id, Expression, float]]] = {}
    for subscription in subscriptions:
        expression = parsed.get(subscription.written)
        if expression is None:
            expression = _expression(subscription, skipped)
            if expression is None:
                continue
            parsed[subscription.written] = expression
        tenant = subscription.owner if by_owner else None
        tenants.setdefault(tenant, []).append((subscription.id, expression, subscription.weight))
    return tenants


def catch_up(engine: Any, changes: Iterable[Change], *, by_owner: bool, skipped: set[Id] | None = None) -> int | None:
    """Apply changes to an engine; return the number of the last one, None if there is none."""
    gone: set[Id] = set()
    latest: dict[Id, StoredSubscription] = {}
    rewritten: set[Id] = set()  # not those that were only renewed, whose expressions are unchanged
    sequence = None
    for change in changes:
        sequence = change.sequence
        if change.subscription is None:
            latest.pop(change.id, None)
            gone.add(change.id)
        else:
            latest[change.id] = change.subscription
        if change.kind != RENEWED:
            rewritten.add(change.id)
    if skipped is not None:
        skipped.difference_update(gone, latest)
    # An id that was removed and added again is a new subscription, which may have another owner.
    engine.remove_many([id for id in gone if id in engine])
    new: list[StoredSubscription] = []
    for id, subscription in latest.items():
        if id not in engine:
            new.append(subscription)
        elif id in rewritten:
            _replace(engine, subscription, skipped)
    fill(engine, new, by_owner=by_owner, skipped=skipped)
    return sequence


def _replace(engine: Any, subscription: StoredSubscription, skipped: set[Id] | None) -> None:
    """Replace a subscription of an engine, unless it is unchanged: an older program writes renewals as replacements."""
    id, weight = subscription.id, subscription.weight
    expression = _expression(subscription, skipped)
    if expression is None:
        engine.remove(id)  # the old expression must not match any more
    elif weight != engine.weight(id) or expression != engine.expression(id):
        engine.replace(id, expression, weight)


def _expression(subscription: StoredSubscription, skipped: set[Id] | None) -> Expression | None:
    try:
        return subscription.expression()
    except SubscriptionError as error:
        if skipped is not None:
            skipped.add(subscription.id)
            return None
        raise StoreError(f"the subscription {subscription.id!r} of the store cannot be read: {error}") from error
