"""Which segments exist, how many live messages each holds, which may go and which are worth rewriting.

A segment may be deleted when nothing will read it again: no message in it is live, replay starts behind it,
and the records that ended its last messages are durable (else a crash would bring the messages back without
their bytes).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from heliograph.journal.records import OFFSET_BITS

# Rewriting pays when there is something to win beside the segment in use and the one before it.
_TOO_FEW_SEGMENTS = 2


class Holding(Protocol):
    """Something that holds messages of the journal."""

    def per_segment(self) -> dict[int, int]:
        """How many of each segment, by a position in it."""


class Segments:
    """The account of one journal. Numbers climb from 1; the highest is the one in use."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        # Messages per segment that somebody may still ask for, and how many there ever were.
        self.live: dict[int, int] = {}
        self._total: dict[int, int] = {}
        # The LSN that must be durable before an emptied segment may go.
        self._emptied_at: dict[int, int] = {}
        self._emptied_now: list[int] = []
        self.replay_segment = 1
        self.newest = 0
        self.bytes = 0
        self.may_have_finished = False
        self._is_replaying = True
        self.pins = 0
        # Segments from this one on are kept for readers of the history; 0: none are.
        self.held_from = 0

    def add(self, number: int, size: int) -> None:
        self.sizes[number] = size
        self.live.setdefault(number, 0)
        self._total.setdefault(number, 0)
        self.newest = max(self.newest, number)
        self.bytes += size

    def resize(self, number: int, size: int) -> None:
        if number in self.sizes:
            self.bytes += size - self.sizes[number]
            self.sizes[number] = size

    def remove(self, number: int) -> int:
        """Returns how many bytes that frees."""
        size = self.sizes.pop(number)
        self.bytes -= size
        self._emptied_at.pop(number, None)
        self.live.pop(number, None)
        self._total.pop(number, None)
        return size

    def retain(self, position: int, messages: int) -> None:
        number = position >> OFFSET_BITS
        try:
            self.live[number] += messages
            self._total[number] += messages
        except KeyError:
            assert self._is_replaying, "only replay may retain what is not there"
            # Replay may name a message that later records end: its segment is allowed to be gone by then.
            # What is left at the end of replay must be there; `settle` tells.
            self.live[number] = messages
            self._total[number] = messages

    def release(self, position: int, messages: int) -> None:
        number = position >> OFFSET_BITS
        left = self.live[number] - messages
        self.live[number] = left
        if left <= 0:
            assert left == 0, "more messages released than retained"
            self._emptied_now.append(number)

    def end_of_tick(self, last_lsn: int) -> None:
        """What emptied these segments is in the log up to `last_lsn`."""
        if self._emptied_now:
            for number in self._emptied_now:
                self._emptied_at[number] = last_lsn
            self._emptied_now.clear()
            self.may_have_finished = True

    def snapshot_stored(self, replay_segment: int) -> None:
        self.replay_segment = replay_segment
        self.may_have_finished = True

    def finished(self, durable_lsn: int) -> list[int]:
        """The segments that may be deleted now."""
        if self._is_replaying or self.pins:
            return []
        finished = []
        waiting = False
        for number in self.sizes:
            if self._is_held(number):
                continue
            if number < self.replay_segment and self.live[number] == 0 and number not in self._emptied_now:
                if self._emptied_at.get(number, 0) <= durable_lsn:
                    finished.append(number)
                else:
                    waiting = True
        self.may_have_finished = waiting
        return finished

    def frees_room(self) -> bool:
        """Whether a snapshot now would let a segment go."""
        return any(
            live == 0 and self.replay_segment <= number < self.newest
            for number, live in self.live.items()
            if number in self.sizes and not self._is_held(number)
        )

    def _is_held(self, number: int) -> bool:
        return 0 < self.held_from <= number

    def hold_from(self, number: int) -> None:
        """Readers of the history need segments from this one on; 0: nobody does."""
        self.held_from = number
        self.may_have_finished = True

    def held_bytes(self) -> int:
        """What is on the disk for readers of the history alone."""
        return sum(
            size
            for number, size in self.sizes.items()
            if self._is_held(number) and number < self.replay_segment and not self.live[number]
        )

    def compactable(self, below: float) -> int | None:
        """The emptiest segment that replay does not read, if less than this share of its messages is live."""
        if len(self.sizes) <= _TOO_FEW_SEGMENTS:
            return None
        best, best_share = None, below
        for number in self.sizes:
            live = self.live[number]
            if live and number < self.replay_segment and not self._is_held(number):
                share = live / self._total[number]
                if share < best_share:
                    best, best_share = number, share
        return best

    def count_anew(self, held: Iterable[Holding], last_lsn: int) -> None:
        """Nobody kept count: this is all that is live now, by the log up to `last_lsn`.

        Some of it may be in segments that are gone: whoever has cut off the end of its log, which said that it was
        done, gets it again from others as it catches up. Who leads is held to have everything by `settle`.
        """
        self._is_replaying = False
        self.live = dict.fromkeys(self.sizes, 0)
        self._emptied_now.clear()
        for one in held:
            for position, messages in one.per_segment().items():
                number = position >> OFFSET_BITS
                if number in self.live:
                    self.live[number] += messages
        for number, live in self.live.items():
            self._total[number] = max(self._total[number], live)
            if not live:
                self._emptied_at.setdefault(number, last_lsn)
        self.may_have_finished = True

    def totals(self) -> list[tuple[int, int]]:
        """For the snapshot: how many messages each segment ever held."""
        return [(number, self._total[number]) for number in self.sizes]

    def settle(self, totals: list[tuple[int, int]]) -> int | None:
        """At the end of replay: forget segments that are gone rightly, or name one that is missing.

        `totals` are those of the snapshot: it does not mention messages that were done, but they were there.
        """
        self._is_replaying = False
        self._emptied_now.clear()
        for number in [number for number in self.live if number not in self.sizes]:
            if self.live[number]:
                return number
            del self.live[number]
            del self._total[number]
        for number, total in totals:
            if number in self.sizes:
                self._total[number] = max(total, self._total[number])
        self.may_have_finished = True
        return None

    def live_messages(self) -> int:
        return sum(self.live.values())
