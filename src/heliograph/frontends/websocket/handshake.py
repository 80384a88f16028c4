"""How an HTTP request becomes a WebSocket (RFC 6455, section 4), and how one is told that it does not.

From where a page may come that connects is decided in `security/hosts.py`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Sequence
from hashlib import sha1
from typing import Final

import msgspec

from heliograph.frontends.http.requests import BadRequest, parse_head, tokens_of
from heliograph.model.errors import ProtocolFault
from heliograph.security.hosts import may_connect

_SALT: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
STOMP: Final = ("v12.stomp", "v11.stomp", "v10.stomp", "stomp")
MQTT: Final = ("mqtt", "mqttv3.1")
SPOKEN: Final = (*STOMP, *MQTT)
_PHRASES: Final = {400: "Bad Request", 403: "Forbidden", 426: "Upgrade Required"}


class Upgrade(msgspec.Struct):
    """What a client asked for, and the answer. `protocol` is empty where it named none."""

    protocol: str
    answer: bytes


class NotUpgraded(ProtocolFault):
    """Something else was asked for, or not as it should be."""

    default_code = "not-websocket"

    def __init__(self, sentence: str, status: int, *, code: str | None = None) -> None:
        super().__init__(sentence, code=code)
        self.status = status

    @property
    def answer(self) -> bytes:
        body = f"{self.sentence}\n".encode()
        lines = [
            f"HTTP/1.1 {self.status} {_PHRASES[self.status]}",
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        if self.status == 426:
            lines += ["Upgrade: websocket", "Sec-WebSocket-Version: 13"]
        return "\r\n".join([*lines, "", ""]).encode() + body


def upgrade(request: bytes, origins: Sequence[str] = (), names: Sequence[str] = ()) -> Upgrade:
    """`request` ends with its empty line; `names` are those of this server. Raises NotUpgraded."""
    headers = _headers(request)
    if headers.get("upgrade", "").lower() != "websocket" or "upgrade" not in tokens_of(
        headers.get("connection", "")
    ):
        raise NotUpgraded("a WebSocket is asked for with Upgrade: websocket and Connection: Upgrade", 426)
    if headers.get("sec-websocket-version") != "13":
        raise NotUpgraded("version 13 of WebSocket is spoken here", 426, code="version-unknown")
    _check_origin(headers, origins, names)
    key = headers.get("sec-websocket-key", "")
    if not _is_key(key):
        raise NotUpgraded("Sec-WebSocket-Key is 16 bytes in base64", 400)
    offered = [name.strip() for name in headers.get("sec-websocket-protocol", "").split(",") if name.strip()]
    chosen = next((name for name in offered if name in SPOKEN), "")
    if offered and not chosen:
        raise NotUpgraded(f"the protocols {', '.join(SPOKEN)} are spoken here", 400, code="protocol-unknown")
    accept = b64encode(sha1(key.encode() + _SALT, usedforsecurity=False).digest()).decode()
    lines = [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {accept}",
    ]
    if chosen:
        lines.append(f"Sec-WebSocket-Protocol: {chosen}")
    return Upgrade(chosen, "\r\n".join([*lines, "", ""]).encode())


def _headers(request: bytes) -> dict[str, str]:
    try:
        head = parse_head(request)
    except BadRequest as fault:
        raise NotUpgraded(fault.sentence, 400) from None
    if head.method != "GET" or head.version != "HTTP/1.1":
        raise NotUpgraded("a WebSocket is asked for with GET and HTTP/1.1", 400)
    return head.headers


def _check_origin(headers: dict[str, str], origins: Sequence[str], names: Sequence[str]) -> None:
    origin = headers.get("origin")
    if origin is None:
        return  # no browser
    if not may_connect(origin, headers.get("host", ""), origins=origins, names=names):
        raise NotUpgraded(
            "pages from there may not connect: name them in server.origins if they may, or this server's name in"
            " server.advertise",
            403,
            code="origin-refused",
        )


def _is_key(key: str) -> bool:
    try:
        return len(b64decode(key, validate=True)) == 16
    except (NotBase64, ValueError):
        return False
