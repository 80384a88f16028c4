"""Everything a message manager knows: its destinations by address and by number, and the sessions that used
them.

Destinations get a small number that stands for them in the journal. Sessions are remembered after their
connection broke, so that a client that returns can go on where it was and what it sends again is recognised
(M8).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from heliograph.bus.commands import (
    Answered,
    ConsumerAttached,
    DestinationGone,
    DestinationMade,
    DestinationSought,
    DestinationWanted,
    OldestWanted,
    PathsChecked,
    PathWanted,
    PlacementWanted,
    Rejected,
    SessionClosed,
    SessionLost,
    SessionOpened,
    SessionResumed,
    SubscriptionEnded,
    TopicsWanted,
)
from heliograph.cluster.ranges import NONE, Ranges, minus
from heliograph.destinations.administration_topic import AdministrationTopic
from heliograph.destinations.alert_destination import AlertDestination
from heliograph.destinations.attendance import Attendance
from heliograph.destinations.destination import Destination
from heliograph.destinations.documents import Documents
from heliograph.destinations.doubts import Doubts
from heliograph.destinations.effects import AnyEffect, Continue, Multicast, Write
from heliograph.destinations.large_references import LargeReferences
from heliograph.destinations.ledger import Ledger
from heliograph.destinations.paths import Paths, encode_path
from heliograph.destinations.pausing import Paused
from heliograph.destinations.pipelines import Pipelines
from heliograph.destinations.queue import Queue
from heliograph.destinations.subscriptions import FOR_OTHER_PARTS, Terms
from heliograph.destinations.topic import Topic
from heliograph.destinations.transactions import Transactions
from heliograph.destinations.views import Views
from heliograph.destinations.waiting import Residence
from heliograph.journal.records import RecordKind
from heliograph.model.destination import (
    ADMINISTRATION,
    DEAD_MESSAGES,
    EVENT_LOG,
    PATTERNS,
    RETAINED_PREFIX,
    TEMPORARY_PREFIX,
    Address,
    Kind,
    kind_of,
    name_of,
)
from heliograph.model.errors import ClientFault, HeliographError, Unavailable
from heliograph.model.ids import LaneId, SessionId, lane_number, lane_of, session_of
from heliograph.model.limits import (
    DEAF_HEARTBEATS,
    HEARTBEAT_SECONDS,
    MAX_DESTINATIONS,
    MAX_KEPT_SESSIONS,
    MAX_REMEMBERED_SESSIONS,
)
from heliograph.model.patterns import SEPARATOR, name_at, no_such_subscription, parse_pattern, pattern_in
from heliograph.model.policy import Policy
from heliograph.model.policy_rules import NO_RULES, PolicyRules
from heliograph.model.session_token import is_proven


class DestinationRecord(msgspec.Struct, array_like=True):
    """How the journal keeps a destination, a new policy or pause for it, or its end."""

    number: int
    address: str
    policy: Policy | None = None
    deleted: bool = False
    paused: Paused | None = None
    elsewhere: str = (
        ""  # it is none of ours: the sub-cluster where it is to be, as we said when we were asked
    )


class SessionRecord(msgspec.Struct, array_like=True):
    """How the journal keeps a session. `closed`: it ended, forget it."""

    session: bytes
    user: str
    token: bytes
    closed: bool = False
    client: str = ""
    kept: bool = False


class Grave(msgspec.Struct, array_like=True):
    """How far the lanes of a destination had come that was deleted. `is_old`: the cluster was whole since."""

    marks: dict[LaneId, int]
    missing: dict[LaneId, Ranges]
    is_old: bool = False


class KnownSession(msgspec.Struct):
    """A session, and where each of its lanes leads. `lost_at` is the time its connection broke, 0 while it
    has one. `kept`: its client stores and forwards, and may be away for long (U7)."""

    user: str
    token: bytes
    lanes: dict[int, Address]
    lost_at: float = 0.0
    connection: bytes = b""
    client: str = ""
    kept: bool = False

    @property
    def is_needed(self) -> bool:
        """Whether a client that stores and forwards may ask, much later, what has arrived of its lanes."""
        return self.kept and bool(self.lanes)


# The dead stay where they are, however often somebody looks at them and changes their mind.
_RESTING: dict[str, Any] = {
    "redelivery_limit": 0,
    "expired_to_dead": False,
    "undelivered_to_dead_after": 0.0,
    "retention_to_dead": False,
}
_encode = msgspec.msgpack.Encoder().encode
_RETAINED = f"{Kind.QUEUE}:{RETAINED_PREFIX}"
_decode_session = msgspec.msgpack.Decoder(SessionRecord).decode
_decode_destination = msgspec.msgpack.Decoder(DestinationRecord).decode


class Catalogue:
    """Destinations and sessions of one message manager."""

    def __init__(
        self,
        residence: Residence,
        rules: PolicyRules = NO_RULES,
        *,
        is_replicated: bool = False,
        doubt_seconds: float = DEAF_HEARTBEATS * HEARTBEAT_SECONDS,
    ) -> None:
        """`is_replicated`: another server may take over while clients go on. Then what lives as long as a connection
        is written down too. `doubt_seconds`: after this a client that is cut off hands over no alert any more."""
        self.residence = residence
        self.is_replicated = is_replicated
        self.by_address: dict[Address, Destination] = {}
        self.by_number: dict[int, Destination] = {}
        self.channels: dict[int, AlertDestination] = {}  # those among them that take alerts
        self.doubt = int(doubt_seconds * 1_000_000)
        self.sessions: dict[SessionId, KnownSession] = {}
        self.attendance = Attendance()
        self.doubts = Doubts()
        self.transactions = Transactions()
        self.large = LargeReferences()
        self.rules = rules
        self.placements: dict[Address, str] = {}  # destinations of other sub-clusters, which were placed here
        self.documents = Documents()
        self.views = Views(self.by_number)
        self.ledger = Ledger()
        self.graves: dict[Address, Grave] = {}  # of destinations that were deleted
        self.paths = Paths()
        self.pipelines = Pipelines()
        self._next_number = 1

    # ---- destinations

    def wanted(self, command: DestinationWanted) -> list[AnyEffect]:
        """Make the destination if need be, and say how far the lane has come."""
        effects: list[AnyEffect] = []
        try:
            destination = self.find_or_make(command.address, effects, create=command.create)
        except HeliographError as error:
            return [Multicast(Rejected(command.request, error.code, error.sentence))]
        self.lane_used(command.lane, command.address)
        last = destination.intake.resume(command.lane)
        body = {"last": last, "blocked": destination.flow.blocked}
        effects.append(Multicast(Answered(command.request, body)))
        return effects

    def sought(self, command: DestinationSought, load: float) -> list[AnyEffect]:
        here = command.address in self.by_address
        return [Multicast(Answered(command.request, {"here": here, "load": load + len(self.by_address)}))]

    def place(self, command: PlacementWanted) -> list[AnyEffect]:
        """Say where a destination is to be: the same to whoever asks, until it is deleted."""
        effects: list[AnyEffect] = []
        address, registrar = command.address, command.registrar
        if address in self.by_address:
            place = registrar
        elif (place := self.placements.get(address, "")) == "":
            place = min(command.loads, key=lambda each: (each[1], each[0]))[0]
            if len(self.placements) >= MAX_DESTINATIONS:
                sentence = f"there are {MAX_DESTINATIONS} destinations already"
                return [Multicast(Rejected(command.request, "too-many-destinations", sentence))]
            self.placements[address] = place
            effects.append(
                Write(RecordKind.DESTINATION, _encode(DestinationRecord(0, address, elsewhere=place)))
            )
        return [*effects, Multicast(Answered(command.request, {"sub_cluster": place}))]

    def forget_placement(self, address: Address) -> list[AnyEffect]:
        """A destination ended, in whatever sub-cluster it was."""
        if self.placements.pop(address, None) is None:
            return []
        return [Write(RecordKind.DESTINATION, _encode(DestinationRecord(0, address, deleted=True)))]

    def replay_placement(self, record: DestinationRecord) -> None:
        if record.deleted:
            self.placements.pop(Address(record.address), None)
        else:
            self.placements[Address(record.address)] = record.elsewhere

    def path_wanted(self, command: PathWanted) -> tuple[str, bytes]:
        """The member of a unit of order (U6), and what is to be stored before anybody is told. Raises
        Unavailable."""
        if command.session not in self.sessions:
            raise Unavailable("the session is not known here yet: try again", code="session-unknown")
        member, record = self.paths.wanted(command)
        return member, b"" if record is None else encode_path(record)

    def paths_checked(self, command: PathsChecked) -> list[AnyEffect]:
        return [Write(RecordKind.PATH, encode_path(record)) for record in self.paths.checked(command)]

    def oldest(self, command: OldestWanted) -> list[AnyEffect]:
        """How old what is in a destination is, as far as that is easily said. 0: nobody knows."""
        destination = self.by_address.get(command.address)
        oldest = next_number = 1
        if destination is not None:
            next_number = destination.intake.next_number
            is_expecting = destination.intake.pending or self.transactions.stages_for(destination)
            oldest = 0 if is_expecting else destination.oldest_number()
        still_open = [session for session in command.sessions if session in self.sessions]
        body = {"oldest": oldest, "next": next_number, "open": still_open}
        return [Multicast(Answered(command.request, body))]

    def find_or_make(self, address: Address, effects: list[AnyEffect], *, create: bool) -> Destination:
        destination = self.by_address.get(address)
        if destination is not None:
            return destination
        if not create:
            raise ClientFault(
                f"{address} does not exist, and this server does not let you create it by using it",
                code="destination-unknown",
            )
        if len(self.by_address) >= MAX_DESTINATIONS:
            raise Unavailable(
                f"there are {MAX_DESTINATIONS} destinations already", code="too-many-destinations"
            )
        return self._create(address, effects)

    def _create(self, address: Address, effects: list[AnyEffect]) -> Destination:
        made = self.restore_destination(self._next_number, address)
        made.set_policy(self._default_policy(address))
        effects += (
            Write(RecordKind.DESTINATION, _encode(DestinationRecord(made.number, address, made.policy))),
            Multicast(DestinationMade(address)),
        )
        self.views.begin(made, effects)
        if isinstance(made, Topic) and address != PATTERNS:
            self._subscribe_by_patterns(made, effects)
        return made

    def _subscribe_by_patterns(self, made: Topic, effects: list[AnyEffect]) -> None:
        """Durable subscriptions to patterns keep what is sent to a topic from its first message on, also while
        their clients are away."""
        for _, named in self.terms_by_patterns(made):
            made.subscribe_durably(named, effects)

    def terms_by_patterns(self, topic: Topic) -> list[tuple[Terms, Terms]]:
        """Durable subscriptions to patterns that match a topic: as they are written down, and as they are there."""
        written = self.by_address.get(PATTERNS)
        if not isinstance(written, Topic) or name_of(topic.address).startswith(TEMPORARY_PREFIX):
            return []
        found = []
        for subscription in written.subscriptions.values():
            terms = subscription.terms
            pattern = pattern_in(terms.name) if terms.durable else None
            if pattern is not None and pattern.matches(topic.address):
                named = msgspec.structs.replace(terms, name=name_at(terms.name, topic.address))
                found.append((terms, named))
        return found

    def make_well_known(self, effects: list[AnyEffect]) -> None:
        """The server's own destinations are there from the start (M11)."""
        for address in (DEAD_MESSAGES, EVENT_LOG, ADMINISTRATION):
            if address not in self.by_address:
                self._create(address, effects)

    def _default_policy(self, address: Address) -> Policy:
        if address == DEAD_MESSAGES:
            return Policy(**_RESTING)
        policy = self.rules.policy_for(address)
        if address.startswith(_RETAINED):
            return msgspec.structs.replace(policy, retention_messages=1)
        return policy

    def restore_destination(self, number: int, address: str) -> Destination:
        """A destination as the journal knows it."""
        place = Address(address)
        made: Destination
        if kind_of(place) is Kind.QUEUE:
            made = Queue(place, number, residence=self.residence, user_of=self.user_of)
        elif kind_of(place) is Kind.ALERTS:
            made = self.channels[number] = AlertDestination(
                place,
                number,
                residence=self.residence,
                user_of=self.user_of,
                token_of=self.token_of,
                doubt=self.doubt,
            )
        else:
            kind = AdministrationTopic if place == ADMINISTRATION else Topic
            made = kind(
                place,
                number,
                residence=self.residence,
                user_of=self.user_of,
                senders_of=self.senders_of,
                writes_all=self.is_replicated,
                is_recorded=self.pipelines.records,
            )
        grave = self.graves.pop(place, None)
        if grave is not None:
            made.intake.apart.ended, made.intake.apart.missing = grave.marks, grave.missing
        self.by_address[place] = made
        self.by_number[number] = made
        self._next_number = max(self._next_number, number + 1)
        return made

    def remove(self, number: int) -> None:
        destination = self.by_number.pop(number, None)
        self.channels.pop(number, None)
        if destination is not None:
            del self.by_address[destination.address]
            if self.is_replicated and not self.is_temporary(destination.address):
                intake = destination.intake
                self.graves[destination.address] = Grave(intake.all_marks(), intake.apart.missing)

    @property
    def next_number(self) -> int:
        """That the next destination gets."""
        return self._next_number

    def became_whole(self) -> None:
        """Every message manager has all that any had (PROTOCOL 5)."""
        self.ledger.roll({number: each.intake.next_number for number, each in self.by_number.items()})
        self.graves = {
            address: Grave(grave.marks, {}, is_old=True)
            for address, grave in self.graves.items()
            if not grave.is_old
        }
        for destination in self.by_number.values():
            destination.intake.became_whole()

    def known_of(self, address: Address, lane: LaneId) -> Ranges:
        """The sequences of a lane to a destination that were taken here, or are done elsewhere; but for what
        was only staged."""
        destination = self.by_address.get(address)
        if destination is not None:
            unmade = self.ledger.unmade_of(destination.number, lane)
            return minus(destination.intake.known_of(lane), unmade)
        grave = self.graves.get(address)
        mark = grave.marks.get(lane, 0) if grave is not None else 0
        return minus(((1, mark),), grave.missing.get(lane, NONE)) if grave is not None and mark else NONE

    def delete(self, address: Address) -> list[AnyEffect]:
        """A destination ends with all that waits in it."""
        destination = self.by_address[address]
        effects: list[AnyEffect] = []
        consumers = destination.consumers()
        for consumer in consumers:
            self.attendance.detached(consumer)
        destination.end(effects)
        self.remove(destination.number)
        record = DestinationRecord(destination.number, address, deleted=True)
        effects += (
            Write(RecordKind.DESTINATION, _encode(record)),
            Multicast(DestinationGone(address, consumers)),
        )
        return effects

    def set_policy(self, address: Address, policy: Policy, effects: list[AnyEffect]) -> None:
        destination = self.find_or_make(address, effects, create=True)
        if address == DEAD_MESSAGES:
            policy = msgspec.structs.replace(policy, **_RESTING)
        destination.set_policy(policy)
        record = DestinationRecord(destination.number, address, policy)
        effects.append(Write(RecordKind.DESTINATION, _encode(record)))
        destination.measure(effects)
        if any(messages.is_hungry for messages in destination.lists()):
            effects.append(Continue())  # a consumer may have more ahead than before

    def set_paused(self, destination: Destination, paused: Paused, effects: list[AnyEffect]) -> None:
        destination.set_paused(paused)
        record = DestinationRecord(destination.number, destination.address, paused=paused)
        effects.append(Write(RecordKind.DESTINATION, _encode(record)))
        destination.measure(effects)
        effects.append(Continue())  # what waited may go

    def topics_wanted(self, command: TopicsWanted) -> list[AnyEffect]:
        pattern = parse_pattern(command.pattern, of_queues=True)
        assert pattern is not None, "the session has looked at it"
        found = [address for address in self.by_address if pattern.matches(address)]
        return [Multicast(Answered(command.request, {"topics": found}))]

    def is_temporary(self, address: Address) -> bool:
        return name_of(address).startswith(TEMPORARY_PREFIX)

    def is_volatile(self, address: Address) -> bool:
        """Whether a destination ends with this server."""
        return not self.is_replicated and self.is_temporary(address)

    def dead_messages(self, effects: list[AnyEffect]) -> Destination:
        """The dead message queue, made when somebody dies."""
        return self.by_address.get(DEAD_MESSAGES) or self._create(DEAD_MESSAGES, effects)

    # ---- named subscriptions

    def settle_name(self, command: ConsumerAttached, effects: list[AnyEffect]) -> None:
        """A name means one subscription of its client, whatever the topic. Raises ClientFault while it is in
        use."""
        if not command.subscription or command.subscription.endswith(SEPARATOR + command.address):
            return  # it has none, or one that only this topic has
        for destination in self.by_number.values():
            if isinstance(destination, Topic) and destination.address != command.address:
                elsewhere = destination.subscription_named(
                    command.client, command.subscription, durable=command.durable
                )
                if elsewhere is not None:
                    destination.unsubscribe(elsewhere, effects)

    def end_subscription(self, command: SubscriptionEnded) -> list[AnyEffect]:
        effects: list[AnyEffect] = []
        try:
            if self._end_named(command.client, command.subscription, effects):
                return [*effects, Multicast(Answered(command.request, {}))]
        except ClientFault as fault:
            return [*effects, Multicast(Rejected(command.request, fault.code, fault.sentence))]
        sentence = no_such_subscription(command.subscription)
        return [Multicast(Rejected(command.request, "subscription-unknown", sentence))]

    def _end_named(self, client: str, name: str, effects: list[AnyEffect]) -> bool:
        """Whether there was such a subscription. One to a pattern has a part at each of its topics. Raises
        ClientFault while it has a consumer."""
        found = False
        if name == FOR_OTHER_PARTS.name:
            return False  # it is the server's own
        written = self.by_address.get(PATTERNS)
        parts = [
            each.terms.name
            for each in (written.subscriptions.values() if isinstance(written, Topic) else ())
            if each.terms.client == client and each.terms.name.startswith(name + SEPARATOR)
        ]
        for destination in list(self.by_number.values()):
            if isinstance(destination, Topic):
                for wanted in (name, *(name_at(part, destination.address) for part in parts)):
                    subscription = destination.subscription_named(client, wanted, durable=True)
                    if subscription is not None:
                        destination.unsubscribe(subscription, effects)
                        found = True
        return found

    def subscriptions_of(self, client: str) -> list[str]:
        """The names of a client's durable subscriptions; one to a pattern has the pattern behind it."""
        return [
            name
            for name, address in self._durable_of(client)
            if address == PATTERNS or not name.endswith(SEPARATOR + address)
        ]

    def places_of(self, client: str) -> list[tuple[str, Address]]:
        """The topics of a client's durable subscriptions, each with what the subscription is called there."""
        return [each for each in self._durable_of(client) if each[1] != PATTERNS]

    def _durable_of(self, client: str) -> Iterator[tuple[str, Address]]:
        for destination in self.by_number.values():
            if isinstance(destination, Topic):
                for each in destination.subscriptions.values():
                    if each.terms.durable and each.terms.client == client and not each.is_for_other_parts:
                        yield each.terms.name, destination.address

    # ---- who is who

    def user_of(self, lane: LaneId) -> str:
        session = self.sessions.get(session_of(lane))
        return session.user if session is not None else ""

    def token_of(self, session: SessionId) -> bytes:
        """By which ids of alerts are made; empty if the session is not known."""
        known = self.sessions.get(session)
        return known.token if known is not None else b""

    def senders_of(self, session: SessionId) -> tuple[bytes, bytes]:
        """The connection and the client that a session belongs to; empty where they are not known."""
        known = self.sessions.get(session)
        if known is None:
            return b"", b""
        return known.connection, b"client:" + known.client.encode() if known.client else b""

    def lane_used(self, lane: LaneId, address: Address) -> None:
        session = self.sessions.get(session_of(lane))
        if session is not None:
            session.lanes[lane_number(lane)] = address

    # ---- sessions

    def session_opened(self, command: SessionOpened, now: float) -> list[AnyEffect]:
        effects: list[AnyEffect] = []
        known = self.sessions.get(command.session)
        if known is not None and known.token == command.token:
            known.lost_at, known.connection = 0.0, command.connection
            return [Multicast(Answered(command.request, {}))]  # asked again
        if command.kept and sum(session.kept for session in self.sessions.values()) >= MAX_KEPT_SESSIONS:
            sentence = f"{MAX_KEPT_SESSIONS} sessions are kept already"
            return [Multicast(Rejected(command.request, "too-many-sessions", sentence))]
        if len(self.sessions) >= MAX_REMEMBERED_SESSIONS:
            effects += self._forget_oldest()
            if len(self.sessions) >= MAX_REMEMBERED_SESSIONS:
                sentence = f"{MAX_REMEMBERED_SESSIONS} sessions are open already"
                return [Multicast(Rejected(command.request, "too-many-sessions", sentence))]
        self.sessions[command.session] = KnownSession(
            command.user,
            command.token,
            {},
            connection=command.connection,
            client=command.client,
            kept=command.kept,
        )
        record = SessionRecord(
            command.session, command.user, command.token, client=command.client, kept=command.kept
        )
        effects += (
            Write(RecordKind.SESSION, _encode(record)),
            Multicast(Answered(command.request, {})),
        )
        return effects

    def may_resume(self, command: SessionResumed) -> bool:
        """Whether the session is known, and belongs to whoever wants it."""
        session = self.sessions.get(command.session)
        return session is not None and (session.token, session.user) == (command.token, command.user)

    def is_of_another_part(self, command: SessionResumed, key: bytes) -> bool:
        """Whether the session was opened in a part of the cluster that is away, so that nobody here has heard of it.
        A client that was told to open another would send again what that part may have, and what it sends would
        overtake what is there (P7). `key`: of the cluster (`model/session_token.py`)."""
        session = command.session
        if session in self.sessions or not self.views.is_parted:
            return False
        was_closed = session in dict.fromkeys(self.ledger.closed())
        return not was_closed and is_proven(command.token, session, command.user, key)

    def session_resumed(self, command: SessionResumed) -> list[AnyEffect]:
        """The answer says for each lane what is stored, and the client sends again what comes after; and which
        consumers wait to be claimed."""
        if not self.may_resume(command):
            sentence = "the session is not known here, or is not yours: open a new one"
            return [Multicast(Rejected(command.request, "session-unknown", sentence))]
        session = self.sessions[command.session]
        session.lost_at = 0.0
        session.connection = command.connection
        session.client = command.client
        lanes = [
            (number, address, self.by_address[address].intake.resume(lane_of(command.session, number)))
            for number, address in session.lanes.items()
            if address in self.by_address
        ]
        blocked = {address: self.by_address[address].flow.blocked for _, address, _ in lanes}
        consumers = self.attendance.to_claim(command.session)
        body = {"lanes": lanes, "blocked": blocked, "consumers": consumers}
        return [Multicast(Answered(command.request, body))]

    def is_elsewhere(self, command: SessionLost) -> bool:
        """Whether the session is on another connection than the one that was lost."""
        session = self.sessions.get(command.session)
        return session is not None and command.connection not in (b"", session.connection)

    def session_lost(self, command: SessionLost, now: float) -> None:
        session = self.sessions.get(command.session)
        if session is not None:
            session.lost_at = now

    def session_closed(self, command: SessionClosed) -> list[AnyEffect]:
        return self._forget(command.session)

    def forget_lost_before(self, deadline: float, kept_deadline: float = 0.0) -> list[AnyEffect]:
        """Sessions whose clients have been away since before `deadline` will not be resumed; nor, since before
        `kept_deadline`, those that are kept."""
        gone = [
            identity
            for identity, session in self.sessions.items()
            if 0.0 < session.lost_at < (kept_deadline if session.is_needed else deadline)
        ]
        return [effect for identity in gone for effect in self._forget(identity)]

    def _forget_oldest(self) -> list[AnyEffect]:
        lost = [
            (session.lost_at, identity)
            for identity, session in self.sessions.items()
            if session.lost_at and not session.is_needed
        ]
        lost.sort()
        return [effect for _, identity in lost[: len(lost) // 4 + 1] for effect in self._forget(identity)]

    def _forget(self, identity: SessionId) -> list[AnyEffect]:
        session = self.sessions.pop(identity, None)
        if session is None:
            return []
        self.transactions.forget(identity)
        self.paths.session_ended(identity)
        for address in dict.fromkeys(session.lanes.values()):
            destination = self.by_address.get(address)
            if destination is not None:
                destination.session_ended(identity, but_marks=self.is_replicated)
        told: list[AnyEffect] = []
        for each in self.channels.values():
            told += each.channel.session_forgotten(identity, but_marks=self.is_replicated)
        return [
            *told,
            Write(RecordKind.SESSION, _encode(SessionRecord(identity, session.user, b"", closed=True))),
        ]

    # ---- recovery

    def decode_destination(self, payload: bytes) -> DestinationRecord:
        return _decode_destination(payload)

    def replay_session(self, payload: bytes, now: float) -> None:
        record = _decode_session(payload)
        identity = SessionId(record.session)
        if record.closed:
            self._forget(identity)
        else:
            known = KnownSession(
                record.user, record.token, {}, lost_at=now, client=record.client, kept=record.kept
            )
            self.sessions[identity] = known

    def all_destinations(self) -> Iterator[Destination]:
        return iter(self.by_number.values())
