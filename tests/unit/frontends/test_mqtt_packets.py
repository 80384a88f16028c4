"""MQTT's packets: what they look like in each version, and what is refused."""

from __future__ import annotations

import pytest

from heliograph.frontends.mqtt import packets
from heliograph.frontends.mqtt.packets import V3, V5, PacketReader
from heliograph.frontends.mqtt.properties import encode_properties, read_properties
from heliograph.frontends.mqtt.reading import Cursor, pack_varint
from heliograph.frontends.mqtt.topics import parse_filter, retained_pattern, topic_of
from heliograph.model.errors import InvalidName, ProtocolFault
from heliograph.model.patterns import parse_pattern

pytestmark = pytest.mark.req("X1")


@pytest.mark.parametrize("length", [0, 1, 127, 128, 16_383, 16_384, 2_097_152])
def test_lengths_take_one_to_four_bytes(length: int) -> None:
    raw = b"\x30" + pack_varint(length) + b"x" * length
    assert [(kind, flags, len(body)) for kind, flags, body in PacketReader(1 << 22).feed(raw)] == [
        (packets.PUBLISH, 0, length)
    ]


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"\x30\xff\xff\xff\xff\x01", "frame-malformed"),
        (b"\x30\x80\x80\x01", "frame-too-long"),
        (b"\x00\x00", "frame-unknown"),
        (b"\x20\x00", "frame-unknown"),
        (b"\x60\x02\x00\x01", "frame-malformed"),
        (b"\xc1\x00", "frame-malformed"),
    ],
)
def test_what_is_no_packet_is_refused(raw: bytes, code: str) -> None:
    with pytest.raises(ProtocolFault) as fault:
        list(PacketReader(1000).feed(raw))
    assert fault.value.code == code


def test_connect_with_everything() -> None:
    body = (
        b"\x00\x04MQTT\x05\xee\x00\x0a"
        + b"\x05\x11\x00\x00\x00\x07"
        + b"\x00\x02me"
        + b"\x05\x18\x00\x00\x00\x09"
        + b"\x00\x01w\x00\x03bye"
        + b"\x00\x01u\x00\x01p"
    )
    connect = packets.read_connect(body)
    assert (connect.version, connect.client_id, connect.clean_start, connect.keep_alive) == (
        V5,
        "me",
        True,
        10,
    )
    assert connect.properties == {"session_expiry": 7}
    assert connect.will == packets.Will("w", b"bye", 1, True, {"will_delay": 9})
    assert (connect.user, connect.password) == ("u", b"p")


@pytest.mark.parametrize(
    "body",
    [
        b"\x00\x04MQTT\x04\x03\x00\x00\x00\x00",  # a reserved flag
        b"\x00\x04MQTT\x04\x1e\x00\x00\x00\x00",  # quality 3
        b"\x00\x04MQTT\x04\x22\x00\x00\x00\x00",  # retain without a will
        b"\x00\x04MQTT\x04\x42\x00\x00\x00\x00",  # a password without a user
        b"\x00\x04MQTT\x04\x02\x00\x00\x00\x02x",
        b"\x00\x04MQTT\x04\x02\x00\x00\x00\x00more",
        b"\x00\x04MQTT\x04\x02\x00\x00\x00\x01\xff",
        b"\x00\x04MQTT\x04\x02\x00\x00\x00\x01\x00",
        b"\x00\x04MQTT\x05\x02\x00\x00\x02\x7f\x00\x00\x00",  # a property that is not known
        b"\x00\x04MQTT\x05\x02\x00\x00\x02\x01\x00\x00\x00",  # one that belongs elsewhere
        b"\x00\x04MQTT\x05\x02\x00\x00\x03\x21\x00\x00\x00\x00",  # one that cannot be 0
    ],
)
def test_a_connect_that_contradicts_itself_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolFault):
        packets.read_connect(body)


def test_versions_that_are_not_spoken_have_a_code_of_their_own() -> None:
    with pytest.raises(ProtocolFault) as fault:
        packets.read_connect(b"\x00\x04MQTT\x03\x02\x00\x00\x00\x00")
    assert fault.value.code == "version-unknown"


def test_properties_are_read_as_they_are_written() -> None:
    said = {
        "payload_format": 1,
        "message_expiry": 70_000,
        "content_type": "text/ü",
        "correlation_data": b"\x00\xff",
        "subscription_identifier": [1, 300],
        "topic_alias": 5,
        "user_property": [("a", "1"), ("a", "2")],
    }
    assert read_properties(Cursor(encode_properties(said)), packets.PUBLISH) == said


@pytest.mark.parametrize("version", [V3, V5])
def test_a_publish_is_read_as_it_is_written(version: int) -> None:
    properties = encode_properties({"content_type": "x"}) if version == V5 else b""
    raw = packets.publish(
        b"\x00\x03a/b", b"body", qos=1, retain=True, duplicate=False, packet_id=7, properties=properties
    )
    ((_, flags, body),) = PacketReader(100).feed(raw)
    packet = packets.read_publish(flags, body, version)
    assert (packet.topic, packet.payload, packet.qos, packet.retain, packet.packet_id) == (
        "a/b",
        b"body",
        1,
        True,
        7,
    )
    assert packet.properties == ({"content_type": "x"} if version == V5 else {})


@pytest.mark.parametrize(
    ("flags", "body"),
    [
        (6, b"\x00\x01a\x00\x01"),
        (2, b"\x00\x01a\x00\x00"),
        (8, b"\x00\x01a"),
        (0, b"\x00"),
        (0, b"\x00\x05a"),
        (2, b"\x00\x01a\x00"),
    ],
)
def test_a_publish_that_cannot_be_is_refused(flags: int, body: bytes) -> None:
    with pytest.raises(ProtocolFault):
        packets.read_publish(flags, body, V3)


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("a/+", ["a/b", "a/"], ["a", "a/b/c", "ba/b"]),
        ("a/#", ["a", "a/b", "a/b/c"], ["ab", "b/a"]),
        ("#", ["a", "a/b"], ["$secret", "$secret/a"]),
        ("+/b", ["a/b", "/b"], ["$a/b", "a/c"]),
        ("+", ["a"], ["a/b", "$a"]),
        ("a.b/+", ["a.b/c"], ["axb/c"]),
    ],
)
def test_a_filter_means_the_topics_that_the_standard_says(
    text: str, matching: list[str], others: list[str]
) -> None:
    meaning = parse_filter(text)
    pattern = parse_pattern(meaning.address)
    retained = parse_pattern(retained_pattern(meaning), of_queues=True)
    assert pattern is not None
    assert retained is not None
    assert [pattern.matches(f"topic:{name}") for name in matching] == [True] * len(matching)
    assert [pattern.matches(f"topic:{name}") for name in others] == [False] * len(others)
    assert [retained.matches(f"queue:$retained/{name}") for name in matching] == [True] * len(matching)
    assert [retained.matches(f"queue:$retained/{name}") for name in others] == [False] * len(others)


@pytest.mark.parametrize(
    "text", ["", "a/#/b", "a#", "a/b+", "$share/g", "$share//a", "$share/+/a", "$queue/+"]
)
def test_filters_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(InvalidName):
        parse_filter(text)


def test_addresses_have_names_in_mqtt() -> None:
    assert [topic_of("topic:a/b"), topic_of("queue:q"), topic_of("odd")] == ["a/b", "$queue/q", "odd"]
