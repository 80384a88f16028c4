"""JMS 2.0, chapter 7: sending messages."""

from __future__ import annotations

import threading
import time

import pytest

from tests.conformance.jms.adapter import Destination, IllegalState, InvalidDestination, JmsError, Mode
from tests.conformance.jms.stage import Stage, bodies_of, next_of, take, until

pytestmark = pytest.mark.req("J12")


def test_7_1_a_producer_sends_to_its_destination(stage: Stage) -> None:
    """7.1: a producer is made for a destination, and what it sends goes there."""
    one, two = stage.queue(), stage.queue()
    session = stage.session()
    first, second = session.producer(one), session.producer(two)
    first.send("one")
    second.send("two")
    assert (bodies_of(stage.left_in(one)), bodies_of(stage.left_in(two))) == (["one"], ["two"])


def test_7_2_a_synchronous_send_returns_when_the_message_is_there(stage: Stage) -> None:
    """7.2: when the send has returned, another client can receive the message."""
    queue = stage.queue()
    stage.session().producer(queue).send("there")
    assert bodies_of(stage.left_in(queue)) == ["there"]


@pytest.mark.parametrize("name", ["", "has\nline end"])
@pytest.mark.needs("checked-producers")
def test_7_2_a_destination_that_cannot_be_is_refused(stage: Stage, name: str) -> None:
    """10.3: a destination that the provider does not understand is an invalid destination."""
    session = stage.session()
    with pytest.raises(InvalidDestination):
        session.producer(Destination("queue", name))
    with pytest.raises(InvalidDestination):
        session.consumer(Destination("queue", name))


def test_7_2_a_closed_producer_cannot_send(stage: Stage) -> None:
    """7.1 (MessageProducer.close): its use is an illegal state, and closing it again is ignored."""
    producer = stage.session().producer(stage.queue())
    producer.close()
    producer.close()
    with pytest.raises(IllegalState):
        producer.send(b"")


def test_7_2_closing_a_producer_does_not_touch_what_it_sent(stage: Stage) -> None:
    """7.1: the messages of a closed producer are delivered as any others."""
    queue = stage.queue()
    session = stage.session()
    with session.producer(queue) as producer:
        producer.send("a")
    session.producer(queue).send("b")
    assert bodies_of(stage.left_in(queue)) == ["a", "b"]


# ---- 7.3 asynchronous send


@pytest.mark.needs("completion")
def test_7_3_the_listener_is_told_of_each_message(stage: Stage) -> None:
    """7.3.1: the listener is called once for each message that was sent as safely as by send."""
    queue = stage.queue()
    heard: list[JmsError | None] = []
    producer = stage.session().producer(queue)
    for n in range(50):
        producer.send_async(f"message {n}", heard.append)
    until(lambda: len(heard) >= 50, "fifty completions were heard")
    assert heard == [None] * 50
    assert bodies_of(stage.left_in(queue)) == [f"message {n}" for n in range(50)]


@pytest.mark.needs("completion")
def test_7_3_1_the_listener_is_not_told_before_the_message_is_there(stage: Stage) -> None:
    """7.3.1: completion promises what the return of a synchronous send promises."""
    queue = stage.queue()
    done = threading.Event()
    stage.session().producer(queue).send_async("there", lambda _error: done.set())
    assert done.wait(60)
    assert bodies_of(stage.left_in(queue)) == ["there"]


@pytest.mark.needs("completion")
def test_7_3_2_an_error_of_the_call_is_raised_and_not_told(stage: Stage) -> None:
    """7.3.2: what is found during the call is raised there, and the listener is not called."""
    heard: list[JmsError | None] = []
    producer = stage.session().producer(stage.queue())
    with pytest.raises(JmsError):
        producer.send_async(b"", heard.append, priority=99)
    producer.close()
    assert heard == []


@pytest.mark.needs("completion", "temporary")
def test_7_3_2_an_error_after_the_call_is_told(stage: Stage) -> None:
    """7.3.2: what cannot be raised in the call any more, the listener hears."""
    owner = stage.session()
    queue = owner.temporary_queue()
    heard: list[JmsError | None] = []
    producer = stage.connect().session().producer(queue)
    producer.send(b"while it is there")
    owner.delete_temporary(queue)
    producer.send_async(b"too late", heard.append)
    until(lambda: heard, "the listener was called")
    assert isinstance(heard[0], JmsError)


