"""Members of a clustered consumer on virtual time: clocks that drift, words that are late, processes that stop.

The middleware routes the words of one sender in the order said, after any delay, to everybody who listens then; one
listener has a word up to the skew later than another. Who is paused neither hears nor ticks nor acts, and goes on
later as if nothing had been. The world watches who acts on what.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from heliograph.clustered.events import (
    ActOn,
    CopiesSubscribed,
    Drained,
    Effect,
    FencedOff,
    FenceOff,
    FindComplete,
    HasEverything,
    Heard,
    LeaveAsked,
    Say,
    Stop,
    SubscribeCopies,
    Terms,
    Ticked,
)
from heliograph.clustered.membership import Membership
from heliograph.clustered.ranges import Ranges
from heliograph.clustered.words import Beat, View

STEP = 0.1
TICK = 0.3
SAMPLES = tuple(index * (1 << 32) // 16 + 5 for index in range(16))


@dataclass
class Work:
    value: int
    epoch: int


@dataclass
class Player:
    """One process: a membership, its clock, and what it has under way."""

    name: str
    rate: float
    offset: float
    skew: float
    membership: Membership
    inbox: deque[tuple[float, Beat | View]] = field(default_factory=deque)
    outbox: deque[tuple[float, Beat | View]] = field(default_factory=deque)
    delay: float = 0.0
    is_paused: bool = False
    is_deaf: bool = False
    is_alive: bool = True
    allowed: Ranges = field(default_factory=Ranges)
    owed: int | None = None
    works: list[Work] = field(default_factory=list)
    next_tick: float = 0.0
    finding: list[str] = field(default_factory=list)
    comes_back: bool = True

    def clock(self, now: float) -> float:
        return self.offset + self.rate * now


class ClusteredWorld:
    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.now = 1.0
        self.players: dict[str, Player] = {}
        self.acted: dict[tuple[int, int], str] = {}
        self.problems: list[str] = []
        self._incarnation = 1000

    # ---- what happens to members

    def start(self, name: str, rate: float, offset: float, skew: float) -> None:
        if name in self.players and self.players[name].is_alive:
            return
        player = Player(name, rate, offset, skew, self._membership(name, offset + rate * self.now))
        self.players[name] = player

    def _membership(self, name: str, clock: float) -> Membership:
        self._incarnation += 1
        return Membership(name=name, incarnation=self._incarnation, now=clock, terms=self.terms)

    def kill(self, name: str) -> None:
        if name in self.players:
            self.players[name].is_alive = False
            self.players[name].works.clear()

    def leave(self, name: str) -> None:
        if name in self.players and self.players[name].is_alive:
            self.players[name].comes_back = False
            self._carry_out(self.players[name], self.players[name].membership.handle(LeaveAsked()))

    def begin(self, name: str, value: int) -> None:
        """What the shell does before each message: is it mine, and is there a lease?"""
        player = self.players.get(name)
        if player is None or not player.is_alive or player.is_paused or value not in player.allowed:
            return
        if not player.membership.may_act(player.clock(self.now)):
            return
        epoch = player.membership.epoch
        for other in self.living():
            if (
                other is not player
                and any(work.value == value for work in other.works)
                and self._has_lease(other)
            ):
                self.problems.append(f"{name} and {other.name} act on {value}")
        if self.acted.setdefault((value, epoch), name) != name:
            self.problems.append(f"{name} and {self.acted[value, epoch]} act on {value} in epoch {epoch}")
        if all(work.value != value for work in player.works):
            player.works.append(Work(value, epoch))

    def finish(self, name: str) -> None:
        player = self.players.get(name)
        if player is not None and player.works and not player.is_paused:
            player.works.pop(0)
            self._tell_drained(player)

    def _has_lease(self, player: Player) -> bool:
        """By the rule itself, whatever the engine says."""
        until = player.membership.lease_until
        return not player.membership.is_over and until is not None and player.clock(self.now) < until

    def living(self) -> list[Player]:
        return [player for player in self.players.values() if player.is_alive]

    # ---- time

    def advance(self, seconds: float) -> None:
        stop = self.now + seconds
        while self.now < stop:
            self.now += STEP
            for player in self.living():
                self._route(player)
            for player in self.living():
                if not player.is_paused:
                    self._run(player)

    def _route(self, player: Player) -> None:
        while player.outbox and player.outbox[0][0] + player.delay <= self.now:
            _, word = player.outbox.popleft()
            for listener in self.living():
                listener.inbox.append((self.now + listener.skew, word))

    def _run(self, player: Player) -> None:
        clock = player.clock(self.now)
        while player.is_alive and not player.is_deaf and player.inbox and player.inbox[0][0] <= self.now:
            _, word = player.inbox.popleft()
            self._carry_out(player, player.membership.handle(Heard(word, clock)))
        for name in player.finding[:]:
            player.finding.remove(name)
            self._carry_out(player, player.membership.handle(HasEverything(name)))
        if self.now >= player.next_tick:
            player.next_tick = self.now + TICK
            self._carry_out(player, player.membership.handle(Ticked(clock, int(self.now * 1000))))

    def _carry_out(self, player: Player, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Say(word):
                    player.outbox.append((self.now, word))
                case SubscribeCopies():
                    self._carry_out(player, player.membership.handle(CopiesSubscribed()))
                case ActOn(ranges, epoch):
                    player.allowed, player.owed = ranges, epoch
                    self._tell_drained(player)
                case FindComplete(name):
                    player.finding.append(name)
                case FenceOff(key):
                    self._carry_out(player, player.membership.handle(FencedOff(key)))
                case Stop(has_left=has_left):
                    self._stop(player, has_left)
                case _:
                    pass

    def _tell_drained(self, player: Player) -> None:
        if player.owed is not None and all(work.value in player.allowed for work in player.works):
            epoch, player.owed = player.owed, None
            self._carry_out(player, player.membership.handle(Drained(epoch)))

    def _stop(self, player: Player, has_left: bool) -> None:
        """Its handlers are cancelled; it comes back as somebody else."""
        if has_left and player.works:
            self.problems.append(f"{player.name} left with work under way")
        player.works.clear()
        player.allowed, player.owed = Ranges(), None
        player.inbox.clear()
        player.finding.clear()
        if has_left or not player.comes_back:
            for _, word in player.outbox:
                for listener in self.living():
                    listener.inbox.append((self.now + listener.skew, word))
            player.is_alive = False
        else:
            player.outbox.clear()
            player.membership = self._membership(player.name, player.clock(self.now))

    # ---- what must be in the end

    def calm(self) -> None:
        """Nobody is stuck any more; everything under way ends."""
        for player in self.living():
            player.is_paused = False
            player.delay = 0.0
            player.works.clear()
            self._tell_drained(player)

    def owners(self, value: int) -> list[str]:
        return [p.name for p in self.living() if value in p.allowed and self._has_lease(p)]
