"""The middleware that clustered consumers are tried on: how it is started, what adapter a member uses, how one
publishes.

Every broker is a real one, started on a free port with its data in a folder of the test's. A test names the
middleware that it needs with `needs` or `each_of`: what is missing comes from Debian (`tests/debian.py`), and Kafka's
jars from Maven Central. The clients are Python packages of `heliograph[clustered]`; without them the tests fail.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from heliograph.clustered.adapter import Acknowledge, Adapter
from tests.debian import MARKER, Needs
from tests.servers import ServerProcess

UNITS = 50
"""Messages belong to so many units of order, in turn."""
WINDOW = 500


def body_of(number: int) -> bytes:
    return b"m-%07d" % number


def unit_of(number: int) -> str:
    return f"unit-{number % UNITS}"


class Middleware(ABC):
    """One kind of middleware. The url says where it is, to members in other processes too."""

    key: ClassVar[str]
    programs: ClassVar[Needs] = {}
    """What it consists of, and the Debian package that has it."""
    fields: ClassVar[tuple[str, ...]] = ("property:unit",)
    """What members hash: a unit of order, where messages can have one."""
    acknowledge: ClassVar[Acknowledge] = Acknowledge.OWNER
    redelivers: ClassVar[bool] = True

    @asynccontextmanager
    async def running(self, folder: Path) -> AsyncIterator[str]:
        """Its url."""
        from benchmarks.processes import free_port

        port = free_port()
        server = await asyncio.to_thread(self.start, folder, port)
        try:
            url = self.url(port)
            await self.prepare(url)
            yield url
        finally:
            await asyncio.to_thread(server.stop)

    def start(self, folder: Path, port: int) -> Any:
        raise NotImplementedError

    @abstractmethod
    def url(self, port: int) -> str: ...

    async def prepare(self, url: str) -> None:  # noqa: B027 -- most need nothing
        """Make what producers send to."""

    @abstractmethod
    def adapter(self, url: str) -> Adapter: ...

    @abstractmethod
    async def publish(self, url: str, first: int, count: int, rate: float = 0.0) -> None:
        """Messages from number `first` on; `rate` a second, or as quickly as they are confirmed."""

    async def collect(self, url: str, path: Path) -> None:  # noqa: B027 -- most need nothing
        """Write down effects that members send instead of writing them themselves."""


class Pace:
    """No more than so many a second."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._began = asyncio.get_running_loop().time()
        self._count = 0

    async def step(self) -> None:
        self._count += 1
        if self._rate:
            ahead = self._began + self._count / self._rate - asyncio.get_running_loop().time()
            if ahead > 0.005:
                await asyncio.sleep(ahead)


class OnHeliograph(Middleware):
    key = "heliograph"

    def url(self, port: int) -> str:
        return f"helio://127.0.0.1:{port}"

    @asynccontextmanager
    async def running(self, folder: Path) -> AsyncIterator[str]:
        async with ServerProcess(folder) as server:
            yield server.url

    def adapter(self, url: str) -> Adapter:
        from heliograph.clustered.on_heliograph import Heliograph

        return Heliograph(url, "topic:orders")

    async def publish(
        self, url: str, first: int, count: int, rate: float = 0.0, to: str = "topic:orders"
    ) -> None:
        import heliograph

        async with heliograph.connect(url) as connection:
            producer = await connection.producer(to)
            pace = Pace(rate)
            for number in range(first, first + count):
                await producer.send(body_of(number), properties={"unit": unit_of(number)})
                await pace.step()
            await producer.flush()


class OnHeliographQueue(OnHeliograph):
    key = "heliograph-queue"

    def adapter(self, url: str) -> Adapter:
        from heliograph.clustered.on_heliograph import Heliograph

        return Heliograph(url, "queue:orders")

    async def publish(
        self, url: str, first: int, count: int, rate: float = 0.0, to: str = "queue:orders"
    ) -> None:
        await super().publish(url, first, count, rate, to)


class OnHeliographTransacted(OnHeliograph):
    key = "heliograph-transacted"

    def adapter(self, url: str) -> Adapter:
        from heliograph.clustered.on_heliograph import Heliograph

        return Heliograph(url, "topic:orders", transacted=True)

    async def collect(self, url: str, path: Path) -> None:
        import heliograph

        async with heliograph.connect(url) as connection:
            consumer = await connection.consumer("queue:effects")
            with path.open("ab", buffering=0) as file:
                while True:
                    for message in await consumer.receive_batch(1000):
                        file.write(message.text.encode())


