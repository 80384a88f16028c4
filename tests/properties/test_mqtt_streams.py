"""However the network cuts a stream of MQTT packets or WebSocket frames, the same comes out; and no bytes at all
break a reader or a conversation."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from heliograph.frontends.conversation import Answered, AnyHappening, Broken, Greeted, Left
from heliograph.frontends.detect import recognise
from heliograph.frontends.mqtt.conversation import MqttConversation
from heliograph.frontends.mqtt.delivering import ranges_of
from heliograph.frontends.mqtt.packets import Packet, PacketReader, packet
from heliograph.frontends.websocket.conversation import WebSocketConversation
from heliograph.frontends.websocket.frames import Frame, FrameReader, unmask
from heliograph.model.errors import ProtocolFault

CONNECT = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04self"
UPGRADE = (
    b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
places = st.lists(st.integers(0, 10_000), max_size=8)
noise = st.lists(
    st.one_of(
        st.binary(max_size=20),
        st.sampled_from(
            [
                b"\x10\x10",
                b"\x30\x05\x00\x01a",
                b"\x82\x06\x00\x01",
                b"\xc0\x00",
                b"\xe0\x00",
                b"\x81\x85",
                CONNECT,
            ]
        ),
    ),
    max_size=12,
).map(b"".join)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    ends = sorted(place % (len(data) + 1) for place in at)
    return [data[start:stop] for start, stop in zip([0, *ends], [*ends, len(data)], strict=True)]


def packets_of(pieces: list[bytes]) -> tuple[list[Packet], str]:
    reader = PacketReader(300)
    read: list[Packet] = []
    for piece in pieces:
        try:
            for each in reader.feed(piece):
                read.append(each)
        except ProtocolFault as fault:
            return read, fault.code
    return read, ""


@given(st.lists(st.tuples(st.sampled_from([3, 8, 10, 12]), st.binary(max_size=250)), max_size=6), places)
def test_packets_survive_any_cut(sent: list[tuple[int, bytes]], at: list[int]) -> None:
    stream = b"".join(packet(kind, 2 if kind in (8, 10) else 0, body) for kind, body in sent)
    read, code = packets_of(cut(stream, at))
    assert ([(kind, body) for kind, _, body in read], code) == (sent, "")


@given(noise, places)
def test_nonsense_comes_to_the_same_end_however_it_is_cut(data: bytes, at: list[int]) -> None:
    assert packets_of(cut(data, at)) == packets_of([data])


@given(noise, places)
def test_no_bytes_break_a_conversation(data: bytes, at: list[int]) -> None:
    conversation = MqttConversation()
    happened: list[AnyHappening] = []
    for piece in cut(CONNECT + data, at):
        happened += conversation.receive(piece)
    assert isinstance(happened[0], Greeted)
    assert all(isinstance(each, Greeted | Broken) for each in happened)


def frames_of(pieces: list[bytes]) -> tuple[list[Frame], str]:
    reader = FrameReader(300)
    read: list[Frame] = []
    for piece in pieces:
        try:
            for each in reader.feed(piece):
                read.append(each)
        except ProtocolFault as fault:
            return read, fault.code
    return read, ""


@given(
    st.lists(
        st.tuples(st.sampled_from([1, 2, 9]), st.binary(max_size=120), st.binary(min_size=4, max_size=4)),
        max_size=6,
    ),
    places,
)
def test_websocket_frames_survive_any_cut(sent: list[tuple[int, bytes, bytes]], at: list[int]) -> None:
    stream = b"".join(
        bytes((0x80 | opcode, 0x80 | len(payload))) + mask + unmask(payload, mask)
        for opcode, payload, mask in sent
    )
    assert frames_of(cut(stream, at)) == ([(opcode, payload) for opcode, payload, _ in sent], "")
    assert frames_of(cut(stream + b"\xff", at)) == frames_of([stream + b"\xff"])


@given(noise, places)
def test_no_bytes_break_a_websocket(data: bytes, at: list[int]) -> None:
    conversation = WebSocketConversation(recognise)
    happened: list[AnyHappening] = []
    for piece in cut(UPGRADE + data, at):
        happened += conversation.receive(piece)
    assert all(isinstance(each, Answered | Greeted | Broken | Left) for each in happened)


@given(st.sets(st.integers(1, 60)))
def test_tags_become_ranges(tags: set[int]) -> None:
    ranges = ranges_of(sorted(tags, key=lambda tag: tag * 37 % 61))
    assert [tag for low, high in ranges for tag in range(low, high + 1)] == sorted(tags)
    assert all(after[0] - before[1] > 1 for before, after in itertools.pairwise(ranges))
