"""JMS 2.0, section 6.2.7: transacted sessions."""

from __future__ import annotations

import pytest

from tests.conformance.jms.adapter import IllegalState, Mode
from tests.conformance.jms.stage import Stage, bodies_of, next_of, nothing_comes, take

pytestmark = [pytest.mark.req("J5"), pytest.mark.needs("transactions")]


# ---- what is sent


def test_6_2_7_nothing_sent_is_visible_before_the_commit(stage: Stage) -> None:
    """6.2.7: the produced messages of a transaction are sent when it commits."""
    queue, topic = stage.queue(), stage.topic()
    subscriber = stage.session().consumer(topic)
    session = stage.session(Mode.TRANSACTED)
    for destination in (queue, topic):
        session.producer(destination).send("in the air")
    assert stage.left_in(queue) == []
    assert stage.up_to_fence(subscriber, topic) == []
    session.commit()
    assert bodies_of(stage.left_in(queue)) == ["in the air"]
    assert bodies_of(stage.up_to_fence(subscriber, topic)) == ["in the air"]


def test_6_2_7_a_commit_sends_to_several_destinations_at_once(stage: Stage) -> None:
    """6.2.7: a transaction is one unit, over all destinations that it sends to."""
    queues = [stage.queue() for _ in range(4)]
    session = stage.session(Mode.TRANSACTED)
    for n, queue in enumerate(queues):
        session.producer(queue).send(f"queue {n}")
    session.commit()
    assert [bodies_of(stage.left_in(queue)) for queue in queues] == [[f"queue {n}"] for n in range(4)]


def test_6_2_7_a_rollback_destroys_what_was_sent(stage: Stage) -> None:
    """6.2.7: the produced messages of a transaction that is rolled back are destroyed."""
    queue, topic = stage.queue(), stage.topic()
    subscriber = stage.session().consumer(topic)
    session = stage.session(Mode.TRANSACTED)
    for destination in (queue, topic):
        session.producer(destination).send("never")
    session.rollback()
    session.commit()
    assert stage.left_in(queue) == []
    assert stage.up_to_fence(subscriber, topic) == []


@pytest.mark.req("J11")
def test_6_2_7_the_order_of_a_transactions_messages_is_kept(stage: Stage) -> None:
    """6.2.9.2: a transaction's order of messages to a destination is significant."""
    queue = stage.queue()
    session = stage.session(Mode.TRANSACTED)
    producer = session.producer(queue)
    for n in range(100):
        producer.send(f"message {n}")
    session.commit()
    assert bodies_of(stage.left_in(queue)) == [f"message {n}" for n in range(100)]


@pytest.mark.req("J11")
def test_6_2_7_successive_transactions_arrive_in_order(stage: Stage) -> None:
    """6.2.7: transactions of a session are a series."""
    queue = stage.queue()
    session = stage.session(Mode.TRANSACTED)
    producer = session.producer(queue)
    for n in range(5):
        producer.send(f"first of {n}")
        producer.send(f"second of {n}")
        session.commit()
    assert bodies_of(stage.left_in(queue)) == [
        f"{which} of {n}" for n in range(5) for which in ("first", "second")
    ]


def test_6_2_7_a_message_takes_its_place_at_the_commit(stage: Stage) -> None:
    """6.2.7: what others sent before the commit is ahead of it."""
    queue = stage.queue()
    session = stage.session(Mode.TRANSACTED)
    session.producer(queue).send("sent first")
    stage.send(queue, "there first")
    session.commit()
    assert bodies_of(stage.left_in(queue)) == ["there first", "sent first"]


def test_6_2_7_headers_and_properties_survive_the_commit(stage: Stage) -> None:
    """6.2.7: a message sent in a transaction is a message like any other."""
    queue, answers = stage.queue(), stage.queue()
    session = stage.session(Mode.TRANSACTED)
    session.producer(queue).send(
        {"a": [1]}, properties={"p": 1}, correlation_id="c", reply_to=answers, type="t", priority=7
    )
    session.commit()
    (message,) = stage.left_in(queue)
    assert (message.body, dict(message.properties), message.correlation_id) == ({"a": [1]}, {"p": 1}, "c")
    assert (message.reply_to, message.type, message.priority) == (answers, "t", 7)


