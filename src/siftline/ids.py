"""What may be the id of a subscription, and how it is held.

An engine or a store holds plain integers of 64 bits, or plain strings. What takes an id also takes what stands for
one: a NumPy integer or a member of an enumeration for its value, a `uuid.UUID` for its text.
"""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

from siftline.errors import SubscriptionError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    import numpy as np

# As an id is held and given back.
Id = int | str
# As an id is taken.
AnyId: TypeAlias = "Id | UUID | np.integer[Any]"

_PLAIN: Final = frozenset({int, str})
INT64: Final = range(-(2**63), 2**63)


def plain_id(id: AnyId) -> Id:
    """Return an id as it is held; what can be none is returned as it is, for `check_type` to refuse.

    >>> plain_id(UUID("550e8400-e29b-41d4-a716-446655440000"))
    '550e8400-e29b-41d4-a716-446655440000'
    """
    if type(id) in _PLAIN or isinstance(id, bool):
        return id  # type: ignore[return-value]
    if isinstance(id, UUID):
        return str(id)
    if isinstance(id, str):
        return str.__str__(id)  # of an enumeration's member, what it holds
    other: Any = id  # NumPy's integers are of this class, though their types do not say so
    return int(other) if isinstance(other, Integral) else other


def plain_ids(ids: Iterable[AnyId]) -> list[Id]:
    """Return ids as they are held, a list as it is if all of them are plain."""
    listed: list[Any] = ids if isinstance(ids, list) else list(ids)
    return listed if _PLAIN.issuperset(map(type, listed)) else [plain_id(id) for id in listed]


def plain_id_set(ids: Iterable[AnyId]) -> AbstractSet[Id]:
    """Return ids as a set of what is held, a set as it is if all of them are plain."""
    found: Any = ids if isinstance(ids, (set, frozenset)) else frozenset(ids)
    return found if _PLAIN.issuperset(map(type, found)) else frozenset(map(plain_id, found))


def check_type(id: Id, is_text: bool | None) -> bool:
    """Raise unless the id is an int64 or a string, and of the same type as those before; return whether it is text."""
    if isinstance(id, bool) or not isinstance(id, (int, str)):
        hint = "a UUID or a NumPy integer will do as well"
        raise SubscriptionError(f"an id must be an integer or a string, not {type(id).__name__}: {id!r}", hint=hint)
    if isinstance(id, int) and id not in INT64:
        raise SubscriptionError(f"the id {id} does not fit into 64 bits")
    if isinstance(id, str) and not id.isascii() and id.encode("utf-8", "replace").decode() != id:
        raise SubscriptionError(f"the id {id!r} has a lone surrogate, which Arrow tables cannot hold")
    if is_text is not None and is_text is not isinstance(id, str):
        kinds = ("strings", "integers") if is_text else ("integers", "strings")
        raise SubscriptionError(f"the id {id!r} is of another type: the ids of this engine are {kinds[0]}")
    return isinstance(id, str)