class OnRabbitMQ(Middleware):
    key = "rabbitmq"
    programs: ClassVar[Needs] = {"rabbitmq-server": "rabbitmq-server", "epmd": "rabbitmq-server"}

    def start(self, folder: Path, port: int) -> Any:
        from benchmarks.peers.rabbitmq import RabbitMQ

        return RabbitMQ().start(folder, port)

    def url(self, port: int) -> str:
        return f"amqp://127.0.0.1:{port}"

    async def prepare(self, url: str) -> None:
        import aio_pika

        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            await channel.declare_exchange("orders", "topic", durable=True)

    def adapter(self, url: str) -> Adapter:
        from heliograph.clustered.on_rabbitmq import RabbitMQ

        return RabbitMQ(url, "orders")

    async def publish(self, url: str, first: int, count: int, rate: float = 0.0) -> None:
        import aio_pika

        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            exchange = await channel.get_exchange("orders")
            pace = Pace(rate)
            under_way: set[asyncio.Task[Any]] = set()
            for number in range(first, first + count):
                message = aio_pika.Message(
                    body_of(number),
                    message_id=f"m-{number}",
                    headers={"unit": unit_of(number)},
                    delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                )
                under_way.add(asyncio.create_task(exchange.publish(message, routing_key="order")))
                if len(under_way) >= WINDOW:
                    _, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                await pace.step()
            if under_way:
                await asyncio.wait(under_way)


class OnNats(Middleware):
    key = "nats"
    programs: ClassVar[Needs] = {"nats-server": "nats-server"}

    def start(self, folder: Path, port: int) -> Any:
        from benchmarks.peers.nats import NatsJetStream

        return NatsJetStream().start(folder, port)

    def url(self, port: int) -> str:
        return f"nats://127.0.0.1:{port}"

    async def prepare(self, url: str) -> None:
        import nats

        connection = await nats.connect(url)
        await connection.jetstream().add_stream(name="orders", subjects=["orders.>"])
        await connection.close()

    def adapter(self, url: str) -> Adapter:
        from heliograph.clustered.on_nats import NatsJetStream

        return NatsJetStream(url, "orders", subject="orders.>")

    async def publish(self, url: str, first: int, count: int, rate: float = 0.0) -> None:
        import nats

        connection = await nats.connect(url)
        stream = connection.jetstream(timeout=120)
        pace = Pace(rate)
        for begin in range(first, first + count, WINDOW):
            numbers = range(begin, min(begin + WINDOW, first + count))
            await asyncio.gather(
                *(
                    stream.publish("orders.new", body_of(each), headers={"unit": unit_of(each)})
                    for each in numbers
                )
            )
            for _ in numbers:
                await pace.step()
        await connection.close()


class OnMqtt(Middleware):
    key = "mqtt"
    programs: ClassVar[Needs] = {"mosquitto": "mosquitto"}
    qos: ClassVar[int] = 1

    def start(self, folder: Path, port: int) -> Any:
        from benchmarks.peers.interface import program
        from benchmarks.processes import Server, port_answers

        settings = folder / "mosquitto.conf"
        settings.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_inflight_messages 0\nmax_queued_messages 0\n"
            "set_tcp_nodelay true\n"
        )
        command = [program("mosquitto"), "-c", str(settings)]
        return Server(command, folder=folder, name=self.key).wait_until(port_answers(port))

    def url(self, port: int) -> str:
        return str(port)

    def adapter(self, url: str) -> Adapter:
        from heliograph.clustered.on_mqtt import Mqtt

        return Mqtt("127.0.0.1", int(url), "orders", qos=self.qos)

    async def publish(self, url: str, first: int, count: int, rate: float = 0.0) -> None:
        await asyncio.to_thread(self._publish, int(url), first, count, rate)

    def _publish(self, port: int, first: int, count: int, rate: float) -> None:
        import time

        from paho.mqtt.client import CallbackAPIVersion, Client, MQTTv5
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
        client.max_inflight_messages_set(WINDOW)
        client.connect("127.0.0.1", port)
        client.loop_start()
        began = time.monotonic()
        for number in range(first, first + count):
            properties = Properties(PacketTypes.PUBLISH)
            properties.UserProperty = [("message-id", f"m-{number}"), ("unit", unit_of(number))]
            sent = client.publish("orders", body_of(number), qos=1, properties=properties)
            if number % WINDOW == 0:
                sent.wait_for_publish(30)
            if rate and (ahead := began + (number - first) / rate - time.monotonic()) > 0.005:
                time.sleep(ahead)
        sent.wait_for_publish(30)
        client.disconnect()
        client.loop_stop()


