"""What consumers ask for, what browsers are shown, and how a question finds its reply."""

from __future__ import annotations

import asyncio
import time

import pytest

from heliograph.client import connect
from heliograph.client.requesting import Replier
from heliograph.frontends.native import frames
from heliograph.model import block
from heliograph.model.errors import ClientFault, ConnectionLost, HeliographError, NotAllowed, Unavailable
from heliograph.model.message import Head, decode_head, encode_head
from tests.unit.client.peer import Peer, listening, story
from tests.unit.client.test_receiving import LANE, deliver
from tests.unit.client.test_reconnecting import bodies, remember, second_line

pytestmark = pytest.mark.req("J12")


def terms(message: frames.Subscribe) -> tuple[str, str, bool, bool, bool]:
    return message.subscription, message.selector, message.durable, message.shared, message.no_local


@pytest.mark.req("J6", "J7", "J9")
@story
async def test_a_consumer_says_what_it_wants_and_says_so_again_on_another_connection() -> None:
    async with listening() as peer, connect(peer.url, client_id="till-7") as connection:
        remember(peer)
        await connection.consumer("queue:a", selector="price > 3", credit=7)
        await connection.consumer("topic:t", durable="d", no_local=True)
        await connection.consumer("topic:t", shared="s")
        await connection.consumer("topic:t", durable="b", shared=True)
        first = peer.asked(frames.Subscribe)
        assert [terms(message) for message in first] == [
            ("", "price > 3", False, False, False),
            ("d", "", True, False, True),
            ("s", "", False, True, False),
            ("b", "", True, True, False),
        ]
        assert first[0].credit == 7
        assert peer.asked(frames.Hello)[0].client_id == "till-7"
        peer.line.cut()
        await second_line(peer)
        await connection.ask("anything")
        assert [terms(message) for message in peer.asked(frames.Subscribe)] == list(map(terms, first))
        assert peer.asked(frames.Hello)[0].client_id == "till-7"


@pytest.mark.req("J6")
@story
async def test_wishes_that_contradict_each_other_are_refused_here() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        for wish in ({"shared": True}, {"durable": ""}, {"durable": "a", "shared": "b"}, {"credit": 0}):
            with pytest.raises(ClientFault):
                await connection.consumer("topic:t", **wish)
        assert peer.asked(frames.Subscribe) == []


@pytest.mark.req("J6")
@story
async def test_a_subscription_is_given_up_by_its_name() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        await connection.unsubscribe("d")
        assert [message.subscription for message in peer.asked(frames.EndSubscription)] == ["d"]


# ---- browsing


@pytest.mark.req("J9")
@story
async def test_a_browser_ends_by_itself_and_acknowledges_nothing() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        browser = await connection.browse("queue:a", selector="x = 1")
        [subscribe] = peer.asked(frames.Subscribe)
        assert (subscribe.browse, subscribe.selector) == (True, "x = 1")
        deliver(peer, 1, 3)
        peer.line.send(frames.BrowseEnded(number=1, consumer=1))
        seen = []
        async for message in browser:
            seen.append(message.body)
            for work in (message.acknowledge(), message.return_(), message.reject("no")):
                with pytest.raises(ClientFault):
                    await work
        assert seen == [b"1", b"2", b"3"]
        assert await browser.receive() is None
        assert peer.line.settled == []
        assert len(peer.asked(frames.Unsubscribe)) == 1


@pytest.mark.req("J9")
@story
async def test_what_was_looked_at_makes_room_for_more() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        browser = await connection.browse("queue:a")
        credit = peer.asked(frames.Subscribe)[0].credit
        messages = aiter(browser)
        deliver(peer, 1, credit)
        for _ in range(credit):
            await anext(messages)
        waiting = asyncio.ensure_future(anext(messages))
        await peer.until(lambda: sum(count for _, count in peer.line.credit) == credit)
        deliver(peer, credit + 1, 1)
        assert (await waiting).body == b"%d" % (credit + 1)


@pytest.mark.req("J9")
@story
async def test_a_browser_does_not_outlive_its_connection_unless_it_has_seen_all() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        remember(peer)
        cut_short = await connection.browse("queue:a")
        complete = await connection.browse("queue:b")
        deliver(peer, 1, 2, consumer=1)
        deliver(peer, 1, 2, consumer=2)
        peer.line.send(frames.BrowseEnded(number=1, consumer=2))
        assert await complete.receive() is not None
        peer.line.cut()
        await second_line(peer)
        await connection.ask("anything")
        assert peer.asked(frames.Subscribe) == []
        assert [message.body async for message in complete] == [b"2"]
        with pytest.raises(ConnectionLost) as caught:
            assert [message.body async for message in cut_short] == []
        assert caught.value.code == "browse-interrupted"


