"""Alerts for an application: `connection.alerts("ops")`, and the desk at which a session keeps what it has to do with
them from one connection to the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Unpack

from heliograph.client.alert import Alert, AlertOptions, Receipt, bytes_of, header_of
from heliograph.client.alert_consumer import AlertConsumer
from heliograph.frontends.native import frames
from heliograph.frontends.native.frames import (
    AcknowledgeAlert,
    AlertReceipt,
    AlertWithdrawn,
    Answer,
    AuditAlert,
    CancelAlert,
    Completed,
    ConsumerClosed,
    ListAlerts,
    PublishAlert,
)
from heliograph.model.alert import check_header, parse_alert_id, text_of_alert
from heliograph.model.alert_topics import parse_topics
from heliograph.model.destination import Kind
from heliograph.model.errors import ConnectionLost, HeliographError, from_code
from heliograph.model.limits import ALERT_CREDIT

if TYPE_CHECKING:
    from heliograph.client.connection import Connection
    from heliograph.client.link import Link
    from heliograph.client.session import Session
    from heliograph.client.wire import Wire

OnReceipt = Callable[[Receipt], None]


class AlertChannel:
    """One channel, seen from a connection."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.address = name if name.startswith(f"{Kind.ALERTS}:") else f"{Kind.ALERTS}:{name}"
        self._connection = connection
        self.on_receipt: OnReceipt | None = None

    def __repr__(self) -> str:
        return f"<AlertChannel {self.address}>"

    async def _desk(self) -> AlertDesk:
        session = await self._connection.default_session()
        session.alerts.know(self)
        return session.alerts

    async def publish(
        self, destination: str, body: bytes | str = b"", **options: Unpack[AlertOptions]
    ) -> str:
        """Publish an alert to `TAG:…`, `PROFILE:…` or `USER:…`. Its id, when it is stored.

        `priority` 1 to 10 (5 unless told); `duration` in seconds (0: until it is cancelled); `persistent`;
        `classification`; `cancel` by the "originator" or by "any"; `acknowledge` "none", "client" or "receipt".
        """
        header, raw = header_of(destination, options), bytes_of(body)
        check_header(header, raw)
        desk = await self._desk()
        lane, sequence = desk.next_sequence(self.address)
        answer = await desk.link.request(
            lambda: PublishAlert(
                request=0,
                number=desk.number,
                destination=self.address,
                lane=lane,
                sequence=sequence,
                header=header,
                body=raw,
            ),
            Answer,
        )
        return text_of_alert(answer.body["id"])

    async def subscribe(
        self,
        topics: str = "",
        *,
        acknowledgements: str = "",
        name: str = "",
        credit: int = ALERT_CREDIT,
    ) -> AlertConsumer:
        """A consumer of alerts, as in `TAG:a,b;USER:c`, and of acknowledgements.

        It gets what is live and matches, the most urgent first, and then what comes; each alert once. Under a `name`
        that is remembered: while nobody is there under that name, alerts wait, and nothing comes twice.
        """
        return await self.consume(topics, acknowledgements, name, credit, Alert)

    async def consume(
        self, topics: str, acknowledgements: str, name: str, credit: int, alert_type: type[Alert]
    ) -> AlertConsumer:
        wanted = {(kind, text): None for kind, text in ((False, topics), (True, acknowledgements)) if text}
        for _, text in wanted:
            parse_topics(text)  # refuses what cannot be read
        desk = await self._desk()
        return await desk.consumer(self.address, wanted, name, credit, alert_type)

    async def cancel(self, identity: str) -> None:
        """Withdraw an alert. When this returns, no application receives it any more."""
        alert = parse_alert_id(identity)
        desk = await self._desk()
        await desk.link.request(
            lambda: CancelAlert(request=0, number=desk.number, destination=self.address, alert=alert),
            Completed,
        )

    async def acknowledge(self, identity: str, body: bytes | str = b"ACK") -> str:
        """Acknowledge an alert. The id of the acknowledgement; empty if the alert asked for none."""
        alert, raw = parse_alert_id(identity), bytes_of(body)
        desk = await self._desk()
        await desk.say_what_was_taken()
        lane, sequence = desk.next_sequence(self.address)
        answer = await desk.link.request(
            lambda: AcknowledgeAlert(
                request=0,
                number=desk.number,
                destination=self.address,
                lane=lane,
                sequence=sequence,
                alert=alert,
                body=raw,
            ),
            Answer,
        )
        return text_of_alert(answer.body["id"]) if "id" in answer.body else ""

    async def list(self, topics: str = "") -> list[dict[str, Any]]:
        """The live alerts that one may see, or those of them that match, the most urgent first."""
        desk = await self._desk()
        found: list[dict[str, Any]] = []
        after = b""
        while True:
            body = await self._page(desk, topics, after)
            found += body["alerts"]
            after = body["next"]
            if not after:
                return found

    async def _page(self, desk: AlertDesk, topics: str, after: bytes) -> dict[str, Any]:
        answer = await desk.link.request(
            lambda: ListAlerts(
                request=0, number=desk.number, destination=self.address, topics=topics, after=after
            ),
            Answer,
        )
        return answer.body

    async def audit(self, identity: str) -> dict[str, Any]:
        """The life of an alert: published, delivered to whom and when, acknowledged, receipts, how it ended."""
        alert = parse_alert_id(identity)
        desk = await self._desk()
        answer = await desk.link.request(
            lambda: AuditAlert(request=0, number=desk.number, destination=self.address, alert=alert), Answer
        )
        return answer.body


