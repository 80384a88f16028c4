"""Two sub-clusters, client managers and a client with one transaction over both, step by step.

A sub-cluster is one message manager of production on a disk in memory; client managers are the engine that
coordinates. Facts and answers wait in queues, one for each way, and are delivered when somebody chooses to; between
any two steps a process may die. In each sub-cluster the client has received one message and sends another, and
somebody greedy takes whatever he is given: the first if the transaction is not to be, the second if it is, and never
both.
"""

from __future__ import annotations

from collections import deque
from typing import cast

import msgspec

from heliograph.bus.commands import (
    Answered,
    Command,
    CommitAsked,
    ConsumerAttached,
    DestinationWanted,
    Dispatched,
    OutcomeWanted,
    PrepareAsked,
    Published,
    Rejected,
    RollbackAsked,
    SessionClosed,
    SessionLost,
    SessionOpened,
    SessionResumed,
)
from heliograph.bus.interface import Receiver
from heliograph.destinations.snapshot import snapshot_of
from heliograph.journal.files import JournalSettings
from heliograph.model.block import pack_lone, parse, unpack
from heliograph.model.destination import Address
from heliograph.model.ids import ConsumerId, IdIssuer, SessionId, lane_of
from heliograph.nodes.clock import Clock
from heliograph.nodes.message_manager import MessageManager
from heliograph.nodes.tick import Step, Tick
from heliograph.sessions.coordinating import Coordinating, Effect, Part, Say, Tell
from tests.properties.memory_journal import MemoryJournal
from tests.properties.surroundings import HERE, SECOND, START, Loop

NAMES = ("east", "west")
IN, OUT = Address("queue:in"), Address("queue:out")
NUMBER = 1  # of the transaction
COMMIT = 1_000_000  # the number under which the client asks


class WorldClock(Clock):
    """One time for all."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> float:
        return self._world.now / SECOND

    def microseconds(self) -> int:
        return self._world.now

    def boot_id(self) -> bytes:
        return b"%d" % self._world.boots


class SubCluster:
    """A message manager over its lives."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.journal = MemoryJournal()
        self._world = world
        self._issuer = IdIssuer(site=1, node=1 + NAMES.index(name), started_ms=1)
        self.facts: deque[tuple[int, Command]] = deque()  # from which client manager
        self.greedy: set[str] = set()
        self.client_has = False
        self._held_by: dict[SessionId, int] = {}  # with which client manager each session is
        self._start()

    def _start(self) -> None:
        HERE.journal, HERE.loop = self.journal, Loop(self._world.now)
        self.loop = HERE.loop
        self._steps: list[Step] = []
        self._said: list[Command] = []
        self.manager = MessageManager(
            HERE.folder / self.name / "journal",
            bus=self,
            tick=cast("Tick", self),
            settings=JournalSettings(),
            resident_bytes=10**9,
            in_memory=False,
            issuer=self._issuer,
            clock=WorldClock(self._world),
        )
        self.manager.start()
        self.end_of_tick()
        self.journal.store_up_to(self.journal.boundaries[-1])

    # ---- the tick and the bus, as the manager sees them

    def add_write(self, step: Step) -> None:
        self._steps.append(step)

    def send_early(self) -> None:
        pass

    def ask(self) -> None:
        pass

    def join(self, _receiver: Receiver, _kinds: object = None) -> None:
        pass

    def multicast(self, command: Command) -> None:
        self._said.append(command)

    def end_of_tick(self) -> None:
        """What was written is written, and what was said leaves."""
        while self.loop.soon or self.journal.loads:
            soon, self.loop.soon = self.loop.soon, []
            for call in soon:
                call()
            while self.journal.loads:
                self.journal.page_arrives()
        for step in self._steps:
            step()
        said, self._said = self._said, []
        for command in said:
            if isinstance(command, Dispatched):
                self._dispatched(command)
            else:
                self._world.heard(self.name, command)

    def _dispatched(self, command: Dispatched) -> None:
        if command.consumer == self._world.consumers[self.name]:
            self.client_has = True
            return
        buffer = command.span.block.buffer
        assert buffer is not None
        bodies = [bytes(body).decode() for body in unpack(buffer).bodies]
        self.greedy.update(bodies[command.span.start : command.span.stop])

    # ---- steps

    def tell(self, *facts: Command) -> None:
        """At once, and stored."""
        for fact in facts:
            self.manager.on_command(fact)
        self.end_of_tick()
        self.store()

    def next_fact(self) -> None:
        sender, fact = self.facts.popleft()
        if isinstance(fact, SessionOpened | SessionResumed):
            self._held_by[fact.session] = sender
        if isinstance(fact, PrepareAsked | SessionLost) and self._held_by.get(fact.session, sender) != sender:
            if isinstance(fact, PrepareAsked):  # as a primary of a cluster does (`nodes/leading.py`)
                self.multicast(Rejected(fact.request, "session-moved", "it is elsewhere"))
        else:
            self.manager.on_command(fact)
        self.end_of_tick()

    @property
    def has_unstored(self) -> bool:
        return bool(self.journal.unstored())

    def store(self) -> None:
        self.manager.journal_stored(self.journal.store_up_to(self.journal.boundaries[-1]))
        self.journal.delete_finished()
        self.end_of_tick()

    def snapshot(self) -> None:
        self.journal.begin_snapshot(snapshot_of(self.manager.catalogue, b"%d" % self._world.boots))
        self.manager.journal_stored(self.journal.finish_snapshot())
        self.journal.delete_finished()
        self.end_of_tick()

    def crash(self, *, loses: bool) -> None:
        """`loses`: what was written and not forced to the disk."""
        self._world.boots += loses
        self.journal.crash(self.journal.stored if loses else self.journal.boundaries[-1])
        self._start()
        self.attach_greedy()

    def pass_time(self, until: int) -> None:
        while (timer := self.loop.next_due(until)) is not None:
            self.loop.now = max(self.loop.now, timer.due)
            timer.call()
            self.end_of_tick()
        self.loop.now = until

    def attach_greedy(self) -> None:
        session = self._issuer.session()
        self.tell(SessionOpened(-1, session, "greedy", b"g"))
        for address in (IN, OUT):
            self.tell(ConsumerAttached(-1, address, self._issuer.consumer(), session, 100))

    @property
    def is_in_doubt(self) -> bool:
        transactions = self.manager.catalogue.transactions
        return bool(transactions.prepared or transactions.finishing)


