"""Signatures of notifications to webhooks, after the specification Standard Webhooks.

    whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw     the secret: a prefix, and 24 to 64 random bytes in base64
    v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=    HMAC-SHA256 of "id.timestamp.body"; the key is these bytes

Secrets of version 0.1.0 do not have this form, and keep working: their key is the whole text, prefix included. They are
recognised by the missing padding: 0.1.0 made 43 characters without "=", and secrets that are made or accepted now are
always padded.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final

from siftline.errors import LimitError

PREFIX: Final = "whsec_"

_LEAST_BYTES, _MOST_BYTES = 24, 64
_NEW_BYTES: Final = 32


def new_signing_secret() -> str:
    """Return a random secret."""
    return _written(secrets.token_bytes(_NEW_BYTES))


def signing_secret(text: str) -> str:
    """Return a secret from a request with its padding; raise if it does not have the right form.

    >>> signing_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'
    """
    key = _decoded(text.rstrip("="))
    if key is None or text not in (_written(key), _written(key).rstrip("=")):
        raise LimitError(
            f"the secret of a webhook must be '{PREFIX}' and {_LEAST_BYTES} to {_MOST_BYTES} bytes in base64,"
            " as Standard Webhooks has it; without a secret a new one is made"
        )
    return _written(key)


def signature(secret: str, id: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a notification, the value of the header `webhook-signature`.

    >>> secret, id = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek"
    >>> signature(secret, id, 1614265330, b'{"test": 2432232314}')
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
    """
    signed = b"%b.%d.%b" % (id.encode(), timestamp, body)
    return "v1," + base64.b64encode(hmac.digest(_key(secret), signed, hashlib.sha256)).decode()


def _key(secret: str) -> bytes:
    key = _decoded(secret)
    return key if key is not None and _written(key) == secret else secret.encode()


def _decoded(secret: str) -> bytes | None:
    """Return the bytes of a secret, None if it does not have this form; the padding may be missing."""
    encoded = secret.removeprefix(PREFIX)
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (ValueError, binascii.Error):
        return None
    return key if secret.startswith(PREFIX) and _LEAST_BYTES <= len(key) <= _MOST_BYTES else None


def _written(key: bytes) -> str:
    return PREFIX + base64.b64encode(key).decode()
