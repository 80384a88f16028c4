"""Producers with a scripted server at the other end: when blocks leave, and who hears of their fate."""

from __future__ import annotations

import asyncio

import pytest

from heliograph.client import Producer, connect
from heliograph.frontends.native import frames
from heliograph.model.errors import (
    ClientFault,
    ConnectionLost,
    HeliographError,
    NotAllowed,
    NotAuthenticated,
    StorageFull,
)
from heliograph.model.limits import PRODUCER_WINDOW_MESSAGES
from tests.unit.client.peer import Peer, listening, story

pytestmark = pytest.mark.req("J12")


def counts(peer: Peer) -> list[int]:
    return [contents.count for _, _, contents in peer.line.published]


def refuse(peer: Peer, first: int, *, lane: int = 1, code: str = "storage-full") -> None:
    peer.line.send(frames.Refused(number=1, lane=lane, first=first, code=code, sentence="no"))


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def send_until_cancelled(producer: Producer, body: bytes) -> None:
    while True:
        await producer.send(body)


@story
async def test_a_message_nobody_waits_behind_leaves_at_once() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        producer = await connection.producer("queue:a")
        sending = producer.send_confirmed(b"one")
        waits_for = sending.send(None)  # one step of the coroutine, without the loop
        assert producer._sender.lane.blocks_under_way == 1, "it was written in the same call"
        await asyncio.wait([waits_for])
        with pytest.raises(StopIteration) as finished:
            sending.send(None)
        assert finished.value.value.endswith("/1-1")
        assert counts(peer) == [1]


@story
async def test_a_producer_that_yields_after_each_message_still_fills_blocks() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        peer.confirms = False
        producer = await connection.producer("queue:a")
        for _ in range(400):
            await producer.send(b"x")
            await asyncio.sleep(0)
        await peer.until(lambda: len(counts(peer)) >= 3)
        assert counts(peer) == [1, 1, 256], "two small blocks under way, then a full one"
        assert producer.unconfirmed == 400
        peer.line.confirm(1, 1)
        await turns()
        assert counts(peer) == [1, 1, 256], "still two under way"
        peer.line.confirm(1, 258)
        await peer.until(lambda: len(counts(peer)) == 4)
        assert counts(peer) == [1, 1, 256, 142], "a confirmation lets go what has gathered"
        peer.line.confirm(1, 400)
        await producer.flush()
        assert producer.unconfirmed == 0


@story
async def test_many_tasks_that_wait_for_confirmation_share_blocks() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        producer = await connection.producer("queue:a")
        identities = await asyncio.gather(*[producer.send_confirmed(b"%d" % n) for n in range(100)])
        assert len(set(identities)) == 100
        assert len(counts(peer)) <= 3


@story
async def test_a_full_window_makes_send_wait_until_there_is_room() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        peer.confirms = False
        producer = await connection.producer("queue:a")
        sending = asyncio.create_task(send_until_cancelled(producer, b"x"))
        await peer.until(lambda: sum(counts(peer)) >= PRODUCER_WINDOW_MESSAGES)
        await turns(20)
        assert PRODUCER_WINDOW_MESSAGES <= producer.unconfirmed <= PRODUCER_WINDOW_MESSAGES + 256
        before = sum(counts(peer))
        peer.line.confirm(1, before)
        await peer.until(lambda: sum(counts(peer)) > before)
        sending.cancel()
        peer.confirms = True
        peer.line.confirm(1, sum(counts(peer)))


@story
async def test_a_server_that_does_not_read_makes_send_wait() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        producer = await connection.producer("queue:a")
        peer.line.writer.transport.pause_reading()  # type: ignore[attr-defined]
        sending = asyncio.create_task(send_until_cancelled(producer, bytes(500)))
        before = -1
        while producer.unconfirmed != before:
            before = producer.unconfirmed
            await asyncio.sleep(0.05)
        assert before < PRODUCER_WINDOW_MESSAGES
        peer.line.writer.transport.resume_reading()  # type: ignore[attr-defined]
        await peer.until(lambda: sum(counts(peer)) > before)
        sending.cancel()


@story
@pytest.mark.req("J11")
async def test_producers_of_one_session_to_one_destination_share_one_order() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        first, second = await connection.producer("queue:a"), await connection.producer("queue:a", priority=7)
        other = await connection.producer("queue:b")
        for body in (b"1", b"2", b"3"):
            await first.send(body)
            await second.send(body + body)
            await other.send(body)
        await first.flush()
        await other.flush()
        lanes = [message for message in peer.line.received if isinstance(message, frames.OpenLane)]
        assert [(lane.lane, lane.destination) for lane in lanes] == [(1, "queue:a"), (2, "queue:b")]
        bodies = [
            body
            for _, _, contents in peer.line.published
            if contents.lane[-1] == 1
            for body in contents.bodies
        ]
        assert bodies == [b"1", b"11", b"2", b"22", b"3", b"33"]


