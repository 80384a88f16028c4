"""JMS 2.0, section 3.4: the header fields of a message, who sets them and when."""

from __future__ import annotations

import time

import pytest

from tests.conformance.jms.adapter import JmsError, Mode, Property
from tests.conformance.jms.stage import Stage, bodies_of, next_of, nothing_comes, take, until

pytestmark = pytest.mark.req("J2")

# Clocks are read on both sides of a call; they agree to within this.
CLOCK_SECONDS = 0.005


def test_3_4_1_the_destination_is_where_the_message_was_sent_queue(stage: Stage) -> None:
    """3.4.1: a received message names the queue that it was sent to."""
    queue = stage.queue()
    assert stage.passed(queue).destination == queue


def test_3_4_1_the_destination_is_where_the_message_was_sent_topic(stage: Stage) -> None:
    """3.4.1: a received message names the topic that it was sent to."""
    topic = stage.topic()
    assert stage.passed(topic).destination == topic


@pytest.mark.req("J3")
def test_3_4_2_the_delivery_mode_is_persistent_unless_told_otherwise(stage: Stage) -> None:
    """3.4.2: the delivery mode is the one of the sending method; producers send PERSISTENT by default."""
    assert stage.passed(stage.queue()).persistent


@pytest.mark.req("J3")
def test_3_4_2_the_delivery_mode_is_the_one_of_the_send(stage: Stage) -> None:
    """3.4.2: a message sent NON_PERSISTENT says so when it is received."""
    assert not stage.passed(stage.queue(), persistent=False).persistent


@pytest.mark.needs("sent-ids")
def test_3_4_3_the_id_known_to_the_sender_is_the_id_received(stage: Stage) -> None:
    """3.4.3: when the send returns, the message has the id that its receiver will see."""
    queue = stage.queue()
    sent = stage.send(queue, b"a", b"b", b"c")
    assert [message.id for message in take(stage.session().consumer(queue), 3)] == sent


@pytest.mark.needs("sent-ids")
def test_3_4_3_ids_are_unique_over_producers_sessions_and_connections(stage: Stage) -> None:
    """3.4.3: an id is a key: no two messages of an installation have the same."""
    queue = stage.queue()
    ids: list[str] = []
    for connection in (stage.connect(), stage.connect()):
        for session in (connection.session(), connection.session()):
            for producer in (session.producer(queue), session.producer(queue)):
                ids += [producer.send(b""), producer.send(b"", persistent=False)]
    assert len(set(ids)) == len(ids)


@pytest.mark.needs("sent-ids")
def test_3_4_3_each_send_of_the_same_content_makes_another_message(stage: Stage) -> None:
    """3.4.3: an id given by the provider belongs to one send, not to the content."""
    first, second = stage.send(stage.queue(), b"same", b"same")
    assert first != second


@pytest.mark.needs("sent-ids")
def test_3_4_3_copies_of_a_topic_message_have_one_id(stage: Stage) -> None:
    """3.4.3: every subscriber sees the id that the send gave to the message."""
    topic = stage.topic()
    session = stage.session()
    subscribers = [session.consumer(topic), session.consumer(topic)]
    (sent,) = stage.send(topic, b"")
    assert [next_of(subscriber).id for subscriber in subscribers] == [sent, sent]


def test_3_4_4_the_timestamp_lies_between_call_and_return_of_the_send(stage: Stage) -> None:
    """3.4.4: the timestamp is the time at which the message was handed off to be sent."""
    queue = stage.queue()
    before = time.time()
    stage.send(queue, b"")
    after = time.time()
    message = next_of(stage.session().consumer(queue))
    assert before - CLOCK_SECONDS <= message.timestamp <= after + CLOCK_SECONDS


def test_3_4_4_the_timestamp_is_not_the_time_of_receipt(stage: Stage) -> None:
    """3.4.4: it does not change while the message waits, nor when it is delivered again."""
    queue = stage.queue()
    stage.send(queue, b"")
    session = stage.session(Mode.CLIENT)
    first = next_of(session.consumer(queue))
    session.close()
    again = next_of(stage.session().consumer(queue))
    assert again.redelivered
    assert again.timestamp == first.timestamp


