"""JMS 2.0, section 6.2: sessions: order, acknowledgement, recovery, closing; 6.2.7 has its own file."""

from __future__ import annotations

import threading

import pytest

from tests.conformance.jms.adapter import IllegalState, JmsError, Message, Mode
from tests.conformance.jms.stage import Stage, bodies_of, next_of, take

pytestmark = pytest.mark.req("J4")


def test_6_2_what_a_session_leaves_unacknowledged_is_redelivered_from_a_queue(stage: Stage) -> None:
    """6.2: messages received and not acknowledged when a session ends go to the next consumer."""
    queue = stage.queue()
    stage.send(queue, "a", "b", "c")
    with stage.session(Mode.CLIENT) as session:
        take(session.consumer(queue), 3)
    again = take(stage.session().consumer(queue), 3)
    assert [(message.body, message.redelivered) for message in again] == [
        ("a", True),
        ("b", True),
        ("c", True),
    ]


@pytest.mark.needs("durable", "client-id")
def test_6_2_what_a_session_leaves_unacknowledged_is_redelivered_from_a_durable_subscription(
    stage: Stage,
) -> None:
    """6.2: a durable subscription retains and redelivers it."""
    topic = stage.topic()
    name = stage.name("subscription")
    connection = stage.connect(client_id=stage.name("client"))
    with connection.session(Mode.CLIENT) as session:
        consumer = session.consumer(topic, durable=name)
        stage.send(topic, "a", "b")
        take(consumer, 2)
    again = take(connection.session().consumer(topic, durable=name), 2)
    assert [(message.body, message.redelivered) for message in again] == [("a", True), ("b", True)]


def test_6_2_1_a_session_serves_several_producers_and_consumers(stage: Stage) -> None:
    """6.2.1: a session makes any number of them, for any destinations."""
    session = stage.session()
    queues = [stage.queue() for _ in range(10)]
    consumers = [session.consumer(queue) for queue in queues]
    producers = [session.producer(queue) for queue in queues]
    for n, producer in enumerate(producers):
        producer.send(f"queue {n}")
    assert [next_of(consumer).body for consumer in consumers] == [f"queue {n}" for n in range(10)]


def test_6_2_3_a_destination_is_named_by_any_client(stage: Stage) -> None:
    """6.2.3: a client that knows a name reaches the same destination as another that knows it."""
    queue = stage.queue()
    stage.connect().session().producer(queue).send("hello")
    assert next_of(stage.connect().session().consumer(queue)).body == "hello"


# ---- 6.2.9 order


@pytest.mark.req("J11")
@pytest.mark.parametrize("persistent", [True, False])
def test_6_2_9_messages_of_a_session_arrive_in_the_order_sent(stage: Stage, persistent: bool) -> None:
    """6.2.9.1: messages that a session sends to a destination are received in that order."""
    queue = stage.queue()
    producer = stage.session().producer(queue, persistent=persistent)
    sent = [f"message {n}" for n in range(200)]
    for body in sent:
        producer.send(body)
    assert bodies_of(take(stage.session().consumer(queue), 200)) == sent


@pytest.mark.req("J11")
def test_6_2_9_producers_of_one_session_share_one_order(stage: Stage) -> None:
    """6.2.9.1: the order is the session's: two of its producers to one destination keep it together."""
    queue = stage.queue()
    session = stage.session()
    producers = [session.producer(queue), session.producer(queue)]
    for n in range(40):
        producers[n % 2].send(f"message {n}")
    assert bodies_of(take(session.consumer(queue), 40)) == [f"message {n}" for n in range(40)]


@pytest.mark.req("J11")
def test_6_2_9_order_holds_within_a_priority(stage: Stage) -> None:
    """6.2.9.2: a higher priority may jump ahead; within one priority the order stays."""
    queue = stage.queue()
    for n in range(12):
        stage.send(queue, f"message {n}", priority=7 if n % 3 == 0 else 2)
    received = bodies_of(take(stage.session().consumer(queue), 12))
    assert received == [f"message {n}" for n in (0, 3, 6, 9, 1, 2, 4, 5, 7, 8, 10, 11)]


