"""MQTT conversations, packet by packet: when a message is confirmed, and what is acknowledged when."""

from __future__ import annotations

import pytest

from fuzz.desk import OTHERS_LANE, Desk
from heliograph.frontends.conversation import AnyHappening, Broken, Claimed, Keepsake
from heliograph.frontends.mqtt import packets
from heliograph.frontends.mqtt.conversation import MqttConversation
from heliograph.frontends.native import frames
from heliograph.model import block
from heliograph.model.block import Span, parse_trusted, unpack
from heliograph.model.limits import MAX_GREETING_BYTES
from heliograph.sessions import commands
from heliograph.sessions.commands import AnyCommand, AnySessionEffect

pytestmark = pytest.mark.req("X1")
CONNECT = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00"
CONNECT_5 = b"\x10\x10\x00\x04MQTT\x05\x02\x00\x3c\x03\x21\x00\x02\x00\x00"


class Quiet(Desk):
    """Answers nothing by itself but what opens a session."""

    def _effects(self, command: AnyCommand) -> list[AnySessionEffect]:
        return []


def greeted(kind: type[Desk] = Desk, connect: bytes = CONNECT) -> Desk:
    desk = kind(MqttConversation(), delivers=0)
    desk.receive(connect)
    assert b"".join(desk.said)[:1] == b"\x20"
    desk.said.clear()
    return desk


def publish(
    payload: bytes, packet_id: int, qos: int = 1, topic: bytes = b"\x00\x01t", properties: bytes = b""
) -> bytes:
    return packets.publish(
        topic, payload, qos=qos, retain=False, duplicate=False, packet_id=packet_id, properties=properties
    )


def deliver(desk: Desk, first: int, count: int, *, persistent: bool = True) -> None:
    bodies = [b"%d" % (first + index) for index in range(count)]
    buffer = block.pack(bodies, lane=OTHERS_LANE, first=first, persistent=persistent)
    desk.tell(commands.Deliver(1, first, Span(parse_trusted(buffer), 0, count), ""))


def settled(desk: Desk) -> list[list[tuple[int, int]]]:
    return [command.ranges for command in desk.commands if isinstance(command, commands.Settle)]


def test_what_one_read_brings_is_one_block_and_confirmed_when_it_is_stored() -> None:
    desk = greeted(Quiet)
    desk.receive(b"".join(publish(b"%d" % number, number) for number in range(1, 101)))
    (opening,) = desk.commands
    assert isinstance(opening, commands.OpenLane)
    assert opening.destination == "topic:t"
    desk.tell(commands.LaneReady(opening.request, 0))
    desk.receive(b"")
    (_, sent) = desk.commands
    assert isinstance(sent, commands.Publish)
    assert unpack(sent.block.buffer or b"").bodies == [b"%d" % number for number in range(1, 101)]
    assert desk.said == []
    desk.tell(commands.Confirm(1, 40))
    desk.receive(b"")
    assert b"".join(desk.said) == b"".join(b"\x40\x02" + number.to_bytes(2, "big") for number in range(1, 41))


