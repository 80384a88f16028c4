"""What is in doubt stays with its consumers when all managers end and one goes on from its journal (PROTOCOL 4)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from heliograph.bus.commands import (
    ConsumerAttached,
    ConsumerDetached,
    SessionClosed,
    SessionLost,
    SessionResumed,
)
from heliograph.bus.interface import Incarnation
from heliograph.cluster.dispatch_rules import Situation
from heliograph.cluster.partition_state import State
from heliograph.journal.records import RecordKind
from heliograph.model.claim import Claim
from heliograph.model.destination import Address
from heliograph.model.ids import ConsumerId
from heliograph.model.limits import DOUBT_SECONDS
from heliograph.nodes.leading import Leading
from tests.properties.surroundings import put_managers_here
from tests.properties.test_two_phase_stories import QUEUE, TOPIC, Story

Ends = Callable[[Story], None]


@pytest.fixture(autouse=True)
def managers_are_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_managers_here(monkeypatch, tmp_path)


def killed(story: Story) -> None:
    story.crash(loses=False)


def power_was_cut(story: Story) -> None:
    story.crash(loses=True)


def killed_behind_a_snapshot(story: Story) -> None:
    story.snapshot()
    story.crash(loses=False)


def killed_twice(story: Story) -> None:
    story.crash(loses=False)
    story.crash(loses=False)


def killed_between_snapshots(story: Story) -> None:
    for _ in range(2):
        story.crash(loses=False)
        story.snapshot()
    story.crash(loses=True)


every_end = pytest.mark.parametrize(
    "ends",
    [killed, power_was_cut, killed_behind_a_snapshot, killed_twice, killed_between_snapshots],
    ids=lambda each: each.__name__,
)


def enter(story: Story, state: State, *, is_whole: bool = False, was_whole: bool = False) -> None:
    """A view that is in force. `was_whole`: all came straight from the last one, which was too."""
    manager, views = story.manager, story.manager.catalogue.views
    manager.view_begins(was_whole=was_whole)
    manager.run(None, views.enter(state.value.encode() * 8, state))
    manager.run(None, views.comes_into_force())
    if is_whole:
        manager.became_whole()
        manager.end_doubts(1.0)
    for destination, effects in views.regate(Situation(state=state, is_in_force=True, is_whole=is_whole)):
        manager.run(destination, effects)
    story.end_of_tick()
    story.store()


def in_doubt(story: Story, address: Address = QUEUE, **wishes: object) -> ConsumerId:
    """A client that has two messages is cut off with its client manager."""
    mine = story.consumer(address, story.session, credit=2, number=7, **wishes)
    story.publish(address, "first", "second", "third")
    assert story.given.pop(mine) == [("first", 0), ("second", 0)]
    story.tell(SessionLost(story.session, DOUBT_SECONDS, b"connection 1"))
    enter(story, State.B)
    return mine


def whole(story: Story) -> None:
    """And the lease of those who may still come is over."""
    enter(story, State.A, is_whole=True)
    story.goes_on(2)
    story.store()


@pytest.mark.req("P4", "M8")
@every_end
def test_nobody_else_gets_it_before_the_cluster_is_whole(ends: Ends) -> None:
    story = Story()
    in_doubt(story)
    ends(story)
    enter(story, State.B)
    others = story.consumer(QUEUE, story.open("bob"), credit=10)
    assert [body for body, _ in story.given[others]] == ["third"]
    story.goes_on(3600)
    assert len(story.given[others]) == 1, "its client may have settled the others in another part"
    whole(story)
    assert story.given[others][1:] == [("first", 1), ("second", 1)]


@pytest.mark.req("P4", "M8")
@every_end
def test_its_client_comes_and_says_what_it_has(ends: Ends) -> None:
    story = Story()
    mine = in_doubt(story)
    ends(story)
    enter(story, State.B)
    answer = story.ask_for(SessionResumed, story.session, "ann", b"t", b"connection 2", "", 60.0)
    assert answer.body["consumers"] == [(7, mine, QUEUE)]  # type: ignore[union-attr]
    claim = Claim(held=[(2, 2)], settled=[(1, 1)], seen=2)
    story.tell(ConsumerAttached(story.request(), QUEUE, mine, story.session, 2, number=7, claim=claim))
    assert [body for body, _ in story.given[mine]] == ["third"], (
        "it has one, is through with one, and has room"
    )
    story.tell(ConsumerDetached(QUEUE, mine, story.request(), 2))
    others = story.consumer(QUEUE, story.open("bob"), credit=10)
    assert [body for body, _ in story.given[others]] == ["second", "third"]


@pytest.mark.req("P4", "U1")
@every_end
def test_a_unit_of_order_waits_for_it(ends: Ends) -> None:
    story = Story()
    mine = story.consumer(QUEUE, story.session, number=7)
    story.publish(QUEUE, "first", "second", "other", units=[7, 7, 8])
    assert story.given[mine] == [("first", 0)]
    story.tell(SessionLost(story.session, DOUBT_SECONDS, b"connection 1"))
    enter(story, State.B)
    ends(story)
    enter(story, State.B)
    others = story.consumer(QUEUE, story.open("bob"), credit=10)
    assert [body for body, _ in story.given[others]] == ["other"]
    whole(story)
    assert story.given[others][1:] == [("first", 1), ("second", story.given[others][2][1])]


@pytest.mark.req("P4", "P6")
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "its own"])
@every_end
def test_a_durable_subscription_keeps_it(ends: Ends, shared: bool) -> None:
    """Whoever comes for a subscription of its own need not wait: a topic's messages may come again, marked."""
    story = Story()
    wishes = {"subscription": "mine", "client": "ann", "durable": True, "shared": shared}
    in_doubt(story, TOPIC, **wishes)
    ends(story)
    enter(story, State.B)
    others = story.consumer(TOPIC, story.open("bob"), credit=10, **wishes)
    if shared:
        assert [body for body, _ in story.given[others]] == ["third"]
        whole(story)
    bodies = dict(story.given[others])
    assert bodies == {"first": 1, "second": 1, "third": bodies["third"]}
    ends(story)
    enter(story, State.B)
    last = story.consumer(TOPIC, story.open("eve"), credit=10, **wishes)
    assert len(story.given[last]) == 3, "nobody is waited for any more"


