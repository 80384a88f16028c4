"""A session: what a client may ask and how much, and that each question has its one answer."""

from itertools import count
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.bus.commands import (
    Answered,
    Asked,
    Confirmed,
    ConsumerAttached,
    ConsumerDetached,
    CreditGranted,
    Decision,
    DestinationWanted,
    Dispatched,
    Fact,
    Published,
    Refused,
    Rejected,
    Settled,
    SubscriptionEnded,
)
from heliograph.model import block
from heliograph.model.block import Span
from heliograph.model.errors import ClientFault
from heliograph.model.ids import ConsumerId, IdIssuer, LaneId, lane_of
from heliograph.model.limits import (
    MAX_CONSUMER_NUMBER,
    MAX_CONSUMERS_PER_SESSION,
    MAX_CREDIT,
    MAX_LANES_PER_SESSION,
)
from heliograph.sessions.access import GUEST, AccessControl, Identity, Right, Rule
from heliograph.sessions.commands import (
    AnyCommand,
    AnySessionEffect,
    Confirm,
    Deliver,
    Done,
    EndConsumer,
    EndSubscription,
    Fail,
    GrantCredit,
    LaneReady,
    MakeTemporary,
    Multicast,
    OpenLane,
    Publish,
    RefuseLane,
    Settle,
    SettlementStored,
    Subscribe,
    Unsubscribe,
)
from heliograph.sessions.connection_facts import ConnectionFacts
from heliograph.sessions.own_subscriptions import may_end, seen
from heliograph.sessions.session import Session

ANN = Identity("ann", ("clerk",))
RULES = [
    Rule(destinations="queue:orders.*", rights=[Right.SEND, Right.CREATE], roles=["clerk"]),
    Rule(destinations="queue:answers", rights=[Right.RECEIVE], users=["ann"]),
]
F = TypeVar("F", bound=Fact)


class Story:
    """A session, and what went on the bus and to the client since it began."""

    def __init__(
        self, *, user: Identity = GUEST, access: AccessControl | None = None, create: bool = True
    ) -> None:
        issuer = IdIssuer(site=1, node=1, started_ms=1)
        requests = count(1)
        self.access = access or AccessControl(open_to_everyone=True)
        self.session = Session(
            issuer.session(),
            user=user,
            access=self.access,
            issuer=issuer,
            next_request=lambda: next(requests),
            create_on_first_use=create,
            connection=ConnectionFacts(issuer.connection(), ""),
        )
        self.facts: list[Fact] = []
        self.said: list[AnySessionEffect] = []

    def do(self, event: AnyCommand | Decision) -> list[AnySessionEffect]:
        """What is said to the client."""
        said: list[AnySessionEffect] = []
        for effect in self.session.handle(event):
            if isinstance(effect, Multicast):
                self.facts.append(effect.command)
            else:
                said.append(effect)
        self.said += said
        return said

    def sent(self, kind: type[F]) -> F:
        """The last fact on the bus, which must be of this kind."""
        assert isinstance(self.facts[-1], kind)
        return self.facts[-1]

    def lane(self, number: int = 1, destination: str = "queue:a") -> LaneId:
        """Open a lane to the end."""
        assert self.do(OpenLane(1, number, destination)) == []
        wanted = self.sent(DestinationWanted)
        assert self.do(Answered(wanted.request, {"last": 0})) == [LaneReady(1, 0)]
        return wanted.lane

    def consumer(self, number: int = 1, destination: str = "queue:a", credit: int = 10) -> ConsumerId:
        """Subscribe to the end."""
        assert self.do(Subscribe(1, number, destination, credit)) == []
        attached = self.sent(ConsumerAttached)
        assert self.do(Answered(attached.request, {})) == [Done(1)]
        return attached.consumer

    def failed(self, command: AnyCommand) -> str:
        """The code with which a request is refused at once, without anything on the bus."""
        before = len(self.facts)
        (failure,) = self.do(command)
        assert isinstance(failure, Fail)
        assert failure.request == getattr(command, "request", None)
        assert failure.sentence
        assert len(self.facts) == before
        return failure.code


def a_block(lane: LaneId, first: int = 1, messages: int = 2) -> block.Block:
    return block.parse(block.pack([b"x"] * messages, lane=lane, first=first))


