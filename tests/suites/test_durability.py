"""What a server remembers and what it may forget over real restarts: messages, acknowledgements, sessions."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from heliograph.client import Connection, Consumer, Message, connect
from heliograph.client.connection import AcknowledgeMode
from heliograph.model.errors import HeliographError
from heliograph.model.limits import KIB, MIB
from tests.servers import ServerProcess, Settings, play
from tests.suites.raw_client import RawClient

pytestmark = [pytest.mark.slow]

QUEUE = "queue:orders"
# Long enough for whatever is going to come to come.
NOTHING_SECONDS = 0.3
COMES_SECONDS = 20.0

Story = Callable[[ServerProcess], Awaitable[None]]


def tell(story: Story, folder: Path, settings: Settings | None = None, *, sync_seconds: float = 0.0) -> None:
    async def run() -> None:
        async with ServerProcess(folder, settings, sync_seconds=sync_seconds) as server:
            await story(server)
            assert "Traceback" not in server.errors, server.errors

    play(run())


@asynccontextmanager
async def consuming(
    server: ServerProcess,
    destination: str = QUEUE,
    *,
    acknowledge: AcknowledgeMode = "individual",
    credit: int = 1000,
) -> AsyncIterator[Consumer]:
    async with connect(server.url) as connection:
        session = await connection.session(acknowledge=acknowledge)
        yield await session.consumer(destination, credit=credit)


async def send(
    server: ServerProcess, *bodies: bytes, destination: str = QUEUE, persistent: bool = True
) -> None:
    """Confirmed when this returns."""
    async with connect(server.url) as connection:
        producer = await connection.producer(destination, persistent=persistent)
        for body in bodies:
            await producer.send(body)
        await producer.flush()


async def take(consumer: Consumer, count: int) -> list[Message]:
    taken: list[Message] = []
    for _ in range(count):
        message = await consumer.receive(timeout=30)
        assert message is not None, f"{len(taken)} of {count} came"
        taken.append(message)
    return taken


async def bodies_left(server: ServerProcess, destination: str = QUEUE) -> list[bytes]:
    """All that is still there. It is gone afterwards."""
    async with connect(server.url) as connection:
        consumer = await connection.consumer(destination)
        shown = await connection.ask("destination.show", destination=destination)
        left: list[bytes] = []
        while True:
            # What the server says it has is waited for, and then for what it may have besides.
            has_more = len(left) < shown["depth"] + shown["in_flight"]
            message = await consumer.receive(timeout=COMES_SECONDS if has_more else NOTHING_SECONDS)
            if message is None:
                return left
            assert isinstance(message.body, bytes)
            left.append(message.body)


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%06d" % number for number in range(first, first + count)]


async def journal(connection: Connection) -> dict[str, int]:
    figures: dict[str, int] = (await connection.ask("server"))["journal"]
    return figures


# ---- delivery modes (J3)


@pytest.mark.req("J3")
def test_a_persistent_message_survives_a_crash_and_another_does_not(tmp_path: Path) -> None:
    async def story(server: ServerProcess) -> None:
        await send(server, b"stays")
        await send(server, b"goes", persistent=False)
        await send(server, b"stays too")
        await server.restart()
        assert await bodies_left(server) == [b"stays", b"stays too"]

    tell(story, tmp_path)


@pytest.mark.req("J3")
def test_a_message_that_is_not_persistent_does_not_survive_a_clean_stop_either(tmp_path: Path) -> None:
    async def story(server: ServerProcess) -> None:
        await send(server, b"stays")
        await send(server, b"goes", persistent=False)
        assert await server.terminate() == 0
        await server.start()
        assert await bodies_left(server) == [b"stays"]

    tell(story, tmp_path)


@pytest.mark.req("J3")
def test_messages_that_are_not_persistent_use_the_disk_as_memory_and_end_with_the_process(
    tmp_path: Path,
) -> None:
    """More of them than memory holds, with snapshots taken meanwhile: a restart still knows none of them."""
    settings = {
        "memory.resident_bytes": 1 * MIB,
        "journal.segment_bytes": 1 * MIB,
        "journal.snapshot_every_bytes": 64 * KIB,
    }

    async def story(server: ServerProcess) -> None:
        quick = [body + bytes(1000) for body in numbered(6000)]
        await send(server, b"first")
        await send(server, *quick[:3000], persistent=False)
        await send(server, b"middle")
        await send(server, *quick[3000:], persistent=False)
        await send(server, b"last")
        async with consuming(server, acknowledge="auto", credit=100) as consumer:
            got = [message.body for message in await take(consumer, 2000)]
            assert [body for body in got if body in quick] == quick[: len(got) - got.count(b"first")]
        await send(server, *numbered(200), destination="queue:other")  # another snapshot or two
        await server.restart()
        assert [body for body in await bodies_left(server) if body in quick] == []

    tell(story, tmp_path, settings)


@pytest.mark.req("J3")
def test_a_message_that_is_not_persistent_waits_for_no_disk(tmp_path: Path) -> None:
    async def story(server: ServerProcess) -> None:
        async with connect(server.url) as connection:
            consumer = await connection.consumer(QUEUE)
            producer = await connection.producer(QUEUE, persistent=False)
            await producer.send_confirmed(b"warm")
            before = await journal(connection)
            for body in numbered(200):
                await producer.send_confirmed(body)
            await take(consumer, 201)
            after = await journal(connection)
            assert after["bytes_written"] == before["bytes_written"]

    tell(story, tmp_path)


SLOW_SECONDS = 1.0


@pytest.mark.req("J3")
def test_a_persistent_message_is_on_disk_before_it_is_confirmed_or_handed_out(tmp_path: Path) -> None:
    async def story(server: ServerProcess) -> None:
        async with connect(server.url) as connection, consuming(server) as consumer:
            producer = await connection.producer(QUEUE)
            for body in numbered(3):
                receiving = asyncio.create_task(consumer.receive(timeout=30))
                began = time.monotonic()
                await producer.send_confirmed(body)
                assert time.monotonic() - began > SLOW_SECONDS
                assert await receiving is not None
                assert time.monotonic() - began > SLOW_SECONDS

    tell(story, tmp_path, sync_seconds=SLOW_SECONDS)


@pytest.mark.req("J3")
def test_what_was_sent_behind_a_persistent_message_does_not_confirm_it(tmp_path: Path) -> None:
    """The two modes on one lane: whenever the later is confirmed, the earlier is on disk."""

    async def story(server: ServerProcess) -> None:
        async with connect(server.url) as connection:
            producer = await connection.producer(QUEUE)
            await producer.send_confirmed(b"so that the server knows how slow its disk is")
            began = time.monotonic()
            await producer.send(b"slow")
            await producer.send_confirmed(b"quick", persistent=False)
            assert time.monotonic() - began > SLOW_SECONDS
            began = time.monotonic()
            await producer.send_confirmed(b"quick", persistent=False)
            assert time.monotonic() - began < SLOW_SECONDS

    tell(story, tmp_path, sync_seconds=SLOW_SECONDS)


@pytest.mark.req("J3", "M4")
def test_on_a_slow_disk_one_sync_confirms_all_that_came_meanwhile(tmp_path: Path) -> None:
    async def story(server: ServerProcess) -> None:
        async with connect(server.url) as connection:
            producers = [await (await connection.session()).producer(QUEUE) for _ in range(20)]
            began = time.monotonic()
            await asyncio.gather(*[producer.send_confirmed(b"together") for producer in producers])
            assert time.monotonic() - began < 5 * SLOW_SECONDS

    tell(story, tmp_path, sync_seconds=SLOW_SECONDS)


@pytest.mark.req("J3")
def test_with_durability_write_a_crash_of_the_server_loses_nothing(tmp_path: Path) -> None:
    async def story(server: ServerProcess) -> None:
        async with connect(server.url) as connection:
            producer = await connection.producer(QUEUE)
            for body in numbered(500):
                await producer.send_confirmed(body)
            assert (await journal(connection))["syncs_inline"] == 0
            await server.kill()
        await server.start()
        assert await bodies_left(server) == numbered(500)

    tell(story, tmp_path, {"journal.durability": "write"})


@pytest.mark.req("J3")
def test_with_durability_memory_a_restart_begins_empty(tmp_path: Path) -> None:
    async def story(server: ServerProcess) -> None:
        await send(server, *numbered(500))
        async with connect(server.url) as connection:
            assert (await journal(connection))["live_messages"] == 0
        assert await server.terminate() == 0
        await server.start()
        assert await bodies_left(server) == []

    tell(story, tmp_path, {"journal.durability": "memory"})


# ---- destinations (J1)


@pytest.mark.req("J1")
def test_a_queue_comes_into_being_on_first_use_and_stays(tmp_path: Path) -> None:
    async def story(server: ServerProcess) -> None:
        async with connect(server.url) as connection:
            await connection.producer("queue:by a producer")
            await connection.consumer("queue:by a consumer")
            await connection.consumer("topic:by a consumer")
        await server.restart()
        async with connect(server.url) as connection:
            figures = (await connection.ask("destinations"))["destinations"]
        assert {each["address"] for each in figures if ":_" not in each["address"]} == {
            "queue:by a producer",
            "queue:by a consumer",
            "topic:by a consumer",
        }

    tell(story, tmp_path)


@pytest.mark.req("J1")
def test_a_policy_can_forbid_that(tmp_path: Path) -> None:
    async def story(server: ServerProcess) -> None:
        async with connect(server.url) as connection:
            with pytest.raises(HeliographError, match="destination-unknown"):
                await connection.producer(QUEUE)
            with pytest.raises(HeliographError, match="destination-unknown"):
                await connection.consumer("topic:news")

    tell(story, tmp_path, {"destinations.create_on_first_use": False})


@pytest.mark.req("J1")
def test_each_message_of_a_queue_goes_to_one_consumer(tmp_path: Path) -> None:
    async def story(server: ServerProcess) -> None:
        async with consuming(server, credit=10) as one, consuming(server, credit=10) as other:
            await send(server, *numbered(20))
            taken = await take(one, 10) + await take(other, 10)
            assert sorted(str(message.text) for message in taken) == [body.decode() for body in numbered(20)]
            for consumer in (one, other):
                assert await consumer.receive(timeout=NOTHING_SECONDS) is None

    tell(story, tmp_path)


@pytest.mark.req("J1", "J11")
@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "not persistent"])
def test_every_subscriber_of_a_topic_gets_everything_in_order(tmp_path: Path, persistent: bool) -> None:
    async def story(server: ServerProcess) -> None:
        topic = "topic:news"
        await send(server, b"before anybody listened", destination=topic, persistent=persistent)
        async with consuming(server, topic) as early, consuming(server, topic, acknowledge="auto") as other:
            await send(server, *numbered(2000), destination=topic, persistent=persistent)
            async with consuming(server, topic) as late:
                await send(server, *numbered(2000, first=2000), destination=topic, persistent=persistent)
                for consumer, expected in (
                    (early, numbered(1000)),
                    (other, numbered(4000)),
                    (late, numbered(1000, first=2000)),
                ):
                    got = [message.body for message in await take(consumer, len(expected))]
                    assert got == expected

    tell(story, tmp_path)


@pytest.mark.req("J1")
def test_a_topic_forgets_what_nobody_subscribed_to(tmp_path: Path) -> None:
    async def story(server: ServerProcess) -> None:
        topic = "topic:news"
        async with consuming(server, topic):
            await send(server, *numbered(1000), destination=topic)
        async with connect(server.url) as connection:
            assert (await journal(connection))["live_messages"] == 0
        assert await bodies_left(server, topic) == []

    tell(story, tmp_path)


# ---- acknowledgement and redelivery (J4)


@pytest.mark.req("J4")
def test_an_acknowledgement_that_was_confirmed_survives_a_crash(tmp_path: Path) -> None:
    async def story(server: ServerProcess) -> None:
        for name in ("individual", "client", "auto"):
            await send(server, *numbered(10), destination=f"queue:{name}")
        async with consuming(server, "queue:individual") as consumer:
            messages = await take(consumer, 10)
            for message in messages[1::2]:
                await message.acknowledge(confirm=True)
            async with connect(server.url) as connection:
                session = await connection.session(acknowledge="client")
                await take(await session.consumer("queue:client"), 4)
                await session.acknowledge(confirm=True)
                async with connect(server.url) as third:
                    automatic = await third.consumer("queue:auto")
                    await take(automatic, 4)
                    await automatic.close()  # the fourth is processed now
                await server.kill()
        await server.start()
        assert await bodies_left(server, "queue:individual") == numbered(10)[0::2]
        assert await bodies_left(server, "queue:client") == numbered(10)[4:]
        assert await bodies_left(server, "queue:auto") == numbered(10)[4:]

    tell(story, tmp_path)


@pytest.mark.req("J4")
def test_what_was_not_acknowledged_returns_in_order_and_marked_when_its_consumer_closes(
    tmp_path: Path,
) -> None:
    async def story(server: ServerProcess) -> None:
        await send(server, *numbered(10))
        async with consuming(server, credit=6) as consumer:
            messages = await take(consumer, 5)
            await messages[1].acknowledge(confirm=True)
            await messages[3].acknowledge(confirm=True)
        async with consuming(server) as consumer:
            again = await take(consumer, 8)
        assert [message.body for message in again] == [
            numbered(10)[index] for index in (0, 2, 4, 5, 6, 7, 8, 9)
        ]
        # What was only sent ahead, nobody has seen: that does not count.
        assert [message.delivery_count for message in again] == [2] * 3 + [1] * 5
        assert [message.redelivered for message in again] == [True] * 3 + [False] * 5

    tell(story, tmp_path)


@pytest.mark.req("J4")
@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "not persistent"])
def test_blocks_taken_apart_return_in_order(tmp_path: Path, persistent: bool) -> None:
    async def story(server: ServerProcess) -> None:
        for first in range(0, 100, 10):
            await send(server, *numbered(10, first), persistent=persistent)
        done = (3, 4, 17, 25, 26, 27, 49)
        async with consuming(server, credit=60) as one, consuming(server, credit=20) as other:
            for message in (*await take(one, 40), *await take(other, 10)):
                assert isinstance(message.body, bytes)
                if int(message.body) in done:
                    await message.acknowledge(confirm=True)
        left = await bodies_left(server)
        assert left == sorted(left)
        assert set(numbered(100)) - set(left) <= {b"%06d" % number for number in done}

    tell(story, tmp_path)


@pytest.mark.req("J4")
def test_deliveries_are_counted_over_clients_and_servers_that_die(tmp_path: Path) -> None:
    async def story(server: ServerProcess) -> None:
        await send(server, b"hot potato")
        for expected in range(1, 7):
            connection = await connect(server.url, reconnect_seconds=0)
            session = await connection.session(acknowledge="client")
            (message,) = await take(await session.consumer(QUEUE), 1)
            assert message.delivery_count == expected
            assert message.redelivered == (expected > 1)
            if expected % 2:
                await server.restart()
            await connection.leave(complete=False)
        assert await bodies_left(server) == [b"hot potato"]

    tell(story, tmp_path)


@pytest.mark.req("J4")
def test_a_message_that_nobody_was_given_is_not_marked_after_a_crash(tmp_path: Path) -> None:
    async def story(server: ServerProcess) -> None:
        await send(server, *numbered(10))
        async with consuming(server, credit=3) as consumer:
            await take(consumer, 3)
            await server.restart()
        async with consuming(server) as consumer:
            marks = [message.redelivered for message in await take(consumer, 10)]
        # The consumer came back by itself meanwhile and was perhaps given the same three again.
        assert marks == [True] * 3 + [False] * 7

    tell(story, tmp_path)


# ---- sessions are resumed (J12, M8)


@pytest.mark.req("J12", "M8")
@pytest.mark.parametrize("dies", ["the connection", "the server"])
def test_what_a_resumed_session_sends_again_is_confirmed_and_not_stored_twice(
    tmp_path: Path, dies: str
) -> None:
    async def story(server: ServerProcess) -> None:
        async with RawClient(server.url) as first:
            await first.open()
            assert await first.open_lane(QUEUE) == 0
            await first.publish(numbered(5), first=1)
            await first.publish(numbered(5, first=5), first=6)
            while await first.confirmed() != (1, 10):
                pass
        if dies == "the server":
            await server.restart()
        async with RawClient(server.url) as second:
            assert await second.open(resume=first) == {1: 10}
            assert second.session == first.session
            await second.publish(numbered(5, first=5), first=6, resent=True)
            assert await second.confirmed() == (1, 10)
            await second.publish(numbered(5, first=10), first=11)
            assert await second.confirmed() == (1, 15)
        assert await bodies_left(server) == numbered(15)

    tell(story, tmp_path)


@pytest.mark.req("J12", "M8")
def test_a_session_is_resumed_while_its_blocks_are_on_their_way_to_the_disk(tmp_path: Path) -> None:
    """The connection breaks right behind a block: stored once, confirmed to whoever resumes."""

    async def story(server: ServerProcess) -> None:
        total = 0
        for _ in range(20):
            async with RawClient(server.url) as first:
                await first.open()
                await first.open_lane(QUEUE)
                await first.publish([bytes(1000)] * 1000, first=1)
            async with RawClient(server.url) as second:
                last = (await second.open(resume=first)).get(1)
                if last is None:  # the block never arrived
                    last = await second.open_lane(QUEUE)
                await second.publish([bytes(1000)] * 1000, first=1, resent=last > 0)
                assert await second.confirmed() == (1, 1000)
            total += 1000
        assert len(await bodies_left(server)) == total

    tell(story, tmp_path)


@pytest.mark.req("J11", "M8")
def test_a_gap_in_a_lane_is_refused(tmp_path: Path) -> None:
    async def story(server: ServerProcess) -> None:
        async with RawClient(server.url) as client:
            await client.open()
            await client.open_lane(QUEUE)
            await client.publish(numbered(5), first=1)
            assert await client.confirmed() == (1, 5)
            await client.publish(numbered(5, first=5), first=6)
            assert await client.confirmed() == (1, 10)
            await client.publish(numbered(5, first=20), first=21)
            refusal = await client.refused()
            assert (refusal.lane, refusal.first, refusal.code) == (1, 11, "sequence-gap")
        assert await bodies_left(server) == numbered(10)

    tell(story, tmp_path)


@pytest.mark.req("M8")
def test_a_session_cannot_be_resumed_without_its_token(tmp_path: Path) -> None:
    async def story(server: ServerProcess) -> None:
        async with RawClient(server.url) as first:
            await first.open()
            await first.open_lane(QUEUE)
            await first.publish(numbered(5), first=1)
            await first.confirmed()
        first.token = bytes(len(first.token))
        async with RawClient(server.url) as thief:
            with pytest.raises(AssertionError, match="session-unknown"):
                await thief.open(resume=first)

    tell(story, tmp_path)


@pytest.mark.req("J11", "J12")
def test_a_producer_goes_on_over_restarts_in_order(tmp_path: Path) -> None:
    async def story(server: ServerProcess) -> None:
        async with connect(server.url) as connection:
            producer = await connection.producer(QUEUE)
            for first in range(0, 5000, 1000):
                for body in numbered(1000, first):
                    await producer.send(body)
                restart = asyncio.create_task(server.restart())
                await producer.flush()
                await restart
            assert await bodies_left(server) == numbered(5000)

    tell(story, tmp_path)
