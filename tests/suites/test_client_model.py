"""The messaging model through the client library, against a real server: what an application sees."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph import ClientFault, ConnectionLost, HeliographError, TransactionRolledBack, Unavailable
from heliograph.client import Consumer
from heliograph.nodes.configuration import load
from heliograph.nodes.embedded import EmbeddedServer
from tests.servers import embedded, play, url_of

pytestmark = pytest.mark.req("J12")


async def bodies_of(consumer: Consumer, count: int) -> list[Any]:
    return [message.body for message in await some(consumer, count)]


async def some(consumer: Consumer, count: int) -> list[heliograph.Message]:
    messages: list[heliograph.Message] = []
    while len(messages) < count:
        batch = await consumer.receive_batch(count - len(messages), timeout=10)
        assert batch, f"{len(messages)} of {count} messages came"
        messages += batch
    return messages


async def send(connection: heliograph.Connection, destination: str, *bodies: bytes, **options: Any) -> None:
    producer = await connection.producer(destination)
    for body in bodies:
        await producer.send(body, **options)
    await producer.flush()


async def send_until_refused(producer: heliograph.Producer) -> None:
    """The server may not have seen yet that a connection is gone."""
    for _ in range(500):
        await producer.send_confirmed(b"too late")
        await asyncio.sleep(0.01)


async def waiting_in(connection: heliograph.Connection, queue: str) -> list[Any]:
    return [message.body async for message in await connection.browse(queue)]


def cut(connection: heliograph.Connection) -> None:
    """The network takes the connection away."""
    wire = connection._link.wire
    assert wire is not None
    assert wire._transport is not None
    wire._transport.abort()


# ---- transactions


@pytest.mark.req("J5")
def test_sends_and_receives_of_a_transaction_take_effect_together(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await send(connection, "queue:in", b"1", b"2", b"3")
            session = await connection.session(acknowledge="transacted")
            consumer = await session.consumer("queue:in")
            producer = await session.producer("queue:out")
            told: list[HeliographError | None] = []
            for message in await some(consumer, 2):
                await producer.send(f"{message.text}!", on_completion=told.append)
            assert await waiting_in(connection, "queue:out") == []
            await session.commit()
            assert told == [None, None]
            assert await waiting_in(connection, "queue:out") == ["1!", "2!"]
            await session.close()
            rest = await some(await connection.consumer("queue:in"), 1)
            assert [message.body for message in rest] == [b"3"]

    play(story())


@pytest.mark.req("J5")
def test_a_rollback_returns_what_was_received_and_drops_what_was_sent(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            session = await connection.session(acknowledge="transacted")
            queue = await session.consumer("queue:in")
            topic = await session.consumer("topic:in")
            await send(connection, "queue:in", *[b"%d" % n for n in range(1000)])
            await send(connection, "topic:in", *[b"%d" % n for n in range(10)])
            producer = await session.producer("queue:out")
            for attempt in range(3):
                from_queue, from_topic = await some(queue, 700), await some(topic, 5)
                assert [message.body for message in from_queue] == [b"%d" % n for n in range(700)]
                assert [message.body for message in from_topic] == [b"%d" % n for n in range(5)]
                assert from_queue[0].redelivered == (attempt > 0)
                await producer.send(b"attempt %d" % attempt)
                if attempt < 2:
                    await session.rollback()
            await session.commit()
            assert await bodies_of(queue, 300) == [b"%d" % n for n in range(700, 1000)]
            assert await bodies_of(topic, 5) == [b"%d" % n for n in range(5, 10)]
            assert await waiting_in(connection, "queue:out") == [b"attempt 2"]

    play(story())


@pytest.mark.req("J5")
def test_a_rollback_in_the_midst_of_deliveries_doubles_and_loses_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            embedded(tmp_path) as server,
            heliograph.connect(url_of(server)) as connection,
            heliograph.connect(url_of(server)) as other,
        ):

            async def produce() -> None:
                producer = await other.producer("queue:in")
                for n in range(5000):
                    await producer.send(b"%d" % n)
                    if n % 50 == 0:
                        await asyncio.sleep(0)
                await producer.flush()

            producing = asyncio.create_task(produce())
            session = await connection.session(acknowledge="transacted")
            consumers = [await session.consumer("queue:in", credit=64) for _ in range(2)]
            done: list[int] = []
            step = 0
            while len(done) < 5000:
                step += 1
                taken: list[int] = []
                for consumer in consumers:
                    batch = await consumer.receive_batch(17, timeout=0.2)
                    taken += [int(message.body) for message in batch]  # type: ignore[arg-type]
                if step % 3:
                    await session.commit()
                    done += taken
                else:
                    await session.rollback()
            await producing
            assert sorted(done) == list(range(5000))
            await session.close()
            assert await waiting_in(connection, "queue:in") == []

    play(story())


@pytest.mark.req("J5")
def test_a_consumer_closed_in_a_transaction_belongs_to_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await send(connection, "queue:in", b"1", b"2")
            session = await connection.session(acknowledge="transacted")
            for decide in (session.rollback, session.commit):
                async with await session.consumer("queue:in") as consumer:
                    assert await bodies_of(consumer, 1) == [b"1"]
                await decide()
            assert await bodies_of(await connection.consumer("queue:in"), 1) == [b"2"]

    play(story())


@pytest.mark.req("J5")
def test_an_open_transaction_is_gone_when_its_session_is_closed(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await send(connection, "queue:in", b"1")
            async with await connection.session(acknowledge="transacted") as session:
                producer = await session.producer("queue:out")
                await producer.send(b"never")
                assert await bodies_of(await session.consumer("queue:in"), 1) == [b"1"]
            assert await waiting_in(connection, "queue:in") == [b"1"]
            assert await waiting_in(connection, "queue:out") == []

    play(story())


@pytest.mark.req("J5", "M8")
def test_a_lost_connection_rolls_back_the_open_transaction_and_the_session_goes_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await send(connection, "queue:in", b"1", b"2")
            session = await connection.session(acknowledge="transacted")
            consumer = await session.consumer("queue:in")
            producer = await session.producer("queue:out")
            await producer.send(b"first")
            await session.commit()
            assert await bodies_of(consumer, 1) == [b"1"]
            await producer.send(b"lost")
            await producer.flush()
            cut(connection)
            with pytest.raises(TransactionRolledBack):
                await session.commit()
            again = await some(consumer, 2)
            seen = [(message.body, message.redelivered) for message in again]
            assert seen == [(b"1", True), (b"2", False)], "only the first was seen"
            await producer.send(b"second")
            await session.commit()
            assert await waiting_in(connection, "queue:out") == [b"first", b"second"]
            assert await waiting_in(connection, "queue:in") == []

    play(story())


@pytest.mark.req("J5", "M8")
@pytest.mark.parametrize("after_turns", range(8))
def test_a_commit_cut_off_at_any_moment_happens_once_or_not_at_all(tmp_path: Path, after_turns: int) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await send(connection, "queue:in", *[b"%d" % n for n in range(10)])
            session = await connection.session(acknowledge="transacted")
            consumer = await session.consumer("queue:in")
            producer = await session.producer("queue:out")
            for message in await some(consumer, 4):
                await producer.send(message.body)
            committing = asyncio.create_task(session.commit())
            for _ in range(after_turns):
                await asyncio.sleep(0)
            cut(connection)
            try:
                await committing
                took_effect = True
            except TransactionRolledBack:
                took_effect = False
            copied = [b"0", b"1", b"2", b"3"] if took_effect else []
            assert await waiting_in(connection, "queue:out") == copied
            rest = await some(consumer, 10 - len(copied))
            assert [message.body for message in rest] == [b"%d" % n for n in range(len(copied), 10)]
            await producer.send(b"more")
            await session.commit()
            assert await waiting_in(connection, "queue:out") == [*copied, b"more"]

    play(story())


@pytest.mark.req("J5", "M8")
def test_a_commit_outlives_the_server(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server:
            _, port = server.address
            connection = await heliograph.connect(url_of(server))
            session = await connection.session(acknowledge="transacted")
            producer = await session.producer("queue:out")
            for n in range(100):
                await producer.send(b"%d" % n)
            await session.commit()
            await producer.send(b"lost")
            await producer.flush()
            await server.stop()
        again = EmbeddedServer(load(None, {"server.port": port, "server.data": str(tmp_path / "data")}))
        await again.start()
        try:
            with pytest.raises(TransactionRolledBack):
                await session.commit()
            await producer.send(b"kept")
            await session.commit()
            assert await waiting_in(connection, "queue:out") == [*[b"%d" % n for n in range(100)], b"kept"]
            await connection.close()
        finally:
            await again.stop()

    play(story())


# ---- acknowledging and giving back


@pytest.mark.req("J4")
@pytest.mark.parametrize("mode", ["auto", "client", "individual", "dups-ok"])
def test_recover_brings_back_what_is_not_acknowledged_in_order_and_marked(tmp_path: Path, mode: Any) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await send(connection, "queue:a", *[b"%d" % n for n in range(6)])
            session = await connection.session(acknowledge=mode)
            consumer = await session.consumer("queue:a")
            first = await consumer.receive(30)
            assert first is not None
            await first.acknowledge()
            second = await consumer.receive(30)
            assert second is not None
            await session.recover()
            again = await some(consumer, 5)
            assert [(message.body, message.redelivered) for message in again] == [
                (b"%d" % n, n == 1)
                for n in range(1, 6)  # the others were only sent ahead
            ]
            for message in again:
                await message.acknowledge()
            await consumer.close()
            await session.close()
            assert await waiting_in(connection, "queue:a") == []

    play(story())


@pytest.mark.req("J4")
def test_what_is_given_back_comes_again_and_counts(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await send(connection, "queue:a", b"bad", b"good")
            seen: list[tuple[Any, int]] = []
            async for message in await connection.consumer("queue:a"):
                seen.append((message.body, message.delivery_count))
                if message.body == b"bad" and message.delivery_count < 3:
                    await message.reject("cannot be parsed")
                if len(seen) == 4:
                    break
            assert sorted(seen) == [(b"bad", 1), (b"bad", 2), (b"bad", 3), (b"good", 1)]

    play(story())


@pytest.mark.req("J4")
def test_lazy_acknowledgements_arrive(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            session = await connection.session(acknowledge="dups-ok")
            consumer = await session.consumer("queue:a", credit=100)
            producer = await connection.producer("queue:a")
            for n in range(1000):
                await producer.send(b"%d" % n)
            assert await bodies_of(consumer, 1000) == [b"%d" % n for n in range(1000)]
            assert await consumer.receive(timeout=0.3) is None
            cut(connection)
            assert await consumer.receive(timeout=0.3) is None

    play(story())


# ---- subscriptions


@pytest.mark.req("J6")
def test_a_durable_subscription_keeps_messages_while_nobody_is_there(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as sender:
            for expected in (b"1", b"2"):
                async with heliograph.connect(url_of(server), client_id="ada") as connection:
                    consumer = await connection.consumer("topic:news", durable="mine")
                    if expected == b"1":
                        await send(sender, "topic:news", b"1")
                    assert await bodies_of(consumer, 1) == [expected]
                    await consumer.close()
                await send(sender, "topic:news", b"2")
            async with heliograph.connect(url_of(server), client_id="ada") as connection:
                consumer = await connection.consumer("topic:news", durable="mine")
                assert await bodies_of(consumer, 1) == [b"2"]
                with pytest.raises(ClientFault) as caught:
                    await connection.unsubscribe("mine")
                assert caught.value.code == "subscription-in-use"
                await consumer.close()
                await connection.unsubscribe("mine")
                with pytest.raises(ClientFault) as caught:
                    await connection.unsubscribe("mine")
                assert caught.value.code == "subscription-unknown"
            with pytest.raises(ClientFault) as caught:
                await sender.consumer("topic:news", durable="mine")
            assert caught.value.code == "client-id-missing"

    play(story())


@pytest.mark.req("J6", "M8")
def test_subscriptions_go_on_after_a_lost_connection(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            embedded(tmp_path) as server,
            heliograph.connect(url_of(server)) as sender,
            heliograph.connect(url_of(server), client_id="ada") as connection,
        ):
            durable = await connection.consumer("topic:news", durable="d", selector="n > 1")
            shared = await connection.consumer("topic:news", durable="s", shared=True)
            cut(connection)
            await send(sender, "topic:news", b"1", properties={"n": 1})
            await send(sender, "topic:news", b"2", properties={"n": 2})
            assert await bodies_of(durable, 1) == [b"2"]
            assert await bodies_of(shared, 2) == [b"1", b"2"]

    play(story())


@pytest.mark.req("J6")
def test_consumers_of_a_shared_subscription_split_its_messages(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            embedded(tmp_path) as server,
            heliograph.connect(url_of(server)) as one,
            heliograph.connect(url_of(server)) as two,
        ):
            consumers = [
                await connection.consumer("topic:work", shared="team", credit=10) for connection in (one, two)
            ]
            alone = await one.consumer("topic:work")
            await send(one, "topic:work", *[b"%d" % n for n in range(100)])
            seen: list[Any] = []
            while len(seen) < 100:
                for consumer in consumers:
                    seen += [message.body for message in await consumer.receive_batch(timeout=0.1)]
            assert sorted(seen) == sorted(b"%d" % n for n in range(100))
            assert await bodies_of(alone, 100) == [b"%d" % n for n in range(100)]

    play(story())


@pytest.mark.req("J9")
def test_no_local_leaves_out_what_the_connection_itself_sent(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            embedded(tmp_path) as server,
            heliograph.connect(url_of(server)) as one,
            heliograph.connect(url_of(server)) as two,
        ):
            consumer = await one.consumer("topic:talk", no_local=True)
            await send(one, "topic:talk", b"mine")
            await send(two, "topic:talk", b"yours")
            assert await bodies_of(consumer, 1) == [b"yours"]

    play(story())


# ---- browsing, temporary destinations, questions


@pytest.mark.req("J9")
def test_browsing_shows_all_and_takes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            every = [b"%d" % n for n in range(25_000)]
            await send(connection, "queue:a", *every)
            assert await waiting_in(connection, "queue:a") == every
            assert await waiting_in(connection, "queue:a") == every
            assert await waiting_in(connection, "queue:empty") == []
            assert await bodies_of(await connection.consumer("queue:a"), 25_000) == every

    play(story())


@pytest.mark.req("J9")
def test_a_question_gets_its_reply(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            embedded(tmp_path) as server,
            heliograph.connect(url_of(server)) as asker,
            heliograph.connect(url_of(server)) as answerer,
        ):

            async def answer() -> None:
                async for question in await answerer.consumer("queue:square"):
                    assert isinstance(question.body, dict)
                    await question.reply({"is": question.body["n"] ** 2})

            answering = asyncio.create_task(answer())
            replies = await asyncio.gather(
                *[asker.request("queue:square", {"n": n}, timeout=30) for n in range(50)]
            )
            assert [reply.body for reply in replies] == [{"is": n**2} for n in range(50)]
            answering.cancel()
            with pytest.raises(Unavailable) as caught:
                await asker.request("queue:nobody", b"?", timeout=0.05)
            assert caught.value.code == "no-reply"

    play(story())


@pytest.mark.req("J9")
def test_temporary_queues_belong_to_their_connection_and_end_with_it(tmp_path: Path) -> None:
    async def story() -> None:
        heard: list[HeliographError] = []
        async with (
            embedded(tmp_path) as server,
            heliograph.connect(url_of(server), on_error=heard.append) as other,
        ):
            async with heliograph.connect(url_of(server)) as connection:
                address = await connection.temporary_queue()
                consumer = await connection.consumer(address)
                with pytest.raises(HeliographError) as caught:
                    await other.consumer(address)
                assert caught.value.code == "not-allowed"
                producer = await other.producer(address)
                await producer.send_confirmed(b"hello")
                assert await bodies_of(consumer, 1) == [b"hello"]
                topic = await connection.temporary_topic()
                await connection.delete_temporary(topic)
            with pytest.raises(HeliographError):
                await send_until_refused(producer)

    play(story())


@pytest.mark.req("J9", "M8")
def test_questions_work_again_after_a_lost_connection(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            embedded(tmp_path) as server,
            heliograph.connect(url_of(server), on_error=lambda _: None) as asker,
            heliograph.connect(url_of(server), on_error=lambda _: None) as answerer,
        ):

            async def answer() -> None:
                async for question in await answerer.consumer("queue:echo"):
                    if question.body != b"silence":
                        await question.reply(question.body)

            answering = asyncio.create_task(answer())
            assert (await asker.request("queue:echo", b"1", timeout=30)).body == b"1"
            asking = asyncio.create_task(asker.request("queue:echo", b"silence", timeout=30))
            await asyncio.sleep(0.05)
            cut(asker)
            with pytest.raises(ConnectionLost):
                await asking
            assert (await asker.request("queue:echo", b"2", timeout=30)).body == b"2"
            answering.cancel()

    play(story())


# ---- time


@pytest.mark.req("J8")
def test_delayed_messages_come_when_it_is_time(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            consumer = await connection.consumer("queue:a")
            producer = await connection.producer("queue:a", delay=2.0)
            begun = time.time()
            await producer.send(b"last")
            await producer.send(b"middle", deliver_at=begun + 1.0)
            await producer.send(b"first", delay=0, group_id="g", group_sequence=2)
            messages = await some(consumer, 3)
            assert [message.body for message in messages] == [b"first", b"middle", b"last"]
            assert time.time() - begun >= 2.0
            assert (messages[0].delivery_time, messages[0].group_id, messages[0].group_sequence) == (
                0,
                "g",
                2,
            )
            assert abs(messages[1].delivery_time - begun - 1.0) < 0.001
            assert 2.0 <= messages[2].delivery_time - begun < 7

    play(story())


# ---- the blocking face


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on a thread of its own, for stories that block."""
    folder = tmp_path_factory.mktemp("blocking")
    ready: queue.Queue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    async def serve() -> None:
        async with embedded(folder) as server:
            over = asyncio.Event()
            ready.put((url_of(server), asyncio.get_running_loop(), over))
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    address, loop, over = ready.get(timeout=30)
    yield address
    loop.call_soon_threadsafe(over.set)
    thread.join(30)


