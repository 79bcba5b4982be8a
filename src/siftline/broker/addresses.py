"""Where webhooks may go: not into the network that the server stands in, unless that is allowed.

The address is looked at after the name was resolved, and the connection goes to that very address: a name that changes
its mind in between gains nothing. Redirects are not followed.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from siftline.errors import LimitError

_PORTS: Final = {"http": 80, "https": 443}
_MOST_CHARACTERS: Final = 2000
# Addresses of IPv6 that lead to one of IPv4: translated (NAT64), and 6to4.
_TRANSLATED: Final = ipaddress.ip_network("64:ff9b::/96")
# All of the IPv6 internet; beside it are old and local ways to write IPv4 addresses.
_UNICAST: Final = ipaddress.ip_network("2000::/3")


class Target(NamedTuple):
    """A URL, taken apart."""

    is_secure: bool
    host: str
    port: int
    resource: str

    @property
    def authority(self) -> str:
        """What the Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS["https" if self.is_secure else "http"] else f"{host}:{self.port}"


def check_url(url: str, *, allow_private: bool) -> Target:
    """Take a webhook's URL apart; refuse what can be seen to be wrong without resolving the name.

    >>> check_url("https://example.com/hooks?x=1", allow_private=False)
    Target(is_secure=True, host='example.com', port=443, resource='/hooks?x=1')
    """
    target = _target(url)
    try:
        address = ipaddress.ip_address(target.host)
    except ValueError:
        if not allow_private and (target.host == "localhost" or target.host.endswith(".localhost")):
            raise LimitError("a webhook may not go to this machine itself") from None
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
    """Return whether an address is one of the public internet.

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
    """Return one of the addresses of a host; raise if any of them is one that webhooks may not go to."""
    if not allow_private and not all(map(is_public, addresses)):
        raise LimitError("the name leads to a private address, where no webhook may go")
    return addresses[0]
