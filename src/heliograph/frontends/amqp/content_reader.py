"""The sections of a message too large to be in memory, told apart as they come.

header · annotations · properties · application properties     `head`, in what came first
data, data, …   or   amqp-value, text or binary                handed on, piece by piece
footer                                                         what `finish` returns
"""

from __future__ import annotations

from typing import Final

from heliograph.frontends.amqp.kept import BODY
from heliograph.frontends.amqp.messages import section_at
from heliograph.frontends.amqp.values import malformed, read
from heliograph.model.errors import ClientFault
from heliograph.model.limits import MAX_HEAD_BYTES, MAX_MESSAGE_BYTES
from heliograph.model.message import Property

_DATA: Final = 0x75
_VALUE: Final = 0x77
_FOOTER: Final = 0x78
_BODIES: Final = (_DATA, 0x76, _VALUE)
# The longest way to begin a section of a body: a descriptor in words, and the size of what follows.
_OPENING_BYTES: Final = 64
# How many bytes say the size, and what it is the size of.
_SIZES: Final = {0xA0: (1, "v"), 0xB0: (4, "v"), 0xA1: (1, "s"), 0xB1: (4, "s")}


class ContentReader:
    """Of one message."""

    def __init__(self, beginning: bytes) -> None:
        """All before the body is in the beginning. Raises ClientFault where the body is of another kind."""
        position = 0
        while True:
            if position >= len(beginning):
                raise malformed("a message has a body")
            code, value = _section(beginning, position)
            if code in _BODIES:
                break
            _, position = read(beginning, value)
        self.head = beginning[:position]
        self.kept: dict[str, Property] = {}
        self._buffer = bytearray(beginning[position:])
        self._left = 0  # of the section that is being read
        self._code = 0
        self._is_footer = False

    def feed(self, data: bytes) -> bytes:
        """What of it is content. Raises ClientFault."""
        if self._left >= len(data) and not self._buffer:
            self._left -= len(data)
            return data
        self._buffer += data
        return self._content(is_all=False)

    def finish(self) -> tuple[bytes, bytes]:
        """There is no more: the rest of the content, and the footer. Raises ClientFault."""
        rest = self._content(is_all=True)
        if self._left:
            raise malformed("a message ends in the middle of its body")
        return rest, bytes(self._buffer)

    def _content(self, *, is_all: bool) -> bytes:
        pieces: list[bytes] = []
        buffer = self._buffer
        while buffer and not self._is_footer:
            if self._left:
                taken = min(self._left, len(buffer))
                pieces.append(bytes(buffer[:taken]))
                del buffer[:taken]
                self._left -= taken
            elif is_all or len(buffer) >= _OPENING_BYTES:
                self._open()
            else:
                break
        if self._is_footer and len(buffer) > MAX_HEAD_BYTES:
            raise malformed("a footer is small")
        return b"".join(pieces)

    def _open(self) -> None:
        opening = bytes(self._buffer[:_OPENING_BYTES])
        code, at = _section(opening, 0)
        if code == _FOOTER and self._code:
            self._is_footer = True
            return
        size, letter = _SIZES.get(opening[at] if at < len(opening) else 0, (0, ""))
        is_first = not self._code
        if not is_first and (code != _DATA or self._code != _DATA):
            raise malformed("a body is data, or one value")
        if code not in (_DATA, _VALUE) or not size or (code == _DATA and letter != "v"):
            sentence = (
                f"of more than {MAX_MESSAGE_BYTES} bytes a message is data, or a value that is text or binary"
            )
            raise ClientFault(sentence, code="message-too-large")
        if at + 1 + size > len(opening):
            raise malformed("it ends too early")
        if code == _VALUE:
            self.kept = {BODY: f"V{letter}"}
        self._code = code
        self._left = int.from_bytes(opening[at + 1 : at + 1 + size], "big")
        del self._buffer[: at + 1 + size]


def _section(data: bytes, position: int) -> tuple[int, int]:
    try:
        return section_at(data, position)
    except (TypeError, ValueError):
        raise malformed("a section is described by a number or a symbol") from None
