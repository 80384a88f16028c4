"""JMS 2.0, chapter 8: receiving messages, and the four kinds of subscription."""

from __future__ import annotations

import threading
import time

import pytest

from tests.conformance.jms.adapter import Consumer, Destination, IllegalState, JmsError, Message, Mode
from tests.conformance.jms.stage import Stage, bodies_of, next_of, nothing_comes, take, until

pytestmark = pytest.mark.req("J6")


def assert_they_split_what_is_sent(stage: Stage, topic: Destination, consumers: list[Consumer]) -> None:
    """Each message comes to one of the consumers, and to one only."""
    sent = [f"message {n}" for n in range(30)]
    stage.send(topic, *sent)
    received: list[str] = []

    def gather() -> bool:
        for consumer in consumers:
            while (message := consumer.receive_no_wait()) is not None:
                received.append(str(message.body))
        return len(received) >= len(sent)

    until(gather, "all messages have come")
    assert sorted(received) == sorted(sent)
    assert all(nothing_comes(consumer) for consumer in consumers)


# ---- 8.3.1 unshared non-durable subscriptions


def test_8_3_1_each_consumer_has_a_subscription_of_its_own(stage: Stage) -> None:
    """8.3.1: every consumer made this way gets its own copy, in the same session too."""
    topic = stage.topic()
    session = stage.session()
    consumers = [session.consumer(topic) for _ in range(3)]
    stage.send(topic, "a")
    assert [next_of(consumer).body for consumer in consumers] == ["a", "a", "a"]


def test_8_3_1_a_subscription_ends_with_its_consumer(stage: Stage) -> None:
    """8.3.1: nothing is kept while no consumer is there, and undelivered messages are deleted with it."""
    topic = stage.topic()
    session = stage.session()
    consumer = session.consumer(topic)
    stage.send(topic, "undelivered")
    consumer.close()
    stage.send(topic, "while away")
    assert stage.up_to_fence(session.consumer(topic), topic) == []


@pytest.mark.req("J7")
def test_8_3_1_a_selector_decides_what_is_added(stage: Stage) -> None:
    """8.3.1: only matching messages are added; each subscription has its own selector."""
    topic = stage.topic()
    session = stage.session()
    odd, even = (session.consumer(topic, selector=f"parity = '{which}'") for which in ("odd", "even"))
    for n in range(6):
        stage.send(topic, f"message {n}", properties={"parity": "even" if n % 2 == 0 else "odd"})
    assert bodies_of(take(odd, 3)) == ["message 1", "message 3", "message 5"]
    assert bodies_of(take(even, 3)) == ["message 0", "message 2", "message 4"]


@pytest.mark.req("J9")
@pytest.mark.needs("no-local")
def test_8_3_1_no_local_keeps_a_connections_own_messages_out(stage: Stage) -> None:
    """8.3.1: with no-local, what the subscriber's own connection publishes is not added."""
    topic = stage.topic()
    deaf, hearing = stage.session().consumer(topic, no_local=True), stage.session().consumer(topic)
    stage.session().producer(topic).send("mine")
    stage.connect().session().producer(topic).send("another's")
    assert bodies_of(take(hearing, 2)) == ["mine", "another's"]
    assert bodies_of(stage.up_to_fence(deaf, topic)) == ["another's"]


@pytest.mark.req("J9")
@pytest.mark.needs("no-local")
def test_8_3_1_without_no_local_a_connection_hears_itself(stage: Stage) -> None:
    """8.3.1: a subscriber gets everything unless it asks otherwise."""
    topic = stage.topic()
    consumer = stage.session().consumer(topic, no_local=False)
    stage.session().producer(topic).send("mine")
    assert next_of(consumer).body == "mine"


@pytest.mark.req("J7", "J9")
@pytest.mark.needs("no-local")
def test_8_3_1_no_local_and_a_selector_go_together(stage: Stage) -> None:
    """8.3.1: what is added must match the selector and come from elsewhere."""
    topic = stage.topic()
    consumer = stage.session().consumer(topic, selector="n > 1", no_local=True)
    for producer in (stage.session().producer(topic), stage.connect().session().producer(topic)):
        for n in range(1, 4):
            producer.send(f"message {n}", properties={"n": n})
    assert bodies_of(stage.up_to_fence(consumer, topic, n=9)) == ["message 2", "message 3"]