@pytest.mark.needs("completion")
@pytest.mark.req("J11")
def test_7_3_3_synchronous_and_asynchronous_sends_keep_one_order(stage: Stage) -> None:
    """7.3.3: the order of a producer's messages holds for any mixture, without waiting for completion."""
    queue = stage.queue()
    producer = stage.session().producer(queue)
    for n in range(60):
        if n % 7 == 0:
            producer.send(f"message {n}")
        else:
            producer.send_async(f"message {n}", lambda _error: None)
    producer.close()
    assert bodies_of(stage.left_in(queue)) == [f"message {n}" for n in range(60)]


@pytest.mark.needs("completion")
@pytest.mark.parametrize("what", ["producer", "session", "connection"])
def test_7_3_4_closing_waits_for_incomplete_sends(stage: Stage, what: str) -> None:
    """7.3.4: close returns after all sends are complete and all listeners have returned."""
    queue = stage.queue()
    heard: list[JmsError | None] = []
    connection = stage.connect()
    session = connection.session()
    producer = session.producer(queue)
    for _ in range(100):
        producer.send_async(b"x" * 1000, heard.append)
    {"producer": producer, "session": session, "connection": connection}[what].close()
    assert heard == [None] * 100
    assert len(stage.left_in(queue)) == 100


@pytest.mark.needs("completion", "transactions")
def test_7_3_4_a_commit_waits_for_incomplete_sends(stage: Stage) -> None:
    """7.3.4: commit covers what was sent asynchronously before it."""
    queue = stage.queue()
    heard: list[JmsError | None] = []
    session = stage.session(Mode.TRANSACTED)
    producer = session.producer(queue)
    for _ in range(100):
        producer.send_async(b"", heard.append)
    session.commit()
    until(lambda: len(heard) == 100, "all completions were heard")
    assert heard == [None] * 100
    assert len(stage.left_in(queue)) == 100


@pytest.mark.needs("completion", "transactions")
def test_7_3_4_a_rollback_completes_or_fails_every_send(stage: Stage) -> None:
    """7.3.4: after a rollback no listener is left without a word, and nothing was sent."""
    queue = stage.queue()
    heard: list[JmsError | None] = []
    session = stage.session(Mode.TRANSACTED)
    producer = session.producer(queue)
    for _ in range(20):
        producer.send_async(b"", heard.append)
    session.rollback()
    until(lambda: len(heard) == 20, "every listener was called")
    assert stage.left_in(queue) == []


@pytest.mark.needs("completion")
def test_7_3_8_listeners_are_called_in_the_order_of_the_sends(stage: Stage) -> None:
    """7.3.8: the callbacks of a producer come in the order of its sends."""
    producer = stage.session().producer(stage.queue())
    heard: list[int] = []

    def listener(n: int) -> None:
        producer.send_async(b"", lambda _error: heard.append(n))

    for n in range(100):
        listener(n)
    until(lambda: len(heard) == 100, "all completions were heard")
    assert heard == list(range(100))


@pytest.mark.needs("completion")
def test_7_3_8_listeners_are_called_from_another_thread(stage: Stage) -> None:
    """7.3.8: a provider must not call the listener from the thread that sends."""
    callers: list[threading.Thread] = []
    stage.session().producer(stage.queue()).send_async(
        b"", lambda _error: callers.append(threading.current_thread())
    )
    until(lambda: callers, "the listener was called")
    assert callers != [threading.current_thread()]


# ---- 7.4 delivery options


def test_7_4_what_a_producer_says_holds_for_all_its_messages(stage: Stage) -> None:
    """7.4: delivery mode, priority and time to live may be set on the producer."""
    queue = stage.queue()
    producer = stage.session().producer(queue, persistent=False, priority=8, time_to_live=60)
    producer.send("a")
    producer.send("b")
    for message in take(stage.session().consumer(queue), 2):
        assert (message.persistent, message.priority) == (False, 8)
        assert 59.9 < message.expiration - message.timestamp < 60.1


def test_7_4_what_a_send_says_overrides_its_producer(stage: Stage) -> None:
    """7.4: values given to the send are used instead, for that message only."""
    queue = stage.queue()
    producer = stage.session().producer(queue, persistent=False, priority=8, time_to_live=60)
    producer.send("special", persistent=True, priority=9, time_to_live=600)
    producer.send("usual")
    special, usual = take(stage.session().consumer(queue), 2)
    assert (special.persistent, special.priority) == (True, 9)
    assert 599.9 < special.expiration - special.timestamp < 600.1
    assert (usual.persistent, usual.priority) == (False, 8)


@pytest.mark.req("J8")
@pytest.mark.needs("delay")
def test_7_4_a_producers_delay_holds_for_all_its_messages(stage: Stage) -> None:
    """7.4 and 7.9: the delivery delay may be set on the producer."""
    queue = stage.queue()
    producer = stage.session().producer(queue, delay=0.06)
    began = time.time()
    producer.send("a")
    producer.send("b")
    for message in take(stage.session().consumer(queue), 2):
        assert message.delivery_time >= began + 0.055
        assert time.time() >= message.delivery_time - 0.005


