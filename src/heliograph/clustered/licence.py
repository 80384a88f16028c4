"""Exactly once on Heliograph: a handler's effects, and the word that its message is done, in one transaction.

    licence queue of a member:  ▢ ── consumed and sent again in each of its transactions

A member that was stopped for longer than its lease might still commit, after somebody else took its values
over. So each of its transactions consumes the one message in its licence queue and sends it again; who leads
takes that message away before it gives the member's values to others. From then on the member finds no
licence, and the transaction that it had open has been rolled back, or the licence would not have been there
to take. The note that it was taken is in the same transaction, for the leader that comes next.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from heliograph.clustered.kept_words import PROPERTY
from heliograph.clustered.words import MemberKey

if TYPE_CHECKING:
    from heliograph.client import Connection, Session

_POLL_SECONDS = 0.5
_NOTE_SECONDS = 3600.0


class Licence:
    """One member's licence, and how it takes another's."""

    def __init__(self, connection: Connection, cluster: str, member: MemberKey, control: str) -> None:
        self._connection = connection
        self._cluster = cluster
        self._member = member
        self._control = control

    def _queue(self, what: str, key: MemberKey) -> str:
        return f"queue:clustered.{self._cluster}.{what}.{key[0]}.{key[1]}"

    async def make(self) -> None:
        """Before the member says that it is there."""
        queue = self._queue("licence", self._member)
        producer = await self._connection.producer(queue)
        await producer.send_confirmed(b"licence")
        self._session: Session = await self._connection.session(acknowledge="transacted")
        self._licences = await self._session.consumer(queue, credit=1)
        self._renewing = await self._session.producer(queue)
        self._saying = await self._session.producer(self._control, persistent=True)
        self._has_licence = False

    async def begin(self) -> Session:
        """Waits for ever where the licence was taken: the lease has run out then."""
        if not self._has_licence:
            await self._licences.receive()
            self._has_licence = True
        return self._session

    async def commit(self, word: bytes) -> None:
        await self._saying.send(word, properties={PROPERTY: "done"})
        await self._renewing.send(b"licence")
        self._has_licence = False
        await self._session.commit()

    async def roll_back(self) -> None:
        self._has_licence = False
        await self._session.rollback()

    async def fence(self, key: MemberKey) -> None:
        """Take the licence of another, or find the note of somebody who did."""
        licence, note = self._queue("licence", key), self._queue("fenced", key)
        async with await self._connection.session(acknowledge="transacted") as session:
            consumer = await session.consumer(licence, credit=1)
            producer = await session.producer(note, time_to_live=_NOTE_SECONDS)
            while not await self._is_noted(note):
                if await consumer.receive(timeout=_POLL_SECONDS) is not None:
                    await producer.send(b"fenced")
                    await session.commit()

    async def _is_noted(self, note: str) -> bool:
        async for _ in await self._connection.browse(note):
            return True
        await asyncio.sleep(0)
        return False

    async def close(self) -> None:
        """What is open is rolled back, and the licence with it thrown away: nobody else needs it."""
        await self._session.close()
