"""The Python client library: asyncio, with a blocking face over it of the same shape (J12).

    async with connect("helio://localhost:7700") as connection:
        producer = await connection.producer("queue:orders")
        await producer.send(b"one")

The public names are these; the modules behind them may change.
"""

from heliograph.client.browser import Browser
from heliograph.client.connection import Connection, connect
from heliograph.client.consumer import Consumer
from heliograph.client.message import Message
from heliograph.client.producer import Producer
from heliograph.client.session import Session

__all__ = ["Browser", "Connection", "Consumer", "Message", "Producer", "Session", "connect"]