@pytest.mark.req("J11")
def test_6_2_9_order_holds_within_a_delivery_mode(stage: Stage) -> None:
    """6.2.9.2: a non-persistent message may overtake a persistent one, but never one of its kind."""
    queue = stage.queue()
    session = stage.session()
    producer = session.producer(queue)
    for n in range(40):
        producer.send(f"message {n}", persistent=n % 2 == 0)
    received = take(stage.session().consumer(queue), 40)
    for mode, first in ((True, 0), (False, 1)):
        bodies = bodies_of(message for message in received if message.persistent is mode)
        assert bodies == [f"message {n}" for n in range(first, 40, 2)]


# ---- 6.2.10 acknowledgement: auto


def test_6_2_10_auto_a_received_message_is_acknowledged(stage: Stage) -> None:
    """6.2.10: with AUTO_ACKNOWLEDGE a message is acknowledged when receive has returned it."""
    queue = stage.queue()
    stage.send(queue, "a", "b", "c")
    with stage.session(Mode.AUTO) as session:
        take(session.consumer(queue), 2)
    assert bodies_of(stage.left_in(queue)) == ["c"]


@pytest.mark.needs("recover", "auto-in-hand")
def test_6_2_10_auto_recover_redelivers_only_the_message_in_hand(stage: Stage) -> None:
    """6.2.10, a stated departure: a message is complete when the next one is asked for, so that a client that
    fails while it works on a message does not lose it. Recovery brings back that one and none before it."""
    queue = stage.queue()
    stage.send(queue, "a", "b", "c")
    session = stage.session(Mode.AUTO)
    consumer = session.consumer(queue)
    assert bodies_of(take(consumer, 2)) == ["a", "b"]
    session.recover()
    again = take(consumer, 2)
    assert [(message.body, message.redelivered) for message in again] == [("b", True), ("c", False)]
    assert stage.up_to_fence(consumer, queue) == []


def test_6_2_10_auto_messages_drawn_by_iteration_are_acknowledged(stage: Stage) -> None:
    """6.2.10: the same for messages that are handed over as they come, when the client is done with each."""
    queue = stage.queue()
    stage.send(queue, *[f"message {n}" for n in range(10)])
    with stage.session(Mode.AUTO) as session:
        received: list[Message] = []
        for message in session.consumer(queue):
            received.append(message)
            if len(received) == 5:
                break
    assert bodies_of(stage.left_in(queue)) == [f"message {n}" for n in range(5, 10)]


# ---- 6.2.10 acknowledgement: client


def test_6_2_10_client_an_acknowledgement_covers_all_that_its_session_delivered(stage: Stage) -> None:
    """6.2.10: acknowledging one message acknowledges all messages delivered by the session so far."""
    queue = stage.queue()
    stage.send(queue, "a", "b", "c", "d")
    with stage.session(Mode.CLIENT) as session:
        consumer = session.consumer(queue)
        messages = take(consumer, 3)
        messages[1].acknowledge()
    assert bodies_of(stage.left_in(queue)) == ["d"]


def test_6_2_10_client_an_acknowledgement_covers_all_consumers_of_the_session(stage: Stage) -> None:
    """6.2.10: it is the session's deliveries that are acknowledged, whichever consumer had them."""
    one, two = stage.queue(), stage.queue()
    stage.send(one, "a")
    stage.send(two, "b")
    with stage.session(Mode.CLIENT) as session:
        next_of(session.consumer(one))
        next_of(session.consumer(two)).acknowledge()
    assert (stage.left_in(one), stage.left_in(two)) == ([], [])


def test_6_2_10_client_an_acknowledgement_does_not_cover_other_sessions(stage: Stage) -> None:
    """6.2.10: another session of the same connection has its own messages to acknowledge."""
    one, two = stage.queue(), stage.queue()
    stage.send(one, "a")
    stage.send(two, "b")
    first, second = stage.session(Mode.CLIENT), stage.session(Mode.CLIENT)
    next_of(first.consumer(one)).acknowledge()
    next_of(second.consumer(two))
    first.close()
    second.close()
    assert (bodies_of(stage.left_in(one)), bodies_of(stage.left_in(two))) == ([], ["b"])


