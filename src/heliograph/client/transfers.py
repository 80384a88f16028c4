"""Uploads and downloads of very large messages (M6) on one connection: who is told what, under which number.

A transfer belongs to a session and outlives the wire: when the wire is lost it is told so and begins again,
where it was, on the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from heliograph.client.sender import renewed
from heliograph.client.waiting import Signal
from heliograph.frontends.native.frames import ADVANCE_BODY, CHUNK_HEAD, TransferFailed
from heliograph.model.errors import ConnectionLost, HeliographError, ProtocolFault, from_code

if TYPE_CHECKING:
    from heliograph.client.link import Link
    from heliograph.client.wire import Wire


class Transfer:
    """What an upload and a download have in common."""

    def __init__(self, link: Link, session: int) -> None:
        self.session = session  # its number on the connection
        self.number = link.transfers.add(self)
        self.changed = Signal()
        self.wire: Wire | None = None  # where it was begun
        self._link = link
        self._fault: HeliographError | None = None

    def chunk(self, offset: int, data: memoryview) -> None:
        """The server sent a piece."""

    def advanced(self, written: int, durable: int) -> None:
        """The server has this much."""

    def lost(self) -> None:
        self.wire = None
        self.changed.wake()

    def end(self, fault: HeliographError) -> None:
        """It will not go on."""
        if self._fault is None:
            self._fault = fault
            self.changed.wake()

    def check(self, wire: Wire) -> None:
        """Raises what ended it, or ConnectionLost if it has to begin again on another wire."""
        self.check_fault()
        if self.wire is not wire:
            raise ConnectionLost("the connection was lost")

    def check_fault(self) -> None:
        """Raises what ended it."""
        if self._fault is not None:
            raise renewed(self._fault)

    def was_lost(self, wire: Wire) -> bool:
        """Whether it is worth going on elsewhere: the wire is gone, and nothing else is wrong."""
        return self._fault is None and self._link.wire is not wire

    def forget(self) -> None:
        self._link.transfers.remove(self)


class Transfers:
    """The transfers of one connection, by number."""

    def __init__(self) -> None:
        self._transfers: dict[int, Transfer] = {}
        self._last = 0

    def add(self, transfer: Transfer) -> int:
        self._last += 1
        self._transfers[self._last] = transfer
        return self._last

    def remove(self, transfer: Transfer) -> None:
        self._transfers.pop(transfer.number, None)

    # ---- what the server said

    def chunk(self, payload: bytes) -> None:
        if len(payload) < CHUNK_HEAD.size:
            raise ProtocolFault("a chunk is a transfer, an offset and bytes")
        number, offset = CHUNK_HEAD.unpack_from(payload)
        transfer = self._transfers.get(number)
        if transfer is not None:  # otherwise it was given up, and this was under way
            transfer.chunk(offset, memoryview(payload)[CHUNK_HEAD.size :])

    def advanced(self, payload: bytes) -> None:
        if len(payload) != ADVANCE_BODY.size:
            raise ProtocolFault("an advance frame has 20 bytes")
        number, written, durable = ADVANCE_BODY.unpack(payload)
        transfer = self._transfers.get(number)
        if transfer is not None:
            transfer.advanced(written, durable)

    def failed(self, news: TransferFailed) -> None:
        transfer = self._transfers.get(news.transfer)
        if transfer is not None:
            transfer.end(from_code(news.code, news.sentence))

    # ---- the connection

    def lost(self) -> None:
        """The wire is gone."""
        for transfer in list(self._transfers.values()):
            transfer.lost()

    def wake(self) -> None:
        """The socket takes more."""
        for transfer in self._transfers.values():
            transfer.changed.wake()

    def session_ended(self, session: int, fault: HeliographError) -> None:
        for transfer in list(self._transfers.values()):
            if transfer.session == session:
                transfer.end(fault)
