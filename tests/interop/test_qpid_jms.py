"""Java through Qpid JMS: send, receive, acknowledge, transact, subscribe durably, reconnect. All the rest that JMS
has is in `tests/conformance/jms`, which runs over it, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.jms.qpid_bridge import Bridge, needs_java
from tests.interop.stage import SECONDS, Stage, on_a_single_server

pytestmark = [pytest.mark.req("X1"), pytest.mark.slow, needs_java]
_TRANSACTED, _AUTO, _CLIENT = 0, 1, 2  # javax.jms.Session


@pytest.fixture(scope="module")
def bridge() -> Iterator[Bridge]:
    bridge = Bridge()
    yield bridge
    bridge.close()


class Java:
    """One connection over there, with a session."""

    def __init__(self, bridge: Bridge, stage: Stage, mode: int = _AUTO, client_id: str = "") -> None:
        self._bridge = bridge
        # It comes back by itself, as a client in production does.
        url = (
            f"failover:(amqp://{stage.host}:{stage.port})"
            "?failover.initialReconnectDelay=50&failover.reconnectDelay=50&failover.useReconnectBackOff=false"
        )
        self.connection = bridge.call("connect", url=url, client_id=client_id, started=True)
        self.session = bridge.call("session", of=self.connection, mode=mode)

    def producer(self, kind: str, name: str) -> Any:
        where = {"kind": kind, "name": name}
        return self._bridge.call("producer", of=self.session, destination=where, options={})

    def consumer(self, kind: str, name: str, **more: Any) -> Any:
        where = {"kind": kind, "name": name}
        return self._bridge.call(
            "consumer", of=self.session, destination=where, selector="", no_local=False, **more
        )

    def send(self, producer: Any, *texts: str) -> None:
        for text in texts:
            self._bridge.call("send", of=producer, body=["text", text], options={})

    def receive(self, consumer: Any, count: int) -> list[dict[str, Any]]:
        found = [self._bridge.call("receive", of=consumer, timeout=SECONDS) for _ in range(count)]
        assert None not in found
        return found

    def do(self, word: str) -> None:
        self._bridge.call(word, of=self.session)

    def close(self) -> None:
        self._bridge.call("close", of=self.connection)


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [message["body"][1] for message in messages]


def test_messages_are_sent_received_and_acknowledged(stage: Stage, bridge: Bridge) -> None:
    first = Java(bridge, stage, _CLIENT)
    first.send(first.producer("queue", "java-plain"), "one", "two", "three")
    seen = first.receive(first.consumer("queue", "java-plain"), 3)
    assert texts(seen) == ["one", "two", "three"]
    first.close()
    second = Java(bridge, stage, _CLIENT)
    again = second.receive(second.consumer("queue", "java-plain"), 3)
    assert [(message["body"][1], message["redelivered"]) for message in again] == [
        ("one", True),
        ("two", True),
        ("three", True),
    ]
    bridge.call("acknowledge", of=again[1]["thing"])  # in JMS: all that the session has consumed
    second.close()
    third = Java(bridge, stage)
    third.send(third.producer("queue", "java-plain"), "fence")
    assert texts(third.receive(third.consumer("queue", "java-plain"), 1)) == ["fence"]
    third.close()


def test_what_is_sent_and_taken_in_a_transaction_takes_effect_when_it_is_committed(
    stage: Stage, bridge: Bridge
) -> None:
    java = Java(bridge, stage, _TRANSACTED)
    producer, consumer = java.producer("queue", "java-transacted"), java.consumer("queue", "java-transacted")
    java.send(producer, "never")
    java.do("rollback")
    java.send(producer, "sent")
    java.do("commit")
    (taken,) = java.receive(consumer, 1)
    java.do("rollback")
    (again,) = java.receive(consumer, 1)
    java.do("commit")
    assert [taken["body"][1], taken["redelivered"]] == ["sent", False]
    assert [again["body"][1], again["redelivered"]] == ["sent", True]
    java.close()
    other = Java(bridge, stage)
    other.send(other.producer("queue", "java-transacted"), "fence")
    assert texts(other.receive(other.consumer("queue", "java-transacted"), 1)) == ["fence"]
    other.close()


def test_a_durable_subscription_waits_for_its_client(stage: Stage, bridge: Bridge) -> None:
    subscriber = Java(bridge, stage, client_id="java-reader")
    subscriber.consumer("topic", "java-news", durable="news")
    subscriber.close()
    sender = Java(bridge, stage)
    sender.send(sender.producer("topic", "java-news"), "meanwhile", "and more")
    sender.close()
    back = Java(bridge, stage, client_id="java-reader")
    assert texts(back.receive(back.consumer("topic", "java-news", durable="news"), 2)) == [
        "meanwhile",
        "and more",
    ]
    back.close()


@on_a_single_server
def test_a_client_comes_back_after_a_restart(stage: Stage, bridge: Bridge) -> None:
    """The same producer and the same consumer go on; what was confirmed is there once or, unacknowledged, again."""
    java = Java(bridge, stage, client_id="java-returning")
    producer = java.producer("queue", "java-again")
    news = java.consumer("topic", "java-again", durable="news")
    java.send(producer, *[str(number) for number in range(50)])
    stage.restart()
    java.send(producer, *[str(number) for number in range(50, 100)])
    java.send(java.producer("topic", "java-again"), "still subscribed")
    assert texts(java.receive(news, 1)) == ["still subscribed"]
    found = texts(java.receive(java.consumer("queue", "java-again"), 100))
    assert found == [str(number) for number in range(100)]
    java.close()
