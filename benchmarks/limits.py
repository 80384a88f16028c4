"""The limits: what the same bytes cost when nothing is decided about them.

Two bare servers on uvloop. The loop receives blocks, checksums them, writes and syncs them (group commit in a
thread), forwards them to a consumer process and confirms them to the producer. The echo writes and syncs one
message inline and answers. No message server in Python on this machine can be quicker than these; how near
Heliograph comes is what the bars ask. They implement the peers' interface, so that they are measured exactly
like the peers.
"""

from __future__ import annotations

import asyncio
import os
import platform
import queue
import socket
import struct
import sys
import threading
import time
from importlib.metadata import version
from pathlib import Path
from typing import Final, cast

from benchmarks.peers.interface import Peer, StartingLine
from benchmarks.processes import Server, port_answers
from benchmarks.workloads import Kind, Outcome, Plan, Synced, outcome

BLOCK_BODY_BYTES: Final = 64 * 1024
"""Bodies per block: 256 messages of 256 B."""
BLOCK_HEADER_BYTES: Final = 100
WINDOW_BYTES: Final = 5 << 20
"""Bytes sent and not yet confirmed."""
WRITE_BUFFER_BYTES: Final = 16 << 20
LONE_HEADER_BYTES: Final = 72
"""What a lone message carries besides its body."""
ANSWER_BYTES: Final = 24
SEGMENT_BYTES: Final = 128 << 20
"""The file is allocated beforehand in pieces of this size, as a journal's segments are."""
CONFIRM: Final = struct.Struct("<Q")


class _Bare(Peer):
    """What the two bare servers share: they are this file, run as a script."""

    client = "uvloop"
    modules = ("uvloop", "crc32c")
    is_limit = True

    def synced(self, kind: Kind) -> Synced:
        """Always: that is what they are the limit of."""
        return "yes"

    def server_version(self) -> str:
        """The versions of Python and uvloop."""
        return f"Python {platform.python_version()}, uvloop {version('uvloop')}"

    def start(self, folder: Path, port: int) -> Server:
        """Start the bare server with its file in the folder."""
        command = [sys.executable, "-m", "benchmarks.limits", self.key, str(port), str(folder / "journal")]
        here = {
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        }
        return Server(command, folder=folder, name=self.key, environment=here).wait_until(port_answers(port))


class BareLoop(_Bare):
    """Receive, checksum, writev, fdatasync, forward, confirm."""

    key = "bare-loop"
    title = "Limit: bare loop"
    durability = "synced before the confirm (group commit)"
    workloads = ("queue", "queue-1k")

    def produce(self, plan: Plan, line: StartingLine) -> Outcome:
        """Send blocks within the window of unconfirmed bytes."""
        import uvloop

        return uvloop.run(_send_blocks(plan, line))

    def consume(self, plan: Plan, line: StartingLine) -> Outcome:
        """Count the bytes that come."""
        with socket.create_connection(("127.0.0.1", plan.port)) as connection:
            connection.sendall(b"C")
            connection.recv(1)
            line.ready()
            started, received, buffer = time.monotonic_ns(), 0, bytearray(1 << 20)
            while received < _total_bytes(plan):
                received += connection.recv_into(buffer) or sys.exit("the bare loop hung up")
            return outcome(started, time.monotonic_ns())


class BareEcho(_Bare):
    """Receive, write, fdatasync inline, answer."""

    key = "bare-echo"
    title = "Limit: bare echo"
    durability = "synced before the answer"
    workloads = ("sync",)

    def produce(self, plan: Plan, line: StartingLine) -> Outcome:
        """Send one message, await its answer, and again."""
        import uvloop

        return uvloop.run(_send_and_wait(plan, line))

    def consume(self, plan: Plan, line: StartingLine) -> Outcome:
        """Nobody consumes from an echo."""
        raise NotImplementedError


