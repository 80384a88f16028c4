"""The address of a server as an application writes it: `helio://user:password@host:port,host:port`, and with TLS
`helios://…`, perhaps with files behind it: `helios://host:port?ca=FILE&cert=FILE&key=FILE&crl=FILE`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

from heliograph.client.tls import CHOICES
from heliograph.frontends.native.frames import DEFAULT_PORT
from heliograph.model.errors import ClientFault

SCHEME = "helio"
SECURE_SCHEME = "helios"


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Whom to connect to, tried in turn, and as whom."""

    hosts: tuple[tuple[str, int], ...]
    user: str | None
    password: str | None
    is_secure: bool = False
    files: dict[str, str] = field(default_factory=dict)  # for TLS, by what they are for


def parse_url(url: str) -> Servers:
    """Raises ClientFault `invalid-url`, saying what is wrong; a password is never shown."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in (SCHEME, SECURE_SCHEME):
        raise _refuse("it begins with helio:// or helios://")
    rest, question, query = rest.partition("?")
    files = _parse_files(query) if question else {}
    if files and scheme != SECURE_SCHEME:
        raise _refuse("files for TLS belong to helios://")
    credentials, at, places = rest.rpartition("@")
    places = places.rstrip("/")
    if any(character in places for character in "/?#"):
        raise _refuse("nothing follows the hosts but ?ca=FILE&cert=FILE&key=FILE&crl=FILE")
    user, colon, password = credentials.partition(":")
    if at and not user:
        raise _refuse("the user before the @ has no name")
    return Servers(
        hosts=tuple(_parse_host(place) for place in places.split(",")),
        user=unquote(user) if at else None,
        password=unquote(password) if colon else None,
        is_secure=scheme == SECURE_SCHEME,
        files=files,
    )


def _parse_files(query: str) -> dict[str, str]:
    files = dict(parse_qsl(query, keep_blank_values=True))
    for name, path in files.items():
        if name not in CHOICES or not path:
            raise _refuse(f"behind the hosts stand {', '.join(f'{choice}=FILE' for choice in CHOICES)}")
    if not files:
        raise _refuse("nothing follows the question mark")
    return files


def parse_hosts(places: list[str]) -> list[tuple[str, int]]:
    """Addresses that a server told of; those that make no sense are passed over."""
    hosts = []
    for place in places:
        with suppress(ClientFault):
            hosts.append(_parse_host(place))
    return hosts


def _parse_host(place: str) -> tuple[str, int]:
    if place.startswith("["):  # an IPv6 address
        host, closed, port = place[1:].partition("]")
        if not closed or (port and not port.startswith(":")):
            raise _refuse(f"an IPv6 address is written [::1]:{DEFAULT_PORT}, not {place!r}")
        port = port[1:]
    else:
        host, _, port = place.partition(":")
    if not host:
        raise _refuse("a host has no name")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise _refuse(f"a port is a number from 1 to 65535, not {port!r}")
    return host, int(port) if port else DEFAULT_PORT


def _refuse(sentence: str) -> ClientFault:
    return ClientFault(
        f"an address is helio://user:password@host:{DEFAULT_PORT}, with commas between hosts; {sentence}",
        code="invalid-url",
    )
