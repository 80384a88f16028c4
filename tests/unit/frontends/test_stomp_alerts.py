"""Alerts over STOMP, frame by frame: what each asks of the session, what is taken when, and what is an error."""

from __future__ import annotations

import pytest

from fuzz.desk import ALERT, Desk
from heliograph.frontends.stomp.conversation import StompConversation
from heliograph.model.alert import AlertHeader, AlertView
from heliograph.model.limits import FOREIGN_ALERTS_UNDER_WAY, FOREIGN_HELD_BYTES, MAX_CREDIT
from heliograph.sessions import commands
from heliograph.sessions.commands import Fail
from tests.unit.frontends.test_stomp_conversation import Quiet, deliver, frame, greeted, settled

pytestmark = pytest.mark.req("X1", "A8")
CHANNEL = "/alerts/ops"


def alert(number: int, destination: str = "TAG:a") -> AlertView:
    return AlertView(number.to_bytes(12), AlertHeader(destination), "ann", 5_000_000, b"%d" % number)


def said(headers: dict[str, str], command: str = "SEND", body: bytes = b"") -> bytes:
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    return f"{command}\n{lines}\n".encode() + body + b"\0"


def taken(desk: Desk) -> list[tuple[int, list[int], list[int]]]:
    return [
        (
            each.consumer,
            [int.from_bytes(one) for one in each.taken],
            [int.from_bytes(one) for one in each.dropped],
        )
        for each in desk.commands
        if isinstance(each, commands.TakeAlerts)
    ]


def subscribed(desk: Desk, mode: str = "client-individual", **headers: str) -> None:
    desk.receive(frame("SUBSCRIBE", id="s", destination=CHANNEL, topics="TAG:a", ack=mode, **headers))


def answer(desk: Desk) -> int:
    """The last request is done."""
    request: int = desk.commands[-1].request  # type: ignore[union-attr]
    desk.tell(commands.Done(request))
    desk.receive(b"\n")
    return request


def test_an_alert_byte_for_byte() -> None:
    desk = greeted(Quiet)
    subscribed(desk, receipt="r", prefetch_count="7")
    attach = desk.commands[-1]
    assert attach == commands.AttachAlerts(2, 1, "alerts:ops", "", "TAG:a", "", 7, [], [])
    desk.tell(commands.Done(2))
    header = AlertHeader("TAG:a", priority=10, duration=2.0, correlation=b"\1" * 12, type=1)
    desk.tell(commands.HandAlert(1, AlertView(b"\2" * 12, header, "ann", 5_000_000, b"body", True)))
    desk.receive(b"\n")
    assert b"".join(desk.said) == (
        b"RECEIPT\nreceipt-id:r\n\n\0"
        b"MESSAGE\nsubscription:s\ndestination:/alerts/ops\nmessage-id:020202020202020202020202\n"
        b"content-length:4\nack:1-1\ntimestamp:5000\npersistent:true\npriority:9\nexpires:7000\n"
        b"redelivered:true\nJMSXDeliveryCount:2\nJMSXUserID:ann\ncorrelation-id:010101010101010101010101\n"
        b"alert_id:020202020202020202020202\nalert_destination:TAG\\ca\nalert_type:acknowledgement\n"
        b"alert_classification:unclassified\nalert_cancel:originator\nalert_acknowledge:none\n\nbody\0"
    )


def test_a_receipt_is_given_when_the_alert_is_stored_and_names_it() -> None:
    desk = greeted(Quiet)
    headers = {
        "destination": CHANNEL,
        "alert_destination": "TAG\\cdisk",
        "priority": "0",
        "alert_duration": "1.5",
        "persistent": "false",
        "alert_classification": "top-secret",
        "alert_cancel": "any",
        "alert_acknowledge": "client",
        "receipt": "r",
    }
    desk.receive(said(headers, body=b"full"))
    (publish,) = desk.commands
    assert isinstance(publish, commands.PublishAlert)
    header = AlertHeader(
        "TAG:disk",
        priority=1,
        duration=1.5,
        persistent=False,
        classification=3,
        cancel_policy=1,
        acknowledge_policy=1,
    )
    assert (publish.destination, publish.header, publish.body) == ("alerts:ops", header, b"full")
    assert desk.said == []
    desk.tell(commands.Tell(publish.request, {"id": b"\3" * 12}))
    desk.receive(b"\n")
    assert desk.said == [b"RECEIPT\nreceipt-id:r\nalert_id:030303030303030303030303\n\n\0"]
    desk.said.clear()
    words = {"destination": CHANNEL, "alert_action": "cancel", "correlation-id": "03" * 12, "receipt": "c"}
    desk.receive(said(words))
    assert desk.commands[-1] == commands.CancelAlert(publish.request + 1, "alerts:ops", b"\3" * 12)
    assert desk.said == []
    answer(desk)
    assert desk.said == [b"RECEIPT\nreceipt-id:c\n\n\0"]


