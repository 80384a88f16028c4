"""A run: members on a network to which things happen for a while, and then a calm in which all must find together."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from simulation.bus import SimBus
from simulation.cuts import Cuts
from simulation.network import TAME, WILD, Oddities
from simulation.view_members import Ledger, Member
from simulation.world import World

STORMY_SECONDS: Final = 15.0
CALM_SECONDS: Final = 25.0  # by then everybody must be in one view
# Within these all have something to say of themselves: about as long as a view takes.
_NEWS_SECONDS: Final = 0.02


class Run(msgspec.Struct):
    """What came of it."""

    seed: int
    digest: str
    ledger: Ledger
    members: list[Member]
    calm_after: float | None  # how long it took; None: too long
    is_news_known: bool  # whether all were told what each had to say of itself when it was calm
    seconds: float
    events: int
    rings: int
    faults: dict[str, int]


class Storm:
    """One seed."""

    def __init__(self, seed: int, *, oddities: Oddities | None = None) -> None:
        self.world = World(seed)
        dice = self.world.dice
        hosts = dice.randint(2, 5)
        if oddities is None:
            oddities = dice.choice((TAME, WILD, WILD))
        self.bus = SimBus(self.world, hosts, oddities)
        self.cuts = Cuts(self.world, self.bus.network)
        self.ledger = Ledger()
        self.members = [Member(self.world, self.bus, self.ledger, host) for host in range(1, hosts + 1)]
        self._stopped: dict[int, None] = {}
        self._down: dict[int, None] = {}
        self._hung: Member | None = None  # one that is stopped and never goes on
        self.faults: dict[str, int] = {}

    def run(self) -> Run:
        world = self.world
        for member in self.members:
            world.after(world.between(0.0, 2.0), member.start)
        world.run(3.0)
        while world.now < STORMY_SECONDS:
            self._strike()
            world.run(world.now + world.between(0.05, 2.0) * world.dice.choice((0.1, 1.0, 1.0)))
        calm_after = self._calm()
        is_news_known = calm_after is not None and self._tell_news()
        return Run(
            seed=0,
            digest=world.digest,
            ledger=self.ledger,
            members=self.members,
            calm_after=calm_after,
            is_news_known=is_news_known,
            seconds=world.now,
            events=world.events,
            rings=self.bus.network.rings,
            faults=self.faults,
        )

    # ---- what can happen

    def _strike(self) -> None:
        strikes = (
            self._cut, self._cut, self._heal, self._heal, self._lose, self._kill, self._kill, self._stop, self._stop,
            self._crash_host, self._regroup, self._flap,
        )  # fmt: skip
        strike = self.world.dice.choice(strikes)
        self.faults[strike.__name__.strip("_")] = self.faults.get(strike.__name__.strip("_"), 0) + 1
        self.world.note(strike.__name__)
        strike()

    def _cut(self) -> None:
        self.cuts.cut()

    def _heal(self) -> None:
        self.cuts.heal()

    def _lose(self) -> None:
        self.cuts.lose()

    def _flap(self) -> None:
        self.cuts.flap()

    def _someone(self) -> Member:
        return self.world.dice.choice(self.members)

    def _kill(self) -> None:
        member = self._someone()
        if member.process is not None and member.host not in self._stopped:
            member.kill()
            self.world.after(self.world.between(0.01, 3.0), partial(self._start, member))

    def _start(self, member: Member) -> None:
        if member.process is None and member.host not in self._down:
            member.start()

    def _stop(self) -> None:
        member = self._someone()
        if member.process is not None and member.host not in self._stopped:
            self._stopped[member.host] = None
            member.process.stop()
            self.world.after(self.world.between(0.05, 6.0), partial(self._resume, member))

    def _resume(self, member: Member) -> None:
        if self._stopped.pop(member.host, self) is None and member.process is not None:
            member.process.resume()

    def _crash_host(self) -> None:
        host = self.world.dice.choice(list(self.bus.network.hosts))
        if host in self._down or host in self._stopped:
            return
        self._down[host] = None
        self.members[host - 1].kill()
        self.bus.crash(host)
        self.world.after(self.world.between(0.1, 3.0), partial(self._boot, host))

    def _boot(self, host: int) -> None:
        if self._down.pop(host, self) is None:
            self.bus.boot(host)
            self.members[host - 1].start()

    def _regroup(self) -> None:
        member = self._someone()
        if member.process is not None and member.host not in self._stopped:
            member.change_nodes()

    # ---- calm

    def _calm(self) -> float | None:
        world = self.world
        world.run(world.now + 3.5)  # what was going to be started again is
        self.bus.network.heal()
        for host in list(self._down):
            self._boot(host)
        for member in self.members:
            self._resume(member)
            self._start(member)
        if world.chance(0.3):
            self._hung = self._someone()
            assert self._hung.process is not None
            self._hung.process.stop()
        began = world.now
        while world.now < began + CALM_SECONDS:
            world.run(world.now + 0.25)
            if self._is_settled():
                return world.now - began
        return None

    def _is_settled(self) -> bool:
        """Everybody alive is in one view, and nobody else is."""
        alive = self._alive()
        views = [member.view for member in alive]
        first = views[0]
        if first is None or any(view is None or view.id != first.id for view in views):
            return False
        return len(first.members) == len(alive)

    def _alive(self) -> list[Member]:
        return [member for member in self.members if member is not self._hung]

    def _tell_news(self) -> bool:
        """The news of one may come while the view is made in which another's is told."""
        world = self.world
        for member in self._alive():
            world.after(world.between(0.0, _NEWS_SECONDS), member.change_nodes)
        world.run(world.now + _NEWS_SECONDS)
        until = world.now + CALM_SECONDS
        while world.now < until:
            world.run(world.now + 0.25)
            if self._is_settled() and all(member.is_known for member in self._alive()):
                return True
        return False


def weather(seed: int, *, oddities: Oddities | None = None) -> Run:
    run = Storm(seed, oddities=oddities).run()
    run.seed = seed
    return run
