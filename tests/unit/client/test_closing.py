"""What becomes of messages when their consumer, session or connection is closed; what the server is told."""

from __future__ import annotations

import asyncio

import pytest

from heliograph.client import connect
from heliograph.frontends.native import frames
from heliograph.model.errors import ClientFault, ConnectionLost
from tests.unit.client.peer import listening, story
from tests.unit.client.test_receiving import consuming, deliver, settled
from tests.unit.client.test_reconnecting import remember, second_line

pytestmark = pytest.mark.req("J4", "J12")
MODES = ["auto", "client", "individual", "dups-ok", "transacted"]


@pytest.mark.parametrize("mode", MODES)
def test_the_server_hears_whether_messages_are_settled_as_they_go(mode: str) -> None:
    async def run() -> None:
        async with listening() as peer, connect(peer.url) as connection:
            await consuming(connection, mode=mode)
            assert [asked.prompt for asked in peer.asked(frames.Subscribe)] == [mode in ("auto", "dups-ok")]

    story(run)()


@pytest.mark.parametrize("mode", MODES)
def test_a_consumer_that_handed_nothing_over_leaves_at_once(mode: str) -> None:
    async def run() -> None:
        async with listening() as peer, connect(peer.url) as connection:
            consumer = await consuming(connection, mode=mode)
            deliver(peer, 1, 5)
            await connection.ask("anything")
            await consumer.close()
            assert [(asked.consumer, asked.seen) for asked in peer.asked(frames.Unsubscribe)] == [(1, 0)]
            assert peer.asked(frames.Retire) == []

    story(run)()


@pytest.mark.parametrize("mode", ["auto", "individual", "dups-ok"])
def test_a_consumer_that_leaves_says_how_far_the_application_has_come(mode: str) -> None:
    async def run() -> None:
        async with listening() as peer, connect(peer.url) as connection:
            consumer = await consuming(connection, mode=mode)
            deliver(peer, 1, 5)
            for _ in range(3):
                assert await consumer.receive() is not None
            await consumer.close()
            assert [(asked.consumer, asked.seen) for asked in peer.asked(frames.Unsubscribe)] == [(1, 3)]

    story(run)()


@story
async def test_recovering_says_how_far_the_application_has_come_with_each_consumer() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        session = await connection.session(acknowledge="individual")
        first = await session.consumer("queue:a")
        await session.consumer("queue:b")
        deliver(peer, 1, 5)
        deliver(peer, 1, 5, consumer=2)
        assert len(await first.receive_batch(4)) == 4
        await session.recover()
        assert [asked.seen for asked in peer.asked(frames.Recover)] == [[(1, 4), (2, 0)]]


@pytest.mark.parametrize("confirm", [False, True])
def test_what_a_closed_consumer_handed_over_can_still_be_acknowledged(confirm: bool) -> None:
    async def run() -> None:
        async with listening() as peer, connect(peer.url) as connection:
            consumer = await consuming(connection, mode="client")
            deliver(peer, 1, 5)
            messages = await consumer.receive_batch(3)
            await consumer.close()
            assert [(asked.consumer, asked.seen) for asked in peer.asked(frames.Retire)] == [(1, 3)]
            assert peer.asked(frames.Unsubscribe) == []
            await messages[0].acknowledge(confirm=confirm)
            assert settled(peer) == [1, 2, 3]
            assert len(peer.asked(frames.Unsubscribe)) == 1
            await messages[1].acknowledge(confirm=confirm)
            assert settled(peer) == [1, 2, 3]

    story(run)()


@story
async def test_a_closed_consumer_hands_over_nothing_more() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        consumer = await consuming(connection, mode="client")
        deliver(peer, 1, 5)
        messages = aiter(consumer)
        assert (await anext(messages)).body == b"1"
        await consumer.close()
        deliver(peer, 6, 1)
        await connection.ask("anything")
        connection.start()
        with pytest.raises(StopAsyncIteration):
            await anext(messages)
        session = connection._link.sessions[1]
        await session.acknowledge(confirm=True)
        assert settled(peer) == [1]


