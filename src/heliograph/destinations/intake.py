"""What a destination accepts: each message of a lane once, in sequence, without a gap.

A lane numbers its messages 1, 2, 3 …; the mark of a lane is the last sequence that was taken. A block at or
below the mark was sent again and is only confirmed; one that begins beyond the next sequence means that
something is missing, and is refused. A lane of which anything was refused takes nothing more: otherwise what
follows would overtake what was refused. Only where a lane is resumed may it begin further on: what lies
between was not persistent, was confirmed, and ended with the server that had it.

Persistent messages get numbers without a gap in the order of acceptance, so that the journal need not hold
them: replay counts again. Others share the number of the persistent message that comes next.
"""

from __future__ import annotations

from collections import deque

from heliograph.bus.commands import Confirmed, Refused
from heliograph.destinations.effects import AnyEffect, Multicast
from heliograph.model.block import Block
from heliograph.model.ids import LaneId, SessionId, session_of


class Intake:
    """Marks per lane, and the blocks that are on their way to the disk."""

    __slots__ = ("_marks", "_refused", "_resumed", "next_number", "pending")

    def __init__(self) -> None:
        self._marks: dict[LaneId, int] = {}
        self._refused: dict[LaneId, None] = {}
        self._resumed: dict[LaneId, None] = {}
        self.pending: deque[Block] = deque()
        self.next_number = 1

    def accept(self, block: Block, effects: list[AnyEffect], *, number: bool = True) -> bool:
        """Whether the block is new and in its place; it is numbered then, unless it is only staged."""
        lane = block.lane
        mark = self._marks.get(lane, 0)
        if block.first != mark + 1 and not self._accept_odd(block, mark, effects):
            return False
        if lane in self._refused:
            return False
        self._marks[lane] = block.first + block.count - 1
        if number:
            self.number(block)
        return True

    def number(self, block: Block) -> None:
        """Give a block its place among all that was accepted."""
        block.number = self.next_number
        if block.persistent:
            self.next_number += block.count

    def _accept_odd(self, block: Block, mark: int, effects: list[AnyEffect]) -> bool:
        """A block that does not follow the last one."""
        lane = block.lane
        if block.last <= mark:
            if not any(pending.lane == lane for pending in self.pending):
                effects.append(Multicast(Confirmed(lane, mark)))
            return False
        if block.first > mark and lane in self._resumed:
            del self._resumed[lane]
            return True
        if lane not in self._refused:  # else its client has been told
            sentence = (
                f"message {block.first} came after message {mark}: messages between are missing or came twice"
            )
            self._refuse(lane, mark + 1, "sequence-gap", sentence, effects)
        return False

    def _refuse(self, lane: LaneId, first: int, code: str, sentence: str, effects: list[AnyEffect]) -> None:
        self._refused[lane] = None
        effects.append(Multicast(Refused(lane, first, code, sentence)))

    def stored(self, blocks: list[Block], effects: list[AnyEffect]) -> None:
        """These blocks, the oldest that were pending, are on disk."""
        lasts: dict[LaneId, int] = {}
        for block in blocks:
            assert self.pending.popleft() is block
            if block.persistent:
                lasts[block.lane] = block.first + block.count - 1
        for lane, last in lasts.items():
            effects.append(Multicast(Confirmed(lane, last)))

    def not_stored(self, block: Block, code: str, sentence: str, effects: list[AnyEffect]) -> None:
        """The block that was accepted last found no room: as if it had never been, and its lane ends here."""
        assert self.pending.pop() is block
        self._marks[block.lane] = block.first - 1
        self.next_number = block.number
        self._refuse(block.lane, block.first, code, sentence, effects)

    def stage_refused(self, block: Block, code: str, sentence: str, effects: list[AnyEffect]) -> None:
        """A block that was accepted for a transaction found no room."""
        self._marks[block.lane] = block.first - 1
        self._refuse(block.lane, block.first, code, sentence, effects)

    def resume(self, lane: LaneId) -> int:
        """A lane's client is back and will go on after what is stored. What was refused may be tried
        again."""
        self._refused.pop(lane, None)
        self._resumed[lane] = None
        for block in self.pending:
            if block.lane == lane:
                return block.first - 1
        return self._marks.get(lane, 0)

    def forget(self, session: SessionId) -> None:
        """A session ended: its lanes will not come again."""
        tables: tuple[dict[LaneId, int] | dict[LaneId, None], ...] = (
            self._marks,
            self._refused,
            self._resumed,
        )
        for table in tables:
            for lane in [lane for lane in table if session_of(lane) == session]:
                del table[lane]

    # ---- recovery

    def replay(self, block: Block) -> None:
        """A block that was accepted once is accepted again."""
        self.replay_mark(block)
        self.number(block)

    def replay_mark(self, block: Block) -> None:
        self._marks[block.lane] = block.first + block.count - 1

    def marks(self) -> dict[LaneId, int]:
        return self._marks

    def restore(self, marks: dict[LaneId, int], next_number: int) -> None:
        self._marks = marks
        self.next_number = next_number
