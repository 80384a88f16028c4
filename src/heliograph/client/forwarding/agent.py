"""The agent that stores and forwards, as the rest of the client library sees it (U7).

It takes messages from producers, says when they are on the local disk and when the server has them, and stands among
the sessions of a link as one more that is carried over from connection to connection, and from process to process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from heliograph.client.forwarding.files import StoreFiles
from heliograph.client.forwarding.forwarder import Forwarder
from heliograph.client.forwarding.ledger import Lane, Ledger, LedgerReplay
from heliograph.client.forwarding.writer import Writer
from heliograph.client.preparing import Outgoing
from heliograph.client.resending import Sealed
from heliograph.client.sender import renewed
from heliograph.client.waiting import Signal
from heliograph.frontends.native.frames import (
    PAIR,
    CloseSession,
    Completed,
    ConsumerClosed,
    OpenSession,
    Refused,
    SessionOpened,
)
from heliograph.model.destination import parse_address
from heliograph.model.errors import ClientFault, HeliographError, Unavailable, from_code
from heliograph.model.ids import lane_of, message_id
from heliograph.model.limits import FORWARD_CLOSE_SECONDS
from heliograph.model.patterns import parse_pattern

if TYPE_CHECKING:
    from heliograph.client.link import Link
    from heliograph.client.wire import Wire

log = logging.getLogger("heliograph.client")

# Ordinary sessions of a connection are numbered from 1; the link relies on it.
AGENT_NUMBER = 0
UNSUPPORTED = "store-and-forward-unsupported"
_SESSION_UNKNOWN = "session-unknown"


class Stored(NamedTuple):
    """What a store holds that the server has not confirmed. `held`: destinations that the server refuses, and why."""

    messages: int
    bytes: int
    file_bytes: int
    limit_bytes: int
    held: dict[str, HeliographError]


def unsupported(what: str) -> ClientFault:
    return ClientFault(f"{what}: use a connection without store_and_forward for that", code=UNSUPPORTED)


def _opened(folder: Path) -> tuple[StoreFiles, Ledger]:
    files = StoreFiles(folder)
    try:
        replay = LedgerReplay()
        files.recover(replay.frame, Ledger().state())
        return files, replay.finish(str(folder))
    except BaseException:
        files.close()
        raise


class Agent:
    """Made by `open_agent`, for one link."""

    number = AGENT_NUMBER

    def __init__(self, link: Link, files: StoreFiles, ledger: Ledger, limit_bytes: int) -> None:
        self._link = link
        self._ledger = ledger
        self._limit_bytes = limit_bytes
        self._writer = Writer(
            files,
            ledger,
            limit_bytes=limit_bytes,
            block_messages=link.block_messages,
            on_stored=self._stored,
            on_refused=self._not_stored,
        )
        self._forwarder = Forwarder(
            AGENT_NUMBER, ledger, self._writer, report=link.report, on_progress=self._progressed
        )
        self._receipts: dict[int, deque[tuple[int, Any]]] = {}
        self._changed = Signal()
        self._ended: HeliographError | None = None
        self._is_closed = False

    # ---- used by producers

    @property
    def stored(self) -> Stored:
        held = {way.lane.destination: way.held for way in self._forwarder.ways() if way.held is not None}
        ledger = self._ledger
        return Stored(ledger.messages, ledger.bytes, self._writer.file_bytes, self._limit_bytes, held)

    async def lane_to(self, destination: str) -> Lane:
        """The lane to a destination. Where the server is there, it may refuse a new one."""
        self._check_open()
        if parse_pattern(destination) is not None:
            raise ClientFault("messages are sent to one topic, not to a pattern", code="pattern-invalid")
        lane = self._ledger.lane_to(parse_address(destination))
        if self._forwarder.is_attached and not lane.stored:
            # Written down first: the server must never know a lane, by its number, that the store does not.
            await self._writer.durable()
            await self._forwarder.open(lane)
        return lane

    def has_room(self, message: Outgoing) -> bool:
        return self._writer.has_room(message)

    def put(self, lane: Lane, message: Outgoing, receipt: Any = None) -> asyncio.Future[None]:
        """Take a message. Returns what says when it is on the disk; `receipt` hears when the server has it."""
        self._check_open()
        if self._is_closed:
            raise ClientFault("the connection is closed", code="closed")
        sequence, stored = self._writer.put(lane, message)
        if receipt is not None:
            self._receipts.setdefault(lane.key, deque()).append((sequence, receipt))
        return stored

    def unconfirmed(self, lane: Lane) -> int:
        return self._writer.last_of(lane) - lane.confirmed

    async def confirmed(self, lane: Lane) -> None:
        """Until the server has everything taken for a lane so far. Raises what ended the agent."""
        self._check_open()
        last = self._writer.last_of(lane)
        if lane.confirmed < last:
            receipt: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            self._receipts.setdefault(lane.key, deque()).append((last, receipt))
            await receipt

    async def forwarded(self) -> None:
        """Until the server has everything."""
        await self._writer.durable()
        while self._ledger.messages:
            self._check_open()
            await self._changed.wait()

    async def discard(self, destination: str) -> int:
        """Drop what waits for a destination. Returns how many messages that was."""
        self._check_open()
        await self._writer.durable()
        lane = self._ledger.by_destination.get(destination)
        if lane is None or not lane.waiting:
            return 0
        self._answer(lane, lane.stored, ClientFault("the message was discarded", code="discarded"))
        return await self._forwarder.discard(lane)

    def _check_open(self) -> None:
        if self._ended is not None:
            raise renewed(self._ended)

    # ---- what became of it

    def _stored(self, blocks: list[tuple[Lane, Sealed]]) -> None:
        for lane, sealed in blocks:
            self._forwarder.stored(lane, sealed)

    def _not_stored(self, error: HeliographError) -> None:
        """What was taken and is not on the disk never will be."""
        for key, receipts in self._receipts.items():
            lane = self._ledger.lanes[key]
            kept = deque(receipt for receipt in receipts if receipt[0] <= lane.stored)
            told = [receipt for sequence, receipt in receipts if sequence > lane.stored]
            self._receipts[key] = kept
            for receipt in told:
                _tell(receipt, error)
        if self._writer.failed is not None and self._ended is None:
            self._link.fail(error)
        self._changed.wake()

    def _progressed(self, lane: Lane) -> None:
        self._answer(lane, lane.confirmed, None)
        self._changed.wake()

    def _answer(self, lane: Lane, upto: int, error: HeliographError | None) -> None:
        receipts = self._receipts.get(lane.key)
        while receipts and receipts[0][0] <= upto:
            sequence, receipt = receipts.popleft()
            identity = message_id(lane_of(self._ledger.session, lane.wire), sequence - lane.shift)
            _tell(receipt, error, identity)

    # ---- one of the link's sessions

    async def resume(self, wire: Wire) -> None:
        """Carry on with this connection: what the server has is confirmed, the rest follows."""
        opened, is_new = await self._reopen(wire)
        doubtful = self._ledger.begin_session(opened.session, opened.token) if is_new else 0
        known = {(number, destination): last for number, destination, last in opened.lanes}
        await self._forwarder.resume_lanes(wire, known)
        self._ledger.attached = True
        await self._writer.durable(state=True)
        wire.check()
        if doubtful:
            sentence = (
                f"the server forgot the store's session: {doubtful} messages may arrive twice, and are marked"
            )
            self._link.report(Unavailable(sentence, code="session-lost"))
        self._forwarder.attach(wire)

    async def _reopen(self, wire: Wire) -> tuple[SessionOpened, bool]:
        ledger = self._ledger
        if ledger.session:
            again = OpenSession(
                request=0, number=AGENT_NUMBER, resume=ledger.session, token=ledger.token, keep=True
            )
            try:
                return await wire.request(again, SessionOpened), False
            except HeliographError as refusal:
                if refusal.code != _SESSION_UNKNOWN:
                    raise
        return await wire.request(OpenSession(request=0, number=AGENT_NUMBER, keep=True), SessionOpened), True

    def detach(self) -> None:
        self._forwarder.detach()
        self._changed.wake()
        if self._ledger.attached:
            self._ledger.attached = False
            if self._writer.failed is None and not self._is_closed:
                self._writer.note_state()

    def confirm(self, payload: bytes) -> None:
        for number, last in PAIR.iter_unpack(payload):
            self._forwarder.confirmed(number, last)

    def refused(self, news: Refused) -> None:
        self._forwarder.refused(news.lane, from_code(news.code, news.sentence))

    def blocked(self, destination: str, reason: str) -> None:
        self._link.blocks.told(AGENT_NUMBER, destination, reason)
        self._forwarder.blocked(destination, is_blocked=reason != "")

    def resume_writing(self) -> None:
        self._forwarder.wake()

    def end(self, error: HeliographError) -> None:
        """Nothing is forwarded any more; what is stored stays."""
        if self._ended is None:
            self._ended = error
            self._forwarder.detach()
            for receipts in self._receipts.values():
                for _, receipt in receipts:
                    _tell(receipt, error)
            self._receipts.clear()
            self._changed.wake()

    # A session of messages that only leave.

    def deliver(self, payload: bytes, destination: str = "") -> None: ...

    def deliver_from(self, payload: bytes) -> None: ...

    def consumer_closed(self, news: ConsumerClosed) -> None: ...

    def browse_ended(self, number: int) -> None: ...

    def settled(self, number: int) -> None: ...

    def recalled(self, number: int, tags: list[tuple[int, int]]) -> None: ...

    # ---- the end

    async def leave(self, *, complete: bool) -> None:
        """Close: all is stored, and forwarded as far as the server takes it soon."""
        if self._is_closed:
            return
        self._is_closed = True
        wire = self._link.wire
        try:
            if complete and wire is not None and self._ended is None:
                await self._forward_the_rest()
            if wire is not None and self._ended is None and not self._ledger.messages:
                await self._say_goodbye(wire)
        finally:
            await self._forwarder.close()
            self._ledger.attached = False
            await self._writer.close()
            self.end(ClientFault("the connection is closed", code="closed"))

    async def _forward_the_rest(self) -> None:
        try:
            async with asyncio.timeout(FORWARD_CLOSE_SECONDS):
                await self._writer.durable()
                while self._forwarder.is_attached and self._is_moving:
                    await self._changed.wait()
        except (TimeoutError, HeliographError):
            pass  # the rest stays

    @property
    def _is_moving(self) -> bool:
        """Whether anything waits that the server does not refuse."""
        return any(way.lane.waiting and way.held is None for way in self._forwarder.ways())

    async def _say_goodbye(self, wire: Wire) -> None:
        """Everything has arrived, and the store knows: neither end needs the session any more."""
        try:
            async with asyncio.timeout(FORWARD_CLOSE_SECONDS):
                await self._writer.durable(state=True)
                await wire.request(CloseSession(request=0, number=AGENT_NUMBER), Completed)
                self._ledger.begin_session(b"", b"")
        except (TimeoutError, HeliographError):
            pass  # it is resumed the next time, or forgotten in time


def _tell(receipt: Any, error: HeliographError | None, identity: str = "") -> None:
    """What became of a message, to a future that waits for its id or to an `OnCompletion`."""
    if not isinstance(receipt, asyncio.Future):
        try:
            receipt(error)
        except Exception:
            log.exception("an on_completion callback failed")
    elif not receipt.done():
        if error is None:
            receipt.set_result(identity)
        else:
            receipt.set_exception(renewed(error))


async def open_agent(link: Link, folder: Path, limit_bytes: int) -> Agent:
    """Open a store, new or left by another process. Raises CorruptJournal, and Unavailable `store-in-use`."""
    files, ledger = await asyncio.get_running_loop().run_in_executor(None, _opened, folder)
    agent = Agent(link, files, ledger, limit_bytes)
    if files.cut_bytes:
        link.report(
            Unavailable(
                f"the store {folder} ended in {files.cut_bytes} bytes of an unfinished write, which were cut",
                code="store-cut",
            )
        )
    return agent