@pytest.mark.req("J5", "J9")
def test_transactions_without_await(url: str) -> None:
    with heliograph.connect_blocking(url) as connection, heliograph.connect_blocking(url) as other:
        session = connection.session(acknowledge="transacted")
        producer = session.producer("queue:a")
        every = [b"%d" % n for n in range(3000)]
        for decide in (session.rollback, session.commit):
            assert list(other.browse("queue:a")) == []
            for body in every:
                producer.send(body)
            decide()
        assert [message.body for message in other.browse("queue:a")] == every
        consumer = session.consumer("queue:a")
        for attempt, decide in enumerate((session.rollback, session.commit)):
            message = consumer.receive(30)
            assert message is not None
            assert (message.body, message.redelivered) == (b"0", attempt > 0)
            decide()
        with pytest.raises(ClientFault):
            producer.send_confirmed(b"1")
        with pytest.raises(ClientFault):
            connection.session().commit()


@pytest.mark.req("J4")
def test_giving_back_without_await(url: str) -> None:
    with heliograph.connect_blocking(url) as connection:
        producer = connection.producer("queue:b")
        for n in range(3):
            producer.send(b"%d" % n)
        producer.flush()
        session = connection.session(acknowledge="client")
        consumer = session.consumer("queue:b")
        assert consumer.receive(30) is not None
        session.recover()
        for message in consumer:
            assert (message.body, message.redelivered) == (b"0", True)
            message.acknowledge(confirm=True)
            break
        message_1 = consumer.receive(30)
        assert message_1 is not None
        message_1.reject("not today")
        batch = [consumer.receive(30), consumer.receive(30)]
        assert sorted(message.text for message in batch if message is not None) == ["1", "2"]


