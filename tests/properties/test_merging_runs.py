"""Parts that meet, many times over: nothing is lost, nothing comes twice, everybody has the same (P6, P9)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from heliograph.nodes import reunion
from tests.properties.merging_plants import IN_RUNS, Plant
from tests.properties.merging_run import Run

ROUNDS, STEPS = 3, 40
SEEDS_TO_CATCH = 12


@pytest.fixture(autouse=True)
def whole_is_said_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what is remembered until then is forgotten within a run."""
    monkeypatch.setattr(reunion, "WHOLE_EVERY_RECORDS", 15)


def run(seed: int, base: Path, rounds: int = ROUNDS) -> Run:
    found: list[Run] = []

    async def play() -> None:
        found.append(Run(seed, base / str(seed)))
        try:
            await found[0].play(rounds, STEPS)
        finally:
            await found[0].stop()

    try:
        asyncio.run(play())
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    return found[0]


@pytest.mark.slow
@pytest.mark.req("P6", "P9")
@pytest.mark.parametrize("seed", range(8))
def test_parts_that_meet_keep_every_promise(seed: int, tmp_path: Path) -> None:
    run(seed, tmp_path)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("hundred", range(3))
def test_parts_that_meet_keep_every_promise_for_long(hundred: int, tmp_path: Path) -> None:
    for seed in range(1000 + hundred * 100, 1100 + hundred * 100):
        run(seed, tmp_path, 5)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("plant", IN_RUNS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, tmp_path: Path) -> None:
    for seed in range(SEEDS_TO_CATCH):
        try:
            with plant():
                run(seed, tmp_path / plant.__name__)
        except Exception:
            return
    pytest.fail(f"{plant.__name__} went unnoticed")
