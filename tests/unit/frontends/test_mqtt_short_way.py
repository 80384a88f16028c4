"""Messages about which nothing is said take a shorter way through MQTT, which leads to where the long one does."""

from __future__ import annotations

import pytest

from fuzz.desk import OTHERS_LANE, Desk
from heliograph.frontends.mqtt import packets
from heliograph.frontends.mqtt.conversation import MqttConversation
from heliograph.frontends.mqtt.delivering import Delivering
from heliograph.frontends.mqtt.messages import QOS, Outgoing, are_plain
from heliograph.frontends.mqtt.packets import V3, V5
from heliograph.frontends.mqtt.subscriptions import Options, Subscription
from heliograph.frontends.mqtt.topics import parse_filter
from heliograph.model import block
from heliograph.model.message import Head, encode_head
from heliograph.sessions import commands
from heliograph.sessions.commands import AnyCommand, AnySessionEffect

pytestmark = pytest.mark.req("X1")
CONNECT = {
    V3: b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00",
    V5: b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x00",
}
BODIES = [b"", b"x", b"x" * 100, b"x" * 125, b"x" * 20_000, b"same", b"same"]


def delivering(version: int, *, most: int = 100, limit: int = 1 << 28, aliases: int = 0) -> Delivering:
    return Delivering(version, receive_maximum=most, packet_limit=limit, aliases=aliases)


def subscription(qos: int = 1, identifier: int = 0) -> Subscription:
    return Subscription(1, "t", parse_filter("t"), Options(qos, identifier=identifier), "")


@pytest.mark.parametrize("version", [V3, V5])
def test_what_a_client_gets_is_the_same_on_both_ways(version: int) -> None:
    contents = block.unpack(block.pack(BODIES, lane=OTHERS_LANE, first=1))
    short, long = delivering(version), delivering(version)
    assert are_plain(contents, version)
    assert short.deliver_plain(subscription(), 5, contents.bodies, "topic:t")
    for index in range(len(BODIES)):
        message = Outgoing(contents, index, version=version, now=0)
        long.deliver(subscription(), 5 + index, message, destination="topic:t", identity="")
    assert short.out == long.out
    for way in (short, long):
        for number in (1, 2, 5):
            way.acknowledged(number, 1)
    assert short.take_settled() == long.take_settled() == [(1, [(5, 6), (9, 9)])]


def test_numbers_that_are_under_way_are_not_used_again() -> None:
    way = delivering(V3, most=0xFFFF)
    way.deliver_plain(subscription(), 1, [b""] * 0xFFFE, "topic:t")
    for number in (*range(1, 10), *range(12, 0xFFFF)):
        way.acknowledged(number, 1)
    way.out.clear()
    way.deliver_plain(subscription(), 0xFFFF, [b""] * 12, "topic:t")
    assert [int.from_bytes(packet[-2:]) for packet in way.out] == [0xFFFF, *range(1, 10), 12, 13]


@pytest.mark.parametrize(
    ("way", "wanted"),
    [
        (delivering(V3, most=6), subscription()),
        (delivering(V5, limit=20_000), subscription()),
        (delivering(V5, aliases=3), subscription()),
        (delivering(V5), subscription(identifier=7)),
        (delivering(V3), subscription(qos=0)),
        (delivering(V3), subscription(qos=2)),
    ],
)
def test_what_needs_more_thought_takes_the_long_way(way: Delivering, wanted: Subscription) -> None:
    assert not way.deliver_plain(wanted, 1, BODIES, "topic:t")
    assert way.out == []


@pytest.mark.parametrize(
    ("said", "in_3", "in_5"),
    [
        ({"heads": [encode_head(Head(type="t"))]}, False, False),
        ({"persistent": False}, False, False),
        ({"kind": int(block.BodyKind.TEXT)}, False, False),
        ({"expiry": 5}, True, False),
        ({"expiries": [5]}, True, False),
        ({"priority": 9}, True, False),
        ({"priorities": [9]}, True, False),
    ],
)
def test_what_is_to_be_said_about_a_message_decides(said: dict[str, object], in_3: bool, in_5: bool) -> None:
    contents = block.unpack(block.pack([b"x"], lane=OTHERS_LANE, first=1, **said))  # type: ignore[arg-type]
    assert (are_plain(contents, V3), are_plain(contents, V5)) == (in_3, in_5)