# ---- sending


@pytest.mark.req("M4")
def test_a_block_goes_to_where_its_lane_leads() -> None:
    story = Story()
    first, second = story.lane(1, "queue:a"), story.lane(2, "topic:b")
    assert first == lane_of(story.session.identity, 1)
    story.do(Publish(a_block(second), False))
    assert story.sent(Published).address == "topic:b"
    story.do(Publish(a_block(first), True))
    published = story.sent(Published)
    assert (published.address, published.resent) == ("queue:a", True)


@pytest.mark.req("X2")
def test_a_block_on_a_lane_that_is_not_open_ends_the_connection() -> None:
    story = Story()
    lane = story.lane(1)
    stranger = IdIssuer(site=9, node=9, started_ms=9).session()
    for wrong in (lane_of(story.session.identity, 2), lane_of(stranger, 1), LaneId(bytes(16))):
        with pytest.raises(ClientFault) as fault:
            story.do(Publish(a_block(wrong), False))
        assert fault.value.code == "lane-unknown"
    assert story.do(Publish(a_block(lane), False)) == []


def test_a_lane_is_not_open_before_the_answer() -> None:
    story = Story()
    story.do(OpenLane(1, 1, "queue:a"))
    with pytest.raises(ClientFault, match="not open"):
        story.do(Publish(a_block(lane_of(story.session.identity, 1)), False))


def test_a_lane_that_was_rejected_is_not_open() -> None:
    story = Story()
    story.do(OpenLane(7, 1, "queue:a"))
    rejected = Rejected(story.sent(DestinationWanted).request, "destination-unknown", "no such queue")
    assert story.do(rejected) == [Fail(7, "destination-unknown", "no such queue")]
    with pytest.raises(ClientFault, match="not open"):
        story.do(Publish(a_block(lane_of(story.session.identity, 1)), False))


@pytest.mark.parametrize("number", [0, -1, MAX_LANES_PER_SESSION + 1, 2**64 - 1, -(2**63)])
def test_a_lane_number_out_of_range_is_refused(number: int) -> None:
    assert Story().failed(OpenLane(5, number, "queue:a")) == "lane-invalid"


@pytest.mark.req("M5")
def test_a_lane_leads_to_one_destination_for_ever() -> None:
    """Otherwise a lane and a sequence would name two messages."""
    story = Story()
    story.lane(1, "queue:a")
    assert story.failed(OpenLane(5, 1, "queue:b")) == "lane-exists"
    story.lane(1, "queue:a")
    story.lane(MAX_LANES_PER_SESSION, "queue:b")


def test_confirmations_and_refusals_name_the_lane_by_its_number() -> None:
    story = Story()
    lane = story.lane(300)
    assert story.do(Confirmed(lane, 17)) == [Confirm(300, 17)]
    refused = Refused(lane, 18, "storage-full", "no room")
    assert story.do(refused) == [RefuseLane(300, 18, "storage-full", "no room")]


@pytest.mark.req("M8")
def test_a_resumed_session_gets_its_lanes_back_but_not_those_its_user_may_not_use_any_more() -> None:
    story = Story(user=ANN, access=AccessControl(RULES))
    lanes = [(1, "queue:orders.new", 5), (2, "queue:secret", 6)]
    assert story.session.restore_lanes(lanes) == [(1, "queue:orders.new", 5)]
    story.do(Publish(a_block(lane_of(story.session.identity, 1), first=6), True))
    with pytest.raises(ClientFault):
        story.do(Publish(a_block(lane_of(story.session.identity, 2), first=7), True))


# ---- receiving


def test_a_consumer_is_known_by_the_clients_number() -> None:
    story = Story()
    consumer = story.consumer(MAX_CONSUMER_NUMBER)
    span = Span(a_block(lane_of(story.session.identity, 1)), 0, 2)
    assert story.session.owns(consumer)
    assert story.do(Dispatched(consumer, 1, span, "bob")) == [Deliver(MAX_CONSUMER_NUMBER, 1, span, "bob")]


@pytest.mark.req("X2")
@pytest.mark.parametrize("number", [-1, MAX_CONSUMER_NUMBER + 1, 2**64 - 1, -(2**63)])
def test_a_consumer_number_that_fits_no_delivery_is_refused(number: int) -> None:
    assert Story().failed(Subscribe(5, number, "queue:a", 1)) == "consumer-invalid"


