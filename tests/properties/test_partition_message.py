"""One message, published and sent again in whatever parts there are, while these part, meet and start anew: it is
handed out at most once, and once when all are together.

Many ways, chosen by chance, through the views of `partition_world.py`; what may go is asked of the gate of
production.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from unittest.mock import patch

import pytest

from heliograph.cluster import dispatch_rules
from heliograph.cluster.dispatch_rules import Hold, Message, Situation, Where, holds
from heliograph.cluster.partition_state import State, are_strictly_most
from heliograph.model.ids import LaneId
from tests.properties.partition_values import NONE, OLD, Seen, World
from tests.properties.partition_world import Cluster

LANE = LaneId(bytes(16))


@dataclass(frozen=True)
class Copy:
    """The message at one message manager. `view`: the one it was accepted in, while that is the manager's last."""

    where: Where
    view: int = NONE
    is_sent_again: bool = False


class Story:
    """A cluster, the message, and what became of it."""

    def __init__(self, clients: int, managers: int, seed: int) -> None:
        self.chance = random.Random(seed)
        self.cluster = Cluster(clients, managers, windows=False)
        self.world: World = self.cluster.whole()
        self.copies: dict[int, Copy] = {}
        self.done: set[int] = set()  # managers who know that it was handed out
        self.whole: set[int] = set()  # views in which the union is complete
        self.is_published = False
        self.handed_out = 0
        self.at: int | None = None  # the node in whose view the next things happen; None: in any

    # ---- steps

    def run(self, steps: int) -> None:
        acts: list[Callable[[], None]] = [self.form, self.form, self.publish, self.hand_out, self.hand_out]
        acts += [self.catch_up, self.restart, self.whole_again]
        for _ in range(steps):
            is_anybody_in_a_view = any(each.is_installed for each in self.world.nodes)
            (self.chance.choice(acts) if is_anybody_in_a_view else self.form)()
        self.heal()

    def form(self) -> None:
        count = self.cluster.count
        members = tuple(sorted(self.chance.sample(range(count), self.chance.randint(1, count))))
        self.enter(members)

    def enter(self, members: tuple[int, ...]) -> None:
        self.leave(members)
        self.world = self.cluster._form(self.world, members, members)

    def leave(self, members: tuple[int, ...]) -> None:
        """What was accepted in a view is judged by whether that was in force for who leaves it."""
        for node in members:
            copy = self.copies.get(node)
            if copy is not None and copy.where is Where.CURRENT:
                where = Where.UNRESTRICTED if self.is_in_force(node) else Where.RESTRICTED
                self.copies[node] = replace(copy, where=where, view=NONE)

    def restart(self) -> None:
        node = self.chance.randrange(self.cluster.count)
        if self.world.nodes[node].last != NONE:
            self.leave((node,))
            self.world = self.cluster._restart(self.world, node)

    def publish(self) -> None:
        """Once by itself; then again and again, as a client that heard no answer does."""
        number, here = self.some_view()
        managers = self.managers(here)
        if any(node < self.cluster.clients for node in here) and managers:
            if not any(node in self.copies or node in self.done for node in managers):
                for node in managers:
                    self.copies[node] = Copy(Where.CURRENT, number, is_sent_again=self.is_published)
            self.is_published = True
            self.world = self.cluster._heard_by(self.world, number, here, OLD)

    def catch_up(self) -> None:
        number, here = self.some_view()
        view = self.world.views[number]
        for following in self.cluster._catch_up(self.world, number, view, here) if view.force else ():
            self.world = following
            self.share(number, here)
            return

    def share(self, number: int, here: list[int]) -> None:
        """Who has the log of U has the message as the others have it, and knows what became of it."""
        followers = self.followers(number, here)
        found = [self.copies[node] for node in followers if node in self.copies]
        free = [copy for copy in found if copy.where is not Where.RESTRICTED and not copy.is_sent_again]
        for node in followers if found else ():
            self.copies.setdefault(node, (free or found)[0])
            if free and self.copies[node].where is Where.RESTRICTED:
                self.copies[node] = free[0]
        if any(node in self.done for node in followers):
            self.done |= set(followers)

    def whole_again(self) -> None:
        number, here = self.some_view()
        followers = self.followers(number, here)
        is_a = self.world.views[number].state is State.A and bool(self.world.views[number].force)
        if is_a and len(followers) == self.cluster.count - self.cluster.clients:
            self.share(number, here)
            self.whole.add(number)
            for node in followers:
                if node in self.copies:
                    self.copies[node] = Copy(Where.UNRESTRICTED)

    def hand_out(self) -> None:
        number, here = self.some_view()
        view = self.world.views[number]
        leader = self.leader(number, here)
        if leader is None or leader in self.done or not self.may_go(number, view, leader):
            return
        self.handed_out += 1
        assert self.handed_out == 1, "it was handed out twice"
        hearers = self.followers(number, here) if view.force else self.managers(here)
        self.done |= {node for node in hearers if node in self.copies}
        if view.force:  # it is in the log of the unrestricted lineage
            self.world = self.cluster._hand_out(self.world, number)
        else:
            self.world = self.cluster._heard_by(self.world, number, here, OLD)

    def leader(self, number: int, here: list[int]) -> int | None:
        """Somebody who has it and may lead in this view, if the view can bring anything to a client."""
        view = self.world.views[number]
        clients = [node for node in here if node < self.cluster.clients]
        if view.state is State.D:
            is_able, leaders = are_strictly_most(clients, view.clients), self.managers(here)
        else:
            is_able, leaders = self.cluster.is_able(self.world, number), list(view.stores)
        return next((node for node in leaders if is_able and node in here and node in self.copies), None)

    def may_go(self, number: int, view: Seen, leader: int) -> bool:
        copy = self.copies[leader]
        situation = Situation(
            state=view.state, is_in_force=self.is_in_force(leader), is_whole=number in self.whole
        )
        return holds(situation, [Message(lane=LANE, where=copy.where, is_sent_again=copy.is_sent_again)]) == [
            None
        ]

    def heal(self) -> None:
        """All are together, catch up, are whole, and hand out what there is."""
        self.enter(tuple(range(self.cluster.count)))
        number = len(self.world.views) - 1
        everybody = list(range(self.cluster.count))
        assert self.world.views[number].state is State.A
        for _ in self.cluster.managers:
            for following in self.cluster._catch_up(self.world, number, self.world.views[number], everybody):
                self.world = following
                break
        self.at = 0
        self.whole_again()
        self.hand_out()
        assert self.handed_out == bool(self.copies), "it was never handed out"

    # ---- who is where

    def some_view(self) -> tuple[int, list[int]]:
        nodes = self.world.nodes
        installed = [each for each in nodes if each.is_installed]
        last = (self.chance.choice(installed) if self.at is None else nodes[self.at]).last
        return last, [node for node, each in enumerate(nodes) if each.is_installed and each.last == last]

    def managers(self, here: list[int]) -> list[int]:
        return [node for node in here if node >= self.cluster.clients]

    def followers(self, number: int, here: list[int]) -> list[int]:
        stores = self.world.views[number].stores
        return [node for node in self.managers(here) if node in stores or self.world.nodes[node].caught_up]

    def is_in_force(self, node: int) -> bool:
        each = self.world.nodes[node]
        return each.last != NONE and 0 < self.world.views[each.last].force <= each.heard


