"""Transacted sessions with a scripted server at the other end: what is asked, what the answers mean."""

from __future__ import annotations

import asyncio

import pytest

from heliograph.client import Session, connect
from heliograph.frontends.native import frames
from heliograph.model.errors import (
    ClientFault,
    ConnectionLost,
    HeliographError,
    StorageFull,
    TransactionRolledBack,
)
from tests.unit.client.peer import Peer, listening, story
from tests.unit.client.test_receiving import deliver
from tests.unit.client.test_reconnecting import bodies, remember, second_line

pytestmark = pytest.mark.req("J5", "J12")


async def received(session: Session, peer: Peer, count: int) -> None:
    """The application gets so many messages of queue:in."""
    consumer = await session.consumer("queue:in")
    deliver(peer, 1, count + 5)
    for _ in range(count):
        assert await consumer.receive() is not None


def rolled_back(message: frames.Commit) -> frames.Failed:
    return frames.Failed(message.request, "transaction-rolled-back", "it was rolled back")


@story
async def test_a_commit_counts_what_was_staged_and_names_what_was_handed_over() -> None:
    async with listening() as peer, connect(peer.url, block_messages=4) as connection:
        session = await connection.session(acknowledge="transacted")
        producers = [await session.producer(f"queue:{name}") for name in ("a", "b")]
        first = await session.consumer("queue:in")
        second = await session.consumer("queue:also")
        deliver(peer, 1, 10, consumer=1)
        deliver(peer, 1, 10, consumer=2)
        assert len(await first.receive_batch(3)) == 3
        assert await second.receive() is not None
        for producer in producers:
            for n in range(6):
                await producer.send(b"%d" % n)
        await session.commit()
        await producers[0].send(b"next")
        assert len(await first.receive_batch(2)) == 2
        await session.commit()
        assert peer.asked(frames.Commit) == [
            frames.Commit(peer.asked(frames.Commit)[0].request, 1, 1, 12, [(1, [(1, 3)]), (2, [(1, 1)])]),
            frames.Commit(peer.asked(frames.Commit)[1].request, 1, 2, 1, [(1, [(4, 5)])]),
        ]
        assert all(peer.line.staged)
        assert peer.line.settled == [], "the server gives credit back with the commit"
        assert len(peer.line.published) >= 5


@story
async def test_nothing_done_is_nothing_to_commit_or_roll_back() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        session = await connection.session(acknowledge="transacted")
        await session.consumer("queue:in")
        deliver(peer, 1, 3)
        await session.commit()
        await session.rollback()
        assert peer.asked(frames.Commit) == []
        assert peer.asked(frames.Rollback) == []


@story
async def test_after_a_rollback_only_what_comes_behind_its_answer_is_handed_over() -> None:
    async with listening() as peer, connect(peer.url, block_messages=4) as connection:
        session = await connection.session(acknowledge="transacted")
        producer = await session.producer("queue:a")
        consumer = await session.consumer("queue:in")
        for n in range(6):
            await producer.send(b"%d" % n)
        await peer.until(lambda: len(bodies(peer.line)) >= 4)
        deliver(peer, 1, 10)
        assert len(await consumer.receive_batch(3)) == 3

        def answer(message: frames.Rollback) -> None:
            deliver(peer, 11, 5)  # it was on its way when the rollback came
            peer.line.send(frames.Completed(message.request))
            deliver(peer, 16, 4, earlier=1)

        peer.replies[frames.Rollback] = answer
        await session.rollback()
        again = await consumer.receive_batch()
        assert [message.body for message in again] == [b"16", b"17", b"18", b"19"]
        assert again[0].redelivered
        await producer.send(b"next")
        await session.commit()
        [rollback] = peer.asked(frames.Rollback)
        [commit] = peer.asked(frames.Commit)
        assert (rollback.transaction, commit.transaction) == (1, 2)
        assert (commit.messages, commit.consumed) == (1, [(1, [(16, 19)])])
        assert bodies(peer.line)[-1] == b"next"
        sequences = [
            contents.first + index
            for _, _, contents in peer.line.published
            for index in range(contents.count)
        ]
        assert sequences == list(range(1, len(sequences) + 1)), "what was never sent leaves no gap"