@story
async def test_completion_is_told_in_order() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        told: list[str] = []
        producer = await connection.producer("queue:a")
        await producer.send(b"x", on_completion=lambda error: told.append(f"first {error}"))
        await producer.send(b"x")
        await producer.send(b"x", on_completion=lambda error: told.append(f"third {error}"))
        await producer.flush()
        assert told == ["first None", "third None"]


@story
async def test_a_refusal_is_heard_by_everybody_who_should_once() -> None:
    heard: list[HeliographError] = []
    completed: list[HeliographError | None] = []
    async with listening() as peer, connect(peer.url, on_error=heard.append) as connection:
        peer.confirms = False
        producer = await connection.producer("queue:a")
        await producer.send(b"kept", on_completion=completed.append)
        await producer.send(b"refused", on_completion=completed.append)
        await peer.until(lambda: sum(counts(peer)) == 2)
        await producer.send(b"refused with it", on_completion=completed.append)
        refuse(peer, 2)
        peer.line.confirm(1, 1)
        while len(completed) < 3:
            await asyncio.sleep(0.001)
        assert [type(error) for error in completed] == [StorageFull, StorageFull, type(None)]
        assert [error.code for error in heard] == ["storage-full"]
        with pytest.raises(StorageFull):
            await producer.send(b"not sent either")
        peer.confirms = True
        identity = await producer.send_confirmed(b"on a fresh lane")
        assert identity.endswith("/2-1")
        await producer.flush()
        assert len(heard) == 1


@story
async def test_flush_raises_what_was_refused() -> None:
    async with listening() as peer, connect(peer.url, on_error=lambda _: None) as connection:
        peer.confirms = False
        producer = await connection.producer("queue:a")
        await producer.send(b"x")
        flushing = asyncio.create_task(producer.flush())
        await peer.until(lambda: counts(peer))
        refuse(peer, 1, code="not-allowed")
        with pytest.raises(NotAllowed):
            await flushing
        await producer.flush()


@story
async def test_who_waits_for_a_confirmation_hears_the_refusal_alone() -> None:
    heard: list[HeliographError] = []
    async with listening() as peer, connect(peer.url, on_error=heard.append) as connection:
        peer.confirms = False
        producer = await connection.producer("queue:a")
        sending = asyncio.create_task(producer.send_confirmed(b"x"))
        await peer.until(lambda: counts(peer))
        refuse(peer, 1)
        with pytest.raises(StorageFull):
            await sending
        peer.confirms = True
        await producer.send(b"y")
        await producer.flush()
        assert heard == []


@story
async def test_closing_waits_for_what_was_sent_and_raises_a_refusal_nobody_heard() -> None:
    async with listening() as peer:
        connection = await connect(peer.url, on_error=lambda _: None)
        peer.confirms = False
        producer = await connection.producer("queue:a")
        for _ in range(10):
            await producer.send(b"x")
        closing = asyncio.create_task(connection.close())
        await peer.until(lambda: sum(counts(peer)) == 10)
        assert not closing.done()
        refuse(peer, 5)
        peer.line.confirm(1, 4)
        with pytest.raises(StorageFull):
            await closing
        assert not connection.is_alive()


@story
async def test_a_destination_one_may_not_send_to_is_refused_at_once() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        peer.replies[frames.OpenLane] = lambda asked: frames.Failed(asked.request, "not-allowed", "no")
        with pytest.raises(NotAllowed):
            await connection.producer("queue:a")


@story
async def test_a_wrong_password_is_told_and_not_tried_again() -> None:
    async with listening() as peer:
        peer.replies[frames.Hello] = lambda _: frames.Goodbye("not-authenticated", "wrong")
        with pytest.raises(NotAuthenticated):
            await connect(peer.url, user="ada", password="x")
        assert len(peer.lines) == 1
        [hello] = peer.line.received
        assert (hello.mechanism, hello.user, hello.password) == ("plain", "ada", "x")


@story
async def test_nobody_there_is_said_at_once_with_what_to_check() -> None:
    async with listening() as peer:
        url = peer.url
    with pytest.raises(ConnectionLost, match="check the address"):
        await connect(url)


@story
async def test_of_several_hosts_the_first_that_answers_is_used() -> None:
    async with listening() as gone:
        await gone.go_away()
        async with (
            listening() as peer,
            connect(f"helio://127.0.0.1:{gone.port},127.0.0.1:{peer.port}") as connection,
        ):
            assert connection.server == "peer"
            assert await connection.ask("status", verbose=True) == {"subject": "status", "verbose": True}


@story
async def test_a_closed_producer_and_a_closed_connection_say_so() -> None:
    async with listening() as peer:
        async with connect(peer.url) as connection:
            producer = await connection.producer("queue:a")
            await producer.close()
            with pytest.raises(ClientFault, match="closed"):
                await producer.send(b"x")
        with pytest.raises(ClientFault, match="closed"):
            await connection.session()
