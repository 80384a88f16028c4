"""Five clerks and one queue: orders of a customer are handled in the order they were sent.

helio serve                             # in one terminal
python examples/bookstore.py            # in another
python examples/bookstore.py nameless   # the same without units of order: see what goes wrong
"""

import asyncio
import os
import sys

import heliograph

URL = os.environ.get("HELIO_URL", "helio://localhost:7700")
QUEUE = "queue:bookstore"
CUSTOMERS = ("Ada", "Bela", "Cleo", "Dario", "Edda")


async def write(connection: heliograph.Connection, *, in_order: bool) -> None:
    """Each customer orders a book, and cancels the order at once."""
    producer = await connection.producer(QUEUE)
    for customer in CUSTOMERS:
        for wish in ("order", "cancel"):
            await producer.send(
                {"customer": customer, "wish": wish}, unit_of_order=customer if in_order else ""
            )
    await producer.flush()


async def work(connection: heliograph.Connection, done: list[str]) -> None:
    """One clerk. What is acknowledged is done; only then somebody gets the next of that customer."""
    session = await connection.session(acknowledge="individual")
    consumer = await session.consumer(QUEUE, credit=1)
    while message := await consumer.receive(timeout=1.0):
        assert isinstance(message.body, dict)
        await asyncio.sleep(
            0.2 if message.body["wish"] == "order" else 0.01
        )  # packing is slow, reading is quick
        done.append(f"{message.body['customer']} {message.body['wish']}")
        await message.acknowledge()


async def main(*, in_order: bool) -> None:
    async with heliograph.connect(URL) as connection:
        done: list[str] = []
        await write(connection, in_order=in_order)
        await asyncio.gather(*[work(connection, done) for _ in range(5)])
        for customer in CUSTOMERS:
            is_right = done.index(f"{customer} order") < done.index(f"{customer} cancel")
            print(f"{customer}: {'order, then cancellation' if is_right else 'cancelled first, then sent'}")


if __name__ == "__main__":
    asyncio.run(main(in_order="nameless" not in sys.argv))
