"""All ways that the views of a small cluster can go, step by step, with the engine of production saying what each is.

A world is a value. In each step nodes form a view (any of them, wherever they were; whoever is left behind has not
noticed yet and stays in its old one), a view comes closer to being in force, hands something out, a manager catches
up, or a node starts anew, with its disk or without. Who is not in a view when it hands something out does not hear
of it. That covers cuts into any parts, heals, and every window between a cut and its notice. A node that is down is
one that forms no view.

Message managers are interchangeable here, since whoever of U is still in a view may lead it. Client managers are not:
their seniority decides about halves. Views are kept only as long as somebody remembers them. Taken for straight are
all who left a view after the same frame, also if they had lost each other: more than the engine of views would.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from heliograph.bus.interface import NO_VIEW
from heliograph.cluster.in_force import InForce
from heliograph.cluster.partition_state import (
    Enrolment,
    Partition,
    State,
    Statement,
    UnrestrictedView,
    are_most,
    are_strictly_most,
    partition_in,
)
from heliograph.cluster.partition_table import START
from tests.properties.partition_values import (
    NONE,
    OLD,
    PROPOSED,
    SETTLED,
    Node,
    Seen,
    Told,
    Violation,
    World,
    changed,
    nodes_of,
    renamed,
    stamp_of,
    subsets,
    who_is,
    without,
)


class Cluster:
    """How many there are. `windows`: a view may be installed by some of its members only, and come into force step by
    step; without, it is installed by all and comes into force at once if it can."""

    def __init__(
        self,
        clients: int,
        managers: int,
        *,
        windows: bool,
        forgets: bool = True,  # what, by the rules, can play no part any more; with a bug in the rules it may
        removes: bool = False,  # the last message manager may be taken out of the configuration
        paired: bool = False,  # each process is one of each kind
    ) -> None:
        self.clients = clients
        self.removes = removes
        self.forgets = forgets
        self.paired = paired
        self.count = clients + managers
        self.windows = windows
        self.ways: dict[tuple[str, int, State], None] = {}
        self.enrolment = Enrolment(
            1,
            tuple((f"m{node}", bytes([node])) for node in range(clients, self.count)),
            tuple(f"c{node}" for node in range(clients)),
        )
        self.smaller = Enrolment(2, self.enrolment.message_managers[:-1], self.enrolment.client_managers)
        self.judged = lru_cache(maxsize=500_000)(self._judge)

    @property
    def managers(self) -> range:
        return range(self.clients, self.count)

    def beginning(self) -> World:
        """Everybody has just started, for the first time."""
        return World(tuple(Node() for _ in range(self.count)), (), 0)

    def young(self) -> World:
        """All in one view, which is in force; but for one, the message managers have to catch up."""
        everybody = tuple(range(self.count))
        world = self._form(self.beginning(), everybody, everybody)
        return self._at_once(world) if self.windows else world

    def whole(self) -> World:
        """All message managers have the log: they caught up, and are of U in the view that they asked for then."""
        world = self.young()
        first = world.views[-1].stores
        known = max(world.nodes[node].known for node in first)
        late = {
            node: world.nodes[node]._replace(caught_up=True, known=known)
            for node in self.managers
            if node not in first
        }
        everybody = tuple(range(self.count))
        world = self._form(changed(world, late, {}), everybody, everybody)
        world = self._at_once(world) if self.windows else world
        assert set(world.views[-1].stores) == set(self.managers), "all are of U"
        return world

    # ---- steps

    def steps(self, world: World) -> Iterator[World]:
        """Everything that can happen next. Raises Violation."""
        for members in self._companies(tuple(range(self.count))):
            for installers in self._companies(members) if self.windows else (members,):
                formed = self._form(world, members, installers)
                yield formed
                if self.windows:
                    yield from self._partly(formed, len(world.views))
        for number, view in enumerate(world.views):
            yield from self._go_on(world, number, view)
        for node in range(self.count):
            if world.nodes[node].last != NONE and not (self.paired and node < self.clients):
                yield self._restart(self._restart_partner(world, node), node)
        for node in self.managers:
            if not world.nodes[node].is_replaced:
                yield self._replace(self._restart_partner(world, node), node)

    def _companies(self, members: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Whoever can be in a view together: a process is in it or not."""
        if not self.paired:
            yield from subsets(members)
            return
        for chosen in subsets(tuple(node for node in members if node < self.clients)):
            yield (*chosen, *(node + self.clients for node in chosen))

    def _restart_partner(self, world: World, node: int) -> World:
        return self._restart(world, node - self.clients) if self.paired else world

    def _form(self, world: World, members: tuple[int, ...], installers: tuple[int, ...]) -> World:
        partition = self.judge(world, members)
        for node in members if installers == members else ():
            last = world.nodes[node].last
            before = START if last == NONE else world.views[last].state
            self.ways[str(before), partition.rule, partition.state] = None
        number = 1 + max(self._number(world, node) for node in members)
        made = Seen(
            number,
            partition.state,
            nodes_of(partition.clients),
            nodes_of(partition.unrestricted),
            came_in=installers,
            partition=tuple(
                nodes_of(each)
                for each in (partition.managers, partition.elders, partition.voters, partition.came)
            ),
        )
        nodes = list(world.nodes)
        is_settled = any(nodes[node].configuration == SETTLED for node in members)
        for node in members:
            last, _, heard, record, known, caught_up, is_replaced, configuration = nodes[node]
            if node in installers:
                last, heard, caught_up = len(world.views), 0, False
                configuration = SETTLED if node >= self.clients and is_settled else configuration
            nodes[node] = Node(
                last, node in installers, heard, record, known, caught_up, is_replaced, configuration
            )
        grown = World(tuple(nodes), (*world.views, made), world.handed_out)
        self.check(grown)
        return grown if self.windows else self._at_once(grown)

    def _number(self, world: World, node: int) -> int:
        known = [each for each in (world.nodes[node].last, world.nodes[node].record) if each != NONE]
        return max((world.views[each].number for each in known), default=0)

    def _partly(self, world: World, number: int) -> Iterator[World]:
        """A new view may come as far as it can before anything else happens, and need not."""
        view = world.views[number]
        here = tuple(node for node in view.stores if self._is_in(world, number, node))
        for writers in subsets(here):
            recorded = self._record_all(world, number, writers)
            if len(recorded.views[number].recorded) == len(writers):
                yield recorded
                if self._is_in_force(recorded.views[number]):
                    yield self._come_into_force(recorded, number)

    def _at_once(self, world: World) -> World:
        number = len(world.views) - 1
        view = world.views[number]
        world = self._record_all(world, number, view.stores)
        return self._come_into_force(world, number) if self._is_in_force(world.views[number]) else world

    def _go_on(self, world: World, number: int, view: Seen) -> Iterator[World]:
        here = [node for node in range(self.count) if self._is_in(world, number, node)]
        if not here or view.state is State.D:
            return
        if not view.force and self.windows:
            for node in view.stores:
                if node in here and node not in view.recorded and self._may_record(view, node):
                    yield self._record(world, number, node)
            if self._is_in_force(view):
                yield self._come_into_force(world, number)
        if view.force:
            yield from self._catch_up(world, number, view, here)
            if self.removes:
                yield from self._change(world, number, view, here)
            if self.is_able(world, number) and self._somebody_left(world, number, view):
                yield self._hand_out(world, number)

    def _in_force(self, view: Seen) -> InForce:
        return _watched(view.state, view.stores, view.partition, view.came_in, view.recorded)

    def _may_record(self, view: Seen, node: int) -> bool:
        return self._in_force(view).may_record(who_is(node))

    def _is_in_force(self, view: Seen) -> bool:
        return self._in_force(view).is_in_force

    def _record_all(self, world: World, number: int, writers: tuple[int, ...]) -> World:
        """These, one behind the other, as far as they may."""
        for _ in writers:
            for node in writers:
                view = world.views[number]
                if node not in view.recorded and self._may_record(view, node):
                    world = self._record(world, number, node)
        return world

    def _record(self, world: World, number: int, node: int) -> World:
        view = world.views[number]
        recorded = view._replace(recorded=tuple(sorted((*view.recorded, node))))
        return changed(world, {node: world.nodes[node]._replace(record=number)}, {number: recorded})

    def _come_into_force(self, world: World, number: int) -> World:
        """Heard by all who are still there, who hand something out at once if they can."""
        view = world.views[number]
        frame = view.frames + 1
        forced = view._replace(frames=frame, force=frame, came_in=(), recorded=(), partition=())
        here = [node for node in range(self.count) if self._is_in(world, number, node)]
        world = changed(
            world, {node: world.nodes[node]._replace(heard=frame) for node in here}, {number: forced}
        )
        self.check(world)
        if not self.is_able(world, number):
            return world  # others may have gone on from here already
        for node in view.stores:
            if world.nodes[node].known != world.handed_out and not world.nodes[node].is_replaced:
                raise Violation("one of U does not know all that was handed out")
        return self._hand_out(world, number)

    def _hand_out(self, world: World, number: int) -> World:
        view = world.views[number]
        view = view._replace(frames=view.frames + 1)
        nodes = {}
        for node, each in enumerate(world.nodes):
            if self._is_in(world, number, node):
                nodes[node] = each._replace(heard=view.frames)
                if node >= self.clients and (node in view.stores or each.caught_up):
                    nodes[node] = nodes[node]._replace(known=world.handed_out + 1)
        return changed(world, nodes, {number: view})._replace(handed_out=world.handed_out + 1)

    def _somebody_left(self, world: World, number: int, view: Seen) -> bool:
        """To hand out more changes nothing unless somebody who knew the last of it will not know this."""
        return any(
            each.last == number and each.heard == view.frames and not each.is_installed
            for each in world.nodes
        ) or any(not self._is_in(world, number, node) for node in view.stores)

    def _catch_up(self, world: World, number: int, view: Seen, here: list[int]) -> Iterator[World]:
        hosts = [node for node in view.stores if node in here and world.nodes[node].heard >= view.force]
        for node in here if hosts else ():
            each = world.nodes[node]
            if (
                node >= self.clients
                and node not in view.stores
                and not each.caught_up
                and not each.is_replaced
            ):
                known = max(world.nodes[host].known for host in hosts)
                yield changed(world, {node: each._replace(caught_up=True, known=known)}, {})

    def _change(self, world: World, number: int, view: Seen, here: list[int]) -> Iterator[World]:
        """One message manager less: it is proposed, and settled when those who are left in the view hear that most
        client managers have heard the proposal and all of U have it. Somebody of U must stay."""
        known = [world.nodes[node].configuration for node in view.stores if node in here]
        stay = [node for node in view.stores if node != self.count - 1]
        is_first = all(each.configuration == OLD for each in world.nodes)
        if view.is_proposed:
            yield self._heard_by(world, number, here, SETTLED)
        elif stay and self.is_able(world, number) and (is_first or PROPOSED in known):
            world = changed(world, {}, {number: view._replace(is_proposed=set(view.stores) <= set(here))})
            yield self._heard_by(world, number, here, PROPOSED)

    def _heard_by(self, world: World, number: int, here: list[int], configuration: int) -> World:
        frame = world.views[number].frames + 1
        nodes = {}
        for node in here:
            each = world.nodes[node]
            newer = max(each.configuration, configuration) if node >= self.clients else OLD
            nodes[node] = each._replace(heard=frame, configuration=newer)
        return changed(world, nodes, {number: world.views[number]._replace(frames=frame)})

    def _restart(self, world: World, node: int) -> World:
        """A new incarnation: the old one is known to have ended."""
        views = {
            number: view._replace(
                clients=without(view.clients, node),
                partition=(*view.partition[:2], *(without(each, node) for each in view.partition[2:])),
            )
            for number, view in enumerate(world.views)
        }
        fresh = Node(
            record=world.nodes[node].record,
            known=world.nodes[node].known,
            is_replaced=world.nodes[node].is_replaced,
            configuration=world.nodes[node].configuration,
        )
        return changed(world, {node: fresh}, views)

    def _replace(self, world: World, node: int) -> World:
        """What it had on disk is lost. Views remember its old store, which is not there any more."""
        return changed(self._restart(world, node), {node: Node(is_replaced=True)}, {})

    # ---- what must hold

    def _is_in(self, world: World, number: int, node: int) -> bool:
        return world.nodes[node].last == number and world.nodes[node].is_installed

    def is_able(self, world: World, number: int) -> bool:
        """Whether a view can still bring something to a client: somebody of U, for whom it is in force, and most
        client managers are in it."""
        view = world.views[number]
        if not view.force:
            return False
        clients = [node for node in view.clients if node != NONE and self._is_in(world, number, node)]
        leads = any(
            self._is_in(world, number, node) and world.nodes[node].heard >= view.force
            for node in view.stores
            if not self._is_out(world, node)
        )
        return leads and are_strictly_most(clients, view.clients)

    def _is_out(self, world: World, node: int) -> bool:
        """Who has heard that it is to be taken out of the configuration decides nothing more."""
        return node == self.count - 1 and world.nodes[node].configuration != OLD

    def check(self, world: World) -> None:
        if sum(self.is_able(world, number) for number in range(len(world.views))) > 1:
            raise Violation("two parts are unrestricted")

    # ---- what the engine says

    def judge(self, world: World, members: tuple[int, ...]) -> Partition:
        numbers: dict[int, int] = {NONE: NONE}
        told = []
        views: list[Told] = []
        for node in members:
            each = world.nodes[node]
            for number in (each.last, each.record):
                if number not in numbers:
                    numbers[number] = len(views)
                    view = world.views[number]
                    reached = bool(view.force) or (bool(view.partition) and self._in_force(view).have_arrived)
                    elders = view.stores if view.force or not view.partition else view.partition[1]
                    views.append((view.number, view.clients, view.stores, view.force, reached, elders))
            told.append((node, Node(numbers[each[0]], each[1], each[2], numbers[each[3]], *each[4:])))
        return self.judged(tuple(told), tuple(views))

    def _judge(
        self,
        told: tuple[tuple[int, Node], ...],
        views: tuple[Told, ...],
    ) -> Partition:
        statements = [self._statement(node, each, views) for node, each in told]
        ways = {node: (each.last, each.heard) for node, each in told if each.last != NONE}
        companions = {
            who_is(node): tuple(who_is(other) for other in ways if ways[other] == ways[node])
            if node in ways
            else ()
            for node, _ in told
        }
        return partition_in(statements, companions)

    def _statement(self, node: int, each: Node, views: tuple[Told, ...]) -> Statement:
        last = views[each.last] if each.last != NONE else None
        record = views[each.record] if each.record != NONE else None
        is_client = node < self.clients
        return Statement(
            who=who_is(node),
            client_manager=f"c{node}" if is_client else "",
            message_manager="" if is_client else f"m{node}",
            last=stamp_of(each.last) if last else NO_VIEW,
            clients=tuple(who_is(client) for client in last[1]) if last else (),
            store=b"" if is_client else bytes([node + 100 * each.is_replaced]),
            is_synchronised=each.caught_up or bool(last and node in last[2]),
            reached=_unrestricted(each.last, last)
            if last is not None and last[4] and not is_client
            else None,
            elders=tuple(bytes([other % 256]) for other in last[5]) if last is not None else (),
            record=None if record is None else _unrestricted(each.record, record),
            reach=each.known,
            enrolment=None
            if is_client
            else self.smaller
            if each.configuration == SETTLED
            else self.enrolment,
            proposed=self.smaller if each.configuration == PROPOSED else None,
        )

    # ---- worlds that differ in names only

    def canonical(self, world: World) -> World:
        """Message managers sorted by what they are like, views in the order in which nodes remember them, and numbers
        from 1."""
        if self.forgets:
            world = self._without_spent(world)
        order = list(self.managers)
        if not self.paired:
            order.sort(key=lambda node: self._likeness(world, node))
        names = {node: node for node in range(self.clients)} | {NONE: NONE}
        names |= {node: self.clients + place for place, node in enumerate(order)}
        places = [*range(self.clients), *order]
        kept: dict[int, int] = {NONE: NONE}
        for node in places:
            for number in (world.nodes[node].last, world.nodes[node].record):
                if number not in kept:
                    kept[number] = len(kept) - 1
        low = min((world.views[number].number for number in kept if number != NONE), default=1) - 1
        views = tuple(renamed(world.views[number], names, low) for number in kept if number != NONE)
        least = min(
            (world.nodes[node].known for node in self.managers if not world.nodes[node].is_replaced),
            default=world.handed_out,
        )
        nodes = []
        for node in places:  # spelled out: most of the time goes here
            last, is_installed, heard, record, known, *rest = world.nodes[node]
            known = known - least if node >= self.clients and not rest[1] else 0
            nodes.append(Node(kept[last], is_installed, heard, kept[record], known, *rest))
        return World(tuple(nodes), views, world.handed_out - least)

    def _without_spent(self, world: World) -> World:
        """Of a view that nobody can go on from any more, its members keep only number and state."""
        spent = [number for number, view in enumerate(world.views) if self._is_spent(world, number, view)]
        markers: dict[tuple[int, State], int] = {}
        views = list(world.views)
        nodes = list(world.nodes)
        for node, each in enumerate(world.nodes):
            if each.last in spent:
                view = world.views[each.last]
                if (view.number, view.state) not in markers:
                    markers[view.number, view.state] = len(views)
                    views.append(Seen(view.number, view.state, (), ()))
                last = markers[view.number, view.state]
                nodes[node] = each._replace(last=last, is_installed=False, heard=0, caught_up=False)
        return World(tuple(nodes), tuple(views), world.handed_out)

    def _is_spent(self, world: World, number: int, view: Seen) -> bool:
        if view.state is State.D:
            return True
        left = [node for node in view.clients if node != NONE and world.nodes[node].last == number]
        if are_most(left, view.clients):
            return False
        return bool(view.force) or not any(self._is_in(world, number, node) for node in view.stores)

    def _likeness(self, world: World, node: int) -> tuple[object, ...]:
        """Equal for two that could change places; the rest of the world decides whether they can."""
        each = world.nodes[node]
        stays = [
            (node in view.stores, node in view.recorded, node in view.came_in, view.number)
            for view in world.views
        ]
        is_special = self.removes and node == self.count - 1
        return (is_special, each[1:3], each[4:], each.last, each.record, stays)


