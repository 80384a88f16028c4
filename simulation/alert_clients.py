"""Applications that publish, cancel and receive alerts, and what they did and saw."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from heliograph.client.alert_consumer import AlertConsumer
from heliograph.client.alerts import AlertChannel
from heliograph.client.connection import Connection
from heliograph.model.errors import HeliographError, StorageFull
from simulation.clients import Client, Scene
from simulation.machines import Machine
from simulation.world import World

CHANNEL = "ops"
_RECEIVE_SECONDS = 0.4
_AREAS = ("db", "web", "net")


class Published(msgspec.Struct):
    """An alert as its producer knows it."""

    key: str
    destination: str
    priority: int
    is_lasting: bool  # persistent and without end: whoever wants it must get it
    sent_at: float
    confirmed_at: float = 0.0
    was_refused: bool = False
    cancel_asked_at: float = 0.0
    cancelled_at: float = 0.0  # confirmed


class Received(msgspec.Struct):
    """By the application of a subscriber, in one of its lives."""

    key: str
    subscriber: str
    life: str
    at: float
    is_marked: bool


class AlertHistory:
    """All that happened."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.published: dict[str, Published] = {}
        self.received: list[Received] = []
        self.by_subscriber: dict[str, dict[str, list[Received]]] = {}
        self.unwanted: list[str] = []
        self.wants: dict[str, str] = {}  # what each subscriber wants, from beginning to end

    def receive(self, key: str, subscriber: str, life: str, *, is_marked: bool) -> None:
        received = Received(key, subscriber, life, self.world.now, is_marked)
        self.received.append(received)
        self.by_subscriber.setdefault(subscriber, {}).setdefault(key, []).append(received)
        self.world.note("alert", key, subscriber, is_marked)

    def missing(self) -> list[tuple[str, str]]:
        """What must be received and is not: subscriber, alert."""
        return [
            (subscriber, key)
            for subscriber, area in self.wants.items()
            for key, alert in self.published.items()
            if alert.confirmed_at
            and alert.is_lasting
            and not alert.cancel_asked_at
            and alert.destination.startswith(f"TAG:{area}")
            and key not in self.by_subscriber.get(subscriber, {})
        ]

    def counts(self) -> dict[str, int]:
        alerts = self.published.values()
        return {
            "sent": len(alerts),
            "confirmed": sum(1 for alert in alerts if alert.confirmed_at),
            "refused": sum(1 for alert in alerts if alert.was_refused),
            "cancelled": sum(1 for alert in alerts if alert.cancelled_at),
            "handed_out": len(self.received),
            "marked": sum(1 for received in self.received if received.is_marked),
        }


class Publishing(Client):
    """Publishes alerts, and cancels some of them."""

    def __init__(self, scene: Scene, machine: Machine, name: str, history: AlertHistory) -> None:
        super().__init__(scene, machine, name)
        self._alerts = history
        self._sent = 0
        self._cancelling: set[asyncio.Task[None]] = set()

    async def work(self, connection: Connection) -> None:
        channel = connection.alerts(CHANNEL)
        self._cancelling.clear()  # what a former life had begun is gone with it
        while self.scene.is_sending:
            await self._publish(channel)
            await self.pause(self.dice.choice((0.02, 0.1, 0.3)) * self.scene.leisure)
        await asyncio.gather(*self._cancelling)

    async def _publish(self, channel: AlertChannel) -> None:
        self._sent += 1
        key, options = f"{self.life}:{self._sent}", self._options()
        destination = f"TAG:{self.dice.choice(_AREAS)}.{self.dice.randint(1, 9)}"
        is_lasting = options["persistent"] and not options["duration"]
        alert = Published(key, destination, options["priority"], is_lasting, self.world.now)
        self._alerts.published[key] = alert
        try:
            identity = await channel.publish(destination, key, **options)
        except StorageFull:
            alert.was_refused = True
            await asyncio.sleep(0.1)
            return
        alert.confirmed_at = self.world.now
        self.world.note("published", key)
        if self.world.chance(0.3):
            cancelling = asyncio.get_running_loop().create_task(self._cancel(channel, alert, identity))
            self._cancelling.add(cancelling)
            cancelling.add_done_callback(self._cancelling.discard)

    def _options(self) -> dict[str, Any]:
        return {
            "priority": self.dice.randint(1, 10),
            "duration": self.dice.choice((0.0, 0.0, 0.0, 2.0)),
            "persistent": not self.world.chance(0.1),
        }

    async def _cancel(self, channel: AlertChannel, alert: Published, identity: str) -> None:
        await self.pause(self.dice.choice((0.0, 0.01, 1.0)))
        alert.cancel_asked_at = self.world.now
        try:
            await channel.cancel(identity)
        except HeliographError as error:
            self.scene.heard(error)  # it was lost or expired, or the connection was
        else:
            alert.cancelled_at = self.world.now
            self.world.note("cancelled", alert.key)


class Watching(Client):
    """Receives under a name, in all its lives; now and then it wants nothing for a moment."""

    def __init__(self, scene: Scene, machine: Machine, name: str, area: str, history: AlertHistory) -> None:
        super().__init__(scene, machine, name)
        self._alerts = history
        self._area = area
        history.wants[name] = area

    async def work(self, connection: Connection) -> None:
        channel = connection.alerts(CHANNEL)
        credit = self.dice.choice((1, 2, 8, 32))
        consumer = await channel.subscribe(f"TAG:^{self._area}", name=self.name, credit=credit)
        while True:
            alert = await consumer.receive(_RECEIVE_SECONDS)
            if alert is not None:
                self._alerts.receive(alert.text, self.name, self.life, is_marked=alert.redelivered)
            if self.world.chance(0.15):
                await self.pause(0.4)
            if self.world.chance(0.01):
                await self._rest(consumer)

    async def _rest(self, consumer: AlertConsumer) -> None:
        await consumer.unsubscribe(f"TAG:^{self._area}")
        alert = await consumer.receive(0.05)
        if alert is not None:
            self._alerts.unwanted.append(f"{self.life} received {alert.text} behind an unsubscribe")
            self._alerts.receive(alert.text, self.name, self.life, is_marked=alert.redelivered)
        await consumer.subscribe(f"TAG:^{self._area}")
