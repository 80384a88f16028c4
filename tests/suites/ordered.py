"""Competing consumers in a test, and a ledger that knows what in order means.

A message is processed in order if, whenever it is handed to an application, every earlier one of its unit is
done or in the hands of the same consumer. The ledger holds each hand-over to that.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from typing import Any

import heliograph
from heliograph import Connection, Consumer, Message, Session
from tests.servers import until

BY_ITSELF = ("auto", "dups-ok")
SECONDS = 60.0
_GLANCE_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """A message was handed to an application."""

    body: str
    to: str
    marked: bool


class Ledger:
    """Bodies are written `UNIT-NUMBER`; messages of the unit `plain` have no order."""

    def __init__(self) -> None:
        self.handed: list[Handed] = []
        self._in_hand: dict[str, str] = {}
        self._done: set[str] = set()

    def hand(self, body: str, to: str, *, marked: bool) -> None:
        unit, _, number = body.partition("-")
        self.handed.append(Handed(body=body, to=to, marked=marked))
        for other, holder in self._in_hand.items():
            other_unit, _, other_number = other.partition("-")
            if unit == other_unit != "plain":
                assert holder == to, f"{body} went to {to} while {holder} had {other}: {self.handed}"
                assert int(other_number) < int(number), f"{body} came to {to} after {other}: {self.handed}"
        self._in_hand[body] = to

    def done(self, by: str) -> None:
        """It has processed what it had in hand."""
        self._done |= set(self.given_back(by))

    def given_back(self, by: str) -> list[str]:
        """What it had in hand, which it will not process."""
        bodies = [body for body, holder in self._in_hand.items() if holder == by]
        for body in bodies:
            del self._in_hand[body]
        return bodies

    def has_done(self, bodies: set[str]) -> bool:
        return bodies <= self._done

    def of(self, unit: str) -> list[Handed]:
        return [handed for handed in self.handed if handed.body.startswith(f"{unit}-")]


class Worker:
    """One of several consumers, with a connection and a session to itself."""

    def __init__(self, name: str, mode: str, ledger: Ledger) -> None:
        self.name = name
        self.mode: Any = mode
        self.ledger = ledger
        self.connection: Connection
        self.session: Session
        self.consumer: Consumer
        self.messages: list[Message] = []

    async def start(self, url: str, destination: str, **options: Any) -> Worker:
        self.connection = await heliograph.connect(url, client_name=self.name, on_error=_expected)
        self.session = await self.connection.session(acknowledge=self.mode)
        self.consumer = await self.session.consumer(destination, **options)
        return self

    async def take(self, seconds: float = SECONDS) -> Message | None:
        """Ask for the next message, which completes the one before it where the mode says so."""
        if self.mode in BY_ITSELF:
            self.done()
        message = await self.consumer.receive(timeout=seconds)
        if message is not None:
            self.messages.append(message)
            self.ledger.hand(message.text, self.name, marked=message.redelivered)
        return message

    async def expect(self, body: str) -> Message:
        message = await self.take()
        assert message is not None, f"{self.name} waited in vain for {body}"
        assert message.text == body
        return message

    def done(self) -> list[Message]:
        self.ledger.done(self.name)
        messages, self.messages = self.messages, []
        return messages

    def given_back(self) -> list[Message]:
        self.ledger.given_back(self.name)
        messages, self.messages = self.messages, []
        return messages

    async def complete(self) -> None:
        """Say that what it has is processed; where asking for the next message says so, that is for `take`."""
        if self.mode in BY_ITSELF:
            return
        messages = self.done()
        if self.mode == "client":
            await self.session.acknowledge()
        elif self.mode == "transacted":
            await self.session.commit()
        for message in messages if self.mode == "individual" else ():
            await message.acknowledge()

    async def fail(self) -> None:
        """Have everything again, as the mode has it."""
        self.given_back()
        await (self.session.rollback() if self.mode == "transacted" else self.session.recover())

    def cut(self) -> None:
        """The network takes the connection away; the library makes another, and goes on with what it had."""
        wire = self.connection._link.wire
        assert wire is not None
        assert wire._transport is not None
        wire._transport.abort()

    async def stop(self) -> None:
        await self.connection.close()


def _expected(_error: heliograph.HeliographError) -> None:
    """Connections are cut on purpose here."""


async def work_off(workers: list[Worker], bodies: set[str], seconds: float = SECONDS) -> None:
    """All of them work, side by side, until these are processed."""
    ledger = workers[0].ledger

    async def work(worker: Worker) -> None:
        while not ledger.has_done(bodies):
            if await worker.take(_GLANCE_SECONDS) is not None:
                await worker.complete()

    async with asyncio.timeout(seconds):
        await asyncio.gather(*map(work, workers))


async def depth_of(connection: Connection, destination: str) -> tuple[int, int]:
    figures = await connection.ask("destination.show", destination=destination)
    return figures["depth"], figures["in_flight"]


async def until_depth(connection: Connection, destination: str, depth: int, in_flight: int) -> None:
    """Until so many wait and so many are handed out."""
    async with asyncio.timeout(SECONDS):
        while await depth_of(connection, destination) != (depth, in_flight):
            await asyncio.sleep(_GLANCE_SECONDS)


async def until_time(at: float) -> None:
    """Until the clock says so."""
    await until(lambda: time.time() > at, "the time has come")


async def _hold_one(url: str, destination: str, mode: str, credit: int) -> None:
    """Receive one message, and sit on it until killed."""
    worker = await Worker("process", mode, Ledger()).start(url, destination, credit=credit)
    await worker.take()
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_hold_one(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
