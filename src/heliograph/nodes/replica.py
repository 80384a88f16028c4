"""A message manager in a sub-cluster: it follows the primary, leads when the view says so, catches up when it must.

    state       | on                                   | then
    ------------+--------------------------------------+-----------
    away        | view, another leads                  | catching up
    away        | view, it leads                       | leading (from its journal)
    catching up | through                              | following
    following   | view, another leads, it has the log  | following
    following   | view, it leads                       | leading (takes over)
    following   | its log and the primary's part       | away, and enters again
    leading     | a branch is offered                  | merging (as if it followed itself)
    merging     | taken in, or the view ends           | leading (takes over from itself)
    leading     | view, it leads                       | leading
    leading     | view, another leads                  | away, and enters again
    any         | left the channel                     | away

Which it is follows from the view alone (`cluster/roles.py`); what it does there is in `leading.py`, `following.py`,
`catching_up.py`, `bringing.py` and `reunion.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Collection
from typing import Final, Protocol

import msgspec

from heliograph.bus.commands import (
    AMONG_NODES,
    DECISIONS,
    BodyWanted,
    BranchOffered,
    Command,
    CommitAsked,
    DispatchSeen,
    Leads,
    Logged,
    Published,
    Stored,
    Synchronised,
    UnionComplete,
)
from heliograph.bus.interface import NO_VIEW, Incarnation, Origin, Place, Receiver
from heliograph.bus.presence import MESSAGE_MANAGER, NodeState
from heliograph.cluster.dispatch_rules import Situation
from heliograph.cluster.fork import has_more
from heliograph.cluster.handed_out import Handed, HandedOut
from heliograph.cluster.log import Enrolled, LogPlace
from heliograph.cluster.partition_state import Enrolment, State, UnrestrictedView
from heliograph.cluster.roles import Roles, has_log_of
from heliograph.cluster.standing import Standing
from heliograph.cluster.view import View
from heliograph.journal.records import RecordKind
from heliograph.model.claim import first_tag
from heliograph.model.errors import CorruptJournal, HeliographError, Unavailable
from heliograph.model.limits import RESTRICTED_START_SECONDS, STUCK_SECONDS
from heliograph.nodes.bringing import Bringing
from heliograph.nodes.catching_up import Host, catch_up
from heliograph.nodes.clock import CLOCK, Clock
from heliograph.nodes.event_log import Record, ignore
from heliograph.nodes.following import Fact, Following, LostPlace
from heliograph.nodes.leading import Leading
from heliograph.nodes.message_manager import MessageManager
from heliograph.nodes.preparing import PROMISES
from heliograph.nodes.reunion import Reunion
from heliograph.nodes.tick import Tick

# How soon a manager that could not catch up tries again.
_TRY_AGAIN_SECONDS: Final = 0.2
# How long a backup is given to take over from a primary that wants to go, and how often that is looked at.
_HAND_OVER_SECONDS: Final = 5.0
_LOOK_AGAIN_SECONDS: Final = 0.01
_KEY_BYTES: Final = 16
# An administrator hears that a part goes on as was ordered, before all clients have to come again.
_ANSWER_FIRST_SECONDS: Final = 0.3
_AMONG_MANAGERS = frozenset((Stored, Synchronised, BodyWanted, BranchOffered, UnionComplete))
# `Seen` keeps these.
_OF_CLIENT_MANAGERS = (DispatchSeen,)
# What these come to depends on what the view is.
_OF_TRANSACTIONS = (CommitAsked, *PROMISES)
_encode = msgspec.msgpack.Encoder().encode
_ANYWHERE = Place(0, 0)


def _encoded(known: msgspec.Struct | None) -> bytes:
    return _encode(known) if known is not None else b""


class Channel(Protocol):
    """What a replica needs of its member."""

    @property
    def incarnation(self) -> Incarnation | None: ...

    def multicast(self, command: Command) -> None: ...

    def nodes_changed(self) -> None: ...

    def has_ended(self, incarnation: Incarnation) -> bool: ...

    def leave(self) -> None: ...


class ManagerBus:
    """What a manager says is heard when it leads."""

    def __init__(self) -> None:
        self.leading: Leading | None = None
        self._watching: tuple[Receiver, Collection[type[Command]]] | None = None

    def join(self, receiver: Receiver, kinds: Collection[type[Command]] | None = None) -> None:
        """Somebody wants to know what is decided here; each new manager brings the same."""
        self._watching = (receiver, kinds or ())

    def multicast(self, command: Command) -> None:
        if self.leading is None:
            return
        self.leading.multicast(command)
        if self._watching is not None and type(command) in self._watching[1]:
            self._watching[0](command)


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
        clock: Clock = CLOCK,
        lease_seconds: float = 0.0,
        expected: int = 1,
    ) -> None:
        """`lease_seconds`: what consumers have is kept for them for so long when their client manager is gone."""
        self._lease_seconds = lease_seconds
        self._expected = expected  # before one leads for the very first time, so many must be there
        self.name = name
        self._make_manager = make_manager
        self._seniority = seniority
        self._record = record
        self._bus = ManagerBus()
        self.channel: Channel | None = None
        self.roles: Roles | None = None
        self._view: View | None = None
        self._standing: Standing | None = None
        self._leading: Leading | None = None
        self._following: Following | None = None
        self._is_installed = False
        self._is_leaving = False
        self._is_handing_over = False  # it was ordered to, and stays
        self._is_full = False
        self._is_stuck = False
        self._grace: asyncio.TimerHandle | None = None  # nobody leads: others may still come who know more
        self._has_waited = False
        self._known_clients: tuple[Incarnation, ...] = ()
        self._first_tag = 0  # of those that it gives while it leads
        self._came: tuple[Incarnation, ...] = ()  # who is straight from the last view with it
        self._forget_bodies = False  # somebody is new, and has heard none yet
        self._dropped: list[Handed] = []  # what it handed out in the last view, and no client has
        # Facts that came between views. Another may lead already, and they may be about what that one gave: whoever
        # leads in the next view handles them.
        self._kept: list[Fact] = []
        # What was asked about transactions before a view began is decided in it, if it is restricted (PROTOCOL 7.3),
        # or the one before was: that had no say in it any more.
        self._undecided: list[Fact] = []
        self._decides_later = False
        self._unread: list[Command] = []  # decisions that came before it had the log they go on from
        self._catching_up: asyncio.Task[None] | None = None
        self.host = Host(lambda: self.manager, lambda: self.reunion.branches, clock.secret(_KEY_BYTES))
        self.bringing = Bringing(self)
        self._forcing: deque[tuple[int, Callable[[], None]]] = deque()
        self.manager = self._made()
        self.reunion = Reunion(self, self.manager)
        tick.add_write(self._end_of_tick)

    # ---- life

    async def open(self, host: str) -> None:
        """`host`: where others reach this one to catch up."""
        await self.host.start(host)
        self.manager.large.keep(self.reunion.branches.files())
        self.manager.open()
        self.reunion.branches.still_in_log(self.manager.place.index, self.manager.place.chain)
        self._following = self._follow()

    async def hand_over(self) -> bool:
        """Let a backup lead, as before this node is stopped: no client notices. Whether one does.

        It stays until the view is in force. What is accepted in one that never is waits until all are together
        again, as if a restricted part had accepted it, and that may be long after this one has gone.
        """
        self._is_leaving = True
        if self._leading is not None and not self._has_backup:
            return False
        if self.channel is not None and self._leading is not None:
            self.channel.nodes_changed()
        try:
            async with asyncio.timeout(_HAND_OVER_SECONDS):
                while self._leading is not None or not self._is_through:
                    await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        except TimeoutError:
            return False
        return True

    def let_another_lead(self) -> None:
        """By order, which is answered first. It holds for the next view, whoever leads there."""
        asyncio.get_running_loop().call_later(_ANSWER_FIRST_SECONDS, self._hand_over_now)

    def _hand_over_now(self) -> None:
        if self._is_installed and self._has_backup:
            self._is_handing_over = True
            self._tell_nodes_changed()

    @property
    def _is_through(self) -> bool:
        """Whether the view, if there is one, needs nothing more of this member in order to be in force."""
        return not self._is_installed or self._standing is None or self._standing.may_act

    async def stop(self) -> None:
        self.reunion.suspend()
        self._end_waiting()
        self.bringing.stop()
        if self._catching_up is not None:
            self._catching_up.cancel()
        await self.host.stop()
        self.manager.stop(led=not self._has_backup)

    def _made(self) -> MessageManager:
        manager = self._make_manager(self._bus)
        manager.pipelines.feeding.on_lack = self.bringing.bring_more_history
        return manager

    def _follow(self) -> Following:
        following = Following(self.manager, self._say, self._own_disk_has, self.bringing.bring_content)
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
            lineage_id=place.views[-1].id if place.views else b"",
            index=place.index,
            chain=place.chain,
            reach=place.reach,
            record=_encoded(place.unrestricted),
            enrolment=_encoded(place.enrolment),
            proposed=_encoded(place.proposed),
            is_synchronised=self._leading is not None or follows,
            is_leading=self._leading is not None,
            is_leaving=self._wants_another_to_lead,
            address=self.host.address,
            cluster=place.identity,
            expected=self._expected,
            is_waiting=not self._has_waited,
            has_branches=bool(self.reunion.branches.all),
            log_level=place.level,
        )

    @property
    def _wants_another_to_lead(self) -> bool:
        return self._is_leaving or self._is_handing_over or self._is_full or self._lacks_content

    @property
    def _lacks_content(self) -> bool:
        """Messages of its log refer to files that it does not have, and others do: one of them should lead."""
        following = self._following
        return following is not None and (
            following.lacks_content or self.manager.large.has_lost_some or self.bringing.lacks_history
        )

    @property
    def is_leading(self) -> bool:
        return self._leading is not None

    def is_settled(self, *, is_whole: bool) -> bool:
        """Whether it counts in its view and has nothing to merge. `is_whole`: everybody is there to merge with."""
        if not self.state.is_synchronised or (self._standing is not None and self._standing.is_left_out):
            return False
        if not is_whole:
            return True
        if self.reunion.is_merging or self.reunion.branches.all:
            return False
        return not (self.is_leading and self.manager.catalogue.views.is_parted)

    @property
    def standing(self) -> str:
        """What it is at the moment, in a word or two."""
        if self._leading is not None:
            return "leads"
        if self._following is not None and self._following.is_synchronised:
            return "follows"
        return "catches up" if self.roles is not None and self.roles.primary is not None else "waits"

    @property
    def stored_index(self) -> int:
        """How far those who lead can count on its disk; who leads itself says how far its log goes."""
        following = self._following
        return following.stored_index if following is not None else self.manager.place.index

    @property
    def backup_names(self) -> list[str]:
        """The message managers that have its log, if it leads."""
        if self._leading is None or self.roles is None:
            return []
        states = self.roles.states
        return sorted(states[who].name for who in self._leading.backups if who in states)

    @property
    def _has_backup(self) -> bool:
        """Whether it leads, and another could."""
        return self._leading is not None and self._leading.has_backup

    # ---- for the reunion

    @property
    def is_installed(self) -> bool:
        return self._is_installed

    @property
    def leading(self) -> Leading | None:
        return self._leading

    @property
    def following(self) -> Following | None:
        return self._following

    @property
    def is_following(self) -> bool:
        return self._following is not None and self._following.is_synchronised

    def say(self, command: Command) -> None:
        """Raises Unavailable."""
        self._say(command)

    def record(self, event: str, **fields: object) -> None:
        self._record(event, **fields)

    def address_of(self, who: Incarnation) -> str:
        """Where a message manager of the view is reached. Raises Unavailable."""
        if self.roles is None or who not in self.roles.states:
            raise Unavailable("it is not here any more", code="catch-up-failed")
        return self.roles.states[who].address

    def address_of_primary(self) -> str:
        """Where whoever leads can be asked. It has the content of every large message; a backup may wait for it."""
        roles = self.roles
        if roles is None or roles.primary is None:
            return ""
        return roles.states[roles.primary].address

    def addresses_of_others(self) -> list[str]:
        """Where the other message managers of the view are reached."""
        states = self.roles.states.values() if self.roles is not None else ()
        return [state.address for state in states if state.name != self.name]

    @property
    def view(self) -> View | None:
        return self._view

    @property
    def is_whole(self) -> bool:
        """Whether all who belong to the sub-cluster are in the view, with the disks that they had."""
        return self._standing is not None and self._standing.partition.state is State.A

    def everybody_is_here(self) -> bool:
        """Whether all who belong to the sub-cluster are here, and follow."""
        standing, leading, roles = self._standing, self._leading, self.roles
        if standing is None or leading is None or roles is None:
            return False
        if standing.partition.state is not State.A or not standing.is_in_force:
            return False
        me = self.channel.incarnation if self.channel is not None else None
        return all(who == me or who in leading.backups for who in roles.states)

    @property
    def may_act(self) -> bool:
        """Whether the view lets who leads decide anything."""
        return self._standing is not None and self._standing.may_act

    def retreat(self) -> MessageManager:
        """Read the journal again, and do not act."""
        self._leading = self._bus.leading = None
        self.bringing.end_content()
        self._reopen()
        return self.manager

    def lost_place(self, lost: LostPlace) -> None:
        """The others must not count on this manager, and it has to catch up."""
        self._record("replica-lost-its-place", sentence=lost.sentence)
        following = self._following
        assert following is not None
        following.has_log = following.is_synchronised = False
        self._unread.clear()
        if lost.is_parted and self._view is not None:
            self.manager.append(RecordKind.VIEW, 0, 0, self.manager.place.retract(self._view.id))
        if self.channel is not None:
            self.channel.nodes_changed()

    def cannot_lead(self, error: CorruptJournal | OSError) -> None:
        """What it would lead with cannot be read: it stops, and another leads."""
        self.manager.journal_failed(error)
        if self.channel is not None:
            self.channel.leave()

    def goes_on_leading(self, leading: Leading) -> None:
        self._leading = self._bus.leading = leading
        self.regate()
        self.bringing.regain_content()

    def became_whole(self) -> None:
        """Every message manager has all that any had: nothing waits any more."""
        self.manager.became_whole()
        self.manager.end_doubts(self._lease_seconds)
        self.regate()

    def regate(self) -> None:
        """What may be handed out is another matter from here on."""
        assert self._standing is not None, "who leads is in a view"
        views = self.manager.catalogue.views
        situation = Situation(
            state=self._standing.partition.state,
            is_in_force=self._standing.is_in_force,
            is_whole=not views.is_parted,
            is_joined=self.reunion.looks_joined(),
            first_tag=self._first_tag,
        )
        for destination, effects in views.regate(situation):
            self.manager.run(destination, effects)
        self.manager.ask_for_tick()

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
            if self.reunion.keeps(origin, command):
                continue
            if kind in DECISIONS:
                if self._leading is None:
                    self._decided(command)
                elif is_own:
                    self._leading.heard_own(command)
            elif kind in _AMONG_MANAGERS:
                self._among_managers(sender, command)
            elif kind not in AMONG_NODES and kind not in _OF_CLIENT_MANAGERS:
                self._fact(origin, command)

    def _fact(self, origin: Origin, fact: Command) -> None:
        sender, sequence = origin.incarnation, origin.sequence
        if self._leading is not None and self._is_installed:
            self._handle(self._leading, (sender, sequence, fact))
        elif self._leading is not None:
            self._kept.append((sender, sequence, fact))
        elif self._following is not None:
            self._following.heard(sender, sequence, fact)

    def _handle(self, leading: Leading, heard: Fact) -> None:
        if self._decides_later and isinstance(heard[2], _OF_TRANSACTIONS):
            self._undecided.append(heard)
        else:
            leading.handle(*heard)

    def _among_managers(self, sender: Incarnation, fact: Command) -> None:
        if isinstance(fact, Stored):  # by far the most
            if (
                self._leading is not None and self._is_installed
            ):  # PROTOCOL 2: else it was given in another view
                self._leading.stored_there(sender, fact.index)
            return
        if isinstance(fact, BranchOffered | UnionComplete):
            if self._is_installed:
                self.reunion.heard(sender, fact)
            return
        if self._leading is None:
            return
        if isinstance(fact, Synchronised):
            if self._is_installed:
                self._leading.follows(sender)
        elif isinstance(fact, BodyWanted):
            self._leading.body_wanted(fact.consumer, fact.tag)

    def _decided(self, decision: Command) -> None:
        following = self._following
        assert following is not None, "it follows or leads"
        if not following.has_log:
            self._unread.append(decision)
            return
        try:
            self._read(following, decision)
        except LostPlace as lost:
            self.lost_place(lost)
        except HeliographError as error:
            self._cannot_read(following, error)

    def _read(self, following: Following, decision: Command) -> None:
        if isinstance(decision, Logged):
            was_synchronised = following.is_synchronised
            following.logged(decision)
            if following.is_synchronised and not was_synchronised:
                self._has_caught_up()
        else:
            following.decided(decision)

    def _cannot_read(self, following: Following, error: HeliographError) -> None:
        """The log goes on with something that this version does not know: it counts for nothing more, and ends."""
        following.has_log = following.is_synchronised = False
        self.manager.journal_failed(error)

    def _has_caught_up(self) -> None:
        """The others may count on it, which takes a view: in an unrestricted one it is fixed who has the log."""
        if self._standing is not None and self._standing.is_left_out:
            self._tell_nodes_changed()

    # ---- views

    def on_suspend(self) -> None:
        self.reunion.suspend()
        self._is_installed = False
        if self._leading is not None:
            self._leading.suspend()
            self._enter_no_view()
            self.manager.view_is_over()

    def view_ended(self, handed_out: HandedOut, came: Collection[Incarnation]) -> None:
        """`came`: who is straight from the view that is over together with this member."""
        side = self._leading or self._following
        assert side is not None, "it follows or leads"
        self._came = tuple(came)
        if isinstance(side, Following):
            side.pass_what_waits()
        dropped = handed_out.dropped(came, side.targets())
        if isinstance(side, Following):
            side.only_these_came(came)
            side.was_dropped(dropped)
        else:
            self._dropped = dropped

    def on_install(self, view: View, roles: Roles, standing: Standing) -> None:
        assert self.channel is not None, "a view is installed by a member"
        self.reunion.suspend()
        self.reunion.installed()
        self._is_installed, self._is_handing_over = True, False
        self.roles, self._standing = roles, standing
        self._view = view
        if self._following is not None:
            self._following.view_began()
        self._adopt(roles)
        if roles.primary is not None:
            self._end_waiting()
        me = self.channel.incarnation
        if roles.primary == me:
            self._lead(view, roles)
        elif self._leading is not None:
            self._step_down()
        elif roles.primary is None:
            self._wait_for_others(roles)
        elif me in roles.backups:
            self._entered(view)
            assert self._following is not None, "it was synchronised"
            self._following.say_stored()
        else:
            self._join_others(view, roles)

    def _join_others(self, view: View, roles: Roles) -> None:
        """It does not count yet. If it has the log of those who do, it only has to be introduced."""
        following, me = self._following, self.channel.incarnation if self.channel is not None else None
        assert following is not None, "it follows or leads"
        if me is None or roles.primary is None:
            return
        leader = roles.states[roles.primary]
        if following.has_log and has_log_of(leader, roles.states[me]):
            self._entered(view)
            self._say_synchronised()
            return
        following.has_log = following.is_synchronised = False
        self._catch_up()

    # ---- catching up

    def _catch_up(self) -> None:
        if self._catching_up is None or self._catching_up.done():
            self._catching_up = asyncio.get_running_loop().create_task(self._try_to_catch_up())

    async def _try_to_catch_up(self) -> None:
        """Until it worked, or this manager leads, or has no journal any more."""
        while self._following is not None and not self._following.has_log and not self.manager.failed.done():
            address = self._host()
            if address:
                try:
                    await self._catch_up_from(address)
                except (OSError, EOFError, TimeoutError, HeliographError, msgspec.DecodeError) as error:
                    self._record("replica-could-not-catch-up", error=str(error) or repr(error))
            if self._following is not None and not self._following.has_log:
                await asyncio.sleep(_TRY_AGAIN_SECONDS)

    def _host(self) -> str:
        """M9: backups are preferred, the primary has enough to do."""
        roles, me = self.roles, self.channel.incarnation if self.channel is not None else None
        if roles is None or not self._is_installed or roles.primary is None:
            return ""
        hosts = [who for who in roles.backups if who != me]
        return roles.states[hosts[0] if hosts else roles.primary].address

    async def _catch_up_from(self, address: str) -> None:
        following, view = self._following, self._view
        assert following is not None
        blocks = await catch_up(address, self.manager, self._cut, self._set_aside)
        if self._following is not following:
            return  # it began anew meanwhile
        self._reopen()
        following.goes_on_as(self.manager)
        await self.bringing.bring_history(address)
        if self._following is not following:
            return
        if self._view is not view:
            # The host may be in another part by now, or have cut off what it gave: this is not the log of the view.
            self._record("replica-caught-up-too-late", index=self.manager.place.index)
            return
        if self._view is not None and self.roles is not None and self.roles.primary is not None:
            self._entered(self._view)
            self.manager.journal.sync_now()
        self._record("replica-caught-up", index=self.manager.place.index, blocks=blocks)
        unread, self._unread = self._unread, []
        following.has_log = True
        try:
            for decision in unread:
                self._read(following, decision)
        except LostPlace as lost:
            self.lost_place(lost)
            return
        except HeliographError as error:
            self._cannot_read(following, error)
            return
        self._say_synchronised()

    def _say_synchronised(self) -> None:
        if self._is_installed:
            if self._following is not None:
                self._following.is_announced = True
            with contextlib.suppress(Unavailable):
                self._say(Synchronised(self.manager.place.index))

    async def _set_aside(self, manager: MessageManager, fork: int) -> None:
        """What this part did is for all to have."""
        branch = await self.reunion.branches.set_aside(manager, fork)
        self._record("branch-set-aside", fork=fork, index=branch.index, branch=branch.id.hex())

    def _cut(self, index: int) -> MessageManager:
        """Where our log parts from the host's, it ends."""
        history = self.manager.place.history
        self._reopen(index)
        self.manager.place.history = (
            history  # it says what stands in the journal, of which nothing is cut yet
        )
        return self.manager

    def _reopen(self, until: int | None = None) -> None:
        before = self.manager.place
        self.manager.stop(led=False)
        self.manager = self._made()
        self.manager.large.keep(self.reunion.branches.files())
        try:
            self.manager.open(until)
        except (HeliographError, OSError) as error:
            # Nothing may be written to a journal that could not be read: this node stops, as if it had just started.
            self.manager.journal_failed(error)
            raise
        if until is None:
            self.reunion.branches.still_in_log(self.manager.place.index, self.manager.place.chain)
        if self._following is not None:
            self.manager.shipping = self._following  # it says when something is on disk
        self._still_know(before)

    def _still_know(self, before: LogPlace) -> None:
        """Whatever becomes of the log: what this manager has once had on disk of the cluster counts."""
        now = self.manager.place
        record, enrolment, proposed = before.unrestricted, before.enrolment, before.proposed
        if record is not None and (now.unrestricted is None or now.unrestricted.number < record.number):
            self._note(RecordKind.UNRESTRICTED, _encode(record))
        if enrolment is not None and (now.enrolment is None or now.enrolment.epoch < enrolment.epoch):
            self._note(RecordKind.ENROLMENT, _encode(Enrolled(enrolment, is_settled=True)))
        settled = now.enrolment.epoch if now.enrolment is not None else 0
        if proposed is not None and proposed.epoch > settled and now.proposed is None:
            self._note(RecordKind.ENROLMENT, _encode(Enrolled(proposed, is_settled=False)))

    # ---- leading

    def _lead(self, view: View, roles: Roles) -> None:
        situation = self.manager.catalogue.views.situation
        was_restricted = situation is not None and situation.state is State.D
        is_restricted = roles.partition.state is State.D
        self._decides_later = was_restricted or is_restricted or bool(self._undecided)
        if self._leading is None:
            self._first_tag = 0  # whoever led before may have given what nobody here has heard of
            self._begin_to_lead(view, roles)
        else:
            self._entered(view)
            self._leading.only_these_follow(roles.backups)
            self.reunion.awaits(self._from_other_parts(roles))
            self._see_who_may_settle_elsewhere(roles)
            kept, self._kept = self._kept, []
            self._handle_all(self._leading, kept)
        leading = self._leading
        assert leading is not None
        self.manager.journal.sync_now()  # PROTOCOL 3: before it acts in the view
        newcomers = [who for who in roles.client_managers if who not in self._known_clients]
        self._known_clients = roles.client_managers
        self._forget_bodies = self._forget_bodies or bool(newcomers)
        dropped, self._dropped = self._dropped, []
        state = roles.partition.state
        leading.decide_afresh(dropped, is_restricted=is_restricted)
        assert self.channel is not None, "who leads is in the channel"
        has_ended = self.channel.has_ended
        leading.only_these_are_here(self._came, has_ended)
        self.reunion.only_these_are_here(self._came, lambda who: leading.lease_after(who, has_ended))
        takes_along = not is_restricted and self._standing is not None and self._standing.takes_along
        self.manager.run(None, self.manager.catalogue.views.enter(view.id, state, takes_along=takes_along))
        if not self._first_tag or is_restricted or self._from_other_parts(roles):
            self._first_tag = self._first_tag_in(view, roles)
        if is_restricted:
            # What it hands out it does not force. If its machine is lost with the note of that, the record of the
            # view tells what may have gone (`destinations/untraced.py`).
            self.manager.journal.sync_now()
        self.regate()
        self.bringing.regain_content()
        if is_restricted:
            self._act()

    def _handle_all(self, leading: Leading, facts: list[Fact]) -> None:
        """What nobody has handled yet. Whoever comes back waits for the union of the view that there is now."""
        for sender, sequence, fact in facts:
            if isinstance(fact, Published) and sender not in self._came:
                leading.may_lack_some(sender, fact)
            if not self.reunion.lets_wait(Origin(_ANYWHERE, sender, sequence, NO_VIEW), fact):
                self._handle(leading, (sender, sequence, fact))

    def _from_other_parts(self, roles: Roles) -> tuple[Incarnation, ...]:
        """Message managers of the view that have done something which is not known here."""
        place = self.manager.place
        return tuple(
            who
            for who, state in roles.states.items()
            if who != roles.primary and (state.has_branches or has_more(place, state.lineage_id, state.index))
        )

    def _first_tag_in(self, view: View, roles: Roles) -> int:
        enrolment = roles.partition.enrolment
        names = [name for name, _ in enrolment.message_managers] if enrolment is not None else []
        return first_tag(view.number, names.index(self.name) if self.name in names else len(names))

    def _enter_no_view(self) -> None:
        """What comes now counts for the view that is made, if all went well; or else for none."""
        self.manager.begin_view()
        self.manager.run(None, self.manager.catalogue.views.enter(b"", State.D))

    def on_in_force(self) -> None:
        """The view is unrestricted for all: who leads begins to decide."""
        if self._leading is not None and self._view is not None:
            self.manager.run(None, self.manager.catalogue.views.comes_into_force())
            self.regate()
            self._act()
            if self._is_leaving and self._has_backup:
                self._tell_nodes_changed()  # there may be one that can lead only now

    def _act(self) -> None:
        assert self._leading is not None
        self._leading.install(forget_bodies=self._forget_bodies)
        self._forget_bodies = False
        self._decides_later = False
        undecided, self._undecided = self._undecided, []
        for heard in undecided:
            self._leading.handle(*heard)
        self.manager.ask_for_tick()

    def _begin_to_lead(self, view: View, roles: Roles) -> None:
        following = self._following
        assert following is not None
        took_over = following.is_synchronised
        if not took_over:
            self._give_up_catching_up()
        # Before it writes anything of its own: where the view before this one ended is where a log may part from it.
        self._entered(view)
        prefix = b"s" + view.id
        leading = Leading(
            self.manager,
            self._say,
            self._own_disk_has,
            backups=roles.backups,
            prefix=prefix,
            lease_seconds=self._lease_seconds,
        )
        self._leading = self._bus.leading = leading
        self.reunion.awaits(self._from_other_parts(roles))
        if took_over:
            self._enter_no_view()
            facts = following.take_over(leading)
            self._see_who_may_settle_elsewhere(roles)
            self._handle_all(leading, facts)
            self.manager.begin_turns()
        else:
            self.manager.lead()
            for attendant in self.manager.catalogue.attendance.all():
                assert attendant.attached is not None, "the journal says how it came"
                leading.remembers(attendant.attached)
            self._see_who_may_settle_elsewhere(roles)
        self._following = None
        self.bringing.end_content()  # who led before is not asked any more
        leading.multicast(Leads(self.manager.place.index, anew=not took_over))
        self._record("replica-leads", took_over=took_over, index=self.manager.place.index)

    def _see_who_may_settle_elsewhere(self, roles: Roles) -> None:
        """Before anything is handled in a view: who restarted, or was elsewhere in between, may have led a part of
        its own, and so may who is not here."""
        is_whole = roles.partition.state is State.A
        self.manager.view_begins(was_whole=is_whole and all(who in self._came for who in roles.states))

    def _give_up_catching_up(self) -> None:
        """What it has on disk is what it leads with: all of it, also what was cut off in memory only."""
        if self._catching_up is not None and not self._catching_up.done():
            self._catching_up.cancel()
            self._reopen()
        self._catching_up = None

    def _entered(self, view: View) -> None:
        """Where the log was when the view began: there it may part from others."""
        record = self.manager.place.enter(view.number, view.id, view.level, self.manager.boot)
        self.manager.append(RecordKind.VIEW, 0, 0, record)

    # ---- what the cluster is (docs/decisions/0014)

    def record_view(self, record: UnrestrictedView, then: Callable[[], None]) -> None:
        """PROTOCOL 3: this view is on disk before anybody acts in it. `then` is called when it is."""
        self._note(RecordKind.UNRESTRICTED, _encode(record))
        self.force(then)

    def enrolled(self, enrolment: Enrolment, *, is_settled: bool, then: Callable[[], None]) -> None:
        """Who belongs to the cluster. `then` is called when it is on disk."""
        known = self.manager.place.enrolment
        if known is None or known.epoch < enrolment.epoch:
            self._note(RecordKind.ENROLMENT, _encode(Enrolled(enrolment, is_settled)))
        self.force(then)

    def _adopt(self, roles: Roles) -> None:
        """Others know a newer one: before it is known here too, this manager has no part in it."""
        newest, known = roles.partition.enrolment, self.manager.place.enrolment
        is_told = any(state.enrolment for state in roles.states.values())
        if newest is not None and is_told and (known is None or known.epoch < newest.epoch):
            self.enrolled(newest, is_settled=True, then=self._tell_nodes_changed)

    def _note(self, kind: RecordKind, payload: bytes) -> None:
        """A record of this journal alone."""
        self.manager.place.add(kind, 0, 0, payload)
        self.manager.append(kind, 0, 0, payload)

    def decreed(self) -> None:
        """Something holds from here on that changes what the next view is. Whoever asked for it hears so first."""
        asyncio.get_running_loop().call_later(_ANSWER_FIRST_SECONDS, self._tell_nodes_changed)

    def _tell_nodes_changed(self) -> None:
        if self.channel is not None:
            self.channel.nodes_changed()

    def _step_down(self) -> None:
        """Another leads. What this one wrote last may be in no other log."""
        self._record("replica-steps-down", index=self.manager.place.index)
        self.begin_anew()
        self._catch_up()

    def begin_anew(self) -> None:
        """Forget everything but the journal."""
        self.reunion.stop()
        self._leading = self._bus.leading = None
        self._forcing.clear()
        self._kept.clear()
        self._undecided.clear()
        self._decides_later = False
        self._unread.clear()
        self.bringing.stop()
        if self._catching_up is not None:
            self._catching_up.cancel()
        self._catching_up = None
        with contextlib.suppress(HeliographError, OSError):  # then the node stops
            self._reopen()
        self._following = self._follow()
        self._end_waiting()

    # ---- nobody leads

    def _wait_for_others(self, roles: Roles) -> None:
        """For those who may know more; not without end."""
        missing = ", ".join(roles.missing) or "others, since this is the very first start"
        self._record("replica-waits", sentence=f"nobody leads before it is here: {missing}")
        if self._grace is None and not self._has_waited and roles.partition.primary is not None:
            loop = asyncio.get_running_loop()
            self._grace = loop.call_later(RESTRICTED_START_SECONDS, self._waited_enough)

    def _waited_enough(self) -> None:
        self._end_waiting()
        self._has_waited = True
        self._record("replica-goes-on-restricted", index=self.manager.place.index)
        self._tell_nodes_changed()

    def _end_waiting(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
        self._grace, self._has_waited = None, False

    # ---- the disk

    def _end_of_tick(self) -> None:
        self.reunion.look()
        self.manager.end_of_tick()
        if self.manager.journal.is_full != self._is_full:
            self._note_full(self.manager.journal.is_full)
        if self._leading is not None:
            self._leading.end_of_tick()

    def sync_age(self) -> float:
        """How long the disk has been at it.

        M9: a primary that makes no progress steps down. It says no hello before its disk has answered, so a new view
        is one without it.
        """
        age = self.manager.journal.sync_age
        if age < STUCK_SECONDS:
            self._is_stuck = False
        elif not self._is_stuck and self._has_backup:
            self._is_stuck = True
            self._record("replica-stuck", seconds=round(age, 3))
            assert self.channel is not None
            self.channel.nodes_changed()
        return age

    def _note_full(self, is_full: bool) -> None:
        """M9: a primary that cannot store steps down, if a backup can."""
        self._is_full = is_full
        if is_full and self._has_backup:
            assert self.channel is not None
            self.channel.nodes_changed()

    def force(self, then: Callable[[], None]) -> None:
        """Call `then` when everything that was delivered so far is on disk."""
        journal = self.manager.journal
        journal.end_of_tick()
        if journal.is_all_stored:
            then()
            return
        self._forcing.append((journal.written_lsn, then))
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
