"""Globally unique ids: who issued it, when that issuer started, and a sequence, in sixteen fixed bytes (M5).

    site u16 · node u16 · start u48 (milliseconds since 1970) · sequence u32 · lane u16      big-endian

Big-endian, so that ids of one issuer sort by age. Only nodes issue ids. A *session* id has lane 0; the
messages of a session to its k-th destination travel on *lane* k and are numbered from 1 without a gap, so
(lane id, sequence) names a message for ever and a missing one is noticed.
"""

from __future__ import annotations

import struct
from typing import NewType

SessionId = NewType("SessionId", bytes)
LaneId = NewType("LaneId", bytes)
ConsumerId = NewType("ConsumerId", bytes)

ID_BYTES = 16
MAX_LANE = 0xFFFF
_MAX_ISSUED = 0xFFFFFFFF
_LAYOUT = struct.Struct(">HHHIIH")


class IdIssuer:
    """Issues the ids of one node. The shell gives it the start time; it never reads a clock itself."""

    def __init__(self, *, site: int, node: int, started_ms: int) -> None:
        self._site = site
        self._node = node
        self._started_ms = started_ms
        self._sequence = 0

    def _next(self) -> bytes:
        if self._sequence == _MAX_ISSUED:
            # So many ids take longer than a millisecond: the next start is still this node's own.
            self._started_ms += 1
            self._sequence = 0
        self._sequence += 1
        start = self._started_ms
        return _LAYOUT.pack(self._site, self._node, start >> 32, start & 0xFFFFFFFF, self._sequence, 0)

    def session(self) -> SessionId:
        return SessionId(self._next())

    def consumer(self) -> ConsumerId:
        return ConsumerId(self._next())


def lane_of(session: SessionId, number: int) -> LaneId:
    """The id of a session's lane number `number` (1 and up)."""
    return LaneId(session[:14] + number.to_bytes(2, "big"))


def session_of(lane: LaneId) -> SessionId:
    return SessionId(lane[:14] + b"\0\0")


def lane_number(lane: LaneId) -> int:
    return int.from_bytes(lane[14:], "big")


def text_of(identity: bytes) -> str:
    """An id as a person sees it: `site.node.start.sequence` with `/lane` behind it where there is one."""
    site, node, high, low, sequence, lane = _LAYOUT.unpack(identity)
    text = f"{site}.{node}.{high << 32 | low:x}.{sequence}"
    return f"{text}/{lane}" if lane else text


def message_id(lane: LaneId, sequence: int) -> str:
    return f"{text_of(lane)}-{sequence}"
