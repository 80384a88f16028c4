"""What a message manager does with what it has promised, told in stories: one of two sub-clusters, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heliograph.bus.commands import (
    Answered,
    Asked,
    Command,
    CommitAsked,
    CommitStateAsked,
    ConsumerAttached,
    DestinationDeleted,
    DestinationWanted,
    Dispatched,
    FinalAsked,
    OutcomeAsked,
    OutcomeWanted,
    Parcelled,
    PrepareAsked,
    Published,
    Rejected,
    RollbackAsked,
    SessionClosed,
    SessionLost,
    SessionOpened,
    SessionResumed,
)
from heliograph.journal.records import RecordKind
from heliograph.model.block import pack, parse, unpack
from heliograph.model.destination import Address
from heliograph.model.ids import ConsumerId, IdIssuer, SessionId, lane_of
from heliograph.model.limits import DOUBT_SECONDS
from tests.properties.surroundings import SECOND, put_managers_here
from tests.properties.two_phase_world import SubCluster, World

QUEUE, TOPIC, OUT = Address("queue:in"), Address("topic:news"), Address("queue:out")
HERE, THERE = "west", "east"


@pytest.fixture(autouse=True)
def managers_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_managers_here(monkeypatch, tmp_path)


class Story(SubCluster):
    """One sub-cluster, a client with a session, and somebody else."""

    def __init__(self) -> None:
        self.given: dict[
            ConsumerId, list[tuple[str, int]]
        ] = {}  # bodies, and how often they were handed out before
        self.answers: dict[int, Answered | Rejected] = {}
        self.wanted: list[OutcomeWanted] = []
        self.heard_so_far: list[Command] = []
        self.issuer = IdIssuer(site=3, node=1, started_ms=1)
        self.requests = 100
        world = World.__new__(World)
        world.now, world.boots, world.consumers = 1_000 * SECOND, 1, {HERE: ConsumerId(b"nobody")}
        world.heard = self._hear  # type: ignore[method-assign,assignment]
        self.world = world
        super().__init__(world, HERE)
        self.session = self.open("ann", b"connection 1")

    def _hear(self, _name: str, command: Command) -> None:
        if isinstance(command, Answered | Rejected):
            self.answers[command.request] = command
        elif isinstance(command, OutcomeWanted):
            self.wanted.append(command)
        elif isinstance(command, Parcelled):
            for span in command.spans:
                self._dispatched(Dispatched(command.consumer, 0, span, ""))

    def _dispatched(self, command: Dispatched) -> None:
        span = command.span
        assert span.block.buffer is not None
        bodies = [bytes(body).decode() for body in unpack(span.block.buffer).bodies][span.start : span.stop]
        self.given.setdefault(command.consumer, []).extend((body, span.deliveries) for body in bodies)

    def request(self) -> int:
        self.requests += 1
        return self.requests

    def ask_for(self, kind: Any, *fields: Any) -> Answered | Rejected:
        request = self.request()
        self.tell(kind(request, *fields))
        return self.answers[request]

    def outcome(self, kind: Any, *fields: Any) -> str:
        answer = self.ask_for(kind, *fields)
        return answer.body.get("outcome", "") if isinstance(answer, Answered) else answer.code

    def open(self, user: str, connection: bytes = b"") -> SessionId:
        session = self.issuer.session()
        self.ask_for(SessionOpened, session, user, b"t", connection)
        return session

    def consumer(self, address: Address, session: SessionId, credit: int = 1, **wishes: Any) -> ConsumerId:
        consumer = self.issuer.consumer()
        attached = ConsumerAttached(
            self.request(), address, consumer, session, credit, prompt=False, **wishes
        )
        self.tell(attached)
        return consumer

    def publish(self, address: Address, *bodies: str, lane: int = 1, first: int = 1, **how: Any) -> None:
        staged = how.pop("staged", False)
        identity = lane_of(self.session, lane)
        self.ask_for(DestinationWanted, address, True, identity)
        buffer = pack(
            [body.encode() for body in bodies],
            lane=identity,
            first=first,
            timestamp=self.world.now,
            persistent=how.pop("persistent", True),
            **how,
        )
        self.tell(Published(address, parse(buffer), staged=staged))

    def prepare(
        self,
        consumed: list[tuple[Address, ConsumerId, list[tuple[int, int]]]],
        messages: int = 0,
        number: int = 1,
    ) -> Answered | Rejected:
        names = [THERE, HERE]
        return self.ask_for(PrepareAsked, self.session, number, messages, consumed, THERE, names, HERE)

    def final(self, *, is_commit: bool, number: int = 1) -> str:
        return self.outcome(FinalAsked, self.session, number, is_commit, THERE, HERE)

    def goes_on(self, seconds: float) -> None:
        self.world.now += int(seconds * SECOND)
        self.pass_time(self.world.now)
        self.end_of_tick()

    def attach_greedy(self) -> None:
        pass

    def restart(self) -> None:
        self.snapshot()
        self.crash(loses=True)


@pytest.mark.req("M10", "U1")
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_unit_of_order_waits_for_what_is_promised_of_it(is_commit: bool, restarts: bool) -> None:
    story = Story()
    mine = story.consumer(QUEUE, story.session)
    story.publish(QUEUE, "first", "second", "third", units=[7, 7, 7])
    assert story.given[mine] == [("first", 0)]
    assert isinstance(story.prepare([(QUEUE, mine, [(1, 1)])]), Answered)
    if restarts:
        story.restart()
    others = story.consumer(QUEUE, story.open("bob"), credit=10)
    story.tell(SessionLost(story.session, 0.0, b"connection 1"))
    assert story.given[mine] == [("first", 0)]
    assert others not in story.given
    story.final(is_commit=is_commit)
    expected = [("second", 0), ("third", 0)]
    if not is_commit:
        expected.insert(0, ("first", 1))
    assert [body for body, _ in story.given[others]] == [body for body, _ in expected]
    assert is_commit or story.given[others][0] == ("first", 1)


@pytest.mark.req("M10", "J6")
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_durable_subscription_keeps_what_is_promised_through_a_restart(is_commit: bool) -> None:
    story = Story()
    wishes = {"subscription": "all", "client": "ann", "durable": True}
    mine = story.consumer(TOPIC, story.session, credit=2, **wishes)
    story.publish(TOPIC, "first", "second", "third")
    assert isinstance(story.prepare([(TOPIC, mine, [(2, 2)])]), Answered)
    story.restart()
    story.restart()
    again = story.consumer(TOPIC, story.open("ann"), credit=10, **wishes)
    assert [body for body, _ in story.given[again]] == ["first", "third"]
    story.final(is_commit=is_commit)
    assert story.given[again][2:] == ([] if is_commit else [("second", 1)])


@pytest.mark.req("M10")
def test_neither_purges_nor_leases_nor_closed_sessions_reach_what_is_promised() -> None:
    story = Story()
    mine = story.consumer(QUEUE, story.session, number=7)
    story.publish(QUEUE, "first", "second")
    story.publish(OUT, "answer", lane=2, staged=True)
    assert isinstance(story.prepare([(QUEUE, mine, [(1, 1)])], messages=1), Answered)
    story.tell(SessionLost(story.session, 1.0, b"connection 1"))
    story.goes_on(2)  # the lease passes
    story.ask_for(Asked, "destination.purge", {"destination": str(QUEUE)})
    story.tell(SessionClosed(story.session))
    others = story.consumer(QUEUE, story.open("bob"), credit=10)
    assert others not in story.given
    refusal = story.ask_for(Asked, "destination.delete", {"destination": str(OUT), "force": True})
    assert isinstance(refusal, Rejected)
    assert refusal.code == "destination-in-use"
    [shown] = story.ask_for(Asked, "transactions", {}).body["transactions"]  # type: ignore[union-attr]
    assert (shown["state"], shown["sent"], shown["consumed"], shown["user"]) == ("prepared", 1, 1, "")
    story.final(is_commit=False)
    assert story.given[others] == [("first", 1)]
    answers = story.consumer(OUT, story.open("bob"), credit=10)
    assert answers not in story.given
    assert story.manager.catalogue.transactions.outcomes() == {}


@pytest.mark.req("M10")
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_queue_that_is_deleted_takes_what_was_promised_of_it_along(is_commit: bool) -> None:
    story = Story()
    mine = story.consumer(QUEUE, story.session)
    story.publish(QUEUE, "first")
    story.publish(OUT, "answer", lane=2, staged=True)
    story.prepare([(QUEUE, mine, [(1, 1)])], messages=1)
    story.tell(DestinationDeleted(QUEUE), DestinationDeleted(OUT))
    story.final(is_commit=is_commit)
    story.restart()
    assert not story.manager.catalogue.transactions.prepared
    assert not story.journal.live()


@pytest.mark.req("M10")
def test_the_journal_lets_go_of_everything_when_it_is_over() -> None:
    story = Story()
    mine = story.consumer(QUEUE, story.session, credit=4)
    story.publish(QUEUE, "1", "2", "3", "4")
    story.publish(OUT, "answer", lane=2, staged=True)
    story.prepare([(QUEUE, mine, [(1, 4)])], messages=1)
    for _ in range(30):  # segments end, and what is needed of old ones is moved
        story.publish(QUEUE, "passing", lane=3, first=_ + 1)
        story.manager._compactor.step()
        story.end_of_tick()
        story.store()
    story.restart()
    story.final(is_commit=True)
    reader = story.open("bob")
    taken = [story.consumer(address, reader, credit=100) for address in (QUEUE, OUT)]
    assert [body for body, _ in story.given[taken[0]]] == ["passing"] * 30
    assert story.given[taken[1]] == [("answer", 0)]
    done = [(QUEUE, taken[0], [(1, 30)]), (OUT, taken[1], [(1, 1)])]
    assert isinstance(story.ask_for(CommitAsked, reader, 1, 0, done), Answered)
    assert not story.journal.live()


@pytest.mark.req("M10", "P8")
def test_whoever_asks_again_hears_the_same_and_too_late_is_too_late() -> None:
    story = Story()
    mine = story.consumer(QUEUE, story.session, credit=3)
    story.publish(QUEUE, "1", "2", "3")
    first, second = [(QUEUE, mine, [(1, 1)])], [(QUEUE, mine, [(2, 2)])]
    assert isinstance(story.prepare(first), Answered)
    assert isinstance(story.prepare(first), Answered)
    assert story.ask_for(CommitAsked, story.session, 1, 0, first).code == "transaction-in-doubt"  # type: ignore[union-attr]
    story.ask_for(RollbackAsked, story.session, 1, [])
    key = (story.session, 1)
    state = story.ask_for(CommitStateAsked, *key)
    assert state.body == {"state": "prepared", "decider": THERE, "participants": [THERE, HERE]}  # type: ignore[union-attr]
    assert story.outcome(OutcomeAsked, *key, True) == "undecided"  # it was promised to another
    assert (
        story.outcome(FinalAsked, *key, True, "north", HERE) == "committed"
    )  # of whom nothing is known here
    assert key in story.manager.catalogue.transactions.prepared
    assert story.final(is_commit=True) == "committed"
    assert story.final(is_commit=True) == "committed"
    assert isinstance(story.prepare(first), Answered)
    assert isinstance(story.ask_for(CommitAsked, story.session, 2, 0, second), Answered)
    assert isinstance(story.prepare(first), Rejected)  # it is past
    assert story.ask_for(CommitStateAsked, *key).body["state"] == "unknown"  # type: ignore[union-attr]


@pytest.mark.req("M10", "P8")
def test_a_decider_waits_while_somebody_is_at_it_and_aborts_when_nobody_is() -> None:
    story = Story()
    mine = story.consumer(QUEUE, story.session, number=7)
    story.publish(QUEUE, "first")
    consumed = [(QUEUE, mine, [(1, 1)])]
    story.ask_for(PrepareAsked, story.session, 1, 0, consumed, HERE, [HERE, THERE], HERE)
    key = (story.session, 1)
    assert story.outcome(OutcomeAsked, *key, False) == "undecided"
    story.goes_on(30)
    assert not story.wanted
    story.ask_for(SessionResumed, story.session, "ann", b"t", b"connection 2")
    story.goes_on(2)
    assert [(each.session, each.number, each.decider) for each in story.wanted[:1]] == [(*key, HERE)]
    assert story.outcome(OutcomeAsked, *key, False) == "aborted"
    assert story.outcome(OutcomeAsked, *key, True) == "transaction-aborted"
    assert story.outcome(FinalAsked, *key, False, HERE, HERE) == "aborted"


@pytest.mark.req("M10")
def test_what_is_not_persistent_is_committed_too_and_ends_with_the_server() -> None:
    story = Story()
    mine = story.consumer(QUEUE, story.session, credit=2)
    story.publish(QUEUE, "first", persistent=False)
    story.publish(QUEUE, "second", first=2)
    story.publish(OUT, "light", lane=2, staged=True, persistent=False)
    story.publish(OUT, "heavy", lane=2, first=2, staged=True)
    assert isinstance(story.prepare([(QUEUE, mine, [(1, 2)])], messages=2), Answered)
    story.final(is_commit=True)
    taken = story.consumer(OUT, story.open("bob"), credit=10)
    assert story.given[taken] == [("light", 0), ("heavy", 0)]

    story = Story()
    story.publish(OUT, "light", lane=2, staged=True, persistent=False)
    story.publish(OUT, "heavy", lane=2, first=2, staged=True)
    assert isinstance(story.prepare([], messages=2), Answered)
    story.restart()
    story.final(is_commit=True)
    taken = story.consumer(OUT, story.open("bob"), credit=10)
    assert story.given[taken] == [("heavy", 0)]


@pytest.mark.req("M10")
def test_one_phase_writes_what_it_always_wrote() -> None:
    story = Story()
    mine = story.consumer(QUEUE, story.session)
    story.publish(QUEUE, "first")
    story.publish(OUT, "answer", lane=2, staged=True)
    before = len(story.journal.records)
    story.ask_for(CommitAsked, story.session, 1, 1, [(QUEUE, mine, [(1, 1)])])
    kinds = [record.kind for record in story.journal.records[before:]]
    assert kinds == [RecordKind.COMMITTED]


@pytest.mark.req("P4", "M8")
@pytest.mark.parametrize("again", [1.0, 0.0])
def test_what_is_in_doubt_stays_so_when_its_session_is_lost_once_more(again: float) -> None:
    story = Story()
    mine = story.consumer(QUEUE, story.session, number=7)
    story.publish(QUEUE, "first")
    assert story.given[mine] == [("first", 0)]
    others = story.consumer(QUEUE, story.open("bob"), credit=10)
    story.tell(SessionLost(story.session, DOUBT_SECONDS, b"connection 1"))
    story.tell(SessionLost(story.session, again, b"connection 1"))
    story.goes_on(60)
    assert others not in story.given, "its client may have settled it in another part"
    story.manager.end_doubts(1.0)
    story.goes_on(2)
    assert story.given[others] == [("first", 1)]