class Manager:
    """A client manager: what coordinates, and what it has heard and not looked at."""

    def __init__(self, world: World, number: int) -> None:
        self.number = number
        self._world = world
        self._requests = number * 10_000_000
        self.coordinating = Coordinating(self._next_request)
        self.heard: deque[tuple[str, Command]] = deque()

    def _next_request(self) -> int:
        self._requests += 1
        return self._requests

    def commit(self, *, again: bool) -> None:
        consumed = {name: [(IN, self._world.consumers[name], [(1, 1)])] for name in NAMES}
        parts = {name: Part(1, consumed[name]) for name in NAMES}
        asked = CommitAsked(COMMIT, self._world.session, NUMBER, 2, [])
        self._carry_out(self.coordinating.commit(asked, parts, list(NAMES), again=again))

    def next_heard(self) -> None:
        name, command = self.heard.popleft()
        if isinstance(command, OutcomeWanted):
            self._carry_out(self.coordinating.wanted(command))
        elif isinstance(command, Answered | Rejected) and command.request in self.coordinating:
            if isinstance(command, Answered):
                self._carry_out(self.coordinating.answered(command.request, command.body))
            else:
                self._carry_out(self.coordinating.rejected(command.request, command.code, command.sentence))
        elif isinstance(command, Answered) and command.request == -100 - self.number:
            self._world.resumed(self, name)

    def another_leads(self, name: str) -> None:
        self._carry_out(self.coordinating.another_leads(name))

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Say):
                self._world.clusters[effect.sub_cluster].facts.append((self.number, effect.fact))
            else:
                assert isinstance(effect, Tell)
                self._world.told(self, effect)


