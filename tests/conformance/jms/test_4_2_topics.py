"""JMS 2.0, section 4.2: topics and their subscriptions in general; chapter 8 has them kind by kind."""

from __future__ import annotations

import pytest

from tests.conformance.jms.adapter import JmsError, Mode
from tests.conformance.jms.stage import Stage, bodies_of, next_of, take

pytestmark = pytest.mark.req("J6")


@pytest.mark.req("J1")
def test_4_2_2_every_subscription_gets_a_copy(stage: Stage) -> None:
    """4.2.2: each subscription receives every message that is sent after it was made."""
    topic = stage.topic()
    subscribers = [stage.connect().session().consumer(topic) for _ in range(3)]
    stage.send(topic, "a", "b")
    assert [bodies_of(take(subscriber, 2)) for subscriber in subscribers] == [["a", "b"]] * 3


def test_4_2_2_a_subscription_begins_when_it_is_made(stage: Stage) -> None:
    """4.2.2: what was sent before belongs to those who were there."""
    topic = stage.topic()
    stage.send(topic, "too early")
    subscriber = stage.session().consumer(topic)
    assert stage.up_to_fence(subscriber, topic) == []


@pytest.mark.needs("recover")
def test_4_2_2_acknowledging_one_copy_does_not_acknowledge_another(stage: Stage) -> None:
    """4.2.2: each copy is a completely separate message."""
    topic = stage.topic()
    diligent, careless = stage.session(Mode.CLIENT), stage.session(Mode.CLIENT)
    one, two = diligent.consumer(topic), careless.consumer(topic)
    stage.send(topic, b"")
    next_of(one).acknowledge()
    next_of(two)
    careless.recover()
    assert next_of(two).redelivered
    assert stage.up_to_fence(one, topic) == []


def test_4_2_2_a_slow_subscriber_does_not_hold_up_the_others(stage: Stage) -> None:
    """4.2.2: one copy may be delivered at once while another waits for its consumer."""
    topic = stage.topic()
    stopped = stage.connect(started=False)
    waiting = stopped.session().consumer(topic)
    quick = stage.session().consumer(topic)
    stage.send(topic, *[f"message {n}" for n in range(50)])
    assert len(take(quick, 50)) == 50
    stopped.start()
    assert len(take(waiting, 50)) == 50


@pytest.mark.req("J11")
def test_4_2_2_every_subscriber_gets_one_senders_messages_in_order(stage: Stage) -> None:
    """4.2.2 and 6.2.9: order is kept in each subscription."""
    topic = stage.topic()
    subscribers = [stage.session().consumer(topic), stage.session().consumer(topic)]
    bodies = [f"message {n}" for n in range(100)]
    stage.send(topic, *bodies)
    assert [bodies_of(take(subscriber, 100)) for subscriber in subscribers] == [bodies, bodies]


@pytest.mark.needs("sent-ids")
def test_4_2_2_a_message_without_subscribers_is_gone(stage: Stage) -> None:
    """4.2.2: a topic keeps nothing by itself; sending to one that nobody hears is no error."""
    topic = stage.topic()
    (identity,) = stage.send(topic, "into the void")
    assert identity
    assert stage.up_to_fence(stage.session().consumer(topic), topic) == []


@pytest.mark.needs("durable", "client-id")
@pytest.mark.parametrize("name", ["Grüße_1.2-3", "n" * 128])
def test_4_2_4_characters_and_length_of_a_subscription_name(stage: Stage, name: str) -> None:
    """4.2.4: letters, digits, underscore, dot and minus, up to 128 of them, name a subscription."""
    topic = stage.topic()
    session = stage.connect(client_id=stage.name("client")).session()
    session.consumer(topic, durable=name).close()
    stage.send(topic, "kept")
    with session.consumer(topic, durable=name) as consumer:
        assert next_of(consumer).body == "kept"
    session.unsubscribe(name)


@pytest.mark.req("J9")
@pytest.mark.needs("temporary")
def test_4_2_7_only_its_connection_consumes_from_a_temporary_topic(stage: Stage) -> None:
    """4.2.7: all may publish to it, and only the connection that made it may subscribe."""
    session = stage.session()
    topic = session.temporary_topic()
    stranger = stage.connect().session()
    with pytest.raises(JmsError):
        stranger.consumer(topic)
    subscriber = session.consumer(topic)
    stranger.producer(topic).send("hello")
    assert next_of(subscriber).body == "hello"


@pytest.mark.req("J9")
@pytest.mark.needs("temporary")
def test_4_2_7_every_subscriber_of_a_temporary_topic_gets_a_copy(stage: Stage) -> None:
    """4.2.7: a temporary topic is a topic in every other respect."""
    session = stage.session()
    topic = session.temporary_topic()
    subscribers = [session.consumer(topic), stage.session().consumer(topic)]
    stage.send(topic, "hello")
    assert [next_of(subscriber).body for subscriber in subscribers] == ["hello", "hello"]


@pytest.mark.needs("recover")
def test_4_2_8_a_nondurable_subscriber_recovers_as_long_as_it_lives(stage: Stage) -> None:
    """4.2.8: unacknowledged messages of a non-durable subscriber can be recovered while it is there."""
    topic = stage.topic()
    session = stage.session(Mode.CLIENT)
    subscriber = session.consumer(topic)
    stage.send(topic, "a", "b")
    take(subscriber, 2)
    session.recover()
    again = take(subscriber, 2)
    assert [(message.body, message.redelivered) for message in again] == [("a", True), ("b", True)]


@pytest.mark.needs("durable", "client-id")
def test_4_2_8_a_durable_subscription_recovers_what_was_not_acknowledged(stage: Stage) -> None:
    """4.2.8 and 6.2: what a consumer left unacknowledged, the next one of the subscription gets again."""
    topic = stage.topic()
    name, client = stage.name("subscription"), stage.name("client")
    with stage.provider.connect(client_id=client) as connection:
        consumer = connection.session(Mode.CLIENT).consumer(topic, durable=name)
        stage.send(topic, "a", "b")
        take(consumer, 2)
    resumed = stage.connect(client_id=client).session().consumer(topic, durable=name)
    again = take(resumed, 2)
    assert [(message.body, message.redelivered) for message in again] == [("a", True), ("b", True)]


@pytest.mark.needs("durable", "client-id")
def test_4_2_9_durable_subscriptions_are_made_and_deleted_by_clients(stage: Stage) -> None:
    """4.2.9: a provider runs applications that make and delete durable subscriptions as they go."""
    topic = stage.topic()
    session = stage.connect(client_id=stage.name("client")).session()
    for n in range(5):
        name = stage.name("subscription")
        with session.consumer(topic, durable=name) as consumer:
            stage.send(topic, f"round {n}")
            assert next_of(consumer).body == f"round {n}"
        session.unsubscribe(name)


@pytest.mark.needs("durable", "client-id")
def test_4_2_11_a_durable_subscriber_misses_nothing(stage: Stage) -> None:
    """4.2.11: messages published while a durable subscriber is away are delivered when it is back."""
    topic = stage.topic()
    name, client = stage.name("subscription"), stage.name("client")
    with stage.provider.connect(client_id=client) as connection:
        consumer = connection.session().consumer(topic, durable=name)
        stage.send(topic, "present")
        assert next_of(consumer).body == "present"
    stage.send(topic, "absent 1", "absent 2")
    consumer = stage.connect(client_id=client).session().consumer(topic, durable=name)
    stage.send(topic, "back")
    assert bodies_of(take(consumer, 3)) == ["absent 1", "absent 2", "back"]
