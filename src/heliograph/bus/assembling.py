"""What arrives on a channel, put together again: sequences checked, pieces joined, garbage refused.

A sender is followed from the first piece that is seen of it to the configuration without it. Between the two, a
missing number means that this member's order is no longer everybody's: it must leave (PROTOCOL 1). So it must when a
frame came that cannot be read here: others may have read it. A member that came while a frame was under way cannot
have all of that frame and passes over the rest of it.

Members of two parts that find each other may each miss what the other had under way, and now and then Corosync loses
more than that, some of what is said after a merge (docs/decisions/0007). What was said before the ring of the merge
may be missed; of what was said on it, the first piece is marked, so that missing it is noticed too.
"""

from __future__ import annotations

from typing import Final

import msgspec

from heliograph.bus import wire
from heliograph.bus.commands import Command
from heliograph.bus.frames import FIRST, FIRST_ON_RING, LAST, RING_MASK, PieceRead, read_piece
from heliograph.bus.interface import Configuration, Incarnation, Origin, Place, Reason
from heliograph.bus.wire import Bytes
from heliograph.model.errors import ProtocolFault, Unavailable
from heliograph.model.limits import MAX_BUS_PAYLOAD_BYTES

_WHOLE: Final = FIRST | LAST
GAP: Final = "bus-gap"


class _Sender(msgspec.Struct):
    """A member that speaks, and what came so far of a frame in several pieces.

    `passing`: of the frame under way the beginning is not here, and is not to be expected.
    """

    incarnation: Incarnation
    last: int
    passing: bool
    pieces: list[bytes] = []
    size: int = 0


class Assembler:
    """The receiving end of one member."""

    def __init__(self) -> None:
        self._senders: dict[Place, _Sender] = {}
        self._is_in = False
        # Members that came while we were here: nothing they said can have been missed.
        self._heard_from_the_start: dict[Place, None] = {}
        # Members of another part, by the ring on which we found them.
        self._found_on: dict[Place, int] = {}

    def configured(self, configuration: Configuration) -> None:
        """Whoever went is forgotten, with what was under way."""
        for change in configuration.left:
            self._senders.pop(change.place, None)
            self._heard_from_the_start.pop(change.place, None)
            self._found_on.pop(change.place, None)
        for change in configuration.joined:
            self._senders.pop(change.place, None)
            if self._is_in and change.reason is Reason.ENTERED:
                self._heard_from_the_start[change.place] = None
            elif self._is_in and change.reason is Reason.HOST_FOUND:
                self._found_on[change.place] = configuration.ring.sequence & RING_MASK
        self._is_in = True

    def receive(self, place: Place, raw: Bytes) -> tuple[Origin, list[Command]] | None:
        """A frame, if this completes one.

        Raises ProtocolFault for garbage, which is to be reported and ignored: nobody said it, or the next that is
        heard of its sender shows that it is missing. Raises Unavailable for what a member said and is not known
        here, after which this member cannot go on: `bus-gap`, or the code of what cannot be read.
        """
        piece = read_piece(raw)
        sender = self._follow(place, piece)
        # Nearly all are.
        is_whole = piece.form & _WHOLE == _WHOLE and not sender.pieces and not sender.passing
        try:
            payload = piece.payload if is_whole else self._join(sender, piece)
            if payload is None:
                return None
            commands = wire.read(payload)
        except ProtocolFault as fault:
            raise Unavailable(fault.sentence, code=fault.code) from None
        return Origin(place, piece.incarnation, piece.sequence, piece.stamp), commands

    def _follow(self, place: Place, piece: PieceRead) -> _Sender:
        sender = self._senders.get(place)
        if sender is None:
            self._check_beginning(place, piece)
            sender = _Sender(piece.incarnation, piece.sequence, not piece.form & FIRST)
            self._senders[place] = sender
            return sender
        if sender.incarnation != piece.incarnation:
            sentence = f"process {place.process} of node {place.node} became another unseen"
            raise Unavailable(sentence, code=GAP)
        if piece.sequence != sender.last + 1:
            raise _gap(place, sender.last + 1, piece.sequence)
        sender.last = piece.sequence
        return sender

    def _check_beginning(self, place: Place, piece: PieceRead) -> None:
        if place in self._heard_from_the_start and piece.sequence != 1:
            raise _gap(place, 1, piece.sequence)
        found_on = self._found_on.get(place)
        if found_on is not None and piece.ring >= found_on and not piece.form & FIRST_ON_RING:
            sentence = (
                f"process {place.process} of node {place.node} said something since we met that is not here"
            )
            raise Unavailable(sentence, code=GAP)

    def _join(self, sender: _Sender, piece: PieceRead) -> Bytes | None:
        if piece.form & FIRST:
            if sender.pieces:
                raise wire.malformed("a frame begins before the last one ended")
            sender.passing = False
            if piece.form & LAST:
                return piece.payload
        elif sender.passing:
            sender.passing = not piece.form & LAST
            return None
        elif not sender.pieces:
            raise wire.malformed("a frame without a beginning")
        return self._collect(sender, piece)

    def _collect(self, sender: _Sender, piece: PieceRead) -> Bytes | None:
        sender.size += len(piece.payload)
        if sender.size > MAX_BUS_PAYLOAD_BYTES:
            raise wire.malformed(f"a frame of more than {MAX_BUS_PAYLOAD_BYTES} bytes")
        sender.pieces.append(bytes(piece.payload))
        if not piece.form & LAST:
            return None
        whole, sender.pieces, sender.size = b"".join(sender.pieces), [], 0
        return whole


def _gap(place: Place, expected: int, came: int) -> Unavailable:
    sentence = f"frame {expected} of process {place.process} on node {place.node} is missing, {came} came"
    return Unavailable(sentence, code=GAP)
