"""JMS 2.0, section 4.1: queues, temporary queues and browsers."""

from __future__ import annotations

import pytest

from tests.conformance.jms.adapter import Destination, InvalidDestination, JmsError, Mode, SecurityViolation
from tests.conformance.jms.stage import Stage, bodies_of, next_of, nothing_comes, until

pytestmark = pytest.mark.req("J1")


def test_4_1_2_each_message_goes_to_only_one_consumer(stage: Stage) -> None:
    """4.1.2: two consumers of a queue share its messages; none is delivered twice and none is left."""
    queue = stage.queue()
    consumers = [stage.connect().session().consumer(queue) for _ in range(2)]
    stage.send(queue, *[f"message {n}" for n in range(20)])
    received: list[str] = []

    def gather() -> bool:
        for consumer in consumers:
            while (message := consumer.receive_no_wait()) is not None:
                received.append(str(message.body))
        return len(received) >= 20

    until(gather, "twenty messages have come")
    assert sorted(received) == sorted(f"message {n}" for n in range(20))
    assert [nothing_comes(consumer) for consumer in consumers] == [True, True]


@pytest.mark.req("J11")
def test_4_1_2_each_of_several_consumers_gets_its_share_in_order(stage: Stage) -> None:
    """4.1.2: what a consumer gets of a queue it gets in the order sent, whatever others take."""
    queue = stage.queue()
    consumers = [stage.connect().session().consumer(queue) for _ in range(3)]
    stage.send(queue, *[n.to_bytes(2) for n in range(60)])
    shares: list[list[bytes]] = [[], [], []]

    def gather() -> bool:
        for consumer, share in zip(consumers, shares, strict=True):
            while (message := consumer.receive_no_wait()) is not None:
                assert isinstance(message.body, bytes)
                share.append(message.body)
        return sum(map(len, shares)) == 60

    until(gather, "sixty messages have come")
    assert all(share == sorted(share) for share in shares)


def test_4_1_2_a_queue_may_be_used_by_several_producers(stage: Stage) -> None:
    """4.1.2: whoever sends, the messages are all in the one queue."""
    queue = stage.queue()
    for n in range(3):
        stage.connect().session().producer(queue).send(f"producer {n}")
    assert bodies_of(stage.left_in(queue)) == ["producer 0", "producer 1", "producer 2"]


def test_4_1_2_the_same_name_may_be_a_queue_and_a_topic(stage: Stage) -> None:
    """4.1 and 4.2: queues and topics are two kinds; a queue's message is not a topic's."""
    name = stage.name("both")
    queue, topic = Destination("queue", name), Destination("topic", name)
    subscriber = stage.session().consumer(topic)
    stage.send(queue, "to the queue")
    assert stage.up_to_fence(subscriber, topic) == []
    assert bodies_of(stage.left_in(queue)) == ["to the queue"]


@pytest.mark.req("J9")
@pytest.mark.needs("temporary")
def test_4_1_5_a_temporary_queue_is_unique(stage: Stage) -> None:
    """4.1.5: each temporary queue is another one."""
    sessions = [stage.session(), stage.session(), stage.connect().session()]
    queues = [session.temporary_queue() for session in sessions for _ in range(3)]
    assert len(set(queues)) == 9
    assert {queue.kind for queue in queues} == {"queue"}


@pytest.mark.req("J9")
@pytest.mark.needs("temporary")
def test_4_1_5_only_its_connection_consumes_from_a_temporary_queue(stage: Stage) -> None:
    """4.1.5: another connection cannot make a consumer for it."""
    queue = stage.session().temporary_queue()
    stranger = stage.connect().session()
    with pytest.raises(JmsError):
        stranger.consumer(queue)


@pytest.mark.req("J9")
@pytest.mark.needs("temporary", "browse")
def test_4_1_5_another_connection_cannot_look_into_a_temporary_queue(stage: Stage) -> None:
    """4.1.5: its messages are its connection's, to see as well as to take."""
    queue = stage.session().temporary_queue()
    stranger = stage.connect().session()
    with pytest.raises((SecurityViolation, InvalidDestination)):
        list(stranger.browser(queue))


@pytest.mark.req("J9")
@pytest.mark.needs("browse")
def test_4_1_6_browsing_does_not_remove(stage: Stage) -> None:
    """4.1.6: what a browser showed is still there, and not marked as delivered before."""
    queue = stage.queue()
    stage.send(queue, "a", "b")
    assert bodies_of(stage.session().browser(queue)) == ["a", "b"]
    left = stage.left_in(queue)
    assert [(message.body, message.redelivered, message.delivery_count) for message in left] == [
        ("a", False, 1),
        ("b", False, 1),
    ]


@pytest.mark.req("J9")
@pytest.mark.needs("browse")
def test_4_1_6_browsing_shows_the_order_of_delivery(stage: Stage) -> None:
    """4.1.6: a scan shows the messages as consumers would get them, higher priorities first."""
    queue = stage.queue()
    stage.send(queue, "a", "b")
    stage.send(queue, "urgent", priority=9)
    shown = bodies_of(stage.session().browser(queue))
    assert shown == ["urgent", "a", "b"]
    assert shown == bodies_of(stage.left_in(queue))


