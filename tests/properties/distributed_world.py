"""A distributed queue as sessions, members and the path service see it, with everything that is said on its way (U6).

The routing and the path service are the real engines; a member is a list, and a channel hands over what one client
manager said to one place in order, whenever the test says so. What must hold at every moment: all messages of a unit
that wait are at one member, and in the end, when all has arrived, still.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from heliograph.bus.commands import PathsChecked, PathsUnused, PathWanted
from heliograph.destinations.paths import PathRecord, Paths, encode_path
from heliograph.model.destination import Address
from heliograph.model.distribution import Distribution, HashRouting, PathRouting, Routing
from heliograph.model.ids import SessionId

ADDRESS = Address("queue:orders")
PLACES = ("a", "b", "c")
KEEPER = "keeper"
MANAGERS = (0, 1)


class Refused(Exception):
    """The one place where it belongs cannot be used now."""


@dataclass
class Member:
    """A queue in one sub-cluster: what waits, oldest first, as number, unit, session and place in its lane."""

    waiting: list[tuple[int, int, SessionId, int]] = field(default_factory=list)
    next_number: int = 1
    closed: set[SessionId] = field(default_factory=set)


@dataclass
class Session:
    """A producer. It routes by what it was told when it last connected."""

    identity: SessionId
    routing: HashRouting | PathRouting
    manager: int
    sent: int = 0


class World:
    """Everything, and what goes wrong in it. `plants` names rules that are left out."""

    def __init__(self, routing: Routing, plants: frozenset[str] = frozenset()) -> None:
        self.routing = routing
        self.plants = plants
        self.distribution = Distribution(members=("a", "b"), routing=routing, keeper=KEEPER)
        self.members = {name: Member() for name in PLACES}
        self.paths = Paths()
        self.journal: list[PathRecord] = []
        self.ended: list[SessionId] = []  # at the keeper
        self.sessions: list[Session] = []
        self.away: set[str] = set()
        self.channels: dict[tuple[str, int], deque[Callable[[], None]]] = {
            (name, manager): deque() for name in (*PLACES, KEEPER) for manager in MANAGERS
        }
        self.processed: dict[tuple[int, SessionId], int] = {}
        self._opened = 0
        self._now = 0

    # ---- sessions

    def open(self) -> None:
        self._opened += 1
        identity = SessionId(self._opened.to_bytes(16, "big"))
        self.sessions.append(Session(identity, self._routing(identity), self._opened % len(MANAGERS)))

    def _routing(self, identity: SessionId) -> HashRouting | PathRouting:
        kind = PathRouting if self.routing is Routing.PATH else HashRouting
        return kind(self.distribution, identity)

    def reconnect(self, session: Session) -> None:
        """It learns how the destination is distributed now; the server has not forgotten it."""
        if "stale-members" not in self.plants and self.routing is Routing.HASH:
            session.routing = self._routing(session.identity)

    def close(self, session: Session) -> None:
        """Every sub-cluster hears of it, each in its own time."""
        self.sessions.remove(session)
        for name in PLACES:
            self._say(name, partial(self.members[name].closed.add, session.identity), session.manager)
        self._say(KEEPER, lambda: self._end(session.identity), session.manager)

    def _end(self, identity: SessionId) -> None:
        self.ended.append(identity)
        self.paths.session_ended(identity)

    # ---- sending

    def send(self, session: Session, unit: int) -> None:
        """Raises Refused."""
        member = self._member_for(session, unit)
        if member in self.away:
            if "detour" not in self.plants:
                raise Refused
            member = next(name for name in self.distribution.members if name not in self.away)
        session.sent += 1
        place = session.sent
        self._say(member, lambda: self._arrive(member, unit, session.identity, place), session.manager)

    def _member_for(self, session: Session, unit: int) -> str:
        if "hash-of-reachable" in self.plants:
            here = tuple(name for name in self.distribution.members if name not in self.away)
            return HashRouting(Distribution(members=here), b"").member_for(unit) if here else "a"
        member = session.routing.member_for(unit)
        if member:
            return member
        if KEEPER in self.away:
            raise Refused
        self.deliver(KEEPER, session.manager, everything=True)  # in the order in which it was said
        wanted = PathWanted(
            1,
            ADDRESS,
            unit,
            session.identity,
            list(self.distribution.members),
            [] if "leaving-is-gone" in self.plants else list(self.distribution.leaving),
        )
        member, record = self.paths.wanted(wanted)
        if record is not None:
            self.journal.append(record)
        assert isinstance(session.routing, PathRouting)
        session.routing.learn(unit, member)
        return member

    def _arrive(self, name: str, unit: int, session: SessionId, place: int) -> None:
        member = self.members[name]
        member.waiting.append((member.next_number, unit, session, place))
        member.next_number += 1

    # ---- what is on its way

    def _say(self, place: str, what: Callable[[], None], manager: int = 0) -> None:
        self.channels[place, manager].append(what)

    def deliver(self, place: str, manager: int, *, everything: bool = False) -> None:
        channel = self.channels[place, manager]
        while channel and place not in self.away:
            channel.popleft()()
            if not everything:
                return

    def process(self, name: str, which: int) -> None:
        """A consumer is through with a message: the first of its unit."""
        member = self.members[name]
        if name in self.away or not member.waiting:
            return
        unit = member.waiting[which % len(member.waiting)][1]
        found = next(each for each in member.waiting if each[1] == unit)
        member.waiting.remove(found)
        _, _, session, place = found
        assert place > self.processed.get((unit, session), 0), "a later message was processed before"
        self.processed[unit, session] = place

    # ---- the path service

    def keep_house(self) -> None:
        if KEEPER not in self.away:
            self._now += 1
            for news in self.paths.unused(self._now):
                self._say(news.member, partial(self._answer, news))

    def _answer(self, news: PathsUnused) -> None:
        member = self.members[news.member]
        oldest = min((number for number, *_ in member.waiting), default=member.next_number)
        if "forget-unasked" in self.plants:
            oldest = member.next_number
        still_open = [session for session in news.sessions if session not in member.closed]
        if "forget-while-open" in self.plants:
            still_open = []
        checked = PathsChecked(
            news.address, news.member, news.units, news.mark, oldest, member.next_number, still_open
        )
        self._say(KEEPER, lambda: self._checked(checked))

    def _checked(self, checked: PathsChecked) -> None:
        for unit in checked.units if "any-answer" in self.plants else ():
            path = self.paths._paths.get((ADDRESS, unit))
            if path is not None and not path.users:
                path.asked = checked.mark
        self.journal.extend(self.paths.checked(checked))

    def restart_keeper(self) -> None:
        """Another leads there: it has what the journal has, or a snapshot."""
        states = self.paths.states()
        self.paths = Paths()
        if len(self.journal) % 2:
            self.paths.restore(states)
            return
        for record in self.journal:
            self.paths.replay(encode_path(record))
        for session in self.ended:
            self.paths.session_ended(session)

    # ---- members change

    def change(self, members: tuple[str, ...]) -> None:
        """By path, members leave and come with messages in them. By hash that is the documented break: they are
        changed when all has run empty."""
        if self.routing is Routing.HASH:
            if self.unprocessed() or not members:
                return
            self.distribution = Distribution(members=members, routing=self.routing)
        elif members:
            leaving = tuple(name for name in PLACES if name not in members)
            self.distribution = Distribution(
                members=members, leaving=leaving, routing=self.routing, keeper=KEEPER
            )
        for session in self.sessions:
            self.reconnect(session)

    # ---- what must hold

    def unprocessed(self) -> bool:
        return any(channel for (place, _), channel in self.channels.items() if place != KEEPER) or any(
            member.waiting for member in self.members.values()
        )

    def check(self) -> None:
        places: dict[int, set[str]] = {}
        for name, member in self.members.items():
            for _, unit, _, _ in member.waiting:
                places.setdefault(unit, set()).add(name)
        for unit, names in places.items():
            assert len(names) == 1, f"unit {unit} is at {sorted(names)}"

    def settle(self) -> None:
        """Everybody is there again, and all that was said is heard. Then each unit is in one place still."""
        self.away.clear()
        for name in PLACES:
            for manager in MANAGERS:
                self.deliver(name, manager, everything=True)
        self.check()
        for name, member in self.members.items():
            while member.waiting:
                self.process(name, 0)
