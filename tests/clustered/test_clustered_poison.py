"""Messages that nobody can process are set aside, whatever a producer sends, and the consumer goes on (H1, H4)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.clustered import Adapter, ClusteredConsumer, ClusteredMessage, Delivery, Terms
from heliograph.clustered.adapter import made
from heliograph.clustered.on_kafka import Kafka
from heliograph.clustered.on_rabbitmq import RabbitMQ
from heliograph.clustered.on_redis import RedisChannel
from tests.clustered.middleware import ALL, needs
from tests.servers import play, until

TERMS = Terms(lease_seconds=1.5, skew_seconds=0.1)


class Told:
    """What one member did and was told."""

    def __init__(self) -> None:
        self.done: list[bytes] = []
        self.poison: list[tuple[bytes, str]] = []

    async def handle(self, message: ClusteredMessage) -> None:
        self.done.append(message.body)

    def on_poison(self, delivery: Delivery, reason: str) -> None:
        self.poison.append((delivery.body, reason))
        raise RuntimeError("the application's own fault")

    def consumer(self, adapter: Callable[[], Adapter]) -> ClusteredConsumer:
        return ClusteredConsumer(
            adapter,
            cluster="billing",
            name="ada",
            handler=self.handle,
            fields=["property:unit"],
            on_poison=self.on_poison,
            terms=TERMS,
        )


@pytest.mark.slow
@pytest.mark.timeout(90)
@needs("rabbitmq")
@pytest.mark.req("H1", "H4")
def test_messages_without_an_id_or_with_strange_headers_are_set_aside(tmp_path: Path) -> None:
    middleware = ALL["rabbitmq"]
    told = Told()

    async def story() -> None:
        import aio_pika

        def adapter(url: str) -> Adapter:
            return RabbitMQ(url, "orders", identity=lambda message: str(message.headers["order"]))

        async with middleware.running(tmp_path) as url, told.consumer(lambda: adapter(url)) as consumer:
            await until(lambda: bool(consumer.ranges), "ada owns everything", 30)
            async with await aio_pika.connect(url) as connection:
                channel = await connection.channel()
                exchange = await channel.get_exchange("orders")

                async def publish(body: bytes, **options: Any) -> None:
                    await exchange.publish(aio_pika.Message(body, **options), routing_key="order")

                # This client gives an id to whatever has none, so here the id is a header.
                await publish(b"no id", headers={"unit": "a"})
                await publish(b"a date", headers={"order": 1, "unit": datetime(2026, 1, 1, tzinfo=UTC)})
                await publish(b"a table", headers={"order": 2, "unit": {"a": 1}})
                await publish(b"good", headers={"order": 3, "unit": "a"})
                await until(lambda: told.done == [b"good"], "what is good is processed")
                queue = "clustered.billing.ada"
                await until(lambda: consumer.held == 0, "it is done")
            assert [body for body, _ in told.poison] == [b"no id", b"a date", b"a table"]
            assert "order" in told.poison[0][1]
            assert (consumer.figures.poisonous, consumer.figures.incarnations) == (3, 1)
            await consumer.leave()
            async with await aio_pika.connect(url) as connection:
                left = await (await connection.channel()).declare_queue(queue, durable=True, passive=True)
                assert left.declaration_result.message_count == 0

    play(story(), 80)


@pytest.mark.slow
@pytest.mark.timeout(60)
@needs("redis")
@pytest.mark.req("H1", "H4")
def test_a_field_s_name_that_is_no_text_does_no_harm(tmp_path: Path) -> None:
    middleware = ALL["redis"]
    told = Told()

    async def story() -> None:
        from redis.asyncio import Redis

        async with (
            middleware.running(tmp_path) as url,
            told.consumer(lambda: middleware.adapter(url)) as consumer,
        ):
            await until(lambda: bool(consumer.ranges), "ada owns everything", 30)
            redis = Redis.from_url(url)
            await redis.xadd("orders", {b"body": b"odd", b"\xff\xfe": b"x", b"unit": b"a"})
            await until(lambda: told.done == [b"odd"], "it is processed")
            await redis.aclose()
            assert consumer.figures.incarnations == 1

    play(story(), 50)


@pytest.mark.req("H1", "H4")
def test_a_header_of_kafka_may_be_empty() -> None:
    record = SimpleNamespace(
        headers=[("unit", None), ("city", b"Graz")],
        partition=0,
        offset=5,
        value=b"x",
        topic="orders",
        timestamp=5000,
        key=None,
    )
    delivery = Kafka("localhost", "orders")._delivery(record)
    assert delivery.properties == {"unit": None, "city": "Graz"}


@pytest.mark.req("H1", "H4")
@pytest.mark.parametrize(
    ("identity", "sentence"),
    [
        (5, "an id is a text, not int"),
        (None, "an id is a text, not NoneType"),
        (b"m-5", "an id is a text, not bytes"),
        ("", "an id has 1 to 256 bytes, and this one 0"),
        ("é" * 129, "an id has 1 to 256 bytes, and this one 258"),
        ("\ud800", "surrogates not allowed"),
    ],
)
def test_an_id_that_cannot_be_told_to_others_is_poison(identity: Any, sentence: str) -> None:
    """As an identity of the application's may find it."""
    adapter = RedisChannel("redis://localhost", "orders", identity=lambda _body: identity)
    delivery = made(adapter._delivery, b"x", body=b"x", handle=None)
    assert delivery.fault is not None
    assert sentence in delivery.fault


@pytest.mark.req("H1", "H4")
def test_the_longest_id_is_one() -> None:
    adapter = RedisChannel("redis://localhost", "orders", identity=bytes.decode)
    assert made(adapter._delivery, b"m" * 256, body=b"", handle=None).fault is None


@pytest.mark.req("H1", "H4")
def test_a_message_without_an_id_says_what_to_do() -> None:
    message = SimpleNamespace(headers={}, message_id=None, body=b"x")
    delivery = made(RabbitMQ("amqp://localhost", "orders")._delivery, message, body=b"x", handle=message)
    assert delivery.fault is not None
    assert "set it, or say how to find an id" in delivery.fault
    assert delivery.handle is message
