"""A process that is a member of a cluster's channel and tells what it is told; asked and answering as `member.py`."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import uvloop

from heliograph.bus.commands import ChunkSent, Command, Confirmed
from heliograph.bus.corosync import CorosyncBus
from heliograph.bus.interface import Incarnation, Origin
from heliograph.bus.presence import CLIENT_MANAGER, MESSAGE_MANAGER, NodeState
from heliograph.cluster.view import View
from heliograph.model.ids import LaneId, SessionId
from heliograph.nodes.cluster_member import ClusterMember

_SESSION, _LANE = SessionId(bytes(16)), LaneId(bytes(16))

# ("installed", view, members) · ("suspended",) · ("arrived", incarnation) · ("left", why)
# ("fact" or "decision", who, number, how much was delivered since the view)
Event = tuple[Any, ...]


class Node:
    """The handler. The first of them keeps something on disk, or says so."""

    def __init__(self, loop: asyncio.AbstractEventLoop, channel: str, who: int) -> None:
        self._who = who
        self._loop = loop
        self._said = 0
        self.events: list[Event] = []
        role = MESSAGE_MANAGER if who == 1 else CLIENT_MANAGER
        self.member = ClusterMember(
            CorosyncBus(loop),
            channel,
            nodes=lambda: (NodeState(f"n{who}", role),),
            handler=self,
            loop=loop,
            clock=time.monotonic,
        )

    # ---- what can be asked

    def start(self) -> dict[str, Any]:
        self.member.start()
        return {}

    def say(self, count: int) -> dict[str, Any]:
        """Each as a fact and as a decision."""
        for _ in range(count):
            self.member.multicast(ChunkSent(_SESSION, self._who, self._said, bytes(300)))
            self.member.multicast(Confirmed(_LANE, self._who * 1_000_000 + self._said))
            self._said += 1
        return {}

    def tell(self, start: int) -> dict[str, Any]:
        return {"events": self.events[start : start + 20_000], "said": self._said, "refused": 0}

    def who(self) -> dict[str, Any]:
        incarnation = self.member.incarnation
        return {
            "incarnation": incarnation.hex() if incarnation is not None else "",
            "installed": self.member.is_installed,
        }

    def leave(self) -> dict[str, Any]:
        self.member.leave()
        return {}

    # ---- what it is told

    def on_apply(self, origin: Origin, commands: list[Command], position: int) -> None:
        for command in commands:
            if isinstance(command, ChunkSent):
                self.events.append(("fact", command.transfer, command.offset, self.member.delivered))
            elif isinstance(command, Confirmed):
                who, number = divmod(command.last, 1_000_000)
                self.events.append(("decision", who, number, self.member.delivered))

    def on_suspend(self) -> None:
        self.events.append(("suspended",))

    def on_install(self, view: View) -> None:
        self.events.append(("installed", view.id.hex(), [member.hex() for member in view.members]))

    def on_arrive(self, incarnation: Incarnation, agrees: bool) -> None:
        self.events.append(("arrived", incarnation.hex()))

    def on_flow(self, may_send: bool) -> None: ...

    def force(self, then: Callable[[], None]) -> None:
        """A disk that needs a moment."""
        self._loop.call_later(0.005, then)

    def on_left(self, why: str) -> None:
        self.events.append(("left", why))
        self.member.re_enter()


async def _main(channel: str, who: int) -> None:
    loop = asyncio.get_running_loop()
    node = Node(loop, channel, who)
    reader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        request = json.loads(line)
        answer = getattr(node, request.pop("do"))(**request)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1], int(sys.argv[2])))
    os._exit(0)
