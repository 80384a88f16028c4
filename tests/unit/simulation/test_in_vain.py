"""What a refused commit is excused by: a disk that is full, if that is what it was refused for. And for what reasons
a message may come again."""

from __future__ import annotations

import pytest

from heliograph.model.errors import NO_ROOM
from simulation.clients import Receiving, Scene
from simulation.history import History, Transaction
from simulation.in_vain import InVain
from simulation.machines import Machine
from simulation.sockets import Sockets
from simulation.world import World

_ROLLED_BACK = "it was rolled back"


@pytest.mark.parametrize(
    ("full", "sentence", "is_shown"),
    [
        ([], _ROLLED_BACK, True),
        ([], NO_ROOM, True),
        (["disk-full"], _ROLLED_BACK, True),
        (["disk-full"], NO_ROOM, False),
        (["disk-full", "disk-has-room"], NO_ROOM, False),
    ],
)
def test_a_refused_commit_is_in_vain_unless_a_disk_is_full_and_it_says_so(
    full: list[str], sentence: str, is_shown: bool
) -> None:
    world = World(1)
    history = History(world)
    in_vain = InVain(world, history)
    world.now = 1.0
    for event in full:
        in_vain.heard(1, event)
    assert history.on_refused is not None
    history.on_refused("clerk#1/1", 0.5, sentence)
    assert bool(in_vain.violations) is is_shown


class _Transport:
    """A connection, as far as it matters here."""

    is_broken = False

    def get_extra_info(self, _name: str) -> tuple[str, int]:
        return "node1", 7700


class _Reader(Receiving):
    """Is connected, however that came about."""

    wire: _Transport | None = None

    @property
    def transport(self) -> _Transport | None:  # type: ignore[override]
        return self.wire


@pytest.mark.parametrize(
    ("reason", "is_shown"),
    [
        ("", True),
        ("it was done with it", True),
        ("it gave it back", False),
        ("it rolled back", False),
        ("its connection broke", False),
        ("it has another connection", False),
        ("it is another", False),
        ("it went back while its content was read", False),
        ("nobody is left who knows", False),
    ],
)
def test_what_somebody_has_comes_again_for_a_reason(reason: str, is_shown: bool) -> None:
    world = World(1)
    history = History(world)
    in_vain = InVain(world, history)
    scene = Scene(world, history, (), 1.0)
    machine = Machine(world, Sockets(world), "desk")
    one, two = (_Reader(scene, machine, name, "queue:q", mode="individual") for name in ("one", "two"))
    for client in (one, two):
        client.life, client.wire = f"{client.name}#1", _Transport()
    in_vain.watch([one, two])
    world.now = 1.0
    history.send("w#1:1", "queue:q")
    is_lost = reason == "it went back while its content was read"
    hand_out = history.handed("queue:q", "w#1:1", "one#1", is_marked=False, is_stale=is_lost)
    world.now = 2.0
    match reason:
        case "it was done with it":
            history.settled(hand_out)
        case "it gave it back":
            history.returned(hand_out)
        case "it rolled back":
            history.asks_to_roll_back(Transaction("one#1/1", [hand_out], []))
        case "its connection broke":
            assert one.wire is not None
            one.wire.is_broken = True
        case "it has another connection":
            one.wire = _Transport()
        case "it is another":
            one.life = "one#2"
        case "nobody is left who knows":
            in_vain.heard(1, "replica-leads", took_over=False)
    history.handed("queue:q", "w#1:1", "two#1", is_marked=True)
    assert any("for no reason" in each for each in in_vain.violations) is is_shown
