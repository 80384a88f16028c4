"""What goes back to the server and comes again, and acknowledgements that may be late."""

from __future__ import annotations

import asyncio

import pytest

from heliograph.client import connect
from heliograph.client.incoming import Inbox, Mode, without
from heliograph.frontends.native import frames
from heliograph.model.errors import ClientFault, ConnectionLost
from tests.unit.client.peer import Peer, listening, story
from tests.unit.client.test_receiving import consuming, deliver, settled
from tests.unit.client.test_reconnecting import remember, second_line

pytestmark = pytest.mark.req("J4", "J12")


def recovering(peer: Peer, first_tag: int, count: int) -> None:
    """When asked to recover: something that was on its way, the answer, and everything again."""

    def answer(message: frames.Recover) -> None:
        deliver(peer, first_tag, 2)
        peer.line.send(frames.Completed(message.request))
        deliver(peer, first_tag + 2, count, earlier=1)

    peer.replies[frames.Recover] = answer


@pytest.mark.parametrize("mode", ["auto", "dups-ok"])
def test_recover_brings_back_the_message_in_hand_and_what_waits(mode: str) -> None:
    async def run() -> None:
        async with listening() as peer, connect(peer.url) as connection:
            session = await connection.session(acknowledge=mode)  # type: ignore[arg-type]
            consumer = await session.consumer("queue:a")
            deliver(peer, 1, 10)
            recovering(peer, 11, 8)
            seen = []
            async for message in consumer:
                seen.append(message.body)
                if message.body == b"3":
                    await session.recover()
                if message.body == b"15":
                    break
            assert seen == [b"1", b"2", b"3", b"13", b"14", b"15"]
            assert settled(peer)[:2] == [1, 2], "what was done before is done"
            await consumer.close()
            assert settled(peer) == [1, 2, 13, 14, 15]
            assert peer.line.credit == [], "the server gives credit for what it took back"

    story(run)()


@story
async def test_recover_in_client_mode_brings_back_what_was_not_acknowledged() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        session = await connection.session(acknowledge="client")
        consumer = await session.consumer("queue:a")
        deliver(peer, 1, 10)
        assert len(await consumer.receive_batch(2)) == 2
        await session.acknowledge(confirm=True)
        last = (await consumer.receive_batch(3))[-1]
        recovering(peer, 11, 3)
        await session.recover()
        await last.acknowledge(confirm=True)
        assert settled(peer) == [1, 2], "tags from before are not the server's any more"
        again = await consumer.receive_batch()
        assert [message.body for message in again] == [b"13", b"14", b"15"]
        await session.acknowledge(confirm=True)
        assert settled(peer) == [1, 2, 13, 14, 15]


@story
async def test_recover_in_individual_mode_spares_what_was_acknowledged() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        session = await connection.session(acknowledge="individual")
        consumer = await session.consumer("queue:a")
        deliver(peer, 1, 4)
        messages = await consumer.receive_batch()
        await messages[1].acknowledge()
        recovering(peer, 5, 1)
        await session.recover()
        assert settled(peer) == [2]
        with pytest.raises(ConnectionLost) as caught:
            await messages[2].acknowledge(confirm=True)
        assert caught.value.code == "acknowledgement-unknown"


@story
async def test_a_connection_lost_while_recovering_recovers_too() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        remember(peer)
        consumer = await consuming(connection, mode="client")
        session = connection._link.sessions[1]
        deliver(peer, 1, 4)
        assert await consumer.receive() is not None
        peer.replies[frames.Recover] = lambda _: None
        recover = asyncio.create_task(session.recover())
        await peer.until(lambda: peer.asked(frames.Recover))
        peer.line.cut()
        await recover
        await second_line(peer)
        await peer.until(lambda: peer.asked(frames.Subscribe))
        deliver(peer, 1, 4, earlier=1)
        message = await consumer.receive()
        assert message is not None
        assert message.redelivered


@pytest.mark.parametrize("mode", ["auto", "client", "individual", "dups-ok"])
def test_a_message_given_back_is_never_acknowledged(mode: str) -> None:
    async def run() -> None:
        async with listening() as peer, connect(peer.url) as connection:
            session = await connection.session(acknowledge=mode)  # type: ignore[arg-type]
            consumer = await session.consumer("queue:a")
            deliver(peer, 1, 5)
            async for message in consumer:
                if message.body == b"2":
                    await message.reject("not today")
                elif message.body == b"4":
                    await message.return_()
                    await message.return_()
                else:
                    await message.acknowledge()
                if message.body == b"5":
                    break
            await consumer.close()
            await peer.until(lambda: sorted(settled(peer)) == [1, 3, 5])
            returned = peer.asked(frames.Return)
            assert returned[0] == frames.Return(1, 1, [(2, 2)], "not today", 2)
            assert returned[1] == frames.Return(1, 1, [(4, 4)], "", 4)

    story(run)()


@story
async def test_what_is_acknowledged_or_from_an_older_connection_is_not_given_back() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        remember(peer)
        consumer = await consuming(connection)
        deliver(peer, 1, 3)
        first = await consumer.receive()
        second = await consumer.receive()
        assert first is not None
        assert second is not None
        await peer.until(lambda: settled(peer) == [1])
        await first.return_()
        peer.line.cut()
        await second_line(peer)
        await second.return_()
        await connection.ask("anything")
        assert peer.asked(frames.Return, line=0) == []
        assert peer.asked(frames.Return) == []


def test_tags_are_left_out_of_ranges() -> None:
    tags = {1, 5, 6, 9, 40}
    assert without([(1, 3), (5, 6), (7, 10), (20, 21)], tags) == [(2, 3), (7, 8), (10, 10), (20, 21)]
    assert tags == {40}


def test_a_message_that_is_done_cannot_be_given_back() -> None:
    inbox = Inbox(Mode.AUTO, 10)
    inbox.done.add(1, 3)
    assert inbox.leave_out(2)
    assert not inbox.leave_out(2)
    assert inbox.take_done() == [(1, 1), (3, 3)]
    assert not inbox.leave_out(3)


@story
async def test_lazy_acknowledgements_wait_for_company() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        consumer = await consuming(connection, mode="dups-ok", credit=400)
        for first in range(1, 200, 50):
            deliver(peer, first, 50)
        seen = 0
        async for _ in consumer:
            seen += 1
            await asyncio.sleep(0)
            if seen == 190:
                break
        assert len(peer.line.settled) <= 2, "a quarter of the credit is worth a frame"
        deadline = asyncio.get_running_loop().time() + 5
        await peer.until(lambda: len(settled(peer)) == 189)
        assert asyncio.get_running_loop().time() < deadline
        assert await consumer.receive(timeout=0) is not None
        await consumer.close()
        assert settled(peer) == list(range(1, 192))


@story
async def test_a_lazy_consumer_that_waits_for_more_acknowledges_in_the_end() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        consumer = await consuming(connection, mode="dups-ok", credit=400)
        deliver(peer, 1, 2)
        assert len(await consumer.receive_batch()) == 2
        waiting = asyncio.create_task(consumer.receive())
        await peer.until(lambda: settled(peer) == [1, 2])
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


@story
async def test_there_is_no_other_mode() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        with pytest.raises(ClientFault, match="transacted"):
            await connection.session(acknowledge="sometimes")  # type: ignore[arg-type]