def test_a_consumer_number_is_used_once_at_a_time() -> None:
    story = Story()
    story.consumer(4)
    assert story.failed(Subscribe(5, 4, "queue:b", 1)) == "consumer-exists"
    story.do(Unsubscribe(6, 4))
    story.consumer(4)


def test_a_number_is_free_again_when_the_subscription_was_rejected() -> None:
    story = Story()
    story.do(Subscribe(5, 4, "queue:a", 1))
    rejected = Rejected(story.sent(ConsumerAttached).request, "destination-unknown", "no such queue")
    assert story.do(rejected) == [Fail(5, "destination-unknown", "no such queue")]
    story.consumer(4)


@pytest.mark.req("X2")
def test_a_session_has_no_more_consumers_than_it_may() -> None:
    story = Story()
    for number in range(MAX_CONSUMERS_PER_SESSION):
        story.do(Subscribe(1, number, "queue:a", 1))
    assert story.failed(Subscribe(5, MAX_CONSUMER_NUMBER, "queue:a", 1)) == "too-many-consumers"


@pytest.mark.req("M7")
@pytest.mark.parametrize("credit", [-1, MAX_CREDIT + 1, 2**63])
def test_credit_out_of_range_is_refused(credit: int) -> None:
    assert Story().failed(Subscribe(5, 1, "queue:a", credit)) == "credit-invalid"


@pytest.mark.req("M7")
def test_credit_is_granted_up_to_its_bound() -> None:
    story = Story()
    consumer = story.consumer(1, credit=MAX_CREDIT)
    story.do(GrantCredit(1, MAX_CREDIT))
    granted = story.sent(CreditGranted)
    assert (granted.consumer, granted.count) == (consumer, MAX_CREDIT)
    with pytest.raises(ClientFault) as fault:
        story.do(GrantCredit(1, MAX_CREDIT + 1))
    assert fault.value.code == "credit-invalid"


def test_a_consumer_that_is_not_there_gets_nothing_and_harms_nobody() -> None:
    """What a client says of a consumer may cross the end of that consumer on the way."""
    story = Story()
    assert story.do(GrantCredit(9, 5)) == []
    assert story.do(Settle(9, False, [(1, 5)], True, False)) == []
    (gone,) = story.do(Settle(9, False, [(1, 5)], True, True))
    assert isinstance(gone, EndConsumer)  # what it had went back: that is no confirmation
    assert story.failed(Unsubscribe(5, 9)) == "consumer-unknown"
    assert story.facts == []


@pytest.mark.req("J4")
def test_a_settlement_is_answered_when_it_asked_for_an_answer() -> None:
    story = Story()
    consumer = story.consumer(1)
    assert story.do(Settle(1, False, [(1, 5)], True, False)) == []
    assert story.sent(Settled) == Settled(story.sent(Settled).address, consumer, False, [(1, 5)], True, 0)
    assert story.do(Settle(1, True, [(6, 6)], False, True)) == []
    settled = story.sent(Settled)
    assert (settled.returned, settled.replenish) == (True, False)
    assert story.do(Answered(settled.request, {})) == [SettlementStored(1)]


@pytest.mark.req("J4")
def test_a_consumer_that_settled_what_it_does_not_have_ends_and_gives_everything_back() -> None:
    story = Story()
    consumer = story.consumer(1)
    story.do(Settle(1, False, [(5, 9)], True, True))
    rejected = Rejected(story.sent(Settled).request, "settlement-unknown", "not outstanding")
    assert story.do(rejected) == [EndConsumer(1, "settlement-unknown", "not outstanding")]
    assert story.sent(ConsumerDetached) == ConsumerDetached(story.sent(ConsumerDetached).address, consumer)
    assert not story.session.owns(consumer)
    assert list(story.session.farewell()) == []


def test_a_settlement_rejected_after_its_consumer_ended_says_nothing_more() -> None:
    story = Story()
    story.consumer(1)
    story.do(Settle(1, False, [(5, 9)], True, True))
    request = story.sent(Settled).request
    story.do(Unsubscribe(6, 1))
    assert story.do(Rejected(request, "consumer-unknown", "gone")) == []


