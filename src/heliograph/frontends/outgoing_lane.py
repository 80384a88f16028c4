"""A lane that the server fills for a client whose protocol knows no blocks: what one read brings becomes a block.

    put ──▶ open ──seal──▶ blocks under way ──confirmed──▶ receipts answered

Messages are numbered 1, 2, 3 … without a gap, as our own clients number theirs. What is put before the lane is
ready, or while its destination asks to wait, stays here; how much that may be is up to the caller.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from heliograph.frontends.prepared import Prepared
from heliograph.model import block
from heliograph.model.block import Block, BodyKind, parse_trusted
from heliograph.model.ids import LaneId
from heliograph.model.limits import BLOCK_BYTES, BLOCK_MESSAGES
from heliograph.model.message import Head, encode_head

# In a block of mixed kinds even a message without a head has to say what its body is.
_KIND_HEADS = {
    int(kind): b"" if kind == BodyKind.BYTES else encode_head(Head(kind=kind)) for kind in BodyKind
}


class OutgoingLane:
    """One lane of a session."""

    def __init__(self, number: int, address: str, *, staged: bool) -> None:
        self.number = number
        self.address = address
        self.staged = staged
        self.identity: LaneId | None = None  # once it may be used
        self.blocked = ""  # why its destination asks to wait
        self.size = 0  # of what is not sealed
        self._messages: list[Prepared] = []
        self._next = 1
        self._receipts: deque[tuple[int, Any]] = deque()
        self.confirmed = 0

    @property
    def is_ready(self) -> bool:
        return self.identity is not None and not self.blocked

    @property
    def is_done(self) -> bool:
        """Whether all that was put is confirmed."""
        return not self._messages and self.confirmed == self._next - 1

    def put(self, message: Prepared, receipt: Any = None) -> None:
        self._messages.append(message)
        self.size += len(message.body) + len(message.head)
        if receipt is not None:
            self._receipts.append((self._next + len(self._messages) - 1, receipt))

    def seal(self, now: int) -> Iterator[Block]:
        """All that was put, in blocks."""
        messages, self._messages, self.size = self._messages, [], 0
        start = 0
        while start < len(messages):
            stop = _end_of_block(messages, start)
            run = messages[start:stop] if start or stop < len(messages) else messages
            yield self._pack(run, now)
            start = stop

    def _pack(self, run: list[Prepared], now: int) -> Block:
        lane, first = self.identity, self._next
        assert lane is not None, "a lane is sealed when it may be used"
        self._next += len(run)
        one = run[0]
        if len(run) == 1 and not one.unit:
            return parse_trusted(
                block.pack_lone(
                    one.body,
                    lane=lane,
                    sequence=first,
                    timestamp=one.timestamp or now,
                    priority=one.priority,
                    persistent=one.persistent,
                    kind=one.kind,
                    head=one.head,
                    expiry=one.expiry,
                    delivery_time=one.delivery_time,
                )
            )
        return parse_trusted(_pack_many(run, lane, first, now))

    def confirm(self, last: int) -> list[Any]:
        """The receipts of all up to and including `last`."""
        self.confirmed = last
        receipts = self._receipts
        found = []
        while receipts and receipts[0][0] <= last:
            found.append(receipts.popleft()[1])
        return found

    def give_up(self) -> list[Any]:
        """Nothing more of it will be confirmed. The receipts that were waited for."""
        found = [receipt for _, receipt in self._receipts]
        self._receipts.clear()
        self._messages, self.size, self.confirmed = [], 0, self._next - 1
        return found


def _end_of_block(messages: list[Prepared], start: int) -> int:
    """Messages that share a block are stored alike, and together they are not too large."""
    persistent, size = messages[start].persistent, messages[start].size
    stop = start + 1
    if messages[start].kind == BodyKind.LARGE:
        return stop
    limit = min(len(messages), start + BLOCK_MESSAGES)
    while stop < limit:
        message = messages[stop]
        size += message.size
        if message.persistent != persistent or size > BLOCK_BYTES or message.kind == BodyKind.LARGE:
            break
        stop += 1
    return stop


def _pack_many(run: list[Prepared], lane: LaneId, first: int, now: int) -> bytes:
    """A column is written only for what some message has to say."""
    one = run[0]
    bodies = [each.body for each in run]
    if _are_plain(run):
        return block.pack(
            bodies,
            lane=lane,
            first=first,
            timestamp=now,
            priority=one.priority,
            persistent=one.persistent,
            kind=one.kind,
        )
    kind = one.kind if all(each.kind == one.kind for each in run) else BodyKind.MIXED
    heads = [each.head for each in run]
    if kind == BodyKind.MIXED:
        heads = [each.head or _KIND_HEADS[each.kind] for each in run]
    units = [each.unit for each in run]
    expiries = [each.expiry for each in run]
    delivery_times = [each.delivery_time for each in run]
    priorities = [each.priority for each in run]
    timestamps = [each.timestamp for each in run]
    return block.pack(
        bodies,
        lane=lane,
        first=first,
        timestamp=now,
        priority=one.priority,
        persistent=one.persistent,
        kind=kind,
        heads=heads if any(heads) else None,
        timestamps=[each or now for each in timestamps] if any(timestamps) else None,
        units=units if any(units) else None,
        expiries=expiries if any(expiries) else None,
        delivery_times=delivery_times if any(delivery_times) else None,
        priorities=priorities if priorities.count(one.priority) < len(run) else None,
    )


def _are_plain(run: list[Prepared]) -> bool:
    """Whether there is nothing to say of any message but what holds for all. So it is with most."""
    kind, priority = run[0].kind, run[0].priority
    for each in run:
        if (
            each.head
            or each.unit
            or each.expiry
            or each.delivery_time
            or each.timestamp
            or each.kind != kind
            or each.priority != priority
        ):
            return False
    return True
