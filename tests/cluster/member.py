"""A process that enters a channel of the corosync it finds, does what it is told on standard input, a line of JSON
each, and answers in kind. It ends with its input."""

import asyncio
import json
import os
import sys
from functools import partial
from typing import Any

import uvloop

from heliograph.bus.corosync import CorosyncBus, CorosyncMembership
from heliograph.model.errors import Unavailable
from tests.suites.bus_diary import Diary


class Told:
    """What can be asked of the process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, channel: str, who: int, greets: bool) -> None:
        self._loop = loop
        self._bus = CorosyncBus(loop)
        self._channel = channel
        self._who = who
        self._greets = greets
        self.diary = Diary(who)

    def enter(self) -> dict[str, Any]:
        self.diary = Diary(self._who, greets=self._greets)
        if self._greets:
            self.diary.enter_again = partial(self._bus.enter, self._channel, self.diary)
        try:
            membership = self.diary.membership = self._bus.enter(self._channel, self.diary)
        except Unavailable as error:
            return {"error": error.code, "sentence": error.sentence}
        return {"place": [membership.place.node, membership.place.process]}

    def say(self, count: int, size: int) -> dict[str, Any]:
        self.diary.say(count, size)
        return {}

    def say_and_leave(self, count: int, size: int) -> dict[str, Any]:
        self.diary.say_and_leave(count, size)
        return {}

    def say_when_heard(self, count: int, size: int) -> dict[str, Any]:
        self.diary.say_when_heard(count, size)
        return {}

    def flood(self, count: int, size: int) -> dict[str, Any]:
        self.diary.flood(count, size)
        return {}

    def tell(self, start: int) -> dict[str, Any]:
        """What was heard since."""
        diary = self.diary
        events = diary.events[start : start + 20_000]
        return {"events": events, "said": diary.said, "refused": diary.refused}

    def leave(self) -> dict[str, Any]:
        assert self.diary.membership is not None
        self.diary.membership.leave()
        return {}

    def utter(self, raw: str) -> dict[str, Any]:
        """Bytes as they are, which no honest member sends."""
        membership = self.diary.membership
        assert isinstance(membership, CorosyncMembership)
        sent = membership._handle.multicast(bytearray.fromhex(raw))
        return {"sent": sent}


async def _main(channel: str, who: int, greets: bool) -> None:
    loop = asyncio.get_running_loop()
    told = Told(loop, channel, who, greets)
    reader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        request = json.loads(line)
        answer = getattr(told, request.pop("do"))(**request)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1], int(sys.argv[2]), sys.argv[3:] == ["greets"]))
    os._exit(0)