@story
async def test_completion_is_told_at_commit_or_rollback() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        session = await connection.session(acknowledge="transacted")
        producer = await session.producer("queue:a")
        told: list[HeliographError | None] = []
        await producer.send(b"1", on_completion=told.append)
        await producer.flush()
        assert told == []
        await session.commit()
        assert told == [None]
        await producer.send(b"2", on_completion=told.append)
        await session.rollback()
        assert isinstance(told[1], TransactionRolledBack)
        await producer.send(b"3", on_completion=told.append)
        await session.close()
        assert isinstance(told[2], TransactionRolledBack)


@story
async def test_a_refused_commit_is_rolled_back_and_the_session_goes_on() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        session = await connection.session(acknowledge="transacted")
        await received(session, peer, 2)
        peer.replies[frames.Commit] = rolled_back
        with pytest.raises(TransactionRolledBack):
            await session.commit()
        assert [rollback.transaction for rollback in peer.asked(frames.Rollback)] == [1]
        del peer.replies[frames.Commit]
        producer = await session.producer("queue:a")
        await producer.send(b"again")
        await session.commit()
        assert [commit.transaction for commit in peer.asked(frames.Commit)] == [1, 2]
        assert peer.asked(frames.Commit)[1].consumed == []


@story
async def test_a_transaction_of_which_something_was_refused_cannot_be_committed() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        peer.confirms = False
        session = await connection.session(acknowledge="transacted")
        producer = await session.producer("queue:a")
        await producer.send(b"1")
        await peer.until(lambda: peer.line.published)
        peer.line.send(frames.Refused(1, 1, 1, "storage-full", "the disk is full"))
        with pytest.raises(StorageFull):
            await producer.flush()
        with pytest.raises(TransactionRolledBack, match="disk is full"):
            await session.commit()
        assert peer.asked(frames.Commit) == []
        assert len(peer.asked(frames.Rollback)) == 1
        peer.confirms = True
        await producer.send(b"2")
        await session.commit()
        assert peer.asked(frames.Commit)[0].messages == 1


@story
async def test_what_was_refused_while_the_commit_was_asked_is_why_it_failed() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        peer.confirms = False
        session = await connection.session(acknowledge="transacted")
        producer = await session.producer("queue:a")
        await producer.send(b"1")

        def refuse(commit: frames.Commit) -> frames.Failed:
            peer.line.send(frames.Refused(1, 1, 1, "storage-full", "the disk is full"))
            return rolled_back(commit)

        peer.replies[frames.Commit] = refuse
        with pytest.raises(TransactionRolledBack, match="disk is full"):
            await session.commit()


@story
async def test_an_open_transaction_is_lost_with_its_connection_and_never_sent_again() -> None:
    async with listening() as peer, connect(peer.url, block_messages=2) as connection:
        remember(peer, (1, "queue:a", 2))
        session = await connection.session(acknowledge="transacted")
        producer = await session.producer("queue:a")
        for n in range(3):
            await producer.send(b"%d" % n)
        await received(session, peer, 2)
        peer.line.cut()
        await second_line(peer)
        with pytest.raises(TransactionRolledBack):
            await session.commit()
        assert peer.line.published == []
        await producer.send(b"again")
        await session.commit()
        assert bodies(peer.line) == [b"again"]
        [commit] = peer.asked(frames.Commit)
        assert (commit.transaction, commit.messages, commit.consumed) == (2, 1, [])


@story
async def test_what_of_a_lost_transaction_was_not_confirmed_is_forgotten_without_a_gap() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        remember(peer, (1, "queue:a", 0))
        peer.confirms = False
        session = await connection.session(acknowledge="transacted")
        producer = await session.producer("queue:a")
        await producer.send(b"1")
        flushing = asyncio.create_task(producer.flush())
        await peer.until(lambda: bodies(peer.line) == [b"1"])
        peer.confirms = True
        peer.line.cut()
        with pytest.raises(ConnectionLost):
            await flushing
        await second_line(peer)
        await producer.flush()
        assert producer.unconfirmed == 0
        with pytest.raises(TransactionRolledBack):
            await session.commit()
        await producer.send(b"2")
        await producer.flush()
        await session.commit()
        assert [(contents.first, contents.bodies) for _, _, contents in peer.line.published] == [(1, [b"2"])]
        assert [message.lane for message in peer.asked(frames.OpenLane)] == [2]