@pytest.mark.req("J9")
@pytest.mark.needs("browse")
def test_4_1_6_browsing_an_empty_queue_ends(stage: Stage) -> None:
    """4.1.6: a scan of an empty queue has no elements."""
    assert list(stage.session().browser(stage.queue())) == []


@pytest.mark.req("J9")
@pytest.mark.needs("browse")
def test_4_1_6_browsing_with_a_selector(stage: Stage) -> None:
    """4.1.6: a scan may be restricted to the messages that match a selector."""
    queue = stage.queue()
    for n in range(6):
        stage.send(queue, f"message {n}", properties={"n": n})
    browser = stage.session().browser(queue, selector="n > 1 AND n <> 4")
    assert bodies_of(browser) == ["message 2", "message 3", "message 5"]


@pytest.mark.req("J9")
@pytest.mark.needs("browse")
def test_4_1_6_a_browser_may_scan_again(stage: Stage) -> None:
    """4.1.6: a later scan sees what came meanwhile, and no longer what was taken."""
    queue = stage.queue()
    session = stage.session()
    stage.send(queue, "a", "b")
    assert bodies_of(session.browser(queue)) == ["a", "b"]
    consumer = stage.session().consumer(queue)
    assert next_of(consumer).body == "a"
    consumer.close()
    stage.send(queue, "c")
    assert bodies_of(session.browser(queue)) == ["b", "c"]


@pytest.mark.req("J9")
@pytest.mark.needs("browse", "sent-ids")
def test_4_1_6_a_browsed_message_is_complete(stage: Stage) -> None:
    """4.1.6: a browser shows the message itself, with headers, properties and body."""
    queue = stage.queue()
    (sent,) = stage.send(queue, "body", properties={"a": 1}, correlation_id="c", type="t", priority=7)
    (shown,) = stage.session().browser(queue)
    assert (shown.id, shown.body, dict(shown.properties)) == (sent, "body", {"a": 1})
    assert (shown.correlation_id, shown.type, shown.priority) == ("c", "t", 7)


@pytest.mark.req("J9")
@pytest.mark.needs("browse", "delay")
def test_4_1_6_a_browser_does_not_show_a_message_before_its_delivery_time(stage: Stage) -> None:
    """4.1.6: a message must not be returned by a browser before its delivery time."""
    queue = stage.queue()
    stage.send(queue, "later", delay=60)
    stage.send(queue, "now")
    assert bodies_of(stage.session().browser(queue)) == ["now"]


@pytest.mark.req("J9")
@pytest.mark.needs("browse", "transactions")
def test_4_1_6_a_browser_does_not_show_what_is_not_committed(stage: Stage) -> None:
    """4.1.6 and 6.2.7: a produced message is not there before its transaction commits."""
    queue = stage.queue()
    session = stage.session(Mode.TRANSACTED)
    session.producer(queue).send("in the air")
    assert list(stage.session().browser(queue)) == []
    session.commit()
    assert bodies_of(stage.session().browser(queue)) == ["in the air"]


@pytest.mark.req("J9")
@pytest.mark.needs("browse")
def test_4_1_6_a_topic_cannot_be_browsed(stage: Stage) -> None:
    """4.1.6 and 9.2: browsers are for queues."""
    session = stage.session()
    with pytest.raises(JmsError):
        list(session.browser(stage.topic()))


@pytest.mark.req("J9")
@pytest.mark.needs("temporary", "sent-ids")
def test_4_1_7_request_and_reply_over_a_temporary_queue(stage: Stage) -> None:
    """4.1.7: a client asks with a temporary queue as reply-to, and its answer finds the way back."""
    service = stage.queue()
    client, server = stage.session(), stage.connect().session()
    answers = client.temporary_queue()
    request = client.producer(service).send("6 × 7", reply_to=answers)
    question = next_of(server.consumer(service))
    assert question.reply_to is not None
    server.producer(question.reply_to).send("42", correlation_id=question.id)
    answer = next_of(client.consumer(answers))
    assert (answer.body, answer.correlation_id) == ("42", request)


def test_4_1_8_a_queue_keeps_messages_without_a_consumer(stage: Stage) -> None:
    """4.1.8: a queue holds messages whether or not a consumer is there; one that comes misses nothing."""
    queue = stage.queue()
    with stage.provider.connect() as connection:
        producer = connection.session().producer(queue)
        producer.send("persistent")
        producer.send("non-persistent", persistent=False)
    assert bodies_of(stage.left_in(queue)) == ["persistent", "non-persistent"]


@pytest.mark.req("J10")
def test_4_1_8_consumers_that_come_and_go_cost_no_message(stage: Stage) -> None:
    """4.1.8: a message that no application was handed stays, however often consumers came and left."""
    queue = stage.queue()
    stage.send(queue, "a", "b", "c")
    for _ in range(15):
        stage.session().consumer(queue).close()
    assert bodies_of(stage.left_in(queue)) == ["a", "b", "c"]
