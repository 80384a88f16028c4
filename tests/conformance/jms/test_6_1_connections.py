"""JMS 2.0, section 6.1: connections; and 6.2.2, the temporary destinations that live and die with them."""

from __future__ import annotations

import threading
import time

import pytest

from tests.conformance.jms.adapter import (
    Account,
    Destination,
    IllegalState,
    InvalidDestination,
    JmsError,
    Message,
    Mode,
    Provider,
    SecurityViolation,
)
from tests.conformance.jms.stage import Stage, bodies_of, next_of, nothing_comes, take, until

pytestmark = pytest.mark.req("J12")


def test_6_1_a_connection_has_any_number_of_sessions(stage: Stage) -> None:
    """6.1: one connection is used for several sessions, each with its own producers and consumers."""
    queue = stage.queue()
    sessions = [stage.session() for _ in range(20)]
    for n, session in enumerate(sessions):
        session.producer(queue).send(f"session {n}")
    assert set(map(str, bodies_of(stage.left_in(queue)))) == {f"session {n}" for n in range(20)}


# ---- 6.1.1 authentication


@pytest.mark.req("X2")
@pytest.mark.needs("authentication")
def test_6_1_1_a_client_is_authenticated_when_it_connects(guarded: Provider) -> None:
    """6.1.1 and 10.3: name and password are checked then, and wrong ones are a security violation."""
    for account in (None, Account("alice", "wrong"), Account("nobody", "open sesame")):
        with pytest.raises(SecurityViolation):
            guarded.connect(account=account)
    with guarded.connect(account=Account("alice", "open sesame")) as connection:
        assert connection.user == "alice"


@pytest.mark.req("X2", "J2")
@pytest.mark.needs("authentication", "user-id")
def test_3_5_9_the_user_id_is_the_authenticated_one(guarded: Provider) -> None:
    """3.5.9: JMSXUserID is who has sent the message, as proved when it connected."""
    with guarded.connect(account=Account("alice", "open sesame")) as connection:
        session = connection.session()
        queue = Destination("queue", "signed")
        session.producer(queue).send(b"")
        assert next_of(session.consumer(queue)).user_id == "alice"


@pytest.mark.req("X2")
@pytest.mark.needs("authentication", "checked-producers")
def test_10_3_what_a_user_may_not_do_is_a_security_violation(guarded: Provider) -> None:
    """10.3: a restriction that prevents a call is reported as such."""
    with guarded.connect(account=Account("mallory", "let me in")) as connection:
        session = connection.session()
        queue = Destination("queue", "not for mallory")
        with pytest.raises(SecurityViolation):
            session.producer(queue)
        with pytest.raises(SecurityViolation):
            session.consumer(queue)


# ---- 6.1.2 client identifier


@pytest.mark.needs("durable", "client-id")
def test_6_1_2_a_clients_state_is_in_use_by_one_client_at_a_time(stage: Stage) -> None:
    """6.1.2: a second client cannot use the state of an identifier that is in use; nothing is doubled."""
    topic = stage.topic()
    name, client = stage.name("subscription"), stage.name("client")
    first = stage.connect(client_id=client).session().consumer(topic, durable=name)
    with pytest.raises(JmsError):
        stage.connect(client_id=client).session().consumer(topic, durable=name)
    stage.send(topic, "once")
    assert bodies_of(stage.up_to_fence(first, topic)) == ["once"]


@pytest.mark.needs("client-id")
def test_6_1_2_a_client_identifier_is_free_again_when_its_connection_is_closed(stage: Stage) -> None:
    """6.1.2: the identifier names the client, not the connection."""
    client = stage.name("client")
    for _ in range(3):
        with stage.provider.connect(client_id=client) as connection:
            connection.session()


@pytest.mark.needs("durable", "client-id")
def test_6_1_2_an_unshared_durable_subscription_needs_a_client_identifier(stage: Stage) -> None:
    """6.1.2 and 8.3.3: the identifier is mandatory there."""
    session = stage.session()
    with pytest.raises(JmsError):
        session.consumer(stage.topic(), durable=stage.name("subscription"))


@pytest.mark.needs("durable", "client-id")
def test_6_1_2_subscriptions_of_different_clients_are_different(stage: Stage) -> None:
    """6.1.2: the same name under another identifier is another subscription."""
    topic = stage.topic()
    name = stage.name("subscription")
    consumers = [
        stage.connect(client_id=stage.name("client")).session().consumer(topic, durable=name)
        for _ in range(2)
    ]
    stage.send(topic, "to both")
    assert [next_of(consumer).body for consumer in consumers] == ["to both", "to both"]