def test_6_2_7_messages_of_both_delivery_modes_are_committed(stage: Stage) -> None:
    """6.2.7 and 7.7: a transaction may have persistent and non-persistent messages."""
    queue = stage.queue()
    session = stage.session(Mode.TRANSACTED)
    producer = session.producer(queue)
    producer.send("persistent")
    producer.send("non-persistent", persistent=False)
    session.commit()
    assert sorted(map(str, bodies_of(stage.left_in(queue)))) == ["non-persistent", "persistent"]


def test_6_2_7_a_session_does_not_receive_its_own_uncommitted_messages(stage: Stage) -> None:
    """6.2.7: a message is not sent before the commit, to anybody."""
    queue = stage.queue()
    session = stage.session(Mode.TRANSACTED)
    consumer = session.consumer(queue)
    session.producer(queue).send("mine")
    assert consumer.receive(0.05) is None
    session.commit()
    assert next_of(consumer).body == "mine"


# ---- what is received


def test_6_2_7_a_commit_acknowledges_what_was_received(stage: Stage) -> None:
    """6.2.7: when a transaction commits, its atomic unit of input is acknowledged."""
    queue = stage.queue()
    stage.send(queue, "a", "b", "c")
    with stage.session(Mode.TRANSACTED) as session:
        take(session.consumer(queue), 2)
        session.commit()
    assert bodies_of(stage.left_in(queue)) == ["c"]


def test_6_2_7_a_commit_covers_what_the_client_has_received_and_no_more(stage: Stage) -> None:
    """6.2.7: what the provider sent ahead, and the client has not taken, is not part of the transaction."""
    queue = stage.queue()
    stage.send(queue, *[f"message {n}" for n in range(50)])
    with stage.session(Mode.TRANSACTED) as session:
        consumer = session.consumer(queue)
        take(consumer, 3)
        session.commit()
        assert next_of(consumer).body == "message 3"
    assert bodies_of(stage.left_in(queue)) == [f"message {n}" for n in range(3, 50)]


def test_6_2_7_a_rollback_brings_back_what_was_received(stage: Stage) -> None:
    """6.2.7: consumed messages are automatically recovered, in order, marked and counted."""
    queue = stage.queue()
    stage.send(queue, "a", "b", "c")
    session = stage.session(Mode.TRANSACTED)
    consumer = session.consumer(queue)
    take(consumer, 2)
    session.rollback()
    again = take(consumer, 3)
    assert bodies_of(again) == ["a", "b", "c"]
    assert [(message.redelivered, message.delivery_count) for message in again[:2]] == [(True, 2), (True, 2)]


def test_6_2_7_a_rollback_brings_back_topic_messages_too(stage: Stage) -> None:
    """6.2.7: a subscription's messages are recovered like a queue's."""
    topic = stage.topic()
    session = stage.session(Mode.TRANSACTED)
    subscriber = session.consumer(topic)
    stage.send(topic, "a", "b")
    take(subscriber, 2)
    session.rollback()
    again = take(subscriber, 2)
    assert [(message.body, message.redelivered) for message in again] == [("a", True), ("b", True)]
    session.commit()
    assert stage.up_to_fence(subscriber, topic) == []


def test_6_2_7_rolling_back_again_and_again_counts(stage: Stage) -> None:
    """6.2.7 and 3.5.11: each rollback adds to the delivery count."""
    queue = stage.queue()
    stage.send(queue, "a")
    session = stage.session(Mode.TRANSACTED)
    consumer = session.consumer(queue)
    counts = []
    for _ in range(4):
        counts.append(next_of(consumer).delivery_count)
        session.rollback()
    assert counts == [1, 2, 3, 4]


def test_6_2_7_messages_from_several_destinations_are_one_unit_of_input(stage: Stage) -> None:
    """6.2.7: commit and rollback concern all consumers of the session."""
    queues = [stage.queue() for _ in range(3)]
    for queue in queues:
        stage.send(queue, "first", "second")
    session = stage.session(Mode.TRANSACTED)
    consumers = [session.consumer(queue) for queue in queues]
    assert bodies_of(map(next_of, consumers)) == ["first"] * 3
    session.rollback()
    assert bodies_of(map(next_of, consumers)) == ["first"] * 3
    session.commit()
    assert bodies_of(map(next_of, consumers)) == ["second"] * 3
    session.close()
    assert [bodies_of(stage.left_in(queue)) for queue in queues] == [["second"]] * 3


