"""One producer, many competing consumers that fail, lose their connections and are killed: is order kept?

    python -m tests.suites.ordering --messages 1000000

Starts a server, sends messages of many units in a random mixture, and kills a process of consumers now and
then. Ends with 0 if every message was processed and none was handed over out of order.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import heliograph
from tests.servers import CLEAN, ROOT, ServerProcess
from tests.suites.ordering_board import MAX_LIVES, OUT_OF_ORDER, Board
from tests.suites.ordering_consumers import PLACE, QUEUE

NO_LIMIT = {"redelivery_limit": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    messages: int = 1_000_000
    units: int = 10_000
    consumers: int = 30
    processes: int = 5
    kill_seconds: float = 3.0
    seed: int = 1
    returned: float = 0.01  # of messages, by consumers that acknowledge one by one
    cut: float = 0.005  # of batches, whose consumers lose their connection


@dataclass(slots=True, kw_only=True)
class Result:
    """What came of it."""

    messages: int
    units: int
    consumers: int
    processed: int = 0
    kills: int = 0
    seconds: float = 0.0
    left_in_queue: int = -1
    out_of_order: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # of consumers that nobody killed

    @property
    def is_good(self) -> bool:
        return (
            self.processed == self.messages
            and not self.left_in_queue
            and not (self.out_of_order or self.failures)
        )


class Company:
    """The processes of consumers."""

    def __init__(self, url: str, board: Path, plan: Plan, folder: Path) -> None:
        self._command = [sys.executable, "-m", "tests.suites.ordering_consumers", url, str(board)]
        self._command.append(str(plan.units))
        self._plan = plan
        self._each = -(-plan.consumers // plan.processes)
        self._folder = folder
        self._next_life = 1
        self._members: list[tuple[range, subprocess.Popen[bytes]]] = []

    def hire(self) -> None:
        plan = self._plan
        lives = range(self._next_life, self._next_life + self._each)
        numbers = (lives[0], self._each, plan.seed, plan.returned, plan.cut)
        assert lives[-1] < MAX_LIVES, "a run is short enough for as many starts"
        self._next_life = lives[-1] + 1
        with (self._folder / f"consumers-{lives[0]}").open("wb") as output:
            process = subprocess.Popen(
                [*self._command, *map(str, numbers)],
                cwd=ROOT,
                env=CLEAN,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._members.append((lives, process))

    def kill(self, board: Board, which: int) -> None:
        lives, process = self._members.pop(which)
        for life in lives:
            board.dead[life] = 1  # from now on nobody need wait for it
        process.kill()
        process.wait()

    def end(self) -> None:
        for _, process in self._members:
            process.kill()
            process.wait()

    async def leave(self) -> None:
        """Wait until all have ended by themselves."""
        async with asyncio.timeout(60):
            while any(process.poll() is None for _, process in self._members):
                await asyncio.sleep(0.05)

    def said(self) -> list[str]:
        """What they found out of order, each a line; and their last words where they ended by themselves."""
        files = sorted(self._folder.glob("consumers-*"))
        return [line for file in files for line in file.read_text(errors="replace").splitlines()]

    def found_out_of_order(self) -> list[str]:
        return [line for line in self.said() if line.startswith(OUT_OF_ORDER)]


@asynccontextmanager
async def company(url: str, board: Path, plan: Plan, folder: Path) -> AsyncIterator[Company]:
    members = Company(url, board, plan, folder)
    try:
        for _ in range(plan.processes):
            members.hire()
        yield members
    finally:
        members.end()


async def produce(url: str, plan: Plan) -> None:
    dice = random.Random(plan.seed)
    numbers = [0] * plan.units
    async with heliograph.connect(url) as connection:
        producer = await connection.producer(QUEUE)
        await connection.ask("destination.set", destination=QUEUE, policy=NO_LIMIT)
        for _ in range(plan.messages):
            unit = dice.randrange(plan.units)
            await producer.send(PLACE.pack(unit, numbers[unit]), unit_of_order=f"unit-{unit}")
            numbers[unit] += 1
        await producer.flush()


async def kill_now_and_then(members: Company, board: Board, plan: Plan, result: Result) -> None:
    dice = random.Random(plan.seed)
    while True:
        await asyncio.sleep(plan.kill_seconds)
        members.kill(board, dice.randrange(plan.processes))
        members.hire()
        result.kills += 1


async def run(plan: Plan, folder: Path, *, is_told: bool = False) -> Result:
    """Play it all, until every message is processed or nothing moves for a minute."""
    result = Result(messages=plan.messages, units=plan.units, consumers=plan.consumers)
    path = folder / "board"
    board = Board(path, plan.units, create=True)
    began = time.monotonic()
    async with ServerProcess(folder) as server, company(server.url, path, plan, folder) as members:
        async with asyncio.TaskGroup() as group:
            producing = group.create_task(produce(server.url, plan))
            killing = group.create_task(kill_now_and_then(members, board, plan, result))
            await _all_processed(board, plan, members, producing, is_told=is_told)
            killing.cancel()
        result.processed = sum(board.processed)
        result.seconds = round(time.monotonic() - began, 1)
        board.end()
        await members.leave()
        async with heliograph.connect(server.url) as connection:
            figures = await connection.ask("destination.show", destination=QUEUE)
            result.left_in_queue = figures["depth"] + figures["in_flight"]
        result.out_of_order = members.found_out_of_order()
        result.failures = [line for line in members.said() if not line.startswith(OUT_OF_ORDER)]
    return result


async def _all_processed(
    board: Board, plan: Plan, members: Company, producing: asyncio.Task[None], *, is_told: bool
) -> None:
    moved_at, before, told_at = time.monotonic(), 0, 0.0
    while before < plan.messages:
        await asyncio.sleep(0.1)
        now, processed = time.monotonic(), sum(board.processed)
        if processed != before:
            moved_at, before = now, processed
        if now - moved_at > 60 and producing.done():
            return  # something is lost: the figures tell
        if is_told and now - told_at > 5:
            told_at = now
            wrong = len(members.found_out_of_order())
            print(f"{processed:>12,} processed, {wrong} out of order", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in asdict(Plan()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    plan = Plan(**vars(parser.parse_args()))
    with tempfile.TemporaryDirectory(prefix="helio-ordering-", dir="/var/tmp") as folder:
        result = asyncio.run(run(plan, Path(folder), is_told=True))
    counts = {"out_of_order": len(result.out_of_order), "failures": len(result.failures)}
    print(json.dumps({**asdict(result), **counts}, indent=2))
    for line in (result.out_of_order + result.failures)[:60]:
        print(line, file=sys.stderr)
    return 0 if result.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