def _blocks(plan: Plan) -> int:
    return max(1, plan.messages * plan.size // BLOCK_BODY_BYTES)


def _total_bytes(plan: Plan) -> int:
    return _blocks(plan) * (BLOCK_BODY_BYTES + BLOCK_HEADER_BYTES)


async def _send_blocks(plan: Plan, line: StartingLine) -> Outcome:
    confirmed, news = 0, asyncio.Event()

    class Confirmations(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            nonlocal confirmed
            confirmed += sum(count for (count,) in CONFIRM.iter_unpack(data))
            news.set()

    transport, _ = await asyncio.get_running_loop().create_connection(Confirmations, "127.0.0.1", plan.port)
    transport.write(b"P")
    block, total, sent = os.urandom(BLOCK_BODY_BYTES + BLOCK_HEADER_BYTES), _total_bytes(plan), 0
    line.wait_for_go()
    started = time.monotonic_ns()
    while confirmed < total:
        if sent < total and sent - confirmed < WINDOW_BYTES:
            transport.write(block)
            sent += len(block)
            await asyncio.sleep(0)
        else:
            news.clear()
            await news.wait()
    return outcome(started, time.monotonic_ns())


async def _send_and_wait(plan: Plan, line: StartingLine) -> Outcome:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[None] = loop.create_future()

    class Answers(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            answer.set_result(None)

    transport, _ = await loop.create_connection(Answers, "127.0.0.1", plan.port)
    message, latencies = b"x" * (plan.size + LONE_HEADER_BYTES), []
    line.wait_for_go()
    started = time.monotonic_ns()
    for _ in range(plan.messages):
        before = time.monotonic_ns()
        answer = loop.create_future()
        transport.write(message)
        await answer
        latencies.append(time.monotonic_ns() - before)
    return outcome(started, time.monotonic_ns(), latencies)


class _LoopServer:
    """The bare loop: what came while the last sync ran is written and synced together."""

    def __init__(self, loop: asyncio.AbstractEventLoop, file: int) -> None:
        from crc32c import crc32c

        self.loop, self.file, self.checksum = loop, file, crc32c
        self.consumer: asyncio.WriteTransport | None = None
        self.waiting: list[tuple[asyncio.WriteTransport, bytes]] = []
        self.syncing, self.position = False, 0
        self.written: queue.SimpleQueue[list[tuple[asyncio.WriteTransport, bytes]]] = queue.SimpleQueue()
        threading.Thread(target=self._sync_for_ever, daemon=True).start()

    def receive(self, producer: asyncio.WriteTransport, data: bytes) -> None:
        """Take bytes; they are written at the end of this turn of the loop."""
        self.checksum(data)
        self.waiting.append((producer, data))
        if len(self.waiting) == 1:
            self.loop.call_soon(self._write)

    def _write(self) -> None:
        if self.syncing or not self.waiting:
            return
        batch, self.waiting, self.syncing = self.waiting, [], True
        if self.position > SEGMENT_BYTES:
            _begin_segment(self.file)
            self.position = 0
        self.position += _write_all(self.file, [data for _, data in batch])
        self.written.put(batch)

    def _sync_for_ever(self) -> None:
        while True:
            batch = self.written.get()
            os.fdatasync(self.file)
            self.loop.call_soon_threadsafe(self._forward, batch)

    def _forward(self, batch: list[tuple[asyncio.WriteTransport, bytes]]) -> None:
        self.syncing = False
        blocks = [data for _, data in batch]
        assert self.consumer is not None, "the consumer connects first"
        self.consumer.writelines(blocks)
        batch[0][0].write(CONFIRM.pack(sum(map(len, blocks))))
        self._write()


MOST_BUFFERS: Final = 1024
"""IOV_MAX: what one writev takes."""


def _begin_segment(file: int) -> None:
    """Start the file again: a server too must make room for new messages and free that of old ones."""
    os.ftruncate(file, 0)
    os.lseek(file, 0, os.SEEK_SET)
    os.posix_fallocate(file, 0, SEGMENT_BYTES)


def _write_all(file: int, buffers: list[bytes]) -> int:
    for first in range(0, len(buffers), MOST_BUFFERS):
        part = buffers[first : first + MOST_BUFFERS]
        assert os.writev(file, part) == sum(map(len, part)), "a local file takes all that it is given"
    return sum(map(len, buffers))


class _LoopConnection(asyncio.Protocol):
    """A producer or a consumer of the bare loop: its first byte says which."""

    def __init__(self, server: _LoopServer) -> None:
        self.server, self.introduced = server, False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let the socket take what the consumer has not read yet."""
        # uvloop's transports do not derive from asyncio's, so this cannot be an isinstance.
        self.transport = cast(asyncio.WriteTransport, transport)
        self.transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        """Hand blocks on."""
        if not self.introduced:
            self.introduced = True
            if data[:1] == b"C":
                self.server.consumer = self.transport
                self.transport.write(b"!")
                return
            data = data[1:]
        if data:
            self.server.receive(self.transport, data)


class _EchoConnection(asyncio.Protocol):
    """The producer of the bare echo."""

    def __init__(self, file: int) -> None:
        self.file = file

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to answer."""
        self.transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        """Store and answer."""
        os.write(self.file, data)
        os.fdatasync(self.file)
        self.transport.write(data[:ANSWER_BYTES])


async def _serve(key: str, port: int, path: str) -> None:
    loop = asyncio.get_running_loop()
    file = os.open(path, os.O_CREAT | os.O_WRONLY)
    _begin_segment(file)
    os.fsync(file)
    loop_server = _LoopServer(loop, file) if key == BareLoop.key else None

    def connection() -> asyncio.Protocol:
        return _LoopConnection(loop_server) if loop_server is not None else _EchoConnection(file)

    server = await loop.create_server(connection, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(_serve(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