# ---- 8.3.2 shared non-durable subscriptions


@pytest.mark.needs("shared")
def test_8_3_2_each_message_goes_to_one_of_the_consumers(stage: Stage) -> None:
    """8.3.2: the consumers of a shared subscription split its messages between them."""
    topic = stage.topic()
    name = stage.name("shared")
    consumers = [stage.connect().session().consumer(topic, shared=name) for _ in range(3)]
    assert_they_split_what_is_sent(stage, topic, consumers)


@pytest.mark.needs("shared")
def test_8_3_2_others_get_their_own_copy(stage: Stage) -> None:
    """8.3.2: another shared subscription, and a plain subscriber, each get every message as well."""
    topic = stage.topic()
    session = stage.session()
    consumers = [
        session.consumer(topic, shared=stage.name("shared")),
        session.consumer(topic, shared=stage.name("shared")),
        session.consumer(topic),
    ]
    stage.send(topic, "a")
    assert [next_of(consumer).body for consumer in consumers] == ["a", "a", "a"]


@pytest.mark.needs("shared")
def test_8_3_2_it_lives_as_long_as_one_consumer(stage: Stage) -> None:
    """8.3.2: while one consumer is left nothing is missed, not even what another had unacknowledged."""
    topic = stage.topic()
    name = stage.name("shared")
    leaving, staying = stage.session(Mode.CLIENT), stage.session()
    gone = leaving.consumer(topic, shared=name)
    stage.send(topic, "a")
    next_of(gone)
    kept = staying.consumer(topic, shared=name)
    leaving.close()
    assert next_of(kept).body == "a"
    stage.send(topic, "b")
    assert next_of(kept).body == "b"


@pytest.mark.needs("shared")
def test_8_3_2_it_ends_with_its_last_consumer(stage: Stage) -> None:
    """8.3.2: it is not kept, and its undelivered messages are deleted with it."""
    topic = stage.topic()
    name = stage.name("shared")
    session = stage.session()
    consumers = [session.consumer(topic, shared=name) for _ in range(2)]
    stage.send(topic, "undelivered 1", "undelivered 2")
    for consumer in consumers:
        consumer.close()
    stage.send(topic, "while away")
    assert stage.up_to_fence(session.consumer(topic, shared=name), topic) == []


@pytest.mark.req("J7")
@pytest.mark.needs("shared")
def test_8_3_2_another_selector_is_refused_while_it_is_in_use(stage: Stage) -> None:
    """8.3.2: a consumer with the same name and another selector is an error while one is active."""
    topic = stage.topic()
    name = stage.name("shared")
    session = stage.session()
    session.consumer(topic, shared=name, selector="a = 1")
    with pytest.raises(JmsError):
        session.consumer(topic, shared=name, selector="a = 2")
    with pytest.raises(JmsError):
        session.consumer(topic, shared=name)


@pytest.mark.needs("shared")
def test_8_3_2_another_topic_is_refused_while_it_is_in_use(stage: Stage) -> None:
    """8.3.2: a consumer with the same name on another topic is an error while one is active."""
    name = stage.name("shared")
    session = stage.session()
    session.consumer(stage.topic(), shared=name)
    with pytest.raises(JmsError):
        session.consumer(stage.topic(), shared=name)


@pytest.mark.req("J7")
@pytest.mark.needs("shared")
def test_8_3_2_a_selector_decides_what_is_added(stage: Stage) -> None:
    """8.3.2: only matching messages are added to it."""
    topic = stage.topic()
    consumer = stage.session().consumer(topic, shared=stage.name("shared"), selector="n = 2")
    for n in range(4):
        stage.send(topic, f"message {n}", properties={"n": n})
    assert bodies_of(stage.up_to_fence(consumer, topic, n=2)) == ["message 2"]


