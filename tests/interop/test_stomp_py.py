"""stomp.py, the usual STOMP client for Python: send, receive, acknowledge, transact, subscribe durably, reconnect."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import stomp

from heliograph import connect_blocking
from tests.interop.stage import Stage, wait_for

pytestmark = pytest.mark.req("X1")
_VERSIONS = {"1.0": stomp.Connection10, "1.1": stomp.Connection11, "1.2": stomp.Connection12}


class Heard(stomp.ConnectionListener):  # type: ignore[misc]
    """What a connection was told."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.receipts: list[str] = []
        self.errors: list[Any] = []
        self.heartbeats = 0
        self.is_over = False

    def on_heartbeat(self) -> None:
        self.heartbeats += 1

    def on_message(self, frame: Any) -> None:
        self.messages.append(frame)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.append(frame.headers["receipt-id"])

    def on_error(self, frame: Any) -> None:
        self.errors.append(frame)

    def on_disconnected(self) -> None:
        self.is_over = True

    @property
    def bodies(self) -> list[Any]:
        return [frame.body for frame in self.messages]

    def await_messages(self, count: int) -> list[Any]:
        wait_for(lambda: len(self.messages) >= count, f"{count} messages came, not {len(self.messages)}")
        assert self.errors == []
        return self.messages

    def await_receipt(self, receipt: str) -> None:
        wait_for(lambda: receipt in self.receipts or self.errors, f"receipt {receipt} came")
        assert self.errors == []


@contextmanager
def connected(
    stage: Stage, version: str = "1.2", client_id: str = "", **options: Any
) -> Iterator[tuple[Any, Heard]]:
    connection = _VERSIONS[version]([(stage.host, stage.port)], **options)
    heard = Heard()
    connection.set_listener("heard", heard)
    headers = {"client-id": client_id} if client_id else {}
    connection.connect(wait=True, headers=headers)
    try:
        yield connection, heard
    finally:
        if connection.is_connected():
            connection.disconnect()


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_messages_are_sent_received_and_acknowledged_in_each_version(stage: Stage, version: str) -> None:
    queue = f"/queue/versions-{version}"
    with connected(stage, version) as (connection, heard):
        connection.subscribe(queue, id="s", ack="client")
        for number in range(10):
            connection.send(queue, f"message {number}", headers={"colour": "blue"}, receipt=f"r{number}")
        messages = heard.await_messages(10)
        assert heard.bodies == [f"message {number}" for number in range(10)]
        assert {frame.headers["colour"] for frame in messages} == {"blue"}
        heard.await_receipt("r9")
        last = messages[-1].headers
        if version == "1.2":
            connection.ack(last["ack"], receipt="acked")
        elif version == "1.1":
            connection.ack(last["message-id"], "s", receipt="acked")
        else:
            connection.ack(last["message-id"], receipt="acked")
        heard.await_receipt("acked")
    with connected(stage, version) as (connection, heard):  # all of them were acknowledged with the last
        connection.subscribe(queue, id="s", ack="auto", receipt="there")
        connection.send(queue, "after")
        assert [frame.body for frame in heard.await_messages(1)] == ["after"]


def test_what_is_not_acknowledged_comes_again_marked_and_what_is_rejected_does(stage: Stage) -> None:
    with connected(stage) as (connection, heard):
        connection.subscribe("/queue/again", id="s", ack="client-individual")
        for body in ("done", "rejected", "forgotten"):
            connection.send("/queue/again", body)
        done, rejected, _ = heard.await_messages(3)
        connection.ack(done.headers["ack"], receipt="a")
        heard.await_receipt("a")
        connection.nack(rejected.headers["ack"])
        again = heard.await_messages(4)[3]
        assert (again.body, again.headers["redelivered"], again.headers["JMSXDeliveryCount"]) == (
            "rejected",
            "true",
            "2",
        )
    with connected(stage) as (connection, heard):
        connection.subscribe("/queue/again", id="s")
        both = heard.await_messages(2)
        assert sorted(frame.body for frame in both) == ["forgotten", "rejected"]
        assert [frame.headers["redelivered"] for frame in both] == ["true", "true"]


def test_a_client_says_that_a_message_is_useless_or_that_nobody_saw_it(stage: Stage) -> None:
    with connected(stage) as (connection, heard):
        connection.subscribe("/queue/fates", id="s", ack="client-individual")
        for body in ("useless", "unseen"):
            connection.send("/queue/fates", body)
        useless, unseen = heard.await_messages(2)
        connection.nack(useless.headers["ack"], receipt="dead", requeue="false")
        heard.await_receipt("dead")
        connection.nack(unseen.headers["ack"], delivered="false")
        again = heard.await_messages(3)[2]
        assert (again.body, again.headers.get("redelivered")) == ("unseen", None)
        connection.ack(again.headers["ack"])
        connection.subscribe("/queue/_DMQ", id="dead")
        wait_for(lambda: "useless" in heard.bodies[3:], "it is among the dead")