@pytest.mark.needs("transactions")
def test_3_4_4_the_timestamp_is_the_time_of_the_send_and_not_of_the_commit(stage: Stage) -> None:
    """3.4.4: a transaction that delays the message does not change its timestamp."""
    queue = stage.queue()
    session = stage.session(Mode.TRANSACTED)
    session.producer(queue).send(b"")
    sent = time.time()
    until(lambda: time.time() > sent + 0.05, "some time has passed")
    session.commit()
    assert next_of(stage.session().consumer(queue)).timestamp <= sent + CLOCK_SECONDS


@pytest.mark.parametrize("text", ["order-7", "", "Bestellung № 7 – Zürich", "x" * 1000])
def test_3_4_5_the_correlation_id_is_the_clients(stage: Stage, text: str) -> None:
    """3.4.5: a client may link messages by a text of its own."""
    assert stage.passed(stage.queue(), correlation_id=text).correlation_id == text


@pytest.mark.needs("sent-ids")
def test_3_4_5_the_correlation_id_may_be_another_messages_id(stage: Stage) -> None:
    """3.4.5: a client may link a message to another one by the id that the provider gave to it."""
    requests, replies = stage.queue(), stage.queue()
    (request,) = stage.send(requests, b"question")
    received = next_of(stage.session().consumer(requests))
    assert stage.passed(replies, correlation_id=received.id).correlation_id == request


def test_3_4_5_without_a_correlation_id_there_is_none(stage: Stage) -> None:
    """3.4.5: the provider does not make one up."""
    assert stage.passed(stage.queue()).correlation_id is None


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_3_4_6_reply_to_is_a_destination_of_the_clients_choice(stage: Stage, kind: str) -> None:
    """3.4.6: the reply-to is a queue or a topic, and one can send to what was received."""
    answers = stage.queue() if kind == "queue" else stage.topic()
    message = stage.passed(stage.queue(), reply_to=answers)
    assert message.reply_to == answers
    consumer = stage.session().consumer(answers)
    stage.session().producer(message.reply_to).send("answer")
    assert next_of(consumer).body == "answer"


def test_3_4_6_without_a_reply_to_there_is_none(stage: Stage) -> None:
    """3.4.6: a message sent without a reply-to expects no answer."""
    assert stage.passed(stage.queue()).reply_to is None


def test_3_4_7_redelivered_is_not_set_at_first(stage: Stage) -> None:
    """3.4.7: a message that was never delivered before is not marked as redelivered."""
    assert not stage.passed(stage.queue()).redelivered


def test_3_4_7_redelivered_is_set_when_redelivered(stage: Stage) -> None:
    """3.4.7: the provider sets the mark whenever it delivers a message again."""
    queue = stage.queue()
    stage.send(queue, b"")
    session = stage.session(Mode.CLIENT)
    assert not next_of(session.consumer(queue)).redelivered
    session.close()
    assert next_of(stage.session().consumer(queue)).redelivered


def test_3_4_7_redelivery_concerns_one_copy_only(stage: Stage) -> None:
    """3.4.7 and 4.2.2: that one subscriber gets its copy again does not mark the copy of another."""
    topic = stage.topic()
    careless, other = stage.session(Mode.CLIENT), stage.session()
    consumer, bystander = careless.consumer(topic), other.consumer(topic)
    stage.send(topic, b"")
    next_of(consumer)
    careless.recover()
    assert next_of(consumer).redelivered
    assert not next_of(bystander).redelivered


@pytest.mark.parametrize("text", ["car", "", "Mitteilung/Δ"])
def test_3_4_8_the_type_is_the_clients(stage: Stage, text: str) -> None:
    """3.4.8: the type is a text that the sending client supplies."""
    assert stage.passed(stage.queue(), type=text).type == text


def test_3_4_8_without_a_type_there_is_none(stage: Stage) -> None:
    """3.4.8: the provider does not make one up."""
    assert stage.passed(stage.queue()).type is None