@story
async def test_rolling_back_what_was_lost_needs_no_word() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        remember(peer)
        session = await connection.session(acknowledge="transacted")
        await received(session, peer, 2)
        peer.line.cut()
        await second_line(peer)
        await session.rollback()
        await session.commit()
        assert peer.asked(frames.Rollback) == []


@story
async def test_an_empty_transaction_outlives_its_connection() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        remember(peer, (1, "queue:a", 1))
        session = await connection.session(acknowledge="transacted")
        producer = await session.producer("queue:a")
        await producer.send(b"1")
        await session.commit()
        peer.line.cut()
        await second_line(peer)
        await producer.send(b"2")
        await session.commit()
        assert [(commit.transaction, commit.messages) for commit in peer.asked(frames.Commit)] == [(2, 1)]
        assert peer.line.staged == [True]


@story
async def test_a_commit_without_an_answer_is_asked_again_before_anything_else() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        remember(peer, (1, "queue:a", 1))
        session = await connection.session(acknowledge="transacted")
        producer = await session.producer("queue:a")
        await producer.send(b"1")
        await received(session, peer, 2)
        peer.replies[frames.Commit] = lambda _: None
        committing = asyncio.create_task(session.commit())
        await peer.until(lambda: peer.asked(frames.Commit))
        del peer.replies[frames.Commit]
        peer.line.cut()
        await committing
        line = await second_line(peer)
        kinds = [type(message) for message in line.received]
        assert kinds.index(frames.Commit) < kinds.index(frames.Subscribe), "its tags are of the old consumer"
        first, second = peer.asked(frames.Commit, line=0)[0], peer.asked(frames.Commit)[0]
        assert (first.transaction, first.messages, first.consumed) == (1, 1, [(1, [(1, 2)])])
        assert (second.transaction, second.messages, second.consumed) == (1, 1, [(1, [(1, 2)])])
        assert line.published == [], "what was staged is not sent again"


@story
async def test_asked_again_the_answer_may_be_no() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        remember(peer, (1, "queue:a", 1))
        session = await connection.session(acknowledge="transacted")
        producer = await session.producer("queue:a")
        await producer.send(b"1")
        peer.replies[frames.Commit] = lambda _: None
        committing = asyncio.create_task(session.commit())
        await peer.until(lambda: peer.asked(frames.Commit))
        peer.replies[frames.Commit] = rolled_back
        peer.line.cut()
        with pytest.raises(TransactionRolledBack):
            await committing
        assert [rollback.transaction for rollback in peer.asked(frames.Rollback)] == [1]
        del peer.replies[frames.Commit]
        await producer.send(b"2")
        await session.commit()
        assert [commit.transaction for commit in peer.asked(frames.Commit)] == [1, 2]


@story
async def test_when_the_server_forgot_the_session_the_outcome_is_not_known() -> None:
    heard: list[HeliographError] = []
    async with listening() as peer, connect(peer.url, on_error=heard.append) as connection:
        session = await connection.session(acknowledge="transacted")
        producer = await session.producer("queue:a")
        told: list[HeliographError | None] = []
        await producer.send(b"1", on_completion=told.append)
        peer.replies[frames.Commit] = lambda _: None
        committing = asyncio.create_task(session.commit())
        await peer.until(lambda: peer.asked(frames.Commit))
        del peer.replies[frames.Commit]
        peer.line.cut()
        with pytest.raises(ConnectionLost) as caught:
            await committing
        assert caught.value.code == "commit-unknown"
        assert [error and error.code for error in told] == ["commit-unknown"]
        assert [error.code for error in heard] == ["session-lost"]
        await producer.send(b"2")
        await session.commit()
        assert bodies(peer.line) == [b"2"]


@story
async def test_giving_up_during_a_commit_says_that_the_outcome_is_not_known() -> None:
    async with listening() as peer:
        connection = await connect(peer.url, reconnect_seconds=0, on_error=lambda _: None)
        session = await connection.session(acknowledge="transacted")
        producer = await session.producer("queue:a")
        await producer.send(b"1")
        peer.replies[frames.Commit] = lambda _: None
        committing = asyncio.create_task(session.commit())
        await peer.until(lambda: peer.asked(frames.Commit))
        await peer.go_away()
        with pytest.raises(ConnectionLost) as caught:
            await committing
        assert caught.value.code == "commit-unknown"
        await connection.close()


