"""Adapters on real brokers, without a cluster: what a middleware may do that is not of every day (H4)."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from heliograph.clustered import ClusteredConsumer, ClusteredMessage
from heliograph.clustered.adapter import Delivery
from heliograph.clustered.on_kafka import Kafka
from heliograph.clustered.on_mqtt import Mqtt
from heliograph.clustered.on_nats import NatsJetStream
from heliograph.clustered.on_rabbitmq import RabbitMQ
from heliograph.clustered.on_redis import RedisStream
from heliograph.model import limits
from tests.clustered.middleware import ALL, OnMqtt, OnNats, body_of, needs
from tests.servers import play, until

ADA = ("ada", 1)
BROKER_SECONDS = 20.0


async def _received(adapter: Any, count: int) -> list[Delivery]:
    found: list[Delivery] = []
    async with asyncio.timeout(BROKER_SECONDS):
        while len(found) < count:
            found += await adapter.receive()
    return found


async def _caught_up(adapter: Any) -> list[Delivery]:
    """What comes until it is."""
    found: list[Delivery] = []

    async def receive() -> None:
        while True:
            found.extend(await adapter.receive())

    receiving = asyncio.create_task(receive())
    try:
        async with asyncio.timeout(BROKER_SECONDS):
            await adapter.caught_up()
    finally:
        receiving.cancel()
        with suppress(asyncio.CancelledError):
            await receiving
    return found


@pytest.mark.slow
@pytest.mark.timeout(90)
@needs("redis")
@pytest.mark.req("H4")
def test_what_was_trimmed_away_does_not_hide_what_is_still_owed_to_a_member(tmp_path: Path) -> None:
    """Ada had received 600 and acknowledged none when she died. The first 300, more than are read at once, were
    deleted since: the other 300 come again, and what is gone is owed to her no more."""

    async def story() -> None:
        from redis.asyncio import Redis

        middleware = ALL["redis"]
        async with middleware.running(tmp_path) as url:
            redis: Any = Redis.from_url(url)
            before = RedisStream(url, "orders")
            await before.connect("billing", ADA)
            await before.subscribe(is_fresh=False)
            await middleware.publish(url, 0, 600)
            assert len(await _received(before, 600)) == 600
            await before.close(keeps_copies=True)
            await redis.xtrim("orders", maxlen=300, approximate=False)
            after = RedisStream(url, "orders")
            await after.connect("billing", ("ada", 2))
            await after.subscribe(is_fresh=False)
            again = await _received(after, 300)
            assert [each.body for each in again] == [body_of(number) for number in range(300, 600)]
            assert all(each.redelivered for each in again)
            assert await _caught_up(after) == []
            await after.acknowledge(again)
            pending = await redis.xpending("orders", "clustered:billing:ada")
            assert pending["pending"] == 0
            await after.close(keeps_copies=False)
            await redis.aclose()

    play(story(), 80)


@pytest.mark.slow
@pytest.mark.timeout(90)
@needs("redis")
@pytest.mark.req("H2", "H4")
def test_a_member_is_caught_up_though_the_newest_entries_were_deleted(tmp_path: Path) -> None:
    async def story() -> None:
        from redis.asyncio import Redis

        async with ALL["redis"].running(tmp_path) as url:
            redis: Any = Redis.from_url(url)
            adapter = RedisStream(url, "orders")
            await adapter.connect("billing", ADA)
            await adapter.subscribe(is_fresh=False)
            entries = [await redis.xadd("orders", {"body": b"%d" % number}) for number in range(4)]
            await redis.xdel("orders", *entries[2:])
            assert [each.body for each in await _caught_up(adapter)] == [b"0", b"1"]
            await adapter.close(keeps_copies=False)
            await redis.aclose()

    play(story(), 80)


@pytest.mark.nightly
@pytest.mark.timeout(180)
@needs("kafka")
@pytest.mark.req("H2", "H4")
@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_a_member_is_caught_up_behind_transactions_and_reads_what_its_isolation_says(
    isolation_level: str, tmp_path: Path
) -> None:
    async def story() -> None:
        from aiokafka import AIOKafkaProducer

        async with ALL["kafka"].running(tmp_path) as url:
            adapter = Kafka(url, "orders", isolation_level=isolation_level)
            await adapter.connect("billing", ADA)
            await adapter.subscribe(is_fresh=False)
            producer = AIOKafkaProducer(bootstrap_servers=url, transactional_id="till-1")
            await producer.start()
            async with producer.transaction():
                await producer.send_and_wait("orders", b"sold", partition=0)
            with suppress(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send_and_wait("orders", b"taken back", partition=0)
                    raise ZeroDivisionError
            await producer.stop()
            found = [each.body for each in await _caught_up(adapter)]
            assert found == [b"sold"] if isolation_level == "read_committed" else [b"sold", b"taken back"]
            await adapter.close(keeps_copies=False)

    play(story(), 170)


@pytest.mark.nightly
@pytest.mark.timeout(180)
@needs("kafka")
@pytest.mark.req("H4")
def test_partitions_that_are_added_later_are_read_from_their_beginning(tmp_path: Path) -> None:
    """By a member that is there, and by one that was away meanwhile. Nothing that was read before comes again."""

    async def story() -> None:
        from aiokafka import AIOKafkaProducer
        from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

        async with ALL["kafka"].running(tmp_path) as url:
            here, away = (Kafka(url, "orders", metadata_max_age_ms=500) for _ in range(2))
            for adapter, name in ((here, "ada"), (away, "bob")):
                await adapter.connect("billing", (name, 1))
                await adapter.subscribe(is_fresh=False)
            await away.close(keeps_copies=True)
            admin = AIOKafkaAdminClient(bootstrap_servers=url)
            await admin.start()
            producer = AIOKafkaProducer(bootstrap_servers=url, metadata_max_age_ms=500)
            await producer.start()
            await producer.send_and_wait("orders", b"old", partition=0)
            await here.acknowledge(await _received(here, 1))
            await admin.create_partitions({"orders": NewPartitions(total_count=4)})
            async with asyncio.timeout(BROKER_SECONDS):
                while 3 not in await producer.partitions_for("orders"):
                    await asyncio.sleep(0.1)
            await producer.send_and_wait("orders", b"new", partition=3)
            assert [each.body for each in await _received(here, 1)] == [b"new"]
            back = Kafka(url, "orders")
            await back.connect("billing", ("bob", 2))
            await back.subscribe(is_fresh=False)
            assert sorted(each.body for each in await _received(back, 2)) == [b"new", b"old"]
            for client in (here, back):
                await client.close(keeps_copies=False)
            await producer.stop()
            await admin.close()

    play(story(), 170)


@pytest.mark.nightly
@pytest.mark.timeout(180)
@needs("kafka")
@pytest.mark.req("H4")
def test_a_member_whose_place_was_deleted_goes_on_with_what_is_left(tmp_path: Path) -> None:
    """Ada was away while Kafka deleted the oldest of what waited for her. She gets the rest, not only what is new."""

    async def story() -> None:
        from aiokafka import AIOKafkaProducer
        from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
        from aiokafka.structs import TopicPartition

        async with ALL["kafka"].running(tmp_path) as url:
            away = Kafka(url, "orders")
            await away.connect("billing", ADA)
            await away.subscribe(is_fresh=False)
            await away.close(keeps_copies=True)
            producer = AIOKafkaProducer(bootstrap_servers=url)
            await producer.start()
            for number in range(5):
                await producer.send_and_wait("orders", b"%d" % number, partition=0)
            await producer.stop()
            admin = AIOKafkaAdminClient(bootstrap_servers=url)
            await admin.start()
            await admin.delete_records({TopicPartition("orders", 0): RecordsToDelete(before_offset=3)})
            await admin.close()
            back = Kafka(url, "orders")
            await back.connect("billing", ("ada", 2))
            await back.subscribe(is_fresh=False)
            assert [each.body for each in await _received(back, 2)] == [b"3", b"4"]
            await back.close(keeps_copies=False)

    play(story(), 170)


@pytest.mark.nightly
@pytest.mark.timeout(180)
@needs("kafka")
@pytest.mark.req("H4")
def test_a_member_on_kafka_that_cannot_commit_any_more_closes_all_its_connections(tmp_path: Path) -> None:
    async def story() -> None:
        from aiokafka.errors import IllegalStateError

        async with ALL["kafka"].running(tmp_path) as url:
            adapter = Kafka(url, "orders")
            await adapter.connect("billing", ADA)
            await adapter.subscribe(is_fresh=False)
            # A partition that was taken from it: its client refuses the commit.
            adapter._received[99], adapter._committed[99], adapter._open[99] = 1, 0, {}
            with pytest.raises(IllegalStateError, match="99"):
                await adapter.close(keeps_copies=True)
            assert all(each._closed for each in (adapter._producer, adapter._hearing, adapter._copies))

    play(story(), 170)


class _Closed(OnMqtt):
    """A broker that lets nobody in."""

    def start(self, folder: Path, port: int) -> Any:
        from benchmarks.peers.interface import program
        from benchmarks.processes import Server, port_answers

        settings = folder / "mosquitto.conf"
        settings.write_text(f"listener {port} 127.0.0.1\nallow_anonymous false\n")
        command = [program("mosquitto"), "-c", str(settings)]
        return Server(command, folder=folder, name=self.key).wait_until(port_answers(port))


class _ReadOnly(OnMqtt):
    """A broker on which everybody may listen, and nobody publish."""

    def start(self, folder: Path, port: int) -> Any:
        from benchmarks.peers.interface import program
        from benchmarks.processes import Server, port_answers

        rights, settings = folder / "rights", folder / "mosquitto.conf"
        rights.write_text("topic read #\n")
        rights.chmod(0o600)
        settings.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\nacl_file {rights}\nuser root\n"
        )
        command = [program("mosquitto"), "-c", str(settings)]
        return Server(command, folder=folder, name=self.key).wait_until(port_answers(port))


@pytest.mark.slow
@pytest.mark.timeout(60)
@needs("mqtt")
@pytest.mark.req("H4")
def test_who_may_not_publish_on_mqtt_is_told_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with _ReadOnly().running(tmp_path) as url:
            adapter = Mqtt("127.0.0.1", int(url), "orders")
            await adapter.connect("billing", ADA)
            await adapter.say(b"here I am")
            with pytest.raises(ConnectionError, match=r"refused a word .*: Not authorized"):
                await adapter.hear()
            await adapter.close(keeps_copies=True)

    play(story(), 50)


class _ReadOnlyNats(OnNats):
    """A server on which members may say nothing to each other."""

    def start(self, folder: Path, port: int) -> Any:
        from benchmarks.peers.interface import program
        from benchmarks.processes import Server, port_answers

        settings = folder / "nats.conf"
        rights = '{publish: {deny: ["clustered.>", "$JS.API.CONSUMER.DELETE.>"]}}'
        settings.write_text(
            f'listen: "127.0.0.1:{port}"\njetstream {{store_dir: "{folder}"}}\nno_auth_user: ada\n'
            f'authorization {{users: [{{user: ada, password: "secret", permissions: {rights}}}]}}\n'
        )
        return Server([program("nats-server"), "-c", str(settings)], folder=folder, name=self.key).wait_until(
            port_answers(port)
        )


@pytest.mark.slow
@pytest.mark.timeout(60)
@needs("nats")
@pytest.mark.req("H4")
def test_who_may_not_publish_on_nats_is_told_so(tmp_path: Path) -> None:
    """That she may not throw away the copies of somebody who is gone is no reason to end."""

    async def story() -> None:
        async with _ReadOnlyNats().running(tmp_path) as url:
            adapter = NatsJetStream(url, "orders")
            await adapter.connect("billing", ADA)
            with pytest.raises(TimeoutError):
                await adapter.discard("bob")
            hearing = asyncio.create_task(adapter.hear())
            await asyncio.sleep(0)
            assert not hearing.done()
            await adapter.say(b"here I am")
            with pytest.raises(ConnectionError, match=r"(?i)refused .*permissions violation for publish"):
                await hearing
            await adapter.close(keeps_copies=True)

    play(story(), 50)


@pytest.mark.slow
@pytest.mark.timeout(60)
@needs("mqtt-qos0")
@pytest.mark.req("H4")
def test_a_member_that_takes_nothing_ends_where_the_broker_waits_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLUSTERED_HELD_MESSAGES", 50)
    middleware = ALL["mqtt-qos0"]

    async def story() -> None:
        async with middleware.running(tmp_path) as url:
            adapter = Mqtt("127.0.0.1", int(url), "orders", qos=0)
            await adapter.connect("billing", ADA)
            await adapter.subscribe(is_fresh=False)
            await middleware.publish(url, 0, 200)
            with pytest.raises(ConnectionError, match="50 copies wait for this member"):
                await adapter.hear()
            assert len(await _received(adapter, 50)) == 50
            with pytest.raises(ConnectionError, match="50 copies"):
                await adapter.receive()
            await adapter.close(keeps_copies=True)

    play(story(), 50)


@pytest.mark.req("H1", "H4")
@pytest.mark.parametrize(
    ("data", "found"), [(b"order-5", "order-5"), (b"\xff5", "\ufffd5"), (None, "by the property")]
)
def test_the_correlation_data_of_mqtt_are_the_correlation_id(data: bytes | None, found: str) -> None:
    from paho.mqtt.client import MQTTMessage
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    message = MQTTMessage(topic=b"orders")
    message.properties = Properties(PacketTypes.PUBLISH)
    message.properties.UserProperty = [("message-id", "m-5"), ("correlation_id", "by the property")]
    if data is not None:
        message.properties.CorrelationData = data
    assert Mqtt("localhost", 1, "orders")._delivery(message).correlation_id == found


@pytest.mark.slow
@pytest.mark.timeout(90)
@needs("rabbitmq")
@pytest.mark.req("H4")
def test_rabbitmq_sends_no_more_ahead_to_who_does_not_acknowledge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ada takes nothing for a while. Then she takes all, and nothing is left for her at the broker."""
    monkeypatch.setattr(limits, "CLUSTERED_HELD_MESSAGES", 50)
    middleware = ALL["rabbitmq"]

    async def story() -> None:
        import aio_pika

        async with middleware.running(tmp_path) as url, await aio_pika.connect(url) as connection:
            channel = await connection.channel()

            async def waiting() -> int:
                queue = await channel.declare_queue("clustered.billing.ada", durable=True, passive=True)
                return int(queue.declaration_result.message_count or 0)

            adapter = RabbitMQ(url, "orders", acknowledges=False)
            await adapter.connect("billing", ADA)
            await adapter.subscribe(is_fresh=False)
            await middleware.publish(url, 0, 200)
            await until(lambda: len(adapter._copies) >= 50, "some have come")
            async with asyncio.timeout(BROKER_SECONDS):
                while await waiting() != 150:
                    await asyncio.sleep(0.05)
            found = await _received(adapter, 200)
            assert [each.body for each in found] == [body_of(number) for number in range(200)]
            assert await _caught_up(adapter) == []
            await adapter.close(keeps_copies=True)
            assert await waiting() == 0

    play(story(), 80)