@pytest.mark.req("J8")
def test_3_4_9_the_expiration_is_the_time_of_the_send_plus_the_time_to_live(stage: Stage) -> None:
    """3.4.9: the expiration is computed from the time to live when the message is sent."""
    before = time.time()
    message = stage.passed(stage.queue(), time_to_live=60)
    after = time.time()
    assert before + 60 - CLOCK_SECONDS <= message.expiration <= after + 60 + CLOCK_SECONDS


@pytest.mark.req("J8")
def test_3_4_9_without_a_time_to_live_there_is_no_expiration(stage: Stage) -> None:
    """3.4.9: zero means that the message does not expire."""
    assert stage.passed(stage.queue()).expiration == 0


@pytest.mark.req("J8")
def test_3_4_9_expired_messages_are_not_received(stage: Stage) -> None:
    """3.4.9: a message that waited beyond its expiration is destroyed and reaches nobody."""
    queue = stage.queue()
    stage.send(queue, "short-lived", time_to_live=0.02)
    stage.send(queue, "lasting")
    sent = time.time()
    until(lambda: time.time() > sent + 0.03, "the first has expired")
    assert bodies_of(stage.left_in(queue)) == ["lasting"]


@pytest.mark.req("J8")
@pytest.mark.needs("durable", "client-id")
def test_3_4_9_messages_expire_in_a_durable_subscription(stage: Stage) -> None:
    """3.4.9 and 4.2.2: a subscription keeps its messages until they are consumed or expire."""
    topic = stage.topic()
    name = stage.name("subscription")
    session = stage.connect(client_id=stage.name("client")).session()
    session.consumer(topic, durable=name).close()
    stage.send(topic, "short-lived", time_to_live=0.02)
    sent = time.time()
    until(lambda: time.time() > sent + 0.03, "it has expired")
    assert stage.up_to_fence(session.consumer(topic, durable=name), topic) == []


@pytest.mark.req("J8")
def test_3_4_10_the_priority_is_4_unless_told_otherwise(stage: Stage) -> None:
    """3.4.10: a message sent without a priority has the default one, 4."""
    assert stage.passed(stage.queue()).priority == 4


@pytest.mark.req("J8")
def test_3_4_10_there_are_ten_priorities(stage: Stage) -> None:
    """3.4.10: priorities 0 to 9 are all there and arrive as they were sent."""
    queue = stage.queue()
    with stage.session().consumer(queue) as consumer:
        for priority in range(10):
            stage.send(queue, b"", priority=priority)
            assert next_of(consumer).priority == priority


@pytest.mark.req("J8")
@pytest.mark.parametrize("priority", [-1, 10])
def test_3_4_10_a_priority_beyond_the_ten_is_refused(stage: Stage, priority: int) -> None:
    """3.4.10: the priority of a message is one of 0 to 9."""
    producer = stage.session().producer(stage.queue())
    with pytest.raises(JmsError):
        producer.send(b"", priority=priority)


@pytest.mark.req("J8")
def test_3_4_10_expedited_messages_go_ahead_of_normal_ones(stage: Stage) -> None:
    """3.4.10: the provider does its best to deliver higher priorities first."""
    queue = stage.queue()
    for priority in (4, 0, 9, 5, 9, 1):
        stage.send(queue, b"", priority=priority)
    assert [message.priority for message in take(stage.session().consumer(queue), 6)] == [9, 9, 5, 4, 1, 0]


@pytest.mark.req("J8")
@pytest.mark.needs("durable", "client-id")
def test_3_4_10_priorities_hold_in_a_subscription_too(stage: Stage) -> None:
    """3.4.10: what waits in a subscription is delivered by priority as well."""
    topic = stage.topic()
    name = stage.name("subscription")
    session = stage.connect(client_id=stage.name("client")).session()
    session.consumer(topic, durable=name).close()
    for priority in (1, 8, 4):
        stage.send(topic, f"priority {priority}", priority=priority)
    consumer = session.consumer(topic, durable=name)
    assert bodies_of(take(consumer, 3)) == ["priority 8", "priority 4", "priority 1"]


