"""Five processes that consume as one. One is killed; no order is lost, and none is in the books twice.

helio serve                                                              # in one terminal
python examples/clustered_consumers.py                                   # in another

python examples/clustered_consumers.py amqp://localhost                  # the same on RabbitMQ
"""

import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
import time

import heliograph
from heliograph.clustered import Adapter, ClusteredConsumer, ClusteredMessage

URL = os.environ.get("HELIO_URL", "helio://localhost:7700")
NAMES = ("ada", "bela", "cleo", "dario", "edda")
ORDERS = 5_000
CLUSTER = f"bookkeeping-{os.getpid()}"


def adapter_for(url: str, cluster: str) -> Adapter:
    """The only line that knows the middleware."""
    if url.startswith("amqp"):
        from heliograph.clustered.on_rabbitmq import RabbitMQ

        return RabbitMQ(url, f"orders-{cluster}")
    from heliograph.clustered.on_heliograph import Heliograph

    return Heliograph(url, f"topic:orders-{cluster}")


async def member(url: str, cluster: str, name: str, books: str) -> None:
    """One of the five. An order is in the books under its id: what comes again after a kill finds itself there."""
    database = sqlite3.connect(books, timeout=30, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA synchronous=NORMAL")

    def write(message: ClusteredMessage) -> None:
        entry = (message.id, name, message.token)
        if not database.execute("INSERT OR IGNORE INTO entries VALUES (?, ?, ?)", entry).rowcount:
            database.execute("INSERT INTO repeats VALUES (?, ?)", (message.id, message.redelivered))

    async def enter(message: ClusteredMessage) -> None:
        await asyncio.to_thread(write, message)  # who blocks the loop cannot renew its lease

    async with ClusteredConsumer(
        lambda: adapter_for(url, cluster), cluster=cluster, name=name, handler=enter
    ) as me:
        while not me.ranges:
            await asyncio.sleep(0.05)
        print("ready", flush=True)
        await me.wait()


async def publish(url: str, cluster: str) -> None:
    """Orders, at some thousand a second."""
    if url.startswith("amqp"):
        await publish_to_rabbitmq(url, cluster)
        return
    async with heliograph.connect(url) as connection:
        producer = await connection.producer(f"topic:orders-{cluster}")
        for number in range(ORDERS):
            await producer.send({"order": number})
            if number % 50 == 0:
                await asyncio.sleep(0.02)
        await producer.flush()


async def publish_to_rabbitmq(url: str, cluster: str) -> None:
    import aio_pika

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        exchange = await channel.get_exchange(f"orders-{cluster}")
        for number in range(0, ORDERS, 50):
            orders = [
                aio_pika.Message(b"%d" % each, message_id=f"order-{each}", delivery_mode=2)
                for each in range(number, number + 50)
            ]
            await asyncio.gather(*(exchange.publish(order, routing_key="order") for order in orders))
            await asyncio.sleep(0.02)


async def prepare(url: str, cluster: str) -> None:
    """On RabbitMQ the exchange must be there; on Heliograph everything makes itself."""
    if url.startswith("amqp"):
        import aio_pika

        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            await channel.declare_exchange(f"orders-{cluster}", "topic")


def main(url: str) -> None:
    books = os.path.join(tempfile.mkdtemp(), "books.sqlite")
    database = sqlite3.connect(books, timeout=30)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("CREATE TABLE entries (id TEXT PRIMARY KEY, member TEXT, token INTEGER)")
    database.execute("CREATE TABLE repeats (id TEXT, marked INTEGER)")
    database.commit()
    asyncio.run(prepare(url, CLUSTER))
    members = {
        name: subprocess.Popen(
            [sys.executable, __file__, "member", url, CLUSTER, name, books], stdout=subprocess.PIPE
        )
        for name in NAMES
    }
    try:
        for process in members.values():
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n", "a member did not start"
        print(f"{len(members)} members are one consumer; {ORDERS} orders are on their way")
        publishing = subprocess.Popen([sys.executable, __file__, "publish", url, CLUSTER])
        while _count(database, "cleo") < 100:
            time.sleep(0.01)
        members["cleo"].kill()
        print("cleo was killed")
        publishing.wait()
        deadline = time.monotonic() + 60
        while (count := _count(database, "%")) < ORDERS and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        for process in members.values():
            process.kill()
    by_member = database.execute(
        "SELECT member, count(*) FROM entries GROUP BY member ORDER BY member"
    ).fetchall()
    repeats = database.execute("SELECT count(*), sum(marked) FROM repeats").fetchone()
    print(", ".join(f"{name} {entries}" for name, entries in by_member))
    print(
        f"{count} of {ORDERS} orders are in the books, each once; {repeats[0]} came again, {repeats[1] or 0} marked"
    )


def _count(database: sqlite3.Connection, member: str) -> int:
    count: int = database.execute("SELECT count(*) FROM entries WHERE member LIKE ?", (member,)).fetchone()[0]
    return count


if __name__ == "__main__":
    if sys.argv[1:2] == ["member"]:
        asyncio.run(member(*sys.argv[2:6]))
    elif sys.argv[1:2] == ["publish"]:
        asyncio.run(publish(*sys.argv[2:4]))
    else:
        main(sys.argv[1] if len(sys.argv) > 1 else URL)
