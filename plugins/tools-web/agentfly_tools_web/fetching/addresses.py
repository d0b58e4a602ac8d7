"""Which addresses may be connected to."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
_RELAYS = ipaddress.IPv4Network("192.88.99.0/24")


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the public internet.

    Loopback, private, link-local, shared, multicast and reserved ones do not; nor do IPv6 addresses that stand for
    such an IPv4 address (mapped, translated, 6to4), nor anything that is no address.
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv4Address):
        return _is_public_v4(ip)
    if ip.ipv4_mapped is not None:
        return _is_public_v4(ip.ipv4_mapped)
    if ip in _TRANSLATED:
        return _is_public_v4(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
    if ip.sixtofour is not None and not _is_public_v4(ip.sixtofour):
        return False
    return ip in _GLOBAL_UNICAST and ip.is_global


def _is_public_v4(ip: ipaddress.IPv4Address) -> bool:
    return ip.is_global and not ip.is_multicast and not ip.is_reserved and ip not in _RELAYS


def allows(entries: Iterable[str], host: str, port: int) -> bool:
    """Whether a list of ``host`` and ``host:port`` entries names this host; IPv6 addresses with a port in brackets."""
    bare = host.lower().rstrip(".")
    names = {bare, f"{bare}:{port}", f"[{bare}]", f"[{bare}]:{port}"}
    return any(entry.lower() in names for entry in entries)
