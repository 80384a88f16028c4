"""A WebSocket around STOMP and MQTT: the handshake, frames, and what a client does wrong."""

from __future__ import annotations

import pytest

from heliograph.frontends.conversation import Answered, Broken, Greeted, Left
from heliograph.frontends.detect import recognise
from heliograph.frontends.websocket import frames
from heliograph.frontends.websocket.conversation import WebSocketConversation
from heliograph.frontends.websocket.frames import FrameReader, unmask
from heliograph.frontends.websocket.handshake import NotUpgraded, upgrade
from heliograph.model.errors import ProtocolFault

pytestmark = pytest.mark.req("X1")
CONNECT = b"CONNECT\naccept-version:1.2\n\n\0"


def asking(*more: str, without: str = "") -> bytes:
    lines = [
        "GET /stomp HTTP/1.1",
        "Host: example.com:7700",
        "Upgrade: websocket",
        "Connection: keep-alive, Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
        *more,
    ]
    kept = [line for line in lines if not without or not line.startswith(without)]
    return "\r\n".join([*kept, "", ""]).encode()


def masked(opcode: int, payload: bytes, *, final: bool = True, mask: bytes = b"\x01\x02\x03\x04") -> bytes:
    head = bytes(((0x80 if final else 0) | opcode,))
    if len(payload) < 126:
        head += bytes((0x80 | len(payload),))
    else:
        head += b"\xfe" + len(payload).to_bytes(2, "big")
    return head + mask + unmask(payload, mask)


def test_the_handshake_is_the_one_of_the_standard() -> None:
    answer = upgrade(asking("Sec-WebSocket-Protocol: soap, v12.stomp, mqtt"))
    assert answer.protocol == "v12.stomp"
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in answer.answer
    assert answer.answer.startswith(b"HTTP/1.1 101 ")
    assert answer.answer.endswith(b"Sec-WebSocket-Protocol: v12.stomp\r\n\r\n")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (asking(without="Upgrade"), 426),
        (asking(without="Connection"), 426),
        (asking(without="Sec-WebSocket-Version"), 426),
        (asking(without="Sec-WebSocket-Key"), 400),
        (asking("Sec-WebSocket-Protocol: soap"), 400),
        (asking("no colon"), 400),
        (asking("Gr\xfc\xdfe: ja"), 400),
        (asking("Origin: https://evil.example"), 403),
        (b"GET / HTTP/1.0\r\n\r\n", 400),
    ],
)
def test_what_is_no_handshake_is_refused(request_bytes: bytes, status: int) -> None:
    with pytest.raises(NotUpgraded) as refusal:
        upgrade(request_bytes)
    assert refusal.value.status == status
    assert refusal.value.answer.startswith(b"HTTP/1.1 %d " % status)


def test_pages_may_come_from_the_same_host_or_from_where_the_configuration_says() -> None:
    assert upgrade(asking("Origin: http://example.com"), names=["example.com"]).answer
    assert upgrade(asking("Origin: https://shop.example"), ["https://shop.example"]).answer


@pytest.mark.req("X2")
def test_a_name_that_somebody_else_made_to_lead_here_is_not_ours() -> None:
    """Whoever owns a name lets it lead to 127.0.0.1 when the page has been fetched (DNS rebinding)."""
    with pytest.raises(NotUpgraded, match=r"server\.advertise") as refused:
        upgrade(asking("Origin: http://example.com"))
    assert refused.value.status == 403
    for host in ("localhost", "127.0.0.1", "[::1]", "192.168.1.7"):
        asked = asking(f"Origin: http://{host}").replace(b"Host: example.com", f"Host: {host}".encode())
        assert upgrade(asked).answer, host


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_stomp_is_spoken_inside(step: int) -> None:
    conversation = WebSocketConversation(recognise)
    stream = asking("Sec-WebSocket-Protocol: v12.stomp") + masked(frames.TEXT, CONNECT)
    happened = [
        each
        for start in range(0, len(stream), step)
        for each in conversation.receive(stream[start : start + step])
    ]
    answered, greeted = happened
    assert isinstance(answered, Answered)
    assert isinstance(greeted, Greeted)
    broken = conversation.break_off(ProtocolFault("no more", code="x"))
    assert broken.farewell[:1] == b"\x81"
    assert broken.farewell.endswith(frames.close(frames.PROTOCOL_ERROR))


def test_a_client_that_does_not_say_what_it_speaks_is_recognised() -> None:
    conversation = WebSocketConversation(recognise)
    _, greeted = conversation.receive(
        asking() + masked(frames.BINARY, CONNECT[:5]) + masked(frames.BINARY, CONNECT[5:])
    )
    assert isinstance(greeted, Greeted)
    conversation = WebSocketConversation(recognise)
    _, broken = conversation.receive(asking() + masked(frames.BINARY, b"HELIO\x01\r\n"))
    assert isinstance(broken, Broken)
    assert broken.error.code == "protocol-unknown"


def test_fragments_and_pings_between_them_and_a_close() -> None:
    conversation = WebSocketConversation(recognise)
    conversation.receive(asking("Sec-WebSocket-Protocol: stomp"))
    happened = list(
        conversation.receive(
            masked(frames.TEXT, CONNECT[:9], final=False)
            + masked(frames.PING, b"there?")
            + masked(frames.CONTINUATION, CONNECT[9:])
            + masked(frames.CLOSE, b"\x03\xe8bye")
        )
    )
    assert happened[0] == Answered(b"\x8a\x06there?")
    assert isinstance(happened[1], Greeted)
    assert happened[2:] == [Answered(b"\x88\x02\x03\xe8"), Left("closed")]
    assert list(conversation.receive(masked(frames.TEXT, b"more"))) == []


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"\x81\x05hello", "frame-malformed"),  # not masked
        (b"\xc1\x85mask", "frame-malformed"),  # a bit that means nothing
        (masked(3, b""), "frame-malformed"),
        (masked(frames.PING, b"", final=False), "frame-malformed"),
        (masked(frames.PING, b"x" * 126), "frame-malformed"),
        (masked(frames.CONTINUATION, b""), "frame-malformed"),
        (masked(frames.TEXT, b"", final=False) + masked(frames.TEXT, b""), "frame-malformed"),
        (b"\x82\xff" + (1 << 40).to_bytes(8, "big"), "frame-too-long"),
        (masked(frames.BINARY, b"x" * 101), "frame-too-long"),
    ],
)
def test_frames_that_cannot_be_are_refused(raw: bytes, code: str) -> None:
    with pytest.raises(ProtocolFault) as fault:
        list(FrameReader(100).feed(raw))
    assert fault.value.code == code


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
def test_a_servers_frames_say_their_length(size: int) -> None:
    made = frames.frame(frames.BINARY, b"x" * size)
    expected = size if size < 126 else int.from_bytes(made[2 : 4 if size < 65_536 else 10], "big")
    assert (made[0], expected) == (0x82, size)
    assert made.endswith(b"x" * size)


def test_unmasking_is_its_own_inverse() -> None:
    for size in range(20):
        payload = bytes(range(size))
        assert unmask(unmask(payload, b"abcd"), b"abcd") == payload
    assert unmask(b"\x00\x01\x02\x03\x04", b"\x0f\xf0\x00\xff") == b"\x0f\xf1\x02\xfc\x0b"
