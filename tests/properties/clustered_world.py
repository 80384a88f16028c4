"""Members of a clustered consumer on virtual time: clocks that drift, words that are late, processes that stop.

The middleware routes the words of one sender in the order said, after any delay, to everybody who listens then; one
listener has a word up to the skew later than another. Copies that one member sends another wait until no other word
of it is under way. Who is paused neither hears nor ticks nor acts, and goes on
later as if nothing had been. The middleware itself may be in two parts for a while: neither words nor copies get
from one to the other, and copies follow when it is one again. The world watches who acts on what, and what becomes
of every message.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from functools import partial

from heliograph.clustered.events import (
    ActOn,
    AllFencedOff,
    CopiesSubscribed,
    Doubt,
    Drained,
    Effect,
    FencedOff,
    FenceOff,
    FenceOffAll,
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
from heliograph.clustered.holding import Held
from heliograph.clustered.membership import Membership
from heliograph.clustered.ranges import EVERYTHING, Ranges
from heliograph.clustered.words import Answer, Ask, Beat, Copy, Done, MemberKey, View, Word
from tests.properties.clustered_copies import Keeping, Middleware

STEP = 0.1
TICK = 0.3
DISCARD_SECONDS = 6.0
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
    keeping: Keeping
    inbox: deque[tuple[float, Word]] = field(default_factory=deque)
    outbox: deque[tuple[float, Word]] = field(default_factory=deque)
    copies: deque[Copy] = field(default_factory=deque)
    delay: float = 0.0
    is_paused: bool = False
    is_deaf: bool = False
    is_alive: bool = True
    allowed: Ranges = field(default_factory=Ranges)
    owed: int | None = None
    works: list[Work] = field(default_factory=list)
    next_tick: float = 0.0
    copies_are_late: bool = False
    works_slowly: bool = False
    doubts: int = 0
    departed: dict[str, float] = field(default_factory=dict)
    heard_done: dict[MemberKey, int] = field(default_factory=dict)
    heard: set[MemberKey] = field(default_factory=set)  # since the middleware is one again
    comes_back: bool = True
    apart: int = 0

    def clock(self, now: float) -> float:
        return self.offset + self.rate * now


class ClusteredWorld:
    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.now = 1.0
        self.players: dict[str, Player] = {}
        self.acted: dict[tuple[int, int], str] = {}
        self.problems: list[str] = []
        self.middleware = Middleware()
        self._incarnation = 1000
        self._was_cut = False
        self._excused: set[str] = set()

    # ---- what happens to members

    def start(self, name: str, rate: float, offset: float, skew: float) -> None:
        if name in self.players and self.players[name].is_alive:
            return
        membership = self._membership(name, offset + rate * self.now)
        keeping = Keeping(name, self.middleware, OrderedDict())
        self.players[name] = Player(name, rate, offset, skew, membership, keeping)

    def _membership(self, name: str, clock: float, apart: int = 0) -> Membership:
        self._incarnation += 1
        return Membership(name=name, incarnation=self._incarnation, now=clock, terms=self.terms, apart=apart)

    # ---- what happens to the middleware

    def cut(self, part: tuple[str, ...]) -> None:
        """These names are in one part of it from now on, all others in the other. What waits, or comes meanwhile, may
        be processed in both."""
        self.heal()
        self._was_cut = True
        self._excused |= self.middleware.waiting
        self.middleware.part = part

    def heal(self) -> None:
        self._excused |= {identity for identity, _ in self.middleware.late}
        for player in self.living():
            player.heard.clear()
        for name, identities in self.middleware.heal().items():
            for player in self.living():
                if player.name == name:
                    for identity in identities:
                        player.keeping.arrived(identity)

    def _see_whether_it_is_one(self) -> None:
        """Everybody who may act knows the same view, and has heard all of it: nobody takes another for gone who only
        was in the other part. From now on there is no excuse."""
        acting = [player for player in self.living() if self._has_lease(player)]
        views = [player.membership.view for player in acting]
        names = {(view.epoch, view.leader) for view in views if view is not None}
        if not self.middleware.part and len(names) <= 1 and all(self._has_heard_all(each) for each in acting):
            self._was_cut = False

    def _has_heard_all(self, player: Player) -> bool:
        view, is_about_to_lead = player.membership.view, player.membership._proposed is not None
        return view is None or not (
            is_about_to_lead
            or any(member.key not in player.heard | {player.membership.key} for member in view.members)
        )

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
        if player is not None and value in player.allowed and self._may_act(player):
            self._watch(player, value)
            if all(work.value != value for work in player.works):
                player.works.append(Work(value, player.membership.epoch))

    def _may_act(self, player: Player) -> bool:
        is_there = player.is_alive and not player.is_paused
        return is_there and player.membership.may_act(player.clock(self.now))

    def _watch(self, player: Player, value: int) -> None:
        """Nobody else acts on it now, nor did in this epoch."""
        name = player.name
        epoch = player.membership.epoch
        for other in self.living():
            if (
                other is not player
                and not self._was_cut
                and self._has_lease(other)
                and value in [*(w.value for w in other.works), *(h.value for h in other.keeping.under_way)]
            ):
                self.problems.append(f"{name} and {other.name} act on {value}")
        if self.acted.setdefault((value, epoch), name) != name:
            self.problems.append(f"{name} and {self.acted[value, epoch]} act on {value} in epoch {epoch}")

    def finish(self, name: str) -> None:
        player = self.players.get(name)
        if player is not None and player.works and not player.is_paused:
            player.works.pop(0)
            self._tell_drained(player)

    # ---- messages

    def publish(self, value: int) -> None:
        identity = self.middleware.publish(value)
        if self._was_cut:
            self._excused.add(identity)
        for player in self.living():
            player.keeping.arrived(identity)

    def _work(self, player: Player) -> None:
        """Finish what is under way, and begin with the next."""
        if not self._may_act(player) or player.works_slowly:
            return
        for held in player.keeping.under_way[:]:
            self._judge(player, held)
            self._say(player, player.keeping.finish(held, player.membership.key))
            player.membership.done_words = player.keeping.done_words
        held_next = player.keeping.holding.take(0)
        if held_next is not None:
            self._watch(player, held_next.value)
            player.keeping.under_way.append(held_next)

    def _judge(self, player: Player, held: Held) -> None:
        before = self.middleware.processed.get(held.delivery.id)
        if before is not None and not held.delivery.redelivered and held.delivery.id not in self._excused:
            self.problems.append(
                f"{held.delivery.id}, of {before}, is repeated by {player.name} without a mark"
            )

    def _discard(self, player: Player) -> None:
        """A leader throws away the copies of names that are gone, unless somebody uses them."""
        departed, clock = player.membership.departed, player.clock(self.now)
        for name in departed:
            since = player.departed.setdefault(name, clock)
            is_used = any(each.name == name and each.keeping.is_subscribed for each in self.living())
            if clock - since >= DISCARD_SECONDS and not is_used and not player.membership.knows(name):
                self.middleware.subscriptions.pop(name, None)
        player.departed = {name: since for name, since in player.departed.items() if name in departed}

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
            if self._was_cut:
                self._see_whether_it_is_one()

    def _route(self, player: Player) -> None:
        while player.outbox and player.outbox[0][0] + player.delay <= self.now:
            _, word = player.outbox.popleft()
            self._hand_out(player, word)
        while player.copies and not player.outbox:
            self._hand_out(player, player.copies.popleft())

    def _hand_out(self, player: Player, word: Word) -> None:
        for listener in self.living():
            if self.middleware.is_in(listener.name) == self.middleware.is_in(player.name):
                listener.inbox.append((self.now + listener.skew, word))

    def _run(self, player: Player) -> None:
        clock = player.clock(self.now)
        while player.is_alive and not player.is_deaf and player.inbox and player.inbox[0][0] <= self.now:
            _, word = player.inbox.popleft()
            self._heed(player, word, clock)
        if not player.copies_are_late:
            player.keeping.receive(clock)
        if self.now >= player.next_tick:
            player.next_tick = self.now + TICK
            self._carry_out(player, player.membership.handle(Ticked(clock, int(self.now * 1000))))
            for ask in player.keeping.asks(clock, player.membership.view):
                self._say(player, ask)
            self._discard(player)
        self._work(player)

    def _heed(self, player: Player, word: Word, clock: float) -> None:
        keeping = player.keeping
        match word:
            case Beat():
                player.heard.add(word.key)
                if self._misses_nothing(player, word.key, word.done):
                    self._carry_out(player, player.membership.handle(Heard(word, clock)))
            case View():
                self._carry_out(player, player.membership.handle(Heard(word, clock)))
            case Done(ids=ids):
                if not self._misses_nothing(player, (word.name, word.incarnation), word.number - 1):
                    return
                player.heard_done[word.name, word.incarnation] = word.number
                self._found_out(player, keeping.hear_done(ids))
                self._tell_drained(player)
            case Ask(to=player.name) if keeping.is_subscribed:
                keeping.when_caught_up(lambda: self._say(player, keeping.answer(word)))
            case Answer(to=player.name):
                self._found_out(player, keeping.hear_done(word.done))
                player.copies.extend(keeping.copies_for(word))
            case Copy(to=player.name):
                keeping.take_copy(word, clock)
            case _:
                pass

    def _misses_nothing(self, player: Player, key: MemberKey, number: int) -> bool:
        """As `member.py` does it. False: its incarnation is over."""
        known = player.heard_done.setdefault(key, number)
        if not player.keeping.is_subscribed:
            player.heard_done[key] = max(known, number)
        elif number > known and player.membership.is_stranger(key):
            player.heard_done[key] = number
            self._carry_out(player, [Doubt(EVERYTHING)])
        elif number > known:
            player.membership.is_over = True
            self._carry_out(player, [Stop("words were missed")])
            return False
        return True

    def _say(self, player: Player, word: Word) -> None:
        player.outbox.append((self.now, word))

    def _found_out(self, player: Player, found: list[HasEverything]) -> None:
        for event in found:
            self._carry_out(player, player.membership.handle(event))

    def _find_complete(self, player: Player, keeping: Keeping, event: HasEverything) -> None:
        if keeping is player.keeping:
            self._found_out(player, keeping.settle(event))

    def _end_doubt(self, player: Player, keeping: Keeping) -> None:
        if keeping is player.keeping:
            player.doubts -= 1
            if not player.doubts:
                keeping.holding.caught_up()

    def _carry_out(self, player: Player, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Say(word):
                    self._say(player, word)
                case SubscribeCopies(is_fresh):
                    player.keeping.subscribe(is_fresh)
                    self._carry_out(player, player.membership.handle(CopiesSubscribed()))
                case ActOn(ranges, epoch):
                    player.allowed, player.owed = ranges, epoch
                    player.keeping.holding.act_on(ranges)
                    self._tell_drained(player)
                case Doubt(ranges):
                    player.doubts += 1
                    player.keeping.holding.doubt(ranges)
                    player.keeping.when_caught_up(partial(self._end_doubt, player, player.keeping))
                case FindComplete(key, lineage):
                    found = HasEverything(key, lineage)
                    then = partial(self._find_complete, player, player.keeping, found)
                    player.keeping.when_caught_up(then)
                case FenceOff(key):
                    self._carry_out(player, player.membership.handle(FencedOff(key)))
                case FenceOffAll():
                    self._carry_out(player, player.membership.handle(AllFencedOff()))
                case Stop(has_left=has_left, keeps_copies=keeps_copies, apart=apart):
                    if not keeps_copies:
                        self.middleware.subscriptions.pop(player.name, None)
                    self._stop(player, has_left, apart)

    def _tell_drained(self, player: Player) -> None:
        is_drained = all(work.value in player.allowed for work in player.works)
        if player.owed is not None and is_drained and player.keeping.holding.is_drained:
            epoch, player.owed = player.owed, None
            self._carry_out(player, player.membership.handle(Drained(epoch)))

    def _stop(self, player: Player, has_left: bool, apart: int) -> None:
        """Its handlers are cancelled; it comes back as somebody else."""
        if has_left and (player.works or player.keeping.under_way):
            self.problems.append(f"{player.name} left with work under way")
        player.works.clear()
        player.allowed, player.owed = Ranges(), None
        player.inbox.clear()
        player.copies.clear()
        player.doubts = 0
        player.departed.clear()
        player.heard_done.clear()
        player.keeping = Keeping(player.name, self.middleware, player.keeping.known)
        if has_left or not player.comes_back:
            for _, word in player.outbox:
                self._hand_out(player, word)
            player.is_alive = False
        else:
            player.outbox.clear()
            apart = apart or (player.apart if player.membership.view is None else 0)
            player.apart = apart
            player.membership = self._membership(player.name, player.clock(self.now), apart)

    # ---- what must be in the end

    def calm(self) -> None:
        """Nobody is stuck any more; everything under way ends."""
        self.heal()
        for player in self.living():
            player.is_paused = player.copies_are_late = player.works_slowly = False
            player.delay = 0.0
            player.works.clear()
            self._tell_drained(player)

    @property
    def views(self) -> set[tuple[int, MemberKey]]:
        """Of all who are in one: more than one only while views change, and while there are two clusters."""
        views = [player.membership.view for player in self.living()]
        return {(view.epoch, view.leader) for view in views if view is not None}

    def owners(self, value: int) -> list[str]:
        return [p.name for p in self.living() if value in p.allowed and self._has_lease(p)]
