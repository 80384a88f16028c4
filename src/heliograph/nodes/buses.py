"""The bus of a node: one, or several that are one to whoever enters a channel (M3)."""

from __future__ import annotations

from collections.abc import Callable

from heliograph.bus.bridged import BridgedBus, CallLater
from heliograph.bus.interface import ChannelBus
from heliograph.bus.presence import CLIENT_MANAGER
from heliograph.bus.routed import RoutedBus
from heliograph.nodes.configuration import Buses, ClusterSettings, buses_of

Connect = Callable[[str], ChannelBus]
"""Makes a bus from the network namespace that it is in; empty for the host's own."""


def channel_of(cluster: str, sub_cluster: str) -> str:
    return f"heliograph/{cluster}/{sub_cluster}"


def namespaces_of(cluster: ClusterSettings) -> list[str]:
    """Where this node's buses are."""
    buses = buses_of(cluster)
    if buses is None:
        return [""]
    return [buses.namespaces.get(name, "") for name in names_of(cluster, buses)]


def names_of(cluster: ClusterSettings, buses: Buses) -> tuple[str, ...]:
    """The buses that this node is on."""
    is_client_manager = cluster.role == CLIENT_MANAGER
    if cluster.bus_layout == "message-managers-on-all":
        return (buses.own,) if is_client_manager else buses.names
    if cluster.role == "message-manager":
        return (buses.bus_of[cluster.sub_cluster],)
    return tuple(dict.fromkeys(buses.bus_of.values()))


def bus_for(cluster: ClusterSettings, connect: Connect, call_later: CallLater) -> ChannelBus:
    """What the node enters its channels on."""
    buses = buses_of(cluster)
    if buses is None:
        return connect("")
    made = {name: connect(buses.namespaces.get(name, "")) for name in names_of(cluster, buses)}

    def bus_of(channel: str) -> str:
        return buses.bus_of[channel.rpartition("/")[2]]

    if cluster.bus_layout == "message-managers-on-all":
        is_central = cluster.role != CLIENT_MANAGER
        return BridgedBus(made, home_of=bus_of, is_central=is_central, call_later=call_later)
    return RoutedBus(made, bus_of)
