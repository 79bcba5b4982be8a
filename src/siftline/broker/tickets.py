"""Secrets that are shown once: the store has a salted hash, which is useless to a thief.

A secret has 256 random bits, so it cannot be guessed and a fast hash is enough. The salt only keeps equal secrets from
having equal hashes.

>>> secret = new_secret("ticket_")
>>> seal = sealed(secret)
>>> fits(secret, seal), fits("ticket_guess", seal)
(True, False)
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final, NamedTuple

_SECRET_BYTES: Final = 32
_SALT_BYTES: Final = 16


class Seal(NamedTuple):
    """The salted hash of a secret."""

    salt: bytes
    digest: bytes


def new_secret(prefix: str) -> str:
    """Return a random secret; the prefix shows people and secret scanners what it is."""
    return f"{prefix}{secrets.token_urlsafe(_SECRET_BYTES)}"


def sealed(secret: str) -> Seal:
    """Return the salted hash of a secret."""
    salt = secrets.token_bytes(_SALT_BYTES)
    return Seal(salt, _digest(secret, salt))


def fits(secret: str, seal: Seal) -> bool:
    """Return whether a secret is the right one, in a time that does not depend on how much of it is right."""
    return hmac.compare_digest(_digest(secret, seal.salt), seal.digest)


def _digest(secret: str, salt: bytes) -> bytes:
    return hashlib.sha256(salt + secret.encode("utf-8", "surrogatepass")).digest()
