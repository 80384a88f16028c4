"""Proton as a client without a network: it talks to a conversation at a desk, and what it says is kept."""

from __future__ import annotations

from typing import Any

from proton import Collector, Connection, Message, Transport

from fuzz.desk import Desk
from heliograph.frontends.amqp.conversation import AmqpConversation


class Client:
    """One connection, pumped until nobody has anything more to say."""

    def __init__(self, desk: Desk | None = None, *, step: int = 1 << 20) -> None:
        """`step`: the server hears so many bytes at a time."""
        self.desk = desk or Desk(AmqpConversation(), delivers=0)
        self._step = step
        self.said = b""
        self.events: list[str] = []
        self._heard = 0
        self._collector = Collector()
        self.connection = Connection()
        self.connection.container = "client"
        self.connection.collect(self._collector)
        self._transport = Transport()
        self._transport.bind(self.connection)
        self.connection.open()
        self.session = self.connection.session()
        self.session.open()
        self.pump()

    def pump(self) -> None:
        for _ in range(1000):
            pending = self._transport.pending()
            raw = bytes(self._transport.peek(pending)) if pending > 0 else b""
            if raw:
                self._transport.pop(len(raw))
                self.said += raw
                for start in range(0, len(raw), self._step):
                    self.desk.receive(raw[start : start + self._step])
            answers = b"".join(self.desk.said[self._heard :])
            self._heard = len(self.desk.said)
            while answers and (room := self._transport.capacity()) > 0:
                self._transport.push(answers[:room])
                answers = answers[room:]
                raw = raw or b"more"
            while (event := self._collector.peek()) is not None:
                self.events.append(event.type.name)
                self._collector.pop()
            if not raw and not answers:
                return

    def sender(self, address: str | None, name: str = "sender") -> Any:
        sender = self.session.sender(name)
        sender.target.address = address
        sender.open()
        self.pump()
        return sender

    def receiver(self, address: str, name: str = "receiver", credit: int = 10) -> Any:
        receiver = self.session.receiver(name)
        receiver.source.address = address
        receiver.open()
        receiver.flow(credit)
        self.pump()
        return receiver

    def send(self, sender: Any, body: Any, tag: str = "1") -> Any:
        delivery = sender.delivery(tag)
        sender.stream(bytes(Message(body=body).encode()))
        sender.advance()
        self.pump()
        return delivery
