"""A message manager in a sub-cluster: it follows the primary, leads when the view says so, catches up when it must.

    state       | on                                   | then
    ------------+--------------------------------------+-----------
    away        | view, another leads                  | catching up
    away        | view, it leads                       | leading (from its journal)
    catching up | through                              | following
    following   | view, another leads, it has the log  | following
    following   | view, it leads                       | leading (takes over)
    following   | its log and the primary's part       | away, and enters again
    leading     | view, it leads                       | leading
    leading     | view, another leads                  | away, and enters again
    any         | left the channel                     | away

Which it is follows from the view alone (`cluster/roles.py`); what it does there is in `leading.py`, `following.py`
and `catching_up.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Protocol

from heliograph.bus.commands import (
    DECISIONS,
    BodyWanted,
    Command,
    Leads,
    Logged,
    SessionClosed,
    SessionOpened,
    SessionResumed,
    Stored,
    Synchronised,
)
from heliograph.bus.interface import Incarnation, Origin, Receiver
from heliograph.bus.presence import MESSAGE_MANAGER, NodeState
from heliograph.cluster.roles import Roles, roles_in
from heliograph.cluster.view import View
from heliograph.journal.records import RecordKind
from heliograph.model.errors import Unavailable
from heliograph.model.ids import SessionId
from heliograph.nodes.event_log import Record, ignore
from heliograph.nodes.following import Following, LostPlace
from heliograph.nodes.leading import Leading
from heliograph.nodes.message_manager import MessageManager
from heliograph.nodes.tick import Tick

_AMONG_MANAGERS = (Stored, Synchronised, BodyWanted)


class Channel(Protocol):
    """What a replica needs of its member."""

    @property
    def incarnation(self) -> Incarnation | None: ...

    def multicast(self, command: Command) -> None: ...

    def nodes_changed(self) -> None: ...


class ManagerBus:
    """What a manager says is heard when it leads."""

    def __init__(self) -> None:
        self.leading: Leading | None = None

    def join(self, receiver: Receiver, kinds: Collection[type[Command]] | None = None) -> None: ...

    def multicast(self, command: Command) -> None:
        if self.leading is not None:
            self.leading.multicast(command)


class Replica:
    """One message manager of a sub-cluster, through all that happens to it."""

    def __init__(
        self,
        name: str,
        *,
        make_manager: Callable[[ManagerBus], MessageManager],
        tick: Tick,
        seniority: int,
        record: Record = ignore,
    ) -> None:
        self.name = name
        self._make_manager = make_manager
        self._seniority = seniority
        self._record = record
        self._bus = ManagerBus()
        self.channel: Channel | None = None
        self.roles: Roles | None = None
        self._leading: Leading | None = None
        self._following: Following | None = None
        self._is_installed = False
        self._is_leaving = False
        self._sessions: dict[SessionId, Incarnation] = {}  # with which client manager each is
        self._known_clients: tuple[Incarnation, ...] = ()
        self._forcing: deque[tuple[int, Callable[[], None]]] = deque()
        self.manager = make_manager(self._bus)
        tick.add_write(self._end_of_tick)

    # ---- life

    def open(self) -> None:
        self.manager.open()
        self._following = self._follow()

    def stop(self) -> None:
        self.manager.stop()

    def _follow(self) -> Following:
        following = Following(self.manager, self._say, self._own_disk_has)
        self.manager.shipping = following
        return following

    @property
    def state(self) -> NodeState:
        """What the others hear of it before a view."""
        place = self.manager.place
        follows = self._following is not None and self._following.is_synchronised
        return NodeState(
            self.name,
            MESSAGE_MANAGER,
            seniority=self._seniority,
            store=self.manager.journal.store_id.encode(),
            lineage=place.lineage,
            index=place.index,
            is_synchronised=self._leading is not None or follows,
            is_leading=self._leading is not None,
            is_leaving=self._is_leaving,
        )

    @property
    def is_leading(self) -> bool:
        return self._leading is not None

    def _say(self, command: Command) -> None:
        """Raises Unavailable."""
        if self.channel is None:
            raise Unavailable("not in the channel", code="bus-lost")
        self.channel.multicast(command)

    # ---- deliveries

    def on_apply(self, origin: Origin, commands: list[Command]) -> None:
        sender = origin.incarnation
        is_own = self.channel is not None and sender == self.channel.incarnation
        for command in commands:
            kind = type(command)
            if kind in DECISIONS:
                if self._leading is None:
                    self._decided(command)
                elif is_own:
                    self._leading.heard_own(command)
            elif kind in _AMONG_MANAGERS:
                self._among_managers(sender, command)
            else:
                self._fact(origin, command)

    def _fact(self, origin: Origin, fact: Command) -> None:
        sender, sequence = origin.incarnation, origin.sequence
        if isinstance(fact, SessionOpened | SessionResumed):
            self._sessions[fact.session] = sender
        elif isinstance(fact, SessionClosed):
            self._sessions.pop(fact.session, None)
        if self._leading is not None:
            self._leading.handle(sender, sequence, fact)
        elif self._following is not None:
            self._following.heard(sender, sequence, fact)

    def _among_managers(self, sender: Incarnation, fact: Command) -> None:
        if self._leading is None:
            return
        if isinstance(fact, Stored):
            if self._is_installed:  # PROTOCOL 2: else it was given in another view
                self._leading.stored_there(sender, fact.index)
        elif isinstance(fact, Synchronised):
            self._leading.follows(sender, fact.index)
        elif isinstance(fact, BodyWanted):
            self._leading.body_wanted(fact.address, fact.consumer, fact.tag)

    def _decided(self, decision: Command) -> None:
        following = self._following
        if following is None or not following.is_synchronised:
            return
        try:
            if isinstance(decision, Logged):
                following.logged(decision)
            else:
                following.decided(decision)
        except LostPlace as lost:
            self._record("replica-lost-its-place", sentence=lost.sentence)
            following.is_synchronised = False
            if self.channel is not None:
                self.channel.nodes_changed()

    # ---- views

    def on_suspend(self) -> None:
        self._is_installed = False
        if self._leading is not None:
            self._leading.suspend()

    def on_install(self, view: View) -> None:
        assert self.channel is not None, "a view is installed by a member"
        self._is_installed = True
        roles = self.roles = roles_in(view)
        me = self.channel.incarnation
        if roles.primary == me:
            self._lead(view, roles)
        elif self._leading is not None:
            self._step_down()
        elif me in roles.backups:
            self._entered(view)
            assert self._following is not None, "it was synchronised"
            self._following.say_stored()

    def _lead(self, view: View, roles: Roles) -> None:
        if self._leading is None:
            self._begin_to_lead()
        leading = self._leading
        assert leading is not None
        self._entered(view)
        newcomers = [who for who in roles.client_managers if who not in self._known_clients]
        self._known_clients = roles.client_managers
        leading.only_these_follow(list(roles.backups))
        leading.install(forget_bodies=bool(newcomers))
        for session, where in list(self._sessions.items()):
            if where not in view.members:
                del self._sessions[session]
                leading.lost(session)

    def _begin_to_lead(self) -> None:
        following = self._following
        assert following is not None
        leading = self._leading = self._bus.leading = Leading(self.manager, self._say, self._own_disk_has)
        took_over = following.is_synchronised
        if took_over:
            following.take_over(leading)
        else:
            self.manager.lead()
        self._following = None
        leading.multicast(Leads(self.manager.place.index))
        self._record("replica-leads", took_over=took_over, index=self.manager.place.index)

    def _entered(self, view: View) -> None:
        record = self.manager.place.enter(view.number, view.id)
        self.manager.append(RecordKind.VIEW, 0, 0, record)

    def _step_down(self) -> None:
        """Another leads. What this one wrote last may be in no other log."""
        self._record("replica-steps-down", index=self.manager.place.index)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget everything but the journal."""
        self._leading = self._bus.leading = None
        self._forcing.clear()
        self.manager.stop(led=False)
        self.manager = self._make_manager(self._bus)
        self.open()

    # ---- the disk

    def _end_of_tick(self) -> None:
        self.manager.end_of_tick()
        if self._leading is not None:
            self._leading.end_of_tick()

    def force(self, then: Callable[[], None]) -> None:
        """Call `then` when everything that was delivered so far is on disk."""
        journal = self.manager.journal
        journal.end_of_tick()
        if journal.is_all_stored:
            then()
            return
        self._forcing.append((journal.next_lsn - 1, then))
        journal.sync_soon()

    def _own_disk_has(self, lsn: int) -> None:
        while self._forcing and self._forcing[0][0] <= lsn:
            self._forcing.popleft()[1]()

    def on_flow(self, may_send: bool) -> None:
        if may_send:
            if self._leading is not None:
                self._leading.go_on()
            elif self._following is not None:
                self._following.say_stored()