@pytest.mark.needs("shared", "client-id")
def test_8_3_2_a_client_identifier_is_part_of_its_identity(stage: Stage) -> None:
    """8.3.2: consumers with different client identifiers, or none, have different subscriptions."""
    topic = stage.topic()
    name = stage.name("shared")
    connections = [stage.connect(), stage.connect(client_id=stage.name("client"))]
    consumers = [connection.session().consumer(topic, shared=name) for connection in connections]
    stage.send(topic, "a")
    assert [next_of(consumer).body for consumer in consumers] == ["a", "a"]


@pytest.mark.needs("shared", "durable", "client-id")
def test_8_3_2_a_durable_subscription_of_the_same_name_is_another(stage: Stage) -> None:
    """8.3.2: durable and non-durable subscriptions of one name are completely separate."""
    topic = stage.topic()
    name = stage.name("subscription")
    session = stage.connect(client_id=stage.name("client")).session()
    consumers = [session.consumer(topic, shared=name), session.consumer(topic, durable=name)]
    stage.send(topic, "a")
    assert [next_of(consumer).body for consumer in consumers] == ["a", "a"]


# ---- 8.3.3 unshared durable subscriptions


@pytest.mark.needs("durable", "client-id")
def test_8_3_3_messages_are_kept_while_its_consumer_is_away(stage: Stage) -> None:
    """8.3.3: all messages of the topic are retained until they are delivered and acknowledged."""
    topic = stage.topic()
    name = stage.name("subscription")
    session = stage.connect(client_id=stage.name("client")).session()
    session.consumer(topic, durable=name).close()
    stage.send(topic, *[f"message {n}" for n in range(20)])
    consumer = session.consumer(topic, durable=name)
    assert bodies_of(take(consumer, 20)) == [f"message {n}" for n in range(20)]


@pytest.mark.needs("durable", "client-id")
def test_8_3_3_what_was_acknowledged_does_not_come_again(stage: Stage) -> None:
    """8.3.3 and 4.2.2: a later consumer resumes the subscription where the former one left it."""
    topic = stage.topic()
    name = stage.name("subscription")
    session = stage.connect(client_id=stage.name("client")).session()
    with session.consumer(topic, durable=name) as consumer:
        stage.send(topic, "a", "b", "c")
        take(consumer, 2)
    assert bodies_of(stage.up_to_fence(session.consumer(topic, durable=name), topic)) == ["c"]


@pytest.mark.needs("durable", "client-id")
def test_8_3_3_it_has_one_active_consumer_at_a_time(stage: Stage) -> None:
    """8.3.3: another consumer with the same name and client identifier is an error while one is active."""
    topic = stage.topic()
    name = stage.name("subscription")
    connection = stage.connect(client_id=stage.name("client"))
    first = connection.session().consumer(topic, durable=name)
    with pytest.raises(JmsError):
        connection.session().consumer(topic, durable=name)
    first.close()
    connection.session().consumer(topic, durable=name)


@pytest.mark.req("J7")
@pytest.mark.needs("durable", "client-id")
def test_8_3_3_another_selector_makes_it_anew(stage: Stage) -> None:
    """8.3.3: the same name with another selector deletes the old subscription and makes a new one."""
    topic = stage.topic()
    name = stage.name("subscription")
    session = stage.connect(client_id=stage.name("client")).session()
    session.consumer(topic, durable=name, selector="n > 0").close()
    stage.send(topic, "for the old one", properties={"n": 1})
    with session.consumer(topic, durable=name, selector="n < 0") as consumer:
        stage.send(topic, "for the new one", properties={"n": -1})
        assert bodies_of(stage.up_to_fence(consumer, topic, n=-5)) == ["for the new one"]