def test_what_was_under_way_to_an_ended_consumer_is_not_delivered() -> None:
    story = Story()
    consumer = story.consumer(1)
    story.do(Unsubscribe(6, 1))
    detached = story.sent(ConsumerDetached)
    assert detached.consumer == consumer
    span = Span(a_block(lane_of(story.session.identity, 1)), 0, 2)
    assert story.do(Dispatched(consumer, 1, span, "bob")) == []
    assert story.do(Answered(detached.request, {})) == [Done(6)]


# ---- rights


@pytest.mark.req("X2")
@pytest.mark.parametrize(
    ("command", "code"),
    [
        (OpenLane(5, 1, "queue:answers"), "not-allowed"),
        (OpenLane(5, 1, "queue:nobody-knows"), "not-allowed"),
        (Subscribe(5, 1, "queue:orders.new", 1), "not-allowed"),
        (OpenLane(5, 1, "queue:_ADMIN"), "name-reserved"),
        (Subscribe(5, 1, "queue:_LOG", 1), "name-reserved"),
        (OpenLane(5, 1, "topic:_x"), "name-reserved"),
        (OpenLane(5, 1, "queue:"), "name-empty"),
        (OpenLane(5, 1, "exchange:a"), "invalid-destination"),
        (Subscribe(5, 1, "queue:" + "n" * 256, 1), "name-too-long"),
        (Subscribe(5, 1, "queue:a\tb", 1), "name-unprintable"),
    ],
)
def test_what_a_user_may_not_do_is_refused_before_anybody_looks(command: AnyCommand, code: str) -> None:
    story = Story(user=ANN, access=AccessControl(RULES))
    assert story.failed(command) == code


@pytest.mark.req("X2", "J1")
def test_a_user_creates_what_a_rule_lets_them_create() -> None:
    for create in (True, False):
        story = Story(user=ANN, access=AccessControl(RULES), create=create)
        story.do(OpenLane(5, 1, "queue:orders.new"))
        assert story.sent(DestinationWanted).create is create
        story.do(Subscribe(5, 1, "queue:answers", 1))
        assert story.sent(ConsumerAttached).create is False


@pytest.mark.req("M11")
def test_the_servers_own_destinations_are_never_created_by_a_client() -> None:
    story = Story(user=Identity("root", ("admin",)), access=AccessControl())
    story.do(Subscribe(5, 1, "queue:_DMQ", 1))
    assert story.sent(ConsumerAttached).create is False
    assert story.failed(OpenLane(5, 1, "queue:_DMQ")) == "name-reserved"


@pytest.mark.req("X2")
def test_names_that_cannot_be_are_not_remembered() -> None:
    """Decisions are remembered; names without a bound would fill the memory."""
    asked: list[str] = []

    class Judge(AccessControl):
        def allows(self, user: Identity, right: Right, address: str = "") -> bool:
            asked.append(address)
            return super().allows(user, right, address)

    story = Story(access=Judge(open_to_everyone=True))
    for number in range(3):
        assert story.failed(Subscribe(5, number, "queue:" + "n" * 60_000, 1)) == "name-too-long"
        assert story.failed(OpenLane(5, number, "n" * 60_000)) == "invalid-destination"
    assert asked == []
    story.do(Subscribe(5, 1, "queue:a", 1))
    assert set(asked) == {"queue:a"}


# ---- requests


@st.composite
def questions(draw: st.DrawFn) -> list[AnyCommand]:
    """Requests whose numbers a client chose as it liked, each to be answered."""
    numbers = draw(st.lists(st.integers(-(2**63), 2**64 - 1), min_size=1, max_size=12))
    kinds = draw(
        st.lists(
            st.sampled_from(("lane", "subscribe", "bad name", "settle")),
            min_size=len(numbers),
            max_size=len(numbers),
        )
    )
    made: list[AnyCommand] = []
    for place, (kind, number) in enumerate(zip(kinds, numbers, strict=True), start=1):
        if kind == "lane":
            made.append(OpenLane(number, place, "queue:a"))
        elif kind == "subscribe":
            made.append(Subscribe(number, place, "queue:a", 1))
        elif kind == "settle":
            made.append(Settle(1000, False, [(place, place)], False, True))
        else:
            made.append(OpenLane(number, place, "queue:"))
    return made