class Walk(NamedTuple):
    worlds: int
    steps: int


def walk(cluster: Cluster, begin: World, depth: int) -> Walk:
    """Every world that is at most so many steps away. Raises Violation."""
    level = [cluster.canonical(begin)]
    known = dict.fromkeys(level)
    steps = 0
    for _ in range(depth):
        reached: dict[World, None] = {}
        for world in level:
            for following in cluster.steps(world):
                steps += 1
                named = cluster.canonical(following)
                if named not in known and named not in reached:
                    reached[named] = None
        known |= reached
        level = list(reached)
    return Walk(len(known), steps)


def _unrestricted(number: int, view: Told) -> UnrestrictedView:
    stores = tuple(bytes([node % 256]) for node in view[2])
    return UnrestrictedView(view[0], stamp_of(number), stores)


@lru_cache(maxsize=100_000)
def _watched(
    state: State,
    stores: tuple[int, ...],
    takes: tuple[tuple[int, ...], ...],
    came_in: tuple[int, ...],
    recorded: tuple[int, ...],
) -> InForce:
    managers, elders, voters, came = (tuple(who_is(node) for node in each) for each in takes)
    unrestricted = tuple(who_is(node) for node in stores)
    watched = InForce(
        Partition(
            state=state,
            rule=0,
            primary=None,
            unrestricted=unrestricted,
            managers=managers,
            elders=elders,
            voters=voters,
            came=came,
        )
    )
    for node in came_in:
        watched.arrived(who_is(node))
    for node in recorded:
        watched.recorded(who_is(node))
    return watched
