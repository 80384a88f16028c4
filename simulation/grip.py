"""Who has a message in its hands, and over which connection it came there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from simulation.clients import Client
from simulation.history import HandOut

if TYPE_CHECKING:
    from simulation.sockets import SimTransport


class Grip(msgspec.Struct):
    """Who holds a message, and how it is connected: over that connection it got it."""

    hand_out: HandOut
    client: Client
    life: str
    transport: SimTransport | None
    node: str

    @classmethod
    def of(cls, hand_out: HandOut, client: Client) -> Grip:
        """As it is now."""
        transport = client.transport
        return cls(hand_out, client, client.life, transport, node_of(client))

    @property
    def is_whole(self) -> bool:
        """It is still the same client, on the same connection."""
        client, transport = self.client, self.transport
        return (
            client.life == self.life
            and transport is not None
            and client.transport is transport
            and not client.machine.is_broken(transport)
        )

    @property
    def is_held(self) -> bool:
        """And it did not give the message back, nor end the transaction that it took it in. Whoever is done with it
        counts as having it: over such a connection that is known, or will be before anything that is said later. Who
        read its content while it went back never had it over this one."""
        return not (self.hand_out.may_return or self.hand_out.is_stale) and self.is_whole


def node_of(client: Client | None) -> str:
    """Where it is connected."""
    transport = client.transport if client is not None else None
    return str(transport.get_extra_info("peername")[0]) if transport is not None else "no node"
