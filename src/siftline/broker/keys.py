"""API keys: who may publish, subscribe for an owner, or administer the server.

    key_3f9a…c2.Zk1…        the public name of the key, then the secret, of which the store has a hash

A revoked key loses its hash, but its row stays: once a key was made for a role, the role needs a key forever, even
after the last one is revoked.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from siftline.broker.tickets import Seal, fits, new_secret, sealed
from siftline.errors import LimitError, UnknownIdError

if TYPE_CHECKING:
    from collections.abc import Callable

    from siftline.storage.store import Store

ADMIN: Final = "admin"
PUBLISH: Final = "publish"
SUBSCRIBE: Final = "subscribe"
ROLES: Final = (ADMIN, PUBLISH, SUBSCRIBE)


class Key(NamedTuple):
    """A key without its secret; `owner` is the one for whom a `subscribe` key may act."""

    id: str
    role: str
    owner: str | None


class Keys:
    """The keys of a store, cached until `refresh`.

    Attributes
    ----------
    observers : list of callables
        Called when keys were added or revoked, in the thread that has read the change.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.observers: list[Callable[[], None]] = []
        self._known: dict[str, tuple[Key, Seal]] = {}
        self._roles: frozenset[str] = frozenset()
        self.refresh()

    def refresh(self) -> None:
        """Read the keys again: another process may have added or revoked some."""
        rows = self._store.select("SELECT id, role, owner, salt, digest FROM keys ORDER BY created")
        known = {id: (Key(id, role, owner), Seal(salt, digest)) for id, role, owner, salt, digest in rows if digest}
        is_changed = known != self._known
        # The roles first: between the two assignments, a role must never seem to need no key.
        self._roles |= {role for _, role, *_ in rows}
        self._known = known
        for observer in self.observers if is_changed else ():
            observer()

    def listed(self) -> list[Key]:
        """Return all keys that were not revoked."""
        return [key for key, _ in self._known.values()]

    def has_role(self, role: str) -> bool:
        """Return whether a key was ever made for a role."""
        return role in self._roles

    def add(self, role: str, owner: str | None = None) -> str:
        """Make a key and return it with its secret, which is not shown again."""
        if role not in ROLES:
            raise LimitError(f"the role of a key is one of {', '.join(ROLES)}, not {role!r}")
        if (owner is not None) is not (role == SUBSCRIBE):
            raise LimitError("a subscribe key needs an owner (subscribe:NAME), and other keys have none")
        id = f"key_{secrets.token_hex(6)}"
        secret = new_secret(f"{id}.")
        row = (id, *sealed(secret), role, owner, time.time_ns() // 1000)
        self._store.transact(lambda _, connection: connection.execute("INSERT INTO keys VALUES (?,?,?,?,?,?)", row))
        self.refresh()
        return secret

    def revoke(self, id: str) -> None:
        """Revoke a key."""
        revoked = "UPDATE keys SET digest = x'' WHERE id = ? AND digest <> x''"
        gone = self._store.transact(lambda _, connection: connection.execute(revoked, (id,)).rowcount)
        self.refresh()
        if not gone:
            raise UnknownIdError(f"there is no key {id!r}")

    def of(self, secret: str) -> Key | None:
        """Return the key that a secret belongs to, None if there is none."""
        known = self._known.get(secret.partition(".")[0])
        return known[0] if known is not None and fits(secret, known[1]) else None