def test_6_2_7_what_a_transaction_has_received_nobody_else_gets(stage: Stage) -> None:
    """6.2.7 and 4.1.2: a message in an open transaction is not delivered to another consumer."""
    queue = stage.queue()
    stage.send(queue, "a")
    session = stage.session(Mode.TRANSACTED)
    next_of(session.consumer(queue))
    other = stage.session().consumer(queue)
    assert nothing_comes(other)
    session.commit()
    assert nothing_comes(other)


# ---- both together


def test_6_2_7_a_commit_moves_a_message_from_queue_to_queue(stage: Stage) -> None:
    """6.2.7: input and output of a transaction take effect together."""
    source, target = stage.queue(), stage.queue()
    stage.send(source, "a")
    session = stage.session(Mode.TRANSACTED)
    moved = next_of(session.consumer(source))
    session.producer(target).send(moved.body)
    session.commit()
    session.close()
    assert (stage.left_in(source), bodies_of(stage.left_in(target))) == ([], ["a"])


def test_6_2_7_a_rollback_undoes_a_move(stage: Stage) -> None:
    """6.2.7: neither the input nor the output of a transaction that is rolled back has happened."""
    source, target = stage.queue(), stage.queue()
    stage.send(source, "a")
    session = stage.session(Mode.TRANSACTED)
    moved = next_of(session.consumer(source))
    session.producer(target).send(moved.body)
    session.rollback()
    session.close()
    assert (bodies_of(stage.left_in(source)), stage.left_in(target)) == (["a"], [])


def test_6_2_7_the_end_of_a_transaction_begins_the_next(stage: Stage) -> None:
    """6.2.7: a transacted session always has a current transaction."""
    queue = stage.queue()
    session = stage.session(Mode.TRANSACTED)
    producer = session.producer(queue)
    producer.send("committed")
    session.commit()
    producer.send("rolled back")
    session.rollback()
    producer.send("committed too")
    session.commit()
    assert bodies_of(stage.left_in(queue)) == ["committed", "committed too"]


def test_6_2_7_an_empty_transaction_can_be_ended(stage: Stage) -> None:
    """6.2.7: committing or rolling back nothing is no error."""
    session = stage.session(Mode.TRANSACTED)
    session.commit()
    session.rollback()
    session.commit()


def test_6_2_7_transactions_of_two_sessions_are_independent(stage: Stage) -> None:
    """6.2.7: each session has its own series of transactions."""
    queue = stage.queue()
    one, two = stage.session(Mode.TRANSACTED), stage.session(Mode.TRANSACTED)
    one.producer(queue).send("one")
    two.producer(queue).send("two")
    one.rollback()
    two.commit()
    assert bodies_of(stage.left_in(queue)) == ["two"]


def test_6_2_7_a_large_transaction_takes_effect_as_a_whole(stage: Stage) -> None:
    """6.2.7: the unit may have many messages."""
    source, target = stage.queue(), stage.queue()
    with stage.helper.producer(source) as producer:
        for n in range(1000):
            producer.send_async(n.to_bytes(2), lambda _error: None)
    session = stage.session(Mode.TRANSACTED)
    consumer, output = session.consumer(source), session.producer(target)
    for message in take(consumer, 1000):
        output.send(message.body)
    session.commit()
    session.close()
    assert stage.left_in(source) == []
    assert bodies_of(stage.left_in(target)) == [n.to_bytes(2) for n in range(1000)]


# ---- modes


def test_6_2_10_acknowledging_in_a_transacted_session_is_left_to_the_commit(stage: Stage) -> None:
    """6.2.10: acknowledgement is handled by commit; a message's acknowledge has no effect before it."""
    queue = stage.queue()
    stage.send(queue, "a")
    session = stage.session(Mode.TRANSACTED)
    consumer = session.consumer(queue)
    next_of(consumer).acknowledge()
    session.rollback()
    assert next_of(consumer).body == "a"


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.CLIENT])
def test_6_2_7_a_session_that_is_not_transacted_cannot_commit(stage: Stage, mode: Mode) -> None:
    """10.3: commit and rollback of a session that is not transacted are an illegal state."""
    session = stage.session(mode)
    with pytest.raises(IllegalState):
        session.commit()
    with pytest.raises(IllegalState):
        session.rollback()


# ---- closing


def test_6_2_15_closing_a_transacted_session_rolls_back(stage: Stage) -> None:
    """6.2.15: closing must roll back the transaction in progress."""
    source, target = stage.queue(), stage.queue()
    stage.send(source, "input")
    with stage.session(Mode.TRANSACTED) as session:
        next_of(session.consumer(source))
        session.producer(target).send("output")
    (left,) = stage.left_in(source)
    assert (left.body, left.redelivered) == ("input", True)
    assert stage.left_in(target) == []


