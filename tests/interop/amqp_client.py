"""A client of AMQP on asyncio, made of Proton's engine: hundreds of Proton's containers would be as many threads."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from typing import Any

from proton import Collector, Connection, Delivery, Event, Message, Transport

_CREDIT = 500


class AmqpClient:
    """Receives from one address and sends to any."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._collector = Collector()
        self._connection = Connection()
        self._connection.container = str(uuid.uuid4())
        self._connection.collect(self._collector)
        self._transport = Transport()
        self._transport.bind(self._connection)
        self._connection.open()
        self._session = self._connection.session()
        self._session.open()
        self._tags = itertools.count()
        self._is_open: dict[str, asyncio.Event] = {}
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._senders: dict[str, Any] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def connect(cls, host: str, port: int) -> AmqpClient:
        return cls(*await asyncio.open_connection(host, port))

    async def _read(self) -> None:
        while data := await self._reader.read(65536):
            while data:
                room = self._transport.capacity()
                if room <= 0:
                    return
                self._transport.push(data[:room])
                data = data[room:]
            self._handle()
            self._write()

    def _write(self) -> None:
        while (pending := self._transport.pending()) > 0:
            self._writer.write(bytes(self._transport.peek(pending)))
            self._transport.pop(pending)

    def _handle(self) -> None:
        while (event := self._collector.peek()) is not None:
            if event.type == Event.LINK_REMOTE_OPEN:
                self._is_open[event.link.name].set()
            elif event.type == Event.DELIVERY:
                self._delivered(event.delivery)
            self._collector.pop()

    def _delivered(self, delivery: Any) -> None:
        link = delivery.link
        if link.is_sender:
            delivery.settle()
        elif delivery.readable and not delivery.partial:
            message = Message()
            message.decode(link.recv(delivery.pending))
            link.advance()
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()
            link.flow(1)
            self._messages.put_nowait(message)

    async def _opened(self, link: Any) -> None:
        is_open = self._is_open[link.name] = asyncio.Event()
        link.open()
        self._write()
        await is_open.wait()

    async def subscribe(self, address: str) -> None:
        receiver = self._session.receiver("receiver")
        receiver.source.address = address
        await self._opened(receiver)
        receiver.flow(_CREDIT)
        self._write()

    async def send(self, address: str, message: Message) -> None:
        if address not in self._senders:
            sender = self._senders[address] = self._session.sender(f"to {address}")
            sender.target.address = address
            await self._opened(sender)
        sender = self._senders[address]
        sender.delivery(f"{next(self._tags)}")
        sender.stream(bytes(message.encode()))
        sender.advance()
        self._write()

    async def hear(self) -> Message:
        return await self._messages.get()

    def close(self) -> None:
        self._reading.cancel()
        self._writer.close()
