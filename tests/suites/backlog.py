"""A deep backlog, measured: `python -m tests.suites.backlog --messages 5000000 [--lone]`.

Messages of 256 bytes wait in one queue, sent in blocks or one by one. Then the server is killed and started
again, and the queue is drained. What it takes of memory and time is compared with the bars; the rate of
draining with the rate of a producer and a consumer at work together. Each client is a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import uvloop

from heliograph.client import connect
from heliograph.model.limits import BLOCK_MESSAGES
from tests.servers import ServerProcess, helper

MESSAGE_BYTES = 256
LIVE_MESSAGES = 300_000
MAX_RSS_BYTES = 300_000_000
MAX_RESTART_SECONDS = 5.0
MIN_DRAIN_SHARE = 0.5
# A client from which nothing is heard for so long is stuck.
PATIENCE_SECONDS = 600.0
_DEEP, _LIVE = "queue:deep", "queue:live"
_REST = bytes(MESSAGE_BYTES - 8)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What was measured."""

    messages: int
    lone: bool
    live_rate: float
    fill_rate: float
    filled_rss_bytes: int  # the most it took until the queue was full
    restart_seconds: float  # until the server said that it is ready
    first_seconds: float  # until a consumer held the first message
    drain_rate: float
    drained_rss_bytes: int  # the most it took from the restart on

    def faults(self) -> list[str]:
        """The bars that were missed."""
        found = []
        rss = max(self.filled_rss_bytes, self.drained_rss_bytes)
        if rss > MAX_RSS_BYTES:
            found.append(f"the server took {rss / 1e6:.0f} MB")
        if self.first_seconds > MAX_RESTART_SECONDS:
            found.append(f"the first message came {self.first_seconds:.1f} s after the start")
        if self.drain_rate < MIN_DRAIN_SHARE * self.live_rate:
            found.append(f"drained at {self.drain_rate:,.0f}/s, live {self.live_rate:,.0f}/s")
        return found

    def table(self) -> str:
        share = self.drain_rate / self.live_rate
        kind = "one by one" if self.lone else "in blocks"
        filled, drained = (f"{rss / 1e6:,.0f} MB" for rss in (self.filled_rss_bytes, self.drained_rss_bytes))
        rows = [
            (f"{self.messages:,} messages of {MESSAGE_BYTES} B", kind, ""),
            ("server memory, filling (peak)", filled, "at most 300 MB"),
            ("server memory, restart and drain (peak)", drained, "at most 300 MB"),
            ("restart until ready", f"{self.restart_seconds:.2f} s", ""),
            ("restart until the first message", f"{self.first_seconds:.2f} s", "at most 5 s"),
            ("sending alone", f"{self.fill_rate:,.0f}/s", ""),
            ("sending and receiving together", f"{self.live_rate:,.0f}/s", ""),
            ("draining", f"{self.drain_rate:,.0f}/s", f"{share:.2f} of live, at least 0.5"),
        ]
        return "\n".join(f"{name:<42}{value:>16}   {bar}" for name, value, bar in rows)


async def measure(folder: Path, *, messages: int, lone: bool) -> Figures:
    """Raises AssertionError where a message is missing or out of place."""
    async with ServerProcess(folder) as server:
        live = min(messages, LIVE_MESSAGES)
        live_rate = await _run_clients(server, live, _LIVE, ("consume", "produce"), lone)
        fill_rate = await _run_clients(server, messages, _DEEP, ("produce",), lone)
        filled = server.peak_rss_bytes()
        await server.kill()
        began = time.monotonic()
        await server.start()
        await _first_message(server)
        first_seconds = time.monotonic() - began
        drain_rate = await _run_clients(server, messages, _DEEP, ("consume",), lone)
        return Figures(
            messages=messages,
            lone=lone,
            live_rate=live_rate,
            fill_rate=fill_rate,
            filled_rss_bytes=filled,
            restart_seconds=server.start_seconds,
            first_seconds=first_seconds,
            drain_rate=drain_rate,
            drained_rss_bytes=server.peak_rss_bytes(),
        )


async def _first_message(server: ServerProcess) -> None:
    """Look at the first message and give it back."""
    async with connect(server.url) as connection:
        session = await connection.session(acknowledge="individual")
        consumer = await session.consumer(_DEEP, credit=1)
        message = await consumer.receive(timeout=60)
        assert message is not None, "a message waits"
        assert message.body == _body(0), "the oldest comes first"


async def _run_clients(
    server: ServerProcess, messages: int, queue: str, roles: tuple[str, ...], lone: bool
) -> float:
    """Messages a second, from the first client's start to the last one's end."""
    async with AsyncExitStack() as stack:
        clients = []
        for role in roles:
            arguments = ["--role", role, "--url", server.url, "--queue", queue, "--messages", str(messages)]
            arguments += ["--lone"] if lone else []
            clients.append(await stack.enter_async_context(helper("tests.suites.backlog", *arguments)))
        lines = []
        for client in clients:
            assert client.stdout is not None
            async with asyncio.timeout(PATIENCE_SECONDS):
                lines.append(json.loads(await client.stdout.readline() or "null"))
        assert server.is_running, f"the server ended: {await server.wait()} {server.errors}"
        assert all(lines), f"a client ended early: {roles}, {lines}"
        seconds = max(line["finished"] for line in lines) - max(line["started"] for line in lines)
        return messages / float(seconds)


# ---- one client


def _body(index: int) -> bytes:
    return index.to_bytes(8, "big") + _REST


async def _produce(url: str, queue: str, messages: int, lone: bool) -> None:
    async with connect(url, block_messages=1 if lone else BLOCK_MESSAGES) as connection:
        producer = await connection.producer(queue)
        _ready()
        started = time.monotonic()
        send = producer.send
        for index in range(messages):
            await send(index.to_bytes(8, "big") + _REST)
        await producer.flush()
        _report(started)


async def _consume(url: str, queue: str, messages: int, lone: bool) -> None:
    async with connect(url) as connection:
        consumer = await connection.consumer(queue)
        _ready()
        started = time.monotonic()
        expected = 0
        while expected < messages:
            batch = await consumer.receive_batch(timeout=60)
            assert batch, f"nothing came after {expected}"
            for message in batch:
                body = message.body
                assert isinstance(body, bytes)
                index = int.from_bytes(body[:8], "big")
                assert index == expected, f"{index} came in the place of {expected}"
                expected += 1
        _report(started)


def _ready() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    print("ready", flush=True)


def _report(started: float) -> None:
    print(json.dumps({"started": started, "finished": time.monotonic()}), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suites.backlog")
    parser.add_argument("--messages", type=int, default=5_000_000)
    parser.add_argument("--lone", action="store_true", help="send one by one rather than in blocks")
    parser.add_argument("--folder", type=Path, help="where the server keeps its data meanwhile")
    parser.add_argument("--role", choices=("produce", "consume"), help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--queue", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role is not None:
        act = _produce if options.role == "produce" else _consume
        uvloop.run(act(options.url, options.queue, options.messages, options.lone))
        return 0
    with tempfile.TemporaryDirectory(prefix="helio-backlog-", dir=options.folder) as folder:
        figures = asyncio.run(measure(Path(folder), messages=options.messages, lone=options.lone))
    print(figures.table())
    for fault in figures.faults():
        print(f"missed: {fault}")
    return 1 if figures.faults() else 0


if __name__ == "__main__":
    sys.exit(main())
