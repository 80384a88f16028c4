"""Members of one channel on two simulated rings that can be cut, and what their diaries must have in common."""

from collections.abc import Iterator

import msgspec

from heliograph.bus.bridged import BridgedBus
from heliograph.bus.commands import ChunkSent, Command
from heliograph.bus.interface import (
    Change,
    Configuration,
    Damage,
    Incarnation,
    Membership,
    Origin,
    Place,
    Ring,
)
from heliograph.model.errors import Unavailable
from heliograph.model.ids import SessionId
from simulation.bus import SimBus, SimProcess
from simulation.network import TAME, Oddities
from simulation.world import World

HOME, NEAR = "home", "near"
CENTRAL_HOSTS = (1, 2, 3)
OUTER_HOSTS = (4, 5)
HOME_HOSTS = (6,)
HOSTS = 6
_RETURN_SECONDS = 0.2


class Word(msgspec.Struct, frozen=True):
    """A frame as it was heard."""

    who: Incarnation
    sequence: int
    number: int


class Told(msgspec.Struct, frozen=True):
    """A configuration as it was told. Who is new depends on where one comes from."""

    ring: Ring
    members: tuple[Place, ...]
    changed: tuple[Change, ...] = ()


class Ended(msgspec.Struct, frozen=True):
    code: str


class Witness:
    """A member that writes down what it hears, and comes again when it has to."""

    def __init__(self, hall: "Hall", host: int, names: tuple[str, ...]) -> None:
        self.host = host
        self.diary: list[Word | Told | Ended] = []
        self.said: list[int] = []
        self.membership: Membership | None = None
        self.is_dead = False
        self._hall = hall
        self.processes: list[SimProcess] = []
        self._start(names)

    def _start(self, names: tuple[str, ...]) -> None:
        process = self._hall.next_process()
        by_name = {name: self._hall.buses[name].process(self.host, process) for name in names}
        self.processes = list(by_name.values())
        is_central = len(names) > 1
        self._bus = BridgedBus(
            by_name,
            home_of=lambda _channel: HOME,
            is_central=is_central,
            call_later=self.processes[0].loop.call_later,
        )
        self._enter()

    def _enter(self) -> None:
        if not self.is_dead:
            self.membership = self._bus.enter("hall", self)

    def say(self) -> None:
        if self.membership is None or not self.membership.may_send:
            return
        number = self._hall.next_number()
        self.membership.multicast(ChunkSent(SessionId(bytes(16)), 0, number, b""))
        self.said.append(number)

    def kill(self) -> None:
        self.is_dead = True
        for process in self.processes:
            process.kill()

    @property
    def ended(self) -> list[str]:
        return [event.code for event in self.diary if isinstance(event, Ended)]

    @property
    def members(self) -> tuple[Place, ...]:
        told = [event for event in self.diary if isinstance(event, Told)]
        return told[-1].members if told else ()

    @property
    def heard(self) -> list[int]:
        return [event.number for event in self.diary if isinstance(event, Word)]

    # ---- the bus

    def on_frame(self, origin: Origin, commands: list[Command]) -> None:
        assert not self.is_dead
        for command in commands:
            assert isinstance(command, ChunkSent)
            self.diary.append(Word(origin.incarnation, origin.sequence, command.offset))

    def on_configuration(self, configuration: Configuration) -> None:
        changed = (*configuration.joined, *configuration.left)
        self.diary.append(Told(configuration.ring, configuration.members, changed))

    def on_flow(self, may_send: bool) -> None: ...

    def on_damage(self, damage: Damage) -> None:
        raise AssertionError(damage)

    def on_ended(self, error: Unavailable | None) -> None:
        self.diary.append(Ended(error.code if error else ""))
        self.membership = None
        if error is not None:
            self._hall.world.after(_RETURN_SECONDS, self._enter)


