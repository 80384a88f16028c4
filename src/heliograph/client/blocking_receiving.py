"""Consumers and browsers of the blocking face, which draw messages straight from the asyncio one's inbox."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self, cast

from heliograph.client.consumer import BATCH_MESSAGES, Consumer
from heliograph.client.loop_thread import LoopThread
from heliograph.client.message import BlockingMessage


class BlockingConsumer:
    """As `Consumer`, without await: `for message in consumer`."""

    def __init__(self, thread: LoopThread, consumer: Consumer) -> None:
        self._thread = thread
        self._consumer = consumer

    @property
    def destination(self) -> str:
        return self._consumer.destination

    def __iter__(self) -> Iterator[BlockingMessage]:
        while self._thread.run(self._consumer.more()):
            inbox = self._consumer.inbox
            for message in inbox.messages:
                yield message
                if inbox.quiet:
                    self._acknowledge_soon()

    def receive(self, timeout: float | None = None) -> BlockingMessage | None:
        """The next message; None if none came in `timeout` seconds, or the consumer was closed."""
        consumer = self._consumer
        message: BlockingMessage | None = next(consumer.inbox.messages, None)
        while message is None:
            consumer.check_open()
            if not self._thread.run(self._consumer.more(timeout)):
                return None
            message = next(consumer.inbox.messages, None)
        if consumer.inbox.quiet:
            self._acknowledge_soon()
        return message

    def _acknowledge_soon(self) -> None:
        self._consumer.inbox.quiet = False
        self._thread.loop.call_soon_threadsafe(self._consumer.acknowledge_soon)

    def receive_batch(
        self, limit: int = BATCH_MESSAGES, timeout: float | None = None
    ) -> list[BlockingMessage]:
        """Wait for a message, then take all that are here; see `Consumer.receive_batch`."""
        return cast(list[BlockingMessage], self._thread.run(self._consumer.receive_batch(limit, timeout)))

    def close(self) -> None:
        """End it; see `Consumer.close`."""
        self._thread.run(self._consumer.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._thread.run(self._consumer.leave(complete=kind is None))


class BlockingBrowser(BlockingConsumer):
    """As `Browser`, without await: `for message in browser`, which ends by itself."""
