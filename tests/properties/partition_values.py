"""What `partition_world.py` is made of: worlds as values, and the names that the engine gives to their parts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from heliograph.bus.interface import Incarnation, Stamp
from heliograph.cluster.partition_state import State

# Of a view: number, clients, stores, force, whether it was reached, elders.
Told = tuple[int, tuple[int, ...], tuple[int, ...], int, bool, tuple[int, ...]]
OLD, PROPOSED, SETTLED = range(3)  # a configuration that has one message manager less
NONE = -1  # no view; in lists of nodes, one that does not exist any more


class Node(NamedTuple):
    """`heard`: how many frames of its last view. The rest is of message managers: the view on its disk, how many
    hand-outs it knows of, whether it caught up in this view, whether its disk is not the enrolled one, and what it
    knows of a change of the configuration."""

    last: int = NONE
    is_installed: bool = False
    heard: int = 0
    record: int = NONE
    known: int = 0
    caught_up: bool = False
    is_replaced: bool = False
    configuration: int = OLD


class Seen(NamedTuple):
    """A view that somebody remembers. `force`: the frame with which it came into force, 0: it has not."""

    number: int
    state: State
    clients: tuple[int, ...]
    stores: tuple[int, ...]
    frames: int = 0
    force: int = 0
    is_proposed: bool = False  # the change, here, and all of U have it
    came_in: tuple[int, ...] = ()  # who installed it, while it is not in force
    recorded: tuple[int, ...] = ()
    partition: tuple[tuple[int, ...], ...] = ()  # managers, elders, voters, came: what it takes


class World(NamedTuple):
    nodes: tuple[Node, ...]
    views: tuple[Seen, ...]
    handed_out: int


class Violation(Exception):
    """Two parts could hand out the same."""


def subsets(of: range | tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for size in range(1, len(of) + 1):
        yield from combinations(of, size)


def changed(world: World, nodes: dict[int, Node], views: dict[int, Seen]) -> World:
    return World(
        tuple(nodes.get(place, each) for place, each in enumerate(world.nodes)),
        tuple(views.get(place, each) for place, each in enumerate(world.views)),
        world.handed_out,
    )


def without(nodes: tuple[int, ...], gone: int) -> tuple[int, ...]:
    return tuple(NONE if node == gone else node for node in nodes)


def renamed(view: Seen, names: dict[int, int], low: int) -> Seen:
    number, state, clients, stores, frames, force, is_proposed, came_in, recorded, takes = view
    stores = tuple(sorted([names[node] for node in stores]))
    if takes:
        came_in = tuple(sorted([names[node] for node in came_in]))
        recorded = tuple(sorted([names[node] for node in recorded]))
        takes = (*(tuple(sorted([names[node] for node in each])) for each in takes[:2]), *takes[2:])
    return Seen(number - low, state, clients, stores, frames, force, is_proposed, came_in, recorded, takes)


def who_is(node: int) -> Incarnation:
    return Incarnation(bytes([node % 256]))


def nodes_of(members: tuple[Incarnation, ...]) -> tuple[int, ...]:
    return tuple(each[0] if each[0] != 255 else NONE for each in members)


def stamp_of(number: int) -> Stamp:
    return Stamp(bytes([number + 1]) * 24)
