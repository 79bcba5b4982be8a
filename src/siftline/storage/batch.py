"""Collects changes that are made durable together, and checks each as it is added."""

from __future__ import annotations

import contextlib
import math
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

from siftline.errors import SubscriptionError
from siftline.ids import INT64, plain_id
from siftline.storage.rows import microseconds
from siftline.storage.transaction import KEPT, Content
from siftline.storage.written import TEXT, Written

if TYPE_CHECKING:
    from datetime import datetime

    from siftline.ids import AnyId, Id
    from siftline.storage.transaction import Transaction


class Batch:
    """Changes that take effect together or not at all; made by `Store.batch`."""

    def __init__(self) -> None:
        self._changes: list[tuple[str, tuple[Any, ...]]] = []

    def __len__(self) -> int:
        return len(self._changes)

    def add(
        self,
        expression: Any,
        id: AnyId,
        *,
        weight: float = 1.0,
        owner: str | None = None,
        expires: datetime | None = None,
        created: datetime | None = None,
        dialect: str = TEXT,
    ) -> None:
        """Add a subscription; parameters as for `Store.add`."""
        written = Written.of(expression, dialect)
        content = Content(written, _weight(weight), _owner(owner), microseconds(created), microseconds(expires))
        self._changes.append(("add", (checked_id(id), content)))

    def replace(
        self,
        id: AnyId,
        expression: Any,
        *,
        weight: float | None = None,
        expires: datetime | Literal["kept"] | None = KEPT,
        dialect: str = TEXT,
    ) -> None:
        """Replace the expression of a subscription; arguments that are not given keep their values."""
        written = Written.of(expression, dialect)
        until: Any = KEPT if expires == KEPT else microseconds(expires)
        content = Content(written, None if weight is None else _weight(weight), None, None, until)
        self._changes.append(("replace", (checked_id(id), content)))

    def renew(self, id: AnyId, expires: datetime | None) -> None:
        """Change when a subscription expires; None means never."""
        self._changes.append(("renew", (checked_id(id), microseconds(expires))))

    def remove(self, id: AnyId) -> None:
        """Remove a subscription."""
        self._changes.append(("remove", (checked_id(id),)))

    def apply(self, transaction: Transaction) -> None:
        """Make all changes."""
        for name, group in groupby(self._changes, key=itemgetter(0)):
            if name == "add":
                transaction.add_many([arguments for _, arguments in group])
                continue
            for _, arguments in group:
                getattr(transaction, name)(*arguments)


def checked_id(id: Any) -> Id:
    """Return an id in the form that a store keeps; raise if it is invalid."""
    id = plain_id(id)
    if isinstance(id, bool) or not isinstance(id, (int, str)):
        raise SubscriptionError(f"an id must be an integer or a string, not {type(id).__name__}: {id!r}")
    if isinstance(id, int) and id not in INT64:
        raise SubscriptionError("the id does not fit into 64 bits")
    if isinstance(id, str):
        _unicode(id, "an id")
    return id


def _owner(owner: Any) -> str | None:
    if owner is not None and not isinstance(owner, str):
        raise SubscriptionError(f"an owner must be a string, not {type(owner).__name__}: {owner!r}")
    return None if owner is None else _unicode(owner, "an owner")


def _unicode(text: str, what: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SubscriptionError(f"{what} must be Unicode text: {text!a} has half of a surrogate pair") from None
    return text


def _weight(weight: Any) -> float:
    if isinstance(weight, (int, float)) and not isinstance(weight, bool):
        with contextlib.suppress(OverflowError):  # an integer too large for a double
            if math.isfinite(weight):
                return float(weight)
    raise SubscriptionError("a weight must be a finite number")
