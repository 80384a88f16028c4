"""The other side of a conversation: answers as a server would that has everything and refuses nothing."""

from __future__ import annotations

from collections import deque

from heliograph.frontends.conversation import (
    Answered,
    AnyHappening,
    Broken,
    Claimed,
    Commanded,
    Conversation,
    Encrypted,
    Greeted,
    Keepsake,
    Left,
    Parts,
    Recognised,
    Requested,
    Wondered,
)
from heliograph.frontends.native import frames
from heliograph.model import block
from heliograph.model.alert import AlertHeader, AlertView
from heliograph.model.block import Span, parse_trusted
from heliograph.model.errors import ProtocolFault
from heliograph.model.ids import SessionId, lane_number, lane_of
from heliograph.sessions import commands
from heliograph.sessions.commands import AnySessionEffect

SESSION = SessionId(b"\1" * 14 + b"\0\0")
WELCOME = frames.Welcome(1, "server", "guest", 10.0)
OTHERS_LANE = lane_of(SessionId(b"\2" * 14 + b"\0\0"), 1)
_MOST_STEPS = 10_000


ALERT = AlertView(bytes(12), AlertHeader("TAG:a"), "somebody", 1, b"body")
FILE = bytes(16)


class Desk:
    """Carries out what a conversation wants, and remembers what it was."""

    def __init__(self, conversation: Conversation, *, delivers: int = 3) -> None:
        """`delivers`: so many messages come for each consumer."""
        self.conversation = conversation
        self.commands: list[commands.AnyCommand] = []
        self.said: list[bytes] = []
        self.is_over = False
        self._delivers = delivers
        self._waiting: deque[AnyHappening] = deque()
        self._sessions: set[int] = set()

    def receive(self, data: bytes) -> None:
        """Some bytes of the client."""
        if not self.is_over:
            self._carry_out(self.conversation.receive(data, 1_700_000_000_000_000))
        if not self.is_over:
            self._carry_out(self.conversation.written())

    def _carry_out(self, happenings: object) -> None:
        self._waiting.extend(happenings)  # type: ignore[arg-type]
        for _ in range(_MOST_STEPS):
            if not self._waiting or self.is_over:
                return
            self._happen(self._waiting.popleft())
        raise AssertionError("it goes on for ever")

    def _happen(self, happening: AnyHappening) -> None:
        conversation = self.conversation
        match happening:
            case Greeted():
                self.said.append(conversation.admit(WELCOME))
                self._waiting.extend(conversation.begin())
            case Wondered():
                self.said.append(conversation.offer(["PLAIN", "ANONYMOUS"]))
            case Claimed(name):
                keepsake: Keepsake | None = None
                self._waiting.extend(conversation.claimed(name or "named", keepsake))
            case Requested(message):
                self._answer(message)
            case Recognised(recognised, rest):
                self.conversation = recognised
                self._waiting.extend(recognised.receive(rest, 0))
            case Answered(data):
                self.said.append(data)
            case Broken(_, farewell):
                self.said.append(farewell)
                self.is_over = True
            case Left():
                self.is_over = True
            case Encrypted():
                self.is_over = True  # nobody here has a certificate
            case Commanded(number, _) if number not in self._sessions:
                unknown = ProtocolFault(f"session {number} is not open", code="session-unknown")
                self._waiting.clear()
                self._waiting.append(conversation.break_off(unknown))
            case Commanded(_, command):
                self.commands.append(command)
                for effect in self._effects(command):
                    self.tell(effect)

    def tell(self, effect: AnySessionEffect) -> None:
        """What is said meanwhile comes behind what was to be said before, as with a connection."""
        parts: Parts = []
        caused = self.conversation.tell(0, effect, parts)
        if parts and any(isinstance(each, Answered) for each in self._waiting):
            self._waiting.append(Answered(b"".join(parts)))
        else:
            self.said.extend(map(bytes, parts))
        self._waiting.extend(caused)

    def time_passes(self) -> None:
        """A second, or about that."""
        self._carry_out(self.conversation.time_passed(1_700_000_001_000_000))

    def _answer(self, message: object) -> None:
        parts: Parts = []
        if isinstance(message, frames.CloseSession):
            self._sessions.discard(message.number)
        elif isinstance(message, frames.OpenSession):
            self._sessions.add(message.number)
            opened = frames.SessionOpened(message.request, SESSION, b"token")
            self._waiting.extend(self.conversation.say(opened, parts))
        elif isinstance(message, frames.Ask):
            own = frames.Answer(
                message.request, {"subscriptions": ["mqtt:1:a/+ → topic:regex:^a/[^/]*$", "other"]}
            )
            self._waiting.extend(self.conversation.say(own, parts))
        self.said.extend(map(bytes, parts))

    def _effects(self, command: commands.AnyCommand) -> list[AnySessionEffect]:
        match command:
            case commands.OpenLane(request):
                return [commands.LaneReady(request, 0)]
            case commands.Publish(published):
                assert block.verify_checksum(published.buffer or b"")
                return [commands.Confirm(lane_number(published.lane), published.last)]
            case commands.Subscribe(request, consumer, browse=browse):
                delivered = [self._delivery(consumer)] if self._delivers else []
                return [
                    commands.Done(request),
                    *delivered,
                    *([commands.EndBrowse(consumer)] if browse else []),
                ]
            case commands.MakeTemporary(request, kind):
                return [commands.Tell(request, {"destination": f"{kind}:_temporary.1"})]
            case commands.FindDestinations(request):
                return [commands.Tell(request, {"destinations": ["queue:$retained/a/b"]})]
            case commands.Settle(consumer, confirm=True):
                return [commands.SettlementStored(consumer)]
            case commands.AttachAlerts(request, consumer):
                return [commands.Done(request), commands.HandAlert(consumer, ALERT)]
            case commands.PublishAlert(request) | commands.AcknowledgeAlert(request):
                return [commands.Tell(request, {"id": ALERT.id})]
            case commands.BeginUpload(request):
                return [commands.Tell(request, {"file": FILE, "offset": 0})]
            case commands.SendChunk(transfer, offset, data):
                return [commands.TellAdvance(transfer, offset + len(data), 0)]
            case (
                commands.Unsubscribe(request)
                | commands.Retire(request)
                | commands.EndSubscription(request)
                | commands.Commit(request)
                | commands.Rollback(request)
                | commands.Recover(request)
                | commands.CancelAlert(request)
                | commands.TakeAlerts(request)
                | commands.DetachAlerts(request)
                | commands.EndUpload(request)
            ):
                return [commands.Done(request)]
        return []

    def _delivery(self, consumer: int) -> commands.Deliver:
        bodies = [b"body %d" % number for number in range(self._delivers)]
        buffer = block.pack(bodies, lane=OTHERS_LANE, first=1, timestamp=1)
        return commands.Deliver(consumer, 1, Span(parse_trusted(buffer), 0, len(bodies)), "somebody")
