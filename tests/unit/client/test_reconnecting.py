"""Connections that are lost: sessions go on where they were, and nobody waits for ever in silence."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph.client import connect
from heliograph.client.link import LONGEST_PAUSE_SECONDS, pause_before
from heliograph.frontends.native import frames
from heliograph.model.block import Contents
from heliograph.model.errors import ConnectionLost, HeliographError, NotAllowed, NotAuthenticated
from heliograph.model.limits import PRODUCER_WINDOW_MESSAGES
from tests.unit.client.peer import Line, Peer, listening, story
from tests.unit.client.test_receiving import consuming, deliver, settled

pytestmark = pytest.mark.req("J12", "M8")


def bodies(line: Line) -> list[bytes]:
    return [body for _, _, contents in line.published for body in contents.bodies]


def published(line: Line) -> list[Contents]:
    return [contents for _, _, contents in line.published]


def opened(line: Line) -> frames.OpenSession:
    [message] = [message for message in line.received if isinstance(message, frames.OpenSession)]
    return message


def remember(peer: Peer, *lanes: tuple[int, str, int]) -> None:
    """The server knows the one session, and has so much of its lanes."""
    peer.known = AnySession(list(lanes))


class AnySession(dict[bytes, list[tuple[int, str, int]]]):
    """Whatever session is asked for, it is known."""

    def __init__(self, lanes: list[tuple[int, str, int]]) -> None:
        super().__init__()
        self.lanes = lanes

    def __contains__(self, _: object) -> bool:
        return True

    def get(self, _: object, default: object = None) -> list[tuple[int, str, int]]:
        return self.lanes


async def second_line(peer: Peer) -> Line:
    await peer.until(lambda: len(peer.lines) == 2 and peer.lines[1].received)
    return peer.lines[1]


@story
async def test_what_the_server_has_is_confirmed_and_the_rest_is_sent_again_in_order() -> None:
    async with listening() as peer, connect(peer.url, block_messages=2) as connection:
        peer.confirms = False
        producer = await connection.producer("queue:a")
        told: list[HeliographError | None] = []
        for n in range(6):
            await producer.send(b"%d" % n, on_completion=told.append)
        await peer.until(lambda: len(bodies(peer.line)) == 6)
        identity = peer.line.published[0][2].lane
        remember(peer, (1, "queue:a", 3))
        peer.confirms = True
        peer.line.cut()
        line = await second_line(peer)
        await producer.flush()
        assert opened(line).resume[:14] == identity[:14]
        assert opened(line).token == b"token"
        assert bodies(line) == [b"3", b"4", b"5"]
        assert [(resent, contents.first) for _, resent, contents in line.published] == [(True, 4), (True, 5)]
        assert not [message for message in line.received if isinstance(message, frames.OpenLane)]
        assert told == [None] * 6


@story
async def test_a_lane_the_server_does_not_report_is_opened_again_before_anything_is_sent() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        peer.confirms = False
        producer = await connection.producer("queue:a")
        await producer.send(b"x")
        await peer.until(lambda: bodies(peer.line))
        remember(peer)
        peer.confirms = True
        peer.line.cut()
        line = await second_line(peer)
        await producer.flush()
        assert bodies(line) == [b"x"]
        [lane] = [message for message in line.received if isinstance(message, frames.OpenLane)]
        assert (lane.lane, lane.destination) == (1, "queue:a")


@story
async def test_a_lane_that_may_not_be_opened_any_more_fails_its_messages() -> None:
    heard: list[HeliographError] = []
    async with listening() as peer, connect(peer.url, on_error=heard.append) as connection:
        peer.confirms = False
        producer = await connection.producer("queue:a")
        sending = asyncio.create_task(producer.send_confirmed(b"x"))
        await peer.until(lambda: bodies(peer.line))
        remember(peer)
        peer.replies[frames.OpenLane] = lambda asked: frames.Failed(asked.request, "not-allowed", "no")
        peer.line.cut()
        with pytest.raises(NotAllowed):
            await sending
        assert connection.is_alive()


@story
async def test_a_session_the_server_forgot_is_begun_anew_and_the_application_is_told() -> None:
    heard: list[HeliographError] = []
    async with listening() as peer, connect(peer.url, on_error=heard.append) as connection:
        session = await connection.session()
        before = session.id
        producer = await session.producer("queue:a")
        await producer.send_confirmed(b"stored")
        peer.confirms = False
        for n in range(3):
            await producer.send(b"%d" % n, properties={"n": n})
        await peer.until(lambda: len(bodies(peer.line)) == 4)
        peer.confirms = True
        peer.line.cut()
        line = await second_line(peer)
        await producer.flush()
        assert session.id != before
        assert bodies(line) == [b"0", b"1", b"2"]
        assert published(line)[0].first == 1, "a new lane begins at 1"
        assert published(line)[0].lane != published(peer.lines[0])[0].lane
        assert [error.code for error in heard] == ["session-lost"]
        assert (await producer.send_confirmed(b"goes on")).endswith("-4")


@story
async def test_what_was_confirmed_and_is_not_known_leaves_a_gap() -> None:
    """It is in another part of the cluster: what follows waits there for it (P7)."""
    await _of_less([(1, 2, [b"x"])], persistent=True)


@story
async def test_where_only_messages_are_gone_that_may_be_lost_a_lane_begins_anew() -> None:
    await _of_less([(2, 1, [b"x"])], persistent=False)


async def _of_less(expected: list[Any], *, persistent: bool) -> None:
    """The server knows less of a lane than it confirmed."""
    async with listening() as peer, connect(peer.url) as connection:
        producer = await connection.producer("queue:a")
        await producer.send_confirmed(b"confirmed", persistent=persistent)
        peer.confirms = False
        await producer.send(b"x", persistent=persistent)
        await peer.until(lambda: len(bodies(peer.line)) == 2)
        remember(peer, (1, "queue:a", 0))
        peer.confirms = True
        peer.line.cut()
        line = await second_line(peer)
        await producer.flush()
        assert [(one.lane[-1], one.first, one.bodies) for one in published(line)] == expected


@story
async def test_while_there_is_no_server_send_goes_on_until_the_window_is_full() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        producer = await connection.producer("queue:a")
        await producer.send_confirmed(b"before")
        remember(peer, (1, "queue:a", 1))
        await peer.go_away()
        sent = 0

        async def send_for_ever() -> None:
            nonlocal sent
            while True:
                await producer.send(b"%d" % sent)
                sent += 1

        sending = asyncio.create_task(send_for_ever())
        while producer.unconfirmed < PRODUCER_WINDOW_MESSAGES:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        sending.cancel()
        assert sent <= PRODUCER_WINDOW_MESSAGES + 256
        await peer.listen()
        await producer.flush()
        assert bodies(peer.line) == [b"%d" % n for n in range(sent)]


@story
async def test_consumers_subscribe_again_and_old_acknowledgements_are_forgotten() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        remember(peer)
        consumer = await consuming(connection, mode="individual", credit=50)
        deliver(peer, 1, 3)
        old = await consumer.receive()
        assert old is not None
        peer.line.cut()
        line = await second_line(peer)
        await peer.until(lambda: any(isinstance(message, frames.Subscribe) for message in line.received))
        [again] = [message for message in line.received if isinstance(message, frames.Subscribe)]
        assert (again.consumer, again.destination, again.credit) == (1, "queue:a", 50)
        deliver(peer, 1, 3, earlier=1)
        messages = [await consumer.receive() for _ in range(3)]
        assert [message and (message.body, message.redelivered) for message in messages] == [
            (b"1", True),
            (b"2", True),
            (b"3", True),
        ], "what was prefetched on the old connection is not handed over twice"
        await old.acknowledge()
        with pytest.raises(ConnectionLost):
            await old.acknowledge(confirm=True)
        assert messages[1] is not None
        await messages[1].acknowledge(confirm=True)
        assert settled(peer) == [2]


@story
async def test_a_consumer_says_what_it_holds_and_goes_on_with_it() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        remember(peer)
        peer.resumes, peer.gone = True, [(4, 4)]
        consumer = await consuming(connection, mode="individual", credit=50)
        deliver(peer, 1, 6)
        messages = [await consumer.receive() for _ in range(3)]
        assert messages[1] is not None
        await messages[1].acknowledge()
        await peer.until(lambda: settled(peer) == [2])
        peer.line.cut()
        line = await second_line(peer)
        await peer.until(lambda: peer.asked(frames.Subscribe))
        [again] = peer.asked(frames.Subscribe)
        assert again.claim is not None
        assert (again.claim.held, again.claim.settled, again.claim.seen) == ([(1, 1), (3, 6)], [(2, 2)], 3)
        rest = [await consumer.receive() for _ in range(2)]
        assert [message and message.body for message in rest] == [b"5", b"6"], (
            "the fourth is not ours any more"
        )
        assert messages[0] is not None
        await messages[0].acknowledge(confirm=True)
        assert settled(peer) == [1]
        assert line is peer.line


@story
async def test_what_was_not_answered_is_said_again() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        remember(peer)
        peer.resumes, peer.settles = True, False
        peer.replies[frames.Return] = lambda _: None
        consumer = await consuming(connection, mode="individual")
        deliver(peer, 1, 5)
        messages = [message for _ in range(5) if (message := await consumer.receive()) is not None]
        waiting = [asyncio.create_task(message.acknowledge(confirm=True)) for message in messages[:2]]
        await peer.until(lambda: settled(peer) == [1, 2])
        await messages[2].reject("no")
        await peer.until(lambda: peer.asked(frames.Return))
        peer.gone, peer.settles = [(1, 1)], True
        peer.line.cut()
        await asyncio.gather(*waiting)
        assert settled(peer) == [2], "the first had arrived"
        [returned] = peer.asked(frames.Return)
        assert (returned.ranges, returned.error) == ([(3, 3)], "no")
        [again] = peer.asked(frames.Subscribe)
        assert again.claim is not None
        assert (again.claim.held, again.claim.settled) == ([(1, 5)], [])


@story
async def test_acknowledgements_made_while_there_is_no_server_are_told_the_next() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        remember(peer)
        peer.resumes = True
        consumer = await consuming(connection, mode="client")
        deliver(peer, 1, 5)
        message = await consumer.receive()
        assert message is not None
        await peer.go_away()
        while connection._link.wire is not None:
            await asyncio.sleep(0)
        await message.acknowledge()
        receiving = asyncio.create_task(consumer.receive())
        await asyncio.sleep(0.01)
        assert not receiving.done(), "nothing is handed over that may be another's by now"
        await peer.listen()
        second = await receiving
        assert second is not None
        assert second.body == b"2"
        await peer.until(lambda: settled(peer) == [1])


@story
async def test_a_consumer_that_was_being_made_goes_on_with_what_it_was_sent() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        remember(peer)
        peer.resumes = True
        session = await connection.session()
        peer.replies[frames.Subscribe] = lambda _: None
        making = asyncio.create_task(session.consumer("queue:a"))
        await peer.until(lambda: peer.asked(frames.Subscribe))
        deliver(peer, 1, 2)
        while not session._consumers[1].inbox.waiting:
            await asyncio.sleep(0)
        peer.replies.clear()
        peer.line.cut()
        consumer = await making
        [again] = peer.asked(frames.Subscribe)
        assert again.claim is not None
        assert again.claim.held == [(1, 2)]
        message = await consumer.receive()
        assert message is not None
        assert message.body == b"1"


@story
async def test_a_client_that_is_asked_to_move_goes_to_another_when_all_is_confirmed() -> None:
    async with listening() as first, listening() as second:
        first.resumes = second.resumes = True
        remember(first)
        remember(second, (1, "queue:a", 1))
        first.replies[frames.Hello] = second.replies[frames.Hello] = lambda _: frames.Welcome(
            version=1,
            server="peer",
            user="",
            heartbeat_seconds=10,
            addresses=[f"127.0.0.1:{first.port}", f"127.0.0.1:{second.port}", "not an address:at all"],
        )
        async with connect(first.url) as connection:
            producer = await connection.producer("queue:a")
            consumer = await connection.consumer("queue:a")
            first.confirms = False
            await producer.send(b"x")
            await first.until(lambda: bodies(first.line))
            deliver(first, 1, 2)
            assert await consumer.receive() is not None
            first.line.send(frames.Move(seconds=5))
            first.replies[frames.Hello] = lambda _: frames.Goodbye("server-stopping", "going")
            first.line.confirm(1, 1)
            await first.until(lambda: first.asked(frames.Goodbye, line=0))
            assert [bye.code for bye in first.asked(frames.Goodbye, line=0)] == [frames.MOVING]
            message = await consumer.receive()
            assert message is not None
            assert message.body == b"2"
            [again] = second.asked(frames.Subscribe)
            assert again.claim is not None
            assert bodies(second.line) == []


@story
async def test_clients_spread_over_the_addresses() -> None:
    async with listening() as first, listening() as second:
        url = f"helio://127.0.0.1:{first.port},127.0.0.1:{second.port}"
        for _ in range(40):
            async with connect(url):
                pass
        assert min(len(first.lines), len(second.lines)) > 5


@story
async def test_an_acknowledgement_whose_confirmation_was_lost_says_so() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        remember(peer)
        peer.settles = False
        consumer = await consuming(connection, mode="client")
        deliver(peer, 1, 2)
        message = await consumer.receive()
        assert message is not None
        acknowledging = asyncio.create_task(message.acknowledge(confirm=True))
        await peer.until(lambda: settled(peer) == [1])
        peer.line.cut()
        with pytest.raises(ConnectionLost) as unknown:
            await acknowledging
        assert unknown.value.code == "acknowledgement-unknown"


@story
async def test_in_client_mode_a_confirmed_acknowledgement_never_claims_what_was_lost() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        remember(peer)
        consumer = await consuming(connection, mode="client")
        deliver(peer, 1, 2)
        message = await consumer.receive()
        assert message is not None
        peer.line.cut()
        await second_line(peer)
        with pytest.raises(ConnectionLost):
            await message.acknowledge(confirm=True)


@story
async def test_requests_that_were_under_way_are_asked_again() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        remember(peer)
        session = await connection.session()
        peer.replies[frames.Subscribe] = lambda _: None
        making = asyncio.create_task(session.consumer("queue:a"))
        await peer.until(lambda: any(isinstance(message, frames.Subscribe) for message in peer.line.received))
        peer.replies.clear()
        peer.line.cut()
        consumer = await making
        deliver(peer, 1, 1)
        assert await consumer.receive(timeout=30) is not None
        asked = [message for message in peer.lines[1].received if isinstance(message, frames.Subscribe)]
        assert len(asked) == 1


@story
async def test_giving_up_is_told_to_everybody_who_waits() -> None:
    heard: list[HeliographError] = []
    async with listening() as peer:
        connection = await connect(peer.url, reconnect_seconds=0.2, on_error=heard.append)
        session = await connection.session()
        producer, consumer = await session.producer("queue:a"), await session.consumer("queue:a")
        peer.confirms = False
        told: list[HeliographError | None] = []
        await producer.send(b"x", on_completion=told.append)
        waiting = [
            asyncio.create_task(work)
            for work in (
                producer.send_confirmed(b"y"),
                producer.flush(),
                consumer.receive(),
                consumer.receive_batch(),
            )
        ]
        await peer.until(lambda: bodies(peer.line))
        await peer.go_away()
        asking = asyncio.create_task(connection.ask("status"))
        outcomes = await asyncio.gather(*waiting, asking, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * 5
        assert [type(error) for error in told] == [ConnectionLost]
        assert [type(error) for error in heard] == [ConnectionLost]
        assert not connection.is_alive()
        with pytest.raises(ConnectionLost):
            await producer.send(b"z")
        with pytest.raises(ConnectionLost):
            async for _ in consumer:
                pass
        await connection.close()


@story
async def test_a_connection_that_shall_not_be_made_again_is_given_up_at_once() -> None:
    heard: list[HeliographError] = []
    async with listening() as peer:
        connection = await connect(peer.url, reconnect_seconds=0, on_error=heard.append)
        consumer = await connection.consumer("queue:a")
        receiving = asyncio.create_task(consumer.receive())
        await asyncio.sleep(0)
        peer.line.cut()
        with pytest.raises(ConnectionLost):
            await receiving
        assert len(peer.lines) == 1
        assert len(heard) == 1


@story
async def test_a_user_who_is_no_longer_welcome_is_told_at_once() -> None:
    heard: list[HeliographError] = []
    async with listening() as peer:
        connection = await connect(peer.url, on_error=heard.append)
        consumer = await connection.consumer("queue:a")
        peer.replies[frames.Hello] = lambda _: frames.Goodbye("not-authenticated", "no")
        peer.line.cut()
        with pytest.raises(NotAuthenticated):
            await consumer.receive()
        assert [error.code for error in heard] == ["not-authenticated"]
        assert not connection.is_alive()


@story
async def test_a_silent_server_is_noticed() -> None:
    async with listening() as peer:
        peer.heartbeat_seconds = 0.02
        async with connect(peer.url) as connection:
            remember(peer)
            await connection.session()
            await peer.until(lambda: len(peer.lines) >= 2)
            assert connection.is_alive()


@story
async def test_hosts_are_tried_in_turn() -> None:
    async with listening() as first, listening() as second:
        url = f"helio://127.0.0.1:{first.port},127.0.0.1:{second.port}"
        async with connect(url) as connection:
            here, there = (first, second) if first.lines else (second, first)
            remember(there)
            producer = await connection.producer("queue:a")
            await here.go_away()
            assert await producer.send_confirmed(b"x")
            assert bodies(there.line) == [b"x"]


def test_pauses_grow_and_stay_bounded() -> None:
    assert pause_before(0, 0.5) == 0
    assert [pause_before(attempt, 0.5) for attempt in (1, 2, 3)] == [0.1, 0.2, 0.4]
    assert pause_before(1000, 1.0) <= 1.5 * LONGEST_PAUSE_SECONDS
    assert pause_before(3, 0.0) < pause_before(3, 1.0)