@story
async def test_whoever_gives_up_waiting_for_a_commit_does_not_undo_it() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        session = await connection.session(acknowledge="transacted")
        producer = await session.producer("queue:a")
        await producer.send(b"1")
        peer.replies[frames.Commit] = lambda _: None
        committing = asyncio.create_task(session.commit())
        await peer.until(lambda: peer.asked(frames.Commit))
        committing.cancel()
        await asyncio.gather(committing, return_exceptions=True)
        sending = asyncio.create_task(producer.send(b"2"))
        await asyncio.sleep(0)
        assert not sending.done(), "the first transaction is not decided yet"
        del peer.replies[frames.Commit]
        peer.line.send(frames.Completed(peer.asked(frames.Commit)[0].request))
        await sending
        await session.commit()
        assert [commit.transaction for commit in peer.asked(frames.Commit)] == [1, 2]


@story
async def test_a_consumer_closed_in_a_transaction_ends_when_that_is_decided() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        session = await connection.session(acknowledge="transacted")
        async with await session.consumer("queue:in") as consumer:
            deliver(peer, 1, 5)
            assert len(await consumer.receive_batch(2)) == 2
        assert await session.consumer("queue:other") is not None
        with pytest.raises(ClientFault):
            await consumer.receive()
        assert peer.asked(frames.Unsubscribe) == []
        assert [(asked.consumer, asked.seen) for asked in peer.asked(frames.Retire)] == [(1, 2)]
        await session.commit()
        assert peer.asked(frames.Commit)[0].consumed == [(1, [(1, 2)])]
        assert [leaving.consumer for leaving in peer.asked(frames.Unsubscribe)] == [1]


@story
async def test_before_a_rollback_a_closed_consumer_leaves_so_that_it_gets_nothing_again() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        session = await connection.session(acknowledge="transacted")
        consumer = await session.consumer("queue:in")
        deliver(peer, 1, 5)
        assert await consumer.receive() is not None
        producer = await session.producer("queue:a")
        await producer.send(b"1")
        await consumer.close()
        await session.rollback()
        kinds = [type(message) for message in peer.line.received]
        assert kinds.index(frames.Unsubscribe) < kinds.index(frames.Rollback)


@story
async def test_a_rollback_says_how_far_the_application_has_come() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        session = await connection.session(acknowledge="transacted")
        first = await session.consumer("queue:in")
        await session.consumer("queue:also")
        deliver(peer, 1, 5)
        deliver(peer, 1, 5, consumer=2)
        assert len(await first.receive_batch(3)) == 3
        await session.rollback()
        deliver(peer, 6, 5, earlier=1)
        assert await first.receive() is not None
        await session.rollback()
        assert [asked.seen for asked in peer.asked(frames.Rollback)] == [[(1, 3), (2, 0)], [(1, 6), (2, 0)]]


@story
async def test_closing_the_session_drops_the_open_transaction() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        async with await connection.session(acknowledge="transacted") as session:
            producer = await session.producer("queue:a")
            await producer.send(b"1")
            await received(session, peer, 2)
        assert peer.asked(frames.Commit) == []
        assert len(peer.asked(frames.CloseSession)) == 1
        assert peer.line.settled == []


@story
async def test_what_belongs_to_other_modes_is_refused() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        transacted = await connection.session(acknowledge="transacted")
        producer = await transacted.producer("queue:a")
        with pytest.raises(ClientFault) as caught:
            await producer.send_confirmed(b"1")
        assert caught.value.code == "transacted"
        with pytest.raises(ClientFault) as caught:
            await transacted.recover()
        assert caught.value.code == "transacted"
        plain = await connection.session()
        for work in (plain.commit(), plain.rollback()):
            with pytest.raises(ClientFault) as caught:
                await work
            assert caught.value.code == "not-transacted"


@story
async def test_a_message_given_back_is_not_part_of_the_transaction() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        session = await connection.session(acknowledge="transacted")
        consumer = await session.consumer("queue:in")
        deliver(peer, 1, 5)
        messages = await consumer.receive_batch(3)
        await messages[1].reject("cannot be read")
        await messages[0].acknowledge()
        await session.commit()
        assert peer.asked(frames.Return) == [frames.Return(1, 1, [(2, 2)], "cannot be read", 3)]
        assert peer.asked(frames.Commit)[0].consumed == [(1, [(1, 1), (3, 3)])]
