"""Exactly once on Heliograph: a handler's effects, and the word that its message is done, in one transaction.

    licence queue of a member:  ▢ ── consumed and sent again in each of its transactions
    register of the cluster:    an entry for every licence that nobody has taken

A member that was stopped for longer than its lease might still commit, after somebody else took its values
over. So each of its transactions consumes the one message in its licence queue and sends it again; who leads
takes that message away before it gives the member's values to others. From then on the member finds no
licence, and the transaction that it had open has been rolled back, or the licence would not have been there
to take. The note that it was taken is in the same transaction, for the leader that comes next.

Who founds the cluster anew knows of nobody, though somebody may have been stopped in a transaction. It takes
every licence in the register but those of the members that wait with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from heliograph.clustered.kept_words import PROPERTY
from heliograph.clustered.words import MemberKey
from heliograph.model import limits
from heliograph.model.errors import HeliographError, Unavailable

if TYPE_CHECKING:
    from heliograph.client import Connection, Session

_POLL_SECONDS = 0.5
_NOTE_SECONDS = 3600.0
_KEY = "heliograph_clustered_member"
"""The property of an entry in the register: whose licence it stands for."""


class Licence:
    """One member's licence, and how it takes another's."""

    def __init__(self, connection: Connection, cluster: str, member: MemberKey, control: str) -> None:
        self._connection = connection
        self._cluster = cluster
        self._member = member
        self._control = control
        self._register = f"queue:clustered.{cluster}.licences"

    def _queue(self, what: str, key: MemberKey) -> str:
        return f"queue:clustered.{self._cluster}.{what}.{key[0]}.{key[1]}"

    async def make(self) -> None:
        """Before the member says that it is there. No licence is without its entry in the register."""
        queue = self._queue("licence", self._member)
        self._session: Session = await self._connection.session(acknowledge="transacted")
        self._renewing = await self._session.producer(queue)
        registering = await self._session.producer(self._register)
        await self._renewing.send(b"licence")
        await registering.send(b"", properties={_KEY: _written(self._member)})
        await self._session.commit()
        self._licences = await self._session.consumer(queue, credit=1)
        self._saying = await self._session.producer(self._control, persistent=True)
        self._has_licence = False

    async def begin(self) -> Session:
        """Where the licence was taken, this incarnation is over."""
        while not self._has_licence:
            self._has_licence = await self._licences.receive(timeout=_POLL_SECONDS) is not None
            if not self._has_licence and await self._is_noted(self._queue("fenced", self._member)):
                raise Unavailable("the others went on without this member", code="licence-taken")
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
                    # Its entry is there, because both were made in one transaction, and nobody else looks for it.
                    entry = f"{_KEY} = '{_written(key)}'"
                    await (await session.consumer(self._register, credit=1, selector=entry)).receive()
                    await producer.send(b"fenced")
                    await session.commit()

    async def fence_all(self, spares: Callable[[MemberKey], bool]) -> None:
        """Take every licence in the register but mine and those that are spared."""
        browser = await self._connection.browse(self._register)
        for key in [_read(str(entry.properties[_KEY])) async for entry in browser]:
            if key != self._member and not spares(key):
                await self.fence(key)

    async def _is_noted(self, note: str) -> bool:
        async for _ in await self._connection.browse(note):
            return True
        await asyncio.sleep(0)
        return False

    async def close(self) -> None:
        """What is open is rolled back. The licence is given back; if that fails, somebody will take it."""
        await self._session.close()
        with suppress(TimeoutError, HeliographError):
            async with asyncio.timeout(limits.CLUSTERED_RETURN_SECONDS[1]):
                await self.fence(self._member)


def _written(key: MemberKey) -> str:
    """In hexadecimal digits, because a name may have any character, also one that means something in a selector."""
    return f"{key[0].encode().hex()}.{key[1]}"


def _read(text: str) -> MemberKey:
    name, _, incarnation = text.partition(".")
    return bytes.fromhex(name).decode(), int(incarnation)
