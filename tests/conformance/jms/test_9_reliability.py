"""JMS 2.0, section 9.1: what outlives a stop of the provider."""

from __future__ import annotations

import pytest

from tests.conformance.jms.adapter import InvalidDestination, Mode
from tests.conformance.jms.stage import Stage, bodies_of, next_of, take

pytestmark = [pytest.mark.req("J3"), pytest.mark.needs("restart")]


def restart(stage: Stage) -> Stage:
    """Stop and start the server. The stage for what happens afterwards has new connections."""
    stage.close()
    stage.provider.stop_server()
    stage.provider.start_server()
    return Stage(stage.provider)


@pytest.mark.needs("sent-ids")
def test_9_1_persistent_messages_of_a_queue_outlive_a_restart(fragile_stage: Stage) -> None:
    """9.1 and 7.7: a persistent message is not lost, and all of it is still there, in order."""
    queue = fragile_stage.queue()
    sent = fragile_stage.send(queue, "a", "b", properties={"p": 1}, correlation_id="c", priority=6)
    after = restart(fragile_stage)
    left = after.left_in(queue)
    assert [(message.id, message.body) for message in left] == list(zip(sent, ["a", "b"], strict=True))
    assert all(
        (dict(each.properties), each.correlation_id, each.priority) == ({"p": 1}, "c", 6) for each in left
    )
    after.close()


def test_9_1_acknowledged_messages_do_not_come_back_after_a_restart(fragile_stage: Stage) -> None:
    """9.1 and 6.2.11: what was acknowledged is never delivered again."""
    queue = fragile_stage.queue()
    fragile_stage.send(queue, "a", "b", "c")
    consumer = fragile_stage.session(Mode.CLIENT).consumer(queue)
    take(consumer, 2)[1].acknowledge()
    after = restart(fragile_stage)
    assert bodies_of(after.left_in(queue)) == ["c"]
    after.close()


def test_9_1_unacknowledged_messages_are_marked_after_a_failure(fragile_stage: Stage) -> None:
    """9.1: messages redelivered due to a failure have JMSRedelivered set and a greater count."""
    queue = fragile_stage.queue()
    fragile_stage.send(queue, "a")
    next_of(fragile_stage.session(Mode.CLIENT).consumer(queue))
    fragile_stage.provider.stop_server()
    fragile_stage.provider.start_server()
    after = Stage(fragile_stage.provider)
    again = next_of(after.session().consumer(queue))
    assert (again.body, again.redelivered) == ("a", True)
    assert again.delivery_count >= 2
    after.close()


@pytest.mark.req("J6")
@pytest.mark.needs("durable", "client-id")
def test_9_1_a_durable_subscription_outlives_a_restart(fragile_stage: Stage) -> None:
    """9.1 and 8.3.3: a durable subscription is persisted with the messages that wait in it."""
    topic = fragile_stage.topic()
    with fragile_stage.provider.connect(client_id="client") as connection:
        connection.session().consumer(topic, durable="subscription", selector="n > 0").close()
    fragile_stage.send(topic, "a", properties={"n": 1})
    after = restart(fragile_stage)
    after.send(topic, "unwanted", properties={"n": 0})
    after.send(topic, "b", properties={"n": 1})
    session = after.connect(client_id="client").session()
    consumer = session.consumer(topic, durable="subscription", selector="n > 0")
    assert bodies_of(after.up_to_fence(consumer, topic, n=1)) == ["a", "b"]
    after.close()


@pytest.mark.req("J6")
@pytest.mark.needs("durable", "client-id")
def test_9_1_an_unsubscribed_subscription_stays_away_after_a_restart(fragile_stage: Stage) -> None:
    """8.3.3: what was deleted is not made again by a restart."""
    topic = fragile_stage.topic()
    with fragile_stage.provider.connect(client_id="client") as connection:
        session = connection.session()
        session.consumer(topic, durable="subscription").close()
        fragile_stage.send(topic, "dropped")
        session.unsubscribe("subscription")
    after = restart(fragile_stage)
    consumer = after.connect(client_id="client").session().consumer(topic, durable="subscription")
    assert after.up_to_fence(consumer, topic) == []
    after.close()


@pytest.mark.req("J6")
def test_9_1_a_non_durable_subscription_does_not_outlive_a_restart(fragile_stage: Stage) -> None:
    """9.1: non-durable subscriptions are unreliable by definition; afterwards nothing is left of them."""
    topic = fragile_stage.topic()
    fragile_stage.session().consumer(topic)
    fragile_stage.send(topic, "unread")
    after = restart(fragile_stage)
    assert after.up_to_fence(after.session().consumer(topic), topic) == []
    after.close()


@pytest.mark.req("J5")
@pytest.mark.needs("transactions")
def test_9_1_a_committed_transaction_outlives_a_restart(fragile_stage: Stage) -> None:
    """9.1: after the commit returned, its output is there and its input is not."""
    source, target = fragile_stage.queue(), fragile_stage.queue()
    fragile_stage.send(source, "input")
    session = fragile_stage.session(Mode.TRANSACTED)
    next_of(session.consumer(source))
    session.producer(target).send("output")
    session.commit()
    after = restart(fragile_stage)
    assert (after.left_in(source), bodies_of(after.left_in(target))) == ([], ["output"])
    after.close()


@pytest.mark.req("J5")
@pytest.mark.needs("transactions")
def test_9_1_an_open_transaction_does_not_outlive_a_restart(fragile_stage: Stage) -> None:
    """9.1: without a commit its output was never sent and its input comes back, marked."""
    source, target = fragile_stage.queue(), fragile_stage.queue()
    fragile_stage.send(source, "input")
    session = fragile_stage.session(Mode.TRANSACTED)
    next_of(session.consumer(source))
    session.producer(target).send("output")
    fragile_stage.provider.stop_server()
    fragile_stage.provider.start_server()
    after = Stage(fragile_stage.provider)
    (left,) = after.left_in(source)
    assert (left.body, left.redelivered) == ("input", True)
    assert after.left_in(target) == []
    after.close()


@pytest.mark.req("J8")
@pytest.mark.needs("delay")
def test_9_1_a_delayed_message_outlives_a_restart(fragile_stage: Stage) -> None:
    """9.1 and 7.9: a persistent message that waits for its time is kept, and its time holds."""
    queue = fragile_stage.queue()
    fragile_stage.send(queue, "much later", delay=3600)
    fragile_stage.send(queue, "soon", delay=0.1)
    after = restart(fragile_stage)
    consumer = after.session().consumer(queue)
    assert next_of(consumer).body == "soon"
    assert consumer.receive_no_wait() is None
    after.close()


@pytest.mark.req("J9")
@pytest.mark.needs("temporary")
def test_9_1_temporary_destinations_do_not_outlive_a_restart(fragile_stage: Stage) -> None:
    """9.1 and 6.2.2: they end with their connection, however that ended."""
    queue = fragile_stage.session().temporary_queue()
    fragile_stage.send(queue, "a")
    after = restart(fragile_stage)
    with pytest.raises(InvalidDestination):
        after.send(queue, "b")
    assert after.session().temporary_queue() != queue
    after.close()


@pytest.mark.req("J2")
@pytest.mark.needs("sent-ids")
def test_9_1_ids_stay_unique_over_a_restart(fragile_stage: Stage) -> None:
    """3.4.3: an id is a key in a historical repository, so a restarted provider repeats none."""
    queue = fragile_stage.queue()
    before = fragile_stage.send(queue, *[b""] * 10)
    after = restart(fragile_stage)
    assert not set(before) & set(after.send(queue, *[b""] * 10))
    after.close()