class Refusing(Desk):
    """Takes the first block of a lane, and no other."""

    def _effects(self, command: AnyCommand) -> list[AnySessionEffect]:
        if isinstance(command, commands.Publish) and command.block.first > 1:
            return [commands.RefuseLane(1, command.block.first, "quota-exceeded", "there is no room")]
        return super()._effects(command)


def said_after(kind: type[Desk], version: int, *sent: bytes) -> tuple[Desk, bytes]:
    desk = kind(MqttConversation(), delivers=0)
    desk.receive(CONNECT[version])
    desk.said.clear()
    for packet in sent:
        desk.receive(packet)
    return desk, b"".join(desk.said)


def publish(version: int, payload: bytes, number: int, properties: bytes = b"\0") -> bytes:
    return packets.publish(
        b"\x00\x01t",
        payload,
        qos=1,
        retain=False,
        duplicate=False,
        packet_id=number,
        properties=properties if version == V5 else b"",
    )


@pytest.mark.parametrize("version", [V3, V5])
def test_what_a_client_sends_again_and_again_to_a_topic_is_stored_and_confirmed(version: int) -> None:
    desk, said = said_after(Desk, version, *(publish(version, b"%d" % n, n) for n in (1, 2, 300)))
    blocks = [each.block for each in desk.commands if isinstance(each, commands.Publish)]
    stored = [block.unpack(each.buffer or b"") for each in blocks]
    assert [(each.bodies, each.persistent, each.heads) for each in stored] == [
        ([b"1"], True, None),
        ([b"2"], True, None),
        ([b"300"], True, None),
    ]
    assert said == b"\x40\x02\x00\x01\x40\x02\x00\x02\x40\x02\x01\x2c"


def test_properties_of_a_message_are_kept_though_its_topic_was_used_before() -> None:
    said = b"\x07\x26\x00\x01a\x00\x01b"
    desk, _ = said_after(Desk, V5, publish(V5, b"1", 1), publish(V5, b"2", 2, said))
    last = [each.block for each in desk.commands if isinstance(each, commands.Publish)][-1]
    assert block.unpack(last.buffer or b"").heads is not None


@pytest.mark.parametrize("version", [V3, V5])
def test_a_message_without_a_number_or_cut_short_ends_the_connection(version: int) -> None:
    for wrong in (publish(version, b"2", 0), b"\x32\x03\x00\x01t", b"\x32\x01\x00"):
        desk, _ = said_after(Desk, version, publish(version, b"1", 1), wrong)
        assert desk.is_over


def test_a_message_that_is_refused_is_told_so_in_version_5() -> None:
    _, said = said_after(Refusing, V5, publish(V5, b"1", 1), publish(V5, b"2", 2))
    assert said.startswith(b"\x40\x02\x00\x01\x40\x03\x00\x02")
    assert said[8] >= 0x80


def test_a_message_that_is_refused_ends_the_connection_in_version_3() -> None:
    desk, said = said_after(Refusing, V3, publish(V3, b"1", 1), publish(V3, b"2", 2))
    assert (desk.is_over, said) == (True, b"\x40\x02\x00\x01")


def test_many_pubacks_settle_what_is_of_quality_1_and_nothing_else() -> None:
    way = delivering(V3)
    way.deliver_plain(subscription(), 1, [b"a", b"b", b"c"], "topic:t")
    heads = [encode_head(Head(properties={QOS: 2}))]
    contents = block.unpack(block.pack([b"d"], lane=OTHERS_LANE, first=4, heads=heads))
    message = Outgoing(contents, 0, version=V3, now=0)
    way.deliver(subscription(qos=2), 4, message, destination="topic:t", identity="d")
    way.acknowledged_all((1, 3, 4, 99))
    assert way.take_settled() == [(1, [(1, 1), (3, 3)])]


@pytest.mark.parametrize("data", [b"\x40\x02\x00", b"\x40\x02\x00\x01\x50\x02\x00\x02", b"\x40\x03\x00\x01"])
def test_bytes_that_are_more_than_pubacks_are_read_packet_by_packet(data: bytes) -> None:
    assert packets.read_pubacks(data) == ()
    assert packets.read_pubacks(b"\x40\x02\x00\x01\x40\x02\x01\x02") == (1, 0x102)