@given(questions(), st.booleans())
@settings(max_examples=200, deadline=None)
def test_requests_are_answered_in_order_each_under_its_own_number(
    asked: list[AnyCommand], succeed: bool
) -> None:
    """The bus answers in the order in which it was asked; nothing is confused or left out."""
    story = Story()
    story.consumer(1000)
    story.said.clear()
    expected: list[tuple[type, object]] = []
    for command in asked:
        before = len(story.facts)
        story.do(command)
        if isinstance(command, Settle):
            expected.append((SettlementStored, 1000))
        elif command.destination == "queue:":  # type: ignore[union-attr]
            expected.append((Fail, command.request))  # type: ignore[union-attr]
        elif isinstance(command, OpenLane):
            expected.append((LaneReady if succeed else Fail, command.request))
        else:
            expected.append((Done if succeed else Fail, command.request))  # type: ignore[union-attr]
        for fact in story.facts[before:]:
            request = fact.request  # type: ignore[union-attr]
            assert story.session.awaits(request)
            if succeed or isinstance(fact, Settled):
                story.do(Answered(request, {"last": 0}))
            else:
                story.do(Rejected(request, "unavailable", "not now"))
            assert not story.session.awaits(request)
    told = [(type(effect), getattr(effect, "request", 1000)) for effect in story.said]
    assert told == expected


@given(st.permutations(range(6)))
@settings(max_examples=50, deadline=None)
def test_answers_that_come_late_find_their_requests(order: list[int]) -> None:
    story = Story()
    for number in range(6):
        story.do(OpenLane(100 + number, 1 + number, f"queue:{number}"))
    wanted = [fact for fact in story.facts if isinstance(fact, DestinationWanted)]
    told = [story.do(Answered(wanted[place].request, {"last": place})) for place in order]
    assert told == [[LaneReady(100 + place, place)] for place in order]


# ---- the end


@pytest.mark.req("M8")
def test_every_consumer_leaves_once_when_the_session_ends() -> None:
    story = Story()
    consumers = [story.consumer(number, f"queue:{number}") for number in range(3)]
    story.do(Unsubscribe(6, 1))
    left = list(story.session.farewell())
    assert [(leaving.address, leaving.consumer) for leaving in left] == [
        ("queue:0", consumers[0]),
        ("queue:2", consumers[2]),
    ]
    assert list(story.session.farewell()) == []
    assert not story.session.owns(consumers[0])


@pytest.mark.req("M8")
def test_answers_that_come_after_the_end_are_nobodys() -> None:
    """A settlement is answered when it is on disk; its client may be gone by then."""
    story = Story()
    story.consumer(1)
    story.do(Settle(1, False, [(1, 1)], False, True))
    request = story.sent(Settled).request
    list(story.session.farewell())
    assert story.do(Answered(request, {})) == []
    assert story.do(Rejected(request, "consumer-unknown", "gone")) == []


# ---- durable subscriptions


def asks_to_end(story: Story, name: str, *, common: bool = False) -> Asked:
    assert story.do(EndSubscription(7, name, common)) == []
    asked = story.sent(Asked)
    assert asked.subject == "client.subscriptions"
    return asked


@pytest.mark.req("X2")
def test_a_subscription_is_ended_by_who_may_receive_everywhere_where_it_is() -> None:
    rule = Rule(destinations="topic:a*", rights=[Right.RECEIVE], users=["ann"])
    story = Story(user=ANN, access=AccessControl([*RULES, rule]))
    subscriptions = ["d", "p → topic:glob:*", "q → topic:glob:a?", "other"]
    mine = [["d", "topic:a"], ["p → topic:glob:* → topic:a1", "topic:a1"]]
    others = [["other", "topic:b"], ["p → topic:glob:* → topic:b", "topic:b"]]
    for name, places, may in (
        ("d", [*mine, *others], True),
        ("other", [*mine, *others], False),
        ("p", mine, True),
        ("p", [*mine, *others], False),
        ("p", [], False),
        ("q", [], True),
        ("d", [], False),  # a node of an earlier version does not say where it is
        ("never was", [*mine, *others], False),
    ):
        asked = asks_to_end(story, name)
        said = story.do(Answered(asked.request, {"subscriptions": subscriptions, "places": places}))
        if may:
            ended = story.sent(SubscriptionEnded)
            assert (said, ended.subscription) == ([], name)
            assert story.do(Answered(ended.request, {})) == [Done(7)]
        else:
            sentence = f"there is no durable subscription {name!r} of this client"
            assert said == [Fail(7, "subscription-unknown", sentence)]
    asked = asks_to_end(story, "d", common=True)
    assert story.do(Rejected(asked.request, "not-leading", "try again")) == [
        Fail(7, "not-leading", "try again")
    ]


