"""Drives a lane: when blocks are written, who waits for room, and who is told what became of a message.

The library clocks itself: with fewer than two blocks under way a new one goes out at the end of this turn
of the loop (at once, when somebody waits for its confirmation and nothing else is under way); otherwise
messages gather until a confirmation arrives or the block is full. So a hurried producer gets large blocks
and a lone message does not wait, without any timer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from heliograph.client.clock import Clock
from heliograph.client.outgoing import Lane, Receipt
from heliograph.client.posted import Posted
from heliograph.client.preparing import Outgoing
from heliograph.client.waiting import Signal
from heliograph.client.wakeful import Wakeful
from heliograph.frontends.native.frames import RESENT, STAGED
from heliograph.model.errors import HeliographError
from heliograph.model.ids import LaneId

if TYPE_CHECKING:
    from heliograph.client.wire import Wire

log = logging.getLogger("heliograph.client")

# Two blocks keep both ends busy: one on its way or on the disk, one being gathered behind it.
BLOCKS_UNDER_WAY = 2


def renewed(error: HeliographError) -> HeliographError:
    """The same error for another listener: an exception raised twice would collect both their tracebacks."""
    copy: HeliographError = type(error).__new__(type(error))
    copy.args = error.args
    copy.__dict__.update(error.__dict__)
    return copy


class Sender:
    """One lane and the connection it is written to, while there is one."""

    def __init__(
        self, lane: Lane, destination: str, session_number: int, clock: Clock, *, is_staged: bool = False
    ) -> None:
        self.lane = lane
        self.destination = destination
        # Set by a refusal: this lane takes no more. `fault` is what pipelined senders have yet to hear.
        self.is_finished = False
        self.fault: HeliographError | None = None
        self._was_heard = False
        self.is_blocked = False  # the server wants us to wait
        self.away: HeliographError | None = None  # nobody is there who could take anything (U6)
        # Set when connection or session ended.
        self.ended: HeliographError | None = None
        self._session_number = session_number
        self.is_staged = is_staged  # what it sends counts only when its transaction is committed
        self._flags = STAGED if is_staged else 0
        self._wire: Wire | None = None
        self._lacking: Posted | None = None  # a large message without content: it waits, and what follows it
        self._is_shut = False  # at the server that lacks it, until the lane is resumed
        self._loop = asyncio.get_running_loop()
        self._microseconds = clock.microseconds
        self._wakeful = Wakeful(self._loop, clock.monotonic)
        self._scheduled = False
        self._room = Signal()

    # ---- in

    def block(self, is_blocked: bool) -> None:
        """The server wants us to wait, or not any more; what was put already still goes."""
        self.is_blocked = is_blocked
        if is_blocked:
            self.lane.shut_gate()
        else:
            self._room.wake()

    def miss(self, error: HeliographError | None) -> None:
        """Nobody is there who could take anything: whoever sends is told so. None: somebody is."""
        self.away = error
        if error is not None:
            self.lane.shut_gate()
        self._room.wake()

    @property
    def is_open(self) -> bool:
        """Whether a message can be put without waiting or failing."""
        return (
            not self.is_finished
            and self.ended is None
            and not self.is_blocked
            and self.away is None
            and not self.lane.is_full
            and (self._wire is None or not self._wire.is_paused)
        )

    @property
    def is_spent(self) -> bool:
        """Nothing goes in any more and nothing is waited for."""
        return self.is_finished and not self.lane.unconfirmed

    @property
    def has_unheard_fault(self) -> bool:
        return self.fault is not None and not self._was_heard

    def hear_fault(self) -> HeliographError | None:
        """What was refused, for a listener to raise."""
        self._was_heard = True
        return None if self.fault is None else renewed(self.fault)

    async def wait_for_room(self) -> None:
        """Until the window has room and the socket takes more; or the lane is finished."""
        while not self.is_open:
            if self.ended is not None:
                raise renewed(self.ended)
            if self.is_finished:
                return
            if self.away is not None:
                raise renewed(self.away)
            self.push()  # what would make room must not wait for more messages
            await self._room.wait()

    def put_urgent(self, message: Outgoing, receipt: asyncio.Future[str]) -> None:
        """Take a message for whose confirmation somebody waits; the caller has seen that there is room."""
        lane, wire = self.lane, self._wire
        if wire is not None and lane.is_idle and not message.unit:  # a unit stands in a column
            wire.publish(
                self._session_number, lane.put_alone(message, self._microseconds(), receipt), self._flags
            )
            self._wakeful.asked()
            return
        self.put(message, receipt)
        if wire is not None and not lane.blocks_under_way:
            self.push()

    def put(self, message: Outgoing, receipt: Any = None) -> None:
        """Take a message; the caller has seen that there is room."""
        lane = self.lane
        lane.put(message, self._microseconds(), receipt)
        if lane.is_block_full:
            self.push()
            return
        if lane.has_unsent:
            self._write()
        if not self._scheduled and lane.blocks_under_way < BLOCKS_UNDER_WAY and self._wire is not None:
            self._scheduled = True
            self._loop.call_soon(self._end_of_turn)

    def put_packed(self, count: int, pack: Callable[[LaneId, int], bytes]) -> None:
        """Take a block that is packed elsewhere; the caller has seen that there is room."""
        self.lane.put_packed(count, pack, self._microseconds())
        self._write()

    def _end_of_turn(self) -> None:
        self._scheduled = False
        self._clock()

    def _clock(self) -> None:
        if self.lane.pending and self.lane.blocks_under_way < BLOCKS_UNDER_WAY and self._wire is not None:
            self.push()

    # ---- out

    def push(self) -> None:
        """Send what there is, now."""
        self.lane.seal(self._microseconds())
        self._write()

    def _write(self) -> None:
        wire, lacking = self._wire, self._lacking
        if wire is not None:
            unsent = self.lane.take_unsent() if lacking is None else self._unsent_before(lacking)
            for buffer, resent in unsent:
                flags = self._flags | RESENT if resent else self._flags
                wire.publish(self._session_number, buffer, flags)

    def _unsent_before(self, lacking: Posted) -> list[tuple[bytes, bool]]:
        if lacking.done():
            return self.lane.take_unsent()
        return self.lane.take_unsent_before(self.lane.sequence_of(lacking))

    async def drained(self) -> None:
        """Until everything put so far is confirmed. Raises what was refused."""
        if self.ended is not None and self.lane.unconfirmed:
            raise renewed(self.ended)
        if self.lane.unconfirmed:
            self.push()
            receipt: asyncio.Future[Any] = self._loop.create_future()
            self.lane.watch_last(receipt)
            await receipt

    # ---- what the server said

    def confirm(self, upto: int) -> None:
        self._wakeful.answered()
        self._answer(self.lane.confirm(upto), None)
        self._clock()
        if self._room and self.lane.has_room:
            self._room.wake()

    def refuse(self, first: int, error: HeliographError) -> bool:
        """The lane is finished.

        Returns whether anybody has to hear of it who does not wait for a confirmation.
        """
        self.is_finished = True
        count, told = self.lane.refuse(first)
        waiting = sum(isinstance(receipt, asyncio.Future) for _, receipt in told)
        unheard = count > waiting
        if unheard:
            self.fault = error
        self._answer(told, error)
        self._room.wake()
        return unheard

    def lacks(self, first: int, refusal: HeliographError) -> bool:
        """The server lacks the content of this message, and takes nothing more on this lane.

        Returns whether somebody can bring it again: then it waits for that, and what follows it.
        """
        posted = self.lane.posted_at(first)
        if posted is None:
            return False
        self._lacking, self._is_shut = posted, True
        posted.lacks(refusal)
        return True

    @property
    def is_shut(self) -> bool:
        """Whether the server takes nothing on this lane before it is resumed."""
        return self._is_shut and not self.is_finished

    def lacks_no_more(self) -> None:
        """The lane goes on where the server has it."""
        self._lacking, self._is_shut = None, False
        if self._wire is not None and self.away is None:
            self.attach(self._wire)

    def _answer(self, receipts: list[Receipt], error: HeliographError | None) -> None:
        for sequence, receipt in receipts:
            if isinstance(receipt, asyncio.Future):
                if receipt.done():
                    continue
                if error is None:
                    receipt.set_result(f"{self.lane.name}-{sequence}")
                else:
                    receipt.set_exception(renewed(error))
            else:
                try:
                    receipt(error)
                except Exception:
                    log.exception("an on_completion callback failed")

    # ---- the connection

    def attach(self, wire: Wire) -> None:
        """Send what is not confirmed, and go on."""
        self._wire = wire
        self._write()
        self._clock()
        self._room.wake()

    def detach(self) -> None:
        self._wire = None
        self.is_blocked = False  # if it is so on the next connection, we hear it there
        self.away = None
        self.lane.disconnect()

    def resume(self, last: int) -> None:
        """The server has everything up to `last`."""
        self._is_shut = False
        self._answer(self.lane.resume(last), None)

    def void(self, error: HeliographError) -> None:
        """The transaction is lost with its connection: nothing of it is sent again."""
        self._answer(self.lane.void(), error)
        self._room.wake()

    def wake(self) -> None:
        self._room.wake()

    def end(self, error: HeliographError) -> None:
        """Nothing will ever be confirmed again: tell everybody who waits."""
        if self.ended is None:
            self.ended = error
            self._wire = None
            _, told = self.lane.refuse(self.lane.confirmed + 1)
            self._answer(told, error)
            self._room.wake()
