"""The bookstore of `helio demo bookstore`: customers who order a book and change their minds, and five clerks.

Each customer sends two messages, an order and its cancellation. Five clerks take them from one queue. Packing a
book takes longer than reading a cancellation, so whoever has the cancellation is done first, unless it is held
back until the order is done. What each clerk does, and what comes of it, is told as it happens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from heliograph.client import Connection, Consumer

CLERKS: Final = ("Hugo", "Iris", "Jonas", "Klara", "Leo")
ORDERS: Final = (
    ("Ada", "Persuasion"),
    ("Bela", "Moby-Dick"),
    ("Cleo", "Middlemarch"),
    ("Dario", "Ulysses"),
    ("Edda", "Effi Briest"),
    ("Fritz", "Candide"),
    ("Gerda", "Jane Eyre"),
    ("Henri", "Germinal"),
)
# Packing is slow and reading is quick, by so much that no machine mixes them up.
PACKING_SECONDS: Final = 0.15
READING_SECONDS: Final = 0.01
_PATIENCE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What a clerk did with a message."""

    seconds: float  # since the clerks began
    clerk: str
    customer: str
    book: str
    kind: str  # "order" or "cancellation"
    is_wrong: bool  # done after the other one, or before it, against the customer's will


@dataclass(slots=True, kw_only=True)
class Shop:
    """What the store knows of its customers, and what its clerks did."""

    tell: Callable[[Deed], None]
    began: float = field(default_factory=time.perf_counter)
    packed: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    deeds: list[Deed] = field(default_factory=list)

    def did(self, clerk: str, kind: str, customer: str, book: str) -> None:
        """An order is to come before its cancellation; either way round, the book is packed or it is not."""
        is_wrong = customer in self.cancelled if kind == "order" else customer not in self.packed
        (self.packed if kind == "order" else self.cancelled).add(customer)
        deed = Deed(
            seconds=time.perf_counter() - self.began,
            clerk=clerk,
            customer=customer,
            book=book,
            kind=kind,
            is_wrong=is_wrong,
        )
        self.deeds.append(deed)
        self.tell(deed)

    @property
    def unwanted(self) -> list[str]:
        """Customers who get a book that they had cancelled."""
        return [deed.customer for deed in self.deeds if deed.kind == "order" and deed.is_wrong]


async def play(connection: Connection, queue: str, *, in_order: bool, tell: Callable[[Deed], None]) -> Shop:
    """Let the customers write and the clerks work until all is done."""
    await _write(connection, queue, in_order=in_order)
    shop = Shop(tell=tell)
    async with asyncio.timeout(_PATIENCE_SECONDS):
        await asyncio.gather(*[_work(connection, queue, clerk, shop) for clerk in CLERKS])
    return shop


async def _write(connection: Connection, queue: str, *, in_order: bool) -> None:
    """Each order, and right behind it its cancellation; in order, both are of the customer's unit."""
    producer = await connection.producer(queue)
    for customer, book in ORDERS:
        unit = customer if in_order else ""
        for kind in ("order", "cancellation"):
            body = {"kind": kind, "customer": customer, "book": book}
            await producer.send(body, unit_of_order=unit, persistent=False)
    await producer.flush()


async def _work(connection: Connection, queue: str, clerk: str, shop: Shop) -> None:
    """A clerk takes one message at a time, and acknowledges it when the work is done."""
    session = await connection.session(acknowledge="individual")
    consumer = await session.consumer(queue, credit=1)
    while len(shop.deeds) < 2 * len(ORDERS):
        await _serve(consumer, clerk, shop)
    await session.close()


async def _serve(consumer: Consumer, clerk: str, shop: Shop) -> None:
    message = await consumer.receive(timeout=PACKING_SECONDS)
    if message is None:
        return
    assert isinstance(message.body, dict), "the customers above wrote it"
    body = message.body
    await asyncio.sleep(PACKING_SECONDS if body["kind"] == "order" else READING_SECONDS)
    shop.did(clerk, body["kind"], body["customer"], body["book"])
    await message.acknowledge()
