"""Message managers that replicate, under clients that do everything and faults between any two frames (M9, J1–J10).

A run is decided by its seed, but for what threads and sockets do. What is judged is in `replicated_judge.py`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from heliograph.nodes import message_manager, preparing
from tests.properties.replicated_plants import PLANTS, Plant
from tests.properties.replicated_world import World

STEPS = 1200
SEEDS_TO_CATCH = 60


@pytest.fixture(autouse=True)
def doubts_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is in doubt about a transaction asks sooner than a run takes."""
    monkeypatch.setattr(message_manager, "_SWEEP_SECONDS", 0.05)
    monkeypatch.setattr(preparing, "IN_DOUBT_SECONDS", 0.2)
    monkeypatch.setattr(preparing, "ASK_AGAIN_SECONDS", 0.1)


def run(seed: int, base: Path, steps: int = STEPS) -> World:
    world: list[World] = []

    async def play() -> None:
        world.append(World(seed, base / str(seed)))
        try:
            await world[0].run(steps)
        finally:
            await world[0].stop()

    try:
        asyncio.run(play())
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    return world[0]


@pytest.mark.slow
@pytest.mark.req("M9")
@pytest.mark.parametrize("seed", range(8))
def test_replicas_keep_every_promise(seed: int, tmp_path: Path) -> None:
    run(seed, tmp_path)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("hundred", range(5))
def test_replicas_keep_every_promise_for_long(hundred: int, tmp_path: Path) -> None:
    for seed in range(1000 + hundred * 100, 1100 + hundred * 100):
        run(seed, tmp_path, 2000)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, tmp_path: Path) -> None:
    for seed in range(SEEDS_TO_CATCH):
        try:
            with plant():
                run(seed, tmp_path)
        except Exception:
            return
    pytest.fail(f"{plant.__name__} went unnoticed")