def test_3_4_11_the_headers_of_a_client_arrive_as_they_were_set(stage: Stage) -> None:
    """3.4.11: correlation id, reply-to and type are the client's, and the provider leaves them alone."""
    answers = stage.queue()
    message = stage.passed(stage.topic(), correlation_id="c", reply_to=answers, type="t")
    assert (message.correlation_id, message.reply_to, message.type) == ("c", answers, "t")


def test_3_4_11_a_property_cannot_set_a_header_of_the_provider(stage: Stage) -> None:
    """3.4.11: what only the provider sets, a client cannot forge under the header's name."""
    forged: dict[str, Property] = {
        "JMSPriority": 9,
        "JMSRedelivered": True,
        "JMSMessageID": "ID:forged",
        "JMSXDeliveryCount": 7,
    }
    queue = stage.queue()
    try:
        stage.send(queue, b"", properties=forged)
    except JmsError:
        return  # refused, which is as good
    message = next_of(stage.session().consumer(queue))
    assert (message.priority, message.redelivered, message.delivery_count) == (4, False, 1)
    assert message.id != "ID:forged"


@pytest.mark.req("J8")
@pytest.mark.needs("delay")
def test_3_4_13_the_delivery_time_is_the_time_of_the_send_plus_the_delay(stage: Stage) -> None:
    """3.4.13: the delivery time is computed from the delay when the message is sent."""
    before = time.time()
    message = stage.passed(stage.queue(), delay=0.05)
    assert before + 0.05 - CLOCK_SECONDS <= message.delivery_time <= message.timestamp + 0.05 + CLOCK_SECONDS


@pytest.mark.req("J8")
@pytest.mark.needs("delay")
def test_3_4_13_no_message_is_received_before_its_delivery_time(stage: Stage) -> None:
    """3.4.13: the delivery time is the earliest moment of delivery."""
    message = stage.passed(stage.queue(), delay=0.08)
    assert time.time() >= message.delivery_time - CLOCK_SECONDS


@pytest.mark.req("J8")
@pytest.mark.needs("delay")
def test_3_4_13_a_delayed_message_holds_up_no_other(stage: Stage) -> None:
    """3.4.13 and 6.2.9.2: a message with an earlier delivery time goes ahead of one that still waits."""
    queue = stage.queue()
    stage.send(queue, "later", delay=1.0)  # more than a busy machine takes for the next
    stage.send(queue, "now")
    assert bodies_of(take(stage.session().consumer(queue), 2)) == ["now", "later"]


@pytest.mark.req("J8")
@pytest.mark.needs("delay", "transactions")
def test_3_4_13_the_delay_of_a_transacted_send_counts_from_the_send(stage: Stage) -> None:
    """3.4.13: for transacted sends the delivery time is reckoned from the send and not from the commit."""
    queue = stage.queue()
    session = stage.session(Mode.TRANSACTED)
    session.producer(queue).send(b"", delay=0.05)
    sent = time.time()
    until(lambda: time.time() > sent + 0.06, "the delay is over")
    session.commit()
    assert next_of(stage.session().consumer(queue)).delivery_time <= sent + 0.05 + CLOCK_SECONDS


@pytest.mark.req("J8")
@pytest.mark.needs("transactions")
def test_3_4_9_the_time_to_live_of_a_transacted_send_counts_from_the_send(stage: Stage) -> None:
    """3.4.9: for transacted sends the expiration is reckoned from the send and not from the commit."""
    queue = stage.queue()
    session = stage.session(Mode.TRANSACTED)
    producer = session.producer(queue)
    producer.send("short-lived", time_to_live=0.02)
    producer.send("lasting")
    sent = time.time()
    until(lambda: time.time() > sent + 0.03, "the first has expired")
    session.commit()
    assert bodies_of(stage.left_in(queue)) == ["lasting"]


@pytest.mark.req("J8")
@pytest.mark.needs("delay")
def test_3_4_13_a_delay_beyond_the_time_to_live_means_no_delivery(stage: Stage) -> None:
    """3.4.9 and 3.4.13: a message whose expiration comes before its delivery time is never received."""
    queue = stage.queue()
    consumer = stage.session().consumer(queue)
    stage.send(queue, b"", delay=0.05, time_to_live=0.02)
    assert nothing_comes(consumer)
