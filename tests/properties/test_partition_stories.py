"""Cuts that somebody drew, each played by a whole cluster with its clients on virtual time: who is in what state, who
goes on, and what has become of all messages when it is healed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

import pytest

from heliograph.destinations.ledger import Ledger
from heliograph.nodes.message_manager import MessageManager
from simulation.clients import Client
from simulation.network import TAME, Oddities
from simulation.partitions import APART, FIVE_AND_ANOTHER, Layout, Partitions
from simulation.play import Outcome
from simulation.weather import Plan

pytestmark = pytest.mark.slow
# As long as it takes until every part has found together and is at work.
_SETTLED_SECONDS = 6.0


class Drawing:
    """A cluster at work, and a network that is cut as somebody says."""

    def __init__(self, layout: Layout, *, seed: int = 1, oddities: Oddities = TAME) -> None:
        self.play = Partitions(seed, Plan(faults=0), layout=layout, oddities=oddities)
        self.play.begin()
        self.pass_time(2.0)

    def pass_time(self, seconds: float) -> None:
        self.play.world.run(self.play.world.now + seconds)

    def cut(self, *parts: Sequence[int]) -> None:
        self.play.weather.cuts.cut_into(parts)
        self.pass_time(_SETTLED_SECONDS)

    def cut_unnoticed(self, *parts: Sequence[int]) -> None:
        """The first part goes on for a while as if nothing had happened; the others know at once."""
        network = self.play.bus.network
        ours, *others = parts
        network.notices.update(dict.fromkeys(ours, (1.5, 1.6)))
        network.notices.update(dict.fromkeys([host for part in others for host in part], (0.02, 0.05)))
        ring = network.hosts[ours[0]].ring
        self.play.weather.cuts.cut_into(parts)
        ring.token_at = ours[0]

    def heal(self) -> Outcome:
        self.play.bus.network.notices.clear()
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


def _cut_in_a_commit() -> Outcome:
    """Whoever leads, a backup and the client manager of a commit are cut off as it is asked, and do not notice. Its
    client then loses the client manager, and goes on where the others did."""
    drawing = Drawing(APART, oddities=Oddities(token_held=1.0))
    play, cuts = drawing.play, list[str]()

    def strike(client: Client) -> None:
        transport = client.transport
        if transport is None or client.machine.name != "desk":  # from where all client managers are reached
            play.scene.at_next_commit.append(strike)
            return
        cuts.append(client.name)
        beside = int(str(transport.get_extra_info("peername")[0]).removeprefix("node"))
        primary = drawing.leader_of("main")
        backup = next(host for host in (4, 5, 6) if host != primary)
        ours = [primary, backup, beside]
        drawing.cut_unnoticed(ours, [host for host in range(1, 7) if host not in ours])
        play.world.after(0.6, lambda: play.supervisors[beside - 1].power_off(9.0))

    play.scene.at_next_commit.append(strike)
    drawing.pass_time(9.0)
    assert cuts
    return drawing.heal()


def _told_at_once() -> AbstractContextManager[Any]:
    return patch.object(MessageManager, "view_of_decisions", b"")


def _counts_all_the_same() -> AbstractContextManager[Any]:
    return patch.object(Ledger, "doubtful", lambda _self: [])


@pytest.mark.req("P5", "P8")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("planted", "shows"), [(nullcontext, ""), (_told_at_once, "lost"), (_counts_all_the_same, "half done")]
)
def test_a_commit_that_most_client_managers_have_not_seen_is_not_told_and_did_not_happen(
    planted: Any, shows: str
) -> None:
    with planted():
        outcome = _cut_in_a_commit()
    if shows:
        assert any(each.startswith(shows) for each in outcome.violations), outcome.violations
    else:
        assert outcome.violations == []
        assert outcome.counts["commits_unknown"] == 1
