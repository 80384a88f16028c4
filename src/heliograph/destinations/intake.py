"""What a destination accepts: each message of a lane once, in sequence, without a gap.

A lane numbers its messages 1, 2, 3 …; the mark of a lane is the last sequence that was taken. A block at or
below the mark was sent again and is only confirmed; one that begins beyond the next sequence means that
something is missing, and is refused. A lane of which anything was refused takes nothing more: otherwise what
follows would overtake what was refused. Only where a lane is resumed may it begin further on: what lies
between was confirmed; it was not persistent and ended with the server that had it, or another part of a cluster has
it.

What a client manager says while a cluster changes its view may be lost with its place there, and what it says
behind that not. Such a block is passed over: its client manager asks its clients to come again, and they resend. That
its lane was resumed before says nothing then: what lies between need not have been confirmed.

In a cluster that was in parts, what lies between may also be *missing*: another part has it, and it comes when they
meet, behind what followed it. Until the cluster is whole again the intake remembers what is missing, what came from
another part and is *held*, and how far the lanes of sessions had come that ended (docs/decisions/0018).

Messages are numbered in the order of acceptance, whatever their delivery mode, so that each has one place to
return to. Those that are not persistent leave gaps in what the journal knows: each record carries the low
half of its number, and replay finds the rest by counting. Numbers of messages that ended with a server, and left
nothing in its log, may be given again; whoever heard of them in another way goes back with it.
"""

from __future__ import annotations

from collections import deque

import msgspec

from heliograph.bus.commands import Confirmed, Refused
from heliograph.cluster.ranges import NONE, Ranges, minus, union
from heliograph.destinations.effects import AnyEffect, Missed, Multicast
from heliograph.model.block import Block
from heliograph.model.ids import LaneId, SessionId, session_of

_NUMBER_MASK = 0xFFFF_FFFF
# A number that seems to be so little less than 2**32 ahead is behind: no server loses as many messages at once.
_BEHIND = 1 << 28


def number_mark(block: Block) -> int:
    """What the record of a block says about its number, in the 32 bits that it has for a list."""
    return block.number & _NUMBER_MASK


class Apart(msgspec.Struct, array_like=True):
    """What an intake remembers until the cluster is whole."""

    missing: dict[LaneId, Ranges] = {}  # below the mark of a lane, and not here
    ended: dict[LaneId, int] = {}  # marks of lanes whose session is over
    ended_before: dict[LaneId, int] = {}  # the same, of those that were over when the cluster was whole last

    def mark_of(self, lane: LaneId) -> int:
        return self.ended.get(lane, 0) or self.ended_before.get(lane, 0)


