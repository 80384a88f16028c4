"""Alerts for clients of STOMP: published, received by topics, taken once, cancelled, acknowledged, receipted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stomp

import heliograph
from heliograph.nodes.users import UserStore
from tests.interop.stage import Stage, wait_for
from tests.interop.test_stomp_py import Heard, connected
from tests.suites.test_alerts import CHEAP

pytestmark = pytest.mark.req("X1", "A8")


class Told(Heard):
    """What a connection was told, with what receipts say."""

    def __init__(self) -> None:
        super().__init__()
        self.named: dict[str, str] = {}

    def on_receipt(self, frame: Any) -> None:
        self.named[frame.headers["receipt-id"]] = frame.headers.get("alert_id", "")
        super().on_receipt(frame)


def publish(
    connection: Any, heard: Heard, channel: str, destination: str, body: str = "", **said: str
) -> str:
    """Until it is stored. Returns the id of the alert."""
    told = Told()
    connection.set_listener("told", told)
    receipt = f"r{len(heard.receipts)}-{destination}"
    headers = {"alert_destination": destination, **said}
    connection.send(channel, body, headers=headers, receipt=receipt)
    heard.await_receipt(receipt)
    told.await_receipt(receipt)
    return told.named[receipt]


def about(connection: Any, heard: Heard, channel: str, action: str, identity: str, body: str = "") -> None:
    receipt = f"{action}-{identity}"
    headers = {"alert_action": action, "correlation-id": identity}
    connection.send(channel, body, headers=headers, receipt=receipt)
    heard.await_receipt(receipt)


def subscribe(connection: Any, heard: Heard, channel: str, topics: str = "", **said: str) -> None:
    name = said.pop("id", "s")
    receipt = f"sub-{name}-{said.pop('round', '1')}"
    headers = {**({"topics": topics} if topics else {}), **said}
    connection.subscribe(channel, id=name, ack="client-individual", headers=headers, receipt=receipt)
    heard.await_receipt(receipt)


def take(connection: Any, heard: Heard, frame: Any) -> None:
    receipt = f"took-{frame.headers['ack']}"
    connection.ack(frame.headers["ack"], receipt=receipt)
    heard.await_receipt(receipt)


def test_who_subscribes_gets_what_is_live_the_most_urgent_first_and_then_what_comes(stage: Stage) -> None:
    channel = "/alerts/stomp-ops"
    with connected(stage) as (connection, heard):
        for priority in ("2", "8", "0", "9"):
            publish(connection, heard, channel, "TAG:disk.full", f"p{priority}", priority=priority)
        publish(connection, heard, channel, "TAG:network", "other")
        subscribe(connection, heard, channel, "TAG:^disk,cpu;USER:anna", **{"prefetch-count": "1"})
        for count in range(1, 5):
            take(connection, heard, heard.await_messages(count)[-1])
        assert heard.bodies == ["p9", "p8", "p2", "p0"]
        identity = publish(connection, heard, channel, "USER:anna", "come", alert_duration="60")
        last = heard.await_messages(5)[4]
        said = last.headers
        assert (last.body, said["destination"], said["alert_destination"]) == ("come", channel, "USER:anna")
        assert (said["alert_type"], said["alert_classification"]) == ("alert", "unclassified")
        assert (said["alert_cancel"], said["alert_acknowledge"]) == ("originator", "none")
        assert (said["message-id"], said["alert_id"], said["JMSXUserID"]) == (identity, identity, "guest")
        assert int(said["expires"]) - int(said["timestamp"]) == 60_000
        assert "redelivered" not in said


def test_our_own_client_and_stomp_py_see_the_same_alert(stage: Stage) -> None:
    async def published() -> str:
        async with heliograph.connect(stage.url) as own:
            return await own.alerts("stomp-shared").publish(
                "PROFILE:night", "ours", priority=10, duration=90.0, acknowledge="client"
            )

    async def received() -> Any:
        async with heliograph.connect(stage.url) as own:
            consumer = await own.alerts("stomp-shared").subscribe("TAG:'quoted'")
            return await consumer.receive(20)

    identity = stage.run(published())
    with connected(stage) as (connection, heard):
        subscribe(connection, heard, "alerts:stomp-shared", "PROFILE:night")
        (found,) = heard.await_messages(1)
        assert (found.headers["message-id"], found.body, found.headers["priority"]) == (identity, "ours", "9")
        assert found.headers["alert_acknowledge"] == "client"
        said = {"alert_classification": "secret", "alert_cancel": "any"}
        publish(connection, heard, "/alerts/stomp-shared", "TAG:it's 'quoted'", "theirs", **said)
    ours = stage.run(received())
    assert (ours.destination, ours.classification, ours.body) == ("TAG:it's 'quoted'", "secret", b"theirs")


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_cancelled_alert_comes_to_nobody_who_was_not_sent_it(stage: Stage, version: str) -> None:
    channel = f"/alerts/stomp-cancel-{version}"
    with connected(stage, version) as (connection, heard):
        first = publish(connection, heard, channel, "TAG:line", "down")
        publish(connection, heard, channel, "TAG:line", "up", priority="1")
        headers = {"topics": "TAG:line", "prefetch-count": "1"}
        connection.subscribe(channel, id="s", ack="client", headers=headers, receipt="there")
        heard.await_receipt("there")
        assert [frame.body for frame in heard.await_messages(1)] == ["down"]
        about(connection, heard, channel, "cancel", first)
        # What was sent counts as taken, so that what waited behind it comes.
        assert [frame.body for frame in heard.await_messages(2)] == ["down", "up"]
        last = heard.messages[-1].headers
        if version == "1.2":
            connection.ack(last["ack"], receipt="acked")
        elif version == "1.1":
            connection.ack(last["message-id"], "s", receipt="acked")
        else:
            connection.ack(last["message-id"], receipt="acked")
        heard.await_receipt("acked")
    with connected(stage, version) as (connection, heard):
        connection.subscribe(channel, id="s", ack="auto", headers={"topics": "TAG:line"}, receipt="there")
        heard.await_receipt("there")
        publish(connection, heard, channel, "TAG:line", "last", priority="0")
        assert [frame.body for frame in heard.await_messages(2)] == ["up", "last"]


def test_an_acknowledgement_reaches_who_asked_for_it_and_a_receipt_the_publisher(stage: Stage) -> None:
    channel = "/alerts/stomp-ack"
    with connected(stage) as (connection, heard), connected(stage) as (other, theirs):
        subscribe(connection, heard, channel, acknowledgements="TAG:pump", id="words")
        connection.subscribe("/temp-queue/answers", id="answers")
        subscribe(other, theirs, channel, "TAG:pump")
        identity = publish(connection, heard, channel, "TAG:pump", "hot", alert_acknowledge="client")
        (seen,) = theirs.await_messages(1)
        assert seen.headers["message-id"] == identity
        take(other, theirs, seen)
        about(other, theirs, channel, "acknowledge", identity, "on my way")
        (word,) = heard.await_messages(1)
        assert (word.headers["correlation-id"], word.body) == (identity, "on my way")
        assert word.headers["alert_type"] == "acknowledgement"
        said = {
            "alert_acknowledge": "receipt",
            "reply-to": "/temp-queue/answers",
            "correlation-id": "mine",
        }
        identity = publish(connection, heard, channel, "TAG:pump", "cold", **said)
        answer = heard.await_messages(2)[1].headers
        assert (answer["correlation-id"], answer["alert_id"]) == ("mine", identity)
        take(other, theirs, theirs.await_messages(2)[1])
        receipt = heard.await_messages(3)[2].headers
        assert (receipt["correlation-id"], receipt["alert_id"]) == ("mine", identity)
        assert receipt["alert_receipt_user"] == "guest"


def test_under_a_name_what_was_taken_does_not_come_again_and_what_was_not_does(stage: Stage) -> None:
    channel, named = "/alerts/stomp-named", {"durable": "true", "id": "night-shift"}
    with connected(stage) as (connection, heard):
        subscribe(connection, heard, channel, "TAG:.", **named)
        publish(connection, heard, channel, "TAG:a", "1", priority="9")
        publish(connection, heard, channel, "TAG:a", "2")
        first, _ = heard.await_messages(2)
        take(connection, heard, first)
        connection.transport.disconnect_socket()
    with connected(stage) as (connection, heard):
        publish(connection, heard, channel, "TAG:b", "3")
        subscribe(connection, heard, channel, "TAG:.", **named)
        second, _ = heard.await_messages(2)
        assert heard.bodies == ["2", "3"]
        take(connection, heard, second)
        connection.unsubscribe("night-shift", receipt="left")  # as one who comes back
        heard.await_receipt("left")
        subscribe(connection, heard, channel, "TAG:.", **named, round="2")
        fourth = heard.await_messages(3)[2]
        assert fourth.body == "3"
        take(connection, heard, fourth)
        connection.unsubscribe("night-shift", headers={"durable": "true"}, receipt="over")
        heard.await_receipt("over")


def test_who_unsubscribed_gets_nothing_and_what_is_given_back_comes_again(stage: Stage) -> None:
    channel = "/alerts/stomp-back"
    with connected(stage) as (connection, heard):
        subscribe(connection, heard, channel, "TAG:x", id="one")
        publish(connection, heard, channel, "TAG:x", "again")
        (found,) = heard.await_messages(1)
        connection.nack(found.headers["ack"])
        back = heard.await_messages(2)[1]
        assert (back.body, back.headers["redelivered"]) == ("again", "true")
        connection.nack(back.headers["ack"], requeue="false", receipt="refused")
        heard.await_receipt("refused")
        connection.unsubscribe("one", receipt="left")
        heard.await_receipt("left")
        publish(connection, heard, channel, "TAG:x", "unheard")
        assert heard.bodies == ["again", "again"]


@pytest.mark.parametrize(
    ("headers", "code", "sentence"),
    [
        ({}, "topic-invalid", "which alerts are wanted"),
        ({"topics": "DISK:x"}, "topic-invalid", "topics begin with TAG:"),
        ({"topics": "TAG:fine;TAG:("}, "pattern-invalid", "missing"),
        ({"topics": "TAG:x", "selector": "a = 1"}, "alerts-only", "selector"),
        ({"topics": "TAG:x", "browser": "true"}, "alerts-only", "browser"),
        ({"topics": "TAG:x", "prefetch-count": "5000"}, "credit-invalid", "1 to 1024"),
    ],
)
def test_a_wish_that_cannot_be_read_is_an_error(
    stage: Stage, headers: dict[str, str], code: str, sentence: str
) -> None:
    with connected(stage) as (connection, heard):
        connection.subscribe("/alerts/stomp-refused", id="s", headers=headers, receipt="r")
        wait_for(lambda: heard.errors and heard.is_over, "it is an error, which ends the connection")
        error = heard.errors[0].headers
        assert (error["code"], error["receipt-id"]) == (code, "r")
        assert sentence in error["message"]


@pytest.mark.parametrize(
    ("headers", "body", "code", "sentence"),
    [
        ({}, "", "alert-invalid", "alert_destination"),
        ({"alert_destination": "NOBODY"}, "", "topic-invalid", "TAG:TEXT"),
        ({"alert_destination": "TAG:x", "alert_cancel": "never"}, "", "alert-invalid", "is one of"),
        ({"alert_destination": "TAG:x", "alert_duration": "soon"}, "", "alert-invalid", "seconds"),
        ({"alert_destination": "TAG:x", "alert_duration": "nan"}, "", "alert-invalid", "duration"),
        ({"alert_destination": "TAG:x", "delay": "5"}, "", "alert-invalid", "not delayed"),
        ({"alert_destination": "TAG:x"}, "x" * 40_000, "alert-invalid", "at most 32768 bytes"),
        ({"alert_action": "acknowledge", "correlation-id": "xyz"}, "", "alert-invalid", "hexadecimal"),
        ({"alert_action": "applaud"}, "", "alert-invalid", "alert_action is"),
        ({"alert_action": "cancel", "correlation-id": "0" * 24}, "", "alert-unknown", "alert"),
    ],
)
def test_what_is_wrong_with_an_alert_is_an_error(
    stage: Stage, headers: dict[str, str], body: str, code: str, sentence: str
) -> None:
    with connected(stage) as (connection, heard):
        connection.send("/alerts/stomp-wrong", "", headers={"alert_destination": "TAG:fine"})
        connection.send("/alerts/stomp-wrong", body, headers=headers, receipt="r")
        wait_for(lambda: heard.errors and heard.is_over, "it is an error, which ends the connection")
        error = heard.errors[0].headers
        assert (error["code"], error["receipt-id"]) == (code, "r")
        assert sentence in error["message"]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder: Path = tmp_path_factory.mktemp("guarded")
    store = UserStore.load(folder / "data" / "users.toml")
    store.add("ann", "x", ["admin"], clearance="secret", cost=CHEAP)
    store.add("bob", "x", ["admin"], cost=CHEAP)
    store.add("eve", "x", cost=CHEAP)
    with Stage(folder) as stage:
        yield stage


def logged_in(stage: Stage, user: str) -> tuple[Any, Heard]:
    connection, heard = stomp.Connection12([(stage.host, stage.port)]), Heard()
    connection.set_listener("heard", heard)
    connection.connect(user, "x", wait=True)
    return connection, heard


def test_what_somebody_is_not_cleared_for_does_not_exist_for_them(guarded: Stage) -> None:
    channel = "/alerts/ops"
    ann, hers = logged_in(guarded, "ann")
    bob, his = logged_in(guarded, "bob")
    subscribe(ann, hers, channel, "TAG:.*")
    subscribe(bob, his, channel, "TAG:.*")
    raid = publish(ann, hers, channel, "TAG:raid", alert_classification="secret", alert_cancel="any")
    publish(ann, hers, channel, "TAG:lunch")
    assert [frame.headers["alert_destination"] for frame in hers.await_messages(2)] == [
        "TAG:raid",
        "TAG:lunch",
    ]
    assert [frame.headers["alert_destination"] for frame in his.await_messages(1)] == ["TAG:lunch"]
    bob.send(channel, "", headers={"alert_action": "cancel", "correlation-id": raid})
    wait_for(lambda: his.errors, "it is unknown to him")
    assert his.errors[0].headers["code"] == "alert-unknown"
    assert len(his.messages) == 1
    again, his = logged_in(guarded, "bob")
    said = {"alert_destination": "TAG:x", "alert_classification": "secret"}
    again.send(channel, "", headers=said, receipt="above")
    wait_for(lambda: his.errors, "nobody publishes above their clearance")
    ann.disconnect()


@pytest.mark.parametrize("act", ["send", "subscribe"])
def test_who_has_no_right_is_told_so(guarded: Stage, act: str) -> None:
    connection, heard = logged_in(guarded, "eve")
    if act == "send":
        connection.send("/alerts/ops", "", headers={"alert_destination": "TAG:x"}, receipt="r")
    else:
        connection.subscribe("/alerts/ops", id="s", headers={"topics": "TAG:x"}, receipt="r")
    wait_for(lambda: heard.errors, "it is refused")
    error = heard.errors[0].headers
    assert (error["code"], error["receipt-id"]) == ("not-allowed", "r")
