"""Alerts for clients of AMQP: published, received by topics, taken once, cancelled, acknowledged, receipted."""

from __future__ import annotations

import base64
import uuid
from typing import Any

import pytest
from proton import Message
from proton.reactor import AtMostOnce, DurableSubscription, Selector
from proton.utils import LinkDetached, SendException

import heliograph
from tests.conformance.jms.qpid_bridge import Bridge, needs_java
from tests.interop.stage import Stage
from tests.interop.test_proton import SECONDS, connected, nothing_comes

pytestmark = pytest.mark.req("X1", "A8")


def topics(text: str) -> Selector:
    quoted = text.replace("'", "''")
    return Selector(f"topics = '{quoted}'")


def alert(destination: str, body: Any = b"", **said: Any) -> Message:
    properties = {"alert_destination": destination, **said.pop("properties", {})}
    return Message(
        id=said.pop("id", str(uuid.uuid4())), body=body, properties=properties, durable=True, **said
    )


def about(action: str, identity: str, body: Any = b"") -> Message:
    return Message(body=body, correlation_id=identity, properties={"alert_action": action})


def taken(receiver: Any) -> Message:
    message = receiver.receive(SECONDS)
    receiver.accept()
    return message


def raw(message: Message) -> bytes:
    return bytes(message.body)


def test_who_subscribes_gets_what_is_live_the_most_urgent_first_and_then_what_comes(stage: Stage) -> None:
    with connected(stage) as connection:
        sender = connection.create_sender("alerts:amqp-ops")
        for priority in (2, 8, 0, 9):
            sender.send(alert("TAG:disk.full", f"p{priority}".encode(), priority=priority))
        sender.send(alert("TAG:network", b"other"))
        receiver = connection.create_receiver(
            "alerts:amqp-ops", credit=1, options=topics("TAG:^disk,cpu;USER:anna")
        )
        assert [raw(taken(receiver)) for _ in range(4)] == [b"p9", b"p8", b"p2", b"p0"]
        nothing_comes(receiver)
        sender.send(alert("USER:anna", "come", ttl=60))
        last = taken(receiver)
        assert (last.properties["alert_destination"], raw(last)) == ("USER:anna", b"come")
        assert (last.properties["alert_type"], last.properties["alert_classification"]) == (
            "alert",
            "unclassified",
        )
        assert (last.priority, last.durable, last.user_id) == (4, True, b"guest")
        assert 0 < last.ttl <= 60
        assert len(last.id) == 24
        assert last.properties["alert_id"] == last.id


def test_our_own_client_and_proton_see_the_same_alert(stage: Stage) -> None:
    async def published() -> str:
        async with heliograph.connect(stage.url) as own:
            return await own.alerts("amqp-shared").publish(
                "PROFILE:night", b"\x00ours", priority=10, duration=90.0, acknowledge="client"
            )

    async def received() -> Any:
        async with heliograph.connect(stage.url) as own:
            consumer = await own.alerts("amqp-shared").subscribe("TAG:'quoted'")
            return await consumer.receive(SECONDS)

    identity = stage.run(published())
    with connected(stage) as connection:
        receiver = connection.create_receiver("/alerts/amqp-shared", options=topics("PROFILE:night"))
        found = taken(receiver)
        assert (found.id, raw(found), found.priority) == (identity, b"\x00ours", 9)
        assert found.properties["alert_acknowledge"] == "client"
        said = {"alert_classification": "secret", "alert_cancel": "any"}
        message = alert("TAG:it's 'quoted'", {"a": 1}, properties=said)
        connection.create_sender("alerts://amqp-shared").send(message)
    ours = stage.run(received())
    assert (ours.destination, ours.classification, ours.body) == ("TAG:it's 'quoted'", "secret", b'{"a":1}')


