"""Alerts over MQTT, packet by packet: what each asks of the session, what is taken when, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz.desk import ALERT, Desk
from heliograph.frontends.mqtt import packets
from heliograph.frontends.mqtt.properties import encode_properties
from heliograph.frontends.mqtt.reading import pack_text
from heliograph.frontends.mqtt.topics import ChannelFilter, parse_channel, split_channel, topic_of
from heliograph.model.alert import AlertHeader, AlertView
from heliograph.model.errors import InvalidName
from heliograph.model.limits import ALERT_CREDIT, FOREIGN_ALERTS_UNDER_WAY
from heliograph.sessions import commands
from heliograph.sessions.commands import Fail
from tests.unit.frontends.test_mqtt_conversation import CONNECT, CONNECT_5, Quiet, greeted, publish

pytestmark = pytest.mark.req("X1", "A8")


def connect_5(said: dict[str, Any]) -> bytes:
    return packets.packet(packets.CONNECT, 0, b"\0\4MQTT\5\2\0\x3c", encode_properties(said), b"\0\0")


def send(topic: str, packet_id: int, qos: int = 1, body: bytes = b"", **said: Any) -> bytes:
    """In version 5."""
    pairs = list(said.pop("user", {}).items())
    properties = encode_properties({**said, **({"user_property": pairs} if pairs else {})})
    return publish(body, packet_id, qos, pack_text(topic), properties)


def subscribe(text: str, qos: int = 1, version: int = 5, **said: Any) -> bytes:
    properties = encode_properties({"user_property": list(said.items())} if said else {})
    parts = b"\0\1", properties if version == 5 else b"", pack_text(text), bytes((qos,))
    return packets.packet(packets.SUBSCRIBE, 2, *parts)


def alert(number: int) -> AlertView:
    return AlertView(
        number.to_bytes(12), AlertHeader("TAG:a", persistent=False), "ann", 5_000_000, b"%d" % number
    )


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


def request_of(command: Any) -> int:
    number: int = command.request
    return number


def test_what_a_filter_for_alerts_means() -> None:
    assert parse_channel("$alerts/ops/TAG:a,b;USER:c") == ChannelFilter("alerts:ops", "TAG:a,b;USER:c", False)
    assert parse_channel("$alerts/a/b") == ChannelFilter("alerts:a/b", "", False)
    assert parse_channel("$acknowledgements/a/b/TAG:c/TAG:d") == ChannelFilter(
        "alerts:a/b", "TAG:c/TAG:d", True
    )
    assert parse_channel("alerts/ops/TAG:a") is None
    assert split_channel("alerts:TAG:a") == ("alerts:TAG:a", "")
    for text in ("$alerts/+/TAG:a", "$alerts/#", "$acknowledgements/ops/TAG:a+"):
        with pytest.raises(InvalidName):
            parse_channel(text)
    assert topic_of("alerts:ops") == "$alerts/ops"
    assert topic_of("$alerts/ops/TAG:a") == "$alerts/ops/TAG:a"
    assert topic_of("queue:a:b") == "$queue/a:b"
    assert topic_of("topic:a:b") == "a:b"


@pytest.mark.parametrize(("qos", "kind"), [(1, packets.PUBACK), (2, packets.PUBREC)])
def test_an_alert_is_answered_when_it_is_stored_and_named(qos: int, kind: int) -> None:
    desk = greeted(Quiet, connect_5({}))
    said = {"priority": "0", "alert_duration": "1.5", "alert_cancel": "any"}
    packet = send("$alerts/ops/TAG:disk", 7, qos, b"full", user=said)
    desk.receive(packet)
    (command,) = desk.commands
    assert isinstance(command, commands.PublishAlert)
    header = AlertHeader("TAG:disk", priority=1, duration=1.5, cancel_policy=1)
    assert (command.destination, command.header, command.body) == ("alerts:ops", header, b"full")
    if qos == 2:
        desk.receive(packet)  # again, under its number
        assert len(desk.commands) == 1
    assert desk.said == []
    desk.tell(commands.Tell(command.request, {"id": b"\3" * 12}))
    desk.receive(b"")
    properties = encode_properties({"user_property": [("alert_id", "03" * 12)]})
    assert desk.said == [packets.packet(kind, 0, b"\0\7\0", properties)]


def test_to_the_same_topic_each_is_an_alert_also_by_a_short_name() -> None:
    desk = greeted(Quiet, connect_5({}))
    desk.receive(send("$alerts/ops/TAG:a", 1) * 2 + send("$alerts/ops/TAG:a", 2, topic_alias=1))
    desk.receive(send("", 3, topic_alias=1))
    assert [type(each) for each in desk.commands] == [commands.PublishAlert] * 4
    desk = greeted(Quiet, CONNECT)
    desk.receive(publish(b"x", 1, topic=pack_text("$alerts/ops/TAG:a")) * 2)
    assert [type(each) for each in desk.commands] == [commands.PublishAlert] * 2
    desk.tell(commands.Tell(request_of(desk.commands[0]), {"id": ALERT.id}))
    desk.receive(b"")
    assert desk.said == [b"\x40\x02\x00\x01"]


@pytest.mark.parametrize("said", [{"request_problem": 0}, {"maximum_packet_size": 20}])
def test_who_does_not_want_to_know_more_gets_the_reason_only(said: dict[str, Any]) -> None:
    desk = greeted(Quiet, connect_5(said))
    desk.receive(send("$alerts/ops/TAG:a", 1))
    desk.tell(commands.Tell(request_of(desk.commands[-1]), {"id": ALERT.id}))
    desk.receive(send("$alerts/ops", 2))
    desk.receive(subscribe("$alerts/ops"))
    assert b"".join(desk.said) == b"\x40\x02\x00\x01" + b"\x40\x03\x00\x02\x83" + b"\x90\x04\x00\x01\x00\x8f"


def test_an_alert_is_taken_when_it_is_acknowledged_or_at_quality_0_when_the_network_has_it() -> None:
    desk = greeted(Quiet, connect_5({}))
    desk.receive(subscribe("$alerts/ops/TAG:a", qos=2))
    attach = desk.commands[-1]
    expected = commands.AttachAlerts(
        request_of(attach), 1, "alerts:ops", "", "TAG:a", "", ALERT_CREDIT, [], []
    )
    assert attach == expected
    desk.tell(commands.Done(request_of(attach)))
    desk.receive(b"")
    assert desk.said == [b"\x90\x04\x00\x01\x00\x01"]  # granted with quality 1
    for number in (1, 2):
        desk.tell(commands.HandAlert(1, alert(number)))
    desk.receive(b"\x40\x02\x00\x02")
    assert taken(desk) == [(1, [2], [])]
    desk = greeted(Quiet, CONNECT)
    desk.receive(subscribe("$acknowledgements/ops/TAG:a", 0, 4))
    attach = desk.commands[-1]
    assert isinstance(attach, commands.AttachAlerts)
    assert (attach.topics, attach.acknowledgements) == ("", "TAG:a")
    desk.tell(commands.HandAlert(1, alert(1)))
    assert taken(desk) == []
    desk.receive(b"")
    assert desk.said == [publish(b"1", 0, 0, pack_text("$acknowledgements/ops/TAG:a"))]
    assert taken(desk) == [(1, [1], [])]


def test_what_ends_is_taken_if_it_was_sent_and_dropped_if_it_waited() -> None:
    desk = greeted(Quiet, CONNECT_5)  # which takes two at a time
    desk.receive(subscribe("$alerts/ops", topics="TAG:a"))
    assert desk.commands[-1].credit == 2  # type: ignore[union-attr]
    for number in (1, 2, 3):
        desk.tell(commands.HandAlert(1, alert(number)))
    for number in (1, 3, 9):
        desk.tell(commands.WithdrawAlert(1, alert(number).id))
    desk.receive(b"")
    assert taken(desk) == [(1, [1], []), (1, [], [3]), (1, [], [9])]
    desk.receive(b"\x40\x02\x00\x01" + b"\x40\x02\x00\x02")
    assert taken(desk)[3:] == [(1, [2], [])]
    assert sum(each.count(b"TAG:a") for each in desk.said) == 2


def test_who_unsubscribed_is_not_asked_what_became_of_the_rest() -> None:
    named: dict[str, Any] = {"subscription-name": "night"}
    desk = greeted(Quiet, connect_5({}))
    desk.receive(subscribe("$alerts/ops", topics="TAG:a", **named))
    assert desk.commands[-1].name == "night"  # type: ignore[union-attr]
    desk.tell(commands.HandAlert(1, alert(1)))
    desk.receive(packets.packet(packets.UNSUBSCRIBE, 2, b"\0\2\0", pack_text("$alerts/ops")))
    detach = desk.commands[-1]
    assert detach == commands.DetachAlerts(request_of(detach), 1, True)
    count = len(desk.commands)
    desk.receive(b"\x40\x02\x00\x01")
    desk.tell(commands.HandAlert(1, alert(2)))
    assert len(desk.commands) == count


def test_asking_again_changes_the_quality_and_for_something_else_is_refused() -> None:
    desk = greeted(Quiet, connect_5({}))
    desk.receive(subscribe("$alerts/ops", topics="TAG:a"))
    desk.receive(subscribe("$alerts/ops", qos=0, topics="TAG:a"))
    assert desk.said == [b"\x90\x04\x00\x01\x00\x00"]
    desk.receive(subscribe("$alerts/ops", topics="TAG:b"))
    assert desk.said[-1].endswith(b"unsubscribe before you ask for other alerts\x80")
    assert sum(isinstance(each, commands.AttachAlerts) for each in desk.commands) == 1


def test_a_client_is_not_read_from_while_too_many_wait_to_be_stored() -> None:
    desk = greeted(Quiet, connect_5({}))
    desk.receive(send("$alerts/ops/TAG:a", 1) * FOREIGN_ALERTS_UNDER_WAY)
    assert not desk.conversation.is_waiting
    desk.receive(send("$alerts/ops/TAG:a", 1))
    assert desk.conversation.is_waiting
    desk.tell(commands.Tell(request_of(desk.commands[0]), {"id": ALERT.id}))
    assert not desk.conversation.is_waiting


def test_what_the_session_refuses_is_answered_and_ends_who_cannot_be_told() -> None:
    def refused(connect: bytes, packet: bytes) -> Desk:
        desk = greeted(Quiet, connect)
        desk.receive(packet)
        desk.tell(Fail(request_of(desk.commands[-1]), "not-allowed", "no"))
        desk.receive(b"")
        return desk

    told = refused(connect_5({}), send("$alerts/ops/TAG:a", 7, 2))
    assert told.said == [
        packets.packet(packets.PUBREC, 0, b"\0\7\x87", encode_properties({"reason_string": "no"}))
    ]
    told.receive(send("$alerts/ops/TAG:a", 7, 2))  # the number is free
    assert len(told.commands) == 2
    assert not told.is_over
    plain = pack_text("$alerts/ops/TAG:a")
    for desk in (
        refused(connect_5({}), send("$alerts/ops/TAG:a", 0, 0)),
        refused(CONNECT, publish(b"", 1, 1, plain)),
        refused(CONNECT, publish(b"", 0, 0, plain)),
    ):
        assert desk.is_over


def test_what_cannot_be_said_at_quality_0_ends_the_connection() -> None:
    desk = greeted(Quiet, connect_5({}))
    desk.receive(send("$alerts/ops", 0, 0))
    assert desk.is_over
    assert desk.said[-1].startswith(b"\xe0")
    assert b"alert_destination" in desk.said[-1]


@pytest.mark.parametrize(
    ("topic", "flags"), [("$alerts/ops", 0x06), ("$alerts/ops/TAG:a", 0x26), ("$alerts/ops/NOBODY:a", 0x06)]
)
def test_a_will_that_could_not_be_carried_out_is_refused_at_once(topic: str, flags: int) -> None:
    desk = Quiet(greeted().conversation.__class__(), delivers=0)
    will = pack_text(topic) + b"\0\0"
    desk.receive(packets.packet(packets.CONNECT, 0, b"\0\4MQTT\4", bytes((flags,)), b"\0\x3c\0\0", will))
    assert desk.is_over
    assert desk.said[-1][:1] == b"\x20"
    assert desk.said[-1][3] != 0


def test_a_lane_by_which_no_alert_was_named_leads_elsewhere() -> None:
    """A connection has so many lanes. What the world refused may be published all the same."""
    desk = greeted(Quiet, connect_5({}))

    def lane_to(channel: str, answer: str | None) -> tuple[int, int]:
        """By which an alert is named; None: that is not answered yet."""
        desk.receive(send(f"$alerts/{channel}/TAG:a", 1))
        made = desk.commands[-1]
        assert isinstance(made, commands.PublishAlert)
        if answer is not None:
            desk.tell(
                Fail(made.request, answer, "no") if answer else commands.Tell(made.request, {"id": ALERT.id})
            )
        return made.lane, made.sequence

    for channel in ("a", "b", "c", "c"):
        assert lane_to(channel, "not-allowed") == (1, 1)
    assert lane_to("doubt", "message-in-doubt") == (1, 1)
    assert [lane_to("open", each) for each in ("not-allowed", "", "not-allowed")] == [(2, 1), (2, 1), (2, 2)]
    assert [lane_to("slow", each) for each in (None, None)] == [(3, 1), (3, 2)]
    slow = [request_of(each) for each in desk.commands[-2:]]
    desk.tell(Fail(slow[0], "not-allowed", "no"))
    assert lane_to("d", "not-allowed") == (4, 1), "another is under way by the third"
    desk.tell(Fail(slow[1], "not-allowed", "no"))
    assert lane_to("e", None) == (3, 1)