def _threads_of_paho() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "paho" in thread.name]


@pytest.mark.slow
@pytest.mark.timeout(60)
@needs("mqtt")
@pytest.mark.req("H4")
def test_a_client_that_an_mqtt_broker_refuses_goes_on_no_more(tmp_path: Path) -> None:
    async def story() -> None:
        async with _Closed().running(tmp_path) as url:
            adapter = Mqtt("127.0.0.1", int(url), "orders")
            with pytest.raises(ConnectionError, match="refused"):
                await adapter.connect("billing", ADA)
            await adapter.close(keeps_copies=True)
            assert _threads_of_paho() == []

    play(story(), 50)


@pytest.mark.timeout(60)
@pytest.mark.req("H4")
def test_a_client_that_gets_no_answer_goes_on_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something listens, and says nothing. It is not asked again after the member has given up."""
    monkeypatch.setattr("heliograph.clustered.on_mqtt._CONNECT_SECONDS", 0.3)
    callers: list[asyncio.StreamWriter] = []

    async def story() -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            callers.append(writer)
            await reader.read()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        adapter = Mqtt("127.0.0.1", port, "orders")
        with pytest.raises(TimeoutError):
            await adapter.connect("billing", ADA)
        await adapter.close(keeps_copies=True)
        assert _threads_of_paho() == []
        await until(lambda: all(each.is_closing() for each in callers), "its connection is closed")
        assert len(callers) == 1
        server.close()

    play(story(), 50)


class Counting(RabbitMQ):
    """An adapter that counts what is acknowledged."""

    acknowledged = 0

    async def acknowledge(self, deliveries: list[Delivery]) -> None:
        await super().acknowledge(deliveries)
        self.acknowledged += len(deliveries)


@pytest.mark.slow
@pytest.mark.timeout(90)
@needs("rabbitmq")
@pytest.mark.req("H4")
def test_a_message_that_is_sent_again_and_again_is_owed_once_to_the_broker(tmp_path: Path) -> None:
    """Ada has it under way for long. Meanwhile all copies but the one that she began are acknowledged."""
    may_end, done = asyncio.Event(), list[str]()

    async def handle(message: ClusteredMessage) -> None:
        await may_end.wait()
        done.append(message.id)

    async def story() -> None:
        import aio_pika

        async with ALL["rabbitmq"].running(tmp_path) as url:
            adapter = Counting(url, "orders")
            ada = ClusteredConsumer(
                lambda: adapter, cluster="billing", name="ada", handler=handle, fields=["property:unit"]
            )
            async with ada, await aio_pika.connect(url) as connection:
                await until(lambda: bool(ada.ranges), "ada owns everything", 40)
                exchange = await (await connection.channel()).get_exchange("orders")
                for _ in range(100):
                    message = aio_pika.Message(b"x", message_id="m-1", headers={"unit": "a"})
                    await exchange.publish(message, routing_key="order")
                await until(lambda: adapter.acknowledged == 99, "all but one are acknowledged", 20)
                assert (ada.held, done) == (1, [])
                may_end.set()
                await until(lambda: adapter.acknowledged == 100, "the one is acknowledged too", 20)
                assert done == ["m-1"]

    play(story(), 80)
