"""Names and addresses of machines: which of them are this machine, and by which a browser may have found us.

A web page may come from anywhere and still connect to a server on the machine of whoever looks at it. A browser says
where its page is from (`Origin`); but whoever owns a name can let it lead to any address, to 127.0.0.1 too,
and then page and server have the same name (DNS rebinding). So a name counts as ours only if we were told so.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence


def is_loopback(host: str) -> bool:
    """Whether only this machine itself is meant. A name may stand for any address."""
    if host == "localhost":
        return True
    address = address_of(host)
    return address is not None and address.is_loopback


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """None for a name."""
    try:
        return ipaddress.ip_address(host.partition("%")[0].strip("[]"))
    except ValueError:
        return None


def host_of(authority: str) -> str:
    """Without the port, in small letters."""
    host, _, port = authority.rpartition(":")
    return (host if host and (port.isdecimal() or not port) else authority).lower().rstrip(".")


def is_own_name(authority: str, names: Sequence[str]) -> bool:
    """Whether a request may have been meant for this server: `names` are what it is called. Nobody but its
    owner makes an address lead elsewhere, so any address will do."""
    host = host_of(authority)
    return host == "localhost" or address_of(host) is not None or host in names


def may_connect(origin: str, authority: str, *, origins: Sequence[str], names: Sequence[str]) -> bool:
    """Whether a page from `origin` may connect here, where `authority` is what its browser asked for."""
    if origin in origins:
        return True
    return host_of(origin.partition("://")[2]) == host_of(authority) and is_own_name(authority, names)
