"""STOMP's frames: what they may look like in each version, and what is refused."""

from __future__ import annotations

import pytest

from heliograph.frontends.stomp.frames import V1_0, V1_1, V1_2, Frame, FrameReader, encode
from heliograph.model.errors import ProtocolFault
from heliograph.model.limits import MAX_STOMP_HEAD_BYTES, MAX_STOMP_HEADERS


def read(data: bytes, version: str = V1_2, limit: int = 1000) -> list[Frame]:
    reader = FrameReader(limit)
    reader.version = version
    return list(reader.feed(data))


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_frame_is_a_command_headers_and_a_body(end: bytes) -> None:
    raw = end.join([b"SEND", b"destination:/queue/a", b"x:1", b"", b"body\0"])
    assert read(raw + end + end) == [Frame("SEND", {"destination": "/queue/a", "x": "1"}, b"body")]


def test_a_body_with_a_length_may_have_any_bytes() -> None:
    assert read(b"SEND\ncontent-length:3\n\n\0\n\0\0SEND\n\nx\0") == [
        Frame("SEND", {"content-length": "3"}, b"\0\n\0"),
        Frame("SEND", {}, b"x"),
    ]


def test_the_first_of_two_equal_headers_counts() -> None:
    assert read(b"SEND\na:1\na:2\n\n\0")[0].headers == {"a": "1"}


@pytest.mark.parametrize(
    ("version", "raw", "value"),
    [
        (V1_0, rb"a\nb", r"a\nb"),
        (V1_0, b" padded ", "padded"),
        (V1_1, rb"a\nb\c\\n", "a\nb:\\n"),
        (V1_1, b" padded ", " padded "),
        (V1_2, rb"\r\n\c\\\\", "\r\n:\\\\"),
        (V1_2, b"a:b", "a:b"),
    ],
)
def test_headers_are_unescaped_as_the_version_says(version: str, raw: bytes, value: str) -> None:
    assert read(b"SEND\nh:" + raw + b"\n\n\0", version)[0].headers == {"h": value}


def test_frames_that_agree_on_a_version_have_no_escapes() -> None:
    assert read(rb"CONNECT" + b"\n" + rb"passcode:a\nb" + b"\n\n\0")[0].headers == {"passcode": r"a\nb"}


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"HELLO\n\n\0", "frame-unknown"),
        (b"SEND\nnothing\n\n\0", "frame-malformed"),
        (b"SEND\n:nameless\n\n\0", "frame-malformed"),
        (b"SEND\nh:\\x\n\n\0", "frame-malformed"),
        (b"SEND\nh:\\\n\n\0", "frame-malformed"),
        (b"SEND\nh:\xff\n\n\0", "frame-malformed"),
        (b"SEND\ncontent-length:-1\n\n\0", "frame-malformed"),
        (b"SEND\ncontent-length:\xc2\xb2\n\n\0", "frame-malformed"),
        (b"SEND\ncontent-length:2\n\nabc\0", "frame-malformed"),
        (b"SEND\ncontent-length:1001\n\n", "frame-too-long"),
        (b"SEND\n\n" + b"x" * 1001, "frame-too-long"),
        (b"SEND\n\n" + b"x" * 1001 + b"\0", "frame-too-long"),
        (b"SEND\n" + b"h:1\n" * (MAX_STOMP_HEADERS + 1) + b"\n\0", "frame-malformed"),
        (b"SEND\nh:" + b"x" * MAX_STOMP_HEAD_BYTES, "frame-too-long"),
        (b"SEND\nh:" + b"x" * MAX_STOMP_HEAD_BYTES + b"\n\n\0", "frame-too-long"),
    ],
)
def test_what_is_no_frame_is_refused(raw: bytes, code: str) -> None:
    with pytest.raises(ProtocolFault) as fault:
        read(raw)
    assert fault.value.code == code


def test_what_came_before_a_fault_is_seen() -> None:
    frames = FrameReader(10).feed(b"SEND\n\na\0NONSENSE\n\n\0")
    assert next(frames) == Frame("SEND", {}, b"a")
    with pytest.raises(ProtocolFault):
        next(frames)


@pytest.mark.parametrize("version", [V1_1, V1_2])
def test_what_is_encoded_can_be_read(version: str) -> None:
    headers = {"a:b": "c\\d\n:", "e": ""}
    frame = encode("SEND", headers, b"body", version=version)
    assert read(frame, version) == [Frame("SEND", headers, b"body")]


def test_version_1_0_cannot_say_a_line_end_and_leaves_it_out() -> None:
    assert encode("RECEIPT", {"receipt-id": "a\nb:c"}, version=V1_0) == b"RECEIPT\nreceipt-id:a b:c\n\n\0"