def run_all(seeds: range) -> int:
    """How often it was published and handed out."""
    handed_out = 0
    for seed in seeds:
        story = Story(1 + seed % 3, 1 + seed // 3 % 3, seed)
        story.run(20)
        handed_out += story.handed_out
    return handed_out


@pytest.mark.slow
def test_it_is_handed_out_once_whatever_happens() -> None:
    assert run_all(range(3000)) > 2000, "enough happened"


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_ways() -> None:
    run_all(range(100_000))


def _released_in_b(situation: Situation, message: Message) -> Hold | None:
    if situation.state in (State.B, State.C) and message.where is Where.RESTRICTED:
        return None
    return _own_hold(situation, message)


def _sent_again_is_new(situation: Situation, message: Message) -> Hold | None:
    return _own_hold(situation, Message(lane=message.lane, where=message.where))


def _older_goes_in_d(situation: Situation, message: Message) -> Hold | None:
    return None if situation.state is State.D else _own_hold(situation, message)


_own_hold = dispatch_rules.own_hold


def bring_from_a_restricted_part() -> Story:
    """m4 and m5 accept it in D. m4 goes, and does not hear that m5 hands it out. Then m4 comes to m3, who is
    unrestricted, and brings it along."""
    story = Story(3, 3, seed=0)
    story.enter((0, 1, 3))
    story.enter((2, 4, 5))
    story.at = 2
    story.publish()
    story.enter((4,))
    story.hand_out()
    assert story.handed_out == 1, "m5 hands out what is new in its view"
    story.enter((0, 1, 3, 4))
    story.at = 0
    story.catch_up()
    assert 3 in story.copies, "m3 has it from m4"
    story.hand_out()
    return story


def test_what_a_restricted_part_brings_waits_for_all_of_it() -> None:
    bring_from_a_restricted_part().heal()


def test_releasing_it_shows() -> None:
    with (
        patch.object(dispatch_rules, "own_hold", _released_in_b),
        pytest.raises(AssertionError, match="twice"),
    ):
        bring_from_a_restricted_part()


@pytest.mark.slow
@pytest.mark.parametrize("planted", [_sent_again_is_new, _older_goes_in_d])
def test_a_gate_that_is_wrong_shows(planted: Callable[[Situation, Message], Hold | None]) -> None:
    with patch.object(dispatch_rules, "own_hold", planted), pytest.raises(AssertionError, match="twice"):
        run_all(range(3000))
