"""Which addresses a webhook may have: not those of the server's own network, unless that is allowed.

The address is checked after the name is resolved, and the connection goes to that same address. So a name that resolves
to another address a moment later (DNS rebinding) gains nothing. Redirects are not followed.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from siftline.errors import LimitError

_PORTS: Final = {"http": 80, "https": 443}
_MOST_CHARACTERS: Final = 2000
# IPv6 addresses that a NAT64 gateway translates to IPv4.
_TRANSLATED: Final = ipaddress.ip_network("64:ff9b::/96")
# The public part of IPv6; addresses outside of it are local, or older notations of IPv4 addresses.
_UNICAST: Final = ipaddress.ip_network("2000::/3")


class Target(NamedTuple):
    """The parts of a URL."""

    is_secure: bool
    host: str
    port: int
    resource: str

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS["https" if self.is_secure else "http"] else f"{host}:{self.port}"


def check_url(url: str, *, allow_private: bool) -> Target:
    """Return the parts of a webhook's URL; refuse what is wrong without resolving the name.

    >>> check_url("https://example.com/hooks?x=1", allow_private=False)
    Target(is_secure=True, host='example.com', port=443, resource='/hooks?x=1')
    """
    target = _target(url)
    try:
        address = ipaddress.ip_address(target.host)
    except ValueError:
        if not allow_private and (target.host == "localhost" or target.host.endswith(".localhost")):
            raise LimitError("a webhook may not go to this machine") from None
        return target
    if not allow_private and not is_public(str(address)):
        raise LimitError(f"a webhook may not go to the private address {address}")
    return target


def _target(url: Any) -> Target:
    if not isinstance(url, str) or len(url) > _MOST_CHARACTERS or not url.isascii() or not url.isprintable():
        raise LimitError(f"the URL of a webhook is at most {_MOST_CHARACTERS:,} printable ASCII characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise LimitError("the URL of a webhook cannot be read") from None
    if parts.scheme not in _PORTS or not parts.hostname or " " in url:
        raise LimitError("the URL of a webhook must look like https://host/path")
    if parts.username is not None or parts.password is not None:
        raise LimitError("the URL of a webhook must not have a user name or password")
    resource = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme == "https", parts.hostname.rstrip("."), port or _PORTS[parts.scheme], resource)


def is_public(text: str) -> bool:
    """Return whether an address belongs to the public internet.

    >>> is_public("93.184.216.34"), is_public("10.0.0.1"), is_public("::ffff:127.0.0.1"), is_public("169.254.169.254")
    (True, False, False, False)
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _TRANSLATED:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is None and address not in _UNICAST:
            return False
        address = inner or address
    return address.is_global and not address.is_multicast


def chosen_address(addresses: list[str], *, allow_private: bool) -> str:
    """Return one of the addresses of a host; raise if a webhook may not have one of them."""
    if not allow_private and not all(map(is_public, addresses)):
        raise LimitError("the name resolves to a private address, which a webhook may not have")
    return addresses[0]