class Intake:
    """Marks per lane, and the blocks that are on their way to the disk."""

    __slots__ = (
        "_adopted",
        "_awaited",
        "_heard",
        "_marks",
        "_refused",
        "_resumed",
        "_since",
        "_volatile",
        "_was_volatile",
        "apart",
        "next_number",
        "pending",
        "spilling",
    )

    def __init__(self) -> None:
        self._marks: dict[LaneId, int] = {}
        self._refused: dict[LaneId, None] = {}
        self._resumed: dict[LaneId, None] = {}
        # Lanes that were heard in this view, None where there are no views. Of others something may be lost.
        self._heard: dict[LaneId, None] | None = None
        self._volatile: dict[LaneId, None] = {}  # lanes of which the last that was taken is not in the log
        self._was_volatile = False  # whether the lane of the last block was one of these before it
        # Where another server had this destination before: lanes on which something new came since, None otherwise.
        self._since: dict[LaneId, None] | None = None
        # The last sequence of a lane that is on its way to the disk. Nothing behind it is confirmed before
        # it.
        self._awaited: dict[LaneId, int] = {}
        self._adopted: dict[int, None] = {}  # numbers of pending blocks that another destination had
        self.pending: deque[Block] = deque()
        self.spilling = 0  # pending blocks that are not persistent
        self.apart = Apart()
        self.next_number = 1

    def accept(self, block: Block, effects: list[AnyEffect], *, number: bool = True) -> bool:
        """Whether the block is new and in its place; it is numbered then, unless it is only staged."""
        lane = block.lane
        mark = self._marks.get(lane, 0)
        if block.first != mark + 1 and not self._accept_odd(block, mark, effects):
            return False
        if lane in self._refused:
            return False
        if self._resumed:
            self._resumed.pop(lane, None)
        if self._heard is not None:
            self._heard[lane] = None
        self._marks[lane] = block.first + block.count - 1
        self._was_volatile = lane in self._volatile
        if not block.persistent:
            self._volatile[lane] = None
        elif self._was_volatile:
            del self._volatile[lane]
        if number:
            block.number = self.next_number
            self.next_number += block.count
        return True

    def would_accept(self, block: Block) -> bool:
        """Whether a block is new and in its place."""
        lane, mark = block.lane, self._marks.get(block.lane, 0)
        may_begin = lane in self._resumed
        return lane not in self._refused and (block.first == mark + 1 or (block.first > mark and may_begin))

    def number(self, block: Block) -> None:
        """Give a block its place among all that was accepted."""
        block.number = self.next_number
        self.next_number += block.count

    def persist(self, block: Block) -> None:
        """An accepted block goes to the disk; it is confirmed when it is there."""
        self.pending.append(block)
        self._awaited[block.lane] = block.first + block.count - 1
        if not block.persistent:
            self.spilling += 1

    def adopt(self, block: Block) -> None:
        """A block that another destination had goes to the disk for this one."""
        self.number(block)
        self.pending.append(block)
        self._adopted[block.number] = None
        if not block.persistent:
            self.spilling += 1

    def confirm(self, block: Block, effects: list[AnyEffect]) -> None:
        """An accepted block needs no disk: confirmed at once, or with what is before it on its lane."""
        self._volatile[block.lane] = None
        if block.lane not in self._awaited:
            effects.append(Multicast(Confirmed(block.lane, block.last)))

    def _accept_odd(self, block: Block, mark: int, effects: list[AnyEffect]) -> bool:
        """A block that does not follow the last one."""
        lane = block.lane
        if block.last <= mark:
            if lane not in self._awaited:
                effects.append(Multicast(Confirmed(lane, mark)))
            return False
        if block.first > mark and lane in self._resumed:
            effects.append(Missed(lane, mark + 1, block.first - 1))
            return True
        if block.first > mark and self._heard is not None and lane not in self._heard:
            return False  # what is before it was lost, and is sent again with it
        if lane not in self._refused:  # else its client has been told
            sentence = (
                f"message {block.first} came after message {mark}: messages between are missing or came twice"
            )
            self._refuse(lane, mark + 1, "sequence-gap", sentence, effects)
        return False

    def _refuse(self, lane: LaneId, first: int, code: str, sentence: str, effects: list[AnyEffect]) -> None:
        self._refused[lane] = None
        effects.append(Multicast(Refused(lane, first, code, sentence)))

    def turn_away(self, block: Block, effects: list[AnyEffect], *, code: str, sentence: str) -> bool:
        """Refuse a block for want of room, if it is new; its lane ends here. Whether it was."""
        mark = self._marks.get(block.lane, 0)
        if block.last <= mark:
            return False
        if block.lane not in self._refused:
            self._refuse(block.lane, max(block.first, mark + 1), code, sentence, effects)
        return True

    def stored(self, blocks: list[Block], effects: list[AnyEffect]) -> None:
        """These blocks, the oldest that are pending, are on disk."""
        lasts: dict[LaneId, int] = {}
        for block in blocks:
            if not self._adopted or block.number not in self._adopted:
                lasts[block.lane] = block.first + block.count - 1
        for lane, last in lasts.items():
            safe = last
            if self._awaited.get(lane) == last:
                del self._awaited[lane]
                safe = self._marks.get(lane, last)  # what came behind it needed no disk
            effects.append(Multicast(Confirmed(lane, safe)))

    def arrived(self, blocks: list[Block]) -> None:
        """These blocks, the oldest that are pending, are pending no more."""
        for block in blocks:
            assert self.pending.popleft() is block
            if not block.persistent:
                self.spilling -= 1
            if self._adopted:
                self._adopted.pop(block.number, None)

    def not_stored(self, block: Block, code: str, sentence: str, effects: list[AnyEffect]) -> None:
        """The block that was accepted last found no room: as if it had never been, and its lane ends here."""
        assert self.pending.pop() is block
        if not block.persistent:
            self.spilling -= 1
        del self._awaited[block.lane]
        for before in self.pending:
            if before.lane == block.lane and before.number not in self._adopted:
                self._awaited[block.lane] = before.last
        self.next_number = block.number
        self._take_back(block, code, sentence, effects)

    def stage_refused(self, block: Block, code: str, sentence: str, effects: list[AnyEffect]) -> None:
        """The block that was accepted last, and has no number, is not taken after all."""
        self._take_back(block, code, sentence, effects)

    def _take_back(self, block: Block, code: str, sentence: str, effects: list[AnyEffect]) -> None:
        """Its lane ends before it, with what was taken last then: that may not be in the log."""
        self._marks[block.lane] = block.first - 1
        if self._was_volatile:
            self._volatile[block.lane] = None
        else:
            self._volatile.pop(block.lane, None)
        self._refuse(block.lane, block.first, code, sentence, effects)

    def resume(self, lane: LaneId) -> int:
        """A lane's client is back and will go on after what is stored. What was refused may be tried
        again."""
        self._refused.pop(lane, None)
        self._resumed[lane] = None
        for block in self.pending:
            if block.lane == lane and block.number not in self._adopted:
                return block.first - 1
        return self._marks.get(lane, 0)

    def resumed(self) -> list[LaneId]:
        """Lanes on which nothing came since they were resumed."""
        return list(self._resumed)

    def went_on(self, lane: LaneId) -> None:
        """Something came on a lane, and whoever leads has dealt with it."""
        self._resumed.pop(lane, None)

    def begin_view(self) -> None:
        """What was said before may not have been heard here."""
        self._heard = {}

    def may_lack(self, lane: LaneId) -> None:
        """Something may be lost of what was said on a lane since it was resumed: before it is resumed once more,
        what does not follow on the last that was taken is passed over."""
        self._resumed.pop(lane, None)
        if self._heard is not None:
            self._heard.pop(lane, None)

    def advance(self, lane: LaneId, last: int) -> None:
        """A lane has come so far; the log need not say so."""
        if last > self._marks.get(lane, 0):
            self._marks[lane] = last
            self._volatile[lane] = None

    def retreat(self, lane: LaneId, last: int) -> None:
        """Something of a lane was refused, and not taken."""
        if lane in self._volatile:
            self._marks[lane] = min(self._marks.get(lane, 0), last)

    def mark_beyond_log(self, lane: LaneId) -> int:
        """The mark of a lane of which the last that was taken is not in the log; 0 of others."""
        return self._marks.get(lane, 0) if lane in self._volatile else 0

    def beyond_log(self) -> list[tuple[LaneId, int]]:
        """Marks of lanes of which the last that was taken is not in the log."""
        return [(lane, self._marks[lane]) for lane in self._volatile if lane in self._marks]

    def recovered(self) -> None:
        """What came so far was found on disk: of what is not persistent nobody knows what came."""
        self._since = {}

    def may_have_ended(self, block: Block, *, resent: bool) -> bool:
        """Whether a block that is accepted here was perhaps accepted, handed out and done before, and forgotten: it
        is not persistent, was sent again, and the server that may have had it is gone. It ended there (J3: at most
        once)."""
        if self._since is None:
            return False
        if not resent:
            self._since[block.lane] = None
        return resent and not block.persistent and block.lane not in self._since

    def unconfirmed(self) -> list[tuple[LaneId, int]]:
        """Lanes of which something is on its way to the disk, and up to where each is confirmed when it is there."""
        return [(lane, self._marks.get(lane, last)) for lane, last in self._awaited.items()]

    def refused(self) -> list[LaneId]:
        return list(self._refused)

    def refuse_again(self, lane: LaneId) -> None:
        """Whoever had this destination before has refused something of this lane, and its client was told."""
        self._refused[lane] = None

    def forget(self, session: SessionId, *, but_marks: bool = False) -> None:
        """A session ended: its lanes will not come again; or only from another part, `but_marks`."""
        if but_marks:
            self.apart.ended.update(
                (lane, mark) for lane, mark in self._marks.items() if session_of(lane) == session
            )
        tables: tuple[dict[LaneId, int] | dict[LaneId, None], ...] = (
            self._marks,
            self._refused,
            self._resumed,
            self._volatile,
            self._since or {},
        )
        for table in tables:
            for lane in [lane for lane in table if session_of(lane) == session]:
                del table[lane]

    # ---- recovery

    def replay(self, block: Block, number_mark: int) -> None:
        """A persistent block that was accepted once is accepted again, under the number it had then."""
        self._go_to(number_mark)
        self.replay_mark(block)
        self.number(block)

    def replay_adopted(self, block: Block, number_mark: int) -> None:
        """A block that another destination had takes the place that it was given here."""
        self._go_to(number_mark)
        self.number(block)

    def _go_to(self, number_mark: int) -> None:
        """To the next number that has this lower half."""
        ahead = number_mark - self.next_number & _NUMBER_MASK
        self.next_number += ahead if ahead <= _NUMBER_MASK - _BEHIND else ahead - _NUMBER_MASK - 1

    def replay_mark(self, block: Block) -> None:
        """A block that was staged once."""
        self._marks[block.lane] = block.first + block.count - 1

    def replay_number(self, block: Block, number: int) -> None:
        """A block that was staged takes the place that its commit gave it."""
        block.number = number
        self.next_number = max(self.next_number, number + block.count)

    def marks(self) -> dict[LaneId, int]:
        return self._marks

    # ---- what other parts have, or had

    def known_of(self, lane: LaneId) -> Ranges:
        """The sequences of a lane that were taken here, or are done elsewhere."""
        mark = self._marks.get(lane, 0) or self.apart.mark_of(lane)
        return minus(((1, mark),), self.apart.missing.get(lane, NONE)) if mark else NONE

    def replay_joined(self, block: Block, number_mark: int) -> None:
        """A block that another part accepted takes its place, behind all that is here."""
        self.learn(block.lane, ((block.first, block.last),))
        self.replay_adopted(block, number_mark)

    def learn(self, lane: LaneId, ranges: Ranges) -> None:
        """These are taken, here or elsewhere, wherever on the lane they are."""
        known = union(self.known_of(lane), ranges)
        mark = known[-1][1] if known else 0
        missing = minus(((1, mark),), known)
        if lane in self._marks or not self.apart.mark_of(lane):
            self._marks[lane] = mark
        else:
            self.apart.ended[lane] = mark
        if missing:
            self.apart.missing[lane] = missing
        else:
            self.apart.missing.pop(lane, None)

    def miss(self, lane: LaneId, first: int, last: int) -> None:
        """What its sender goes on behind is not here."""
        self.apart.missing[lane] = union(self.apart.missing.get(lane, NONE), ((first, last),))

    def became_whole(self) -> None:
        """Nobody has anything that is not here. Marks are kept once more: one may not have heard of this yet."""
        self.apart = Apart(ended_before=self.apart.ended)

    def all_marks(self) -> dict[LaneId, int]:
        """Also of lanes whose session is over."""
        return {**self.apart.ended_before, **self.apart.ended, **self._marks}

    def restore(self, marks: dict[LaneId, int], next_number: int, apart: Apart | None = None) -> None:
        self._marks = marks
        self.next_number = next_number
        self.apart = apart or Apart()