@pytest.mark.req("J9", "J5")
@story
async def test_browsing_is_no_part_of_a_transaction() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        session = await connection.session(acknowledge="transacted")
        browser = await session.browser("queue:a")
        deliver(peer, 1, 2)
        assert await browser.receive() is not None
        await session.commit()
        assert peer.asked(frames.Commit) == []


# ---- temporary destinations


@pytest.mark.req("J9")
@story
async def test_a_temporary_destination_ends_with_the_connection_to_the_server() -> None:
    heard: list[HeliographError] = []
    async with listening() as peer, connect(peer.url, on_error=heard.append) as connection:
        remember(peer)
        queue, topic = await connection.temporary_queue(), await connection.temporary_topic()
        assert [message.kind for message in peer.asked(frames.MakeTemporary)] == ["queue", "topic"]
        await connection.delete_temporary(topic)
        assert [message.destination for message in peer.asked(frames.DeleteTemporary)] == [topic]
        consumer = await connection.consumer(queue)
        peer.line.cut()
        await second_line(peer)
        with pytest.raises(ConnectionLost) as caught:
            await consumer.receive()
        assert caught.value.code == "temporary-gone"
        assert peer.asked(frames.Subscribe) == []
        assert [error.code for error in heard] == ["temporary-gone"]


# ---- request and reply


def reply_to(peer: Peer, *, consumer: int = 1, tag: int = 1, session: int = 1) -> None:
    """Answer the last question with its own body."""
    contents = peer.line.published[-1][2]
    assert contents.heads is not None
    question = block_head(contents)
    head = encode_head(Head(correlation_id=question.correlation_id))
    peer.line.deliver(
        block.pack_lone(contents.bodies[0], lane=LANE, sequence=tag, head=head),
        first_tag=tag,
        consumer=consumer,
        session=session,
    )


def block_head(contents: block.Contents) -> Head:
    assert contents.heads is not None
    return decode_head(contents.heads[0])


@pytest.mark.req("J9")
@story
async def test_questions_share_a_temporary_queue_and_find_their_own_replies() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        first = asyncio.create_task(connection.request("queue:ask", b"one", timeout=30))
        await peer.until(lambda: len(peer.line.published) == 1)
        second = asyncio.create_task(connection.request("queue:ask", b"two", timeout=30, type="t"))
        await peer.until(lambda: len(peer.line.published) == 2)
        [temporary] = peer.asked(frames.MakeTemporary)
        heads = [block_head(contents) for _, _, contents in peer.line.published]
        assert {head.reply_to for head in heads} == {f"queue:_temporary.{temporary.request}"}
        assert heads[1].type == "t"
        [desk] = peer.asked(frames.Subscribe)
        reply_to(peer, session=desk.number)
        assert (await second).body == b"two"
        assert not first.done()
        peer.line.published.pop()
        reply_to(peer, tag=2, session=desk.number)
        assert (await first).body == b"one"


@pytest.mark.req("J9")
@story
async def test_a_question_without_a_reply_says_so() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        with pytest.raises(Unavailable) as caught:
            await connection.request("queue:ask", b"hello?", timeout=0.05)
        assert caught.value.code == "no-reply"
        asking = asyncio.create_task(connection.request("queue:ask", b"?", timeout=30, correlation_id="mine"))
        await peer.until(lambda: len(peer.line.published) == 2)
        with pytest.raises(ClientFault):
            await connection.request("queue:ask", b"?", timeout=30, correlation_id="mine")
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


@pytest.mark.req("J9")
@story
async def test_a_refused_question_is_not_waited_for() -> None:
    async with listening() as peer, connect(peer.url, on_error=lambda _: None) as connection:
        peer.confirms = False
        asking = asyncio.create_task(connection.request("queue:ask", b"?", timeout=30))
        await peer.until(lambda: peer.line.published)
        number = peer.line.published[0][0]
        peer.line.send(frames.Refused(number, 1, 1, "not-allowed", "you may not"))
        with pytest.raises(NotAllowed):
            await asking