def test_what_a_stranger_says_behind_connect_is_kept_up_to_a_bound() -> None:
    early = publish(b"early", 1)
    desk = greeted(connect=CONNECT + early + b"\xc0\x00")
    assert [type(command) for command in desk.commands] == [commands.OpenLane, commands.Publish]
    conversation = MqttConversation()
    *_, broken = conversation.receive(CONNECT + b"\xc0\x00" * (MAX_GREETING_BYTES // 2 + 1))
    assert isinstance(broken, Broken)
    assert broken.error.sentence == "wait for CONNACK with the rest"


class Keeping(Desk):
    """Has what an earlier connection left."""

    keepsake: Keepsake | None = None

    def _happen(self, happening: AnyHappening) -> None:
        if isinstance(happening, Claimed):
            self._waiting.extend(self.conversation.claimed(happening.name, self.keepsake))
        else:
            super()._happen(happening)


def test_a_session_that_is_resumed_has_its_shared_subscriptions_and_queues_too() -> None:
    connect = b"\x10\x0d\x00\x04MQTT\x04\x00\x00\x3c\x00\x01c"
    earlier = greeted(connect=connect)
    for packet_id, text in enumerate((b"$share/g/t/+", b"$queue/q", b"plain", b"a/+"), 1):
        earlier.receive(
            b"\x82" + bytes((5 + len(text), 0, packet_id)) + len(text).to_bytes(2, "big") + text + b"\x01"
        )
    desk = Keeping(MqttConversation(), delivers=0)
    desk.keepsake = earlier.conversation.keepsake
    desk.receive(connect)
    assert b"".join(desk.said) == b"\x20\x02\x01\x00"
    attached = [
        (each.destination, each.subscription, each.shared, each.durable)
        for each in desk.commands
        if isinstance(each, commands.Subscribe)
    ]
    assert attached == [
        ("topic:regex:^a/[^/]*$", "mqtt:1:a/+", False, True),
        ("topic:regex:^t/[^/]*$", "mqtt:share:g:topic:regex:^t/[^/]*$", True, False),
        ("queue:q", "", False, False),
    ], "and of those that are its own what the server still has"


class Leaderless(Keeping):
    """Nobody can say what is kept for a client."""

    def _answer(self, message: object) -> None:
        if not isinstance(message, frames.Ask):
            super()._answer(message)


def subscribe(text: bytes, packet_id: int = 1) -> bytes:
    return packets.packet(
        packets.SUBSCRIBE, 2, packet_id.to_bytes(2, "big") + len(text).to_bytes(2, "big") + text + b"\x01"
    )


def unsubscribe(text: bytes, packet_id: int = 1) -> bytes:
    return packets.packet(
        packets.UNSUBSCRIBE, 2, packet_id.to_bytes(2, "big") + len(text).to_bytes(2, "big") + text
    )


def test_a_client_that_is_cut_while_it_resumes_has_what_it_had() -> None:
    connect = b"\x10\x0d\x00\x04MQTT\x04\x00\x00\x3c\x00\x01c"
    earlier = greeted(connect=connect)
    for text in (b"$share/g/t", b"$queue/q", b"plain"):
        earlier.receive(subscribe(text))
    left = earlier.conversation.keepsake
    assert left is not None
    cut = Leaderless(MqttConversation(), delivers=0)
    cut.keepsake = left
    cut.receive(connect)
    assert cut.said == [b""]
    cut.conversation.lost()
    assert cut.conversation.keepsake == left
    desk = Keeping(MqttConversation(), delivers=0)
    desk.keepsake = cut.conversation.keepsake
    desk.receive(connect)
    attached = [each.destination for each in desk.commands if isinstance(each, commands.Subscribe)]
    assert attached == ["topic:regex:^a/[^/]*$", "topic:t", "queue:q"]


class Changed(Keeping):
    """One may not receive where one could."""

    code = "not-allowed"

    def _effects(self, command: AnyCommand) -> list[AnySessionEffect]:
        if isinstance(command, commands.Subscribe) and command.destination in ("topic:t", "queue:q"):
            return [commands.Fail(command.request, self.code, "no")]
        return super()._effects(command)


@pytest.mark.parametrize(
    ("code", "lasts"), [("not-allowed", True), ("subscription-in-use", False), ("not-leading", False)]
)
def test_a_right_that_is_gone_costs_a_client_what_it_is_about_and_not_the_rest(
    code: str, lasts: bool
) -> None:
    connect = b"\x10\x10\x00\x04MQTT\x05\x00\x00\x3c\x05\x11\xff\xff\xff\xff\x00\x01c"
    connect = connect[:1] + bytes((len(connect) - 2,)) + connect[2:]
    earlier = greeted(connect=connect)
    for text in (b"$share/g/t", b"$queue/q", b"$queue/other"):
        earlier.receive(packets.packet(8, 2, b"\x00\x01\x00", len(text).to_bytes(2, "big") + text, b"\x01"))
    keepsake = earlier.conversation.keepsake
    ends = []
    for _ in range(4):
        desk = Changed(MqttConversation(), delivers=0)
        desk.keepsake, desk.code = keepsake, code
        desk.receive(connect)
        ends.append(desk.is_over)
        keepsake = desk.conversation.keepsake
    assert ends[0], "the client is told"
    assert ends[-1] == (not lasts)
    assert keepsake is not None
    assert "$queue/other" in keepsake.content.options


def test_what_is_said_behind_connect_is_about_the_session_that_is_resumed() -> None:
    connect = b"\x10\x0d\x00\x04MQTT\x04\x00\x00\x3c\x00\x01c"
    earlier = greeted(connect=connect)
    earlier.receive(subscribe(b"a/+"))
    for early, ended in ((subscribe(b"a/+"), 0), (unsubscribe(b"a/+"), 1)):
        desk = Keeping(MqttConversation(), delivers=0)
        desk.keepsake = earlier.conversation.keepsake
        desk.receive(connect + early)
        made = [each for each in desk.commands if isinstance(each, commands.Subscribe) and each.durable]
        assert len(made) == 1, "it has the subscription, and no second one"
        assert sum(isinstance(each, commands.EndSubscription) for each in desk.commands) == ended


class Refusing(Desk):
    """Has only one destination that may be sent to."""

    def _effects(self, command: AnyCommand) -> list[AnySessionEffect]:
        if isinstance(command, commands.OpenLane) and command.destination != "topic:open":
            return [commands.Fail(command.request, "not-allowed", "no")]
        return super()._effects(command)


def test_a_client_may_try_where_it_is_refused_as_often_as_it_likes() -> None:
    """A connection has so many lanes, and what was refused took none."""
    desk = greeted(Refusing, CONNECT_5)
    for number in range(1, 4):
        desk.receive(publish(b"x", number, properties=b"\x00"))
    desk.receive(publish(b"x", 4, topic=b"\x00\x04open", properties=b"\x00"))
    desk.receive(publish(b"x", 5, properties=b"\x00"))
    opened = [(each.destination, each.lane) for each in desk.commands if isinstance(each, commands.OpenLane)]
    assert opened == [*[("topic:t", 1)] * 3, ("topic:open", 1), ("topic:t", 2)]
    assert not desk.is_over


def test_quality_2_is_received_released_and_completed_once() -> None:
    desk = greeted()
    desk.receive(publish(b"x", 7, qos=2))
    desk.receive(publish(b"x", 7, qos=2))
    assert b"".join(desk.said) == b"\x50\x02\x00\x07" * 2
    assert sum(isinstance(command, commands.Publish) for command in desk.commands) == 1
    desk.receive(b"\x62\x02\x00\x07")
    assert desk.said[-1] == b"\x70\x02\x00\x07"
    desk.receive(publish(b"y", 7, qos=2))
    assert sum(isinstance(command, commands.Publish) for command in desk.commands) == 2


def test_acknowledgements_of_one_read_become_one_settlement() -> None:
    desk = greeted()
    desk.receive(b"\x82\x06\x00\x01\x00\x01t\x01")
    deliver(desk, 1, 5)
    desk.receive(b"".join(b"\x40\x02" + number.to_bytes(2, "big") for number in (2, 1, 4, 5)))
    assert settled(desk) == [[(1, 2), (4, 5)]]


def test_quality_0_is_settled_when_the_network_has_it() -> None:
    desk = greeted()
    desk.receive(b"\x82\x06\x00\x01\x00\x01t\x01")
    deliver(desk, 1, 3, persistent=False)
    assert settled(desk) == []
    desk.receive(b"\xc0\x00")
    assert settled(desk) == [[(1, 3)]]


def test_what_two_subscriptions_were_sent_in_one_go_is_settled_for_both() -> None:
    desk = greeted(Quiet)
    for topic in (b"t", b"u"):
        desk.receive(b"\x82\x06\x00\x01\x00\x01" + topic + b"\x00")
    for consumer in (1, 2):
        buffer = block.pack([b"x"], lane=OTHERS_LANE, first=1)
        desk.tell(commands.Deliver(consumer, 1, Span(parse_trusted(buffer), 0, 1), ""))
    desk.receive(b"\xc0\x00")
    assert [each.consumer for each in desk.commands if isinstance(each, commands.Settle)] == [1, 2]


def test_no_more_are_under_way_than_the_client_can_take() -> None:
    desk = greeted(connect=CONNECT_5)
    desk.receive(b"\x82\x07\x00\x01\x00\x00\x01t\x01")
    desk.said.clear()
    deliver(desk, 1, 4)
    assert len(desk.said) == 2
    desk.receive(b"\x40\x02\x00\x01")
    assert desk.said[-1].endswith(b"3")
    assert settled(desk) == [[(1, 1)]]


def test_a_refused_message_has_a_reason_in_version_5_and_ends_version_3() -> None:
    desk = greeted(Quiet, CONNECT_5)
    desk.receive(publish(b"x", 1, properties=b"\0"))
    desk.tell(commands.Fail(2, "not-allowed", "you may not"))
    desk.receive(b"")
    assert desk.said == [b"\x40\x03\x00\x01\x87"]
    assert not desk.is_over
    desk = greeted(Quiet)
    desk.receive(publish(b"x", 1))
    desk.tell(commands.Fail(2, "not-allowed", "you may not"))
    desk.receive(b"")
    assert desk.is_over


def test_what_comes_before_the_answer_to_connect_waits() -> None:
    desk = Desk(MqttConversation(), delivers=0)
    desk.receive(CONNECT + publish(b"x", 1) + b"\xc0\x00")
    assert b"".join(desk.said) == b"\x20\x02\x00\x00" + b"\xd0\x00" + b"\x40\x02\x00\x01"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"\xf0\x00", 0x82),
        (CONNECT, 0x82),
        (publish(b"x", 1, properties=b"\x03\x23\x00\x41"), 0x94),
        (publish(b"x", 1, topic=b"\x00\x00", properties=b"\0"), 0x82),
        (b"\x82\x03\x00\x01\x00", 0x82),
        (b"\x36\x05\x00\x01t\x00\x01", 0x81),
    ],
)
def test_what_is_wrong_ends_version_5_with_a_reason(said: bytes, reason: int) -> None:
    desk = greeted(connect=CONNECT_5)
    desk.receive(said)
    assert desk.is_over
    kind, farewell = desk.said[-1][0], desk.said[-1]
    assert (kind, farewell[2]) == (0xE0, reason)


def test_a_client_that_nobody_knows_is_told_so_in_its_version() -> None:
    for connect, answer in ((b"\x10\x0c\x00\x04MQTT\x03\x02\x00\x3c\x00\x00", b"\x20\x02\x00\x01"),):
        desk = Desk(MqttConversation())
        desk.receive(connect)
        assert (desk.said, desk.is_over) == ([answer], True)
