"""A client that stores and forwards under load until it is killed, and keeps a book of what it was promised.

    python -m tests.crash.forwarding_client URL STORE BOOK RUN SEED

Each producer writes `lane/number` to the book once `send` has returned: that message must arrive. A lane is one
producer of one run to one queue; its numbers go up. With SEED 0 nothing is sent: what is stored is forwarded, and it
ends.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys

import heliograph
from heliograph.client import link
from heliograph.client.forwarding import writer
from heliograph.model.errors import HeliographError

QUEUES = ("queue:a", "queue:b", "topic:c")
PRODUCERS = 2


def hurry() -> None:
    """For this process only: whoever imports the module keeps the limits that hold."""
    # Small segments, so that they come and go under load.
    setattr(writer, "STORE_SEGMENT_BYTES", 64 * 1024)  # noqa: B010 - the module does not export it
    setattr(writer, "STORE_IDLE_BYTES", 8 * 1024)  # noqa: B010
    # A server that dies every second is not the overloaded one that growing pauses are meant to spare.
    link.STABLE_SECONDS = 0.0
    link.LONGEST_PAUSE_SECONDS = 0.2


async def produce(connection: heliograph.Connection, lane: str, queue: str, book: int, seed: str) -> None:
    chance = random.Random(seed)
    session = await connection.session()
    producer = await session.producer(queue)
    number = 0
    while True:
        if chance.random() < 0.1:
            portion = range(number + 1, number + chance.randrange(2, 40))
            await producer.send_all([b"%s/%d" % (lane.encode(), n) for n in portion])  # type: ignore[attr-defined]
            number = portion[-1]
        else:
            number += 1
            padding = b"/" + b"." * chance.choice((0, 10, 3000))
            await producer.send(b"%s/%d" % (lane.encode(), number) + padding)
        os.write(book, f"{lane}/{number}\n".encode())


async def main(url: str, store: str, book_path: str, run: str, seed: str) -> None:
    book = os.open(book_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(error: HeliographError) -> None:
        os.write(book, f"error {error.code}\n".encode())

    async with heliograph.connect(url, store_and_forward=store, on_error=note) as connection:
        print("ready", flush=True)
        if seed == "0":
            await connection.forwarded()
            return
        async with asyncio.TaskGroup() as group:
            for queue in QUEUES:
                for index in range(PRODUCERS):
                    lane = f"{int(run):03}.{index}.{queue}"
                    group.create_task(produce(connection, lane, queue, book, seed + lane))


if __name__ == "__main__":
    hurry()
    asyncio.run(main(*sys.argv[1:]))
