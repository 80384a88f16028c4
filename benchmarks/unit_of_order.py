"""What units of order cost: throughput, memory of a million waiting units, and what one that is stuck does to others.

    python -m benchmarks.unit_of_order [--json] [throughput waiting stuck]

Each figure comes with the bar it has to meet, and with what it is compared to, measured in turns in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import uvloop

import heliograph
from benchmarks.messaging_model import own_server
from benchmarks.processes import BenchmarkError, Child

BODY: Final = b"x" * 256
ROUNDS: Final = 3
UNITS: Final = 10_000
CONSUMERS: Final = 8
MILLION: Final = 1_000_000
MEGABYTE: Final = 1_000_000
_MOMENT: Final = struct.Struct("<d")


async def _server_figures(connection: heliograph.Connection) -> tuple[float, int]:
    """Processor seconds and bytes of memory."""
    figures = await connection.ask("server")
    return float(figures["cpu_seconds"]), int(figures["rss_bytes"])


# ---- throughput


async def throughput(folder: Path, messages: int = 200_000) -> dict[str, Any]:
    """10,000 units and 8 consumers, beside the same without units: one producer, everything on disk."""
    rates: dict[str, list[float]] = {"plain": [], "units": []}
    costs: dict[str, list[float]] = {"plain": [], "units": []}
    async with own_server(folder) as url, heliograph.connect(url) as connection:
        for round_number in range(-1, ROUNDS):  # the first warms up
            for kind in ("plain", "units"):
                queue = f"queue:{kind}-{round_number}"
                before, _ = await _server_figures(connection)
                count = messages if round_number >= 0 else messages // 10
                rate = await _flow(url, folder, queue, count, UNITS if kind == "units" else 0)
                after, _ = await _server_figures(connection)
                if round_number >= 0:
                    rates[kind].append(rate)
                    costs[kind].append((after - before) / messages * 1e6)
    plain, units = (statistics.median(rates[kind]) for kind in rates)
    return {
        "messages_per_second": round(units),
        "plain_messages_per_second": round(plain),
        "percent_of_plain": round(units / plain * 100, 1),
        "rounds": [round(rate) for rate in rates["units"]],
        "plain_rounds": [round(rate) for rate in rates["plain"]],
        "server_cpu_us_per_message": round(statistics.median(costs["units"]), 2),
        "plain_server_cpu_us_per_message": round(statistics.median(costs["plain"]), 2),
        "bar": "25 % of plain",
        "met": units >= plain / 4,
    }


async def _flow(url: str, folder: Path, queue: str, messages: int, units: int) -> float:
    """Send while a process of consumers receives; messages a second until the last is there."""
    command = [sys.executable, "-m", "benchmarks.unit_of_order", "--consume", url, queue, str(messages)]
    with Child(command, folder=folder, name="consumers", piped=True) as consumers:
        assert consumers.process.stdout is not None
        if await asyncio.to_thread(consumers.process.stdout.readline) != b"ready\n":
            raise BenchmarkError(f"the consumers did not start: {consumers.complaint()}")
        started = time.perf_counter()
        async with heliograph.connect(url) as connection:
            producer = await connection.producer(queue)
            names = [f"unit-{number}" for number in range(units)]
            for number in range(messages):
                if units:
                    await producer.send(BODY, unit_of_order=names[number * 7919 % units])
                else:
                    await producer.send(BODY)
            await producer.flush()
        if await asyncio.to_thread(consumers.process.stdout.readline) != b"done\n":
            raise BenchmarkError(f"the consumers failed: {consumers.complaint()}")
        return messages / (time.perf_counter() - started)


async def _consume(url: str, queue: str, messages: int) -> None:
    """The other side of `_flow`: consumers that compete, each with a connection to itself."""
    received = 0
    over = asyncio.Event()

    async def take(consumer: heliograph.Consumer) -> None:
        nonlocal received
        while True:
            batch = await consumer.receive_batch()
            received += len(batch)
            if received >= messages:
                over.set()

    connections = [await heliograph.connect(url) for _ in range(CONSUMERS)]
    tasks = [asyncio.create_task(take(await connection.consumer(queue))) for connection in connections]
    print("ready", flush=True)
    await over.wait()
    print("done", flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for connection in connections:
        await connection.close()


# ---- a million waiting units


async def waiting(folder: Path, units: int = MILLION) -> dict[str, Any]:
    """A message for each of a million units waits: memory, when nobody looks, at work, and after a restart."""
    queue = "queue:waiting"
    figures: dict[str, Any] = {"units": units}
    async with own_server(folder) as url, heliograph.connect(url) as connection:
        figures["rss_mb_empty"] = await _rss(connection)
        await _one_for_each(connection, queue, units)
        figures["rss_mb_waiting"] = await _rss(connection)
        await _take_some(connection, queue, 20_000)
        figures["rss_mb_at_work"] = await _rss(connection)
    started = time.perf_counter()
    async with own_server(folder) as url, heliograph.connect(url) as connection:
        figures["restart_seconds"] = round(time.perf_counter() - started, 2)
        figures["rss_mb_restarted"] = await _rss(connection)
        await _take_some(connection, queue, 20_000)
        figures["rss_mb_restarted_at_work"] = await _rss(connection)
        producer = await connection.producer(queue)
        await producer.send_confirmed(BODY, unit_of_order="urgent", priority=9)
        started = time.perf_counter()
        await _take_some(connection, queue, 20_000)
        figures["seconds_to_begin_with_priorities"] = round(time.perf_counter() - started, 2)
        figures["rss_mb_with_priorities"] = await _rss(connection)
    most = max(value for key, value in figures.items() if key.startswith("rss_mb"))
    return {**figures, "bar": "400 MB", "met": most <= 400}


async def _rss(connection: heliograph.Connection) -> int:
    return (await _server_figures(connection))[1] // MEGABYTE


async def _one_for_each(connection: heliograph.Connection, queue: str, units: int) -> None:
    producer = await connection.producer(queue)
    for number in range(units):
        await producer.send(b"%d" % number, unit_of_order=f"unit-{number}")
    await producer.flush()


async def _take_some(connection: heliograph.Connection, queue: str, messages: int) -> None:
    session = await connection.session(acknowledge="client")
    consumer = await session.consumer(queue)
    taken = 0
    while taken < messages:
        batch = await consumer.receive_batch(messages - taken, timeout=60)
        if not batch:
            raise BenchmarkError(f"only {taken} messages came")
        taken += len(batch)
        await session.acknowledge(confirm=True)
    await session.close()


# ---- one unit that is stuck


async def stuck(folder: Path, rate: int = 1000, seconds: float = 60.0) -> dict[str, Any]:
    """One unit is stuck for a minute while others flow: their 99th percentile, beside that of a queue without.

    Both queues flow at the same time, so that both meet the same disk.
    """
    async with own_server(folder) as url:
        await _paced(url, "queue:warm", rate, 3.0, is_stuck=False)
        latencies = await asyncio.gather(
            _paced(url, "queue:free", rate, seconds, is_stuck=False),
            _paced(url, "queue:stuck", rate, seconds, is_stuck=True),
        )
    free, held = (statistics.quantiles(found, n=100) for found in latencies)
    more = held[98] / free[98] - 1
    return {
        "messages_per_second": rate,
        "p50_ms": round(held[49] * 1e3, 3),
        "p50_ms_without": round(free[49] * 1e3, 3),
        "p99_ms": round(held[98] * 1e3, 3),
        "p99_ms_without": round(free[98] * 1e3, 3),
        "more_percent": round(more * 100, 1),
        "bar": "less than 10 % more",
        "met": more < 0.10,
    }


async def _paced(url: str, queue: str, rate: int, seconds: float, *, is_stuck: bool) -> list[float]:
    """Latencies of all messages but those of one unit, which gets one in a hundred; stuck, a consumer sits on it."""
    latencies: list[float] = []
    total = int(rate * seconds)
    over = asyncio.Event()

    async def take(consumer: heliograph.Consumer) -> None:
        async for message in consumer:
            body = message.body
            assert isinstance(body, bytes)
            if message.unit_of_order != "stuck":
                latencies.append(time.perf_counter() - _MOMENT.unpack_from(body)[0])
                if len(latencies) == total - total // 100:
                    over.set()

    async with heliograph.connect(url) as sending, heliograph.connect(url) as holding:
        producer = await sending.producer(queue)
        if is_stuck:
            session = await holding.session(acknowledge="individual")
            holder = await session.consumer(queue, credit=1)
            await producer.send_confirmed(bytes(256), unit_of_order="stuck")
            assert await holder.receive(timeout=10) is not None
        connections = [await heliograph.connect(url) for _ in range(CONSUMERS)]
        tasks = [asyncio.create_task(take(await each.consumer(queue))) for each in connections]
        started = time.perf_counter()
        for number in range(total):
            unit = "stuck" if number % 100 == 99 else f"unit-{number * 7919 % UNITS}"
            body = _MOMENT.pack(time.perf_counter()) + bytes(248)
            await producer.send(body, unit_of_order=unit)
            ahead = number / rate - (time.perf_counter() - started)
            if ahead > 0:
                await asyncio.sleep(ahead)
        await producer.flush()
        await asyncio.wait_for(over.wait(), 30)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in connections:
            await connection.close()
    return latencies


MEASUREMENTS: Final[dict[str, Callable[[Path], Coroutine[Any, Any, dict[str, Any]]]]] = {
    "throughput": throughput,
    "waiting": waiting,
    "stuck": stuck,
}


def main() -> None:
    if sys.argv[1:2] == ["--consume"]:
        uvloop.run(_consume(sys.argv[2], sys.argv[3], int(sys.argv[4])))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("measurements", nargs="*", choices=[*MEASUREMENTS, []], metavar="WHICH")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for name in options.measurements or MEASUREMENTS:
        with tempfile.TemporaryDirectory(prefix="helio-bench-", dir="/var/tmp") as folder:
            try:
                results[name] = uvloop.run(MEASUREMENTS[name](Path(folder)))
            except (BenchmarkError, heliograph.HeliographError) as error:
                results[name] = {"failed": str(error), "met": False}
        if not options.json:
            figures = ", ".join(f"{key} {value}" for key, value in results[name].items())
            print(f"{name}: {figures}", flush=True)
    if options.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
