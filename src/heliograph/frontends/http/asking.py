"""Who asks, and whether a browser was made to ask by a page of somebody else (docs/decisions/0026)."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Sequence
from typing import Final

from heliograph.frontends.http.front_desk import COOKIE, FrontDesk
from heliograph.frontends.http.requests import METHODS, BadRequest, Request
from heliograph.frontends.native.frames import Hello
from heliograph.model.errors import NotAuthenticated

NAME_OF_COOKIE: Final = "heliograph"
OUR_HEADER: Final = "x-heliograph"
_CHANGES_NOTHING: Final = ("GET", "HEAD", "OPTIONS")


def check_asked_here(request: Request, desk: FrontDesk, origins: Sequence[str], *, is_secure: bool) -> None:
    """Raises BadRequest where a page of somebody else may be behind it."""
    head = request.head
    changes = head.method not in _CHANGES_NOTHING
    if head.method not in METHODS:
        raise BadRequest(f"there is no method {head.method[:20]}", 405, code="method-unknown")
    host = head.headers.get("host", "")
    if not host and head.version == "HTTP/1.1":
        raise BadRequest("a request names its Host")
    desk.check_host(host)
    origin = head.headers.get("origin")
    if origin is not None and origin not in origins and not _is_of(origin, host, is_secure=is_secure):
        raise BadRequest("pages from there may not ask this server", 403, code="origin-refused")
    if changes and head.headers.get("sec-fetch-site") == "cross-site":
        raise BadRequest("pages from elsewhere may not ask this server", 403, code="origin-refused")
    if changes and OUR_HEADER not in head.headers:
        raise BadRequest(
            "a request that changes something carries the header X-Heliograph, whatever it says: a form"
            " of another page cannot",
            403,
            code="header-missing",
        )


def _is_of(origin: str, host: str, *, is_secure: bool) -> bool:
    """Without TLS here there may be some before us, so that a page from https:// may be ours."""
    scheme, _, authority = origin.partition("://")
    return authority.lower() == host.lower() and (scheme == "https" or not is_secure)


def hello_of(request: Request, desk: FrontDesk, now: float) -> Hello:
    """How whoever asks says who they are. Raises NotAuthenticated where nothing is said and something has to be."""
    authorization = request.header("authorization")
    if authorization:
        user, password = _basic(authorization)
        return Hello(client="http", mechanism="plain", user=user, password=password)
    if desk.is_open:
        return Hello(client="http")
    token = token_of(request)
    if not token:
        raise NotAuthenticated("log in, or send a user and a password (Basic)")
    desk.who(token, now)
    return Hello(client="http", mechanism=COOKIE, password=token)


def _basic(authorization: str) -> tuple[str, str]:
    """Raises BadRequest."""
    scheme, _, value = authorization.partition(" ")
    try:
        user, colon, password = b64decode(value.strip(), validate=True).decode().partition(":")
    except (NotBase64, ValueError):
        colon = ""
    if scheme.lower() != "basic" or not colon:
        raise BadRequest("Authorization is Basic and USER:PASSWORD in base64", 401, code="not-authenticated")
    return user, password


def token_of(request: Request) -> str:
    """Of a log-in; empty: there is none."""
    for each in request.header("cookie").split(";"):
        name, _, value = each.strip().partition("=")
        if name == NAME_OF_COOKIE:
            return value
    return ""