def test_7_5_properties_and_7_6_headers_of_one_message_do_not_stick(stage: Stage) -> None:
    """7.5 and 7.6: what a client sets for one message is not in the next."""
    queue = stage.queue()
    producer = stage.session().producer(queue)
    producer.send("decorated", properties={"a": 1}, correlation_id="c", type="t", group_id="g")
    producer.send("plain")
    plain = take(stage.session().consumer(queue), 2)[1]
    assert (dict(plain.properties), plain.correlation_id, plain.type, plain.group_id) == (
        {},
        None,
        None,
        None,
    )


# ---- 7.7 to 7.9


@pytest.mark.req("J3")
def test_7_7_messages_of_both_modes_are_delivered_once(stage: Stage) -> None:
    """7.7: a persistent message arrives once and only once, a non-persistent one not twice."""
    queue = stage.queue()
    producer = stage.session().producer(queue)
    for n in range(40):
        producer.send(n.to_bytes(), persistent=n % 2 == 0)
    assert len({message.id for message in stage.left_in(queue)}) == 40


@pytest.mark.req("J8")
def test_7_8_a_message_within_its_time_to_live_is_delivered(stage: Stage) -> None:
    """7.8: a message does not expire before its time."""
    queue = stage.queue()
    stage.send(queue, "in time", time_to_live=30)
    assert bodies_of(stage.left_in(queue)) == ["in time"]


@pytest.mark.req("J8")
def test_7_8_each_message_has_its_own_time_to_live(stage: Stage) -> None:
    """7.8: an expired message takes no neighbour with it, wherever it stands."""
    queue = stage.queue()
    for n in range(9):
        if n % 3 == 1:
            stage.send(queue, f"message {n}", time_to_live=0.02)
        else:
            stage.send(queue, f"message {n}")
    sent = time.time()
    until(lambda: time.time() > sent + 0.03, "some have expired")
    assert bodies_of(stage.left_in(queue)) == [f"message {n}" for n in (0, 2, 3, 5, 6, 8)]


@pytest.mark.req("J8")
@pytest.mark.needs("browse")
def test_7_8_an_expired_message_is_not_shown_to_a_browser(stage: Stage) -> None:
    """7.8 and 3.4.9: it is destroyed, so it is not there to be seen."""
    queue = stage.queue()
    stage.send(queue, "short-lived", time_to_live=0.02)
    stage.send(queue, "lasting")
    sent = time.time()
    until(lambda: time.time() > sent + 0.03, "the first has expired")
    assert bodies_of(stage.session().browser(queue)) == ["lasting"]


@pytest.mark.req("J8")
@pytest.mark.needs("delay")
def test_7_9_messages_come_by_their_delivery_time(stage: Stage) -> None:
    """7.9: different delays are honoured each for itself. They are far apart: what a busy server finds due at one
    moment comes in the order in which it was sent."""
    queue = stage.queue()
    consumer = stage.session().consumer(queue)
    delays = {"message 0": 1.5, "message 1": 0.1, "message 2": 0.8}
    for body, delay in delays.items():
        stage.send(queue, body, delay=delay)
    found = take(consumer, 3)
    assert bodies_of(found) == bodies_of(sorted(found, key=lambda message: message.delivery_time))
    for message in found:
        assert message.delivery_time - message.timestamp == pytest.approx(delays[str(message.body)], abs=0.01)


@pytest.mark.req("J8")
@pytest.mark.needs("delay")
def test_7_9_a_delayed_message_reaches_the_subscriptions_that_were_there_when_it_was_sent(
    stage: Stage,
) -> None:
    """7.9: a message is added to a subscription only if that exists at the time of the send."""
    topic = stage.topic()
    session = stage.session()
    early = session.consumer(topic)
    stage.send(topic, "delayed", delay=0.08)
    late = session.consumer(topic)
    assert next_of(early).body == "delayed"
    assert stage.up_to_fence(late, topic) == []


@pytest.mark.req("J8")
@pytest.mark.needs("delay", "recover")
def test_7_9_a_delayed_message_is_redelivered_without_another_delay(stage: Stage) -> None:
    """7.9: the delivery time is a moment; once it has passed it holds nothing up."""
    queue = stage.queue()
    session = stage.session(Mode.CLIENT)
    consumer = session.consumer(queue)
    stage.send(queue, "a", delay=0.05)
    first = next_of(consumer)
    session.recover()
    again = next_of(consumer)
    assert (again.redelivered, again.delivery_time) == (True, first.delivery_time)