def test_6_2_10_client_what_comes_after_an_acknowledgement_is_not_covered(stage: Stage) -> None:
    """6.2.10: it covers what was delivered until then."""
    queue = stage.queue()
    stage.send(queue, "a", "b", "c")
    with stage.session(Mode.CLIENT) as session:
        consumer = session.consumer(queue)
        first = next_of(consumer)
        first.acknowledge()
        take(consumer, 1)
    assert bodies_of(stage.left_in(queue)) == ["b", "c"]


def test_6_2_10_client_acknowledging_an_earlier_message_covers_later_ones(stage: Stage) -> None:
    """6.2.10: which of the delivered messages is used to acknowledge makes no difference."""
    queue = stage.queue()
    stage.send(queue, "a", "b", "c")
    with stage.session(Mode.CLIENT) as session:
        take(session.consumer(queue), 3)[0].acknowledge()
    assert stage.left_in(queue) == []


def test_6_2_10_client_acknowledging_twice_is_no_error(stage: Stage) -> None:
    """6.2.10: acknowledging what is acknowledged already has nothing left to do."""
    queue = stage.queue()
    stage.send(queue, "a")
    with stage.session(Mode.CLIENT) as session:
        message = next_of(session.consumer(queue))
        message.acknowledge()
        message.acknowledge()
    assert stage.left_in(queue) == []


# ---- 6.2.10 acknowledgement: dups-ok and individual


@pytest.mark.needs("dups-ok")
def test_6_2_10_dups_ok_messages_are_acknowledged_in_the_end(stage: Stage) -> None:
    """6.2.10: lazily, but an orderly close leaves nothing to be redelivered."""
    queue = stage.queue()
    stage.send(queue, *[f"message {n}" for n in range(20)])
    with stage.session(Mode.DUPS_OK) as session:
        take(session.consumer(queue), 15)
    assert bodies_of(stage.left_in(queue)) == [f"message {n}" for n in range(15, 20)]


@pytest.mark.needs("individual")
def test_individual_an_acknowledgement_covers_one_message(stage: Stage) -> None:
    """Beyond JMS (J4): in this mode each message is acknowledged by itself."""
    queue = stage.queue()
    stage.send(queue, "a", "b", "c", "d")
    with stage.session(Mode.INDIVIDUAL) as session:
        messages = take(session.consumer(queue), 4)
        messages[2].acknowledge()
        messages[0].acknowledge()
    left = stage.left_in(queue)
    assert [(message.body, message.redelivered) for message in left] == [("b", True), ("d", True)]


@pytest.mark.needs("individual", "recover")
def test_individual_recover_redelivers_what_was_left_out(stage: Stage) -> None:
    """Beyond JMS (J4): recovery brings back exactly the messages without an acknowledgement, in order."""
    queue = stage.queue()
    stage.send(queue, "a", "b", "c", "d")
    session = stage.session(Mode.INDIVIDUAL)
    consumer = session.consumer(queue)
    messages = take(consumer, 4)
    messages[1].acknowledge()
    session.recover()
    assert bodies_of(take(consumer, 3)) == ["a", "c", "d"]
    assert stage.up_to_fence(consumer, queue) == []


# ---- 6.2.10 recover


@pytest.mark.needs("recover")
def test_6_2_10_recover_begins_again_with_the_first_unacknowledged_message(stage: Stage) -> None:
    """6.2.10: the series of delivered messages is reset to the point after the last acknowledged one."""
    queue = stage.queue()
    stage.send(queue, "a", "b", "c", "d", "e")
    session = stage.session(Mode.CLIENT)
    consumer = session.consumer(queue)
    take(consumer, 2)[1].acknowledge()
    take(consumer, 2)
    session.recover()
    assert bodies_of(take(consumer, 3)) == ["c", "d", "e"]


@pytest.mark.needs("recover")
def test_6_2_10_recover_marks_and_counts(stage: Stage) -> None:
    """6.2.10: the session sets JMSRedelivered and increments JMSXDeliveryCount of what it redelivers."""
    queue = stage.queue()
    stage.send(queue, "a", "b")
    session = stage.session(Mode.CLIENT)
    consumer = session.consumer(queue)
    counts = []
    for _ in range(3):
        messages = take(consumer, 2)
        counts.append([(message.redelivered, message.delivery_count) for message in messages])
        session.recover()
    assert counts == [[(False, 1)] * 2, [(True, 2)] * 2, [(True, 3)] * 2]


