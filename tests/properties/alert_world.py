"""A channel with all that surrounds it, in small: a journal, clients with inboxes, wires between them, time.

Clients are libraries as they have to be: they drop what they were told to drop, hand over the most urgent first, say
what they took until it is stored, and hand nothing over once they must have noticed that they are cut off. What the
world knows by itself, in plain sets and lists, is what the channel is judged by.
"""

from __future__ import annotations

import functools
from collections import deque
from typing import Any

import msgspec

from heliograph.bus.commands import (
    AlertAcknowledged,
    AlertCancelled,
    AlertHanded,
    AlertPublished,
    AlertReceipted,
    AlertsAttached,
    AlertsDetached,
    AlertsTaken,
    AlertTopicsChanged,
    AlertWithdrawn,
    Answered,
    Command,
    Rejected,
)
from heliograph.destinations.alerts.channel import AlertChannel
from heliograph.destinations.alerts.replay import machine_was_lost, replay, restore, state_of
from heliograph.destinations.effects import Announce, AnyEffect, Continue, Multicast, StoreAlert, Wake, Write
from heliograph.destinations.events import AlertRefused, AlertStored, AttendantsLost, TimeCame, TurnCame
from heliograph.journal.records import RecordKind
from heliograph.model.alert import (
    AcknowledgePolicy,
    AlertHeader,
    AlertType,
    AlertView,
    CancelPolicy,
    identity_of,
)
from heliograph.model.alert_topics import Prefix, Topic, parse_destination
from heliograph.model.destination import Address
from heliograph.model.ids import IdIssuer, LaneId, SessionId, lane_of
from heliograph.model.patterns import compile_regex

OPS = Address("alerts:ops")
SECOND = 1_000_000
DOUBT = 40 * SECOND
Wish = tuple[int, str, str]
_MACHINE_LOST = -1
_MANY_ROUNDS = 10_000


_compiled = functools.cache(compile_regex)


@functools.cache
def meant(wish: Wish, header: AlertHeader) -> bool:
    """The obvious way to match."""
    kind, prefix, text = wish
    destination = parse_destination(header.destination)
    if kind != header.type or prefix != destination.prefix:
        return False
    if prefix != Prefix.TAG:
        return Topic(Prefix(prefix), text) == destination
    return _compiled(text).search(destination.text) is not None


class Sent(msgspec.Struct, eq=False):
    """An alert as its producer knows it."""

    header: AlertHeader
    user: str
    lane: LaneId
    sequence: int
    id: bytes
    order: int = 0  # in which alerts were confirmed, or seen to be live
    expiry: int = 0
    is_lost: bool = False  # not persistent, and there was a crash
    cancelled: bool = False  # asked for
    cancel_confirmed: bool = False

    def is_live(self, now: int) -> bool:
        return bool(self.order) and not (self.is_lost or self.cancelled or 0 < self.expiry <= now)


class Desk(msgspec.Struct, eq=False):
    """A subscriber's client library and application, in all their lives."""

    user: str
    name: str
    clearance: int
    credit: int
    number: int
    session: SessionId
    topics: dict[Wish, None]
    inbox: dict[bytes, AlertView] = {}
    took: dict[bytes, None] = {}  # and the server has not said that it knows
    wire_in: deque[Command] = msgspec.field(default_factory=deque)
    wire_out: deque[Any] = msgspec.field(default_factory=deque)
    is_connected: bool = False  # as the client believes
    is_cut: bool = False
    cut_at: int = 0
    server_noticed: bool = True
    received: list[bytes] = []  # by the application, ever
    confirmed_topics: dict[Wish, None] = {}  # what it is sure not to be handed anything beyond
    changing: dict[int, list[Wish]] = {}
    closing: int = 0
    is_closed: bool = False
    is_attached: bool = False  # and was answered

    @property
    def key(self) -> tuple[str, str]:
        return self.user, self.name