@story
async def test_a_closed_consumer_leaves_before_the_session_recovers() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        session = await connection.session(acknowledge="client")
        consumer = await session.consumer("queue:a")
        deliver(peer, 1, 5)
        assert await consumer.receive() is not None
        await consumer.close()
        await session.recover()
        kinds = [type(message) for message in peer.line.received]
        assert kinds.index(frames.Unsubscribe) < kinds.index(frames.Recover)
        assert peer.asked(frames.Unsubscribe)[0].seen == 1
        await session.acknowledge(confirm=True)
        assert settled(peer) == []


@story
async def test_closing_the_session_ends_its_closed_consumers_and_acknowledges_nothing() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        session = await connection.session(acknowledge="client")
        closed, still_open = await session.consumer("queue:a"), await session.consumer("queue:b")
        deliver(peer, 1, 5)
        deliver(peer, 1, 5, consumer=2)
        assert await closed.receive() is not None
        assert len(await still_open.receive_batch(2)) == 2
        await closed.close()
        await session.close()
        assert [asked.consumer for asked in peer.asked(frames.Retire)] == [1]
        left = sorted((asked.consumer, asked.seen) for asked in peer.asked(frames.Unsubscribe))
        assert left == [(1, 1), (2, 2)]
        assert settled(peer) == []


@story
async def test_an_acknowledgement_that_comes_too_late_for_a_closed_consumer_says_so() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        remember(peer)
        consumer = await consuming(connection, mode="client")
        session = connection._link.sessions[1]
        deliver(peer, 1, 5)
        assert await consumer.receive() is not None
        await consumer.close()
        peer.line.cut()
        await second_line(peer)
        await connection.ask("anything")
        with pytest.raises(ConnectionLost) as caught:
            await session.acknowledge(confirm=True)
        assert caught.value.code == "acknowledgement-unknown"
        await session.acknowledge(confirm=True)
        assert [asked.credit for asked in peer.asked(frames.Subscribe)] == [0], "it only asks for what it had"
        assert peer.asked(frames.Unsubscribe), "and is not wanted otherwise"
        assert settled(peer) == []


@story
async def test_a_closed_consumer_that_the_server_ends_keeps_nobody_waiting() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        peer.settles = False
        consumer = await consuming(connection, mode="client")
        session = connection._link.sessions[1]
        deliver(peer, 1, 5)
        assert await consumer.receive() is not None
        await consumer.close()
        acknowledging = asyncio.create_task(session.acknowledge(confirm=True))
        await peer.until(lambda: settled(peer) == [1])
        peer.line.send(frames.ConsumerClosed(1, 1, "destination-deleted", "queue:a was deleted"))
        with pytest.raises(ConnectionLost):
            await acknowledging


@story
async def test_a_refusal_to_retire_does_not_keep_a_consumer_from_closing() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        peer.replies[frames.Retire] = lambda asked: frames.Failed(asked.request, "consumer-unknown", "who?")
        consumer = await consuming(connection, mode="client")
        deliver(peer, 1, 1)
        assert await consumer.receive() is not None
        await consumer.close()
        assert consumer.is_closed


@pytest.mark.parametrize("confirm", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_acknowledging_after_the_close_is_an_error(mode: str, confirm: bool) -> None:
    async def run() -> None:
        async with listening() as peer, connect(peer.url) as connection:
            session = await connection.session(acknowledge=mode)  # type: ignore[arg-type]
            consumer = await session.consumer("queue:a")
            deliver(peer, 1, 1)
            message = await consumer.receive()
            assert message is not None
            await session.close()
            with pytest.raises(ClientFault) as caught:
                await message.acknowledge(confirm=confirm)
            assert caught.value.code == "closed"
            assert message.body == b"1"

    story(run)()


@pytest.mark.parametrize("confirm", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_acknowledging_after_the_connection_was_closed_is_an_error(mode: str, confirm: bool) -> None:
    async def run() -> None:
        async with listening() as peer:
            connection = await connect(peer.url)
            consumer = await consuming(connection, mode=mode)
            deliver(peer, 1, 1)
            message = await consumer.receive()
            assert message is not None
            await connection.close()
            with pytest.raises(ClientFault) as caught:
                await message.acknowledge(confirm=confirm)
            assert caught.value.code == "closed"

    story(run)()
