"""Sending and receiving by the lot, for stories that are about something else."""

from __future__ import annotations

from heliograph.client import Consumer, Message, Producer


async def send_all(producer: Producer, bodies: list[bytes]) -> None:
    for body in bodies:
        await producer.send(body)
    await producer.flush()


async def receive_all(consumer: Consumer, count: int) -> list[Message]:
    """That no more came is up to the test."""
    messages: list[Message] = []
    while len(messages) < count:
        batch = await consumer.receive_batch(count - len(messages), timeout=10)
        assert batch, f"{len(messages)} of {count} messages came"
        messages += batch
    return messages