@pytest.mark.req("J6", "J7")
def test_subscriptions_without_await(url: str) -> None:
    with heliograph.connect_blocking(url, client_id="grace") as connection:
        connection.consumer("topic:t", durable="d", selector="n = 2").close()
        producer = connection.producer("topic:t")
        for n in (1, 2):
            producer.send(b"%d" % n, properties={"n": n})
        producer.flush()
        with connection.consumer("topic:t", durable="d", selector="n = 2") as consumer:
            message = consumer.receive(30)
            assert message is not None
            assert message.body == b"2"
        connection.unsubscribe("d")


@pytest.mark.req("J8", "J9")
def test_questions_and_delays_without_await(url: str) -> None:
    with heliograph.connect_blocking(url) as connection, heliograph.connect_blocking(url) as other:
        questions = other.consumer("queue:ask")

        def answer() -> None:
            question = questions.receive(30)
            assert question is not None
            question.reply(f"{question.text}!")

        answering = threading.Thread(target=answer)
        answering.start()
        assert connection.request("queue:ask", "really", timeout=30).body == "really!"
        answering.join(60)
        with pytest.raises(Unavailable):
            connection.request("queue:silent", b"?", timeout=0.05)
        address = connection.temporary_queue()
        delayed = connection.producer(address, delay=0.1)
        delayed.send(b"late")
        with connection.consumer(address) as consumer:
            message = consumer.receive(30)
            assert message is not None
            assert message.delivery_time > message.timestamp
        connection.delete_temporary(address)
        connection.delete_temporary(connection.temporary_topic())
