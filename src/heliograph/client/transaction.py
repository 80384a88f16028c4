"""The transaction of a transacted session (J5): what was sent and handed over since the last commit.

    open ──commit──▶ asked ──yes──▶ the next one is open
      │                └─lost─▶ asked again, with the same number, when the session is resumed
      └──rollback, connection lost──▶ dropped; in the latter case the next commit says so

Messages are staged at the server as they are sent; a commit says how many there must be and names what the
application was given. Nobody sends while a transaction is being decided. After a rollback the server's answer
comes before anything it delivers again: what arrives until then is forgotten.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from heliograph.client.preparing import OnCompletion
from heliograph.client.sender import renewed
from heliograph.client.waiting import Signal
from heliograph.frontends.native.frames import Commit, Completed, Rollback
from heliograph.model.errors import ClientFault, ConnectionLost, HeliographError, TransactionRolledBack

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from heliograph.client.link import Link
    from heliograph.client.session import Session
    from heliograph.client.wire import Wire

log = logging.getLogger("heliograph.client")


class Transaction:
    """The open transaction of a session; commits and rollbacks make it the next one."""

    def __init__(self, session: Session, link: Link) -> None:
        self._session = session
        self._link = link
        self._number = 1
        self._fault: HeliographError | None = None  # why it cannot be committed any more
        self._was_refused = False
        self._completions: list[OnCompletion] = []
        self._asked: Commit | None = None  # a commit that has not been answered
        self._outcome: asyncio.Future[HeliographError | None] | None = None  # what another connection said
        self._deciding: asyncio.Task[None] | None = None
        self._decided = Signal()

    # ---- while it is open

    async def decided(self) -> None:
        """Wait until no commit or rollback is under way."""
        while self._deciding is not None:
            await self._decided.wait()

    def watch(self, on_completion: OnCompletion) -> None:
        """To be told what becomes of the transaction."""
        self._completions.append(on_completion)

    def refused(self, error: HeliographError) -> None:
        """The server did not take something of it."""
        self._fault = self._fault or error
        self._was_refused = True

    @property
    def _has_content(self) -> bool:
        return any(sender.lane.staged for sender in self._session.senders()) or any(
            consumer.has_consumed for consumer in self._session.consumers()
        )

    @property
    def is_open(self) -> bool:
        """Whether anything would be lost with it."""
        return self._deciding is not None or self._has_content

    # ---- deciding

    async def commit(self) -> None:
        """Raises TransactionRolledBack when nothing of it took effect."""
        await self._decide(self._commit())

    async def roll_back(self) -> None:
        await self._decide(self._roll_back())

    async def _decide(self, work: Coroutine[None, None, None]) -> None:
        """One at a time, and to the end: who waits may be cancelled, what was asked of the server may not."""
        try:
            await self.decided()
        except BaseException:
            work.close()
            raise
        self._deciding = asyncio.create_task(self._finish(work))
        self._deciding.add_done_callback(self._heard)
        await asyncio.shield(self._deciding)

    async def _finish(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        finally:
            self._deciding = None
            self._decided.wake()

    @staticmethod
    def _heard(task: asyncio.Task[None]) -> None:
        """A caller that was cancelled does not hear of the outcome; the loop must not complain."""
        if not task.cancelled():
            task.exception()

    async def _commit(self) -> None:
        for consumer in list(self._session.consumers()):
            await consumer.returns_answered()
        wire = await self._link.ready()
        fault = self._fault  # the connection may have been lost until now
        if fault is not None:
            await self._undo(_rolled_back(fault))
            raise _rolled_back(fault) from fault
        if not self._has_content:
            return
        for sender in self._session.senders():
            sender.push()
        asked = self._asked = Commit(
            request=0,
            number=self._session.number,
            transaction=self._number,
            messages=sum(sender.lane.staged for sender in self._session.senders()),
            consumed=[
                (consumer.number, ranges)
                for consumer in self._session.consumers()
                if (ranges := consumer.take_consumed())
            ],
        )
        self._outcome = asyncio.get_running_loop().create_future()
        refusal: HeliographError | None = None
        try:
            await wire.request(asked, Completed)
        except ConnectionLost:
            refusal = await self._outcome
        except HeliographError as error:
            refusal = error
        finally:
            self._asked = None
        if refusal is None:
            for number, ranges in asked.consumed:
                self._session.committed(number, ranges)
            self._begin(None)
            await self._session.end_closed_consumers()
        elif refusal.code in (_UNKNOWN, "transaction-in-doubt"):
            self._begin(refusal)
            raise renewed(refusal)
        else:
            self.refused(refusal)
            cause = self._fault or refusal  # what was refused first tells more than that something is missing
            await self._undo(_rolled_back(cause))
            raise _rolled_back(cause) from refusal

    async def _roll_back(self) -> None:
        await self._undo(TransactionRolledBack("the transaction was rolled back"))

    async def _undo(self, error: HeliographError) -> None:
        """Drop what was sent; have everything again that was delivered."""
        wire = await self._link.ready()
        if self._has_content or self._was_refused:
            for sender in self._session.senders():
                sender.lane.discard_open()
            # What they have returns, so that it need not be given to them once more.
            await self._session.end_closed_consumers()
            await self._session.have_all_again(
                wire,
                lambda seen: Rollback(
                    request=0, number=self._session.number, transaction=self._number, seen=seen
                ),
            )
        self._begin(error)

    def _begin(self, error: HeliographError | None) -> None:
        """The next transaction; whoever watched this one hears how it ended."""
        self._number += 1
        self._fault = None
        self._was_refused = False
        for sender in self._session.senders():
            sender.lane.begin_transaction()
        completions, self._completions = self._completions, []
        for on_completion in completions:
            try:
                on_completion(None if error is None else renewed(error))
            except Exception:
                log.exception("an on_completion callback failed")

    # ---- the connection

    def lost(self) -> None:
        """The server drops the open transaction with the connection. What was asked is asked again."""
        reason = ConnectionLost("the connection was lost, and the open transaction with it")
        if self._asked is None and self._fault is None and self._has_content:
            self._fault = reason
        for sender in self._session.senders():
            sender.void(reason)

    async def resume(self, wire: Wire, *, is_new: bool) -> None:
        """Learn what became of a commit, before anything else happens in the session."""
        outcome = self._outcome
        if self._asked is None or outcome is None or outcome.done():
            return
        if is_new:
            outcome.set_result(_unknown("the server forgot the session"))
            return
        try:
            await wire.request(self._asked, Completed)
        except ConnectionLost:
            raise
        except HeliographError as refusal:
            outcome.set_result(refusal)
        else:
            outcome.set_result(None)

    async def leave(self) -> None:
        """The session is being closed: the server drops what is open, and gets back what was received."""
        await self.decided()
        for consumer in self._session.consumers():
            consumer.take_consumed()

    def end(self, error: HeliographError) -> None:
        """The session is over, and an open transaction with it."""
        if self._asked is not None and self._outcome is not None and not self._outcome.done():
            self._outcome.set_result(_unknown(error.sentence))
        else:
            self._begin(_rolled_back(error))


_UNKNOWN = "commit-unknown"


def _unknown(why: str) -> ConnectionLost:
    return ConnectionLost(f"whether the commit took effect is not known: {why}", code=_UNKNOWN)


def _rolled_back(error: HeliographError) -> TransactionRolledBack:
    if isinstance(error, TransactionRolledBack):
        return TransactionRolledBack(error.sentence)
    return TransactionRolledBack(f"the transaction was rolled back: {error.sentence}")


def not_transacted() -> ClientFault:
    return ClientFault('commit and rollback are for sessions in mode "transacted"', code="not-transacted")
