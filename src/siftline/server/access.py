"""Permissions: a role needs an API key, or, until the first key for it is made, a request from this machine.

A request counts as local if its connection comes from a loopback address, no proxy has forwarded it, and its Host
header names this machine; so a page of another site in a local browser has no access. A local proxy that adds no header
and sets the host cannot be told from a local request: behind such a proxy, keys are needed.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from siftline.broker.keys import ADMIN, SUBSCRIBE
from siftline.broker.leases import OwnerKey
from siftline.server.problems import ProblemError

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.requests import HTTPConnection

    from siftline.broker.broker import Broker
    from siftline.broker.keys import Key
    from siftline.broker.leases import Proof

_FORWARDED: Final = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
_NAMES: Final = ("localhost", "127.0.0.1", "::1")


class Access:
    """Decides whether a request is allowed.

    Parameters
    ----------
    broker : Broker
        The broker with the keys.
    is_open : collection of str
        Roles that need no key for requests from anywhere.
    """

    def __init__(self, broker: Broker, is_open: Collection[str] = ()) -> None:
        self._broker = broker
        self._open = frozenset(is_open) - {ADMIN}

    def is_open(self, role: str) -> bool:
        """Return whether a role needs no key for requests from anywhere."""
        return role in self._open

    def require(self, connection: HTTPConnection, role: str) -> Key | None:
        """Return the key of a request, None if the role needs none; raise if the request may not act in the role."""
        return self.permit(connection, bearer(connection), role)

    def permit(self, connection: HTTPConnection, token: str | None, role: str) -> Key | None:
        """Do the same as `require` for a token that was not sent in the header."""
        keys = self._broker.keys
        key = None if token is None else keys.of(token)
        if key is not None and key.role in (role, ADMIN):
            return key
        if token is None and (role in self._open or (not keys.has_role(role) and is_local(connection))):
            return None
        if key is not None:
            raise ProblemError(403, f"this key is for the role {key.role!r}, not {role!r}")
        hint = "siftline serve --new-key makes one" if not keys.has_role(role) else None
        reason = "the key is unknown" if token is not None else f"a key for the role {role!r} is needed"
        raise ProblemError(401, reason, hint=hint)

    def proof(self, connection: HTTPConnection) -> Proof:
        """Return what authorises a request for one subscription: a ticket, the key of an owner, or None for admins."""
        return self.proof_of(connection, bearer(connection))

    def proof_of(self, connection: HTTPConnection, token: str | None) -> Proof:
        """Do the same as `proof` for a token that was not sent in the header."""
        if token is None:
            if not self._broker.keys.has_role(ADMIN) and is_local(connection):
                return None
            raise ProblemError(401, "the ticket of the subscription is needed, as a bearer token, or its owner's key")
        key = self._broker.keys.of(token)
        if key is None:
            return token
        if key.role == ADMIN:
            return None
        if key.owner is None:
            raise ProblemError(403, f"this key is for the role {key.role!r}, not for subscriptions")
        return OwnerKey(key.owner)

    def check_owner(self, connection: HTTPConnection, token: str | None, owner: str) -> None:
        """Raise unless a request may act for an owner."""
        key = self.permit(connection, token, SUBSCRIBE)
        if key is not None and key.role != ADMIN and key.owner != owner:
            raise ProblemError(403, "this key is for another owner")
        if key is None:
            self.permit(connection, token, ADMIN)


def bearer(connection: HTTPConnection) -> str | None:
    """Return the bearer token of a request."""
    header = connection.headers.get("authorization")
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise ProblemError(401, "the header Authorization must be: Bearer TOKEN")
    return token.strip()


def is_local(connection: HTTPConnection) -> bool:
    """Return whether a request comes from this machine and is meant for it."""
    headers = connection.headers
    if connection.client is None or not _is_loopback(connection.client.host):
        return False
    if any(name in headers for name in _FORWARDED):
        return False
    host = headers.get("host", "")
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2].rstrip("/") != host:
        return False
    return _host(host) in _NAMES


def _host(authority: str) -> str | None:
    try:
        return urlsplit(f"//{authority}").hostname
    except ValueError:
        return None


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
