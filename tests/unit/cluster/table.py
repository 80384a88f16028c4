"""A bus to tell stories with: everything in one order, delivered when the story says so."""

from collections.abc import Iterable

from heliograph.bus.commands import ChunkSent, Command, Confirmed
from heliograph.bus.interface import (
    NO_VIEW,
    Change,
    Configuration,
    Incarnation,
    Origin,
    Place,
    Reason,
    Ring,
    Stamp,
)
from heliograph.bus.presence import CLIENT_MANAGER, NodeState
from heliograph.cluster.events import (
    Apply,
    Configured,
    Effect,
    Event,
    Heard,
    Install,
    Leave,
    Multicast,
    Restamp,
    Ticked,
)
from heliograph.cluster.view import View
from heliograph.cluster.views import Phase, Views
from heliograph.model.ids import LaneId, SessionId

FACT = ChunkSent(SessionId(bytes(16)), 1, 0, b"fact")
DECISION = Confirmed(LaneId(bytes(16)), 7)


class Seat:
    """A member in a story, and what it did."""

    def __init__(self, table: "Table", number: int, role: str = CLIENT_MANAGER, generation: int = 1) -> None:
        self.place = Place(number, generation)
        self.incarnation = Incarnation(bytes([number, generation]) * 8)
        self.views = Views(
            place=self.place, incarnation=self.incarnation, nodes=(NodeState(f"n{number}", role),)
        )
        self.effects: list[Effect] = []
        self.waiting: list[tuple[Stamp, Command]] = []
        self.late: list[Heard] | None = None  # what waits for it while it is stopped
        self._stamp = NO_VIEW
        self._sequence = 0
        self._table = table

    def stop(self) -> None:
        """It stays a member and gets everything late."""
        self.late = []

    def resume(self) -> None:
        late, self.late = self.late or [], None
        for frame in late:
            self.handle(frame)

    def hear(self, frame: Heard) -> None:
        if self.late is None:
            self.handle(frame)
        else:
            self.late.append(frame)

    def handle(self, event: Event) -> list[Effect]:
        effects = self.views.handle(event)
        self.effects += effects
        for effect in effects:
            if isinstance(effect, Restamp):
                self._stamp = effect.stamp
            elif isinstance(effect, Multicast):
                self.say(effect.command)
        return effects

    def say(self, command: Command) -> None:
        self.waiting.append((self._stamp, command))

    def frame(self) -> Heard:
        """The next thing that it said, as the bus delivers it."""
        stamp, command = self.waiting.pop(0)
        self._sequence += 1
        origin = Origin(self.place, self.incarnation, self._sequence, stamp)
        return Heard(self._table.now, origin, [command])

    @property
    def installed(self) -> list[View]:
        return [effect.view for effect in self.effects if isinstance(effect, Install)]

    @property
    def applied(self) -> list[Command]:
        return [
            command for effect in self.effects if isinstance(effect, Apply) for command in effect.commands
        ]

    @property
    def left(self) -> list[str]:
        return [str(effect.why) for effect in self.effects if isinstance(effect, Leave)]

    @property
    def is_installed(self) -> bool:
        return self.views.phase is Phase.INSTALLED


class Table:
    """Seats around one order of deliveries."""

    def __init__(self) -> None:
        self.now = 100.0
        self._ring = 0

    def gather(self, *seats: Seat, left: Iterable[Seat] = (), joined: Iterable[Seat] = ()) -> None:
        """A new ring with these on it; nothing is delivered yet."""
        self._ring += 4
        for seat in seats:
            self._tell(seat, seats, left, joined)

    def meet(self, *parts: tuple[Seat, ...]) -> None:
        """A new ring of all, who find those of the other parts."""
        self._ring += 4
        everybody = [seat for part in parts for seat in part]
        for part in parts:
            for seat in part:
                self._tell(seat, everybody, (), [each for each in everybody if each not in part])

    def _tell(self, seat: Seat, seats: Iterable[Seat], left: Iterable[Seat], joined: Iterable[Seat]) -> None:
        configuration = Configuration(
            Ring(1, self._ring),
            tuple(sorted(each.place for each in seats)),
            tuple(Change(each.place, Reason.HOST_FOUND) for each in joined),
            tuple(Change(each.place, Reason.HOST_LOST) for each in left),
        )
        seat.handle(Configured(self.now, configuration))

    def deliver(self, *seats: Seat, of: Iterable[Seat] | None = None) -> None:
        """Everything that was said, and what is said in answer, to all of these."""
        speakers = list(seats if of is None else of)
        while any(seat.waiting for seat in speakers):
            for speaker in speakers:
                if speaker.waiting:
                    frame = speaker.frame()
                    for seat in seats:
                        seat.hear(frame)

    def together(self, *seats: Seat) -> None:
        """In their first view."""
        self.gather(*seats, joined=seats)
        self.deliver(*seats)

    def pass_time(self, seconds: float, *seats: Seat) -> None:
        """Those who are not stopped live on."""
        end = self.now + seconds
        while self.now < end:
            self.now += 0.125
            running = [seat for seat in seats if seat.late is None]
            for seat in running:
                seat.handle(Ticked(self.now))
            self.deliver(*seats, of=running)