@pytest.mark.req("P4")
@every_end
def test_what_is_not_in_doubt_any_more_comes_back_with_a_restart(ends: Ends) -> None:
    """The client came and claimed what it had: if all end now, that is as with any other."""
    story = Story()
    mine = in_doubt(story)
    story.ask_for(SessionResumed, story.session, "ann", b"t", b"connection 2", "", 60.0)
    claim = Claim(held=[(1, 2)], seen=2)
    story.tell(ConsumerAttached(story.request(), QUEUE, mine, story.session, 0, number=7, claim=claim))
    ends(story)
    enter(story, State.B)
    others = story.consumer(QUEUE, story.open("bob"), credit=10)
    assert {body for body, _ in story.given[others]} == {"first", "second", "third"}


@pytest.mark.req("P4")
@every_end
def test_it_is_in_doubt_until_its_client_has_said_what_it_has(ends: Ends) -> None:
    """It is back, and may have settled something elsewhere; before it can say so, all end."""
    story = Story()
    in_doubt(story)
    story.ask_for(SessionResumed, story.session, "ann", b"t", b"connection 2", "", 60.0)
    ends(story)
    enter(story, State.B)
    others = story.consumer(QUEUE, story.open("bob"), credit=10)
    assert [body for body, _ in story.given[others]] == ["third"]
    whole(story)
    assert story.given[others][1:] == [("first", 1), ("second", 1)]


@pytest.mark.req("P4", "M8")
@every_end
def test_a_session_that_was_closed_elsewhere_leaves_its_doubts(ends: Ends) -> None:
    """Its client manager is back and says so; what the client settled before is known to managers that are away."""
    story = Story()
    in_doubt(story)
    story.tell(SessionClosed(story.session))
    others = story.consumer(QUEUE, story.open("bob"), credit=10)
    assert [body for body, _ in story.given[others]] == ["third"]
    ends(story)
    enter(story, State.B)
    heirs = story.consumer(QUEUE, story.open("eve"), credit=10)
    assert [body for body, _ in story.given[heirs]] == ["third"]
    whole(story)
    assert story.given[heirs][1:] == [("first", 1), ("second", 1)]


