"""Cables are pulled and plugged at random while all three hosts talk: what the bus promises holds all the time."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliograph.bus.corosync_settings import DEFAULT_TOKEN_MS
from heliograph.cli.dev_hosts import Network
from tests.cluster.hosts import Trio, require_corosync, until
from tests.cluster.judging import check_that_those_who_moved_together_heard_the_same, numbers
from tests.suites.bus_behaviour import said

pytestmark = [pytest.mark.root, pytest.mark.nightly, pytest.mark.timeout(600)]
ROUNDS = 25


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Trio]:
    require_corosync()
    network = Network(tmp_path, 3)
    try:
        network.start(token_ms=DEFAULT_TOKEN_MS)
        trio = Trio(network, greets=True)
        try:
            trio.together(1, 2, 3)
            yield trio
        finally:
            trio.stop()
    finally:
        network.stop()


@pytest.mark.req("M2")
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("size", [300, 700_000])
def test_whoever_moves_together_has_heard_the_same(trio: Trio, seed: int, size: int) -> None:
    dice = random.Random(seed)
    count = 2000 if size < 1000 else 20
    for _ in range(ROUNDS):
        trio.say(count, size)
        number = dice.randint(1, 3)
        trio.network.pull(number)
        if dice.random() < 0.5:  # otherwise it heals before or while it is noticed
            trio.together(*(each for each in (1, 2, 3) if each != number), patience=60)
        trio.say(count, size)
        trio.network.plug(number)
        if dice.random() < 0.7:
            trio.together(1, 2, 3, patience=60)
    trio.together(1, 2, 3, patience=60)
    trio.say(1, 10)
    diaries = [member.hear() for member in trio.members]
    for member in trio.members:
        for who in (1, 2, 3):
            until(lambda m=member, w=who: 10 in [event[3] for event in said(m.hear(), w)], "the end", 60)  # type: ignore[misc]
    diaries = [member.hear() for member in trio.members]
    assert all(event[0] != "damage" for diary in diaries for event in diary)
    assert check_that_those_who_moved_together_heard_the_same(diaries) > 2
    for diary, who in zip(diaries, (1, 2, 3), strict=True):
        own = numbers(diary, who)
        if ("ended", "bus-gap") not in diary:
            assert own == list(range(len(own))), "a sender hears all of its own words, in order"
        for other in (1, 2, 3):
            heard = numbers(diary, other)
            assert heard == sorted(set(heard)), "nothing comes twice or out of order"