class World:
    """All of them, and the client."""

    def __init__(self) -> None:
        self.now, self.boots = START, 1
        issuer = IdIssuer(site=2, node=1, started_ms=1)
        self.session = issuer.session()
        self.consumers: dict[str, ConsumerId] = {name: issuer.consumer() for name in NAMES}
        self.managers: dict[int, Manager] = {}
        self.clusters: dict[str, SubCluster] = {}
        for name in NAMES:
            self.clusters[name] = SubCluster(self, name)
        self.outcome: str | None = None  # what the client heard
        self._with = 1
        self._resumed: list[str] = []
        self._added = 0
        self._add_manager()
        for name in NAMES:
            self._set_up(self.clusters[name])
        self.managers[1].heard.clear()
        self.managers[1].commit(again=False)

    def _set_up(self, cluster: SubCluster) -> None:
        name = cluster.name
        cluster.facts.append((1, SessionOpened(-1, self.session, "ann", b"t", b"connection 1")))
        cluster.next_fact()
        for number, address in enumerate((IN, OUT), start=1):
            cluster.tell(DestinationWanted(-1, address, True, lane_of(self.session, number)))
        cluster.tell(ConsumerAttached(-1, IN, self.consumers[name], self.session, 1, number=7, prompt=False))
        for number, address in enumerate((IN, OUT), start=1):
            body = b"in" if address == IN else b"out"
            buffer = pack_lone(
                body, lane=lane_of(self.session, number), sequence=1, timestamp=self.now, persistent=True
            )
            cluster.tell(Published(address, parse(buffer), staged=address == OUT))
        assert cluster.client_has
        cluster.attach_greedy()
        assert not cluster.greedy

    def heard(self, name: str, command: Command) -> None:
        for manager in self.managers.values():
            manager.heard.append((name, msgspec.structs.replace(command)))

    # ---- the client

    def told(self, manager: Manager, word: Tell) -> None:
        if manager.number != self._with:
            return  # the client is not there any more
        assert self.outcome is None, "told twice"
        self.outcome = word.refusal or "committed"
        for name, cluster in self.clusters.items():
            if word.refusal:
                consumers = [(IN, self.consumers[name], 1)]
                cluster.facts.append((manager.number, RollbackAsked(-1, self.session, NUMBER, consumers)))
            cluster.facts.append((manager.number, SessionClosed(self.session)))

    def client_moves(self) -> None:
        """To another client manager; the one that it was with goes on with what it was asked."""
        if self.outcome is not None or not self._with:
            return
        former, self._with = self._with, self._add_manager()
        number = self._with
        self._resumed = []
        connection = b"connection %d" % number
        for cluster in self.clusters.values():
            if former in self.managers:
                lost = SessionLost(self.session, 5.0, b"connection %d" % former)
                cluster.facts.append((former, lost))
            resumed = SessionResumed(-100 - number, self.session, "ann", b"t", connection, "", 5.0)
            cluster.facts.append((number, resumed))

    def _add_manager(self) -> int:
        self._added += 1
        self.managers[self._added] = Manager(self, self._added)
        return self._added

    def resumed(self, manager: Manager, name: str) -> None:
        """When everybody knows where its session is, the client asks again."""
        if manager.number == self._with:
            self._resumed.append(name)
            if len(self._resumed) == len(NAMES):
                manager.commit(again=True)

    def manager_dies(self, *, takes_client: bool, loses: bool) -> None:
        """`loses`: also what it had said and nobody has heard."""
        number = self._with if self._with in self.managers else min(self.managers, default=0)
        self.managers.pop(number, None)
        for cluster in self.clusters.values():
            if loses:
                cluster.facts = deque(each for each in cluster.facts if each[0] != number)
            connection = b"connection %d" % number
            cluster.facts.append((number, SessionLost(self.session, 0.0, connection)))
        if takes_client:
            self._with = 0
        else:
            self.client_moves()
        if not self.managers:
            self._add_manager()

    def sub_cluster_dies(self, name: str, *, loses: bool, forgets: bool) -> None:
        """`forgets`: what it had heard and not handled; it is asked again."""
        cluster = self.clusters[name]
        if forgets:
            own = (SessionLost, SessionResumed, SessionClosed, RollbackAsked)  # these are not said again here
            cluster.facts = deque(each for each in cluster.facts if isinstance(each[1], own))
        cluster.crash(loses=loses)
        for manager in self.managers.values():
            manager.another_leads(name)

    # ---- going on

    def steps(self) -> list[tuple[str, str]]:
        """What can happen next."""
        found = []
        for name, cluster in self.clusters.items():
            if cluster.facts:
                found.append(("fact", name))
            if cluster.has_unstored:
                found.append(("store", name))
        return found + [("heard", str(number)) for number, each in self.managers.items() if each.heard]

    def take(self, step: tuple[str, str]) -> None:
        kind, who = step
        if kind == "fact":
            self.clusters[who].next_fact()
        elif kind == "store":
            self.clusters[who].store()
        else:
            self.managers[int(who)].next_heard()

    def pass_time(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)
        for cluster in self.clusters.values():
            cluster.pass_time(self.now)

    def settle(self) -> None:
        """Nothing fails any more: everything has to come to its end."""
        for _ in range(200):
            while steps := self.steps():
                self.take(steps[0])
            is_over = not any(cluster.is_in_doubt for cluster in self.clusters.values())
            if is_over and not any(len(each.coordinating) for each in self.managers.values()):
                return
            self.pass_time(1)
        raise AssertionError("somebody is in doubt for ever")

    def check(self) -> None:
        """Between any two steps."""
        for cluster in self.clusters.values():
            assert len(cluster.greedy) <= 1, f"{cluster.name} has given out what it was not sure of"

    def judge(self) -> str:
        """At the end. Returns what became of it."""
        self.pass_time(100)  # leases are over
        while steps := self.steps():
            self.take(steps[0])
        found = [sorted(cluster.greedy) for cluster in self.clusters.values()]
        assert found in ([["in"], ["in"]], [["out"], ["out"]]), found
        outcome = "committed" if found[0] == ["out"] else "aborted"
        if self.outcome is not None:
            assert (self.outcome == "committed") == (outcome == "committed"), "the client heard otherwise"
        elif self._with:
            raise AssertionError("the client waits for ever")
        for cluster in self.clusters.values():
            catalogue = cluster.manager.catalogue
            for session in catalogue.transactions.outcomes():
                assert session in catalogue.sessions, "an outcome outlives its session"
        return outcome