@pytest.mark.needs("recover")
def test_6_2_10_recover_concerns_all_consumers_of_the_session(stage: Stage) -> None:
    """6.2.10: the whole session is restarted, queues and topics alike."""
    queue, topic = stage.queue(), stage.topic()
    session = stage.session(Mode.CLIENT)
    consumers = [session.consumer(queue), session.consumer(topic)]
    for destination in (queue, topic):
        stage.send(destination, "a", "b")
    for consumer in consumers:
        take(consumer, 2)
    session.recover()
    again = [[(message.body, message.redelivered) for message in take(each, 2)] for each in consumers]
    assert again == [[("a", True), ("b", True)]] * 2


@pytest.mark.needs("recover")
def test_6_2_10_recover_does_not_touch_another_session(stage: Stage) -> None:
    """6.2.10: another session keeps what it has and gets nothing twice."""
    one, two = stage.queue(), stage.queue()
    stage.send(one, "a")
    stage.send(two, "b")
    recovering, other = stage.session(Mode.CLIENT), stage.session(Mode.CLIENT)
    first, second = recovering.consumer(one), other.consumer(two)
    next_of(first)
    message = next_of(second)
    recovering.recover()
    assert next_of(first).redelivered
    message.acknowledge()
    assert stage.up_to_fence(second, two) == []


@pytest.mark.needs("recover")
def test_6_2_10_recover_brings_new_urgent_messages_first(stage: Stage) -> None:
    """6.2.10: after recovery a message of higher priority that came meanwhile may be first."""
    queue = stage.queue()
    stage.send(queue, "a", "b")
    session = stage.session(Mode.CLIENT)
    consumer = session.consumer(queue)
    take(consumer, 2)
    stage.send(queue, "urgent", priority=9)
    session.recover()
    received = bodies_of(take(consumer, 3))
    assert sorted(map(str, received)) == ["a", "b", "urgent"]
    assert [body for body in received if body != "urgent"] == ["a", "b"]


@pytest.mark.needs("recover")
def test_6_2_10_recover_with_nothing_delivered_does_nothing(stage: Stage) -> None:
    """6.2.10: a session without unacknowledged messages goes on where it was."""
    queue = stage.queue()
    session = stage.session(Mode.CLIENT)
    consumer = session.consumer(queue)
    session.recover()
    stage.send(queue, "a")
    message = next_of(consumer)
    assert (message.body, message.delivery_count) == ("a", 1)


@pytest.mark.needs("recover")
def test_6_2_10_a_message_from_before_the_recovery_still_acknowledges(stage: Stage) -> None:
    """6.2.10: acknowledging covers what the session has delivered since; nothing that comes later."""
    queue = stage.queue()
    stage.send(queue, "a", "b")
    with stage.session(Mode.CLIENT) as session:
        consumer = session.consumer(queue)
        take(consumer, 2)
        session.recover()
        next_of(consumer).acknowledge()
    assert bodies_of(stage.left_in(queue)) == ["b"]


@pytest.mark.needs("recover", "transactions")
def test_6_2_10_a_transacted_session_cannot_recover(stage: Stage) -> None:
    """6.2.10 (Session.recover): in a transacted session recovery is the rollback's; recover is refused."""
    session = stage.session(Mode.TRANSACTED)
    with pytest.raises(IllegalState):
        session.recover()


# ---- 6.2.11 and 6.2.12 duplicates


@pytest.mark.needs("recover")
def test_6_2_11_an_acknowledged_message_is_never_delivered_again(stage: Stage) -> None:
    """6.2.11: whatever happens to the session afterwards."""
    queue = stage.queue()
    stage.send(queue, "a", "b")
    connection = stage.connect()
    session = connection.session(Mode.CLIENT)
    consumer = session.consumer(queue)
    take(consumer, 2)[1].acknowledge()
    session.recover()
    session.close()
    connection.close()
    assert stage.left_in(queue) == []