@pytest.mark.req("P4", "M8")
@pytest.mark.parametrize("is_back", [False, True], ids=["from elsewhere", "its session is back"])
def test_a_consumer_leaves_its_doubts_unless_its_session_is_here(is_back: bool) -> None:
    """The word of a client manager that was elsewhere may be the last of what its client said there."""
    story = Story()
    mine = in_doubt(story)
    lead = Leading(story.manager, _nothing, _nothing, prefix=b"s", lease_seconds=1.0)
    for attendant in story.manager.catalogue.attendance.all():
        assert attendant.attached is not None
        lead.remembers(attendant.attached)
    elsewhere = Incarnation(bytes(16))
    if is_back:
        resumed = SessionResumed(story.request(), story.session, "ann", b"t", b"connection 2", "", 60.0)
        lead.handle(elsewhere, 1, resumed)
    lead.handle(elsewhere, 2, ConsumerDetached(QUEUE, mine, story.request(), 2))
    story.end_of_tick()
    story.store()
    others = story.consumer(QUEUE, story.open("bob"), credit=10)
    assert len(story.given[others]) == (3 if is_back else 1)


def _nothing(_: object) -> None:
    """Nobody else is there."""


@pytest.mark.req("P4")
@every_end
def test_a_cluster_that_is_whole_for_a_lease_ends_doubts_for_good(ends: Ends) -> None:
    story = Story()
    in_doubt(story)
    whole(story)
    ends(story)
    enter(story, State.B)
    others = story.consumer(QUEUE, story.open("bob"), credit=10)
    assert {body for body, _ in story.given[others]} == {"first", "second", "third"}


def nothing_ends(_: Story) -> None:
    """It is the same manager that goes on."""


@pytest.mark.req("P4", "P9")
@pytest.mark.parametrize(
    "ends", [nothing_ends, killed, power_was_cut, killed_behind_a_snapshot], ids=lambda each: each.__name__
)
def test_a_cluster_that_is_cut_again_before_the_lease_is_over_is_in_doubt_still(ends: Ends) -> None:
    """The client may have acknowledged in the other part what it has, as soon as that had a message manager."""
    story = Story()
    in_doubt(story)
    enter(story, State.A, is_whole=True)
    ends(story)
    enter(story, State.B)
    story.goes_on(2)
    others = story.consumer(QUEUE, story.open("bob"), credit=10)
    assert [body for body, _ in story.given[others]] == ["third"]
    whole(story)
    assert {body for body, _ in story.given[others]} == {"first", "second", "third"}


@pytest.mark.req("P4", "P9")
def test_a_lease_that_began_when_the_cluster_became_whole_is_not_begun_anew_while_it_stays_so() -> None:
    """Views come and go. None of it makes anybody wait longer, but no lease passes while it is not known what the
    next view is."""
    story = Story()
    in_doubt(story)
    others = story.consumer(QUEUE, story.open("bob"), credit=10)
    enter(story, State.A, is_whole=True)
    story.manager.view_is_over()
    story.goes_on(3600)
    assert [body for body, _ in story.given[others]] == ["third"], "it may have been cut"
    enter(story, State.A, was_whole=True)
    story.goes_on(1)
    story.store()
    assert {body for body, _ in story.given[others]} == {"first", "second", "third"}, "the lease was over"


@pytest.mark.req("P4", "P9")
def test_who_was_elsewhere_between_two_whole_clusters_may_have_let_a_client_settle() -> None:
    story = Story()
    in_doubt(story)
    others = story.consumer(QUEUE, story.open("bob"), credit=10)
    enter(story, State.A, is_whole=True)
    story.manager.view_is_over()
    enter(story, State.A)
    story.goes_on(3600)
    assert [body for body, _ in story.given[others]] == ["third"], "it may have been cut"
    whole(story)
    assert {body for body, _ in story.given[others]} == {"first", "second", "third"}


@pytest.mark.req("P4")
def test_in_a_whole_cluster_a_session_that_is_closed_leaves_nothing_in_doubt() -> None:
    """Nor need its lease pass: whatever its client settled in any part is known here."""
    story = Story()
    in_doubt(story)
    others = story.consumer(QUEUE, story.open("bob"), credit=10)
    enter(story, State.A, is_whole=True)
    story.tell(SessionClosed(story.session))
    story.store()
    assert {body for body, _ in story.given[others]} == {"first", "second", "third"}


@pytest.mark.req("P4")
def test_what_is_not_persistent_is_not_worth_a_record() -> None:
    story = Story()
    mine = story.consumer(QUEUE, story.session, credit=2, number=7)
    story.publish(QUEUE, "first", persistent=False)
    assert story.given[mine] == [("first", 0)]
    story.tell(SessionLost(story.session, DOUBT_SECONDS, b"connection 1"))
    assert RecordKind.DOUBTED not in {record.kind for record in story.journal.records}
