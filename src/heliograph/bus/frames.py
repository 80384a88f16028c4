"""Frames: what a bus that leaves the process carries. Many commands share one; a large one is cut into pieces.

    piece    u16 "HF" · u16 version · u32 CRC-32C of all that follows · 16 bytes incarnation · u64 sequence ·
             24 bytes stamp · u8 kind · u8 form · u16 0 · u32 ring, then a part of the payload (little-endian)

The pieces of a frame follow one another in the sequence of their sender; `form` says which is the first and which the
last. `ring` is the number of the ring that the sender was on, and `form` says which piece was its first there:
members who meet on a ring can tell whether they heard everything that was said on it. How pieces are put together
again is in `assembling.py`.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec
from crc32c import crc32c

from heliograph.bus import wire
from heliograph.bus.commands import Command
from heliograph.bus.interface import NO_VIEW, Incarnation, Ring, Stamp
from heliograph.bus.wire import Bytes
from heliograph.model.errors import ProtocolFault, Unavailable
from heliograph.model.limits import BUS_FRAME_BYTES, MAX_BUS_PAYLOAD_BYTES

MAGIC: Final = 0x4648  # "HF"
VERSION: Final = 1
FIRST: Final = 1
LAST: Final = 2
FIRST_ON_RING: Final = 4
COMMANDS: Final = 1  # the only kind so far

_PREFIX = struct.Struct("<HHI")
_REST = struct.Struct("<16sQ24sBBxxI")
_HEADER = struct.Struct("<HHI16sQ24sBBxxI")
RING_MASK: Final = 0xFFFFFFFF
_CHECKED_FROM: Final = _PREFIX.size
HEADER_BYTES: Final = _HEADER.size
assert _PREFIX.size + _REST.size == HEADER_BYTES == 64

Piece = bytearray
"""One message for the bus."""


class PieceRead(msgspec.Struct, gc=False):
    """A piece as it came. `payload` is a view of the bus's own memory: good until the delivery returns."""

    form: int
    incarnation: Incarnation
    sequence: int
    stamp: Stamp
    kind: int
    ring: int
    payload: memoryview


def read_piece(raw: Bytes) -> PieceRead:
    """Raises ProtocolFault for whatever is not a piece of ours, whole and unharmed."""
    if len(raw) < HEADER_BYTES:
        raise ProtocolFault(f"{len(raw)} bytes are too few for a frame", code="bus-frame-foreign")
    magic, version, checksum, incarnation, sequence, stamp, kind, form, ring = _HEADER.unpack_from(raw)
    if magic != MAGIC:
        raise ProtocolFault("somebody else's bytes are on this channel", code="bus-frame-foreign")
    view = raw if isinstance(raw, memoryview) else memoryview(raw)
    if crc32c(view[_CHECKED_FROM:]) != checksum:
        raise ProtocolFault("a frame's checksum does not match its bytes", code="bus-frame-damaged")
    if version != VERSION or kind != COMMANDS:
        sentence = f"a frame of version {version} and kind {kind}; known are {VERSION} and {COMMANDS}"
        raise ProtocolFault(sentence, code="bus-version-unknown")
    return PieceRead(form, incarnation, sequence, stamp, kind, ring, view[HEADER_BYTES:])


class FrameWriter:
    """Packs the commands of one sender. What `add`, `restamp` and `seal` return is ready to be sent, in order."""

    def __init__(self, incarnation: Incarnation, *, piece_bytes: int = BUS_FRAME_BYTES) -> None:
        self._incarnation = incarnation
        self._room = piece_bytes - HEADER_BYTES
        self._stamp = NO_VIEW
        self._sequence = 0
        self._ring = 0
        self._is_first_on_ring = True
        self._parts: list[Bytes] = []
        self._size = 0

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def add(self, command: Command) -> list[Piece]:
        """The command is written down now: what becomes of the object later does not matter."""
        entry: list[Bytes] = []
        size = wire.append(command, entry)
        if size > MAX_BUS_PAYLOAD_BYTES:
            sentence = f"a {type(command).__name__} of {size} bytes; the bus takes {MAX_BUS_PAYLOAD_BYTES}"
            raise Unavailable(sentence, code="bus-command-too-large")
        ready = self.seal() if self._size + size > self._room else []
        self._parts += entry
        self._size += size
        return ready + self.seal() if self._size >= self._room else ready

    def restamp(self, stamp: Stamp) -> list[Piece]:
        """Commands from now on carry `stamp`."""
        ready = self.seal()
        self._stamp = stamp
        return ready

    def change_ring(self, ring: Ring) -> list[Piece]:
        """Another ring, and so perhaps other listeners."""
        ready = self.seal()
        self._ring = ring.sequence & RING_MASK
        self._is_first_on_ring = True
        return ready

    def seal(self) -> list[Piece]:
        """End the frame that is being filled."""
        parts, size = self._parts, self._size
        if not parts:
            return []
        self._parts, self._size = [], 0
        if size <= self._room:
            return [self._piece(FIRST | LAST, parts)]
        return self._split(memoryview(b"".join(parts)))

    def _split(self, payload: memoryview) -> list[Piece]:
        last = (len(payload) - 1) // self._room * self._room
        return [
            self._piece(
                (FIRST if at == 0 else 0) | (LAST if at == last else 0), [payload[at : at + self._room]]
            )
            for at in range(0, len(payload), self._room)
        ]

    def _piece(self, form: int, parts: list[Bytes]) -> Piece:
        self._sequence += 1
        if self._is_first_on_ring:
            self._is_first_on_ring = False
            form |= FIRST_ON_RING
        rest = _REST.pack(self._incarnation, self._sequence, self._stamp, COMMANDS, form, self._ring)
        piece = bytearray().join((bytes(_CHECKED_FROM), rest, *parts))
        with memoryview(piece) as view:
            checksum = crc32c(view[_CHECKED_FROM:])
        _PREFIX.pack_into(piece, 0, MAGIC, VERSION, checksum)
        return piece
