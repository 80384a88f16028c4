"""The frame reader: frames come out whole however bytes came in, and it holds no more than its limit."""

import pytest

from heliograph.frontends.native import frames
from heliograph.frontends.native.frames import FRAME_HEADER_BYTES, HEARTBEAT, FrameReader, pack_header
from heliograph.model.errors import ProtocolFault
from heliograph.model.limits import MAX_CONTROL_BYTES, MAX_FRAME_BYTES

STREAM = b"".join(pack_header(size, 2, 1, size) + bytes(size) for size in (0, 1, 7, 300, 0, 8))
FRAMES = [(2, 1, size, bytes(size)) for size in (0, 1, 7, 300, 0, 8)]


@pytest.mark.parametrize("step", [1, 2, 3, 7, 8, 9, 15, 100, 1000])
def test_frames_come_out_whole_whatever_the_pieces(step: int) -> None:
    reader = FrameReader()
    found = [frame for at in range(0, len(STREAM), step) for frame in reader.feed(STREAM[at : at + step])]
    assert found == FRAMES
    assert reader.buffered == 0


def test_an_unfinished_frame_is_held_as_far_as_it_arrived() -> None:
    reader = FrameReader()
    assert list(reader.feed(STREAM + pack_header(5000, 2, 0, 0) + b"abc")) == FRAMES
    assert reader.buffered == FRAME_HEADER_BYTES + 3
    assert list(reader.feed(bytes(4996))) == []
    assert reader.buffered == FRAME_HEADER_BYTES + 4999
    assert list(reader.feed(b"!" + STREAM)) == [(2, 0, 0, b"abc" + bytes(4996) + b"!"), *FRAMES]
    assert reader.buffered == 0


def test_a_frame_may_be_as_long_as_the_limit_and_not_longer() -> None:
    reader = FrameReader(limit=10)
    assert list(reader.feed(pack_header(10, 2, 0, 0) + bytes(10))) == [(2, 0, 0, bytes(10))]
    with pytest.raises(ProtocolFault) as refusal:
        list(reader.feed(pack_header(11, 2, 0, 0)))
    assert refusal.value.code == "frame-too-long"


def test_a_frame_is_refused_for_its_length_before_any_of_it_arrives() -> None:
    with pytest.raises(ProtocolFault):
        list(FrameReader().feed(pack_header(MAX_FRAME_BYTES + 1, HEARTBEAT, 0, 0)))


@pytest.mark.parametrize("cut", range(1, FRAME_HEADER_BYTES))
def test_a_length_beyond_the_limit_is_seen_also_when_the_header_comes_in_pieces(cut: int) -> None:
    reader = FrameReader(limit=10)
    header = pack_header(11, 2, 0, 0)
    assert list(reader.feed(header[:cut])) == []
    with pytest.raises(ProtocolFault):
        list(reader.feed(header[cut:]))


def test_what_came_before_a_frame_that_is_too_long_is_still_seen() -> None:
    found = FrameReader(limit=300).feed(STREAM + pack_header(301, 2, 0, 0))
    assert [next(found) for _ in FRAMES] == FRAMES
    with pytest.raises(ProtocolFault):
        next(found)


def test_a_control_frame_has_its_own_limit() -> None:
    message = frames.Ask(request=1, subject="x" * MAX_CONTROL_BYTES)
    payload = frames.control_frame(message)[FRAME_HEADER_BYTES:]
    with pytest.raises(ProtocolFault) as refusal:
        frames.decode_from_client(payload)
    assert refusal.value.code == "control-too-long"


def test_a_field_that_is_not_known_yet_is_passed_over() -> None:
    """Fields are appended: an older peer must be able to read what a newer one writes."""
    payload = b"\x83\xa4type\xa9completed\xa7request\x05\xa5extra\x01"
    assert frames.decode_from_server(payload) == frames.Completed(5)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\x80",
        b"\x81\xa4type\xa4what",
        b"\x81\xa4type\xa9subscribe",
        b"\x82\xa4type\xa5hello\xa4user\x05",
        b"\x82\xa4type\xa5hello\xa4user\xa2\xff\xff",
        b"\x81\xa4type\xa2\xff\xff",
        b"\x81\xa4type\xa5hello" + b"rest",
        b"\x84\xa4type\xa3ask\xa7request\x01\xa7subject\xa1x\xa9arguments\x81\xa1a"
        + b"\x91" * 5000
        + b"\xc0",
    ],
)
def test_a_control_frame_that_cannot_be_read_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolFault) as refusal:
        frames.decode_from_client(payload)
    assert refusal.value.code == "control-malformed"
