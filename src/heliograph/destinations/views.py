"""What the views of a cluster do to the destinations of a catalogue: stamps by place in the log, and the gate.

The primary of a view calls `enter` when the view is installed, `comes_into_force` and `becomes_whole`, and after each
of them `regate` with how things stand; what these return is to be carried out. Before a view is entered for the first
time nothing is held back and nothing costs anything.

Whoever starts again, or takes over, stands in no view before it enters one: what it finds in the log of a view is
handed out by nobody until then (`has_to_wait`).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from heliograph.cluster.dispatch_rules import Hold, Situation
from heliograph.cluster.partition_state import State
from heliograph.destinations.destination import Destination
from heliograph.destinations.effects import AnyEffect, Write
from heliograph.destinations.standing import EnteredRecord, HeldRecord, Standing, ViewRecord, encode_record
from heliograph.journal.records import RecordKind
from heliograph.model.ids import LaneId

_decode_entered = msgspec.msgpack.Decoder(EnteredRecord).decode
_decode_view = msgspec.msgpack.Decoder(ViewRecord).decode
_decode_held = msgspec.msgpack.Decoder(HeldRecord).decode

_NOWHERE = Situation(state=State.A, is_in_force=False)
"""In a view that decides nothing yet."""


class Views:
    """The views that the log of a catalogue came through."""

    def __init__(self, destinations: dict[int, Destination]) -> None:
        """`destinations`: by number, as they come and go."""
        self._destinations = destinations
        self.standing: Standing | None = None
        self.situation: Situation | None = None  # None: nothing is held back

    @property
    def is_parted(self) -> bool:
        """Whether something may be elsewhere that is not known here."""
        return self.standing is not None and not self.standing.is_whole

    @property
    def present(self) -> bytes:
        """The view that the log is in, empty for none."""
        return self.standing.view if self.standing is not None else b""

    # ---- what the primary writes

    def enter(self, view: bytes, state: State, *, takes_along: bool = False) -> list[AnyEffect]:
        """The log is in this view from here on. An empty id: an attempt at a view has begun (Suspend), and what comes
        until the next is entered counts for that, if it `takes_along`, or else for no view."""
        return [self._written(RecordKind.ENTERED, EnteredRecord(view, state, takes_along))]

    def comes_into_force(self) -> list[AnyEffect]:
        """The view that was entered last holds."""
        assert self.standing is not None, "a view comes into force once it is entered"
        return [self._written(RecordKind.IN_FORCE, ViewRecord(self.standing.view))]

    def becomes_whole(self) -> list[AnyEffect]:
        """Every message manager has everything of all parts: nothing that came so far is held back any more."""
        assert self.standing is not None, "a view is whole once it is entered"
        assert self.standing.is_unrestricted, "who is whole is in force"
        return [self._written(RecordKind.WHOLE, ViewRecord(self.standing.view))]

    def hold(
        self, destination: Destination, lane: LaneId, first: int, last: int, why: Hold
    ) -> list[AnyEffect]:
        """Messages `first` to `last` of a lane are about to be accepted, or adopted, and wait until all is whole: to
        be written before them. What follows them on their lane waits behind them."""
        effects: list[AnyEffect] = []
        destination.hold(lane, first, last, why, effects)
        return effects

    def _written(self, kind: RecordKind, record: EnteredRecord | ViewRecord) -> Write:
        payload = encode_record(record)
        self.replay(kind, payload)
        return Write(kind, payload)

    # ---- what everybody reads

    def replay(self, kind: int, payload: bytes) -> None:
        if kind == RecordKind.ENTERED:
            self._entered(_decode_entered(payload))
        elif kind == RecordKind.HELD:
            self._held(_decode_held(payload))
        elif self.standing is not None and self.standing.view == _decode_view(payload).view:
            if kind == RecordKind.IN_FORCE:
                self.standing.is_in_force = True
            else:
                self.standing.is_whole = True
                for destination in self._destinations.values():
                    destination.stamps.whole()

    def _entered(self, record: EnteredRecord) -> None:
        before = self.standing
        self.standing = Standing(record.view, record.state)
        if record.takes_along and before is not None and not before.view:
            return  # what came since the attempt began is of this view
        for destination in self._destinations.values():
            destination.stamps.enter(destination.intake.next_number, before)

    def _held(self, record: HeldRecord) -> None:
        destination = self._destinations.get(record.destination)
        if destination is not None:
            lane, number = LaneId(record.lane), destination.intake.next_number
            destination.stamps.hold(lane, record.first, record.last, record.why, number)

    # ---- the gate

    def regate(self, situation: Situation | None) -> Iterator[tuple[Destination, list[AnyEffect]]]:
        """How things stand from here on. What may not go is set aside, and what may returns to its place."""
        self.situation = situation
        for destination in list(self._destinations.values()):
            effects: list[AnyEffect] = []
            destination.regate(situation, self.standing, effects)
            if effects:
                yield destination, effects

    def begin(self, destination: Destination, effects: list[AnyEffect]) -> None:
        """A destination was made."""
        if self.situation is not None:
            destination.regate(self.situation, self.standing, effects)

    def wait_for_view(self) -> None:
        """Recovery has ended, or another server's log was taken over: in which view, is for the shell to say. A log
        that knows of no views is of a server that is alone, or older than they are."""
        if self.standing is not None:
            for _ in self.regate(_NOWHERE):
                pass
