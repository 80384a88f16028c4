"""Cuts that somebody drew, each played by a whole cluster with its clients on virtual time: who is in what state, who
goes on, and what has become of all messages when it is healed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from simulation.network import TAME
from simulation.partitions import APART, FIVE_AND_ANOTHER, Layout, Partitions
from simulation.play import Outcome
from simulation.weather import Plan

pytestmark = pytest.mark.slow
# As long as it takes until every part has found together and is at work.
_SETTLED_SECONDS = 6.0


class Drawing:
    """A cluster at work, and a network that is cut as somebody says."""

    def __init__(self, layout: Layout, *, seed: int = 1) -> None:
        self.play = Partitions(seed, Plan(faults=0), layout=layout, oddities=TAME)
        self.play.begin()
        self.pass_time(2.0)

    def pass_time(self, seconds: float) -> None:
        self.play.world.run(self.play.world.now + seconds)

    def cut(self, *parts: Sequence[int]) -> None:
        self.play.weather.cuts.cut_into(parts)
        self.pass_time(_SETTLED_SECONDS)

    def heal(self) -> Outcome:
        return self.play.finish()

    def states_of(self, part: Sequence[int], sub_cluster: str) -> set[str]:
        states = self.play.states(sub_cluster)
        return {states[f"node{host}"] for host in part if f"node{host}" in states}

    def leader_of(self, sub_cluster: str) -> int:
        (leader,) = (
            int(each.machine.name.removeprefix("node"))
            for each in self.play.managers[sub_cluster]
            if each.is_running and each.server.replica.is_leading  # type: ignore[union-attr]
        )
        return leader

    def confirmed_since(self, moment: float, part: Sequence[int]) -> int:
        """How many messages were confirmed to clients beside nodes of a part."""
        desks = {f"desk{host}" for host in part}
        clients = self.play.history.clients
        return sum(
            1
            for sent in self.play.history.sent.values()
            if sent.confirmed_at > moment and clients[sent.key.partition("#")[0]].machine.name in desks
        )


@pytest.mark.req("P2", "P3")
@pytest.mark.timeout(300)
def test_the_primary_alone_with_three_of_five_client_managers() -> None:
    """The drawing of three message managers and five client managers: the primary and most client managers go on (B),
    the two other message managers are restricted (D), and the other sub-cluster, all of which is with the primary,
    is whole (A)."""
    drawing = Drawing(FIVE_AND_ANOTHER)
    primary = drawing.leader_of("east")
    others = [host for host in (6, 7, 8) if host != primary]
    ours, theirs = [1, 2, 3, primary, 9, 10], [4, 5, *others]
    drawing.cut(ours, theirs)
    assert drawing.states_of(ours, "east") == {"B"}
    assert drawing.states_of(theirs, "east") == {"D"}
    assert drawing.states_of(ours, "west") == {"A"}
    assert drawing.heal().violations == []


@pytest.mark.req("P2")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("ours", "theirs", "states"),
    [
        ([1, 2, 3, 4, 5], [6], ("C", "D")),
        ([1, 2, 4, 5], [3, 6], ("C", "D")),
        ([1, 4, 5, 6], [2, 3], ("A", "")),
        ([1, 4], [2, 5], ("D", "D")),
    ],
)
def test_three_client_managers_and_three_message_managers(
    ours: list[int], theirs: list[int], states: tuple[str, str]
) -> None:
    drawing = Drawing(APART)
    drawing.cut(ours, theirs)
    assert drawing.states_of(ours, "main") == {states[0]}
    found = drawing.states_of(theirs, "main")
    assert states[1] in found or not states[1], found
    assert drawing.heal().violations == []
