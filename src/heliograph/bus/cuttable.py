"""Channels inside one process whose members are on hosts that can be cut off from each other: for demonstrations and
tests of what a cluster does then.

Each part has an order and a ring of its own. A cut falls between two deliveries: all of a part have heard the same.
What real networks add to that, such as parts that heard different ends, is for the simulation and for Corosync.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from heliograph.bus.interface import Change, Configuration, Listener, Reason, Ring
from heliograph.bus.local_channels import LocalChannel, LocalMembership


class CuttableBus:
    """Hosts, by number, in one part or several."""

    def __init__(self) -> None:
        self._part_of: dict[int, int] = {}
        self._ring = 1
        self._entered = 0
        self._channels: dict[tuple[str, int], LocalChannel] = {}
        self._members: list[tuple[str, int, LocalMembership]] = []  # channel, host

    def on(self, host: int) -> HostBus:
        """The bus, for a process on that host."""
        return HostBus(self, host)

    def enter(self, channel: str, host: int, listener: Listener) -> LocalMembership:
        self._entered += 1
        joined = self._channel(channel, self._part_of.get(host, 0))
        membership = LocalMembership(joined, listener, self._entered)
        self._members.append((channel, host, membership))
        joined.enter(membership)
        return membership

    def _channel(self, name: str, part: int) -> LocalChannel:
        return self._channels.setdefault((name, part), LocalChannel(Ring(part + 1, self._ring)))

    # ---- cuts

    def cut(self, *parts: Sequence[int]) -> None:
        """From here on hosts hear each other only within a part. Who is named in none is in the first."""
        before = dict(self._part_of)
        self._part_of = {host: number for number, part in enumerate(parts) for host in part}
        self._ring += 1
        self._channels.clear()
        staying = [each for each in self._members if not each[2].is_over]
        self._members = staying
        for channel, host, member in staying:
            member.moves_to(self._channel(channel, self._part_of.get(host, 0)))
        for (channel, part), joined in list(self._channels.items()):
            joined.put(partial(self._tell, channel, part, before))

    def heal(self) -> None:
        self.cut(())

    def _tell(self, channel: str, part: int, before: dict[int, int]) -> None:
        """All of a part hear of it before any of them says something."""
        members = [(host, member) for name, host, member in self._members if name == channel]
        here = [(host, member) for host, member in members if self._part_of.get(host, 0) == part]
        for host, member in here:
            known = [each for each in members if before.get(each[0], 0) == before.get(host, 0)]
            configuration = Configuration(
                self._channel(channel, part).ring,
                tuple(sorted(other.place for _, other in here)),
                tuple(Change(each[1].place, Reason.HOST_FOUND) for each in here if each not in known),
                tuple(Change(each[1].place, Reason.HOST_LOST) for each in known if each not in here),
            )
            member.listener.on_configuration(configuration)


class HostBus:
    """What a process on one host sees of it."""

    def __init__(self, bus: CuttableBus, host: int) -> None:
        self._bus = bus
        self._host = host

    def enter(self, channel: str, listener: Listener) -> LocalMembership:
        return self._bus.enter(channel, self._host, listener)
