"""STOMP's frames: bytes to frames, however they are cut, and frames to bytes.

    COMMAND EOL (header:value EOL)* EOL body NUL EOL*

A body ends where its content-length says, or at the first NUL. Escapes are those of the version that was
agreed on; frames that agree on it have none. Of a header that comes twice the first counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from heliograph.model.errors import ProtocolFault
from heliograph.model.limits import MAX_STOMP_HEAD_BYTES, MAX_STOMP_HEADERS

V1_0: Final = "1.0"
V1_1: Final = "1.1"
V1_2: Final = "1.2"
VERSIONS: Final = (V1_2, V1_1, V1_0)

_CONNECTING: Final = ("CONNECT", "STOMP")
COMMANDS: Final = (
    *_CONNECTING,
    "SEND",
    "SUBSCRIBE",
    "UNSUBSCRIBE",
    "ACK",
    "NACK",
    "BEGIN",
    "COMMIT",
    "ABORT",
    "DISCONNECT",
)
_EMPTY: Final = (b"\n"[0], b"\r"[0])
_UNESCAPED: Final = {
    V1_1: {"n": "\n", "c": ":", "\\": "\\"},
    V1_2: {"n": "\n", "c": ":", "\\": "\\", "r": "\r"},
}
# Version 1.0 cannot say a line end; a blank does no harm.
_ESCAPES: Final = {
    V1_0: str.maketrans({"\n": " ", "\r": " ", "\0": " "}),
    V1_1: str.maketrans({"\n": "\\n", ":": "\\c", "\\": "\\\\", "\r": " ", "\0": " "}),
    V1_2: str.maketrans({"\n": "\\n", ":": "\\c", "\\": "\\\\", "\r": "\\r", "\0": " "}),
}


class Frame(NamedTuple):
    """What a client said."""

    command: str
    headers: dict[str, str]
    body: bytes


def _malformed(sentence: str) -> ProtocolFault:
    return ProtocolFault(sentence, code="frame-malformed")


class FrameReader:
    """Cuts a stream of bytes into frames. Holds at most one unfinished frame, made of what arrived."""

    def __init__(self, limit: int, head_limit: int = MAX_STOMP_HEAD_BYTES) -> None:
        self.limit = limit  # bytes of a body
        self.head_limit = head_limit
        self.version = V1_0
        self._pieces: list[bytes] = []
        self._size = 0
        self._needed = 0  # bytes without which nothing can be complete
        self._scanned = 0  # bytes in which the end was not found
        self._head: tuple[str, dict[str, str], int, int] | None = (
            None  # command, headers, its end, body's length
        )

    @property
    def buffered(self) -> int:
        return self._size

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete now; take them all. Raises ProtocolFault."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size < self._needed:
            return
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        position = 0
        while True:
            if self._head is None:
                position = _skip_empty(data, position)
            end = self._complete(data, position)
            if end is None:
                break
            frame, position = end
            yield frame
        rest = data[position:] if position else data
        self._pieces, self._size = [rest] if rest else [], len(rest)

    def _complete(self, data: bytes, position: int) -> tuple[Frame, int] | None:
        """The frame that begins at `position`, and where it ends; None if it is not all there."""
        if self._head is None and not self._read_head(data, position):
            return None
        assert self._head is not None
        command, headers, head_bytes, length = self._head
        start = position + head_bytes
        if length >= 0:
            stop = start + length
            if stop >= len(data):
                self._needed = stop + 1 - position
                return None
            if data[stop]:
                raise _malformed(f"no NUL after the {length} bytes of the body")
        else:
            stop = data.find(b"\0", max(start, position + self._scanned))
            if stop < 0 and len(data) - start <= self.limit:
                self._scanned = len(data) - position
                return None
            if stop < 0 or stop - start > self.limit:
                raise self._too_long()
        self._head, self._needed, self._scanned = None, 0, 0
        return Frame(command, headers, data[start:stop]), stop + 1

    def _read_head(self, data: bytes, position: int) -> bool:
        """Whether all of it is there."""
        scan = max(position, position + self._scanned - 2)
        end, after = _blank_line(data, scan)
        if end < 0:
            if len(data) - position > self.head_limit:
                raise self._head_too_long()
            self._scanned = len(data) - position
            return False
        if end - position > self.head_limit:
            raise self._head_too_long()
        command, headers = self._parse_head(data[position:end])
        length = self._length(headers)
        self._head = command, headers, after - position, length
        self._scanned = 0
        return True

    def _length(self, headers: dict[str, str]) -> int:
        text = headers.get("content-length")
        if text is None:
            return -1
        text = text.strip()
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise _malformed("content-length is not a number of bytes")
        if int(text) > self.limit:
            raise self._too_long()
        return int(text)

    def _too_long(self) -> ProtocolFault:
        return ProtocolFault(f"a body has at most {self.limit} bytes here", code="frame-too-long")

    def _head_too_long(self) -> ProtocolFault:
        return ProtocolFault(f"headers have at most {self.head_limit} bytes here", code="frame-too-long")

    def _parse_head(self, raw: bytes) -> tuple[str, dict[str, str]]:
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            raise _malformed("headers are UTF-8, and these are not") from None
        lines = text.split("\n")
        command = lines[0].removesuffix("\r")
        if command not in COMMANDS:
            raise ProtocolFault(f"frames {command[:40]!r} are not known", code="frame-unknown")
        if len(lines) > MAX_STOMP_HEADERS + 1:
            raise _malformed(f"a frame has at most {MAX_STOMP_HEADERS} headers")
        escapes = None if command in _CONNECTING else _UNESCAPED.get(self.version)
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.removesuffix("\r").partition(":")
            if not colon or not name:
                raise _malformed(f"{line[:40]!r} is no header: write NAME:VALUE")
            if escapes is not None:
                if "\\" in line:
                    name, value = _unescape(name, escapes), _unescape(value, escapes)
            elif self.version == V1_0:
                name, value = name.strip(), value.strip()
            headers.setdefault(name, value)
        return command, headers


def _skip_empty(data: bytes, position: int) -> int:
    while position < len(data) and data[position] in _EMPTY:
        position += 1
    return position


def _blank_line(data: bytes, start: int) -> tuple[int, int]:
    """Where the line before the first empty one ends, and where the body begins; -1 if there is none."""
    plain = data.find(b"\n\n", start)
    returned = data.find(b"\n\r\n", start, plain if plain >= 0 else len(data))
    if returned >= 0:
        return returned, returned + 3
    return plain, plain + 2


def _unescape(text: str, escapes: dict[str, str]) -> str:
    first, *rest = text.split("\\")
    pieces = [first]
    position = 0
    while position < len(rest):
        piece = rest[position]
        if not piece:  # an escaped backslash: the next piece is what follows it
            if position + 1 >= len(rest):
                raise _malformed("a header ends with a backslash")
            pieces += ("\\", rest[position + 1])
            position += 2
            continue
        letter = escapes.get(piece[0])
        if letter is None:
            raise _malformed(f"a header has the escape \\{piece[0]}, which means nothing")
        pieces += (letter, piece[1:])
        position += 1
    return "".join(pieces)


def escape(text: str, version: str) -> str:
    return text.translate(_ESCAPES[version])


def encode(command: str, headers: dict[str, str], body: bytes = b"", *, version: str = V1_2) -> bytes:
    """A frame for a client."""
    lines = [command]
    for name, value in headers.items():
        lines.append(f"{escape(name, version)}:{escape(value, version)}")
    return "\n".join(lines).encode() + b"\n\n" + body + b"\0"


def encode_connected(headers: dict[str, str]) -> bytes:
    """The answer to CONNECT has no escapes."""
    lines = [f"{name}:{value}" for name, value in headers.items()]
    return "\n".join(["CONNECTED", *lines]).encode() + b"\n\n\0"
