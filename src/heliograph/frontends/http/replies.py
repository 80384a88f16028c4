"""Replies of HTTP: what is said, in which words, and what a browser is told to beware of."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from heliograph.model.errors import HeliographError, NotAllowed, NotAuthenticated, Unavailable, from_code

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
EVENTS: Final = "text/event-stream; charset=utf-8"
_PHRASES: Final = {
    200: "OK",
    201: "Created",
    204: "No Content",
    302: "Found",
    304: "Not Modified",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    411: "Length Required",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    421: "Misdirected Request",
    426: "Upgrade Required",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
    507: "Insufficient Storage",
}
# Nothing comes from elsewhere and nothing is framed, whatever a name or a body that is shown may contain.
_CAREFUL: Final = (
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
)
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_NOT_NOW: Final = ("not-leading", "node-gone", "node-silent", "answer-late", "bus-full", "server-moved")
_IN_THE_WAY: Final = (
    "destination-full",
    "destination-in-use",
    "destination-not-empty",
    "destination-not-paused",
    "destination-paused",
    "destination-deleted",
    "subscription-in-use",
    "session-moved",
    "transaction-rolled-back",
)
_encode = msgspec.json.Encoder(order="deterministic").encode


class Reply(msgspec.Struct):
    """An answer to one request. A body that is no bytes is said in JSON."""

    status: int = 200
    body: Any = None
    content_type: str = JSON
    headers: list[tuple[str, str]] = []

    @property
    def content(self) -> bytes:
        if self.body is None:
            return b""
        return self.body if isinstance(self.body, bytes) else encoded(self.body)


def encoded(body: Any) -> bytes:
    """As JSON. Bytes that are a part of it are said in base64, and a number that JSON has not as null."""
    return _encode(body)


def refusal(error: HeliographError, status: int = 0) -> Reply:
    """An error as every reply says it."""
    body = {"error": {"code": error.code, "sentence": error.sentence}}
    reply = Reply(status or status_of(error), body, headers=[])
    if reply.status == 503:
        reply.headers.append(("Retry-After", "1"))
    return reply


def status_of(error: HeliographError) -> int:
    status = getattr(error, "status", 0)
    if status:
        return int(status)
    code, kind = error.code, from_code(error.code, "")
    if isinstance(kind, NotAuthenticated):
        return 401
    if isinstance(kind, NotAllowed) or code == "name-reserved":
        return 403
    if code.startswith("too-many"):
        return 429
    if code in _IN_THE_WAY or code.endswith("-exists"):
        return 409
    if code in ("storage-full", "message-in-doubt"):  # of the other one, 503 would ask to send it twice
        return 507
    if code.endswith("-unknown") and code not in ("subject-unknown", "protocol-unknown", "version-unknown"):
        return 404
    return 503 if isinstance(kind, Unavailable) or code in _NOT_NOW else 400


def framed(reply: Reply, *, keeps_alive: bool, is_head: bool = False) -> bytes:
    """The bytes of a whole reply."""
    content = reply.content
    lines = [f"HTTP/1.1 {reply.status} {_PHRASES[reply.status]}"]
    if content or reply.status not in (204, 304):
        lines.append(f"Content-Type: {reply.content_type}")
        lines.append(f"Content-Length: {len(content)}")
    lines += [f"{name}: {value}" for name, value in (*reply.headers, *_CAREFUL)]
    if not any(name == "Cache-Control" for name, _ in reply.headers):
        lines.append("Cache-Control: no-store")
    lines.append(f"Content-Security-Policy: {POLICY}")
    if not keeps_alive:
        lines.append("Connection: close")
    head = "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")
    return head if is_head or reply.status in (204, 304) else head + content


def stream_head() -> bytes:
    """Of events that go on until the connection ends."""
    lines = ["HTTP/1.1 200 OK", f"Content-Type: {EVENTS}", "Cache-Control: no-store", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in _CAREFUL]
    return "\r\n".join([*lines, "", ""]).encode()


def event(name: str, body: Any) -> bytes:
    """One event of a stream."""
    return b"event: " + name.encode() + b"\ndata: " + encoded(body) + b"\n\n"