class OnMqttWithoutGuarantee(OnMqtt):
    key = "mqtt-qos0"
    qos = 0
    acknowledge = Acknowledge.NONE
    redelivers = False


class OnRedis(Middleware):
    key = "redis"
    programs: ClassVar[Needs] = {"redis-server": "redis-server"}

    def start(self, folder: Path, port: int) -> Any:
        from benchmarks.peers.interface import program
        from benchmarks.processes import Server, port_answers

        command = [program("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
        command += ["--appendonly", "yes", "--save", ""]
        return Server(command, folder=folder, name=self.key).wait_until(port_answers(port))

    def url(self, port: int) -> str:
        return f"redis://127.0.0.1:{port}"

    def adapter(self, url: str) -> Adapter:
        from heliograph.clustered.on_redis import RedisStream

        return RedisStream(url, "orders")

    async def publish(self, url: str, first: int, count: int, rate: float = 0.0) -> None:
        from redis.asyncio import Redis

        redis: Any = Redis.from_url(url)
        pace = Pace(rate)
        pipe = redis.pipeline(transaction=False)
        for number in range(first, first + count):
            self.add(pipe, number)
            if (number - first) % 20 == 19 or number == first + count - 1:
                await pipe.execute()
            await pace.step()
        await redis.aclose()

    def add(self, pipe: Any, number: int) -> None:
        pipe.xadd("orders", {"body": body_of(number), "unit": unit_of(number)})


class OnRedisChannel(OnRedis):
    key = "redis-channel"
    fields = ("id",)
    acknowledge = Acknowledge.NONE
    redelivers = False

    def adapter(self, url: str) -> Adapter:
        from heliograph.clustered.on_redis import RedisChannel

        return RedisChannel(url, "orders", identity=bytes.decode)

    def add(self, pipe: Any, number: int) -> None:
        pipe.publish("orders", body_of(number))


class OnKafka(Middleware):
    key = "kafka"
    programs: ClassVar[Needs] = {"java": "default-jre-headless"}

    def start(self, folder: Path, port: int) -> Any:
        from tests.clustered.kafka_broker import start

        return start(folder, port)

    def url(self, port: int) -> str:
        return f"127.0.0.1:{port}"

    async def prepare(self, url: str) -> None:
        from aiokafka.admin import AIOKafkaAdminClient, NewTopic

        admin = AIOKafkaAdminClient(bootstrap_servers=url)
        await admin.start()
        await admin.create_topics([NewTopic("orders", 3, 1)])
        await admin.close()

    def adapter(self, url: str) -> Adapter:
        from heliograph.clustered.on_kafka import Kafka

        return Kafka(url, "orders")

    async def publish(self, url: str, first: int, count: int, rate: float = 0.0) -> None:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(bootstrap_servers=url, linger_ms=5)
        await producer.start()
        pace = Pace(rate)
        for number in range(first, first + count):
            unit = unit_of(number)
            await producer.send(
                "orders", body_of(number), key=unit.encode(), headers=[("unit", unit.encode())]
            )
            await pace.step()
        await producer.stop()


ALL: dict[str, Middleware] = {
    each.key: each
    for each in (
        OnHeliograph(),
        OnHeliographQueue(),
        OnHeliographTransacted(),
        OnRabbitMQ(),
        OnNats(),
        OnMqtt(),
        OnMqttWithoutGuarantee(),
        OnRedis(),
        OnRedisChannel(),
        OnKafka(),
    )
}


def needs(key: str) -> pytest.MarkDecorator:
    """Of a test on this middleware."""
    return getattr(pytest.mark, MARKER)(ALL[key].programs)  # type: ignore[no-any-return]


def each_of(keys: Iterable[str], *, at_night: Collection[str] = ()) -> list[Any]:
    """Parameters of a test on several: where one of them is missing, the others are tried all the same."""
    return [
        pytest.param(key, marks=[needs(key), *([pytest.mark.nightly] if key in at_night else [])], id=key)
        for key in keys
    ]
