"""Processes that form views on a real corosync: one is killed, one is stopped, corosync itself dies."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heliograph.cli.dev_hosts import Host, Network
from tests.cluster.hosts import TOKEN_MS, MemberProcess, one_host, require_corosync, until

pytestmark = pytest.mark.root
# Nobody may wait longer for a view after a loss: SILENCE_SECONDS where only silence tells, and a margin.
DETECTION_SECONDS = 3.0


class NodeProcess(MemberProcess):
    """`node.py` on a host."""

    program = "tests.cluster.node"

    def start(self) -> None:
        self.ask("start")

    @property
    def incarnation(self) -> str:
        return str(self.ask("who")["incarnation"])

    @property
    def view(self) -> tuple[Any, ...] | None:
        """The one that it is in: ("installed", id, members)."""
        installed = [event for event in self.hear() if event[0] == "installed"]
        return installed[-1] if installed and self.ask("who")["installed"] else None

    def heard_in(self, view: str) -> list[tuple[Any, ...]]:
        """What was applied from the view on until the next one."""
        events = self.hear()
        start = next(place for place, event in enumerate(events) if event[:2] == ("installed", view))
        rest = events[start + 1 :]
        stop = next((place for place, event in enumerate(rest) if event[0] == "installed"), len(rest))
        return [event for event in rest[:stop] if event[0] != "arrived"]

    def has_heard(self, kind: str, who: int, number: int) -> bool:
        return any(event[:3] == (kind, who, number) for event in self.hear())

    def left(self) -> list[str]:
        """Why it had to go, since it was first in a view: corosync may have been slower to start."""
        events = self.hear()
        first = next(place for place, event in enumerate(events) if event[0] == "installed")
        return [event[1] for event in events[first:] if event[0] == "left"]


class Trio:
    """Three processes, each on one of these hosts."""

    def __init__(self, hosts: list[Host], channel: str) -> None:
        self._hosts = hosts
        self._channel = channel
        self.nodes = [self.process(who) for who in (1, 2, 3)]

    def process(self, who: int) -> NodeProcess:
        node = NodeProcess(self._hosts[who - 1], self._channel, who)
        node.start()
        return node

    def start_again(self, who: int) -> NodeProcess:
        self.nodes[who - 1] = self.process(who)
        return self.nodes[who - 1]

    def together(self, *nodes: NodeProcess, patience: float = 20.0) -> str:
        """These are in one view, and nobody else is. Its id."""

        def in_one_view() -> bool:
            views = [node.view for node in nodes]
            members = tuple(sorted(node.incarnation for node in nodes))
            return all(view == views[0] for view in views) and views[0] is not None and views[0][2] == members

        until(in_one_view, f"{[node.who for node in nodes]} are in one view", patience)
        view = nodes[0].view
        assert view is not None
        return str(view[1])

    def stop(self) -> None:
        for node in self.nodes:
            node.kill()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    require_corosync()
    with one_host(tmp_path) as host:
        yield host


@pytest.fixture
def trio(host: Host, request: pytest.FixtureRequest) -> Iterator[Trio]:
    trio = Trio([host] * 3, request.node.name[:100])
    try:
        yield trio
    finally:
        trio.stop()


@pytest.mark.req("M2")
def test_one_that_is_killed_is_missed_at_once_and_comes_back_as_somebody_new(trio: Trio) -> None:
    first, second, third = trio.nodes
    view = trio.together(first, second, third)
    dead = third.incarnation
    for node in trio.nodes:
        node.ask("say", count=100)
    killed = time.monotonic()
    third.kill()
    for node in (first, second):
        node.ask("say", count=100)  # some of it in the old view, some between, some in the next
    trio.together(first, second, patience=DETECTION_SECONDS)
    assert time.monotonic() - killed < DETECTION_SECONDS
    for node in (first, second):
        for who in (1, 2):
            until(lambda node=node, who=who: node.has_heard("fact", who, 199), "all facts hold")  # type: ignore[misc]

    # They heard the same in the view, at the same places, and nothing was decided when it was over.
    assert first.heard_in(view) == second.heard_in(view)
    heard = first.heard_in(view)
    over = heard.index(("suspended",))
    assert all(event[0] == "fact" for event in heard[over + 1 :])
    for node in (first, second):
        for who in (1, 2):
            facts = [event[2] for event in node.hear() if event[:2] == ("fact", who)]
            decisions = [event[2] for event in node.hear() if event[:2] == ("decision", who)]
            assert facts == list(range(200))
            assert decisions == sorted(set(decisions)), "some may be missing, none comes twice"

    newcomer = trio.start_again(3)
    following = trio.together(first, second, newcomer)
    assert newcomer.incarnation != dead
    newcomer.ask("say", count=1)
    for node in trio.nodes:
        until(lambda node=node: node.has_heard("decision", 3, 0), "it is heard like everybody")  # type: ignore[misc]
    assert first.heard_in(following) == second.heard_in(following) == newcomer.heard_in(following)


@pytest.mark.slow
def test_one_that_is_stopped_is_expelled_and_comes_back_when_it_goes_on(trio: Trio) -> None:
    first, second, third = trio.nodes
    trio.together(first, second, third)
    before = third.incarnation
    third.process.send_signal(signal.SIGSTOP)
    trio.together(first, second, patience=2 * DETECTION_SECONDS)
    first.ask("say", count=10)
    until(lambda: second.has_heard("decision", 1, 9), "the others go on")
    third.process.send_signal(signal.SIGCONT)
    trio.together(first, second, third)
    assert third.left() == ["expelled"]
    assert third.incarnation != before
    assert not any(event[0] == "decision" for event in third.hear()), (
        "what was decided without it is not its own"
    )


@pytest.mark.slow
def test_when_corosync_dies_under_them_they_come_again_with_it(trio: Trio, host: Host) -> None:
    trio.together(*trio.nodes)
    before = [node.incarnation for node in trio.nodes]
    host.kill_corosync()
    for node in trio.nodes:
        until(lambda node=node: node.left()[-1:] == ["bus-unavailable"], "it knows that there is no bus")  # type: ignore[misc]
        assert node.left()[0] == "bus-lost"
    host.start_again()
    trio.together(*trio.nodes)
    assert not set(before) & {node.incarnation for node in trio.nodes}


@pytest.mark.slow
def test_the_parts_of_a_cut_have_views_of_their_own_until_it_heals(tmp_path: Path) -> None:
    require_corosync()
    network = Network(tmp_path, 3)
    try:
        network.start(token_ms=TOKEN_MS)
        trio = Trio(network.hosts, "cut")
        try:
            _cut_and_heal(network, trio)
        finally:
            trio.stop()
    finally:
        network.stop()


def _cut_and_heal(network: Network, trio: Trio) -> None:
    first, second, third = trio.nodes
    whole = trio.together(first, second, third)
    network.pull(3)
    for node in trio.nodes:
        node.ask("say", count=20)  # in the window before anybody knows
    large, small = trio.together(first, second), trio.together(third)
    assert len({whole, large, small}) == 3
    for node in trio.nodes:
        node.ask("say", count=20)
    until(lambda: first.has_heard("decision", 2, 39), "the larger part goes on")
    until(lambda: third.has_heard("decision", 3, 39), "and so does the smaller")
    assert not any(event[:2] == ("decision", 3) and event[2] >= 20 for event in first.hear())
    assert first.heard_in(whole) == second.heard_in(whole)

    network.plug(3)
    trio.together(first, second, third)
    third.ask("say", count=1)
    until(lambda: first.has_heard("decision", 3, 40), "they hear each other again")
