"""Requests of HTTP/1.1 as they come in (RFC 9112), for the API, the console and the handshake of WebSocket.

Strict where two readers could disagree: a header that is folded, named twice where only one can be meant, or without
a name is refused, and so is a body whose length is not said by `Content-Length`.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from heliograph.model.errors import ProtocolFault
from heliograph.model.limits import HTTP_UNPROVED_BYTES, MAX_HTTP_BODY_BYTES, MAX_HTTP_HEAD_BYTES

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
END: Final = b"\r\n\r\n"
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET: Final = re.compile(r"[!-~]+")
_SINGLE: Final = ("host", "content-length", "transfer-encoding", "authorization", "cookie", "origin")


class BadRequest(ProtocolFault):
    """A request that is not understood; nothing behind it on its connection would be either."""

    default_code = "request-malformed"

    def __init__(self, sentence: str, status: int = 400, *, code: str | None = None) -> None:
        super().__init__(sentence, code=code)
        self.status = status


class Head(msgspec.Struct):
    """A request without its body. Names of headers are lower case."""

    method: str
    target: str
    version: str
    headers: dict[str, str]

    @property
    def keeps_alive(self) -> bool:
        tokens = tokens_of(self.headers.get("connection", ""))
        return self.version == "HTTP/1.1" and "close" not in tokens

    @property
    def wants_websocket(self) -> bool:
        return "websocket" in tokens_of(self.headers.get("upgrade", ""))


class Request(msgspec.Struct):
    """A whole request."""

    head: Head
    body: bytes = b""

    def header(self, name: str) -> str:
        return self.head.headers.get(name, "")


def tokens_of(value: str) -> list[str]:
    return [token.strip().lower() for token in value.split(",")]


def parse_head(raw: bytes) -> Head:
    """`raw` may or may not end with the empty line. Raises BadRequest."""
    try:
        lines = raw.decode("ascii").rstrip("\r\n").split("\r\n")
    except UnicodeDecodeError:
        raise BadRequest("a request is ASCII") from None
    parts = lines[0].split(" ")
    if len(parts) != 3 or not _TOKEN.fullmatch(parts[0]) or not _TARGET.fullmatch(parts[1]):
        raise BadRequest("a request begins with METHOD TARGET HTTP/1.1")
    method, target, version = parts
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise BadRequest("HTTP/1.1 is spoken here", 505, code="version-unknown")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name) or not _is_printable(value):
            raise BadRequest("a header is NAME: VALUE")
        key, value = name.lower(), value.strip(" \t")
        if key in headers and key in _SINGLE:
            raise BadRequest(f"the header {key} is said once")
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return Head(method, target, version, headers)


def _is_printable(value: str) -> bool:
    return all(letter == "\t" or " " <= letter <= "~" for letter in value)


class RequestReader:
    """Cuts what arrives into requests. It holds at most one head and one body of the largest sizes, and what one read
    brought behind them."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: Head | None = None
        self._length = 0
        self._searched = 0

    @property
    def held(self) -> int:
        return len(self._buffer)

    @property
    def raw(self) -> bytes:
        """All that was not taken yet."""
        return bytes(self._buffer)

    @property
    def is_in_the_middle(self) -> bool:
        return self._head is not None or bool(self._buffer)

    @property
    def announced(self) -> Head | None:
        """The head of a request whose body is still to come, if that is a large one."""
        return self._head if self._length > HTTP_UNPROVED_BYTES else None

    @property
    def expects_word(self) -> bool:
        """Whether the client waits to be told that its body is welcome; asked once."""
        head = self._head
        if head is None or head.headers.get("expect", "").lower() != "100-continue":
            return False
        del head.headers["expect"]
        return len(self._buffer) < self._length

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def peek(self) -> Head | None:
        """The head of the next request, as soon as it is here; the bytes stay. Raises BadRequest."""
        if self._head is not None:
            return None  # what is here is its body
        end = self._end()
        return parse_head(bytes(self._buffer[:end])) if end >= 0 else None

    def next(self) -> Request | None:
        """Raises BadRequest."""
        if self._head is None and not self._begin():
            return None
        if len(self._buffer) < self._length:
            return None
        assert self._head is not None
        body = bytes(self._buffer[: self._length])
        del self._buffer[: self._length]
        request, self._head = Request(self._head, body), None
        return request

    def _end(self) -> int:
        while self._buffer[:2] == b"\r\n":  # RFC 9112, section 2.2
            del self._buffer[:2]
        end = self._buffer.find(END, max(0, self._searched - len(END)))
        if end > MAX_HTTP_HEAD_BYTES or (end < 0 and len(self._buffer) > MAX_HTTP_HEAD_BYTES):
            raise BadRequest(
                f"the headers take more than {MAX_HTTP_HEAD_BYTES} bytes", 431, code="request-too-large"
            )
        self._searched = len(self._buffer) if end < 0 else 0
        return end

    def _begin(self) -> bool:
        end = self._end()
        if end < 0:
            return False
        head = parse_head(bytes(self._buffer[:end]))
        del self._buffer[: end + len(END)]
        self._length = _length_of(head)
        self._head = head
        return True


def _length_of(head: Head) -> int:
    if "transfer-encoding" in head.headers:
        raise BadRequest("the length of a body is said by Content-Length here", 411)
    text = head.headers.get("content-length", "0")
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise BadRequest("Content-Length is a number of bytes")
    if int(text) > MAX_HTTP_BODY_BYTES:
        raise BadRequest(
            f"a body has at most {MAX_HTTP_BODY_BYTES} bytes here", 413, code="request-too-large"
        )
    return int(text)
