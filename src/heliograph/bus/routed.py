"""Several buses, and each channel on one of them: client managers are on all, a sub-cluster on one (M3).

There is nothing to it but to know which: order, members and views are those of a channel, and a channel is on one
bus.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from heliograph.bus.interface import ChannelBus, Listener, Membership


class RoutedBus:
    """The buses by name. `bus_of` says on which one a channel is."""

    def __init__(self, buses: Mapping[str, ChannelBus], bus_of: Callable[[str], str]) -> None:
        self._buses = dict(buses)
        self._bus_of = bus_of

    def enter(self, channel: str, listener: Listener) -> Membership:
        return self._buses[self._bus_of(channel)].enter(channel, listener)