def test_the_publisher_learns_the_id_and_cancels_the_alert(stage: Stage) -> None:
    with connected(stage) as connection:
        answers = connection.create_receiver(None, dynamic=True)
        sender = connection.create_sender("alerts:amqp-cancel")
        sender.send(alert("TAG:line", b"down", id="mine", reply_to=answers.link.remote_source.address))
        answer = taken(answers)
        assert answer.correlation_id == "mine"
        identity = answer.properties["alert_id"]
        first = connection.create_receiver("alerts:amqp-cancel", options=topics("TAG:line"))
        assert taken(first).id == identity
        # To another it was not sent yet: it has no credit.
        second = connection.create_receiver(
            "alerts:amqp-cancel", name="second", credit=0, options=topics("TAG:line")
        )
        sender.send(about("cancel", identity))
        second.flow(5)
        nothing_comes(second)
        nothing_comes(connection.create_receiver("alerts:amqp-cancel", name="3", options=topics("TAG:line")))


def test_an_acknowledgement_reaches_who_asked_for_it_and_a_receipt_the_publisher(stage: Stage) -> None:
    with connected(stage) as connection, connected(stage) as other:
        sender = connection.create_sender("alerts:amqp-ack")
        answers = connection.create_receiver(None, dynamic=True, credit=10)
        watching = connection.create_receiver(
            "alerts:amqp-ack", options=Selector("acknowledgements = 'TAG:pump' OR topics = 'TAG:none'")
        )
        receiver = other.create_receiver("alerts:amqp-ack", options=topics("TAG:pump"))
        asks = {"alert_acknowledge": "client"}
        sender.send(alert("TAG:pump", b"hot", properties=asks))
        seen = taken(receiver)
        other.create_sender("alerts:amqp-ack").send(about("acknowledge", seen.id, "on my way"))
        word = taken(watching)
        assert (word.correlation_id, raw(word)) == (seen.id, b"on my way")
        assert word.properties["alert_type"] == "acknowledgement"
        asks = {"alert_acknowledge": "receipt"}
        reply_to = answers.link.remote_source.address
        sender.send(alert("TAG:pump", b"cold", id="r", properties=asks, reply_to=reply_to))
        identity = taken(answers).properties["alert_id"]
        assert taken(receiver).id == identity
        nothing_comes(receiver)  # and what was accepted is said
        receipt = taken(answers)
        assert receipt.correlation_id == "r"
        assert (receipt.properties["alert_id"], receipt.properties["alert_receipt_user"]) == (
            identity,
            "guest",
        )


def test_under_a_name_what_was_taken_does_not_come_again_and_what_was_not_does(stage: Stage) -> None:
    name = "night-shift"
    with connected(stage) as connection:
        sender = connection.create_sender("alerts:amqp-named")
        wanted = [topics("TAG:."), DurableSubscription()]
        receiver = connection.create_receiver("alerts:amqp-named", name=name, credit=2, options=wanted)
        sender.send(alert("TAG:a", b"1", priority=9))
        assert raw(taken(receiver)) == b"1"
        sender.send(alert("TAG:a", b"2"))
        assert raw(receiver.receive(SECONDS)) == b"2"
        receiver.detach()
        sender.send(alert("TAG:b", b"3"))
        again = connection.create_receiver("alerts:amqp-named", name=name, credit=5, options=wanted)
        assert [raw(taken(again)) for _ in range(2)] == [b"2", b"3"]
        again.close()
        last = connection.create_receiver("alerts:amqp-named", name=name, credit=5, options=wanted)
        nothing_comes(last)


def test_released_comes_again_and_a_link_that_we_settle_takes_by_itself(stage: Stage) -> None:
    with connected(stage) as connection:
        sender = connection.create_sender("alerts:amqp-settled")
        sender.send(alert("TAG:x", b"once"))
        receiver = connection.create_receiver("alerts:amqp-settled", options=topics("TAG:x"))
        assert receiver.receive(SECONDS).delivery_count == 0
        receiver.release(delivered=False)
        assert taken(receiver).delivery_count == 1
        nothing_comes(receiver)
        wanted = [topics("TAG:x"), DurableSubscription(), AtMostOnce()]
        settled = connection.create_receiver("alerts:amqp-settled", name="auto", options=wanted)
        assert raw(settled.receive(SECONDS)) == b"once"

    async def delivered() -> bool:
        async with heliograph.connect(stage.url) as own:
            channel = own.alerts("amqp-settled")
            live = await channel.list()
            trail = await channel.audit(live[0]["id"])
            return "auto" in str(trail)

    for _ in range(100):
        if stage.run(delivered()):
            return
    raise AssertionError("it was not noted that it was taken")


