"""Alerts without await: the same channel and consumers, on the blocking face's loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self, Unpack

from heliograph.client.alert import AlertOptions, BlockingAlert
from heliograph.client.alert_consumer import AlertConsumer
from heliograph.client.alerts import AlertChannel, OnReceipt
from heliograph.client.loop_thread import LoopThread
from heliograph.model.limits import ALERT_CREDIT


class BlockingAlertChannel:
    """As `AlertChannel`, without await."""

    def __init__(self, thread: LoopThread, channel: AlertChannel) -> None:
        self._thread = thread
        self._channel = channel

    @property
    def address(self) -> str:
        return self._channel.address

    @property
    def on_receipt(self) -> OnReceipt | None:
        """Called on the loop's thread."""
        return self._channel.on_receipt

    @on_receipt.setter
    def on_receipt(self, callback: OnReceipt | None) -> None:
        self._channel.on_receipt = callback

    def publish(self, destination: str, body: bytes | str = b"", **options: Unpack[AlertOptions]) -> str:
        """As `AlertChannel.publish`."""
        return self._thread.run(self._channel.publish(destination, body, **options))

    def subscribe(
        self,
        topics: str = "",
        *,
        acknowledgements: str = "",
        name: str = "",
        credit: int = ALERT_CREDIT,
    ) -> BlockingAlertConsumer:
        """As `AlertChannel.subscribe`."""
        work = self._channel.consume(topics, acknowledgements, name, credit, BlockingAlert)
        return BlockingAlertConsumer(self._thread, self, self._thread.run(work))

    def cancel(self, identity: str) -> None:
        """As `AlertChannel.cancel`."""
        self._thread.run(self._channel.cancel(identity))

    def acknowledge(self, identity: str, body: bytes | str = b"ACK") -> str:
        """As `AlertChannel.acknowledge`."""
        return self._thread.run(self._channel.acknowledge(identity, body))

    def list(self, topics: str = "") -> list[dict[str, Any]]:
        """As `AlertChannel.list`."""
        return self._thread.run(self._channel.list(topics))

    def audit(self, identity: str) -> dict[str, Any]:
        """As `AlertChannel.audit`."""
        return self._thread.run(self._channel.audit(identity))

    def received(self, consumer: AlertConsumer, timeout: float | None) -> BlockingAlert | None:
        """What a consumer gets next. It counts as taken when it is here, on the application's thread."""
        view = self._thread.run(consumer.reserve(timeout))
        if view is None:
            return None
        alert = BlockingAlert(self._channel, view)
        alert._blocking = self
        self._thread.loop.call_soon_threadsafe(consumer.took, view.id)
        return alert


class BlockingAlertConsumer:
    """As `AlertConsumer`, without await: `for alert in consumer`."""

    def __init__(self, thread: LoopThread, channel: BlockingAlertChannel, consumer: AlertConsumer) -> None:
        self._thread = thread
        self._channel = channel
        self._consumer = consumer

    @property
    def name(self) -> str:
        return self._consumer.name

    def receive(self, timeout: float | None = None) -> BlockingAlert | None:
        """As `AlertConsumer.receive`."""
        return self._channel.received(self._consumer, timeout)

    def __iter__(self) -> Iterator[BlockingAlert]:
        while (alert := self.receive()) is not None:
            yield alert

    def subscribe(self, topics: str = "", *, acknowledgements: str = "") -> None:
        """As `AlertConsumer.subscribe`."""
        self._thread.run(self._consumer.subscribe(topics, acknowledgements=acknowledgements))

    def unsubscribe(self, topics: str = "", *, acknowledgements: str = "") -> None:
        """As `AlertConsumer.unsubscribe`."""
        self._thread.run(self._consumer.unsubscribe(topics, acknowledgements=acknowledgements))

    def close(self, *, unsubscribe: bool | None = None) -> None:
        """As `AlertConsumer.close`."""
        self._thread.run(self._consumer.close(unsubscribe=unsubscribe))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
