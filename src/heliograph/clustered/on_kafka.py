"""Clustered consumers on Kafka, through aiokafka: each member reads all partitions, and a topic of one partition
is for control.

A message's id is its place. Kafka knows only positions: the position of a member in a partition is committed
up to the first message that is not done, under a group of the member's own. It keeps every message as long as
the topic does, so nothing has to be thrown away when a member is gone.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from heliograph.clustered.adapter import Delivery, made
from heliograph.clustered.words import MemberKey

_POLL_SECONDS = 0.1
_WAIT_MILLISECONDS = 1_000
_BATCH = 500
_COMMIT_SECONDS = 1.0


class Kafka:
    """One member's connection to a Kafka cluster."""

    redelivers = True

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        begins_with_all: bool = False,
        isolation_level: str = "read_uncommitted",
        **options: Any,
    ) -> None:
        """`isolation_level`: "read_committed" leaves out what producers sent in transactions that they aborted.
        `options` go to all of aiokafka's clients (security). The control topic is made by the broker on first use.
        """
        self._servers = servers
        self._topic = topic
        self._begins_with_all = begins_with_all
        self._isolation_level = isolation_level
        self._options = {"bootstrap_servers": servers, **options}
        self._words: list[bytes] = []
        self._copies: Any = None
        self._producer: Any = None
        self._hearing: Any = None
        self._received: dict[int, int] = {}
        self._open: dict[int, dict[int, None]] = {}
        self._committed: dict[int, int] = {}
        self._commit_due = 0.0

    async def connect(self, cluster: str, member: MemberKey) -> None:
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

        self._partition = TopicPartition
        self._group = f"clustered.{cluster}.{member[0]}"
        self._control = f"clustered.{cluster}.control"
        self._producer = AIOKafkaProducer(**self._options)
        await self._producer.start()
        await self._producer.partitions_for(self._control)
        self._hearing = AIOKafkaConsumer(**self._options, enable_auto_commit=False)
        await self._hearing.start()
        place = TopicPartition(self._control, 0)
        self._hearing.assign([place])
        await self._hearing.seek_to_end(place)
        await self._hearing.position(place)

    # ---- control

    async def say(self, word: bytes) -> None:
        await self._producer.send(self._control, word, partition=0)

    async def hear(self) -> bytes:
        while not self._words:
            found = await self._hearing.getmany(timeout_ms=_WAIT_MILLISECONDS)
            self._words = [record.value for records in found.values() for record in records][::-1]
        return self._words.pop()

    # ---- copies

    async def subscribe(self, *, is_fresh: bool) -> None:
        from aiokafka import AIOKafkaConsumer

        self._copies = AIOKafkaConsumer(
            **self._options,
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",  # where my position is not there any more, with what is left
            isolation_level=self._isolation_level,
        )
        await self._copies.start()
        numbers = sorted(await self._producer.partitions_for(self._topic))
        places = [self._partition(self._topic, number) for number in numbers]
        self._copies.assign(places)
        known = {} if is_fresh else {place: await self._copies.committed(place) for place in places}
        was_here = any(position is not None for position in known.values())
        for place in places:
            if known.get(place) is not None:
                self._copies.seek(place, known[place])
            elif was_here or (self._begins_with_all and not is_fresh):
                await self._copies.seek_to_beginning(place)  # a partition that was added while I was away
            else:
                await self._copies.seek_to_end(place)
            await self._begin(place)

    async def _begin(self, place: Any) -> None:
        position = await self._copies.position(place)
        self._received[place.partition] = self._committed[place.partition] = position
        self._open[place.partition] = {}
        await self._copies.commit({place: position})

    async def _read_added_partitions(self) -> None:
        """From their beginning: whatever is in them was published while I was here. The client hears of them within
        `metadata_max_age_ms`."""
        numbers = self._copies.partitions_for_topic(self._topic) or set()
        added = [self._partition(self._topic, number) for number in sorted(numbers - self._received.keys())]
        if not added:
            return
        known = {self._partition(self._topic, number): at for number, at in self._received.items()}
        self._copies.assign([*known, *added])  # which forgets where it was
        for place, position in known.items():
            self._copies.seek(place, position)
        await self._copies.seek_to_beginning(*added)
        for place in added:
            await self._begin(place)

    async def receive(self) -> list[Delivery]:
        while True:
            await self._read_added_partitions()
            found = await self._copies.getmany(timeout_ms=_WAIT_MILLISECONDS, max_records=_BATCH)
            deliveries = [
                made(
                    self._delivery, record, body=record.value or b"", handle=(record.partition, record.offset)
                )
                for records in found.values()
                for record in records
            ]
            for delivery in deliveries:
                partition, offset = delivery.handle
                self._open[partition][offset] = None
                self._received[partition] = offset + 1
            if deliveries:
                return deliveries

    async def acknowledge(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            partition, offset = delivery.handle
            self._open[partition].pop(offset, None)
        now = asyncio.get_running_loop().time()
        if now >= self._commit_due:
            self._commit_due = now + _COMMIT_SECONDS
            await self._commit()

    async def _commit(self) -> None:
        """In each partition, up to the first message that is not done."""
        places = {}
        for partition, received in self._received.items():
            position = next(iter(self._open[partition]), received)
            if position != self._committed[partition]:
                places[self._partition(self._topic, partition)] = position
                self._committed[partition] = position
        if places:
            await self._copies.commit(places)

    async def set_aside(self, deliveries: list[Delivery]) -> None:
        """They stay in the topic, and the position passes them."""
        await self.acknowledge(deliveries)

    async def caught_up(self) -> None:
        ends = await self._copies.end_offsets([self._partition(self._topic, each) for each in self._received])
        for place, end in ends.items():
            # The client's position, which passes what is no message: the ends of transactions, what was aborted or
            # compacted away. What it has passed is held: `receive` and whoever calls it wait for nothing in between.
            while await self._copies.position(place) < end:
                await asyncio.sleep(_POLL_SECONDS)

    async def lead(self, is_leader: bool) -> None: ...

    async def discard(self, member: str) -> None:
        """Positions of a group that nobody uses are forgotten by Kafka itself; who begins afresh ignores them."""

    async def close(self, *, keeps_copies: bool) -> None:
        async with AsyncExitStack() as stack:  # whatever fails, the rest is stopped
            for client in (self._producer, self._hearing, self._copies):
                if client is not None:
                    stack.push_async_callback(client.stop)
            if self._copies is not None:
                await self._commit()

    def _delivery(self, record: Any) -> Delivery:
        properties = {
            name: None if value is None else value.decode(errors="replace") for name, value in record.headers
        }
        return Delivery(
            id=f"{record.partition}:{record.offset}",
            body=record.value or b"",
            destination=record.topic,
            timestamp=record.timestamp / 1000,
            type=properties.get("type"),
            unit_of_order=properties.get("unit_of_order"),
            correlation_id=properties.get("correlation_id"),
            properties={**properties, **({"key": record.key.decode(errors="replace")} if record.key else {})},
            handle=(record.partition, record.offset),
        )
