"""Alerts in a message manager: facts to the channel that they are for, records to the journal, and its word back.

A shell: what becomes of an alert is decided in `destinations/alerts`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from heliograph.bus.commands import AlertPublished, AlertsAttached, AlertsDetached, Answered, Rejected
from heliograph.destinations.alert_destination import AlertDestination
from heliograph.destinations.alerts.channel import AlertFact
from heliograph.destinations.destination import Destination
from heliograph.destinations.effects import AnyEffect
from heliograph.destinations.events import AlertRefused, AlertStored, AttendantsLost
from heliograph.journal.records import RecordKind
from heliograph.model.destination import Address, Kind, kind_of
from heliograph.model.errors import NO_ROOM, ClientFault, HeliographError, StorageFull, Unavailable
from heliograph.model.ids import SessionId

if TYPE_CHECKING:
    from heliograph.nodes.message_manager import MessageManager

_FULL = StorageFull(f"{NO_ROOM}: the alert was not stored")


class Alerting:
    """The channels of one message manager."""

    def __init__(self, manager: MessageManager, *, in_memory: bool) -> None:
        self._manager = manager
        self._in_memory = in_memory
        self._storing: deque[tuple[int, AlertDestination, int]] = deque()  # LSN, channel, arrival

    @property
    def waits(self) -> bool:
        """Whether an alert waits for the disk."""
        return bool(self._storing)

    def on_command(self, fact: AlertFact) -> None:
        manager, effects = self._manager, list[AnyEffect]()
        create = isinstance(fact, AlertPublished | AlertsAttached) and fact.create
        try:
            channel = manager.catalogue.find_or_make(fact.address, effects, create=create)
        except HeliographError as error:
            self._refuse(fact, error)
            return
        manager.run(None, effects)
        assert isinstance(channel, AlertDestination), "sessions have looked at the kind of the address"
        if self._in_memory and isinstance(fact, AlertPublished):
            header = msgspec.structs.replace(fact.header, persistent=False)
            fact = msgspec.structs.replace(fact, header=header)
        manager.run(channel, channel.handle(fact, manager.microseconds()))
        manager.ask_for_tick()

    def channel(self, address: Address, *, create: bool) -> AlertDestination:
        """One that alerts are raised in. Raises ClientFault or Unavailable."""
        manager, effects = self._manager, list[AnyEffect]()
        if kind_of(address) is not Kind.ALERTS:
            raise ClientFault(f"alerts go to alerts:NAME, not to {address}", code="invalid-destination")
        channel = manager.catalogue.find_or_make(address, effects, create=create)
        manager.run(None, effects)
        assert isinstance(channel, AlertDestination), "its address says so"
        if channel.pause.state.production:
            raise Unavailable(f"{address} is paused", code="destination-paused")
        return channel

    def _refuse(self, fact: AlertFact, error: HeliographError) -> None:
        """There is no such channel. Whoever leaves it need not know."""
        if isinstance(fact, AlertsDetached):
            self._manager.multicast(Answered(fact.request, {}))
        elif fact.request:
            self._manager.multicast(Rejected(fact.request, error.code, error.sentence))

    def store(self, destination: Destination, index: int, payload: bytes) -> None:
        """Append the record of an alert."""
        assert isinstance(destination, AlertDestination)
        manager = self._manager
        lsn = manager.journal.next_lsn
        if manager.append_if_room(RecordKind.ALERT, payload):
            self._storing.append((lsn, destination, index))
        else:
            refused = AlertRefused(index, _FULL.code, _FULL.sentence)
            manager.run(destination, destination.handle(refused, manager.microseconds()))

    def stored(self, lsn: int) -> None:
        """The log is stored up to here."""
        manager = self._manager
        while self._storing and self._storing[0][0] <= lsn:
            _, destination, index = self._storing.popleft()
            if not destination.has_ended:
                moment = manager.microseconds()
                manager.run(destination, destination.handle(AlertStored(index), moment))

    # ---- sessions

    def session_lost(self, session: SessionId) -> None:
        """Its client may still hand over what it has, for a while."""
        manager = self._manager
        moment = manager.microseconds()
        for channel in list(manager.catalogue.channels.values()):
            if channel.channel.facts.subscribers.attached_in(session):
                lost = AttendantsLost(session, moment + manager.catalogue.doubt)
                manager.run(channel, channel.handle(lost, moment))

    def session_closed(self, session: SessionId) -> None:
        """Its client has said that it is through."""
        moment = self._manager.microseconds()
        for channel in list(self._manager.catalogue.channels.values()):
            self._manager.run(channel, channel.channel.session_closed(session, moment))