# ---- 6.1.4 starting, 6.1.5 stopping


def test_6_1_4_nothing_is_delivered_before_the_connection_is_started(stage: Stage) -> None:
    """6.1.4: clients rely on it that no message comes before they have started the connection."""
    queue = stage.queue()
    stage.send(queue, "waiting")
    connection = stage.connect(started=False)
    consumer = connection.session().consumer(queue)
    assert nothing_comes(consumer)
    connection.start()
    assert next_of(consumer).body == "waiting"


def test_6_1_4_a_connection_that_is_not_started_can_send(stage: Stage) -> None:
    """6.1.4: started or stopped concerns receiving only."""
    queue = stage.queue()
    stage.connect(started=False).session().producer(queue).send("sent")
    assert bodies_of(stage.left_in(queue)) == ["sent"]


def test_6_1_5_a_stopped_connection_delivers_nothing(stage: Stage) -> None:
    """6.1.5: when stop returns, delivery has paused for all consumers, what came before included."""
    queue, topic = stage.queue(), stage.topic()
    connection = stage.connect()
    consumers = [connection.session().consumer(queue), connection.session().consumer(topic)]
    connection.stop()
    for destination in (queue, topic):
        stage.send(destination, "while stopped")
    assert [nothing_comes(consumer) for consumer in consumers] == [True, True]
    assert [consumer.receive_no_wait() for consumer in consumers] == [None, None]
    connection.start()
    assert [next_of(consumer).body for consumer in consumers] == ["while stopped", "while stopped"]


def test_6_1_5_stopping_in_the_middle_loses_nothing_and_keeps_the_order(stage: Stage) -> None:
    """6.1.5: messages that wait when the connection is stopped are delivered after the next start."""
    queue = stage.queue()
    connection = stage.connect()
    consumer = connection.session().consumer(queue)
    stage.send(queue, *[f"message {n}" for n in range(10)])
    received = bodies_of(take(consumer, 4))
    connection.stop()
    assert consumer.receive_no_wait() is None
    connection.start()
    assert received + bodies_of(take(consumer, 6)) == [f"message {n}" for n in range(10)]


def test_6_1_5_a_receive_times_out_while_the_connection_is_stopped(stage: Stage) -> None:
    """6.1.5: the timers of receives go on."""
    queue = stage.queue()
    stage.send(queue, b"")
    connection = stage.connect(started=False)
    began = time.monotonic()
    assert connection.session().consumer(queue).receive(0.05) is None
    assert time.monotonic() - began >= 0.045


def test_6_1_5_a_waiting_receive_goes_on_when_the_connection_is_started(stage: Stage) -> None:
    """6.1.5: a synchronous receive blocks while the connection is stopped, and returns after the start."""
    queue = stage.queue()
    stage.send(queue, "at last")
    connection = stage.connect(started=False)
    consumer = connection.session().consumer(queue)
    received: list[Message | None] = []
    waiting = threading.Thread(target=lambda: received.append(consumer.receive(30)))
    waiting.start()
    connection.start()
    waiting.join(60)
    assert bodies_of(message for message in received if message is not None) == ["at last"]


def test_6_1_5_starting_and_stopping_twice_is_ignored(stage: Stage) -> None:
    """6.1.5: stopping a stopped connection and starting a started one do nothing."""
    queue = stage.queue()
    connection = stage.connect()
    consumer = connection.session().consumer(queue)
    connection.stop()
    connection.stop()
    stage.send(queue, "a")
    assert consumer.receive_no_wait() is None
    connection.start()
    connection.start()
    assert next_of(consumer).body == "a"


def test_6_1_5_consumers_made_while_stopped_are_stopped(stage: Stage) -> None:
    """6.1.5: stopping concerns all consumers of the connection, those made later too."""
    queue = stage.queue()
    stage.send(queue, "a")
    connection = stage.connect()
    connection.stop()
    consumer = connection.session().consumer(queue)
    assert nothing_comes(consumer)
    connection.start()
    assert next_of(consumer).body == "a"


