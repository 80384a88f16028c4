"""A process in the channel of one sub-cluster.

What is said there is heard once and goes to the nodes of the process in a fixed order: first to the message manager,
which acts on facts, then to the client manager, which acts on decisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import msgspec

from heliograph.bus import wire
from heliograph.bus.commands import (
    AMONG_NODES,
    OF_THE_VIEW,
    Command,
    Enrolled,
    EnrolmentSeen,
    ViewRecorded,
)
from heliograph.bus.interface import ChannelBus, Damage, Incarnation, Origin
from heliograph.bus.presence import CLIENT_MANAGER, NodeState
from heliograph.cluster.log import decode_enrolment
from heliograph.cluster.partition_state import Enrolment, State
from heliograph.cluster.roles import Roles, roles_in
from heliograph.cluster.standing import Standing
from heliograph.cluster.view import View, straight
from heliograph.model.errors import CorruptJournal, HeliographError, Unavailable
from heliograph.model.limits import RESTRICTED_START_SECONDS
from heliograph.nodes.cluster_clients import ClusterClients
from heliograph.nodes.cluster_member import LEFT, ClusterMember
from heliograph.nodes.event_log import Record
from heliograph.nodes.handing_out import AT_ONCE
from heliograph.nodes.replica import Replica
from heliograph.nodes.seen import Seen

# The bus could not be entered: nothing was heard since the last time.
_NOT_ENTERED: Final = "bus-unavailable"


class Household(Protocol):
    """The process that a station belongs to."""

    name: str

    def check_belongs(self, station: Station, roles: Roles) -> None:
        """Raises HeliographError if this node is not one of those who are here."""

    def failed_with(self, error: HeliographError) -> None: ...

    def begin_anew(self, station: Station) -> None:
        """What clients have under way in the sub-cluster is known to nobody."""

    def changed(self, station: Station) -> None:
        """There is a view, or more was heard in it."""

    def look_around(self) -> str:
        """What is missing if the bus reaches nobody else though it should; otherwise nothing."""

    def among_nodes(self, station: Station, command: Command) -> None:
        """A node said something that concerns neither the log nor any client."""

    def installed(self, station: Station, view: View) -> None: ...


class Station:
    """One channel, with the nodes of the process that are in it."""

    member: ClusterMember

    def __init__(
        self,
        sub_cluster: str,
        household: Household,
        *,
        replica: Replica | None,
        clients: ClusterClients | None,
        record: Record,
        essentials: tuple[tuple[str, str], ...],
        dispatch_majority: bool = True,
    ) -> None:
        """`dispatch_majority`: clients get what most client managers have seen (P5)."""
        self.sub_cluster = sub_cluster
        self.replica = replica
        self.clients = clients
        self.roles: Roles | None = None  # of the last view
        self.standing: Standing | None = None  # and how it stands
        self._was_in_force = False
        self._household = household
        self._record = record
        self._essentials = essentials
        self._unsaid: list[Callable[[], None]] = []
        self._dispatch_majority = dispatch_majority
        loop = asyncio.get_running_loop()
        is_own = clients.has if clients is not None else None
        has_asked = clients.has_asked if clients is not None else _asked_nothing
        self._seen = Seen(self._say, loop.call_soon, loop.call_later, is_own=is_own, has_asked=has_asked)
        self._left = asyncio.Event()
        self._is_in = False  # in a view, which may be over
        self._left_because = ""
        self._not_understood = ""

    def enter(self, bus: ChannelBus, channel: str) -> None:
        loop = asyncio.get_running_loop()
        self.member = ClusterMember(
            bus,
            channel,
            nodes=self._nodes,
            handler=self,
            loop=loop,
            clock=loop.time,
            number=self.replica.manager.place.lineage if self.replica is not None else 0,
            on_damage=self._damaged,
            sync_age=self.replica.sync_age if self.replica is not None else None,
        )
        for part in (self.replica, self.clients):
            if part is not None:
                part.channel = self.member
        self.member.start()

    def _say(self, word: Command) -> None:
        """Raises Unavailable."""
        self.member.multicast(word)

    async def wait_left(self) -> None:
        await self._left.wait()

    def _nodes(self) -> tuple[NodeState, ...]:
        states = []
        if self.replica is not None:
            states.append(self._with_past(self.replica.state))
        if self.clients is not None:
            states.append(NodeState(self._household.name, CLIENT_MANAGER))
        return tuple(msgspec.structs.replace(state, essentials=self._essentials) for state in states)

    def _with_past(self, state: NodeState) -> NodeState:
        """What the message manager says of the last view."""
        standing = self.standing
        if standing is None:
            return state
        reached = standing.reached
        return msgspec.structs.replace(
            state,
            clients=standing.partition.clients,
            reached=msgspec.msgpack.encode(reached) if reached is not None else b"",
            elders=standing.elders,
        )

    @property
    def key(self) -> bytes | None:
        """What the message managers of the sub-cluster know and no client does; empty at their very first start, None
        where nobody leads."""
        roles = self.roles
        if roles is None or roles.primary is None:
            return None
        return next((state.cluster for state in roles.states.values() if state.cluster), b"")

    @property
    def counts(self) -> bool:
        """Whether nothing is missing any more. Asked with every frame, so it asks nobody else."""
        if self.roles is None or self.roles.primary is None:
            return False
        return self.replica is None or self.replica.is_leading or self.replica.is_following

    @property
    def lacks(self) -> str:
        """What is missing before it counts, in words; empty if nothing. It looks at the ring, which takes a while."""
        roles = self.roles
        if (roles is None or roles.primary is None) and (alone := self._household.look_around()):
            return alone
        if roles is None:
            return "the nodes that are here to agree on who is in the cluster"
        if roles.primary is None and roles.missing:
            names = " and ".join(roles.missing)
            return (
                f"message manager {names}, which may have later messages than those that are here. Start it;"
                f" after {RESTRICTED_START_SECONDS:g} s one of the others leads without it, and hands out only what"
                f" comes from then on. If its disk is lost for good, `helio cluster remove {roles.missing[0]}`"
            )
        if roles.primary is None and roles.others:
            expected = max(state.expected for state in roles.states.values())
            return (
                f"more message managers: at the very first start all {expected} must be there, and there are"
                f" {len(roles.states)}"
            )
        if roles.primary is None:
            return "a message manager: start one with --role message-manager"
        if self.replica is not None and not self.replica.state.is_synchronised:
            return (
                f"the log of message manager {roles.states[roles.primary].name}, which it does not have yet"
            )
        return ""

    @property
    def is_settled(self) -> bool:
        """Whether the view holds and none follows from it. While somebody has still to get the log, to be enrolled or
        to merge what its part did, another view of the same members is about to come: for a moment there is none."""
        standing, roles, replica = self.standing, self.roles, self.replica
        if standing is None or roles is None or roles.primary is None or not self.member.is_installed:
            return False
        if not standing.may_act or roles.others:
            return False
        is_whole = standing.partition.state is State.A
        if is_whole and standing.unsettled is not None:
            return False
        return replica is None or replica.is_settled(is_whole=is_whole)

    # ---- the channel

    def on_apply(self, origin: Origin, commands: list[Command], _position: int) -> None:
        are_among_nodes = False
        for command in commands:  # with every frame, so by their kinds: `isinstance` costs more than the rest
            kind = type(command)
            if kind in OF_THE_VIEW:
                commands = self._of_the_view(origin.incarnation, commands)
                are_among_nodes = True
                break
            are_among_nodes = are_among_nodes or kind in AMONG_NODES
        place = self.member.delivered
        is_seen_more = self._seen.on_apply(origin.incarnation, commands, place)
        handed_out = self._seen.handed_out
        if self.replica is not None:
            self.replica.on_apply(origin, commands)
        if self.clients is not None:
            self.clients.on_apply(origin, commands, AT_ONCE if handed_out.is_waived else place)
            if is_seen_more and self.member.incarnation is not None:
                self.clients.seen(handed_out.seen_by_most(self.member.incarnation))
        if are_among_nodes:
            for command in commands:
                if type(command) in AMONG_NODES:
                    self._household.among_nodes(self, command)
        self._household.changed(self)

    def _damaged(self, damage: Damage) -> None:
        """Bytes that were not understood: of a stranger, or of a node of another version. If a member said them,
        `on_left` follows."""
        self._not_understood = damage.sentence
        self._record("bus-damage", code=damage.code, sentence=damage.sentence, node=damage.place.node)

    def on_suspend(self) -> None:
        if self.replica is not None:
            self.replica.on_suspend()

    def on_install(self, view: View) -> None:
        roles = roles_in(view)
        try:
            self._check_knows_enough(view)
            self._household.check_belongs(self, roles)
        except HeliographError as error:
            self._household.failed_with(error)
            self.member.leave()
            return
        me = self.member.incarnation
        assert me is not None, "a view is installed by a member"
        came = came_with(view, me)
        self.roles, self.standing, self._was_in_force = roles, Standing(view, roles, me), False
        self._record_view(view, roles)
        if self.replica is not None:
            self.replica.view_ended(self._seen.handed_out, came)
            try:
                self.replica.on_install(view, roles, self.standing)
            except (CorruptJournal, OSError) as error:
                self.replica.cannot_lead(error)
                return
        self._seen.installed(roles.client_managers if self._dispatch_majority else (), me)
        self._let_clients_speak(roles, came)
        self._household.installed(self, view)
        if not self._is_in:
            self._is_in, self._left_because = True, ""
            self._record("node-entered-the-channel", members=len(view.members))
        self._household.changed(self)

    def _check_knows_enough(self, view: View) -> None:
        """Raises HeliographError if something may stand in the log, or be said, that this version does not know."""
        level = next(hello.level for who, hello in view.hellos if who == self.member.incarnation)
        if level < view.log_level:
            raise too_old(
                f"the cluster has gone on to level {view.log_level} of its protocol, and this version knows {level}"
            )

    def _record_view(self, view: View, roles: Roles) -> None:
        """Whoever reads this later sees who was apart from whom, and in what state (P10)."""
        partition, primary = roles.partition, roles.primary
        self._record(
            "view-installed",
            sub_cluster=self.sub_cluster,
            view=view.number,
            state=str(partition.state),
            rule=partition.rule,
            primary=roles.states[primary].name if primary is not None else "",
            members=len(view.members),
        )

    def _let_clients_speak(self, roles: Roles, came: tuple[Incarnation, ...]) -> None:
        """What clients want is said where somebody leads, and to one who heard all that was said before. Otherwise
        it would be lost with nobody knowing: a primary that comes from another part of a cut asks for nothing."""
        clients = self.clients
        if clients is None:
            return
        primary = roles.primary
        if clients.has_spoken and primary not in came:
            self._household.begin_anew(self)
        clients.view_ended()
        if primary is not None and not clients.may_speak:
            self._record("message-manager-found", leads=roles.states[primary].name)
        clients.may_speak = primary is not None
        clients.go_on()

    def on_arrive(self, incarnation: Incarnation, agrees: bool) -> None:
        if self.standing is not None:
            self.standing.arrived(incarnation)
            self._look_at_standing(self.standing)

    # ---- what the view is (docs/decisions/0014)

    def _of_the_view(self, sender: Incarnation, commands: list[Command]) -> list[Command]:
        """What members say about the view itself. Returns the rest."""
        standing = self.standing
        assert standing is not None, "it was said in a view"
        for command in commands:
            if isinstance(command, ViewRecorded):
                standing.recorded(sender)
            elif isinstance(command, EnrolmentSeen):
                standing.seen(sender, command.epoch)
            elif isinstance(command, Enrolled):
                self._enrolled(standing, decode_enrolment(command.enrolment), command.is_settled)
        self._look_at_standing(standing)
        return [command for command in commands if type(command) not in OF_THE_VIEW]

    def _enrolled(self, standing: Standing, enrolment: Enrolment, is_settled: bool) -> None:
        if is_settled:
            standing.settled(enrolment)
        else:
            standing.proposes(enrolment)
        seen = partial(self._enrolment_stored, standing, enrolment, is_settled=is_settled)
        if self.replica is not None:
            self.replica.enrolled(enrolment, is_settled=is_settled, then=seen)
        else:
            seen()

    def _enrolment_stored(self, standing: Standing, enrolment: Enrolment, *, is_settled: bool) -> None:
        self._say_in(standing, EnrolmentSeen(enrolment.epoch))
        if is_settled and standing.would_be_whole and self.standing is standing:
            self.member.nodes_changed()  # those who were missing are not waited for any more

    def remove(self, standing: Standing, name: str) -> None:
        """The cluster is to be without this one, which is missing. For the primary of a view in force."""
        wanted = standing.wanted_enrolment(without=name)
        assert wanted is not None, "it is enrolled, and nothing else is being changed"
        self._say_in(standing, Enrolled(msgspec.msgpack.encode(wanted), is_settled=False))

    def _look_at_standing(self, standing: Standing) -> None:
        """Something was heard: what follows from it here?"""
        record = standing.take_record()
        if record is not None:
            assert self.replica is not None, "only message managers record"
            self.replica.record_view(record, partial(self._say_in, standing, ViewRecorded()))
        if standing.is_in_force and not self._was_in_force:
            self._was_in_force = True
            self._record("view-in-force", sub_cluster=self.sub_cluster, view=standing.number)
            if self.replica is not None:
                self.replica.on_in_force()
            if standing.is_primary:
                self._propose(standing)
        settled = standing.take_settled()
        if settled is not None:
            self._say_in(standing, Enrolled(msgspec.msgpack.encode(settled), is_settled=True))

    def _propose(self, standing: Standing) -> None:
        """M14: who is new belongs to the sub-cluster from now on."""
        wanted = standing.wanted_enrolment()
        assert self.replica is not None, "the primary keeps messages"
        if wanted is not None:
            self._say_in(standing, Enrolled(msgspec.msgpack.encode(wanted), is_settled=False))
        elif self.replica.manager.place.enrolment is None and standing.partition.enrolment is not None:
            first = msgspec.msgpack.encode(standing.partition.enrolment)
            self._say_in(standing, Enrolled(first, is_settled=True))

    def _say_in(self, standing: Standing, command: Command) -> None:
        """In this view or not at all. If the bus takes no more now, it is said when it does."""
        if self.standing is not standing or not self.member.is_installed:
            return
        try:
            self.member.multicast(command)
        except Unavailable:
            self._unsaid.append(partial(self._say_in, standing, command))

    def on_flow(self, may_send: bool) -> None:
        if may_send:
            unsaid, self._unsaid = self._unsaid, []
            for say in unsaid:
                say()
        if self.replica is not None:
            self.replica.on_flow(may_send)
        if may_send:
            self._seen.go_on()
        if self.clients is not None and may_send:
            self.clients.go_on()

    def force(self, then: Callable[[], None]) -> None:
        if self.replica is not None:
            self.replica.force(then)
        else:
            then()

    def on_left(self, why: str) -> None:
        """Nothing that this process knew as a member counts. Its clients go elsewhere, or come again."""
        if why == LEFT:
            self._left.set()
            return
        if why != self._left_because:
            self._record("node-left-the-channel", why=why)
        self._is_in, self._left_because = False, why
        self.standing, self._was_in_force = None, False
        self._seen.installed(())
        if self.clients is not None:
            self.clients.may_speak = False
        if why != _NOT_ENTERED:
            self._household.begin_anew(self)
            if self.replica is not None:
                self.replica.begin_anew()
        if why == wire.UNKNOWN:
            # It would hear it again, and nobody is served by a member that comes and goes.
            self._household.failed_with(too_old(self._not_understood))
            self.member.leave()
        else:
            self.member.re_enter()


def _asked_nothing(_request: int) -> bool:
    return False


def too_old(why: str) -> HeliographError:
    return HeliographError(
        f"{why}: this node leaves, and has lost nothing. Upgrade it to the version of the others, and start it again",
        code="node-too-old",
    )


def came_with(view: View, me: Incarnation) -> tuple[Incarnation, ...]:
    """Those who are straight from the last view of this member together with it, itself included."""
    return straight(view).get(me) or (me,)
