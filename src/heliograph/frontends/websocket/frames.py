"""WebSocket's frames, as a server reads and writes them (RFC 6455, section 5).

What the frames carry is a stream to the protocol inside, so messages are not put together; but each frame is read
whole.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from heliograph.model.errors import ProtocolFault

CONTINUATION: Final = 0
TEXT: Final = 1
BINARY: Final = 2
CLOSE: Final = 8
PING: Final = 9
PONG: Final = 10
_CONTROL: Final = (CLOSE, PING, PONG)
_KNOWN: Final = (CONTINUATION, TEXT, BINARY, *_CONTROL)
_MAX_CONTROL: Final = 125
_U16 = struct.Struct(">H")
_U64 = struct.Struct(">Q")

NORMAL: Final = 1000
PROTOCOL_ERROR: Final = 1002
TOO_BIG: Final = 1009

Frame = tuple[int, bytes]
"""opcode, payload"""


def _malformed(sentence: str) -> ProtocolFault:
    return ProtocolFault(sentence, code="frame-malformed")


class FrameReader:
    """Cuts a stream of bytes into frames and takes their masks off. Holds at most one unfinished frame."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._pieces: list[bytes] = []
        self._size = 0
        self._needed = 2
        self._is_fragmented = False

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete now; take them all. Raises ProtocolFault."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size < self._needed:
            return
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        position = 0
        while True:
            found = self._frame(data, position)
            if found is None:
                break
            frame, position = found
            yield frame
        rest = data[position:] if position else data
        self._pieces, self._size = [rest] if rest else [], len(rest)

    def _frame(self, data: bytes, position: int) -> tuple[Frame, int] | None:
        """The frame that begins at `position`, and where it ends; None if it is not all there."""
        available = len(data) - position
        self._needed = 2
        if available < 2:
            return None
        first, second = data[position], data[position + 1]
        opcode = self._opcode(first, second)
        length, start = second & 0x7F, position + 2
        wide = 2 if length == 126 else 8 if length == 127 else 0
        if wide:
            if available < 2 + wide:
                self._needed = 2 + wide
                return None
            length = (_U16 if wide == 2 else _U64).unpack_from(data, start)[0]
            start += wide
        if length > self.limit:
            raise ProtocolFault(
                f"a frame of {length} bytes is beyond the limit of {self.limit}", code="frame-too-long"
            )
        stop = start + 4 + length
        if stop > len(data):
            self._needed = stop - position
            return None
        self._follow(first, opcode)
        return (opcode, unmask(data[start + 4 : stop], data[start : start + 4])), stop

    def _opcode(self, first: int, second: int) -> int:
        opcode = first & 0x0F
        if first & 0x70 or opcode not in _KNOWN:
            raise _malformed("there are no such frames")
        if not second & 0x80:
            raise _malformed("a client masks its frames")
        if opcode in _CONTROL and (not first & 0x80 or second & 0x7F > _MAX_CONTROL):
            raise _malformed("a control frame is short and whole")
        if (opcode == CONTINUATION) != self._is_fragmented and opcode not in _CONTROL:
            raise _malformed("a message goes on that has not begun, or begins before the last is over")
        return opcode

    def _follow(self, first: int, opcode: int) -> None:
        if opcode not in _CONTROL:
            self._is_fragmented = not first & 0x80


def unmask(payload: bytes, mask: bytes) -> bytes:
    """Bytes one by one would be slow; a number of any size is not."""
    size = len(payload)
    if not size or mask == b"\0\0\0\0":
        return payload
    repeated = mask * (size // 4 + 1)
    mixed = int.from_bytes(payload, "little") ^ int.from_bytes(repeated[:size], "little")
    return mixed.to_bytes(size, "little")


def frame(opcode: int, payload: bytes | memoryview) -> bytes:
    """A whole message. A server does not mask."""
    size = len(payload)
    if size < 126:
        head = bytes((0x80 | opcode, size))
    elif size <= 0xFFFF:
        head = bytes((0x80 | opcode, 126)) + _U16.pack(size)
    else:
        head = bytes((0x80 | opcode, 127)) + _U64.pack(size)
    return head + payload


def close(code: int) -> bytes:
    return frame(CLOSE, _U16.pack(code))
