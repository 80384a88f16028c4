"""A lane: the messages of one session to one destination, from `send` until the server has them.

    put, or the gate ──▶ open block ──seal──▶ unconfirmed: unsent, then sent ──confirm──▶ receipts answered

- Messages are numbered 1, 2, 3 … without a gap, in the order they were put (J11). Blocks stay here until
they are confirmed, so that
  they can be sent again on another connection.
- The *gate* is the quick way in: while it is open, a producer appends plain bodies straight to the open
block's list, or bodies of units of order beside what they say. It is
  shut whenever anything but an append has to happen: the block is nearly full, or was sealed, or is of
  another style.
- What the messages of a block share goes in its header; a column is written only where they differ.

A lane knows no socket; the time comes with each call. It is driven by `sender`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from heliograph.client.posted import Posted
from heliograph.client.preparing import Outgoing, Said
from heliograph.client.resending import Sealed, after, before, referring, relabelled
from heliograph.model import block
from heliograph.model.block import BodyKind
from heliograph.model.ids import LaneId, text_of
from heliograph.model.limits import (
    BLOCK_BYTES,
    PRODUCER_WINDOW_BYTES,
    PRODUCER_WINDOW_MESSAGES,
)
from heliograph.model.message import Head, encode_head

# A refusal may make room for this share of the window before waiting senders are woken: fewer, larger
# wake-ups.
ROOM_SHARE = 0.75
# An even block of this many is sealed rather than joined by a message with another priority or an expiry.
PLAIN_MESSAGES = 16
# In a block of mixed kinds even a message without a head has to say what its body is.
_KIND_HEADS = {kind: b"" if kind == BodyKind.BYTES else encode_head(Head(kind=kind)) for kind in BodyKind}


class Gate:
    """A producer's quick way into the open block: append to `bodies` while it is shorter than `limit`.

    Bodies up to `small` may all be so long; a longer one is subtracted from `room`, which stays above 0. With a
    unit of order: while it is shorter than `ordered`, append what the message says to `said`, and subtract
    its whole size from `room`.
    """

    __slots__ = ("bodies", "limit", "ordered", "room", "said", "small")

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.limit = 0
        self.small = 0
        self.room = 0
        self.ordered = 0
        self.said: list[Said] = []


class Columns(msgspec.Struct, gc=False):
    """What differs from message to message in the open block, once anything does."""

    kinds: list[int]
    heads: list[bytes]
    priorities: list[int]
    expiries: list[int]
    delivery_times: list[int]
    units: list[int]


Receipt = tuple[int, Any]
"""A sequence, and what is to be told when it is confirmed or refused: an `OnCompletion` or a future."""


class Lane:
    """One lane of a session."""

    def __init__(
        self,
        number: int,
        identity: LaneId,
        *,
        block_messages: int,
        window_messages: int = PRODUCER_WINDOW_MESSAGES,
        window_bytes: int = PRODUCER_WINDOW_BYTES,
        first: int = 1,
    ) -> None:
        self.number = number
        self.identity = identity
        self.name = text_of(identity)  # what the ids of its messages begin with
        self.block_messages = block_messages
        self.confirmed = first - 1
        self.last_persistent = 0  # of what was sealed
        self._window_messages = window_messages
        self._window_bytes = window_bytes
        self._small = BLOCK_BYTES // block_messages
        self._gate: Gate | None = None
        self._gate_priority = 0
        self._unconfirmed: deque[Sealed] = deque()
        self._unsent: deque[Sealed] = deque()
        self._unconfirmed_bytes = 0
        self._receipts: deque[Receipt] = deque()
        # The open block: its bodies, the sequence of the first, what all share, and columns where they do
        # not.
        self._bodies: list[bytes] = []
        self._first = first
        self._size = 0
        self._priority = 4
        self._persistent = True
        self._kind = 0
        self._columns: Columns | None = None
        self._is_uneven = False  # whether the server has to look at single messages of it
        self._decided = 0  # in a transacted session: the last message of the last transaction

    # ---- how full it is

    @property
    def pending(self) -> int:
        """Messages in the open block."""
        return len(self._bodies)

    @property
    def last(self) -> int:
        """Sequence of the last message put."""
        return self._first + len(self._bodies) - 1

    @property
    def unconfirmed(self) -> int:
        return self.last - self.confirmed

    @property
    def blocks_under_way(self) -> int:
        return len(self._unconfirmed) - len(self._unsent)

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    @property
    def is_block_full(self) -> bool:
        return len(self._bodies) >= self.block_messages or self._size >= BLOCK_BYTES

    @property
    def is_full(self) -> bool:
        unconfirmed = self._first + len(self._bodies) - 1 - self.confirmed
        return unconfirmed >= self._window_messages or self._unconfirmed_bytes >= self._window_bytes

    @property
    def has_room(self) -> bool:
        """Enough room again to wake those who wait."""
        return (
            self.unconfirmed <= self._window_messages * ROOM_SHARE
            and self._unconfirmed_bytes <= self._window_bytes * ROOM_SHARE
        )

    # ---- in

    def put(self, message: Outgoing, now: int, receipt: Any = None) -> None:
        """Add a message to the open block, sealing it first where the two cannot share one."""
        self.shut_gate()
        bodies = self._bodies
        if bodies and not self._can_share(message):
            self.seal(now)
            bodies = self._bodies
        if not bodies:
            self._priority = message.priority
            self._persistent = message.persistent
            self._kind = message.kind
        columns = self._columns
        if columns is None and not self._is_plain(message):
            columns = self._columns = self._make_columns()
        if columns is not None:
            columns.kinds.append(message.kind)
            columns.heads.append(message.head)
            columns.priorities.append(message.priority)
            columns.expiries.append(message.expiry)
            columns.delivery_times.append(message.delivery_time)
            columns.units.append(message.unit)
            self._is_uneven |= message.is_odd or message.priority != self._priority
        bodies.append(message.body)
        self._size += message.size
        if receipt is not None:
            self._receipts.append((self.last, receipt))

    @property
    def is_idle(self) -> bool:
        """Nothing waits to be sent, and nothing that was sent waits to be confirmed."""
        return not self._bodies and not self._unconfirmed

    def put_alone(self, message: Outgoing, now: int, receipt: Any) -> bytes:
        """The block of a message that finds the lane idle, for the caller to send at once."""
        sequence = self._first
        buffer = block.pack_lone(
            message.body,
            lane=self.identity,
            sequence=sequence,
            timestamp=now,
            priority=message.priority,
            persistent=message.persistent,
            kind=message.kind,
            head=message.head,
            expiry=message.expiry,
            delivery_time=message.delivery_time,
        )
        self._unconfirmed.append(Sealed(sequence, 1, buffer, True))
        self._unconfirmed_bytes += len(buffer)
        self._first = sequence + 1
        if message.persistent:
            self.last_persistent = sequence
        self._receipts.append((sequence, receipt))
        return buffer

    def watch_last(self, receipt: Any) -> None:
        """A receipt for everything put so far; the caller has seen that it is not all confirmed."""
        self._receipts.append((self.last, receipt))

    def open_gate(self, gate: Gate, priority: int, persistent: bool) -> None:
        """Let a producer append plain bodies of this style by itself, until one more would fill the block."""
        self.shut_gate()
        if (
            not self._bodies
            or self._columns is not None
            or (priority, persistent, 0) != (self._priority, self._persistent, self._kind)
            or self.is_full
        ):
            return
        gate.bodies = self._bodies
        gate.limit = self.block_messages - 1
        gate.small = self._small
        gate.room = BLOCK_BYTES - self._size
        self._gate = gate

    def open_ordered_gate(self, gate: Gate, priority: int, persistent: bool) -> None:
        """The same for bodies with a unit of order, beside a message that has one."""
        self.shut_gate()
        if self._bodies and self._is_uneven and persistent == self._persistent and not self.is_full:
            gate.bodies = self._bodies
            gate.ordered = self.block_messages - 1
            gate.room = BLOCK_BYTES - self._size
            self._gate = gate
            self._gate_priority = priority

    def shut_gate(self) -> None:
        gate = self._gate
        if gate is not None:
            self._size = BLOCK_BYTES - gate.room
            gate.limit = gate.ordered = 0
            self._gate = None
            if gate.said:
                self._take_said(gate)

    def _take_said(self, gate: Gate) -> None:
        """What came through the gate takes its place in the columns."""
        columns, count = self._columns, len(gate.said)
        assert columns is not None, "a block with units has columns"
        columns.units.extend([unit for unit, _ in gate.said])
        columns.heads.extend([head for _, head in gate.said])
        columns.priorities.extend([self._gate_priority] * count)
        for column in (columns.kinds, columns.expiries, columns.delivery_times):
            column.extend([0] * count)
        gate.said = []

    def _can_share(self, message: Outgoing) -> bool:
        """Whether a message may join the open block; an odd one must not make many plain ones costly."""
        return (
            message.persistent == self._persistent
            and BodyKind.LARGE not in (message.kind, self._kind)
            and self._size + message.size <= BLOCK_BYTES
            and (
                self._is_uneven
                or len(self._bodies) < PLAIN_MESSAGES
                or (not message.is_odd and message.priority == self._priority)
            )
        )

    def _is_plain(self, message: Outgoing) -> bool:
        return (
            not message.head
            and not message.is_odd
            and message.priority == self._priority
            and message.kind == self._kind
        )

    def _make_columns(self) -> Columns:
        count = len(self._bodies)
        nothing = [0] * count
        return Columns(
            [self._kind] * count, [b""] * count, [self._priority] * count, nothing, nothing[:], nothing[:]
        )

    # ---- out

    def seal(self, now: int) -> None:
        """Pack the open block, if there is anything in it."""
        bodies = self._bodies
        if not bodies:
            return
        self.shut_gate()
        count = len(bodies)
        buffer = self._pack(bodies, now)
        sealed = Sealed(self._first, count, buffer)
        self._unconfirmed.append(sealed)
        self._unsent.append(sealed)
        self._unconfirmed_bytes += len(buffer)
        self._first += count
        if self._persistent:
            self.last_persistent = self._first - 1
        self._bodies = []
        self._size = 0
        self._columns = None
        self._is_uneven = False

    def _pack(self, bodies: list[bytes], now: int) -> bytes:
        columns = self._columns
        if columns is not None:
            return self._pack_columns(bodies, columns, now)
        if len(bodies) == 1:
            return block.pack_lone(
                bodies[0],
                lane=self.identity,
                sequence=self._first,
                timestamp=now,
                priority=self._priority,
                persistent=self._persistent,
                kind=self._kind,
            )
        return block.pack(
            bodies,
            lane=self.identity,
            first=self._first,
            timestamp=now,
            priority=self._priority,
            persistent=self._persistent,
            kind=self._kind,
        )

    def _pack_columns(self, bodies: list[bytes], columns: Columns, now: int) -> bytes:
        kinds, heads = columns.kinds, columns.heads
        if len(bodies) == 1 and not columns.units[0]:
            return block.pack_lone(
                bodies[0],
                lane=self.identity,
                sequence=self._first,
                timestamp=now,
                priority=columns.priorities[0],
                persistent=self._persistent,
                kind=kinds[0],
                head=heads[0],
                expiry=columns.expiries[0],
                delivery_time=columns.delivery_times[0],
            )
        kind = kinds[0]
        if kinds.count(kind) != len(kinds):
            kind = BodyKind.MIXED
            heads = [head or _KIND_HEADS[BodyKind(of)] for head, of in zip(heads, kinds, strict=True)]
        return block.pack(
            bodies,
            lane=self.identity,
            first=self._first,
            timestamp=now,
            priority=columns.priorities[0],
            persistent=self._persistent,
            kind=kind,
            expiry=columns.expiries[0] if _same(columns.expiries) else 0,
            delivery_time=columns.delivery_times[0] if _same(columns.delivery_times) else 0,
            heads=heads if any(heads) else None,
            expiries=None if _same(columns.expiries) else columns.expiries,
            delivery_times=None if _same(columns.delivery_times) else columns.delivery_times,
            units=columns.units if any(columns.units) else None,
            priorities=None if _same(columns.priorities) else columns.priorities,
        )

    def take_unsent(self) -> list[tuple[bytes, bool]]:
        """The blocks to write now, in order, each with whether it may have been written before."""
        taken = [(sealed.buffer, sealed.sent) for sealed in self._unsent]
        for sealed in self._unsent:
            sealed.sent = True
        self._unsent.clear()
        return taken

    def take_unsent_before(self, sequence: int) -> list[tuple[bytes, bool]]:
        """The same of what comes before a sequence."""
        unsent = self._unsent
        self._unsent = deque(sealed for sealed in unsent if sealed.first < sequence)
        taken = self.take_unsent()
        self._unsent = deque(sealed for sealed in unsent if sealed.first >= sequence)
        return taken

    def take_sealed(self) -> list[Sealed]:
        """Every packed block, for somebody who keeps them elsewhere: this lane is through with them."""
        taken = list(self._unconfirmed)
        self._unconfirmed.clear()
        self._unsent.clear()
        self._unconfirmed_bytes = 0
        self.confirmed = self._first - 1
        return taken

    def put_packed(self, count: int, pack: Callable[[LaneId, int], bytes], now: int) -> None:
        """Take a block of persistent messages that somebody else packs, given the lane and the sequence of the
        first."""
        self.seal(now)
        buffer = pack(self.identity, self._first)
        sealed = Sealed(self._first, count, buffer)
        self._unconfirmed.append(sealed)
        self._unsent.append(sealed)
        self._unconfirmed_bytes += len(buffer)
        self._first += count
        self.last_persistent = self._first - 1

    # ---- what the server said

    def confirm(self, upto: int) -> list[Receipt]:
        """Everything up to and including `upto` is the server's. Returns the receipts to answer with yes."""
        if upto <= self.confirmed:
            return []
        self.confirmed = min(upto, self._first - 1)
        unconfirmed = self._unconfirmed
        while unconfirmed and unconfirmed[0].first + unconfirmed[0].count - 1 <= upto:
            gone = unconfirmed.popleft()
            self._unconfirmed_bytes -= len(gone.buffer)
            if self._unsent and self._unsent[0] is gone:
                self._unsent.popleft()
        answered: list[Receipt] = []
        receipts = self._receipts
        while receipts and receipts[0][0] <= upto:
            answered.append(receipts.popleft())
        return answered

    def refuse(self, first: int) -> tuple[int, list[Receipt]]:
        """Messages `first` and up were not taken, nor is anything put since.

        Returns how many, and whom to tell.
        """
        first = max(first, self.confirmed + 1)
        count = self.last - first + 1
        self.discard_open()
        kept = deque(before(sealed, first) for sealed in self._unconfirmed if sealed.first < first)
        self._unconfirmed = kept
        self._unsent = deque(sealed for sealed in kept if not sealed.sent)
        self._unconfirmed_bytes = sum(len(sealed.buffer) for sealed in kept)
        self._first = first
        told = [receipt for receipt in self._receipts if receipt[0] >= first]
        self._receipts = deque(receipt for receipt in self._receipts if receipt[0] < first)
        return count, told

    # ---- large messages

    def posted_at(self, sequence: int) -> Posted | None:
        """The large message of a sequence, if somebody can bring its content again."""
        for at, receipt in self._receipts:
            if at == sequence and isinstance(receipt, Posted) and not receipt.done():
                return receipt
        return None

    def sequence_of(self, posted: Posted) -> int:
        """Where a large message stands; 0: it is confirmed, or refused."""
        return next((at for at, receipt in self._receipts if receipt is posted), 0)

    def refer(self, posted: Posted, reference: bytes) -> None:
        """The content of a large message is elsewhere now; it stays the message that it is."""
        sequence = self.sequence_of(posted)
        for sealed in self._unconfirmed:
            if sealed.first == sequence:
                self._unconfirmed_bytes -= len(sealed.buffer)
                sealed.buffer = referring(sealed, reference).buffer
                self._unconfirmed_bytes += len(sealed.buffer)

    # ---- transactions

    @property
    def staged(self) -> int:
        """Messages put since the last transaction."""
        return self.last - self._decided

    def begin_transaction(self) -> None:
        self._decided = self.last

    def discard_open(self) -> None:
        """Forget the open block; what was sent is for the server to forget."""
        self.shut_gate()
        self._bodies = []
        self._columns = None
        self._is_uneven = False
        self._size = 0

    def void(self) -> list[Receipt]:
        """Nothing that was put is to be sent any more. Returns whom to tell."""
        self.discard_open()
        self._unconfirmed.clear()
        self._unsent.clear()
        self._unconfirmed_bytes = 0
        self.confirmed = self._decided = self.last
        told = list(self._receipts)
        self._receipts.clear()
        return told

    # ---- another connection

    def disconnect(self) -> None:
        """Whatever is not confirmed has to be sent again, in order."""
        self._unsent = deque(self._unconfirmed)

    def resume(self, last: int) -> list[Receipt]:
        """The server has everything up to `last`: the rest waits to be sent.

        Returns the receipts to answer with yes.
        """
        answered = self.confirm(last)
        if self._unconfirmed and self._unconfirmed[0].first <= last:
            self._unconfirmed[0] = after(self._unconfirmed[0], last)
            self._unconfirmed_bytes = sum(len(sealed.buffer) for sealed in self._unconfirmed)
        self._unsent = deque(self._unconfirmed)
        return answered

    def move(self, number: int, identity: LaneId) -> None:
        """Begin again at 1 on another lane: the server does not remember this one.

        Unconfirmed blocks are relabelled.
        """
        self.shut_gate()
        shift = self.confirmed
        self.number = number
        self.identity = identity
        self.name = text_of(identity)
        self.confirmed = 0
        self.last_persistent = max(self.last_persistent - shift, 0)
        self._first -= shift
        self._decided -= shift
        if self._unconfirmed and self._unconfirmed[0].first <= shift:
            self._unconfirmed[0] = after(self._unconfirmed[0], shift)
        for sealed in self._unconfirmed:
            sealed.first -= shift
            sealed.buffer = relabelled(sealed.buffer, identity, sealed.first)
        self._receipts = deque((sequence - shift, receipt) for sequence, receipt in self._receipts)
        self._unsent = deque(self._unconfirmed)


def _same(values: list[int]) -> bool:
    return values.count(values[0]) == len(values)