@pytest.mark.needs("sent-ids")
def test_6_2_12_a_message_sent_once_is_received_once(stage: Stage) -> None:
    """6.2.12: a provider never produces duplicates."""
    queue = stage.queue()
    sent = stage.send(queue, *[b""] * 100)
    received = [message.id for message in stage.left_in(queue)]
    assert received == sent


# ---- 6.2.14 sessions beside each other


def test_6_2_14_a_session_that_waits_does_not_hold_up_another(stage: Stage) -> None:
    """6.2.14: sessions deliver concurrently: one blocked in a receive leaves the others alone."""
    quiet, busy = stage.queue(), stage.queue()
    blocked = stage.session().consumer(quiet)
    received: list[Message | None] = []
    waiting = threading.Thread(target=lambda: received.append(blocked.receive(20)))
    waiting.start()
    stage.send(busy, "a")
    assert next_of(stage.session().consumer(busy)).body == "a"
    stage.send(quiet, "b")
    waiting.join(60)
    assert bodies_of(message for message in received if message is not None) == ["b"]


# ---- 6.2.15 closing a session


def test_6_2_15_a_closed_session_cannot_be_used(stage: Stage) -> None:
    """6.2.15: it, its producers and its consumers are in an illegal state."""
    queue = stage.queue()
    session = stage.session()
    producer, consumer = session.producer(queue), session.consumer(queue)
    session.close()
    with pytest.raises(IllegalState):
        session.consumer(queue)
    with pytest.raises(IllegalState):
        session.producer(queue)
    with pytest.raises(IllegalState):
        producer.send(b"")
    with pytest.raises(IllegalState):
        consumer.receive(0.01)


@pytest.mark.needs("recover", "transactions")
def test_6_2_15_a_closed_session_neither_commits_nor_recovers(stage: Stage) -> None:
    """6.2.15: an attempt to use it is an illegal state."""
    transacted, plain = stage.session(Mode.TRANSACTED), stage.session(Mode.CLIENT)
    transacted.close()
    plain.close()
    with pytest.raises(IllegalState):
        transacted.commit()
    with pytest.raises(IllegalState):
        transacted.rollback()
    with pytest.raises(IllegalState):
        plain.recover()


def test_6_2_15_closing_twice_is_ignored(stage: Stage) -> None:
    """6.2.15: closing a closed session, or what it made, does not raise."""
    queue = stage.queue()
    session = stage.session()
    producer, consumer = session.producer(queue), session.consumer(queue)
    session.close()
    for each in (session, producer, consumer):
        each.close()


def test_6_2_15_closing_one_session_leaves_its_connection_open(stage: Stage) -> None:
    """6.2.15: a session is closed separately from its connection and from other sessions."""
    queue = stage.queue()
    other = stage.session()
    consumer = other.consumer(queue)
    with stage.session() as session:
        session.producer(queue).send("a")
    assert next_of(consumer).body == "a"
    stage.session().producer(queue).send("b")
    assert next_of(consumer).body == "b"


def test_6_2_15_closing_ends_a_waiting_receive(stage: Stage) -> None:
    """6.2.15: a pending receive returns, with null where nothing was there."""
    session = stage.session()
    consumer = session.consumer(stage.queue())
    outcome: list[Message | JmsError | None] = []

    def wait() -> None:
        try:
            outcome.append(consumer.receive(20))
        except JmsError as error:
            outcome.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join(0.05)  # a moment to come to its receive
    session.close()
    waiting.join(60)
    assert outcome == [None]


def test_6_2_15_acknowledging_after_the_close_is_an_illegal_state(stage: Stage) -> None:
    """6.2.15: of a received message everything remains valid but its acknowledge."""
    queue = stage.queue()
    stage.send(queue, "a")
    session = stage.session(Mode.CLIENT)
    message = next_of(session.consumer(queue))
    session.close()
    with pytest.raises(IllegalState):
        message.acknowledge()


def test_6_2_15_closing_a_client_acknowledged_session_acknowledges_nothing(stage: Stage) -> None:
    """6.2.15: closing does not force an acknowledgement."""
    queue = stage.queue()
    stage.send(queue, "a", "b")
    with stage.session(Mode.CLIENT) as session:
        take(session.consumer(queue), 2)
    assert bodies_of(stage.left_in(queue)) == ["a", "b"]
