"""Clustered consumers on Kafka, through aiokafka: each member reads all partitions, and a topic of one partition
is for control.

A message's id is its place. Kafka knows only positions: the position of a member in a partition is committed
up to the first message that is not done, under a group of the member's own. It keeps every message as long as
the topic does, so nothing has to be thrown away when a member is gone.
"""

from __future__ import annotations

import asyncio
from typing import Any

from heliograph.clustered.adapter import Delivery
from heliograph.clustered.words import MemberKey

_POLL_SECONDS = 0.1
_WAIT_MILLISECONDS = 1_000
_BATCH = 500
_COMMIT_SECONDS = 1.0


class Kafka:
    """One member's connection to a Kafka cluster."""

    redelivers = True

    def __init__(self, servers: str, topic: str, *, begins_with_all: bool = False, **options: Any) -> None:
        """`options` go to aiokafka's clients (security). The control topic is made by the broker on first use."""
        self._servers = servers
        self._topic = topic
        self._begins_with_all = begins_with_all
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

        self._copies = AIOKafkaConsumer(**self._options, group_id=self._group, enable_auto_commit=False)
        await self._copies.start()
        numbers = sorted(await self._producer.partitions_for(self._topic))
        places = [self._partition(self._topic, number) for number in numbers]
        self._copies.assign(places)
        for place in places:
            await self._begin(place, is_fresh)

    async def _begin(self, place: Any, is_fresh: bool) -> None:
        known = None if is_fresh else await self._copies.committed(place)
        if known is not None:
            self._copies.seek(place, known)
        elif self._begins_with_all and not is_fresh:
            await self._copies.seek_to_beginning(place)
        else:
            await self._copies.seek_to_end(place)
        position = await self._copies.position(place)
        self._received[place.partition] = self._committed[place.partition] = position
        self._open[place.partition] = {}
        await self._copies.commit({place: position})

    async def receive(self) -> list[Delivery]:
        while True:
            found = await self._copies.getmany(timeout_ms=_WAIT_MILLISECONDS, max_records=_BATCH)
            deliveries = [self._delivery(record) for records in found.values() for record in records]
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

    async def caught_up(self) -> None:
        ends = await self._copies.end_offsets([self._partition(self._topic, each) for each in self._received])
        while any(self._received[place.partition] < end for place, end in ends.items()):
            await asyncio.sleep(_POLL_SECONDS)

    async def lead(self, is_leader: bool) -> None: ...

    async def discard(self, member: str) -> None:
        """Positions of a group that nobody uses are forgotten by Kafka itself; who begins afresh ignores them."""

    async def close(self, *, keeps_copies: bool) -> None:
        if self._copies is not None:
            await self._commit()
            await self._copies.stop()
        if self._hearing is not None:
            await self._hearing.stop()
        if self._producer is not None:
            await self._producer.stop()

    def _delivery(self, record: Any) -> Delivery:
        properties = {name: value.decode(errors="replace") for name, value in record.headers}
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
