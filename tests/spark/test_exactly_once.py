"""Killed anywhere, each message is processed once (D2, D3): drivers with their JVM by `kill -9`, and the server
too."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import heliograph
from heliograph.model.errors import ConnectionLost
from tests.servers import CLEAN, ROOT
from tests.spark.serving import ServerInProcess

pytestmark = [pytest.mark.req("D2", "D3"), pytest.mark.crash]
UNITS = 50


class Relay:
    """A driver and everything that it started."""

    def __init__(self, folder: Path, url: str, mode: str, rows: int) -> None:
        self._log = folder / "relay.log"
        arguments = [url, mode, str(folder / "checkpoint"), str(rows)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.relay", *arguments],
                cwd=ROOT,
                env=CLEAN,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def has_ended_well(self) -> bool:
        return self._process.poll() == 0 and "done" in self._log.read_text(errors="replace")

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def send(url: str, count: int) -> None:
    with heliograph.connect_blocking(url) as connection:
        producer = connection.producer("queue:in")
        for n in range(count):
            producer.send(b"%d" % n, unit_of_order=f"u{n % UNITS}" if n % 2 else None)
        producer.flush()


def received(url: str, count: int) -> list[int]:
    with heliograph.connect_blocking(url) as connection:
        consumer = connection.consumer("queue:out")
        found = []
        while (message := consumer.receive(timeout=2)) is not None:
            assert isinstance(message.body, bytes)
            found.append(int(message.body.removeprefix(b"out ")))
        assert len(found) <= count + 100, "far too many"
        return found


def published(url: str) -> int:
    """How much has arrived. On a busy machine that may take a while to find out."""
    deadline = time.monotonic() + 120
    while True:
        try:
            with heliograph.connect_blocking(url) as connection:
                shown = connection.ask("destinations")["destinations"]
                return sum(each["depth"] for each in shown if each["address"] == "queue:out")
        except ConnectionLost:
            if time.monotonic() > deadline:
                raise


def work_on(relay: Relay, folder: Path, url: str, mode: str, rows: int) -> Relay:
    """Until a batch more is there than at first, so that between two kills something gets done. A driver that lost
    its server in the middle of a task may end; the next goes on from its checkpoint."""
    before, deadline = published(url), time.monotonic() + 300
    while published(url) < before + rows:
        assert time.monotonic() < deadline, "no batch comes to its end"
        assert not relay.has_ended_well, (
            "everything was done before the last kill: there were too few messages"
        )
        if not relay.is_running:
            relay = Relay(folder, url, mode, rows)
        time.sleep(0.05)
    return relay


def play(folder: Path, mode: str, count: int, rows: int, kills: int, server_kills: int, seed: int) -> None:
    chance = random.Random(seed)
    victims = ["driver"] * kills + ["server"] * server_kills
    chance.shuffle(victims)
    server = ServerInProcess(folder / "server")
    with server as url:
        send(url, count)
        relay = Relay(folder, url, mode, rows)
        try:
            for victim in victims:
                relay = work_on(relay, folder, url, mode, rows)
                time.sleep(chance.random())  # anywhere in the next batches
                if victim == "server":
                    server.kill()
                    server.__enter__()
                    continue
                assert relay.is_running, "who has ended cannot be killed"
                relay.kill()
                relay = Relay(folder, url, mode, rows)
            assert published(url) < count, "everything was done before the last kill"
            deadline = time.monotonic() + 1200
            while not relay.has_ended_well:
                assert time.monotonic() < deadline, "it never came to an end"
                if not relay.is_running:
                    relay = Relay(folder, url, mode, rows)
                time.sleep(0.1)
        finally:
            relay.kill()
        found = received(url, count)
        assert len(found) == len(set(found)), "doubled"
        assert sorted(found) == list(range(count)), "lost"
        for unit in range(1, UNITS, 2):
            own = [n for n in found if n % UNITS == unit]
            assert own == sorted(own), f"unit {unit} is out of order"
        left = 0 if mode == "queue" else count
        with heliograph.connect_blocking(url) as connection:
            shown = connection.ask("destination.show", destination="queue:in")
            assert (shown["depth"], shown["in_flight"]) == (left, 0)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["queue", pytest.param("feed", marks=pytest.mark.nightly)])
def test_a_driver_that_is_killed_loses_and_doubles_nothing(tmp_path: Path, mode: str) -> None:
    play(tmp_path, mode, count=12_000, rows=1000, kills=1, server_kills=1, seed=1)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("mode", ["queue", "feed"])
def test_a_million_messages_and_ten_kills(tmp_path: Path, mode: str) -> None:
    play(tmp_path, mode, count=1_000_000, rows=20_000, kills=10, server_kills=3, seed=2)
