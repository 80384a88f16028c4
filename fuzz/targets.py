"""What is fuzzed. Each target takes bytes as an outsider would send them, or as a damaged disk gives them back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from crc32c import crc32c

from fuzz.desk import OTHERS_LANE, Desk
from heliograph.bus import frames, wire
from heliograph.bus.assembling import Assembler
from heliograph.bus.frames import read_piece
from heliograph.bus.interface import Place
from heliograph.frontends.alert_messages import meant_by
from heliograph.frontends.amqp.content_reader import ContentReader
from heliograph.frontends.amqp.conversation import AmqpConversation
from heliograph.frontends.amqp.messages import Encoder, arrived
from heliograph.frontends.amqp.sasl import HEADER
from heliograph.frontends.detect import Detecting, recognise
from heliograph.frontends.http.conversation import HttpConversation
from heliograph.frontends.http.front_desk import FrontDesk
from heliograph.frontends.http.replies import Reply
from heliograph.frontends.http.requests import Request
from heliograph.frontends.http.steps import Call, Found, Look, Question, Steps
from heliograph.frontends.mqtt.conversation import MqttConversation
from heliograph.frontends.mqtt.topics import parse_channel, parse_filter
from heliograph.frontends.native.conversation import Conversation as NativeConversation
from heliograph.frontends.native.frames import PREAMBLE, Hello, control_frame
from heliograph.frontends.stomp.conversation import StompConversation
from heliograph.frontends.websocket.conversation import WebSocketConversation
from heliograph.journal.records import FRAME_HEADER_BYTES, FRAME_MAGIC, Record, offset_of, position_of
from heliograph.journal.recovery import LogScan
from heliograph.model import block
from heliograph.model.alert_topics import parse_destination, parse_topics
from heliograph.model.destination import parse_address
from heliograph.model.errors import HeliographError
from heliograph.model.message import Property, decode_body, decode_head
from heliograph.model.patterns import parse_pattern
from heliograph.model.selector import parse_selector
from heliograph.security import scram
from heliograph.security.sasl import Channel, Proof, Refused

Target = Callable[[bytes], None]
_SEGMENT = 1
_PIECE = frames.MAGIC.to_bytes(2, "little")
_STOMP = tuple(b"CONNECT\naccept-version:%s\n\n\0" % version for version in (b"1.0", b"1.1", b"1.2"))
_MQTT = {
    0: b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04self",
    1: b"\x10\x16\x00\x04MQTT\x05\x00\x00\x3c\x05\x11\x00\x00\x00\x09\x00\x04self",
}
# The header, `open` with a container id, and `begin`.
_AMQP = (
    HEADER
    + b"\x00\x00\x00\x12\x02\x00\x00\x00\x00\x53\x10\xc0\x05\x01\xa1\x02me"
    + b"\x00\x00\x00\x17\x02\x00\x00\x00\x00\x53\x11\xc0\x0a\x04\x40\x43\x70\x00\x00\x10\x00\x52\x7f"
)
_WEBSOCKET = (
    b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def _pieces(data: bytes) -> list[bytes]:
    """The first byte says how the rest is cut."""
    size = data[0] if data else 1
    rest = data[1:]
    return [rest[start : start + size] for start in range(0, len(rest), size)] if size else [rest]


def _converse(desk: Desk, data: bytes) -> None:
    for piece in _pieces(data):
        desk.receive(piece)


def native(data: bytes) -> None:
    """Our own protocol, as it comes and after a greeting."""
    _converse(Desk(NativeConversation()), data)
    desk = Desk(NativeConversation())
    desk.receive(PREAMBLE + control_frame(Hello()))
    _converse(desk, data)


def detect(data: bytes) -> None:
    _converse(Desk(Detecting()), data)


def stomp(data: bytes) -> None:
    """After CONNECT, in each version: all frames that a client may send, with a server that answers."""
    for connect in _STOMP:
        desk = Desk(StompConversation())
        desk.receive(connect)
        _converse(desk, data)
    _converse(Desk(StompConversation()), data)


def mqtt(data: bytes) -> None:
    """After CONNECT, in both versions."""
    for connect in _MQTT.values():
        desk = Desk(MqttConversation())
        desk.receive(connect)
        _converse(desk, data)
    _converse(Desk(MqttConversation()), data)


def amqp(data: bytes) -> None:
    """After a greeting, which Proton reads; and a message, which we read and write again."""
    desk = Desk(AmqpConversation())
    desk.receive(_AMQP)
    _converse(desk, data)
    desk.conversation.lost()
    with suppress(HeliographError):
        reader = ContentReader(data)
        reader.feed(data[len(reader.head) :])
        reader.finish()
    with suppress(HeliographError):
        meant_by(arrived(data, 1_000_000).message, 1_000_000)
    with suppress(HeliographError):
        found = arrived(data, 1_000_000).message
        lone = block.pack_lone(found.body, lane=OTHERS_LANE, sequence=1, kind=found.kind, head=found.head)
        for jms in (False, True):
            Encoder(jms=jms).encode(block.unpack(lone), 0, destination="queue:a", earlier=0, user="", now=0)


def websocket(data: bytes) -> None:
    """The request, and the frames behind one."""
    _converse(Desk(WebSocketConversation(recognise)), data)
    desk = Desk(WebSocketConversation(recognise))
    desk.receive(_WEBSOCKET)
    _converse(desk, data)


def http(data: bytes) -> None:
    """Requests as they come, to a server that has an answer for all of them."""
    for answerer in (None, _everywhere):
        _converse(Desk(HttpConversation(FrontDesk(answerer), recognise)), data)


def _everywhere(request: Request, call: Callable[..., Call]) -> Found:
    def handle() -> Steps:
        body = yield Question("server")
        seen = yield Look("queue:a", "", 0, 5)
        return Reply(200, [call({}, None, request.body).user, len(body), len(seen.messages)])

    return Found(handle)


def blocks(data: bytes) -> None:
    """A block of a producer, and what a consumer makes of it; the checksum is put right, or nothing would pass it."""
    try:
        parsed = block.parse(_with_checksum(data))
        contents = block.unpack(parsed.buffer or b"")
    except HeliographError:
        return
    assert len(contents.bodies) == parsed.count
    for head in contents.heads or ():
        _quietly(decode_head, head)
    for body in contents.bodies:
        for kind in range(4):
            decode_body(kind, body)


def _with_checksum(data: bytes) -> bytes:
    if len(data) < block.HEADER_BYTES:
        return data
    buffer = bytearray(data)
    buffer[4:8] = len(data).to_bytes(4, "little")
    checksum = crc32c(memoryview(buffer)[block.PREFIX_BYTES :])
    buffer[block.CHECKSUM] = checksum.to_bytes(4, "little")
    return bytes(buffer)


def _quietly(work: Callable[[bytes], object], data: bytes) -> None:
    with suppress(HeliographError):
        work(data)


def journal(data: bytes) -> None:
    """A segment that is damaged in any way is understood as far as it is whole, or refused with the place; also with
    right checksums, or nothing would come to the records."""
    for segment in (data, _with_frame_checksums(data)):
        found: list[Record] = []
        scan = LogScan(seed=0, start=position_of(_SEGMENT, 0), lsn=1, on_record=found.append)
        with suppress(HeliographError):
            scan.feed(_SEGMENT, segment, "1")
            scan.finish()
        for record in found:
            assert segment.startswith(record.payload, offset_of(record.position))


def _with_frame_checksums(data: bytes) -> bytes:
    """Frames one behind the other, each as long as it says, say where they stand and that they are whole."""
    buffer = bytearray(data)
    at = 0
    while at + FRAME_HEADER_BYTES <= len(buffer):
        records = at + FRAME_HEADER_BYTES
        stop = records + int.from_bytes(buffer[at + 8 : at + 12], "little")
        buffer[at : at + 4] = FRAME_MAGIC
        buffer[at + 12 : at + 16] = crc32c(bytes(buffer[records:stop])).to_bytes(4, "little")
        buffer[at + 40 : records] = position_of(_SEGMENT, at).to_bytes(8, "little")
        buffer[at + 4 : at + 8] = crc32c(bytes(buffer[at + 8 : records])).to_bytes(4, "little")
        at = stop
    return bytes(buffer)


def bus(data: bytes) -> None:
    """What comes from other nodes: commands, and the pieces of frames as they are put together, which begin at each
    `HF`. Their checksums are put right."""
    _quietly(wire.read, data)
    _quietly(read_piece, data)
    assembler = Assembler()
    for rest in data.split(_PIECE)[1:]:
        with suppress(HeliographError):
            assembler.receive(Place(1, 1), _with_piece_checksum(_PIECE + rest))


def _with_piece_checksum(piece: bytes) -> bytes:
    if len(piece) < frames.HEADER_BYTES:
        return piece
    return piece[:4] + crc32c(piece[8:]).to_bytes(4, "little") + piece[8:]


# Of each type that a property can have; names that are not here are NULL.
_PROPERTIES: dict[str, Property] = {
    **{"n": 5, "x": -(2**63), "price": 1.5, "huge": float("inf"), "nan": float("nan")},
    **{"flag": True, "no": False, "text": "a_b%c", "empty": "", "raw": b"\x00", "JMSPriority": 4},
}


def selectors(data: bytes) -> None:
    """What is a selector is tried on a message, too: it is true, false or unknown, and nothing else."""
    try:
        selector = parse_selector(data.decode(errors="replace"))
    except HeliographError:
        return
    if selector is not None:
        assert selector.evaluate(_PROPERTIES) in (True, False, None)
        selector.evaluate({})


def names(data: bytes) -> None:
    """Addresses, filters of MQTT and topics of alerts, as clients write them."""
    text = data.decode(errors="replace")
    for read in (parse_address, parse_topics, parse_destination, parse_filter, parse_channel):
        with suppress(HeliographError):
            read(text)


def patterns(data: bytes) -> None:
    text = data.decode(errors="replace")
    for form in ("topic:glob:", "topic:regex:"):
        try:
            pattern = parse_pattern(form + text)
        except HeliographError:
            continue
        assert pattern is not None
        pattern.matches("topic:prices.eu")


def sasl(data: bytes) -> None:
    """Messages of a log-in, by each mechanism; and what a server may answer to our client."""
    first, _, second = data[1:].partition(b"\xff")
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "EXTERNAL"):
        proof = Proof(
            Channel(True, "ann"), keys=lambda name: scram.decoy(b"secret", name), nonce="of-the-server"
        )
        proof.begin(mechanism, first)
        proof.respond(second)
    proof = Proof(Channel(False), keys=lambda name: scram.decoy(b"secret", name), nonce="of-the-server")
    proof.begin("SCRAM-SHA-256", b"n,,n=ann,r=of-the-client")
    assert isinstance(proof.respond(first), Refused)
    client = scram.Client("ann", "secret", "of-the-client")
    with suppress(HeliographError):
        _, rounds = client.challenged(first)
        assert scram.MIN_ROUNDS <= rounds <= scram.MAX_ROUNDS, "no server keeps its client busy"
        client.final(bytes(32))
    _quietly(client.check, second)


TARGETS: dict[str, Target] = {
    target.__name__: target
    for target in (
        native,
        detect,
        stomp,
        mqtt,
        amqp,
        websocket,
        http,
        blocks,
        journal,
        bus,
        selectors,
        patterns,
        names,
        sasl,
    )
}
