"""Subscriptions to many topics on a real server (M12)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import heliograph
from heliograph import Connection, Consumer, HeliographError
from heliograph.nodes.users import UserStore
from tests.servers import ServerProcess, embedded, play, until, url_of
from tests.suites.exchange import receive_all
from tests.suites.test_command_line import serving

pytestmark = pytest.mark.req("M12")


async def publish(connection: Connection, topic: str, *bodies: bytes) -> None:
    producer = await connection.producer(topic)
    for body in bodies:
        await producer.send(body)
    await producer.flush()


async def received(consumer: Consumer, count: int) -> list[tuple[str, object]]:
    """Topic and body of the next messages; that no more came is up to the test."""
    return [(message.destination, message.body) for message in await receive_all(consumer, count)]


@pytest.mark.parametrize("pattern", ["topic:glob:prices.*", "topic:regex:^prices[.](eu|us)$"])
def test_a_pattern_hears_topics_that_exist_and_topics_to_come(tmp_path: Path, pattern: str) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await publish(connection, "topic:prices.eu", b"before")
            consumer = await connection.consumer(pattern)
            await publish(connection, "topic:prices.eu", b"1", b"2")
            await publish(connection, "topic:prices.us", b"3")  # made by this
            await publish(connection, "topic:weather.eu", b"rain")
            await publish(connection, "queue:prices.eu", b"a queue")
            await publish(connection, "topic:prices.eu", b"4")
            assert await received(consumer, 4) == [
                ("topic:prices.eu", b"1"),
                ("topic:prices.eu", b"2"),
                ("topic:prices.us", b"3"),
                ("topic:prices.eu", b"4"),
            ]
            assert await consumer.receive(timeout=0.1) is None
            await consumer.close()
            figures = await connection.ask("destination.show", destination="topic:prices.eu")
            assert (figures["consumers"], figures["subscriptions"]) == (0, 0)

    play(story())


def test_a_pattern_reaches_the_servers_own_topics_only_when_it_spells_them(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            everything = await connection.consumer("topic:glob:*")
            log = await connection.consumer("topic:glob:_LO?")
            await publish(connection, "topic:a", b"1")
            assert await received(everything, 1) == [("topic:a", b"1")]
            assert await everything.receive(timeout=0.1) is None
            message = await log.receive(timeout=30)
            assert message is not None
            assert message.destination == "topic:_LOG"

    play(story())


@pytest.mark.req("X2")
def test_topics_that_a_user_may_not_receive_from_are_left_out(tmp_path: Path) -> None:
    users = UserStore.load(tmp_path / "data" / "users.toml")
    users.add("root", "root secret", ["admin"])
    users.add("ann", "ann secret", ["clerk"])
    with users.path.open("a", encoding="utf-8") as stream:
        stream.write('[[access]]\nroles = ["clerk"]\ndestinations = "topic:open.*"\nrights = ["receive"]\n')

    async def story() -> None:
        async with embedded(tmp_path) as server:
            url = url_of(server)
            async with (
                heliograph.connect(url, user="root", password="root secret") as root,
                heliograph.connect(url, user="ann", password="ann secret") as ann,
            ):
                await publish(root, "topic:secret.a", b"0")
                consumer = await ann.consumer("topic:glob:*")
                await publish(root, "topic:secret.a", b"1")
                await publish(root, "topic:secret.b", b"2")
                await publish(root, "topic:open.a", b"3")
                assert await received(consumer, 1) == [("topic:open.a", b"3")]
                assert await consumer.receive(timeout=0.1) is None

    play(story())


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            embedded(tmp_path) as server,
            heliograph.connect(url_of(server), client_id="c") as connection,
        ):

            async def code(work: object) -> str:
                with pytest.raises(HeliographError) as refusal:
                    await work  # type: ignore[misc]
                return refusal.value.code

            assert await code(connection.consumer("queue:glob:a*")) == "pattern-invalid"
            assert await code(connection.consumer("topic:regex:(")) == "pattern-invalid"
            assert await code(connection.consumer("topic:glob:")) == "pattern-invalid"
            assert await code(connection.producer("topic:glob:a*")) == "pattern-invalid"
            assert await code(connection.browse("topic:glob:a*")) == "browse-invalid"
            assert await code(connection.consumer("topic:glob:a*", selector="x =")) == "selector-invalid"

    play(story())


@pytest.mark.req("J6")
def test_a_durable_pattern_keeps_what_comes_while_its_client_is_away_of_new_topics_too(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with (
            embedded(tmp_path) as server,
            heliograph.connect(url_of(server), client_id="c") as connection,
        ):
            await publish(connection, "topic:prices.eu", b"before")
            await connection.consumer("topic:glob:prices.*", durable="d")
            await publish(connection, "topic:prices.us", b"1")
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as other:
            await publish(other, "topic:prices.us", b"2")
            await publish(other, "topic:prices.asia", b"3")  # made while its client is away
            await publish(other, "topic:weather.asia", b"sun")
        async with (
            embedded(tmp_path) as server,
            heliograph.connect(url_of(server), client_id="c") as connection,
        ):
            consumer = await connection.consumer("topic:glob:prices.*", durable="d")
            got = sorted(await received(consumer, 3))
            assert got == [("topic:prices.asia", b"3"), ("topic:prices.us", b"1"), ("topic:prices.us", b"2")]
            assert await consumer.receive(timeout=0.1) is None
            await consumer.close()
            await connection.unsubscribe("d")
            await publish(connection, "topic:prices.asia", b"4")
            await publish(connection, "topic:prices.africa", b"5")
            consumer = await connection.consumer("topic:glob:prices.*", durable="d")
            assert await consumer.receive(timeout=0.1) is None

    play(story())


@pytest.mark.req("J6")
def test_consumers_share_a_pattern(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server:
            url = url_of(server)
            async with heliograph.connect(url) as one, heliograph.connect(url) as two:
                await publish(one, "topic:work.a", b"before")
                consumers = [await each.consumer("topic:glob:work.*", shared="s") for each in (one, two)]
                await publish(one, "topic:work.a", b"1", b"2")
                await publish(two, "topic:work.b", b"3", b"4")
                bodies: list[object] = []
                while len(bodies) < 4:
                    for consumer in consumers:
                        message = await consumer.receive(timeout=0.05)
                        bodies += [message.body] if message is not None else []
                assert sorted(map(str, bodies)) == ["b'1'", "b'2'", "b'3'", "b'4'"]
                assert [await each.receive(timeout=0.05) for each in consumers] == [None, None]

    play(story())


@pytest.mark.req("J7", "J9")
def test_selector_and_no_local_hold_for_every_topic(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server:
            url = url_of(server)
            async with heliograph.connect(url) as one, heliograph.connect(url) as two:
                consumer = await one.consumer("topic:glob:t.*", selector="n > 1", no_local=True)
                for connection in (one, two):
                    for topic in ("topic:t.a", "topic:t.b"):
                        producer = await connection.producer(topic)
                        for n in (1, 2):
                            await producer.send_confirmed(b"%d" % n, properties={"n": n})
                assert await received(consumer, 2) == [("topic:t.a", b"2"), ("topic:t.b", b"2")]
                assert await consumer.receive(timeout=0.1) is None

    play(story())


@pytest.mark.req("J4")
def test_acknowledgements_find_their_topics_and_the_rest_comes_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            session = await connection.session(acknowledge="individual")
            consumer = await session.consumer("topic:glob:t.*")
            for n in range(3):
                await publish(connection, "topic:t.a", b"a%d" % n)
                await publish(connection, "topic:t.b", b"b%d" % n)
            messages = [await consumer.receive(timeout=30) for _ in range(6)]
            assert [message.body for message in messages if message] == [
                b"a0",
                b"b0",
                b"a1",
                b"b1",
                b"a2",
                b"b2",
            ]
            for index in (4, 0, 3):
                message = messages[index]
                assert message is not None
                await message.acknowledge(confirm=True)
            await session.recover()
            again = [await consumer.receive(timeout=30) for _ in range(3)]
            assert sorted((m.destination, m.body, m.redelivered) for m in again if m) == [
                ("topic:t.a", b"a1", True),
                ("topic:t.b", b"b0", True),
                ("topic:t.b", b"b2", True),
            ]
            rejected = again[0]
            assert rejected is not None
            await rejected.reject("once more")
            third = await consumer.receive(timeout=30)
            assert third is not None
            assert (third.body, third.delivery_count) == (rejected.body, 3)

    play(story())


@pytest.mark.req("J5")
def test_a_transaction_over_many_topics(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            session = await connection.session(acknowledge="transacted")
            consumer = await session.consumer("topic:glob:t.*", credit=10)
            producer = await session.producer("queue:out")
            topics = ["topic:t.a", "topic:t.b", "topic:t.c"]
            for round_ in range(10):
                for topic in topics:
                    await publish(connection, topic, b"%d" % round_)
            first = await received(consumer, 5)
            await session.rollback()
            seen: list[tuple[str, object]] = []
            for _ in range(6):  # more than its credit, five at a time
                seen += await received(consumer, 5)
                await producer.send(b"done")
                await session.commit()
            assert sorted(seen) == sorted((topic, b"%d" % n) for topic in topics for n in range(10))
            assert set(first) <= set(seen)
            for topic in topics:
                assert [body for where, body in seen if where == topic] == [b"%d" % n for n in range(10)]
            out = await connection.consumer("queue:out")
            assert len(await received(out, 6)) == 6
            assert await consumer.receive(timeout=0.1) is None

    play(story())


def test_the_clients_credit_holds_for_all_topics_together(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            session = await connection.session(acknowledge="client")
            consumer = await session.consumer("topic:glob:t.*", credit=10)
            for n in range(20):
                await publish(connection, f"topic:t.{n}", *[b"%d" % m for m in range(50)])
            first = await consumer.receive_batch(1000, timeout=30)
            while len(first) < 10:
                first += await consumer.receive_batch(1000, timeout=30)
            assert len(first) == 10
            assert await consumer.receive_batch(1, timeout=0.1) == []
            messages = [*first]
            while len(messages) < 1000:
                await session.acknowledge()
                batch = await consumer.receive_batch(1000, timeout=30)
                assert 0 < len(batch) <= 10
                messages += batch
            for n in range(20):
                bodies = [m.body for m in messages if m.destination == f"topic:t.{n}"]
                assert bodies == [b"%d" % m for m in range(50)]

    play(story())


def test_a_busy_topic_does_not_starve_the_others(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            session = await connection.session(acknowledge="client")
            consumer = await session.consumer("topic:glob:t.*", credit=100)
            await publish(connection, "topic:t.busy", *[b"x"] * 5000)
            await publish(connection, "topic:t.quiet", b"here")
            seen = 0
            while True:
                batch = await consumer.receive_batch(100, timeout=30)
                assert batch
                await session.acknowledge()
                seen += len(batch)
                if any(message.destination == "topic:t.quiet" for message in batch):
                    break
            assert seen < 500

    play(story())


def test_a_topic_that_is_deleted_leaves_the_others_and_may_come_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            session = await connection.session(acknowledge="client")
            consumer = await session.consumer("topic:glob:t.*", credit=8)
            await publish(connection, "topic:t.a", b"1", b"2")
            await publish(connection, "topic:t.b", b"3")
            assert len(await received(consumer, 3)) == 3
            await connection.ask("destination.delete", destination="topic:t.a", force=True)
            await session.acknowledge(confirm=True)  # of messages whose topic is gone, too
            async with heliograph.connect(url_of(server)) as other:
                await publish(other, "topic:t.b", b"4")
                await publish(other, "topic:t.a", *[b"%d" % n for n in range(5, 20)])
            found: list[tuple[str, object]] = []
            while len(found) < 16:
                found += await received(consumer, 1)
                await session.acknowledge()
            assert found[0] == ("topic:t.b", b"4")
            assert found[1:] == [("topic:t.a", b"%d" % n) for n in range(5, 20)]

    play(story())


@pytest.mark.crash
@pytest.mark.req("M8")
def test_after_a_restart_the_pattern_is_subscribed_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            ServerProcess(tmp_path) as server,
            heliograph.connect(server.url) as one,
            heliograph.connect(server.url) as two,
        ):
            consumer = await one.consumer("topic:glob:t.*")
            await publish(two, "topic:t.a", b"1")
            assert await received(consumer, 1) == [("topic:t.a", b"1")]
            await server.restart()
            await until(lambda: one.is_alive() and two.is_alive(), "both are back")
            await one.ask("server")  # answered when the connection and its consumers are there again
            await publish(two, "topic:t.a", b"2")
            await publish(two, "topic:t.b", b"3")
            assert await received(consumer, 2) == [("topic:t.a", b"2"), ("topic:t.b", b"3")]

    play(story())


def test_many_wildcards_and_topics_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server:
            url = url_of(server)
            async with heliograph.connect(url) as sender, heliograph.connect(url) as receiver:
                consumers = [await receiver.consumer(f"topic:glob:*.{n}") for n in range(5)]
                everything = await receiver.consumer("topic:glob:*", credit=50)
                for n in range(5):
                    for kind in ("a", "b"):
                        await publish(sender, f"topic:{kind}.{n}", *[b"%d" % m for m in range(100)])
                results = await asyncio.gather(*(received(consumer, 200) for consumer in consumers))
                for n, found in enumerate(results):
                    assert {topic for topic, _ in found} == {f"topic:a.{n}", f"topic:b.{n}"}
                assert len(await received(everything, 1000)) == 1000

    play(story())


@pytest.mark.slow
@pytest.mark.req("X4")
def test_receiving_from_many_topics_at_the_command_line(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        receiver = server.start(
            "receive", "topic:glob:prices.*", "--json", "--count", "2", "--timeout", "120"
        )
        try:
            deadline = 100
            while not server.run("admin", "sessions", "--json").stdout.count(b'"session"'):
                deadline -= 1
                assert deadline, "the receiver never came"
            server.run("admin", "destination", "create", "topic:prices.eu")
            for _ in range(100):
                if server.destination("topic:prices.eu").get("consumers"):
                    break
            server.run("send", "topic:prices.eu", "1")
            server.run("send", "topic:prices.us", "2")
            output, _ = receiver.communicate(timeout=150)
        finally:
            receiver.kill()
        assert [line.count(b"topic:prices.") for line in output.splitlines()] == [1, 1]