def test_a_client_that_leaves_is_let_go_when_its_alerts_are_stored() -> None:
    desk = greeted(Quiet)
    desk.receive(
        said({"destination": CHANNEL, "alert_destination": "TAG\\ca"}) + frame("DISCONNECT", receipt="bye")
    )
    assert not desk.is_over
    answer(desk)
    assert desk.said == [b"RECEIPT\nreceipt-id:bye\n\n\0"]
    assert desk.is_over


def test_an_alert_is_taken_as_the_mode_says() -> None:
    desk = greeted(Quiet)
    subscribed(desk, "client")
    for number in range(1, 6):
        desk.tell(commands.HandAlert(1, alert(number)))
    desk.receive(b"\n")
    assert taken(desk) == []
    desk.receive(frame("ACK", id="1-3", receipt="r"))
    assert taken(desk) == [(1, [1, 2, 3], [])]
    assert b"RECEIPT" not in b"".join(desk.said)
    answer(desk)
    assert desk.said[-1] == b"RECEIPT\nreceipt-id:r\n\n\0"
    desk.receive(frame("ACK", id="1-2", receipt="known"))  # that is settled
    assert desk.said[-1] == b"RECEIPT\nreceipt-id:known\n\n\0"
    assert len(taken(desk)) == 1
    desk = greeted(Quiet)
    subscribed(desk, "auto")
    desk.tell(commands.HandAlert(1, alert(1)))
    assert taken(desk) == []
    desk.receive(b"\n")  # and the network has it
    assert taken(desk) == [(1, [1], [])]


def test_what_is_given_back_comes_again_under_another_tag() -> None:
    desk = greeted(Quiet)
    subscribed(desk)
    desk.tell(commands.HandAlert(1, alert(1)))
    desk.tell(commands.HandAlert(1, alert(1)))  # handed out again by another server: the client has it
    desk.receive(frame("NACK", id="1-1", receipt="r"))
    messages = [each for each in desk.said if each.startswith(b"MESSAGE")]
    assert [b"redelivered:true" in each for each in messages] == [False, True]
    assert b"\nack:1-2\n" in messages[1]
    assert taken(desk) == []
    desk.receive(frame("NACK", id="1-2", requeue="false"))
    assert taken(desk) == [(1, [1], [])]


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_what_ends_after_it_was_sent_is_taken_and_its_acknowledgement_says_nothing(version: str) -> None:
    desk = greeted(Quiet, version)
    subscribed(desk)
    desk.tell(commands.HandAlert(1, alert(1)))
    desk.tell(commands.WithdrawAlert(1, alert(1).id))
    desk.tell(commands.WithdrawAlert(1, alert(2).id))
    desk.receive(b"\n")
    assert taken(desk) == [(1, [1], []), (1, [], [2])]
    by_id = {"message_id": alert(1).id.hex(), "subscription": "s"}
    desk.receive(frame("ACK", receipt="r", **({"id": "1-1"} if version == "1.2" else by_id)))
    assert desk.said[-1] == b"RECEIPT\nreceipt-id:r\n\n\0"
    assert len(taken(desk)) == 2


