"""Three hosts with a corosync each: cut, healed, one killed, one with a foreign key. Settings are those that
`helio cluster init` writes, but for a shorter token, so that the stories are."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliograph.bus.corosync_settings import KEY_BYTES
from heliograph.bus.interface import Reason
from heliograph.cli.dev_hosts import Network
from tests.cluster.hosts import TOKEN_MS, Trio, require_corosync, until
from tests.cluster.judging import heard_in_configurations, numbers, since_the_first_word
from tests.suites.bus_behaviour import members_of, said

pytestmark = [pytest.mark.root, pytest.mark.slow]


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    require_corosync()
    network = Network(tmp_path, 3)
    try:
        yield network
    finally:
        network.stop()


@pytest.fixture
def trio(network: Network) -> Iterator[Trio]:
    network.start(token_ms=TOKEN_MS)
    trio = Trio(network)
    try:
        yield trio
    finally:
        trio.stop()


@pytest.mark.req("M2")
def test_a_cut_gives_each_part_its_own_configuration_and_a_heal_merges_them(trio: Trio) -> None:
    trio.together(1, 2, 3)
    trio.say(200, 2000)
    for number in (1, 2, 3):
        for who in (1, 2, 3):
            trio.hears(number, who, 200)
    before = [said(member.hear()) for member in trio.members]
    assert before[0] == before[1] == before[2]

    trio.network.pull(3)
    trio.say(200, 2000)  # in the window before anybody knows
    trio.together(1, 2)
    trio.together(3)
    trio.say(200, 2000)
    for number in (1, 2):
        for who in (1, 2):
            trio.hears(number, who, 600)
    trio.hears(3, 3, 600)
    first, second, third = (member.hear() for member in trio.members)
    # The two that went on together heard the same, with the cut at the same place; nothing is missing or doubled.
    assert since_the_first_word(first) == since_the_first_word(second)
    lost = (*trio.members[2].place, str(Reason.HOST_LOST))
    assert any(event[0] == "configuration" and event[3] == (lost,) for event in first)
    assert numbers(first, 1) == numbers(first, 2) == numbers(third, 3) == list(range(600))

    trio.network.plug(3)
    trio.together(1, 2, 3)
    trio.say(100, 2000)
    for number in (1, 2, 3):
        for who in (1, 2, 3):
            trio.hears_number(number, who, 699)
    tails = [heard_in_configurations(member.hear())[-1][1] for member in trio.members]
    assert tails[0] == tails[1] == tails[2]
    assert {event[1] for event in tails[0]} == {1, 2, 3}
    assert all(event[0] not in {"damage", "ended"} for member in trio.members for event in member.hear())


@pytest.mark.req("M16")
def test_a_host_whose_corosync_dies_is_missed_and_its_member_told_and_both_come_back(trio: Trio) -> None:
    trio.together(1, 2, 3)
    victim = trio.members[2]
    trio.network.hosts[2].kill_corosync()
    until(lambda: victim.hear()[-1] == ("ended", "bus-lost"), "the member on that host is told")
    assert "bus-unavailable" in victim.ask("enter").values()
    trio.together(1, 2)
    trio.network.hosts[2].start_again()
    victim.enter()
    trio.together(1, 2, 3)
    trio.members[0].ask("say", count=10, size=100)
    trio.hears(3, 1, 10)


@pytest.mark.req("M16")
def test_a_host_with_another_key_stays_outside(network: Network) -> None:
    for host in network.hosts[:2]:
        host.start(network.ring, key=b"k" * KEY_BYTES, token_ms=TOKEN_MS)
    network.hosts[2].start(network.ring, key=b"x" * KEY_BYTES, token_ms=TOKEN_MS)
    trio = Trio(network)
    try:
        trio.together(1, 2)
        trio.say(50, 100)
        trio.hears(1, 2, 50)
        trio.hears(3, 3, 50)
        trio.together(1, 2)
        trio.together(3)
        assert all(not said(trio.members[2].hear(), who) for who in (1, 2))
        # It was the key that kept it out: with the right one it comes in.
        network.hosts[2].kill_corosync()
        network.hosts[2].start(network.ring, key=b"k" * KEY_BYTES, token_ms=TOKEN_MS)
        trio.members[2].enter()
        trio.together(1, 2, 3)
    finally:
        trio.stop()


def test_a_member_that_is_stopped_holds_up_nobody_and_hears_everything_later(trio: Trio) -> None:
    trio.together(1, 2, 3)
    sleeper = trio.members[2]
    sleeper.process.send_signal(signal.SIGSTOP)
    for member in trio.members[:2]:
        member.ask("say", count=300, size=1000)
    for number in (1, 2):
        trio.hears(number, 1, 300)
        trio.hears(number, 2, 300)
    assert len(members_of(trio.members[0].hear())) == 3
    sleeper.process.send_signal(signal.SIGCONT)
    trio.hears(3, 1, 300)
    trio.hears(3, 2, 300)
    assert said(sleeper.hear()) == said(trio.members[0].hear())
