"""How a view stands, for one member of it: what it is, whether it is in force, and who belongs to the sub-cluster.

From its installation to that of the next one. Everything here follows from the order of deliveries
(docs/decisions/0014); the shell writes to disk and says what is to be said.
"""

from __future__ import annotations

from heliograph.bus.interface import NO_VIEW, Incarnation, Stamp
from heliograph.bus.presence import CLIENT_MANAGER, NodeState
from heliograph.cluster.in_force import InForce
from heliograph.cluster.partition_state import (
    Enrolment,
    Partition,
    State,
    UnrestrictedView,
    are_strictly_most,
)
from heliograph.cluster.roles import Roles
from heliograph.cluster.view import View, number_of, straight
from heliograph.model.limits import MAX_ENROLLED


class Standing:
    """One view. `me`: this member."""

    def __init__(self, view: View, roles: Roles, me: Incarnation) -> None:
        self.view: Stamp = view.id
        self.number = view.number
        self.partition: Partition = roles.partition
        self.is_primary = roles.primary == me
        self._me = me
        self._states = roles.states
        self._clients = {
            who: node.name
            for who, hello in view.hellos
            for node in hello.nodes
            if node.role == CLIENT_MANAGER
        }
        self.takes_along = _takes_along(view, roles, me)
        self._progress = InForce(roles.partition)
        self._is_recording = False
        self._seen: dict[int, dict[Incarnation, None]] = {}
        self._wanted: Enrolment | None = None  # by this one, which leads
        self._proposed: Enrolment | None = None  # as was delivered
        self.enrolment = roles.partition.enrolment  # the newest that is settled

    # ---- coming into force

    def arrived(self, who: Incarnation) -> None:
        self._progress.arrived(who)

    def recorded(self, who: Incarnation) -> None:
        self._progress.recorded(who)

    def take_record(self) -> UnrestrictedView | None:
        """What this member has to put on disk now, if anything; once."""
        if self._is_recording or not self._progress.may_record(self._me):
            return None
        self._is_recording = True
        return self._as_recorded

    @property
    def _as_recorded(self) -> UnrestrictedView:
        return UnrestrictedView(self.number, self.view, self.partition.stores)

    @property
    def reached(self) -> UnrestrictedView | None:
        """This view, as soon as those are there without whom no other can follow the one before it: whoever goes on
        from here goes on from it, in force or not."""
        return self._as_recorded if self._progress.have_arrived else None

    @property
    def elders(self) -> tuple[bytes, ...]:
        """Of U, those that were unrestricted before."""
        return tuple(self._states[who].store for who in self.partition.elders)

    @property
    def is_in_force(self) -> bool:
        return self._progress.is_in_force

    @property
    def may_act(self) -> bool:
        """Whether its primary may decide anything."""
        return self.partition.state is State.D or self.is_in_force

    @property
    def awaited(self) -> tuple[str, ...]:
        """Of whom something is still to be heard before it is in force, by name where one is known."""
        names = self._clients | {who: state.name for who, state in self._states.items()}
        return tuple(names.get(who, who.hex()[:8]) for who in self._progress.awaited)

    @property
    def is_left_out(self) -> bool:
        """Whether this one has a say only in the next view: it has the log now, and is not of U."""
        return self.partition.is_unrestricted and self._me not in self.partition.unrestricted

    # ---- who belongs to the sub-cluster (PROTOCOL 8)

    def wanted_enrolment(self, without: str = "") -> Enrolment | None:
        """What the primary of a view in force proposes: what was proposed before and is not settled, or else those
        who are enrolled and those who are new, less one that an operator takes out. None: it is to stay as it is."""
        before = self.enrolment
        if not (self.is_primary and self.is_in_force) or before is None:
            return None
        if self.unsettled is not None:
            return self.unsettled
        managers = list(before.message_managers)
        if self.partition.state is State.A:
            known = dict(managers)
            managers += [(state.name, state.store) for state in self._newcomers() if state.name not in known]
        clients = [*before.client_managers, *(name for name in self._clients.values())]
        managers = [entry for entry in managers if entry[0] != without][:MAX_ENROLLED]
        clients = [name for name in dict.fromkeys(clients) if name != without][:MAX_ENROLLED]
        after = Enrolment(before.epoch + 1, tuple(managers), tuple(clients))
        is_same = (after.message_managers, after.client_managers) == (
            before.message_managers,
            before.client_managers,
        )
        self._wanted = None if is_same else after
        return self._wanted

    @property
    def unsettled(self) -> Enrolment | None:
        """What was proposed, in this view or before it, and may still come to hold or not."""
        proposed = self._wanted or self._proposed or self.partition.proposed
        known = self.enrolment.epoch if self.enrolment is not None else 0
        return proposed if proposed is not None and proposed.epoch > known else None

    @property
    def as_overridden(self) -> UnrestrictedView:
        """This view as if it were unrestricted, with all who are enrolled and here as U: when the next one is made,
        they are all who were unrestricted last (rule 3)."""
        assert self.enrolment is not None, "nobody leads before somebody is enrolled"
        here = [(state.name, state.store) for state in self._states.values()]
        stores = sorted(store for name, store in self.enrolment.message_managers if (name, store) in here)
        return UnrestrictedView(self.number, self.view, tuple(stores))

    @property
    def missing(self) -> tuple[str, ...]:
        """Those who are enrolled and not here, message managers first."""
        if self.enrolment is None:
            return ()
        here = [(state.name, state.store) for state in self._states.values()]
        managers = [name for name, store in self.enrolment.message_managers if (name, store) not in here]
        clients = [name for name in self.enrolment.client_managers if name not in self._clients.values()]
        return tuple(dict.fromkeys((*managers, *clients)))

    @property
    def would_be_whole(self) -> bool:
        """Whether the next view would be A, and this one is not: nobody is missing any more. For the primary."""
        if not self.is_primary or self.partition.state is State.A or self.enrolment is None:
            return False
        managers = dict(self.enrolment.message_managers)
        return self.partition.is_unrestricted and not any(name in managers for name in self.missing)

    def _newcomers(self) -> list[NodeState]:
        return sorted(self._states.values(), key=lambda state: (state.seniority, state.name))

    def proposes(self, enrolment: Enrolment) -> None:
        """Delivered: the primary wants this."""
        self._proposed = enrolment

    def settled(self, enrolment: Enrolment) -> None:
        """Delivered: this holds."""
        if self.enrolment is None or self.enrolment.epoch < enrolment.epoch:
            self.enrolment = enrolment
        if self._proposed is not None and self._proposed.epoch <= enrolment.epoch:
            self._proposed = None

    def seen(self, who: Incarnation, epoch: int) -> None:
        self._seen.setdefault(epoch, {})[who] = None

    def take_settled(self) -> Enrolment | None:
        """What most client managers have heard, and all of U have on disk, may be settled. Once, by the primary."""
        proposed = self._proposed
        if proposed is None or not self.is_primary:
            return None
        seen = self._seen.get(proposed.epoch, {})
        clients = self.partition.clients
        is_known = are_strictly_most(seen, clients) or not clients
        if not is_known or not all(who in seen for who in self.partition.unrestricted):
            return None
        self._proposed = None
        return proposed


def _takes_along(view: View, roles: Roles, me: Incarnation) -> bool:
    """Whether what this member heard since its last view ended was accepted nowhere else, and counts for this one.

    Nobody was left out, who could be in a view of its own with the same frames (0009); and nobody comes from one: all
    were with this member in the view before, or have just started, and know of no later one.
    """
    came = straight(view).get(me) or (me,)
    last = next(hello.last for who, hello in view.hellos if who == me)
    others = [(who, hello) for who, hello in view.hellos if who not in came]
    return (
        view.is_whole
        and all(hello.last == NO_VIEW for _, hello in others)
        and all(roles.states[who].lineage <= number_of(last) for who, _ in others if who in roles.states)
    )