class Hall:
    """Three central members, two on the other ring only, one on the home ring only."""

    def __init__(self, seed: int, oddities: Oddities = TAME) -> None:
        self.world = World(seed)
        self.buses = {name: SimBus(self.world, HOSTS, oddities) for name in (HOME, NEAR)}
        self._processes = self._numbers = 0
        self.everybody: list[Witness] = []
        self.pass_time(2.0)
        for host in CENTRAL_HOSTS:
            self.enter(host)
            self.pass_time(0.1)
        for host in (*OUTER_HOSTS, *HOME_HOSTS):
            self.enter(host)
        self.pass_time(1.0)

    def next_process(self) -> int:
        self._processes += 1
        return self._processes

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def enter(self, host: int) -> Witness:
        names = (HOME, NEAR) if host in CENTRAL_HOSTS else (NEAR,) if host in OUTER_HOSTS else (HOME,)
        witness = Witness(self, host, names)
        self.everybody.append(witness)
        return witness

    @property
    def living(self) -> list[Witness]:
        return [each for each in self.everybody if not each.is_dead]

    @property
    def centrals(self) -> list[Witness]:
        return [each for each in self.living if each.host in CENTRAL_HOSTS]

    @property
    def outers(self) -> list[Witness]:
        return [each for each in self.living if each.host in OUTER_HOSTS]

    def pass_time(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds)

    def talk(self, rounds: int, pause: float = 0.001) -> None:
        for _ in range(rounds):
            for each in self.living:
                each.say()
            self.pass_time(pause)

    def are_together(self) -> bool:
        places = sorted(each.membership.place for each in self.living if each.membership is not None)
        return len(places) == len(self.living) and all(each.members == tuple(places) for each in self.living)

    def come_together(self, patience: float = 60.0) -> None:
        end = self.world.now + patience
        while not self.are_together():
            assert self.world.now < end, [(each.host, each.members, each.ended) for each in self.living]
            self.pass_time(0.1)


# ---- what diaries must have in common


def judge(everybody: list[Witness]) -> int:
    """Returns how often two members that moved together were compared."""
    for each in everybody:
        check_that_nothing_comes_twice(each)
    check_that_a_word_is_ordered_once(everybody)
    return check_that_those_who_move_together_hear_the_same(everybody)


def check_that_nothing_comes_twice(witness: Witness) -> None:
    last: dict[Incarnation, int] = {}
    for event in witness.diary:
        if isinstance(event, Word):
            assert event.sequence >= last.get(event.who, 0), f"{event} comes late at {witness.host}"
            last[event.who] = event.sequence
    assert len(set(witness.heard)) == len(witness.heard), f"{witness.host} heard something twice"


def check_that_a_word_is_ordered_once(everybody: list[Witness]) -> None:
    """Parts of a cut may differ in what they heard last on a ring, never in the ring on which they heard it."""
    rings: dict[int, Ring] = {}
    for witness in everybody:
        for told, words in stays(witness):
            for word in words:
                ring = rings.setdefault(word.number, told.ring)
                assert ring == told.ring, f"{word} is heard on two rings"


def stays(witness: Witness) -> Iterator[tuple[Told, list[Word]]]:
    told: Told | None = None
    words: list[Word] = []
    for event in witness.diary:
        if isinstance(event, Word):
            words.append(event)
        else:
            if told is not None:
                yield told, words
            told, words = event if isinstance(event, Told) else None, []
    if told is not None:
        yield told, words


def moves(witness: Witness) -> Iterator[tuple[Told, Told, list[Word]]]:
    """From one configuration to the next, without an end between them."""
    told: Told | None = None
    words: list[Word] = []
    for event in witness.diary:
        if isinstance(event, Word):
            words.append(event)
        elif isinstance(event, Told):
            if told is not None:
                yield told, event, words
            told, words = event, []
        else:
            told, words = None, []


def check_that_those_who_move_together_hear_the_same(everybody: list[Witness]) -> int:
    compared = 0
    ambiguous = {key for witness in everybody for key in _told_twice(witness)}
    heard: dict[tuple[Ring, tuple[Place, ...], Ring, tuple[Place, ...]], tuple[int, list[int]]] = {}
    for witness in everybody:
        for told, following, words in moves(witness):
            if _key(told) in ambiguous:
                continue
            bare = Told(told.ring, told.members), Told(following.ring, following.members)
            key = (*_key(bare[0]), *_key(bare[1]))
            numbers = [word.number for word in words]
            if key in heard:
                compared += 1
                assert heard[key][1] == numbers, (
                    f"{heard[key][0]} and {witness.host} went from {bare[0]} to {bare[1]} and heard {heard[key][1]}"
                    f" and {numbers}"
                )
            else:
                heard.setdefault(key, (witness.host, numbers))
    return compared


def _key(told: Told) -> tuple[Ring, tuple[Place, ...]]:
    return told.ring, told.members


def _told_twice(witness: Witness) -> list[tuple[Ring, tuple[Place, ...]]]:
    """Members who come and go on one ring make configurations that cannot be told from one another."""
    keys = [_key(told) for told, _, _ in moves(witness)]
    return [key for key in keys if keys.count(key) > 1]
