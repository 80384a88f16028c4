"""Reading and writing what MQTT's packets are made of."""

from __future__ import annotations

import struct

from heliograph.model.errors import ProtocolFault

_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")


def malformed(sentence: str) -> ProtocolFault:
    return ProtocolFault(sentence, code="frame-malformed")


def protocol_error(sentence: str) -> ProtocolFault:
    return ProtocolFault(sentence, code="protocol-fault")


class Cursor:
    """A place in a packet. Raises ProtocolFault where there is nothing more to read."""

    __slots__ = ("_data", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data = data
        self.position = position

    @property
    def is_at_end(self) -> bool:
        return self.position >= len(self._data)

    def take(self, count: int) -> bytes:
        start, self.position = self.position, self.position + count
        if self.position > len(self._data):
            raise malformed("a packet ends too early")
        return self._data[start : self.position]

    def u8(self) -> int:
        return self.take(1)[0]

    def u16(self) -> int:
        return int(_U16.unpack(self.take(2))[0])

    def u32(self) -> int:
        return int(_U32.unpack(self.take(4))[0])

    def varint(self) -> int:
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return value
        raise malformed("a number has at most four bytes")

    def binary(self) -> bytes:
        return self.take(self.u16())

    def text(self) -> str:
        try:
            text = self.binary().decode()
        except UnicodeDecodeError:
            raise malformed("a text is not UTF-8") from None
        if "\0" in text:
            raise malformed("a text has a NUL in it")
        return text

    def end(self) -> None:
        if not self.is_at_end:
            raise malformed("a packet goes on behind its end")


def pack_varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def pack_binary(raw: bytes) -> bytes:
    """What is too long to be said is cut."""
    raw = raw[:0xFFFF]
    return _U16.pack(len(raw)) + raw


def pack_text(text: str) -> bytes:
    """A NUL cannot be said, nor half of a surrogate pair; what is too long is cut between characters."""
    raw = text.replace("\0", " ").encode(errors="replace")
    if len(raw) > 0xFFFF:
        raw = raw[:0xFFFF].decode(errors="ignore").encode()
    return _U16.pack(len(raw)) + raw