def test_6_1_5_another_connection_is_not_stopped(stage: Stage) -> None:
    """6.1.5: stopping one connection does not touch another."""
    topic = stage.topic()
    stopped, other = stage.connect(), stage.connect()
    asleep, awake = stopped.session().consumer(topic), other.session().consumer(topic)
    stopped.stop()
    stage.send(topic, "a")
    assert next_of(awake).body == "a"
    assert asleep.receive_no_wait() is None


# ---- 6.1.7 the exception listener


@pytest.mark.needs("restart")
def test_6_1_7_a_client_is_told_when_its_connection_fails(fragile_stage: Stage) -> None:
    """6.1.7: a client that only waits for messages learns from its listener that the connection is gone."""
    heard: list[JmsError] = []
    connection = fragile_stage.connect(on_error=heard.append)
    connection.session().consumer(fragile_stage.queue())
    fragile_stage.provider.stop_server()
    until(lambda: heard, "the client has heard of it")


# ---- 6.1.8 closing


def test_6_1_8_closing_a_connection_closes_what_it_made(stage: Stage) -> None:
    """6.1.8: sessions, producers and consumers end with it, and their use is an illegal state."""
    queue = stage.queue()
    connection = stage.connect()
    session = connection.session()
    producer, consumer = session.producer(queue), session.consumer(queue)
    connection.close()
    with pytest.raises(IllegalState):
        session.producer(queue)
    with pytest.raises(IllegalState):
        session.consumer(queue)
    with pytest.raises(IllegalState):
        producer.send(b"")
    with pytest.raises(IllegalState):
        consumer.receive(0.01)


def test_6_1_8_a_closed_connection_cannot_be_used(stage: Stage) -> None:
    """6.1.8: an attempt to use it is an illegal state."""
    connection = stage.connect()
    connection.close()
    with pytest.raises(IllegalState):
        connection.session()


def test_6_1_8_closing_twice_is_ignored(stage: Stage) -> None:
    """6.1.8: closing a closed connection does not raise, nor closing what it had made."""
    queue = stage.queue()
    connection = stage.connect()
    session = connection.session()
    producer, consumer = session.producer(queue), session.consumer(queue)
    connection.close()
    for each in (connection, session, producer, consumer, connection):
        each.close()


def test_6_1_8_closing_ends_a_waiting_receive(stage: Stage) -> None:
    """6.1.8: pending receives of the connection's consumers return, with null where nothing was there."""
    connection = stage.connect()
    consumer = connection.session().consumer(stage.queue())
    outcome: list[Message | JmsError | None] = []

    def wait() -> None:
        try:
            outcome.append(consumer.receive(20))
        except JmsError as error:
            outcome.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    _until_waiting(waiting)
    connection.close()
    waiting.join(60)
    assert outcome == [None]


def _until_waiting(thread: threading.Thread) -> None:
    """A moment for the thread to come to its receive; if it has not, the close comes first: no harm."""
    thread.join(0.05)


@pytest.mark.needs("transactions")
def test_6_1_8_closing_a_connection_rolls_back_its_transactions(stage: Stage) -> None:
    """6.1.8: what a transacted session sent is dropped, and what it consumed comes back."""
    source, target = stage.queue(), stage.queue()
    stage.send(source, "input")
    connection = stage.connect()
    session = connection.session(Mode.TRANSACTED)
    next_of(session.consumer(source))
    session.producer(target).send("output")
    connection.close()
    again = next_of(stage.session().consumer(source))
    assert (again.body, again.redelivered) == ("input", True)
    assert stage.left_in(target) == []


def test_6_1_8_closing_a_connection_acknowledges_nothing_for_the_client(stage: Stage) -> None:
    """6.1.8: messages of client acknowledged sessions that were not acknowledged come back."""
    queue = stage.queue()
    stage.send(queue, "a", "b")
    connection = stage.connect()
    consumer = connection.session(Mode.CLIENT).consumer(queue)
    next_of(consumer).acknowledge()
    next_of(consumer)
    connection.close()
    again = next_of(stage.session().consumer(queue))
    assert (again.body, again.redelivered) == ("b", True)


def test_6_1_8_acknowledging_after_the_close_is_an_illegal_state(stage: Stage) -> None:
    """6.1.8: a message of a closed connection can be read but not be acknowledged."""
    queue = stage.queue()
    stage.send(queue, "a")
    connection = stage.connect()
    message = next_of(connection.session(Mode.CLIENT).consumer(queue))
    connection.close()
    assert message.body == "a"
    with pytest.raises(IllegalState):
        message.acknowledge()