@pytest.mark.parametrize(
    ("selector", "sentence"),
    [
        ("", "which alerts are wanted"),
        ("price > 5", "which alerts are wanted"),
        ("topics = 'DISK:x'", "topics begin with TAG:"),
        ("topics = 'TAG:('", "missing"),
    ],
)
def test_a_wish_that_cannot_be_read_is_refused_with_its_link(
    stage: Stage, selector: str, sentence: str
) -> None:
    with connected(stage) as connection:
        options = [Selector(selector)] if selector else []
        with pytest.raises(LinkDetached, match=sentence):
            connection.create_receiver("alerts:amqp-refused", options=options)
        connection.create_sender("alerts:amqp-refused").send(alert("TAG:y"))


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (Message(body=b""), "alert_destination"),
        (alert("NOBODY"), "TAG:TEXT"),
        (alert("TAG:x", properties={"alert_cancel": "never"}), "alert_cancel is one of"),
        (alert("TAG:x", bytes(40_000)), "at most 32768 bytes"),
        (about("acknowledge", "xyz"), "hexadecimal"),
        (about("applaud", "0" * 24), "alert_action is"),
        (about("cancel", "0" * 24), "alert"),
    ],
)
def test_what_is_wrong_with_an_alert_is_its_outcome(stage: Stage, message: Message, sentence: str) -> None:
    with connected(stage) as connection:
        sender = connection.create_sender("alerts:amqp-wrong")
        with pytest.raises(SendException):
            sender.send(message)
        sender.send(alert("TAG:fine"))
        anywhere = connection.create_sender(None)
        anywhere.send(Message(address="alerts:amqp-wrong", properties={"alert_destination": "TAG:relay"}))


@needs_java
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_java_client_gets_an_alert_and_acknowledges_it(stage: Stage) -> None:
    """Qpid JMS, which checks selectors before it sends them."""
    bridge = Bridge()
    try:
        url = f"amqp://{stage.host}:{stage.port}"
        java = bridge.call("connect", url=url, client_id="java-alerts", started=True)
        session = bridge.call("session", of=java, mode=1)
        channel = {"kind": "topic", "name": "alerts:amqp-java"}
        wanted = "topics = 'TAG:^pump$;USER:anna'"
        consumer = bridge.call(
            "consumer", of=session, destination=channel, selector=wanted, no_local=False, durable="java"
        )
        producer = bridge.call("producer", of=session, destination=channel, options={})
        asks = {"alert_destination": "TAG:pump", "alert_acknowledge": "client"}
        options: dict[str, Any] = {"priority": 8, "properties": asks}
        bridge.call("send", of=producer, body=["text", "heiß"], options=options)
        found = bridge.call("receive", of=consumer, timeout=SECONDS)
        assert found["body"] == ["bytes", base64.b64encode("heiß".encode()).decode()]
        assert (found["priority"], found["properties"]["alert_destination"]) == (8, "TAG:pump")
        assert found["destination"] == channel
        options = {"correlation_id": found["message_id"], "properties": {"alert_action": "acknowledge"}}
        bridge.call("send", of=producer, body=["text", "seen"], options=options)
        with connected(stage) as connection:
            watching = connection.create_receiver(
                "alerts:amqp-java", options=Selector("acknowledgements = 'TAG:pump'")
            )
            word = taken(watching)
            assert (word.correlation_id, raw(word)) == (found["properties"]["alert_id"], b"seen")
        bridge.call("close", of=java)
    finally:
        bridge.close()
