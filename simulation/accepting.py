"""Whether every part of a cluster that has a client manager and a message manager takes what its clients send (P3):
restricted or not, who is beside it hears "yes", or a clear "no" with a code.

Judged by those who send anyway. Where all is well in a part (its view stays and somebody leads in it, every member
runs as it should, the connection is in order) nobody waits for long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from simulation.clients import Client, Sending
from simulation.grip import node_of
from simulation.history import History
from simulation.partition_watch import name_of, station_of
from simulation.weather import ROOM
from simulation.world import World

if TYPE_CHECKING:
    from heliograph.bus.interface import Stamp
    from simulation.sockets import SimTransport
    from simulation.supervisor import Supervisor

_LOOK_SECONDS: Final = 0.25
# Three heartbeats: a client that says something to a connection that is in order is heard within one, and what its
# session and its destination take is asked for again within another. A disk that is not slow takes milliseconds, and
# nobody in the part waits for anybody outside of it.
_PATIENCE_SECONDS: Final = 3.0


class _Wait(msgspec.Struct, frozen=True):
    """What a sender waits for, and where."""

    key: str
    transport: SimTransport
    view: Stamp
    node: str


class Accepting:
    """Looks at senders while a run goes on. For clusters of one sub-cluster: of several, a destination may be where
    nobody of this part keeps it."""

    def __init__(
        self, world: World, history: History, supervisors: list[Supervisor], sub_cluster: str
    ) -> None:
        self.violations: list[str] = []
        self.longest = 0.0
        self._world = world
        self._history = history
        self._supervisors = supervisors
        self._sub_cluster = sub_cluster
        self._senders: list[Sending] = []
        self._waits: dict[str, tuple[_Wait, float]] = {}  # of each sender, and since when
        self._first: dict[str, int] = {}  # of each life, the number of the first message that may still wait

    def watch(self, clients: list[Client]) -> None:
        self._senders = [client for client in clients if isinstance(client, Sending)]
        self._look()

    def _look(self) -> None:
        views = self._views()
        for sender in self._senders:
            wait = self._wait_of(sender, views)
            before, since = self._waits.get(sender.name, (None, 0.0))
            if wait is None:
                self._waits.pop(sender.name, None)
            elif wait != before:
                self._waits[sender.name] = wait, self._world.now
            else:
                self._judge(sender, wait, self._world.now - since)
        self._world.after(_LOOK_SECONDS, self._look)

    def _judge(self, sender: Sending, wait: _Wait, seconds: float) -> None:
        self.longest = max(self.longest, seconds)
        if _PATIENCE_SECONDS <= seconds < _PATIENCE_SECONDS + _LOOK_SECONDS:
            self.violations.append(
                f"{sender.life} waits at {wait.node} for {wait.key} since {self._world.now - seconds:.4f}, and all"
                f" is well in {name_of(wait.view)}"
            )

    def _wait_of(self, sender: Sending, views: dict[str, Stamp]) -> _Wait | None:
        key, transport = self._unconfirmed(sender), sender.transport
        if not key or transport is None or sender.machine.is_broken(transport):
            return None
        node = node_of(sender)
        return _Wait(key, transport, views[node], node) if node in views else None

    def _unconfirmed(self, sender: Sending) -> str:
        """The oldest of its messages of which it has heard nothing. When a sender gives up, it has heard why: one
        that is in doubt is told so, and nothing more will be said of it or of those behind it."""
        life, sent = sender.life, self._history.sent
        number = self._first.get(life, 1)
        while (found := sent.get(f"{life}:{number}")) is not None and (
            found.confirmed_at or found.was_refused or found.sent_at <= sender.gave_up_at
        ):
            number += 1
        self._first[life] = number
        return f"{life}:{number}" if found is not None else ""

    def _views(self) -> dict[str, Stamp]:
        """By node, the view that it is in, if all is well there."""
        found: dict[Stamp, list[str]] = {}
        members: dict[Stamp, int] = {}
        for supervisor in self._supervisors:
            station = station_of(supervisor, self._sub_cluster)
            if station is None or not _is_well(supervisor) or not station.member.is_installed:
                continue
            view, standing, roles = station.member.view, station.standing, station.roles
            may_act = standing is not None and standing.may_act
            # Where nobody leads, those who may know more are given time to come.
            if view is not None and may_act and roles is not None and roles.primary is not None:
                found.setdefault(view.id, []).append(supervisor.machine.name)
                members[view.id] = len(view.members)
        return {node: view for view, nodes in found.items() if len(nodes) == members[view] for node in nodes}


def _is_well(supervisor: Supervisor) -> bool:
    """It runs, as fast as it should, and has room."""
    process, disk = supervisor.process, supervisor.machine.disk
    assert process is not None, "it has a station"
    is_quick = not process.loop.is_stopped and process.loop.slowness == 1.0
    return is_quick and not disk.is_slow and disk.capacity >= ROOM
