"""What a refused commit is excused by: a disk that is full, if that is what it was refused for."""

from __future__ import annotations

import pytest

from heliograph.model.errors import NO_ROOM
from simulation.history import History
from simulation.in_vain import InVain
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