@pytest.mark.needs("durable", "client-id")
def test_8_3_3_another_topic_makes_it_anew(stage: Stage) -> None:
    """8.3.3: the same name on another topic deletes the old subscription and makes a new one."""
    old, new = stage.topic(), stage.topic()
    name = stage.name("subscription")
    session = stage.connect(client_id=stage.name("client")).session()
    session.consumer(old, durable=name).close()
    stage.send(old, "for the old one")
    session.consumer(new, durable=name).close()
    stage.send(old, "nobody is there")
    stage.send(new, "for the new one")
    with session.consumer(new, durable=name) as consumer:
        assert bodies_of(stage.up_to_fence(consumer, new)) == ["for the new one"]
    with session.consumer(old, durable=name) as consumer:
        assert stage.up_to_fence(consumer, old) == []


@pytest.mark.req("J9")
@pytest.mark.needs("durable", "client-id", "no-local")
def test_8_3_3_another_no_local_makes_it_anew(stage: Stage) -> None:
    """8.3.3: a changed no-local deletes the old subscription and makes a new one."""
    topic = stage.topic()
    name = stage.name("subscription")
    session = stage.connect(client_id=stage.name("client")).session()
    session.consumer(topic, durable=name).close()
    stage.send(topic, "for the old one")
    consumer = session.consumer(topic, durable=name, no_local=True)
    assert stage.up_to_fence(consumer, topic) == []


@pytest.mark.req("J9")
@pytest.mark.needs("durable", "client-id", "no-local")
def test_8_3_3_no_local_holds_for_the_client_identifier(stage: Stage) -> None:
    """8.3.3: own messages are those of any connection with the subscriber's client identifier.

    A message that a client published is not added to its no-local durable subscription, though the
    connection that published it is not the one that made the subscription.
    """
    topic = stage.topic()
    name, client = stage.name("subscription"), stage.name("client")
    with stage.provider.connect(client_id=client) as connection:
        connection.session().consumer(topic, durable=name, no_local=True).close()
    with stage.provider.connect(client_id=client) as connection:
        connection.session().producer(topic).send("mine, on another connection")
    stage.send(topic, "another's")
    consumer = stage.connect(client_id=client).session().consumer(topic, durable=name, no_local=True)
    assert bodies_of(stage.up_to_fence(consumer, topic)) == ["another's"]


@pytest.mark.req("J7")
@pytest.mark.needs("durable", "client-id")
def test_8_3_3_a_selector_decides_what_is_kept(stage: Stage) -> None:
    """8.3.3: only matching messages are added, while the consumer is away too."""
    topic = stage.topic()
    name = stage.name("subscription")
    session = stage.connect(client_id=stage.name("client")).session()
    session.consumer(topic, durable=name, selector="n >= 2").close()
    for n in range(4):
        stage.send(topic, f"message {n}", properties={"n": n})
    consumer = session.consumer(topic, durable=name, selector="n >= 2")
    assert bodies_of(stage.up_to_fence(consumer, topic, n=9)) == ["message 2", "message 3"]


@pytest.mark.needs("durable", "client-id")
def test_8_3_3_unsubscribing_deletes_it_with_its_messages(stage: Stage) -> None:
    """8.3.3: it accumulates messages until it is deleted; made again, it is new."""
    topic = stage.topic()
    name = stage.name("subscription")
    session = stage.connect(client_id=stage.name("client")).session()
    session.consumer(topic, durable=name).close()
    stage.send(topic, "dropped")
    session.unsubscribe(name)
    stage.send(topic, "not kept")
    assert stage.up_to_fence(session.consumer(topic, durable=name), topic) == []


@pytest.mark.needs("durable", "client-id")
def test_8_3_3_unsubscribing_while_it_has_a_consumer_is_an_error(stage: Stage) -> None:
    """8.3.3: it is erroneous to delete a subscription that is in use, and it stays."""
    topic = stage.topic()
    name = stage.name("subscription")
    connection = stage.connect(client_id=stage.name("client"))
    consumer = connection.session().consumer(topic, durable=name)
    with pytest.raises(JmsError):
        connection.session().unsubscribe(name)
    stage.send(topic, "still there")
    assert next_of(consumer).body == "still there"


