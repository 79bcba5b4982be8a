"""Identifies a client for rate limits: an IPv4 address, or the IPv6 network that belongs to one client."""

from __future__ import annotations

import ipaddress

# A client with one IPv6 address usually has all addresses with the same 64 leading bits.
_OWN_BITS = 64


def client_of(host: str) -> str:
    """Return the name of the client behind an address.

    >>> client_of("192.0.2.7"), client_of("2001:db8::7"), client_of("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:db8::/64', '192.0.2.7')
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    if address.is_loopback:
        return str(address)
    return str(ipaddress.ip_network((address.packed, _OWN_BITS), strict=False))