def test_8_8_a_commit_after_its_consumer_was_closed_covers_its_messages(stage: Stage) -> None:
    """8.8: closing a consumer has no effect on the transaction; it may be committed as normal."""
    queue = stage.queue()
    stage.send(queue, "a", "b")
    session = stage.session(Mode.TRANSACTED)
    consumer = session.consumer(queue)
    next_of(consumer)
    consumer.close()
    session.commit()
    session.close()
    assert bodies_of(stage.left_in(queue)) == ["b"]


def test_8_8_what_a_closed_consumer_received_stays_in_the_transaction(stage: Stage) -> None:
    """8.8: until the transaction ends, nobody else gets it; after a rollback it is redelivered."""
    queue = stage.queue()
    stage.send(queue, "a")
    session = stage.session(Mode.TRANSACTED)
    consumer = session.consumer(queue)
    next_of(consumer)
    consumer.close()
    with stage.session().consumer(queue) as other:
        assert nothing_comes(other)
    session.rollback()
    again = next_of(session.consumer(queue))
    assert (again.body, again.redelivered) == ("a", True)


def test_8_8_what_a_closed_consumer_was_sent_ahead_is_for_others_at_once(stage: Stage) -> None:
    """8.8: closing ends delivery: what the client has not got does not wait for the commit."""
    queue = stage.queue()
    stage.send(queue, "a", "b", "c")
    session = stage.session(Mode.TRANSACTED)
    consumer = session.consumer(queue)
    next_of(consumer)
    consumer.close()
    other = stage.session().consumer(queue)
    received = [other.receive(1), other.receive(1)]
    assert bodies_of(message for message in received if message is not None) == ["b", "c"]
    other.close()
    session.commit()
    session.close()
    assert stage.left_in(queue) == []


def test_8_8_a_closed_consumer_of_a_transaction_takes_nothing_new(stage: Stage) -> None:
    """8.8: what is sent after the close goes to other consumers, though the transaction is still open."""
    queue = stage.queue()
    stage.send(queue, "a")
    session = stage.session(Mode.TRANSACTED)
    consumer = session.consumer(queue)
    next_of(consumer)
    consumer.close()
    other = stage.session().consumer(queue)
    stage.send(queue, "b", "c")
    received = [other.receive(1), other.receive(1)]
    assert bodies_of(message for message in received if message is not None) == ["b", "c"]


def test_8_8_a_closed_producers_messages_stay_in_the_transaction(stage: Stage) -> None:
    """6.2.7: closing a producer neither sends nor drops what it produced."""
    queue = stage.queue()
    session = stage.session(Mode.TRANSACTED)
    with session.producer(queue) as producer:
        producer.send("a")
    assert stage.left_in(queue) == []
    session.commit()
    assert bodies_of(stage.left_in(queue)) == ["a"]


@pytest.mark.needs("durable", "client-id")
def test_6_2_7_a_durable_subscription_takes_part(stage: Stage) -> None:
    """6.2.7: what a transaction consumed of a durable subscription is gone for good at its commit only."""
    topic = stage.topic()
    name = stage.name("subscription")
    connection = stage.connect(client_id=stage.name("client"))
    session = connection.session(Mode.TRANSACTED)
    consumer = session.consumer(topic, durable=name)
    stage.send(topic, "a", "b")
    next_of(consumer)
    session.commit()
    next_of(consumer)
    session.close()
    resumed = connection.session().consumer(topic, durable=name)
    assert bodies_of(stage.up_to_fence(resumed, topic)) == ["b"]


def test_6_2_7_selectors_and_transactions_go_together(stage: Stage) -> None:
    """6.2.7 and 3.8.1: a rollback brings selected messages back to the consumer that selects them."""
    queue = stage.queue()
    for n in range(4):
        stage.send(queue, f"message {n}", properties={"n": n})
    session = stage.session(Mode.TRANSACTED)
    consumer = session.consumer(queue, selector="n >= 2")
    take(consumer, 2)
    session.rollback()
    assert bodies_of(take(consumer, 2)) == ["message 2", "message 3"]
    session.commit()
    session.close()
    assert bodies_of(stage.left_in(queue)) == ["message 0", "message 1"]