@pytest.mark.parametrize(("headers", "ends"), [({}, False), ({"durable": "true"}, True)])
def test_a_name_stays_unless_it_is_ended(headers: dict[str, str], ends: bool) -> None:
    desk = greeted(Quiet)
    subscribed(desk, durable="true", subscription_name="night")
    attach = desk.commands[-1]
    assert isinstance(attach, commands.AttachAlerts)
    assert attach.name == "night"
    desk.receive(frame("UNSUBSCRIBE", id="s", receipt="r", **headers))
    request = answer(desk)
    assert desk.commands[-1] == commands.DetachAlerts(request, 1, ends)
    assert desk.said == [b"RECEIPT\nreceipt-id:r\n\n\0"]
    desk.tell(commands.HandAlert(1, alert(1)))  # which was under way
    assert len(desk.said) == 1


def test_messages_and_alerts_of_mode_auto_are_both_settled_when_the_network_has_them() -> None:
    desk = greeted(Quiet)
    subscribed(desk, "auto")
    desk.receive(frame("SUBSCRIBE", id="one", destination="/queue/a"))
    desk.receive(frame("SUBSCRIBE", id="two", destination="/queue/b"))
    desk.tell(commands.HandAlert(1, alert(1)))
    deliver(desk, 2, 1, 3)
    deliver(desk, 3, 1, 2)
    desk.receive(b"\n")
    assert taken(desk) == [(1, [1], [])]
    assert settled(desk) == [(2, [(1, 3)], False), (3, [(1, 2)], False)]


@pytest.mark.parametrize("size", [0, 30_000])
def test_a_client_is_not_read_from_while_too_much_waits_to_be_stored(size: int) -> None:
    desk = greeted(Quiet)
    send = said({"destination": CHANNEL, "alert_destination": "TAG\\ca"}, body=b"x" * size)
    enough = FOREIGN_HELD_BYTES // size + 1 if size else FOREIGN_ALERTS_UNDER_WAY + 1
    desk.receive(send * (enough - 1))
    assert not desk.conversation.is_waiting
    desk.receive(send)
    assert desk.conversation.is_waiting
    for command in desk.commands:
        assert isinstance(command, commands.PublishAlert)
        desk.tell(commands.Tell(command.request, {"id": ALERT.id}))
    assert not desk.conversation.is_waiting


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (said({"destination": CHANNEL}), b"alert-invalid"),
        (
            said({"destination": CHANNEL, "alert_destination": "TAG\\ca", "priority": "10"}),
            b"priority-invalid",
        ),
        (said({"destination": CHANNEL, "alert_action": "cancel"}), b"alert-invalid"),
        (
            frame("BEGIN", transaction="t")
            + said({"destination": CHANNEL, "alert_destination": "TAG\\ca", "transaction": "t"}),
            b"alerts-only",
        ),
        (frame("SUBSCRIBE", id="s", destination=CHANNEL), b"topic-invalid"),
        (frame("SUBSCRIBE", id="s", destination=CHANNEL, topics="TAG:a", shared="true"), b"alerts-only"),
        (frame("SUBSCRIBE", id="s", destination=CHANNEL, topics="TAG:a", no_local="true"), b"alerts-only"),
        (
            frame(
                "SUBSCRIBE", id="s", destination=CHANNEL, topics="TAG:a", prefetch_count=str(MAX_CREDIT + 1)
            ),
            b"header-invalid",
        ),
        (
            frame("SUBSCRIBE", id="s", destination=CHANNEL, topics="TAG:a", ack="client")
            + frame("BEGIN", transaction="t")
            + frame("ACK", id="1-1", transaction="t"),
            b"alerts-only",
        ),
    ],
)
def test_what_cannot_be_is_an_error(frames: bytes, code: bytes) -> None:
    desk = greeted()
    desk.receive(frames)
    assert desk.is_over
    assert b"\ncode:" + code + b"\n" in desk.said[-1]


def test_what_the_session_refuses_is_an_error_also_if_nobody_wanted_a_receipt() -> None:
    for receipt in ({}, {"receipt": "r"}):
        desk = greeted(Quiet)
        desk.receive(said({"destination": CHANNEL, "alert_destination": "TAG\\ca", **receipt}))
        desk.tell(Fail(desk.commands[-1].request, "not-allowed", "no"))  # type: ignore[union-attr]
        desk.receive(b"\n")
        assert desk.is_over
        assert b"\ncode:not-allowed\n" in desk.said[-1]
        assert (b"receipt-id:r" in desk.said[-1]) == bool(receipt)
    assert isinstance(desk.conversation, StompConversation)
