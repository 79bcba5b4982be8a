"""Secrets that are shown once: what is kept is a salted hash, which is no use to a thief.

A secret has 256 random bits. So a fast hash is enough, because nobody can try them all, and the salt only keeps equal
secrets from looking equal.

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
    """What is kept of a secret."""

    salt: bytes
    digest: bytes


def new_secret(prefix: str) -> str:
    """Return a random secret; the prefix tells people, and those who search logs for secrets, what it is."""
    return f"{prefix}{secrets.token_urlsafe(_SECRET_BYTES)}"


def sealed(secret: str) -> Seal:
    """Return what to keep of a secret."""
    salt = secrets.token_bytes(_SALT_BYTES)
    return Seal(salt, _digest(secret, salt))


def fits(secret: str, seal: Seal) -> bool:
    """Return whether this is the secret, in a time that does not tell how much of it was right."""
    return hmac.compare_digest(_digest(secret, seal.salt), seal.digest)


def _digest(secret: str, salt: bytes) -> bytes:
    return hashlib.sha256(salt + secret.encode("utf-8", "surrogatepass")).digest()
