"""Consumers that are away: they keep what they have, and what their client says of it decides what becomes of it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.bus.commands import Answered, ConsumerAttached, ConsumerDetached, Dispatched, Rejected
from heliograph.destinations.attendance import NO_NUMBER, Attendance
from heliograph.destinations.destination import Destination
from heliograph.destinations.effects import Answer, AnyEffect, Note
from heliograph.destinations.events import ConsumerAway
from heliograph.destinations.outstanding import subtracted
from heliograph.journal.records import RecordKind
from heliograph.model.claim import Claim, Ranges, first_tag
from heliograph.model.ids import ConsumerId, SessionId
from tests.unit.destinations.stories import a_consumer, a_session, asked, handed_to, several, told
from tests.unit.destinations.test_fairness import NOW, ORDERS, attach, publish, queue, settle

pytestmark = pytest.mark.req("M8")


class Story:
    """A queue with a consumer that has ten messages, and was then lost."""

    def __init__(self, credit: int = 20) -> None:
        self.queue = queue()
        self.session = a_session()
        self.consumer = a_consumer()
        self.credit = credit
        self.queue.handle(ConsumerAttached(1, ORDERS, self.consumer, self.session, credit), NOW)
        publish(self.queue, several(1, 10))
        self.queue.handle(ConsumerAway(self.consumer), NOW)

    def claim(
        self, held: Ranges, settled: Ranges | None = None, seen: int = 10, session: SessionId | None = None
    ) -> list[AnyEffect]:
        claim = Claim(held, settled or [], seen)
        return self.queue.handle(
            ConsumerAttached(
                7, ORDERS, self.consumer, session or self.session, self.credit, number=1, claim=claim
            ),
            NOW,
        )


def gone(effects: list[AnyEffect]) -> Ranges:
    [answer] = asked(effects, Answer)
    assert (answer.request, answer.body["resumed"]) == (7, True)
    ranges: Ranges = answer.body["gone"]
    return ranges


def noted(effects: list[AnyEffect]) -> dict[int, Ranges]:
    return {note.kind: note.ranges for note in asked(effects, Note)}


def earlier(effects: list[AnyEffect], consumer: ConsumerId) -> dict[int, int]:
    """How often each message that a consumer was given had been handed out before."""
    return {
        each.span.block.first + index: each.span.deliveries
        for each in told(effects, Dispatched)
        if each.consumer == consumer
        for index in range(each.span.start, each.span.stop)
    }


def in_flight(destination: Destination) -> int:
    return destination.figures().in_flight


def test_one_that_is_away_keeps_what_it_has_and_gets_nothing() -> None:
    story = Story()
    other, effects = attach(story.queue, 100)
    assert handed_to(effects, other) == []
    effects = publish(story.queue, several(11, 3))
    assert handed_to(effects, other) == [11, 12, 13]
    assert handed_to(effects, story.consumer) == []
    assert in_flight(story.queue) == 13


def test_what_it_holds_stays_under_the_same_tags() -> None:
    story = Story()
    effects = story.claim([(1, 10)])
    assert gone(effects) == []
    assert noted(effects) == {}
    assert noted(settle(story.queue, story.consumer, (3, 5))) == {RecordKind.DONE: [(3, 5)]}
    assert in_flight(story.queue) == 7


def test_each_message_goes_where_the_client_says() -> None:
    story = Story(credit=7)
    publish(story.queue, several(11, 1))
    effects = story.claim([(3, 4)], [(1, 2)], seen=5)
    assert gone(effects) == []
    assert noted(effects)[RecordKind.DONE] == [(1, 2)]
    assert noted(effects)[RecordKind.RETURNED] == [(5, 5)]
    assert noted(effects)[RecordKind.UNSEEN] == [(6, 7)]
    assert earlier(effects, story.consumer) == {5: 1, 6: 0, 7: 0, 8: 0, 9: 0}, "as many as it has credit for"
    tags = [each.tag for each in told(effects, Dispatched)]
    assert min(tags) == 8, "tags are never given twice"


def test_what_was_settled_before_the_break_is_gone() -> None:
    story = Story()
    settle(story.queue, story.consumer, (4, 6))
    effects = story.claim([(1, 10)])
    assert gone(effects) == [(4, 6)]
    assert in_flight(story.queue) == 7


def test_a_claim_without_knowledge_gets_everything_back_marked() -> None:
    story = Story()
    effects = story.claim([], seen=-1)
    assert set(earlier(effects, story.consumer).values()) == {1}
    assert len(earlier(effects, story.consumer)) == 10


def test_one_whose_lease_has_passed_comes_as_any_other() -> None:
    story = Story()
    story.queue.handle(ConsumerDetached(ORDERS, story.consumer), NOW)
    effects = story.claim([(1, 10)])
    assert asked(effects, Answer) == []
    assert set(earlier(effects, story.consumer).values()) == {1}


# ---- one that comes in place of a forgotten one


def forgotten_and_claimed(story: Story, held: Ranges, settled: Ranges, seen: int = 10) -> list[AnyEffect]:
    """The lease passed, its client came to claim it all the same, and was lost before it was answered."""
    story.queue.handle(ConsumerDetached(ORDERS, story.consumer), NOW)
    effects = story.claim(held, settled, seen)
    story.queue.handle(ConsumerAway(story.consumer), NOW)
    return effects


def starts_over(effects: list[AnyEffect]) -> bool:
    """Whether its client is told that it has another consumer."""
    return asked(effects, Answer) == [] and told(effects, Answered) == [Answered(7, {})]


def test_one_in_place_of_a_forgotten_one_has_no_tag_of_it() -> None:
    story = Story()
    effects = forgotten_and_claimed(story, [(6, 8)], [(1, 5)], seen=6)
    assert min(each.tag for each in told(effects, Dispatched)) == 9


def test_a_client_that_did_not_hear_that_its_consumer_is_new_settles_nothing_of_it() -> None:
    """What it settled had other tags. What it waits to hear stored may have gone back, so it starts over."""
    story = Story()
    forgotten_and_claimed(story, [(6, 10)], [(1, 5)])
    effects = story.claim([(6, 10)], [(1, 5)])
    assert starts_over(effects)
    assert story.queue.figures().settled == 0
    assert earlier(effects, story.consumer) == dict.fromkeys(range(1, 11), 1), "nobody saw it meanwhile"


def test_a_client_that_heard_it_goes_on_with_the_new_one() -> None:
    story = Story()
    effects = forgotten_and_claimed(story, [(6, 10)], [(1, 5)])
    assert [each.tag for each in told(effects, Dispatched)] == [11]
    effects = story.claim([(13, 20)], [(11, 12)], seen=13)
    assert gone(effects) == []
    assert noted(effects) == {RecordKind.DONE: [(1, 2)]}
    assert in_flight(story.queue) == 8


def test_whoever_leads_next_knows_that_a_consumer_is_new() -> None:
    """Asked before it was lost, the same claim takes nothing back: what was handed out is on its way."""
    story = Story()
    forgotten_and_claimed(story, [(6, 10)], [(1, 5)])
    former = story.queue.messages.consumers[story.consumer]
    inherited = Story()
    inherited.consumer, inherited.session = story.consumer, story.session
    attached = ConsumerAttached(7, ORDERS, story.consumer, story.session, 20)
    restored = inherited.queue.restore_consumer(attached, 0)
    assert restored is not None
    inherited.queue.messages.restore_standing(
        restored, 20, former.next_tag, former.given, former.former, retired=False, away=False
    )
    assert starts_over(inherited.claim([(6, 10)], [(1, 5)]))
    inherited.queue.handle(ConsumerAway(story.consumer), NOW)
    assert starts_over(inherited.claim([(6, 10)], [(1, 5)]))


@pytest.mark.req("P6")
def test_tags_of_whoever_led_before_show_as_well_that_a_client_did_not_hear_it() -> None:
    """And those that another part gives are its own: none of them is given here."""
    story = Story()
    theirs, ours = first_tag(8, 2), first_tag(7, 1)
    story.queue.messages.begin_tags(ours)
    effects = forgotten_and_claimed(story, [(9, 10), (theirs, theirs + 4)], [(1, 8)], seen=theirs)
    assert [each.tag for each in told(effects, Dispatched)] == [ours]
    assert starts_over(story.claim([(9, 10), (theirs, theirs + 4)], [(1, 8)], seen=theirs))


@pytest.mark.parametrize(
    ("held", "settled", "code"),
    [
        ([(1, 11)], [], "settlement-unknown"),
        ([], [(1, 2**60)], "settlement-unknown"),
        ([(3, 5), (5, 6)], [], "claim-invalid"),
        ([(5, 6), (1, 2)], [], "claim-invalid"),
        ([(5, 4)], [], "claim-invalid"),
        ([(0, 4)], [], "claim-invalid"),
        ([(-3, 4)], [], "claim-invalid"),
        ([(1, 5)], [(5, 6)], "claim-invalid"),
    ],
)
def test_a_claim_that_cannot_be_true_is_refused_and_changes_nothing(
    held: Ranges, settled: Ranges, code: str
) -> None:
    story = Story()
    effects = story.claim(held, settled)
    [refused] = told(effects, Rejected)
    assert (refused.request, refused.code) == (7, code)
    assert len(effects) == 1
    assert in_flight(story.queue) == 10
    assert gone(story.claim([(1, 10)])) == []


def test_nobody_claims_what_is_anothers_or_is_not_away() -> None:
    story = Story()
    [refused] = told(story.claim([(1, 10)], session=a_session()), Rejected)
    assert refused.code == "consumer-exists"
    story.claim([(1, 10)])
    [refused] = told(story.claim([(1, 10)]), Rejected)
    assert refused.code == "consumer-exists"


@st.composite
def partitions(draw: st.DrawFn) -> list[str]:
    return draw(st.lists(st.sampled_from(["held", "settled", "unnamed"]), min_size=10, max_size=10))


def ranges_of(what: list[str], kind: str) -> Ranges:
    return [(tag, tag) for tag, said in enumerate(what, start=1) if said == kind]


@given(what=partitions(), seen=st.integers(-1, 10), done=st.sets(st.integers(1, 10)))
def test_whatever_a_client_says_nothing_is_lost_and_nothing_seen_comes_unmarked(
    what: list[str], seen: int, done: set[int]
) -> None:
    """`done`: what had arrived of what was settled."""
    story = Story()
    for tag in sorted(done):
        settle(story.queue, story.consumer, (tag, tag))
    effects = story.claim(ranges_of(what, "held"), ranges_of(what, "settled"), seen)
    again = earlier(effects, story.consumer)
    left = {tag: said for tag, said in enumerate(what, start=1) if tag not in done}
    unnamed = [tag for tag, said in left.items() if said == "unnamed"]
    assert sorted(again) == unnamed
    for tag in unnamed:
        assert again[tag] == (1 if seen == -1 or tag <= seen else 0)
    held = [tag for tag, said in enumerate(what, start=1) if said == "held"]
    assert [tag for first, last in gone(effects) for tag in range(first, last + 1)] == [
        tag for tag in held if tag in done
    ]
    settled = sum(said == "settled" for said in left.values())
    assert in_flight(story.queue) == 10 - len(done) - settled
    assert story.queue.figures().settled == len(done) + settled


@given(what=partitions(), seen=st.integers(-1, 10))
def test_whatever_a_client_says_of_one_that_was_forgotten_nothing_of_the_new_one_is_done(
    what: list[str], seen: int
) -> None:
    story = Story()
    held, settled = ranges_of(what, "held"), ranges_of(what, "settled")
    forgotten_and_claimed(story, held, settled, seen)
    effects = story.claim(held, settled, seen)
    assert story.queue.figures().settled == 0
    assert sorted(earlier(effects, story.consumer)) == list(range(1, 11))
    assert starts_over(effects) or (not held and not settled and seen < 1)


@given(
    st.sets(st.integers(1, 40)),
    st.sets(st.integers(1, 40)),
)
def test_ranges_are_subtracted_like_sets(some: set[int], less: set[int]) -> None:
    def runs(tags: set[int]) -> Ranges:
        found: Ranges = []
        for tag in sorted(tags):
            if found and found[-1][1] + 1 == tag and tag % 3:
                found[-1] = (found[-1][0], tag)
            else:
                found.append((tag, tag))
        return found

    left = subtracted(runs(some), runs(less))
    assert [tag for first, last in left for tag in range(first, last + 1)] == sorted(some - less)


# ---- who is away


def test_a_session_has_its_consumers_until_they_leave_and_those_that_are_away_have_an_end() -> None:
    attendance = Attendance()
    session, other = a_session(), a_session()
    first, second, browser = a_consumer(), a_consumer(), a_consumer()
    attendance.attached(session, first, ORDERS, 1)
    attendance.attached(session, browser, ORDERS, NO_NUMBER)
    attendance.attached(other, second, ORDERS, 1)
    assert [each.consumer for each in attendance.of(session)] == [first, browser]
    assert [each.can_be_claimed for each in attendance.of(session)] == [True, False]
    assert attendance.to_claim(session) == []
    attendance.went_away(attendance.of(session)[0], 100.0)
    assert attendance.to_claim(session) == [(1, first, ORDERS)]
    assert attendance.overdue(99.0) == []
    assert [each.consumer for each in attendance.overdue(100.0)] == [first]
    attendance.attached(session, first, ORDERS, 1)
    assert attendance.overdue(1000.0) == []
    assert attendance.to_claim(session) == []
    for consumer in (first, browser, second, second):
        attendance.detached(consumer)
    assert attendance.of(session) == attendance.of(other) == []


@pytest.mark.req("P6")
def test_tags_of_another_part_of_a_cut_settle_nothing_here() -> None:
    """Both parts went on from the same place: what the other gave has tags of its own."""
    story = Story()
    theirs = first_tag(8, 2)
    effects = story.claim([(1, 10), (theirs + 3, theirs + 4)], [(theirs, theirs + 2)])
    assert gone(effects) == [(theirs + 3, theirs + 4)]
    assert in_flight(story.queue) == 10
    assert noted(effects) == {}


@pytest.mark.req("P6")
@given(st.lists(st.tuples(st.integers(1, 1_000_000), st.integers(0, 200)), min_size=2, unique=True))
def test_no_two_parts_give_the_same_tag(parts: list[tuple[int, int]]) -> None:
    firsts = sorted(first_tag(view, manager) for view, manager in parts)
    assert all(later - earlier >= 2**33 for earlier, later in pairwise(firsts))
    assert firsts[-1] < 2**63
    assert first_tag(7, 200) < first_tag(8, 0), "they climb with the views"
