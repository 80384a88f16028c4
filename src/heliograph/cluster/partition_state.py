"""The partition state of a sub-cluster in a view (P2, PROTOCOL 3): a function of what its members said, so that all
agree.

Who says what is a `Statement`; who came straight from its last view with whom, `cluster/view.py` knows. The answer is
a `Partition`. It holds only once the view is in force (`in_force.py`); here nothing is remembered.

U, the unrestricted message managers, are those that have the log of everything that was handed out so far. L is the
newest unrestricted view that a manager of this view has on disk, or comes from, if it was reached (`standing.py`).
The rules, first match:

    1  every configured message manager is here with its enrolled store                          A
    2  a manager of U(L), and most client managers of L, came straight from L                    B or C
    3  every manager of U(L) is here                                                             B or C
    4  otherwise                                                                                 D

Most: more than half, or half with the most senior. C if more than half of the configured message managers and of the
configured client managers are here, else B. What a state means, and which may follow which, stands in
`partition_table.py`; docs/reference/partition-states.md is made of it. The reasons are in docs/decisions/0014.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence

import msgspec

from heliograph.bus.interface import NO_VIEW, Incarnation, Stamp


class State(enum.StrEnum):
    """Of a sub-cluster in a view."""

    A = "A"
    B = "B"
    C = "C"
    D = "D"


class Enrolment(msgspec.Struct, frozen=True, array_like=True):
    """What is configured (PROTOCOL 8): nodes in the order in which they were enrolled, the most senior first."""

    epoch: int
    message_managers: tuple[tuple[str, bytes], ...]  # name and store
    client_managers: tuple[str, ...]


class UnrestrictedView(msgspec.Struct, frozen=True, array_like=True):
    """What a message manager forces to disk before it acts in an unrestricted view: the view, and its U by store."""

    number: int
    id: Stamp
    stores: tuple[bytes, ...]


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """What one member says of itself and its past. A process may be both kinds of manager; a name that is empty: it
    is not."""

    who: Incarnation
    client_manager: str = ""
    message_manager: str = ""
    # Its last view, and the client managers of that by seniority.
    last: Stamp = NO_VIEW
    clients: tuple[Incarnation, ...] = ()
    # Of a message manager:
    store: bytes = b""
    is_synchronised: bool = False  # it has the log of the primary of its last view
    # Its last view, if all had arrived there without whom no other could follow; and, by store, the elders of it.
    reached: UnrestrictedView | None = None
    elders: tuple[bytes, ...] = ()
    is_leading: bool = False
    is_leaving: bool = False  # it wants somebody else to lead
    record: UnrestrictedView | None = None  # the newest on its disk
    reach: int = 0  # the index up to which its log is of the unrestricted lineage
    end: int = 0  # the index of the end of its log, what it wrote while restricted included
    enrolment: Enrolment | None = None  # the newest that is settled
    proposed: Enrolment | None = None  # one that was delivered, and is not known to have been by all it takes


Companions = Mapping[Incarnation, tuple[Incarnation, ...]]
"""`straight(view)`: for each member, those who came with it from its last view, itself included."""


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """What a view is. `unrestricted` is U, the most senior first, empty in D.

    It comes into force when most of `voters`, where there are any, and all of `managers` have arrived, and then
    all of `unrestricted` have recorded it.
    """

    state: State
    rule: int
    primary: Incarnation | None
    unrestricted: tuple[Incarnation, ...] = ()
    followers: tuple[
        Incarnation, ...
    ] = ()  # those who have the log of the primary, itself included; U where there is one
    clients: tuple[Incarnation, ...] = ()  # of this view, the most senior first
    through: Stamp = NO_VIEW  # the view that it goes on from, if most client managers of that came straight
    voters: tuple[Incarnation, ...] = ()  # by rule 2: client managers of that view, the most senior first
    came: tuple[Incarnation, ...] = ()  # those of them whose arrival counts
    managers: tuple[Incarnation, ...] = ()
    elders: tuple[Incarnation, ...] = ()  # those of `unrestricted` who were of U before: they record it first
    stores: tuple[bytes, ...] = ()  # of `unrestricted`: what is recorded
    missing: tuple[
        str, ...
    ] = ()  # in D: message managers of U(L) that are not here, by name where that is known
    enrolment: Enrolment | None = None  # the newest that is settled
    proposed: Enrolment | None = None  # and what is proposed beyond it

    @property
    def is_unrestricted(self) -> bool:
        return self.state is not State.D


def are_most(present: Collection[object], of: Sequence[object]) -> bool:
    """More than half, or exactly half with the first, who is the most senior."""
    count = sum(each in present for each in of)
    return 2 * count > len(of) or (0 < 2 * count == len(of) and of[0] in present)


def are_strictly_most(present: Collection[object], of: Sequence[object]) -> bool:
    return 2 * sum(each in present for each in of) > len(of)


def partition_in(statements: Sequence[Statement], companions: Companions) -> Partition:
    """The state of a view whose members said this."""
    scene = Scene(statements, companions)
    return scene.by_all_managers() or scene.by_most_clients() or scene.by_the_last() or scene.restricted()


class Scene:
    """A view, sorted by who counts for what."""

    def __init__(self, statements: Sequence[Statement], companions: Companions) -> None:
        self._companions = companions
        said = sorted(statements, key=lambda each: each.who)
        self._enrolments = _enrolments(said)
        self._clients = self._client_managers(said)
        self._present = _present(said)
        self._managers = self._message_managers()
        self.last, self._elders = _last_of(said)
        self._straight = self._find_straight()

    # ---- who is who

    def _client_managers(self, said: list[Statement]) -> tuple[Statement, ...]:
        enrolled = self._enrolments[0].client_managers
        ranks = {name: rank for rank, name in enumerate(enrolled)}
        here = [each for each in said if each.client_manager]
        here.sort(
            key=lambda each: (ranks.get(each.client_manager, len(ranks)), each.client_manager, each.who)
        )
        return tuple(here)

    def _message_managers(self) -> tuple[Statement, ...]:
        """Those with their enrolled store, the most senior first."""
        enrolled = self._enrolments[0].message_managers
        return tuple(self._present[entry] for entry in enrolled if entry in self._present)

    def _stays(self, manager: Statement) -> bool:
        """Whether no proposal takes it out. One that is to go still knows what it knows, and decides nothing more."""
        entry = (manager.message_manager, manager.store)
        return all(entry in each.message_managers for each in self._enrolments)

    def _is_of_last(self, manager: Statement) -> bool:
        return self.last is not None and manager.store in self.last.stores

    def _find_straight(self) -> tuple[Statement, ...]:
        """▲ Those who came straight from L together, with a manager of U(L) and most client managers of L. One that
        is known to have ended is not among them, nor is one that was elsewhere in between."""
        for manager in self._managers:
            if self._is_elder(manager) and self._stays(manager) and self._came_from_last(manager):
                together = self._companions[manager.who]
                came = tuple(each for each in self._clients if each.who in together)
                if are_most([each.who for each in came], manager.clients):
                    return (manager, *came)
        return ()

    def _came_from_last(self, member: Statement) -> bool:
        """One that lost its place in the log does not know all that was handed out there."""
        return self.last is not None and member.reached == self.last and member.is_synchronised

    def _is_elder(self, manager: Statement) -> bool:
        """Of U(L); where nobody here has L on disk, of U before it too: others of those may not know of L."""
        return manager.store in self._elders

    # ---- the rules

    def by_all_managers(self) -> Partition | None:
        """Rule 1."""
        epoch = self._enrolments[0].epoch
        wanted = [entry for each in self._enrolments for entry in each.message_managers]
        here = [self._present[entry] for entry in wanted if entry in self._present]
        is_whole = 0 < len(wanted) == len(here)
        if not is_whole or any(_epoch_of(each) != epoch for each in here):
            return None
        unrestricted = self._come_along() or self._longest(self._managers)
        if not unrestricted:
            return None
        managers = tuple(dict.fromkeys(each.who for each in here))
        return self._unrestricted(1, State.A, unrestricted, managers=managers)

    def by_most_clients(self) -> Partition | None:
        """Rule 2."""
        if not self._straight:
            return None
        first, *came = self._straight
        unrestricted = self._come_along()
        made = self._unrestricted(2, self._share(), unrestricted, managers=tuple(m.who for m in unrestricted))
        return msgspec.structs.replace(made, voters=first.clients, came=tuple(each.who for each in came))

    def by_the_last(self) -> Partition | None:
        """Rule 3."""
        of_last = [each for each in self._managers if self._is_of_last(each)]
        if not of_last or len(of_last) < self._awaited():
            return None
        managers = tuple(each.who for each in of_last)
        return self._unrestricted(3, self._share(), self._longest(of_last), managers=managers)

    def _awaited(self) -> int:
        """How many of U(L) must be here: all but those whose removal is settled. U of that view had all they knew."""
        stores = [store for _, store in self._enrolments[0].message_managers]
        return sum(store in stores for store in self.last.stores) if self.last is not None else 0

    def restricted(self) -> Partition:
        """Rule 4. All have a say in who leads; the most recent log goes first."""
        level = self._level(self._managers)
        return Partition(
            state=State.D,
            rule=4,
            primary=self._primary(level),
            followers=tuple(each.who for each in level),
            clients=self._client_ids(),
            missing=self._missing(),
            enrolment=self._settled,
            proposed=self._proposed,
        )

    def _missing(self) -> tuple[str, ...]:
        names = {store: name for name, store in self._enrolments[0].message_managers}
        here = [each.store for each in self._managers]
        stores = self.last.stores if self.last is not None else ()
        return tuple(
            names.get(store, store.decode(errors="replace")) for store in stores if store not in here
        )

    def _come_along(self) -> tuple[Statement, ...]:
        """U where most client managers of L came straight: its managers among them, and those who caught up since."""
        if not self._straight:
            return ()
        together = self._companions[self._straight[0].who]
        return self._level([each for each in self._managers if each.who in together and each.is_synchronised])

    def _longest(self, among: Sequence[Statement]) -> tuple[Statement, ...]:
        """U where all who may know the end are here: the longest log of L, and who has been following it."""
        return self._level([each for each in among if self._is_of_last(each)] or list(among))

    def _newest(self, among: Sequence[Statement]) -> list[Statement]:
        """Those whose log goes furthest. A primary's may be ahead of what was delivered: whoever followed it has all
        that counts."""
        best = max(among, key=_extent, default=None)
        if best is None:
            return []
        return [each for each in among if _extent(each) == _extent(best) or self._went_along(best, each)]

    def _level(self, among: Sequence[Statement]) -> tuple[Statement, ...]:
        """Who of these leads, first, and those who have the same log and know the same besides.

        The newest log goes first. Whoever leads goes on, unless it wants to leave: a change costs the clients a
        pause. Else by seniority. One that is to go leads only in name: the others catch up with it first.
        """
        newest = self._newest(among)
        candidates = [each for each in newest if self._stays(each)] or newest
        if not candidates:
            return ()
        first = min(candidates, key=self._rank)
        return (first, *(each for each in among if each is not first and self._is_level(first, each)))

    def _rank(self, manager: Statement) -> tuple[bool, bool, bool, bool, int]:
        """Somebody of U before must be in U: else it would not have the view on disk, and could go on without it."""
        return (
            self.last is not None and not self._is_elder(manager),
            manager.is_leaving,
            not manager.is_leading,
            not manager.is_synchronised,
            -manager.end,
        )

    def _is_level(self, first: Statement, other: Statement) -> bool:
        """Those who followed one another know also what is in no log. One that led and does not any more may have
        written what nobody else heard; and whoever has just started catches up, be it only by an introduction."""
        return not other.is_leading and self._went_along(first, other)

    def _went_along(self, one: Statement, other: Statement) -> bool:
        return one.is_synchronised and other.is_synchronised and other.who in self._companions[one.who]

    def _share(self) -> State:
        first = self._enrolments[0]
        managers = [entry for entry in first.message_managers if entry in self._present]
        clients = [each.client_manager for each in self._clients]
        most = are_strictly_most(managers, first.message_managers)
        return State.C if most and are_strictly_most(clients, first.client_managers) else State.B

    def _unrestricted(
        self,
        rule: int,
        state: State,
        unrestricted: tuple[Statement, ...],
        *,
        managers: tuple[Incarnation, ...],
    ) -> Partition:
        return Partition(
            state=state,
            rule=rule,
            primary=self._primary(unrestricted),
            unrestricted=tuple(each.who for each in unrestricted),
            followers=tuple(each.who for each in unrestricted),
            clients=self._client_ids(),
            through=self._straight[0].last if self._straight else NO_VIEW,
            managers=managers,
            elders=tuple(each.who for each in unrestricted if self.last is None or self._is_elder(each)),
            stores=tuple(sorted(each.store for each in unrestricted)),
            enrolment=self._settled,
            proposed=self._proposed,
        )

    @property
    def _settled(self) -> Enrolment | None:
        return self._enrolments[0] if self._enrolments[0].epoch else None

    @property
    def _proposed(self) -> Enrolment | None:
        return max(self._enrolments[1:], key=_rank_of, default=None)

    def _primary(self, level: Sequence[Statement]) -> Incarnation | None:
        return level[0].who if level and self._stays(level[0]) else None

    def _client_ids(self) -> tuple[Incarnation, ...]:
        return tuple(each.who for each in self._clients)


def _last_of(said: list[Statement]) -> tuple[UnrestrictedView | None, tuple[bytes, ...]]:
    """L: the newest that anybody has on disk, or has just come from. And the stores that count for it."""
    told = [(each.record, each.record.stores) for each in said if each.record is not None]
    told += [(each.reached, each.elders) for each in said if each.reached is not None]
    return max(told, key=lambda each: (each[0].number, each[0].id, len(each[1])), default=(None, ()))


def _enrolments(said: list[Statement]) -> tuple[Enrolment, ...]:
    """The newest that is settled, and whatever is proposed beyond it: for A, all of them must be satisfied."""
    settled = [each.enrolment for each in said if each.enrolment is not None]
    if not settled:
        return (Enrolment(0, (), ()),)
    newest = max(settled, key=_rank_of)
    proposed = [each.proposed for each in said if each.proposed is not None]
    return (newest, *dict.fromkeys(each for each in proposed if each.epoch > newest.epoch))


def _rank_of(enrolment: Enrolment) -> tuple[int, bytes]:
    """Two parts may have decreed one epoch each."""
    return enrolment.epoch, msgspec.msgpack.encode(enrolment)


def _present(said: list[Statement]) -> dict[tuple[str, bytes], Statement]:
    """Message managers by name and store. A store that was copied belongs to nobody."""
    managers = [each for each in said if each.message_manager]
    stores = [each.store for each in managers]
    return {(each.message_manager, each.store): each for each in managers if stores.count(each.store) == 1}


def _epoch_of(manager: Statement) -> int:
    return manager.enrolment.epoch if manager.enrolment is not None else -1


def _extent(manager: Statement) -> tuple[int, int]:
    return _number(manager), manager.reach


def _number(manager: Statement) -> int:
    return manager.record.number if manager.record is not None else 0
