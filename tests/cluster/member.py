"""A process that enters a channel of the corosync it finds, does what it is told on standard input, a line of JSON
each, and answers in kind. It ends with its input."""

import asyncio
import json
import os
import sys
from functools import partial
from typing import Any

import uvloop

from heliograph.bus.bridged import BridgedBus, BridgedMembership
from heliograph.bus.corosync import CorosyncBus, CorosyncMembership
from heliograph.bus.interface import ChannelBus
from heliograph.bus.routed import RoutedBus
from heliograph.model.errors import Unavailable
from tests.suites.bus_diary import Diary


class Told:
    """What can be asked of the process."""

    def __init__(self, bus: ChannelBus, channel: str, who: int, greets: bool) -> None:
        self._bus = bus
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
        if isinstance(membership, BridgedMembership):
            membership = membership._legs[-1].membership
        assert isinstance(membership, CorosyncMembership)
        sent = membership._handle.multicast(bytearray.fromhex(raw))
        return {"sent": sent}


def _bus(loop: asyncio.AbstractEventLoop, role: str, namespace: str) -> ChannelBus:
    """The corosync that is here; or, if each channel is on one of two, as somebody on both or on this one only; or,
    of a channel on two of them, as central, home or near."""
    here = CorosyncBus(loop)
    if not role:
        return here
    if role in {"on-all", "on-one"}:
        reached: dict[str, ChannelBus] = {"home": here}
        if role == "on-all":
            reached["far"] = CorosyncBus(loop, namespace)
        return RoutedBus(reached, bus_of=lambda channel: "far" if channel.startswith("far") else "home")
    buses: dict[str, ChannelBus] = {"near" if role == "near" else "home": here}
    if role == "central":
        buses["near"] = CorosyncBus(loop, namespace)
    is_central = role == "central"
    return BridgedBus(buses, home_of=lambda _: "home", is_central=is_central, call_later=loop.call_later)


async def _main(channel: str, who: int, greets: bool, role: str, namespace: str) -> None:
    loop = asyncio.get_running_loop()
    told = Told(_bus(loop, role, namespace), channel, who, greets)
    reader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        request = json.loads(line)
        answer = getattr(told, request.pop("do"))(**request)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    role, namespace = [*sys.argv[3:], "", ""][:2]
    is_greeting = role == "greets"
    if is_greeting:
        role = ""
    uvloop.run(_main(sys.argv[1], int(sys.argv[2]), is_greeting, role, namespace))
    os._exit(0)