@pytest.mark.needs("durable", "client-id")
def test_8_3_3_unsubscribing_what_is_not_there_is_an_error(stage: Stage) -> None:
    """8.3.3 (Session.unsubscribe): an unknown name is an invalid destination."""
    session = stage.connect(client_id=stage.name("client")).session()
    with pytest.raises(JmsError):
        session.unsubscribe(stage.name("unknown"))


@pytest.mark.needs("durable", "client-id")
def test_8_3_3_a_client_cannot_unsubscribe_anothers_subscription(stage: Stage) -> None:
    """8.3.3: the client identifier is part of a subscription's identity."""
    topic = stage.topic()
    name = stage.name("subscription")
    session = stage.connect(client_id=stage.name("client")).session()
    session.consumer(topic, durable=name).close()
    stranger = stage.connect(client_id=stage.name("client")).session()
    with pytest.raises(JmsError):
        stranger.unsubscribe(name)
    stage.send(topic, "still kept")
    assert next_of(session.consumer(topic, durable=name)).body == "still kept"


# ---- 8.3.4 shared durable subscriptions


@pytest.mark.needs("durable", "shared")
def test_8_3_4_each_message_goes_to_one_of_the_consumers(stage: Stage) -> None:
    """8.3.4: the consumers of a shared durable subscription split its messages between them."""
    topic = stage.topic()
    name = stage.name("subscription")
    consumers = [stage.connect().session().consumer(topic, durable=name, shared=name) for _ in range(3)]
    assert_they_split_what_is_sent(stage, topic, consumers)


@pytest.mark.needs("durable", "shared")
def test_8_3_4_messages_are_kept_while_all_consumers_are_away(stage: Stage) -> None:
    """8.3.4: it needs no client identifier, and accumulates messages with no consumer there."""
    topic = stage.topic()
    name = stage.name("subscription")
    stage.session().consumer(topic, durable=name, shared=name).close()
    stage.send(topic, "a", "b")
    consumer = stage.connect().session().consumer(topic, durable=name, shared=name)
    assert bodies_of(take(consumer, 2)) == ["a", "b"]


@pytest.mark.needs("durable", "shared")
def test_8_3_4_what_one_consumer_left_another_gets(stage: Stage) -> None:
    """8.3.4: what a consumer had unacknowledged when it left is redelivered to those who stay."""
    topic = stage.topic()
    name = stage.name("subscription")
    leaving = stage.session(Mode.CLIENT)
    gone = leaving.consumer(topic, durable=name, shared=name)
    stage.send(topic, "a", "b")
    take(gone, 2)
    staying = stage.session().consumer(topic, durable=name, shared=name)
    leaving.close()
    again = take(staying, 2)
    assert sorted((message.body, message.redelivered) for message in again) == [("a", True), ("b", True)]


@pytest.mark.req("J7")
@pytest.mark.needs("durable", "shared")
def test_8_3_4_another_selector_is_refused_while_it_is_in_use(stage: Stage) -> None:
    """8.3.4: a consumer with the same name and another selector is an error while one is active."""
    topic = stage.topic()
    name = stage.name("subscription")
    session = stage.session()
    session.consumer(topic, durable=name, shared=name, selector="a = 1")
    with pytest.raises(JmsError):
        session.consumer(topic, durable=name, shared=name, selector="a = 2")


@pytest.mark.req("J7")
@pytest.mark.needs("durable", "shared")
def test_8_3_4_another_selector_makes_it_anew_when_nobody_uses_it(stage: Stage) -> None:
    """8.3.4: without an active consumer another selector deletes the old one and makes a new one."""
    topic = stage.topic()
    name = stage.name("subscription")
    session = stage.session()
    session.consumer(topic, durable=name, shared=name, selector="a = 1").close()
    stage.send(topic, "for the old one", properties={"a": 1})
    consumer = session.consumer(topic, durable=name, shared=name, selector="a = 2")
    assert stage.up_to_fence(consumer, topic, a=2) == []


@pytest.mark.needs("durable", "shared")
def test_8_3_4_another_topic_is_refused_while_it_is_in_use(stage: Stage) -> None:
    """8.3.4: a consumer with the same name on another topic is an error while one is active."""
    name = stage.name("subscription")
    session = stage.session()
    session.consumer(stage.topic(), durable=name, shared=name)
    with pytest.raises(JmsError):
        session.consumer(stage.topic(), durable=name, shared=name)