def test_6_1_8_what_was_received_remains_readable(stage: Stage) -> None:
    """6.1.8: message objects outlive their connection."""
    queue = stage.queue()
    stage.send(queue, {"a": 1}, properties={"p": 2}, correlation_id="c")
    connection = stage.connect()
    message = next_of(connection.session().consumer(queue))
    connection.close()
    assert (message.body, message.properties["p"], message.correlation_id) == ({"a": 1}, 2, "c")


def test_6_1_8_closing_one_connection_does_not_touch_another(stage: Stage) -> None:
    """6.1.8: other connections of the same program go on."""
    queue = stage.queue()
    one, other = stage.connect(), stage.connect()
    consumer = other.session().consumer(queue)
    one.session().producer(queue).send("last words")
    one.close()
    assert next_of(consumer).body == "last words"


# ---- 6.2.2 temporary destinations


@pytest.mark.req("J9")
@pytest.mark.needs("temporary")
def test_6_2_2_any_session_of_the_connection_may_consume(stage: Stage) -> None:
    """6.2.2: the scope of a temporary destination is the connection, not the session that made it."""
    maker = stage.session()
    queue = maker.temporary_queue()
    maker.close()
    stage.send(queue, "hello")
    assert next_of(stage.session().consumer(queue)).body == "hello"


@pytest.mark.req("J9")
@pytest.mark.needs("temporary")
def test_6_2_2_everybody_may_send_to_a_temporary_queue(stage: Stage) -> None:
    """6.2.2: its use as a reply-to depends on that."""
    session = stage.session()
    queue = session.temporary_queue()
    stage.connect().session().producer(queue).send("from elsewhere")
    assert next_of(session.consumer(queue)).body == "from elsewhere"


@pytest.mark.req("J9")
@pytest.mark.needs("temporary")
def test_6_2_2_a_temporary_destination_ends_with_its_connection(stage: Stage) -> None:
    """6.2.2: when the connection is closed, its temporary destinations are deleted."""
    connection = stage.connect()
    queue, topic = connection.session().temporary_queue(), connection.session().temporary_topic()
    stage.send(queue, "kept for a moment")
    connection.close()
    until(lambda: _is_gone(stage, queue), "the queue is deleted")
    until(lambda: _is_gone(stage, topic), "the topic is deleted")


def _is_gone(stage: Stage, destination: Destination) -> bool:
    try:
        stage.send(destination, b"")
    except InvalidDestination:
        return True
    return False


@pytest.mark.req("J9")
@pytest.mark.needs("temporary")
def test_6_2_2_a_temporary_destination_may_be_deleted(stage: Stage) -> None:
    """6.2.2: who needs it no longer deletes it; sending to it is then an invalid destination."""
    session = stage.session()
    queue = session.temporary_queue()
    session.delete_temporary(queue)
    with pytest.raises(InvalidDestination):
        session.producer(queue).send(b"")


@pytest.mark.req("J9")
@pytest.mark.needs("temporary")
def test_6_2_2_a_temporary_destination_with_a_consumer_cannot_be_deleted(stage: Stage) -> None:
    """6.2.2 (TemporaryQueue.delete): it is refused while somebody consumes from it."""
    session = stage.session()
    queue = session.temporary_queue()
    consumer = stage.session().consumer(queue)
    with pytest.raises(JmsError):
        session.delete_temporary(queue)
    consumer.close()
    session.delete_temporary(queue)


@pytest.mark.req("J9")
@pytest.mark.needs("temporary")
def test_6_2_2_only_its_connection_deletes_a_temporary_destination(stage: Stage) -> None:
    """6.2.2: it belongs to the connection that made it."""
    queue = stage.session().temporary_queue()
    stranger = stage.connect().session()
    with pytest.raises(JmsError):
        stranger.delete_temporary(queue)
    stage.send(queue, "still there")
    assert next_of(stage.session().consumer(queue)).body == "still there"


@pytest.mark.req("J9")
@pytest.mark.needs("temporary")
def test_6_2_2_the_messages_of_a_deleted_temporary_queue_are_gone(stage: Stage) -> None:
    """6.2.2: deleting takes the messages along, and the next temporary queue is another one."""
    session = stage.session()
    queue = session.temporary_queue()
    stage.send(queue, "gone")
    session.delete_temporary(queue)
    following = session.temporary_queue()
    assert following != queue
    stage.send(following, "new")
    assert next_of(session.consumer(following)).body == "new"