class AlertDesk:
    """What one session has to do with alerts."""

    def __init__(self, session: Session, link: Link, number: int) -> None:
        self._session = session
        self.link = link
        self.number = number
        self._channels: dict[str, AlertChannel] = {}
        self._lanes: dict[str, tuple[int, int]] = {}  # by channel: lane, and the last sequence
        self._consumers: dict[int, AlertConsumer] = {}

    def know(self, channel: AlertChannel) -> None:
        self._channels.setdefault(channel.address, channel)

    def channel(self, address: str) -> AlertChannel:
        return self._channels[address]

    def next_sequence(self, address: str) -> tuple[int, int]:
        """By which the next alert to a channel is named, however often it has to be sent."""
        lane, last = self._lanes.get(address) or (self._session.new_lane(), 0)
        self._lanes[address] = (lane, last + 1)
        return lane, last + 1

    async def consumer(
        self,
        address: str,
        topics: dict[tuple[bool, str], None],
        name: str,
        credit: int,
        alert_type: type[Alert],
    ) -> AlertConsumer:
        consumer = AlertConsumer(self, self._session.new_consumer_number(), address, name, credit, alert_type)
        while True:
            wire = await self.link.ready()
            self._consumers[consumer.number] = consumer
            try:
                await consumer.attach(wire, topics)
            except ConnectionLost:
                del self._consumers[consumer.number]
                if self.link.wire is wire:  # the server itself answered so
                    raise
            except BaseException:
                del self._consumers[consumer.number]
                raise
            else:
                return consumer

    async def say_what_was_taken(self) -> None:
        """Before something is said that follows from it."""
        for consumer in self._consumers.values():
            consumer.flush()
        await asyncio.sleep(0)  # in which it is written

    def forget(self, consumer: AlertConsumer) -> None:
        self._consumers.pop(consumer.number, None)

    # ---- what the server says

    def news(self, news: frames.Alert | AlertWithdrawn | AlertReceipt) -> None:
        if isinstance(news, AlertReceipt):
            self._receipt(news)
            return
        consumer = self._consumers.get(news.consumer)
        if consumer is None:
            return  # it is closing, and says so
        if isinstance(news, frames.Alert):
            consumer.deliver(news.alert)
        else:
            consumer.withdraw(news.alert)

    def _receipt(self, news: AlertReceipt) -> None:
        channel = self._channels.get(news.destination)
        if channel is not None and channel.on_receipt is not None:
            at = datetime.fromtimestamp(news.at / 1e6, UTC)
            channel.on_receipt(Receipt(text_of_alert(news.alert), news.destination, news.user, news.name, at))

    def closed(self, news: ConsumerClosed) -> bool:
        """The server ended a consumer. Whether it was one of these."""
        consumer = self._consumers.pop(news.consumer, None)
        if consumer is not None:
            consumer.end(from_code(news.code, news.sentence))
        return consumer is not None

    # ---- connections

    def detach(self) -> None:
        for consumer in self._consumers.values():
            consumer.detach()

    async def resume(self, wire: Wire) -> None:
        for consumer in list(self._consumers.values()):
            try:
                await consumer.attach(wire)
            except ConnectionLost:
                raise
            except HeliographError as refusal:
                self.forget(consumer)
                consumer.end(refusal)
                self.link.report(refusal)

    def end(self, error: HeliographError) -> None:
        for consumer in self._consumers.values():
            consumer.end(error)

    async def leave(self) -> None:
        for consumer in list(self._consumers.values()):
            await consumer.close()