@pytest.mark.needs("durable", "shared", "client-id")
def test_8_3_3_an_unshared_consumer_of_a_shared_subscription_is_refused(stage: Stage) -> None:
    """8.3.3: a shared and an unshared durable subscription may not have the same name and client."""
    topic = stage.topic()
    name = stage.name("subscription")
    session = stage.connect(client_id=stage.name("client")).session()
    session.consumer(topic, durable=name, shared=name).close()
    with pytest.raises(JmsError):
        session.consumer(topic, durable=name)


@pytest.mark.needs("durable", "shared", "client-id")
def test_8_3_4_a_shared_consumer_of_an_unshared_subscription_is_refused(stage: Stage) -> None:
    """8.3.4: the same, the other way round."""
    topic = stage.topic()
    name = stage.name("subscription")
    session = stage.connect(client_id=stage.name("client")).session()
    session.consumer(topic, durable=name).close()
    with pytest.raises(JmsError):
        session.consumer(topic, durable=name, shared=name)


@pytest.mark.needs("durable", "shared")
def test_8_3_4_unsubscribing_deletes_it(stage: Stage) -> None:
    """8.3.4: it lives until it is unsubscribed, which is refused while it has a consumer."""
    topic = stage.topic()
    name = stage.name("subscription")
    session = stage.session()
    consumer = session.consumer(topic, durable=name, shared=name)
    with pytest.raises(JmsError):
        session.unsubscribe(name)
    consumer.close()
    stage.send(topic, "dropped")
    session.unsubscribe(name)
    assert stage.up_to_fence(session.consumer(topic, durable=name, shared=name), topic) == []


@pytest.mark.req("J1")
@pytest.mark.needs("durable", "shared")
def test_9_2_a_queue_has_no_subscriptions(stage: Stage) -> None:
    """9.2: durable and shared consumers are for topics."""
    session = stage.session()
    name = stage.name("subscription")
    with pytest.raises(JmsError):
        session.consumer(stage.queue(), shared=name)
    with pytest.raises(JmsError):
        session.consumer(stage.queue(), durable=name, shared=name)


# ---- 8.5 receiving


@pytest.mark.req("J12")
def test_8_5_receive_waits_for_a_message(stage: Stage) -> None:
    """8.5: receive returns the next message, whenever it comes."""
    queue = stage.queue()
    consumer = stage.session().consumer(queue)
    received: list[Message | None] = []
    waiting = threading.Thread(target=lambda: received.append(consumer.receive()))
    waiting.start()
    stage.send(queue, "a")
    waiting.join(60)
    assert bodies_of(message for message in received if message is not None) == ["a"]


@pytest.mark.req("J12")
def test_8_5_receive_gives_up_after_its_timeout(stage: Stage) -> None:
    """8.5: without a message in time it returns null, and not sooner."""
    consumer = stage.session().consumer(stage.queue())
    began = time.monotonic()
    assert consumer.receive(0.05) is None
    assert 0.045 <= time.monotonic() - began < 5


@pytest.mark.req("J12")
def test_8_5_receive_no_wait_does_not_wait(stage: Stage) -> None:
    """8.5: it returns at once, with a message if one is here."""
    queue = stage.queue()
    consumer = stage.session().consumer(queue)
    assert consumer.receive_no_wait() is None
    stage.send(queue, "a")
    received: list[Message] = []

    def look() -> bool:
        message = consumer.receive_no_wait()
        if message is not None:
            received.append(message)
        return bool(received)

    until(look, "the message has come")
    assert bodies_of(received) == ["a"]
    assert consumer.receive_no_wait() is None


@pytest.mark.req("J12")
def test_8_5_a_timed_out_receive_loses_nothing(stage: Stage) -> None:
    """8.5: a message that comes after the time-out is for the next call."""
    queue = stage.queue()
    consumer = stage.session().consumer(queue)
    for n in range(10):
        assert consumer.receive(0.001) is None
        stage.send(queue, f"message {n}")
        assert next_of(consumer).body == f"message {n}"


