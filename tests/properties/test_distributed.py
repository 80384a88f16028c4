"""Each unit of a distributed queue is at one member at a time, whatever comes, goes, and is late (U6)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.model.distribution import Routing
from tests.properties.distributed_world import KEEPER, MANAGERS, PLACES, Refused, World

pytestmark = pytest.mark.req("U6")
UNITS = 6
STEPS = 400
ACTIONS = (
    *("open", "close", "away", "back", "restart", "change"),
    "house",
    *("process", "send") * 4,
    *("deliver",) * 10,
)


def run(routing: Routing, chance: random.Random, plants: frozenset[str] = frozenset()) -> None:
    world = World(routing, plants)
    world.open()
    for _ in range(STEPS):
        step(world, chance.choice(ACTIONS), chance)
        world.check()
    world.settle()


def step(world: World, action: str, chance: random.Random) -> None:
    session = chance.choice(world.sessions) if world.sessions else None
    if action == "open":
        world.open()
    elif action == "close" and session is not None:
        world.close(session)
    elif action == "send" and session is not None:
        try:
            world.send(session, chance.randint(1, UNITS))
        except Refused:
            return
    elif action == "deliver":
        world.deliver(chance.choice((*PLACES, KEEPER)), chance.choice(MANAGERS))
    elif action == "process":
        world.process(chance.choice(PLACES), chance.randint(0, 100))
    elif action == "away":
        world.away.add(chance.choice((*PLACES, KEEPER)))
        if all(name in world.away for name in world.distribution.members):
            world.away.remove(chance.choice(sorted(world.away & set(world.distribution.members))))
    elif action == "back" and world.away:
        world.away.remove(chance.choice(sorted(world.away)))
    elif action == "house":
        world.keep_house()
    elif action == "restart":
        world.restart_keeper()
    elif action == "change":
        world.change(tuple(name for name in PLACES if chance.random() < 0.6))


@pytest.mark.parametrize("routing", list(Routing))
@given(chance=st.randoms(use_true_random=False))
def test_a_unit_is_at_one_member_at_a_time(routing: Routing, chance: random.Random) -> None:
    run(routing, chance)


@pytest.mark.parametrize(
    ("routing", "plant"),
    [
        (Routing.HASH, "detour"),
        (Routing.HASH, "hash-of-reachable"),
        (Routing.HASH, "stale-members"),
        (Routing.PATH, "detour"),
        (Routing.PATH, "leaving-is-gone"),
        (Routing.PATH, "forget-unasked"),
        (Routing.PATH, "forget-while-open"),
        (Routing.PATH, "any-answer"),
    ],
)
def test_a_rule_that_is_left_out_is_noticed(routing: Routing, plant: str) -> None:
    for seed in range(400):
        try:
            run(routing, random.Random(seed), frozenset({plant}))
        except AssertionError:
            return
    pytest.fail(f"nobody noticed {plant}")