@pytest.mark.parametrize(("end", "comes_back"), [("commit", []), ("abort", ["taken"])])
def test_what_a_transaction_acknowledged_is_its_own_though_its_subscription_has_ended(
    stage: Stage, end: str, comes_back: list[str]
) -> None:
    queue = f"/queue/leaving-{end}"
    with connected(stage) as (connection, heard), connected(stage) as (other, overheard):
        connection.send(queue, "taken")
        connection.send(queue, "left")
        connection.subscribe(queue, id="s", ack="client-individual")
        taken, _ = heard.await_messages(2)
        connection.begin("t")
        connection.ack(taken.headers["ack"], transaction="t")
        connection.unsubscribe("s", receipt="gone")
        heard.await_receipt("gone")
        other.subscribe(queue, id="o")
        overheard.await_messages(1)
        getattr(connection, end)("t", receipt="ended")
        heard.await_receipt("ended")
        other.send(queue, "last")
        overheard.await_messages(2 + len(comes_back))
        assert overheard.bodies == ["left", *comes_back, "last"]


def test_a_transaction_sends_and_acknowledges_together_or_not_at_all(stage: Stage) -> None:
    with connected(stage) as (connection, heard), connected(stage) as (_other, overheard):
        _other.subscribe("/queue/results", id="r", receipt="there")
        overheard.await_receipt("there")
        connection.send("/queue/work", "request", receipt="sent")
        heard.await_receipt("sent")
        connection.subscribe("/queue/work", id="w", ack="client-individual")
        (request,) = heard.await_messages(1)
        connection.begin("dropped")
        connection.ack(request.headers["ack"], transaction="dropped")
        connection.send("/queue/results", "never", transaction="dropped")
        connection.abort("dropped", receipt="aborted")
        heard.await_receipt("aborted")
        connection.begin("kept")
        connection.ack(request.headers["ack"], transaction="kept")
        connection.send("/queue/results", "result", transaction="kept")
        connection.send("/queue/results", "another", transaction="kept")
        assert overheard.messages == []
        connection.commit("kept", receipt="committed")
        heard.await_receipt("committed")
        overheard.await_messages(2)
        assert overheard.bodies == ["result", "another"]
    with connected(stage) as (connection, heard):
        connection.subscribe("/queue/work", id="w")
        connection.send("/queue/work", "next")
        assert [frame.body for frame in heard.await_messages(1)] == ["next"]


def test_a_durable_subscription_keeps_what_comes_while_its_client_is_away(stage: Stage) -> None:
    def subscribe(connection: Any, heard: Heard) -> None:
        connection.subscribe("/topic/news", id="mine", headers={"durable": "true"}, receipt="there")
        heard.await_receipt("there")

    with connected(stage, client_id="reader") as (connection, heard):
        subscribe(connection, heard)
    with connected(stage) as (connection, heard):
        connection.send("/topic/news", "while away", receipt="sent")
        heard.await_receipt("sent")
    with connected(stage, client_id="reader") as (connection, heard):
        subscribe(connection, heard)
        heard.await_messages(1)
        assert heard.bodies == ["while away"]
        connection.unsubscribe("mine", headers={"durable": "true"}, receipt="ended")
        heard.await_receipt("ended")
        connection.send("/topic/news", "to nobody", receipt="sent")
        heard.await_receipt("sent")
        subscribe(connection, heard)
        connection.send("/topic/news", "to somebody")
        heard.await_messages(2)
        assert heard.bodies == ["while away", "to somebody"]


def test_a_selector_picks_and_a_wrong_one_is_an_error_with_its_place(stage: Stage) -> None:
    with connected(stage) as (connection, heard):
        connection.subscribe("/topic/weather", id="s", headers={"selector": "town = 'Bern'"}, receipt="there")
        heard.await_receipt("there")
        for town in ("Basel", "Bern", "Biel"):
            connection.send("/topic/weather", f"sun in {town}", headers={"town": town})
        connection.send("/topic/weather", "rain in Bern", headers={"town": "Bern"})
        heard.await_messages(2)
        assert heard.bodies == ["sun in Bern", "rain in Bern"]
    with connected(stage) as (connection, heard):
        connection.subscribe("/topic/weather", id="s", headers={"selector": "town = "}, receipt="r")
        wait_for(lambda: heard.errors, "an error came")
        assert heard.errors[0].headers["code"] == "selector-invalid"
        assert heard.errors[0].headers["receipt-id"] == "r"
        wait_for(lambda: heard.is_over, "the connection was ended")