@pytest.mark.req("J9")
@story
async def test_a_lost_connection_loses_replies_and_the_next_question_works() -> None:
    async with listening() as peer, connect(peer.url, on_error=lambda _: None) as connection:
        remember(peer)
        asking = asyncio.create_task(connection.request("queue:ask", b"1", timeout=30))
        await peer.until(lambda: peer.line.published)
        peer.line.cut()
        with pytest.raises(ConnectionLost) as caught:
            await asking
        assert caught.value.code == "reply-lost"
        asking = asyncio.create_task(connection.request("queue:ask", b"2", timeout=30))
        await peer.until(lambda: b"2" in bodies(peer.line))
        reply_to(peer, session=peer.asked(frames.Subscribe)[-1].number)
        assert (await asking).body == b"2"


@pytest.mark.req("J9")
@story
async def test_a_reply_carries_the_correlation_id_of_its_question_or_its_id() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        consumer = await connection.consumer("queue:ask")
        heads = [
            encode_head(Head(correlation_id="c-1", reply_to="queue:replies")),
            encode_head(Head(reply_to="queue:_temporary.x")),
            b"",
        ]
        peer.line.deliver(block.pack([b"a", b"b", b"c"], lane=LANE, first=1, heads=heads), first_tag=1)
        first, second, third = await consumer.receive_batch()
        await first.reply(b"A", properties={"p": 1})
        await second.reply(b"B")
        with pytest.raises(ClientFault) as caught:
            await third.reply(b"C")
        assert caught.value.code == "reply-to-missing"
        await peer.until(lambda: len(peer.line.published) == 2)
        said = {
            contents.bodies[0]: (number, block_head(contents)) for number, _, contents in peer.line.published
        }
        assert said[b"A"][1].correlation_id == "c-1"
        assert said[b"A"][1].properties == {"p": 1}
        assert said[b"B"][1].correlation_id == second.id
        assert said[b"A"][0] == 1
        assert said[b"B"][0] != 1, "temporary queues have a session of their own"
        assert {message.destination for message in peer.asked(frames.OpenLane)} == {
            "queue:replies",
            "queue:_temporary.x",
        }


@pytest.mark.req("J9")
@story
async def test_whoever_replies_to_many_does_not_collect_them_for_ever() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        replier = Replier(connection.session, 3)
        for n in range(8):
            await replier.reply(f"queue:_temporary.{n}", b"%d" % n, {})
            await replier.reply(f"queue:_temporary.{n}", b"%d" % n, {})
        await peer.until(lambda: len(peer.asked(frames.CloseSession)) == 2)
        assert len(peer.asked(frames.OpenSession)) == 3
        await peer.until(lambda: sorted(bodies(peer.line)) == sorted([b"%d" % n for n in range(8)] * 2))


# ---- times and groups


@pytest.mark.req("J8", "J2")
@story
async def test_a_message_may_wait_for_its_time_and_belong_to_a_group() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        producer = await connection.producer("queue:a")
        now = time.time()
        await producer.send(b"later", delay=60)
        await producer.send(b"then", deliver_at=now + 3600)
        await producer.send(b"now", group_id="g", group_sequence=7)
        await producer.flush()
        times, heads = [], []
        for _, _, contents in peer.line.published:
            times += contents.delivery_times or [contents.delivery_time] * contents.count
            heads += contents.heads or [b""] * contents.count
        assert 59e6 < times[0] - now * 1e6 < 120e6
        assert times[1] == int((now + 3600) * 1e6)
        assert times[2] == 0
        group = decode_head(heads[2])
        assert (group.group_id, group.group_sequence) == ("g", 7)


@pytest.mark.req("J8")
@story
async def test_a_producer_may_delay_all_its_messages() -> None:
    async with listening() as peer, connect(peer.url) as connection:
        producer = await connection.producer("queue:a", delay=60)
        for _ in range(3):
            await producer.send(b"later")
        await producer.send(b"now", delay=0)
        await producer.send_confirmed(b"at", deliver_at=5.0)
        times = [
            moment
            for _, _, contents in peer.line.published
            for moment in contents.delivery_times or [contents.delivery_time] * contents.count
        ]
        assert all(moment > time.time() * 1e6 for moment in times[:3])
        assert times[3:] == [0, 5_000_000]
        for wrong in ({"delay": -1.0}, {"delay": 1.0, "deliver_at": 1.0}, {"deliver_at": float("inf")}):
            with pytest.raises(ClientFault) as caught:
                await producer.send(b"never", **wrong)  # type: ignore[arg-type]
            assert caught.value.code == "delay-invalid"
