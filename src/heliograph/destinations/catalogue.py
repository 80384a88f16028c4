"""Everything a message manager knows: its destinations by address and by number, and the sessions that used
them.

Destinations get a small number that stands for them in the journal. Sessions are remembered after their
connection broke, so that a client that returns can go on where it was and what it sends again is recognised
(M8).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from heliograph.bus.commands import (
    Answered,
    DestinationWanted,
    Rejected,
    SessionClosed,
    SessionLost,
    SessionOpened,
    SessionResumed,
)
from heliograph.destinations.destination import Destination, make_destination
from heliograph.destinations.effects import AnyEffect, Multicast, Write
from heliograph.destinations.waiting import Residence
from heliograph.journal.records import RecordKind
from heliograph.model.destination import Address
from heliograph.model.errors import ClientFault, HeliographError, Unavailable
from heliograph.model.ids import LaneId, SessionId, lane_number, lane_of, session_of
from heliograph.model.limits import MAX_DESTINATIONS, MAX_REMEMBERED_SESSIONS


class DestinationRecord(msgspec.Struct, array_like=True):
    """How the journal keeps a destination."""

    number: int
    address: str


class SessionRecord(msgspec.Struct, array_like=True):
    """How the journal keeps a session. `closed`: it ended, forget it."""

    session: bytes
    user: str
    token: bytes
    closed: bool = False


class KnownSession(msgspec.Struct):
    """A session, and where each of its lanes leads. `lost_at` is the time its connection broke, 0 while it
    has one."""

    user: str
    token: bytes
    lanes: dict[int, Address]
    lost_at: float = 0.0


_encode = msgspec.msgpack.Encoder().encode
_decode_session = msgspec.msgpack.Decoder(SessionRecord).decode
_decode_destination = msgspec.msgpack.Decoder(DestinationRecord).decode


class Catalogue:
    """Destinations and sessions of one message manager."""

    def __init__(self, residence: Residence) -> None:
        self.residence = residence
        self.by_address: dict[Address, Destination] = {}
        self.by_number: dict[int, Destination] = {}
        self.sessions: dict[SessionId, KnownSession] = {}

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
        effects.append(Multicast(Answered(command.request, {"last": last})))
        return effects

    def find_or_make(self, address: Address, effects: list[AnyEffect], *, create: bool) -> Destination:
        destination = self.by_address.get(address)
        if destination is not None:
            return destination
        if not create:
            raise ClientFault(
                f"{address} does not exist, and this server does not make destinations on first use",
                code="destination-unknown",
            )
        if len(self.by_address) >= MAX_DESTINATIONS:
            raise Unavailable(
                f"there are {MAX_DESTINATIONS} destinations already", code="too-many-destinations"
            )
        destination = self._make(DestinationRecord(len(self.by_number) + 1, address))
        effects.append(Write(RecordKind.DESTINATION, _encode(DestinationRecord(destination.number, address))))
        return destination

    def _make(self, record: DestinationRecord) -> Destination:
        address = Address(record.address)
        made = make_destination(address, record.number, residence=self.residence, user_of=self.user_of)
        self.by_address[address] = made
        self.by_number[record.number] = made
        return made

    def user_of(self, lane: LaneId) -> str:
        session = self.sessions.get(session_of(lane))
        return session.user if session is not None else ""

    def lane_used(self, lane: LaneId, address: Address) -> None:
        session = self.sessions.get(session_of(lane))
        if session is not None:
            session.lanes[lane_number(lane)] = address

    # ---- sessions

    def session_opened(self, command: SessionOpened, now: float) -> list[AnyEffect]:
        effects: list[AnyEffect] = []
        if len(self.sessions) >= MAX_REMEMBERED_SESSIONS:
            effects += self._forget_oldest()
            if len(self.sessions) >= MAX_REMEMBERED_SESSIONS:
                sentence = f"{MAX_REMEMBERED_SESSIONS} sessions are open already"
                return [Multicast(Rejected(command.request, "too-many-sessions", sentence))]
        self.sessions[command.session] = KnownSession(command.user, command.token, {})
        record = SessionRecord(command.session, command.user, command.token)
        effects += (
            Write(RecordKind.SESSION, _encode(record)),
            Multicast(Answered(command.request, {})),
        )
        return effects

    def session_resumed(self, command: SessionResumed) -> list[AnyEffect]:
        """The answer says for each lane what is stored; the client sends again what comes after."""
        session = self.sessions.get(command.session)
        if session is None or session.token != command.token or session.user != command.user:
            sentence = "the session is not known here, or is not yours: open a new one"
            return [Multicast(Rejected(command.request, "session-unknown", sentence))]
        session.lost_at = 0.0
        lanes = [
            (number, address, self.by_address[address].intake.resume(lane_of(command.session, number)))
            for number, address in session.lanes.items()
        ]
        return [Multicast(Answered(command.request, {"lanes": lanes}))]

    def session_lost(self, command: SessionLost, now: float) -> None:
        session = self.sessions.get(command.session)
        if session is not None:
            session.lost_at = now

    def session_closed(self, command: SessionClosed) -> list[AnyEffect]:
        return self._forget(command.session)

    def forget_lost_before(self, deadline: float) -> list[AnyEffect]:
        """Sessions whose clients have been away since before `deadline` will not be resumed."""
        gone = [identity for identity, session in self.sessions.items() if 0.0 < session.lost_at < deadline]
        return [effect for identity in gone for effect in self._forget(identity)]

    def _forget_oldest(self) -> list[AnyEffect]:
        lost = [(session.lost_at, identity) for identity, session in self.sessions.items() if session.lost_at]
        lost.sort()
        return [effect for _, identity in lost[: len(lost) // 4 + 1] for effect in self._forget(identity)]

    def _forget(self, identity: SessionId) -> list[AnyEffect]:
        session = self.sessions.pop(identity, None)
        if session is None:
            return []
        for address in dict.fromkeys(session.lanes.values()):
            self.by_address[address].session_ended(identity)
        return [Write(RecordKind.SESSION, _encode(SessionRecord(identity, session.user, b"", closed=True)))]

    # ---- recovery

    def replay_destination(self, payload: bytes) -> Destination:
        return self._make(_decode_destination(payload))

    def replay_session(self, payload: bytes, now: float) -> None:
        record = _decode_session(payload)
        identity = SessionId(record.session)
        if record.closed:
            self._forget(identity)
        else:
            self.sessions[identity] = KnownSession(record.user, record.token, {}, lost_at=now)

    def all_destinations(self) -> Iterator[Destination]:
        return iter(self.by_number.values())