@pytest.mark.req("J12")
def test_8_5_the_ways_of_receiving_share_one_stream(stage: Stage) -> None:
    """8.5: receive with and without time-out and iteration go on where the other left off."""
    queue = stage.queue()
    consumer = stage.session().consumer(queue)
    stage.send(queue, *[f"message {n}" for n in range(6)])
    received = bodies_of(take(consumer, 2))
    for message in consumer:
        received.append(message.body)
        if len(received) == 4:
            break
    received += bodies_of(take(consumer, 2))
    assert received == [f"message {n}" for n in range(6)]


# ---- 8.8 closing a consumer


@pytest.mark.req("J12")
def test_8_8_closing_ends_a_waiting_receive(stage: Stage) -> None:
    """8.8: a blocked receive returns null when the consumer is closed."""
    consumer = stage.session().consumer(stage.queue())
    outcome: list[Message | JmsError | None] = []

    def wait() -> None:
        try:
            outcome.append(consumer.receive())
        except JmsError as error:
            outcome.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join(0.05)  # a moment to come to its receive
    consumer.close()
    waiting.join(60)
    assert outcome == [None]


@pytest.mark.req("J12")
def test_8_8_a_closed_consumer_receives_nothing(stage: Stage) -> None:
    """8.8: using it is an illegal state, and closing it again is ignored."""
    queue = stage.queue()
    consumer = stage.session().consumer(queue)
    consumer.close()
    consumer.close()
    stage.send(queue, "a")
    with pytest.raises(IllegalState):
        consumer.receive(0.01)
    assert bodies_of(stage.left_in(queue)) == ["a"]


@pytest.mark.req("J4")
def test_8_8_what_was_not_handed_over_is_for_others(stage: Stage) -> None:
    """8.8: closing ends delivery; messages that the application has not got stay on the queue, in order."""
    queue = stage.queue()
    stage.send(queue, *[f"message {n}" for n in range(10)])
    session = stage.session()
    consumer = session.consumer(queue)
    take(consumer, 3)
    consumer.close()
    assert bodies_of(stage.left_in(queue)) == [f"message {n}" for n in range(3, 10)]


@pytest.mark.req("J4")
def test_8_8_auto_messages_delivered_before_the_close_are_acknowledged(stage: Stage) -> None:
    """8.8: with automatic acknowledgement they are acknowledged as normal."""
    queue = stage.queue()
    stage.send(queue, "a", "b")
    session = stage.session(Mode.AUTO)
    consumer = session.consumer(queue)
    take(consumer, 2)
    consumer.close()
    session.close()
    assert stage.left_in(queue) == []


@pytest.mark.req("J4")
@pytest.mark.needs("kept-after-close")
def test_8_8_client_messages_may_be_acknowledged_after_the_close(stage: Stage) -> None:
    """8.8: it makes no difference whether the acknowledgement comes before or after the close."""
    queue = stage.queue()
    stage.send(queue, "a", "b", "c")
    with stage.session(Mode.CLIENT) as session:
        consumer = session.consumer(queue)
        messages = take(consumer, 2)
        consumer.close()
        messages[1].acknowledge()
    assert bodies_of(stage.left_in(queue)) == ["c"]


@pytest.mark.req("J4")
@pytest.mark.needs("recover", "kept-after-close")
def test_8_8_client_messages_of_a_closed_consumer_are_nobody_elses(stage: Stage) -> None:
    """8.8: closing a consumer has no effect on acknowledgement: they are the session's until it recovers."""
    queue = stage.queue()
    stage.send(queue, "a")
    session = stage.session(Mode.CLIENT)
    consumer = session.consumer(queue)
    next_of(consumer)
    consumer.close()
    with stage.session().consumer(queue) as other:
        assert nothing_comes(other)
    session.recover()
    again = next_of(session.consumer(queue))
    assert (again.body, again.redelivered) == ("a", True)
