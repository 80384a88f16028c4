"""Does for a client of another protocol what our library does for its own: one session, in which messages are
numbered, gathered into blocks and confirmed, and requests are paired with their answers.

A conversation (STOMP, MQTT, AMQP, HTTP) puts messages and asks; what is to be done about it collects in
`happenings`, which the conversation hands to the shell. Which bytes a client sends and gets is no business of
this module.

    put ──▶ lane, opened on first use ──▶ Publish ──▶ Confirm ──▶ on_stored(receipts)
                  └── refused ──▶ on_refused(receipts, why)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from heliograph.bus.commands import BY_POLICY
from heliograph.frontends.conversation import AnyHappening, Commanded, Requested
from heliograph.frontends.native import frames
from heliograph.frontends.outgoing_lane import OutgoingLane
from heliograph.frontends.prepared import Prepared
from heliograph.model.errors import ClientFault, from_code
from heliograph.model.ids import SessionId, lane_of
from heliograph.model.limits import FOREIGN_HELD_BYTES, MAX_ERROR_LENGTH, MAX_LANES_PER_SESSION
from heliograph.sessions import commands
from heliograph.sessions.commands import AnyCommand, AnySessionEffect, Fail

Ranges = list[tuple[int, int]]
Answer = commands.Done | commands.Tell | Fail
SESSION = 0
"""The number of the one session of such a connection."""


class Sending(msgspec.Struct):
    """A transaction that is to be committed: what it sends and what it consumes."""

    messages: list[tuple[str, Prepared]]
    consumed: list[tuple[int, Ranges]]
    on_answer: Callable[[Answer], None]


class _AlertLane(msgspec.Struct):
    """By which the alerts to one channel are named."""

    number: int
    last: int = 0
    under_way: int = 0
    is_used: bool = False  # one of them is published, or may be


class Proxy:
    """The part of our library, played by the server."""

    def __init__(
        self,
        *,
        on_stored: Callable[[list[Any]], None],
        on_refused: Callable[[list[Any], Fail], None],
    ) -> None:
        """`on_stored`: the messages that these receipts were for are stored. `on_refused`: they are not; where
        a lane was refused of which nobody wanted a receipt, with an empty list."""
        self._on_stored = on_stored
        self._on_refused = on_refused
        self._happenings: list[AnyHappening] = []
        self._session: SessionId | None = None
        self._lanes: dict[tuple[str, bool], OutgoingLane] = {}
        self._numbered: dict[int, OutgoingLane] = {}
        self._last_lane = 0
        self._unused_lanes: list[int] = []  # that were to lead somewhere, which was refused
        self._alerts: dict[str, _AlertLane] = {}  # by channel
        self._opening: dict[int, list[Callable[[Fail | None], None]]] = {}
        self._unsealed: dict[OutgoingLane, None] = {}
        self._last_request = 0
        self._last_consumer = 0
        self._answers: dict[int, Callable[[Answer], None]] = {}
        self._settling: deque[tuple[int, Callable[[], None]]] = deque()
        self._committing: deque[Sending] = deque()
        self._last_transaction = 0
        self.now = 0

    # ---- what is to be done

    def take(self) -> list[AnyHappening]:
        """Everything that has to be carried out now, in order."""
        self._publish()
        happenings, self._happenings = self._happenings, []
        return happenings

    def add(self, happening: AnyHappening) -> None:
        self._happenings.append(happening)

    def command(self, command: AnyCommand) -> None:
        """Whatever was sent before it comes before it."""
        self._publish()
        self._happenings.append(Commanded(SESSION, command))

    def ask(self, on_answer: Callable[[Answer], None]) -> int:
        """The number of a request; what to do with its answer."""
        self._last_request += 1
        self._answers[self._last_request] = on_answer
        return self._last_request

    def answered_elsewhere(self, request: int) -> None:
        """It is not the session that answers."""
        self._answers.pop(request, None)

    def new_consumer(self) -> int:
        """A number for a consumer."""
        self._last_consumer += 1
        return self._last_consumer

    def open_session(self) -> None:
        self._last_request += 1
        self._happenings.append(Requested(frames.OpenSession(self._last_request, SESSION)))

    def opened(self, message: frames.SessionOpened) -> None:
        self._session = SessionId(message.session)

    @property
    def is_idle(self) -> bool:
        """Nothing that was sent or asked is under way."""
        return (
            not self._answers
            and not self._settling
            and not self._committing
            and all(lane.is_done for lane in self._numbered.values())
        )

    @property
    def is_full(self) -> bool:
        """As much waits for lanes to be opened, or for destinations that asked to wait, as may."""
        return bool(self._unsealed) and sum(lane.size for lane in self._unsealed) > FOREIGN_HELD_BYTES

    @property
    def is_blocked(self) -> bool:
        """Something waits because its destination asks to wait."""
        return any(lane.blocked for lane in self._unsealed)

    # ---- sending

    def put(self, address: str, message: Prepared, receipt: Any = None) -> None:
        """Raises ClientFault where there are too many destinations."""
        lane = self._lanes.get((address, False)) or self._open_lane(address, staged=False)
        lane.put(message, receipt)
        self._unsealed[lane] = None

    def open_lane(self, address: str, on_answer: Callable[[Fail | None], None] | None = None) -> None:
        """Get ready to send there. `on_answer`: whether that can be; None: it can. Raises ClientFault."""
        lane = self._lanes.get((address, False)) or self._open_lane(address, staged=False)
        if on_answer is None:
            return
        if lane.identity is not None:
            on_answer(None)
        else:
            self._opening.setdefault(lane.number, []).append(on_answer)

    def asks_to_wait(self, address: str) -> bool:
        """Whether a destination asked to wait."""
        lane = self._lanes.get((address, False))
        return lane is not None and bool(lane.blocked)

    def _new_lane(self) -> int:
        """The number of one that never led anywhere: a lane and a sequence name one message for ever."""
        if self._unused_lanes:
            return self._unused_lanes.pop()
        if self._last_lane >= MAX_LANES_PER_SESSION:
            raise ClientFault(
                f"a connection sends to at most {MAX_LANES_PER_SESSION} destinations", code="lane-invalid"
            )
        self._last_lane += 1
        return self._last_lane

    def next_alert(self, address: str) -> tuple[int, int]:
        """Lane and sequence by which the next alert to a channel is named. Raises ClientFault."""
        lane = self._alerts.get(address)
        if lane is None:
            lane = self._alerts[address] = _AlertLane(self._new_lane())
        lane.last += 1
        lane.under_way += 1
        return lane.number, lane.last

    def alert_answered(self, address: str, answer: Answer) -> None:
        """What became of one that was named. A lane of which none was published names nothing yet, so it may lead
        elsewhere; what the world refused may be there all the same."""
        lane = self._alerts[address]
        lane.under_way -= 1
        if not isinstance(answer, Fail) or not isinstance(from_code(answer.code, ""), ClientFault):
            lane.is_used = True
        if not lane.under_way and not lane.is_used:
            del self._alerts[address]
            self._unused_lanes.append(lane.number)

    def _open_lane(self, address: str, *, staged: bool) -> OutgoingLane:
        lane = OutgoingLane(self._new_lane(), address, staged=staged)
        self._lanes[address, staged] = self._numbered[lane.number] = lane
        request = self.ask(lambda answer: self._lane_answered(lane, answer))
        self._happenings.append(Commanded(SESSION, commands.OpenLane(request, lane.number, address)))
        return lane

    def _lane_answered(self, lane: OutgoingLane, answer: Answer | commands.LaneReady) -> None:
        waiting = self._opening.pop(lane.number, [])
        if isinstance(answer, Fail):
            self._unused_lanes.append(lane.number)
            self._give_up(lane, answer)
        else:
            assert self._session is not None
            lane.identity = lane_of(self._session, lane.number)
            self._commit_what_can()
        for on_answer in waiting:
            on_answer(answer if isinstance(answer, Fail) else None)

    def _give_up(self, lane: OutgoingLane, why: Fail) -> None:
        """The next message to its destination is tried on another lane."""
        self._numbered.pop(lane.number, None)
        if self._lanes.get((lane.address, lane.staged)) is lane:
            del self._lanes[lane.address, lane.staged]
        self._unsealed.pop(lane, None)
        if lane.staged:
            self._fail_commits(lane, why)
        else:
            self._on_refused(lane.give_up(), why)

    def flush(self) -> None:
        """What was put leaves, as far as it can."""
        self._publish()

    def _publish(self) -> None:
        if not self._unsealed:
            return
        ready = [lane for lane in self._unsealed if lane.is_ready]
        for lane in ready:
            del self._unsealed[lane]
            self._seal(lane)

    def _seal(self, lane: OutgoingLane) -> None:
        for block in lane.seal(self.now):
            self._happenings.append(Commanded(SESSION, commands.Publish(block, False, lane.staged)))

    # ---- transactions

    def commit(self, sending: Sending) -> None:
        """All of it takes effect, or nothing."""
        for address, _ in sending.messages:
            if (address, True) not in self._lanes:
                self._open_lane(address, staged=True)
        self._publish()
        self._committing.append(sending)
        self._commit_what_can()

    def _commit_what_can(self) -> None:
        """One after the other, each when all its lanes are open."""
        while self._committing:
            sending = self._committing[0]
            lanes = [self._lanes[address, True] for address, _ in sending.messages]
            if any(lane.identity is None for lane in lanes):
                return
            self._committing.popleft()
            for lane, (_, message) in zip(lanes, sending.messages, strict=True):
                lane.put(message)
            for lane in dict.fromkeys(lanes):
                self._seal(lane)
            self._last_transaction += 1
            request = self.ask(sending.on_answer)
            count = len(sending.messages)
            commit = commands.Commit(request, self._last_transaction, count, sending.consumed)
            self._happenings.append(Commanded(SESSION, commit))

    def _fail_commits(self, lane: OutgoingLane, why: Fail) -> None:
        lane.give_up()
        failed = [
            sending
            for sending in self._committing
            if any(address == lane.address for address, _ in sending.messages)
        ]
        for sending in failed:
            self._committing.remove(sending)
            sending.on_answer(why)
        self._commit_what_can()

    # ---- settling

    def settle(
        self,
        consumer: int,
        ranges: Ranges,
        *,
        returned: bool = False,
        on_settled: Callable[[], None] | None = None,
        replenish: bool = True,
        error: str = "",
        fate: int = BY_POLICY,
    ) -> None:
        if not ranges:
            return
        confirm = on_settled is not None
        if on_settled is not None:
            self._settling.append((consumer, on_settled))
        self.command(
            commands.Settle(
                consumer, returned, ranges, replenish, confirm, error[:MAX_ERROR_LENGTH], fate=fate
            )
        )

    def echo(self, consumer: int, on_answer: Callable[[], None]) -> None:
        """To be told when a consumer's destination has heard all that was said, and all that it said meanwhile is
        here."""
        self._settling.append((consumer, on_answer))
        self.command(commands.Settle(consumer, False, [], False, True))

    # ---- what the session says

    def tell(self, effect: AnySessionEffect) -> bool:
        """Whether it was for us; if not, it is for the conversation."""
        if type(effect) is commands.Confirm:
            lane = self._numbered.get(effect.lane)
            if lane is not None:
                receipts = lane.confirm(effect.last)
                if receipts:
                    self._on_stored(receipts)
            return True
        if isinstance(effect, commands.LaneReady | commands.Done | commands.Tell | Fail):
            answered = self._answers.pop(effect.request, None)
            if answered is not None:
                answered(effect)  # type: ignore[arg-type]
            return True
        return self._tell_rarer(effect)

    def _tell_rarer(self, effect: AnySessionEffect) -> bool:
        match effect:
            case commands.RefuseLane(number, _, code, sentence):
                lane = self._numbered.get(number)
                if lane is not None:
                    self._give_up(lane, Fail(0, code, sentence))
            case commands.TellBlocked(address, reason):
                for lane in self._lanes.values():
                    if lane.address == address and not lane.staged:
                        lane.blocked = reason
            case commands.TellDistributed(request, distribution):
                members = ", ".join(distribution.members)
                sentence = (
                    f"this destination is distributed: name a member of it, DESTINATION@ one of {members}"
                )
                return self.tell(Fail(request, "destination-distributed", sentence))
            case commands.SettlementStored(consumer):
                self._settled(consumer)
            case _:
                return False
        return True

    def forget(self, consumer: int) -> None:
        """A consumer is gone: nobody answers for it any more."""
        self._settling = deque(each for each in self._settling if each[0] != consumer)

    def _settled(self, consumer: int) -> None:
        """Answers come in the order asked, for each consumer."""
        for index, (asked, on_settled) in enumerate(self._settling):
            if asked == consumer:
                del self._settling[index]
                on_settled()
                return