class AlertWorld:
    """One channel."""

    def __init__(self) -> None:
        self.now = 1000 * SECOND
        self.issuer = IdIssuer(site=1, node=1, started_ms=1)
        self.records: list[tuple[int, bytes]] = []
        self.stored = 0  # records that are on disk
        self.storing: deque[tuple[int, int]] = deque()  # records, index
        self.announcing: deque[tuple[int, Command]] = deque()
        self.snapshot: tuple[int, bytes] | None = None
        self.tokens: dict[SessionId, bytes] = {}
        self.requests: dict[int, tuple[str, Any]] = {}
        self.next_request = 0
        self.sent: list[Sent] = []
        self.by_id: dict[bytes, Sent] = {}
        self.next_order = 0
        self.desks: list[Desk] = []
        self.receipts: list[tuple[bytes, str, str]] = []
        self.producer = self._session()
        self.sequence = 0
        self.turn_due = False
        self.disk_full = False
        self.channel = self._fresh()

    def _session(self) -> SessionId:
        session = self.issuer.session()
        self.tokens[session] = b"token of" + session
        return session

    def _fresh(self) -> AlertChannel:
        channel = AlertChannel(OPS, 7, token_of=lambda session: self.tokens.get(session, b""), doubt=DOUBT)
        channel.publishing.endless_limit = 1000
        return channel

    def ask(self, kind: str, what: Any) -> int:
        self.next_request += 1
        self.requests[self.next_request] = (kind, what)
        return self.next_request

    # ---- the shell

    def handle(self, event: Any) -> None:
        self.run(self.channel.handle(event, self.now))

    def run(self, effects: list[AnyEffect]) -> None:
        for effect in effects:
            match effect:
                case Write(kind, payload, _):
                    self.records.append((kind, payload))
                case StoreAlert(index, payload):
                    self._store(index, payload)
                case Multicast(command):
                    self.hear(command)
                case Announce(command):
                    self.announcing.append((len(self.records), command))
                case Continue():
                    self.turn_due = True
                case Wake():
                    pass
                case _:
                    raise AssertionError(f"nobody carries out {effect}")

    def _store(self, index: int, payload: bytes) -> None:
        if self.disk_full:
            self.handle(AlertRefused(index, "storage-full", "no room"))
            return
        self.records.append((RecordKind.ALERT, payload))
        self.storing.append((len(self.records), index))

    def sync(self) -> None:
        """The disk has all that was written, and says so."""
        while self.stored < len(self.records) or self.storing or self.announcing:
            self.stored = len(self.records)
            while self.storing and self.storing[0][0] <= self.stored:
                self.handle(AlertStored(self.storing.popleft()[1]))
            while self.announcing and self.announcing[0][0] <= self.stored:
                self.hear(self.announcing.popleft()[1])

    def turn(self) -> None:
        self.turn_due = False
        self.handle(TurnCame())

    def tick(self, microseconds: int) -> None:
        self.now += microseconds
        for desk in self.desks:
            if desk.is_cut and desk.is_connected and self.now >= desk.cut_at + DOUBT:
                self.notice(desk)
        self.handle(TimeCame())

    def take_snapshot(self) -> None:
        self.snapshot = (len(self.records), state_of(self.channel))

    def crash(self, keep: int) -> None:
        """The server ends with so many records more than it was sure of, and another begins with them."""
        kept = min(len(self.records), self.stored + keep)
        if self.snapshot is not None and self.snapshot[0] > kept:
            kept = self.snapshot[0]
        is_lost = kept < len(self.records)
        self.records = self.records[:kept]
        self.stored = kept
        self.storing.clear()
        self.announcing.clear()
        for desk in self.desks:
            desk.wire_in.clear()
            desk.wire_out.clear()
            if desk.is_connected and not desk.is_cut:
                self.notice(desk)
            desk.is_cut, desk.server_noticed = desk.is_connected, True
            if desk.is_cut:
                desk.cut_at = min(desk.cut_at or self.now, self.now)
        for sent in self.sent:
            sent.is_lost = sent.is_lost or (bool(sent.order) and not sent.header.persistent)
        if is_lost:  # with the machine
            self.records.append((_MACHINE_LOST, b""))
            self.stored += 1
        self.channel = self._recovered()
        self.turn_due = False
        self._say_again()

    def _recovered(self) -> AlertChannel:
        channel, start = self._fresh(), 0
        if self.snapshot is not None and self.snapshot[0] <= len(self.records):
            start = self.snapshot[0]
            restore(channel, self.snapshot[1])
        for kind, payload in self.records[start:]:
            if kind == _MACHINE_LOST:
                machine_was_lost(channel)
            else:
                replay(channel, kind, payload)
        return channel

    def _say_again(self) -> None:
        """What producers and cancellers have no answer to they ask again."""
        for request, (kind, what) in list(self.requests.items()):
            if kind == "publish":
                del self.requests[request]
                self.send_again(what)
            elif kind == "cancel":
                del self.requests[request]
                self.ask_cancel(*what)
            else:
                del self.requests[request]

    # ---- producers

    def publish(self, header: AlertHeader, user: str, clearance: int = 3) -> Sent:
        self.sequence += 1
        sent = self._new(header, user)
        self.sent.append(sent)
        self.send_again(sent, clearance)
        return sent

    def _new(self, header: AlertHeader, user: str) -> Sent:
        lane = lane_of(self.producer, 1)
        identity = identity_of(self.tokens[self.producer], lane, self.sequence)
        sent = self.by_id[identity] = Sent(header, user, lane, self.sequence, identity)
        return sent

    def send_again(self, sent: Sent, clearance: int = 3) -> None:
        request = self.ask("publish", sent)
        self.handle(
            AlertPublished(
                request, OPS, True, sent.lane, sent.sequence, sent.header, b"", sent.user, clearance
            )
        )

    def acknowledge(self, alert: Sent, user: str) -> Sent:
        self.sequence += 1
        header = msgspec.structs.replace(
            alert.header,
            type=AlertType.ACKNOWLEDGEMENT,
            acknowledge_policy=0,
            cancel_policy=CancelPolicy.ORIGINATOR,  # whatever the alert's is
            correlation=alert.id,
        )
        sent = self._new(header, user)
        request = self.ask("acknowledge", (sent, alert))
        self.handle(AlertAcknowledged(request, OPS, sent.lane, sent.sequence, alert.id, b"ACK", user, 3))
        return sent

    def cancel(self, sent: Sent, user: str) -> None:
        if sent.order:
            self.ask_cancel(sent, user)

    def ask_cancel(self, sent: Sent, user: str) -> None:
        may = sent.header.cancel_policy == CancelPolicy.ANY or user == sent.user
        if may:
            sent.cancelled = True
            for other in self.sent:
                if other.header.correlation == sent.id:
                    other.cancelled = True
        self.handle(AlertCancelled(self.ask("cancel", (sent, user)), OPS, sent.id, user, 3))

    # ---- what everybody hears

    def hear(self, command: Command) -> None:
        match command:
            case AlertHanded(alert, recipients):
                if not self.by_id[alert.id].order:
                    self._is_live(self.by_id[alert.id])
                self._judge_order(alert, recipients)
                for session, number, again in recipients:
                    view = msgspec.structs.replace(alert, again=again)
                    self._to(session, number, AlertHanded(view, []))
            case AlertWithdrawn(_, withdrawn_from):
                for session, number in withdrawn_from:
                    self._to(session, number, command)
            case AlertReceipted():
                self.receipts.append((command.alert, command.user, command.name))
            case Answered(request, body):
                self._answered(request, body)
            case Rejected(request):
                self._rejected(request, command)
            case _:
                raise AssertionError(f"nobody hears {command}")

    def _to(self, session: SessionId, number: int, command: Command) -> None:
        for desk in self.desks:
            if (desk.session, desk.number) == (session, number) and not desk.is_cut:
                desk.wire_in.append(command)

    def _answered(self, request: int, body: dict[str, Any]) -> None:
        kind, what = self.requests.pop(request, ("", None))
        if kind == "publish":
            self._confirmed(what, body["id"])
        elif kind == "acknowledge":
            sent, alert = what
            wanted = alert.header.acknowledge_policy == AcknowledgePolicy.CLIENT
            assert wanted != body.get("discarded", False), "only what was asked for is kept (A3)"
            if wanted:
                self.sent.append(sent)
                self._confirmed(sent, body["id"])
                sent.expiry = alert.expiry
                sent.cancelled = not alert.is_live(self.now)
        elif kind == "cancel":
            what[0].cancel_confirmed = True
        elif kind and not what.is_cut:
            what.wire_in.append(Answered(request, {"kind": kind, **body}))

    def _confirmed(self, sent: Sent, identity: bytes) -> None:
        assert sent.id == identity, "server and producer have the same id"
        if not sent.order:
            self._is_live(sent)

    def _is_live(self, sent: Sent) -> None:
        self.next_order += 1
        sent.order = self.next_order
        alert = self.channel.facts.named(sent.id)
        if alert is not None:
            sent.expiry = alert.expiry
        else:  # it is over already
            sent.cancelled = True

    def _rejected(self, request: int, command: Rejected) -> None:
        kind, what = self.requests.pop(request, ("", None))
        if kind == "cancel":
            sent, user = what
            may = sent.header.cancel_policy == CancelPolicy.ANY or user == sent.user
            assert not may or command.code == "alert-unknown"
            assert may or command.code in ("not-allowed", "alert-unknown")
            if may:
                assert sent.is_lost or not sent.header.persistent or sent.cancelled or sent.expiry
        elif kind == "publish":
            assert command.code == "storage-full"
        elif kind == "acknowledge":
            assert command.code in ("alert-unknown", "storage-full")
        elif kind == "attach" and not what.is_cut:
            assert command.code == "subscription-in-use"
            what.wire_in.append(Answered(request, {"kind": "refused"}))

    # ---- judging

    def wanted(self, desk: Desk, sent: Sent) -> bool:
        return sent.header.classification <= desk.clearance and any(
            meant(wish, sent.header) for wish in desk.topics
        )

    def _judge_order(self, view: AlertView, recipients: list[tuple[SessionId, int, bool]]) -> None:
        """What is handed out comes before all that the channel could hand out instead."""
        facts = self.channel.facts
        alert = facts.named(view.id)
        assert alert is not None
        for session, number, _ in recipients:
            subscriber = facts.subscribers.attached_as(session, number)
            assert subscriber is not None
            assert alert.is_visible(subscriber.clearance), "nobody sees what they are not cleared for"
            for other in facts.live:
                better = other.rank < alert.rank and not 0 < other.expiry <= self.now
                known = subscriber.number in other.taken or other.index in subscriber.handed
                header = other.header
                if better and not known and header.classification <= subscriber.clearance:
                    wishes = [(kind, str(topic.prefix), topic.text) for kind, topic in subscriber.wishes]
                    assert not any(meant(wish, header) for wish in wishes), (
                        f"{alert.rank} went to {subscriber.label} before {other.rank}"
                    )

    # ---- clients

    def open(self, user: str, name: str, clearance: int, credit: int, topics: list[Wish]) -> Desk:
        number = len(self.desks) + 1
        desk = Desk(user, name, clearance, credit, number, self._session(), dict.fromkeys(topics))
        former = next((each for each in self.desks if each.key == desk.key and name), None)
        if former is not None:
            desk.received = former.received
        self.desks.append(desk)
        self.connect(desk)
        return desk

    def connect(self, desk: Desk) -> None:
        if desk.is_closed or desk.is_connected:
            return
        if not desk.server_noticed:  # the session is resumed before its old connection was seen to be dead
            self.server_notices(desk)
        desk.is_connected, desk.is_cut, desk.cut_at, desk.server_noticed = True, False, 0, True
        desk.changing.clear()
        # What it wrote before it noticed the cut is lost. It asks to be detached again; the rest the attachment says.
        desk.wire_out = deque(word for word in desk.wire_out if word[0] == "detach")
        desk.is_attached, desk.confirmed_topics = False, dict(desk.topics)
        request = self.ask("attach", desk)
        self.handle(
            AlertsAttached(
                request,
                OPS,
                True,
                desk.session,
                desk.number,
                desk.user,
                desk.name,
                desk.clearance,
                desk.credit,
                list(desk.topics),
                list(desk.inbox),
                list(desk.took),
            )
        )

    def cut(self, desk: Desk) -> None:
        """Nothing more gets through, either way. Nobody has noticed yet."""
        if desk.is_connected and not desk.is_cut:
            desk.is_cut, desk.cut_at, desk.server_noticed = True, self.now, False
            desk.wire_in.clear()
            desk.wire_out.clear()

    def notice(self, desk: Desk) -> None:
        """The client sees that it has no connection."""
        if desk.is_connected:
            if not desk.is_cut:
                self.cut(desk)
            desk.is_connected = desk.is_attached = False

    def server_notices(self, desk: Desk) -> None:
        if desk.is_cut and not desk.server_noticed:
            desk.server_noticed = True
            self.handle(AttendantsLost(desk.session, self.now + DOUBT))

    def die(self, desk: Desk) -> None:
        """The process of a client ends, and all that it knew. The server sees the connection end."""
        if desk.is_closed:
            return
        self.cut(desk)
        self.server_notices(desk)
        desk.is_connected, desk.is_closed = False, True
        desk.inbox.clear()
        desk.wire_out.clear()  # it may have spoken before it noticed the cut

    def deliver(self, desk: Desk) -> None:
        """The client reads one frame."""
        if not desk.wire_in or desk.is_cut:
            return
        command = desk.wire_in.popleft()
        match command:
            case AlertHanded(alert):
                if alert.id in desk.took:
                    self._say_taken(desk, [alert.id], [])  # it was taken, and the server had not heard
                else:
                    desk.inbox[alert.id] = alert
            case AlertWithdrawn(identity):
                desk.inbox.pop(identity, None)
                self._say_taken(desk, [], [identity])
            case Answered(_, body):
                self._client_answered(desk, body)

    def _client_answered(self, desk: Desk, body: dict[str, Any]) -> None:
        match body["kind"]:
            case "topics":
                for identity in body["withdrawn"]:
                    if desk.inbox.pop(identity, None) is not None:
                        self._say_taken(desk, [], [identity])
                for wish in desk.changing.pop(body["change"]):
                    desk.confirmed_topics.pop(wish, None)
            case "took":
                for identity in body["ids"]:
                    desk.took.pop(identity, None)
            case "attach":
                desk.is_attached = True
            case "detach" | "refused":
                desk.is_closed, desk.is_connected = True, False
                desk.inbox.clear()

    def _say_taken(self, desk: Desk, taken: list[bytes], dropped: list[bytes]) -> None:
        desk.wire_out.append(("took", taken, dropped))

    def receive(self, desk: Desk) -> bytes | None:
        """The application receives the most urgent alert that its library has."""
        if not (desk.inbox and desk.is_connected and desk.is_attached) or desk.closing:
            return None
        identity = min(desk.inbox, key=lambda each: (-desk.inbox[each].header.priority, self._order(each)))
        view = desk.inbox.pop(identity)
        self._judge_receipt(desk, self.by_id[identity], view)
        desk.received.append(identity)
        desk.took[identity] = None
        self._say_taken(desk, [identity], [])
        return identity

    def _order(self, identity: bytes) -> int:
        return self.by_id[identity].order

    def _judge_receipt(self, desk: Desk, sent: Sent, view: AlertView) -> None:
        assert sent.id not in desk.received or view.again, f"{desk.key} got {sent.id.hex()} twice"
        assert not sent.cancel_confirmed, "a cancel that was confirmed holds (A5)"
        assert sent.header.classification <= desk.clearance
        held = {**desk.confirmed_topics, **desk.topics}
        assert any(meant(wish, sent.header) for wish in held), "an unsubscribe that was confirmed holds (A3)"

    def say(self, desk: Desk) -> None:
        """What the client wrote arrives at the server."""
        if not desk.wire_out or desk.is_cut:
            return
        match desk.wire_out.popleft():
            case ("took", taken, dropped):
                request = self.ask("took", _Taking(desk, taken))
                self.handle(AlertsTaken(request, OPS, desk.session, desk.number, taken, dropped))
            case ("topics", added, removed):
                change = self.next_request + 1
                desk.changing[change] = removed
                request = self.ask("topics", _Change(desk, change))
                self.handle(AlertTopicsChanged(request, OPS, desk.session, desk.number, added, removed))
            case ("detach", unsubscribe):
                request = self.ask("detach", desk)
                self.handle(AlertsDetached(request, OPS, desk.session, desk.number, unsubscribe))

    def change(self, desk: Desk, added: list[Wish], removed: list[Wish]) -> None:
        if desk.is_closed or desk.closing:
            return
        gone = [wish for wish in dict.fromkeys(removed) if wish in desk.topics and wish not in added]
        for wish in gone:
            del desk.topics[wish]
        desk.topics.update(dict.fromkeys(added))
        desk.confirmed_topics.update(dict.fromkeys(added))
        if desk.is_connected:
            desk.wire_out.append(("topics", added, gone))

    def close(self, desk: Desk, *, unsubscribe: bool) -> None:
        if desk.is_connected and not desk.closing:
            desk.closing = 1
            desk.wire_out.append(("detach", unsubscribe))

    # ---- the end

    def settle(self) -> None:
        """Nothing is in the way any more: everybody gets all that they want."""
        self.disk_full = False
        for desk in self.desks:
            if desk.is_cut:
                self.server_notices(desk)
                self.notice(desk)
            self.connect(desk)
        is_busy, rounds = True, 0
        while is_busy:
            rounds += 1
            assert rounds < _MANY_ROUNDS, "they never come to rest"
            self.sync()
            is_busy = self.turn_due
            if self.turn_due:
                self.turn()
            for desk in self.desks:
                is_busy |= bool(desk.wire_in or desk.wire_out)
                self.deliver(desk)
                self.say(desk)
                is_busy |= self.receive(desk) is not None

    def judge_misses(self) -> None:
        """After `settle`: whoever is there has had everything that is live and wanted."""
        for desk in self.desks:
            if desk.is_connected and not desk.closing:
                for sent in self.sent:
                    if sent.is_live(self.now) and self.wanted(desk, sent):
                        assert sent.id in desk.received, f"{desk.key} has not got {sent.header}"

    def judge_confirmations(self) -> None:
        """After `settle` and all doubts: nobody waits for an answer."""
        waiting = [(kind, what) for kind, what in self.requests.values() if kind in ("publish", "cancel")]
        assert not waiting, f"nobody answered {waiting}"


class _Taking:
    """A request whose answer names what was taken."""

    def __init__(self, desk: Desk, ids: list[bytes]) -> None:
        self._desk, self._ids = desk, ids

    @property
    def is_cut(self) -> bool:
        return self._desk.is_cut

    @property
    def wire_in(self) -> Any:
        return _Tagged(self._desk, ids=self._ids)


class _Change:
    """A request whose answer says which change it is about."""

    def __init__(self, desk: Desk, change: int) -> None:
        self._desk, self._change = desk, change

    @property
    def is_cut(self) -> bool:
        return self._desk.is_cut

    @property
    def wire_in(self) -> Any:
        return _Tagged(self._desk, change=self._change)


class _Tagged:
    """Puts more into an answer."""

    def __init__(self, desk: Desk, **more: Any) -> None:
        self._desk, self._more = desk, more

    def append(self, answer: Answered) -> None:
        self._desk.wire_in.append(Answered(answer.request, {**answer.body, **self._more}))
