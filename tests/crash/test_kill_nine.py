"""`kill -9` of a server under load, again and again: what was confirmed comes, in order, not twice unmarked.

The seed of a run is printed; `HELIO_TEST_SEED` repeats its load and its moments. The machine adds its own.
"""

import asyncio
import os
import random
import secrets
import time
from pathlib import Path

import pytest

from heliograph.client import link
from tests.crash.load import Load
from tests.servers import ServerProcess, play

pytestmark = [pytest.mark.crash, pytest.mark.slow]

KILLS = 50


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("HELIO_TEST_SEED", "0")) or secrets.randbelow(10**9) + 1
    print(f"HELIO_TEST_SEED={chosen}")
    return chosen


@pytest.fixture(autouse=True)
def _quick_return(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that dies every second is not the overloaded one that growing pauses are meant to spare."""
    monkeypatch.setattr(link, "STABLE_SECONDS", 0.0)


async def kill_again_and_again(folder: Path, seed: int, kills: int) -> None:
    dice = random.Random(seed)
    # Small segments and frequent snapshots: rolling, deleting and snapshotting are interrupted too.
    settings = {"journal.segment_bytes": 4 << 20, "journal.snapshot_every_bytes": 2 << 20}
    async with ServerProcess(folder, settings) as server:
        load = Load(server.url, seed)
        await load.start()
        try:
            began = time.monotonic()
            for _ in range(kills):
                await load.flows()
                await asyncio.sleep(dice.choice((0.02, 0.2, 1.0)) * dice.random())
                await server.restart()
            print(f"{kills} kills in {time.monotonic() - began:.0f} s: {load.ledger.summary()}")
            await load.stop_sending(60)
            await load.drain(60)
            print(f"at the end: {load.ledger.summary()}")
            load.ledger.check()
            assert not load.errors
            assert load.ledger.confirmed_total == load.ledger.sent, "the server is up: all is confirmed"
            assert load.ledger.redelivered, "a kill under load interrupts deliveries"
            assert "Traceback" not in server.errors, server.errors
        finally:
            await load.close()


@pytest.mark.req("J3", "J4", "J11", "J12")
@pytest.mark.timeout(600)
def test_nothing_is_lost_doubled_or_reordered_by_fifty_kills(tmp_path: Path, seed: int) -> None:
    play(kill_again_and_again(tmp_path, seed, KILLS), 580)


async def stop_under_load(folder: Path, seed: int, stops: int) -> None:
    dice = random.Random(seed)
    async with ServerProcess(folder) as server:
        load = Load(server.url, seed)
        await load.start()
        try:
            for _ in range(stops):
                await load.flows()
                await asyncio.sleep(dice.random() / 2)
                code = await server.terminate()
                assert code == 0, server.errors
                assert not server.errors
                await server.start()
            await load.stop_sending(60)
            await load.drain(60)
            load.ledger.check()
            assert not load.errors
            print(load.ledger.summary())
        finally:
            await load.close()


@pytest.mark.req("J3", "J12")
@pytest.mark.timeout(300)
def test_a_clean_stop_under_load_loses_nothing_and_ends_with_zero(tmp_path: Path, seed: int) -> None:
    play(stop_under_load(tmp_path, seed, stops=8), 280)