@pytest.mark.parametrize("address", ["topic:a", "topic:glob:a*"])
def test_what_a_session_was_admitted_to_is_ended_before_what_follows_and_though_it_is_cut(
    address: str,
) -> None:
    rule = Rule(destinations="topic:a*", rights=[Right.RECEIVE], users=["ann"])
    story = Story(user=ANN, access=AccessControl([*RULES, rule]))
    for consumer in (1, 2):
        story.do(Subscribe(8, consumer, address, 10, subscription="d", durable=True))
        story.do(Unsubscribe(9, consumer))
        story.do(EndSubscription(7, "d"))
        assert story.sent(SubscriptionEnded).subscription == "d"
    list(story.session.farewell())
    assert not any(isinstance(each, Asked) for each in story.facts)


@pytest.mark.req("X2")
def test_what_a_session_was_not_admitted_to_is_looked_for() -> None:
    rule = Rule(destinations="topic:a*", rights=[Right.RECEIVE], users=["ann"])
    story = Story(user=ANN, access=AccessControl([*RULES, rule]))
    for address in ("topic:b", "topic:glob:b*"):
        story.do(Subscribe(8, 1, address, 10, subscription="d", durable=True))
        story.do(Unsubscribe(9, 1))
        asks_to_end(story, "d")
    story.do(Subscribe(8, 1, "topic:a", 10, subscription="d", durable=True))
    story.do(Rejected(story.sent(ConsumerAttached).request, "subscription-in-use", "no"))
    asks_to_end(story, "d")
    story.do(Subscribe(8, 2, "topic:a", 10, subscription="d", durable=True))
    asks_to_end(story, "d", common=True)
    asks_to_end(story, "other")


@pytest.mark.req("X2", "J9")
def test_a_subscription_at_a_temporary_topic_is_its_connections_to_end() -> None:
    rule = Rule(destinations="topic:a*", rights=[Right.RECEIVE], users=["ann"])
    story = Story(user=ANN, access=AccessControl([*RULES, rule]))
    story.do(MakeTemporary(1, "topic"))
    wanted = story.sent(DestinationWanted)
    for address, may in ((wanted.address, True), ("topic:_temporary.other.1", False)):
        asked = asks_to_end(story, "d")
        body = {"subscriptions": ["d"], "places": [["d", address]]}
        said = story.do(Answered(asked.request, body))
        assert [type(each) for each in said] == ([] if may else [Fail])
        assert isinstance(story.facts[-1], SubscriptionEnded) == may
        admission = story.session._admission
        assert seen(body, admission) == (["d"] if may else [])


@pytest.mark.req("X2")
def test_what_a_node_of_an_earlier_version_tells_of_is_heard_and_not_ended() -> None:
    """It does not say where they are, and a client of MQTT must not go on without them."""
    rule = Rule(destinations="topic:a*", rights=[Right.RECEIVE], users=["ann"])
    admission = Story(user=ANN, access=AccessControl([*RULES, rule])).session._admission
    early, late = (
        {"subscriptions": ["d"]},
        {"subscriptions": ["e", "f"], "places": [["e", "topic:a"], ["f", "topic:b"]]},
    )
    body = {
        "subscriptions": ["d", "e", "f"],
        "places": late["places"],
        "sub_clusters": {"x": early, "y": late},
    }
    for told, heard in ((early, ["d"]), (late, ["e"]), (body, ["d", "e"])):
        assert seen(told, admission) == heard
        assert not may_end(told, "d", admission)


def test_who_needs_no_rules_ends_a_subscription_at_once() -> None:
    story = Story()
    assert story.do(EndSubscription(7, "d")) == []
    assert story.sent(SubscriptionEnded).subscription == "d"