def test_priority_expiry_delay_and_unit_of_order_are_headers(stage: Stage) -> None:
    with connected(stage) as (connection, heard):
        now = int(time.time() * 1000)
        connection.send("/queue/headers", "expired", headers={"expires": str(now - 1000)})
        connection.send("/queue/headers", "late", headers={"delay": "2000"})
        connection.send(
            "/queue/headers", "usual", headers={"unit-of-order": "u", "expires": str(now + 60_000)}
        )
        connection.send("/queue/headers", "urgent", headers={"priority": "9"}, receipt="sent")
        heard.await_receipt("sent")
        connection.subscribe("/queue/headers", id="s")
        heard.await_messages(3)
        assert heard.bodies == ["urgent", "usual", "late"]
        urgent, usual, _ = heard.messages
        assert urgent.headers["priority"] == "9"
        assert usual.headers["unit-of-order"] == "u"
        assert usual.headers["expires"] == str(now + 60_000)


def test_request_and_reply_over_a_temporary_queue(stage: Stage) -> None:
    with connected(stage) as (asker, heard), connected(stage) as (server, asked):
        server.subscribe("/queue/questions", id="q", receipt="there")
        asked.await_receipt("there")
        asker.subscribe("/temp-queue/answers", id="a")
        asker.send(
            "/queue/questions", "why?", headers={"reply-to": "/temp-queue/answers", "correlation-id": "7"}
        )
        (question,) = asked.await_messages(1)
        headers = {"correlation-id": question.headers["correlation-id"]}
        server.send(question.headers["reply-to"], "because", headers=headers)
        (answer,) = heard.await_messages(1)
        assert (answer.body, answer.headers["correlation-id"]) == ("because", "7")


def test_bodies_of_any_bytes_and_headers_with_any_letters(stage: Stage) -> None:
    body = bytes(range(256)) * 300
    with connected(stage, auto_decode=False) as (connection, heard):
        connection.subscribe("/queue/bytes", id="s")
        connection.send("/queue/bytes", body, headers={"odd": "a:b\\c\nd\re", "Grüße": "ja"})
        (frame,) = heard.await_messages(1)
        assert frame.body == body
        assert (frame.headers["odd"], frame.headers["Grüße"]) == ("a:b\\c\nd\re", "ja")


class Returning(Heard):
    """Comes back whenever its connection is lost, as stomp.py's users do it."""

    def __init__(self, connection: Any) -> None:
        super().__init__()
        self._connection = connection
        self.is_leaving = False

    def come(self) -> None:
        self._connection.connect(wait=True)
        self._connection.subscribe("/queue/resumed", id="s", ack="client-individual")

    def on_disconnected(self) -> None:
        if not self.is_leaving:
            self.come()


def test_a_client_that_reconnects_goes_on(stage: Stage) -> None:
    connection = stomp.Connection12([(stage.host, stage.port)])
    heard = Returning(connection)
    connection.set_listener("heard", heard)
    heard.come()
    connection.send("/queue/resumed", "first", receipt="1")
    (first,) = heard.await_messages(1)
    heard.await_receipt("1")
    connection.transport.socket.shutdown(socket.SHUT_RDWR)
    again = heard.await_messages(2)[1]
    assert (again.body, again.headers["redelivered"]) == ("first", "true")
    assert again.headers["message-id"] == first.headers["message-id"]
    connection.ack(again.headers["ack"], receipt="acked")
    heard.await_receipt("acked")
    heard.is_leaving = True
    connection.disconnect()


def test_heart_beats_keep_a_quiet_connection(stage: Stage) -> None:
    with connected(stage, heartbeats=(500, 1000)) as (connection, heard):
        wait_for(lambda: heard.heartbeats, "the server said something though there was nothing to say")
        connection.subscribe("/queue/quiet", id="s")
        connection.send("/queue/quiet", "still here")
        heard.await_messages(1)


def test_our_own_clients_and_stomps_exchange_messages(stage: Stage) -> None:
    with connected(stage) as (connection, heard), connect_blocking(stage.url) as ours:
        session = ours.session()
        producer = session.producer("queue:to-stomp")
        producer.send(
            {"n": 1, "list": [1, 2]}, properties={"flag": True, "n": 5, "x": 1.5}, correlation_id="c"
        )
        producer.send("text", reply_to="queue:answers", type="greeting")
        producer.flush()
        connection.subscribe("/queue/to-stomp", id="s")
        data, text = heard.await_messages(2)
        assert (data.body, data.headers["content-type"]) == ('{"n":1,"list":[1,2]}', "application/json")
        assert [data.headers[name] for name in ("flag", "n", "x", "correlation-id")] == [
            "true",
            "5",
            "1.5",
            "c",
        ]
        assert [text.headers[name] for name in ("reply-to", "type")] == ["/queue/answers", "greeting"]
        connection.send(
            "/queue/from-stomp", "grüezi", content_type="text/plain", headers={"a": "b"}, receipt="r"
        )
        heard.await_receipt("r")
        message = session.consumer("queue:from-stomp").receive(timeout=30)
        assert message is not None
        assert (message.body, message.properties["a"]) == ("grüezi", "b")
