"""The client library against a real server: what an application does, and what it sees, with either face."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import heliograph
from heliograph import ConnectionLost, HeliographError
from tests.servers import ServerProcess, embedded, play, until, url_of
from tests.suites.exchange import receive_all, send_all

pytestmark = pytest.mark.req("J12")


@pytest.mark.req("J2")
def test_what_a_sender_says_is_what_a_receiver_reads(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            producer = await connection.producer("queue:a", priority=2, persistent=False)
            consumer = await connection.consumer("queue:a")
            identity = await producer.send_confirmed(
                {"total": 5},
                properties={"city": "Zürich", "paid": True, "raw": b"\x00"},
                correlation_id="c-1",
                reply_to="queue:replies",
                type="order",
                time_to_live=60,
            )
            message = await consumer.receive(timeout=30)
            assert message is not None
            assert (message.body, message.id, message.destination) == ({"total": 5}, identity, "queue:a")
            assert message.properties == {"city": "Zürich", "paid": True, "raw": b"\x00"}
            assert (message.correlation_id, message.reply_to, message.type) == (
                "c-1",
                "queue:replies",
                "order",
            )
            assert (message.priority, message.persistent) == (2, False)
            assert 59 < message.expiration - message.timestamp < 61
            assert (message.user_id, message.redelivered, message.delivery_count) == (
                connection.user,
                False,
                1,
            )

    play(story())


@pytest.mark.req("J11")
def test_many_messages_arrive_once_in_the_order_sent(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            producer = await connection.producer("queue:a")
            consumer = await connection.consumer("queue:a", credit=500)
            sending = asyncio.create_task(send_all(producer, [b"%d" % n for n in range(20_000)]))
            expected = 0
            async for message in consumer:
                assert message.body == b"%d" % expected
                expected += 1
                if expected == 20_000:
                    break
            await sending

    play(story())


@pytest.mark.req("J4")
def test_what_is_not_acknowledged_comes_again_marked(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            session = await connection.session(acknowledge="individual")
            producer = await session.producer("queue:a")
            await send_all(producer, [b"%d" % n for n in range(6)])
            first = await session.consumer("queue:a")
            messages = await receive_all(first, 6)
            for index in (4, 1):
                await messages[index].acknowledge(confirm=True)
            await first.close()
            again = await receive_all(await session.consumer("queue:a"), 4)
            assert [message.body for message in again] == [b"0", b"2", b"3", b"5"]
            assert all(message.redelivered and message.delivery_count == 2 for message in again)

    play(story())


@pytest.mark.req("J4")
def test_client_acknowledgement_covers_what_was_handed_over_before_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await send_all(await connection.producer("queue:a"), [b"%d" % n for n in range(6)])
            async with await connection.session(acknowledge="client") as session:
                consumer = await session.consumer("queue:a")
                await receive_all(consumer, 3)
                await session.acknowledge(confirm=True)
                await receive_all(consumer, 2)
            rest = await receive_all(await connection.consumer("queue:a"), 3)
            assert [(message.body, message.redelivered) for message in rest] == [
                (b"3", True),
                (b"4", True),
                (b"5", False),  # it was only sent ahead
            ]

    play(story())


@pytest.mark.req("J4")
def test_automatic_acknowledgement_spares_the_message_whose_processing_failed(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server:

            async def fail_at_the_third() -> None:
                async with heliograph.connect(url_of(server)) as connection:
                    async for message in await connection.consumer("queue:a"):
                        if message.body == b"2":
                            raise RuntimeError

            async with heliograph.connect(url_of(server)) as connection:
                await send_all(await connection.producer("queue:a"), [b"%d" % n for n in range(5)])
                with pytest.raises(RuntimeError):
                    await fail_at_the_third()
                rest = await receive_all(await connection.consumer("queue:a"), 3)
                assert [message.body for message in rest] == [b"2", b"3", b"4"]
                assert rest[0].redelivered

    play(story())


@pytest.mark.req("M8")
@pytest.mark.crash
def test_a_restarted_server_loses_and_doubles_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        heard: list[HeliographError] = []
        confirmed = 0

        def count(error: HeliographError | None) -> None:
            nonlocal confirmed
            confirmed += error is None

        async with (
            ServerProcess(tmp_path) as server,
            heliograph.connect(server.url, on_error=heard.append) as connection,
        ):
            producer = await connection.producer("queue:a")

            async def send() -> None:
                for n in range(60_000):
                    await producer.send(b"%d" % n, on_completion=count)
                await producer.flush()

            sending = asyncio.create_task(send())
            await until(lambda: confirmed > 5_000, "some are confirmed")
            await server.kill()
            assert confirmed < 60_000
            await server.start()
            await sending
            assert confirmed == 60_000
            messages = await receive_all(await connection.consumer("queue:a"), 60_000)
            assert [message.body for message in messages] == [b"%d" % n for n in range(60_000)]
            assert heard == []

    play(story())


def test_a_server_that_stays_away_is_told_to_everybody(tmp_path: Path) -> None:
    async def story() -> None:
        heard: list[HeliographError] = []
        async with embedded(tmp_path) as server:
            connection = await heliograph.connect(
                url_of(server), reconnect_seconds=0.1, on_error=heard.append
            )
            consumer = await connection.consumer("queue:a")
        with pytest.raises(ConnectionLost):
            await consumer.receive()
        assert [type(error) for error in heard] == [ConnectionLost]
        assert not connection.is_alive()

    play(story())


def test_the_blocking_face_does_the_same(tmp_path: Path) -> None:
    def work(url: str) -> None:
        with heliograph.connect_blocking(url) as connection:
            producer = connection.producer("queue:a")
            for n in range(5000):
                producer.send(b"%d" % n)
            assert producer.send_confirmed("last", properties={"n": 5000})
            session = connection.session(acknowledge="client")
            expected = 0
            for message in session.consumer("queue:a"):
                if message.body == "last":
                    message.acknowledge(confirm=True)
                    break
                assert message.body == b"%d" % expected
                expected += 1
            assert expected == 5000
            session.close()
            assert connection.consumer("queue:a").receive(timeout=0.05) is None

    async def story() -> None:
        async with embedded(tmp_path) as server:
            await asyncio.to_thread(work, url_of(server))

    play(story())
