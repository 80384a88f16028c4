"""Messages that the server itself sends: replies of its administration, and its events.

Nobody waits for them, and they are not persistent, but for events that somebody wants to have who is away. Each
destination has a lane of its own, as with any sender; one that was refused is left for another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heliograph.bus.commands import Published, Refused
from heliograph.destinations.effects import Multicast
from heliograph.model.block import pack_lone, parse
from heliograph.model.destination import Address
from heliograph.model.ids import IdIssuer, LaneId, lane_of
from heliograph.model.limits import MAX_LANES_PER_SESSION
from heliograph.model.message import Head, encode_body, encode_head

if TYPE_CHECKING:
    from heliograph.nodes.message_manager import MessageManager

# Replies go to a few temporary queues again and again; a lane that was forgotten costs a new one.
_LANES = 1000


class OwnMessages:
    """Sends for one message manager."""

    def __init__(self, manager: MessageManager, issuer: IdIssuer) -> None:
        self._manager = manager
        self._issuer = issuer
        self._session = issuer.session()
        self._last_lane = 0
        self._lanes: dict[Address, tuple[LaneId, int]] = {}  # with the last sequence

    def send(
        self,
        address: Address,
        body: dict[str, Any],
        *,
        correlation_id: str | None = None,
        persistent: bool | None = False,
    ) -> bool:
        """Whether the destination exists and takes the message. `persistent` None: if somebody keeps it."""
        destination = self._manager.catalogue.by_address.get(address)
        if destination is None or destination.flow.is_beyond(destination.policy):
            return False
        if persistent is None:
            persistent = any(messages.durable for messages in destination.lists())
        kind, raw = encode_body(body)
        lane, last = self._lanes.get(address) or (self._next_lane(), 0)
        buffer = pack_lone(
            raw,
            lane=lane,
            sequence=last + 1,
            timestamp=self._manager.microseconds(),
            persistent=persistent,
            kind=kind,
            head=encode_head(Head(correlation_id=correlation_id, kind=kind)) if correlation_id else b"",
        )
        effects = destination.handle(Published(address, parse(buffer)), self._manager.microseconds())
        if any(type(effect) is Multicast and type(effect.command) is Refused for effect in effects):
            self._lanes.pop(address, None)
            effects = [effect for effect in effects if type(effect) is not Multicast]
        else:
            self._lanes[address] = (lane, last + 1)
            if len(self._lanes) > _LANES:
                del self._lanes[next(iter(self._lanes))]
        self._manager.run(destination, effects)
        return True

    def _next_lane(self) -> LaneId:
        if self._last_lane == MAX_LANES_PER_SESSION:
            self._session = self._issuer.session()
            self._last_lane = 0
        self._last_lane += 1
        return lane_of(self._session, self._last_lane)
