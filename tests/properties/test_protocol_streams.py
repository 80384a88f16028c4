"""The protocol engine against any stream: cuts do not matter, and nothing makes it raise or swell."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from heliograph.frontends.conversation import AnyHappening, Broken, Greeted, Left
from heliograph.frontends.native import frames
from heliograph.frontends.native.conversation import Conversation
from heliograph.frontends.native.frames import (
    CONTROL,
    FRAME_HEADER_BYTES,
    HEARTBEAT_FRAME,
    PREAMBLE,
    Hello,
    Welcome,
    control_frame,
    pack_header,
)
from heliograph.model.limits import MAX_FRAME_BYTES, MAX_GREETING_BYTES
from tests.golden.specimens import BLOCKS, FRAMES
from tests.properties.block_strategies import whole_blocks

pytestmark = pytest.mark.req("X2")

GREETING = PREAMBLE + control_frame(Hello())
WELCOME = Welcome(version=1, server="test", user="guest", heartbeat_seconds=10.0)

NUMBERS = st.integers(min_value=0, max_value=65535)
U32 = st.integers(min_value=0, max_value=2**32 - 1)
TAGS = st.integers(min_value=0, max_value=2**64 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ANY_INT = st.integers(min_value=-(2**63), max_value=2**64 - 1)

HONEST: SearchStrategy[bytes] = st.one_of(
    st.builds(frames.publish_frame, NUMBERS, whole_blocks(max_messages=4), resent=st.booleans()),
    st.builds(frames.credit_frame, NUMBERS, U32, U32),
    st.builds(
        frames.settle_frame,
        NUMBERS,
        U32,
        st.sampled_from((0, 1)),
        st.lists(st.tuples(TAGS, TAGS), max_size=3),
        st.integers(min_value=0, max_value=255),
    ),
    st.just(HEARTBEAT_FRAME),
    st.builds(frames.OpenSession, ANY_INT, ANY_INT, st.binary(max_size=20), st.binary(max_size=20)).map(
        control_frame
    ),
    st.builds(frames.OpenLane, ANY_INT, ANY_INT, ANY_INT, TEXT).map(control_frame),
    st.builds(frames.Subscribe, ANY_INT, ANY_INT, ANY_INT, TEXT, ANY_INT).map(control_frame),
    st.builds(frames.Unsubscribe, ANY_INT, ANY_INT, ANY_INT).map(control_frame),
    st.builds(frames.Ask, ANY_INT, TEXT, st.dictionaries(TEXT, TEXT, max_size=2)).map(control_frame),
)


@st.composite
def mangled(draw: st.DrawFn) -> bytes:
    """A frame of any kind with a few bytes changed, its length kept right or not."""
    raw = bytearray(draw(st.one_of(HONEST, st.sampled_from(sorted(FRAMES.values())))))
    for _ in range(draw(st.integers(min_value=1, max_value=3))):
        position = draw(st.integers(min_value=0, max_value=len(raw) - 1))
        raw[position] = draw(st.integers(min_value=0, max_value=255))
    if draw(st.booleans()):
        raw[:4] = (len(raw) - FRAME_HEADER_BYTES).to_bytes(4, "little")
    return bytes(raw)


NOISE: SearchStrategy[bytes] = st.one_of(
    st.binary(max_size=60),
    mangled(),
    st.builds(
        lambda kind, flags, number, payload: pack_header(len(payload), kind, flags, number) + payload,
        st.integers(min_value=0, max_value=9),
        st.integers(min_value=0, max_value=255),
        NUMBERS,
        st.binary(max_size=60),
    ),
    st.builds(pack_header, U32, st.integers(min_value=0, max_value=9), st.just(0), NUMBERS),
)


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:stop] for start, stop in pairwise(edges) if start < stop]


def hear(pieces: list[bytes], *, admitted: bool) -> list[AnyHappening]:
    """Everything a conversation makes of these pieces; it must never hold more than its limit allows."""
    peer = Conversation()
    limit = MAX_GREETING_BYTES
    if admitted:
        assert peer.receive(GREETING) == [Greeted(Hello())]
        peer.admit(WELCOME)
        limit = MAX_FRAME_BYTES
    heard: list[AnyHappening] = []
    for piece in pieces:
        heard += peer.receive(piece)
        assert peer.buffered <= limit + FRAME_HEADER_BYTES + len(PREAMBLE)
        if heard and isinstance(heard[-1], Broken | Left):
            assert not peer.is_open
            assert peer.receive(GREETING) == [], "after the end nothing is heard"
            assert peer.buffered <= len(PREAMBLE)
    return heard


def comparable(happenings: list[AnyHappening]) -> list[Any]:
    return [
        (happening.error.code, happening.error.sentence, happening.farewell)
        if isinstance(happening, Broken)
        else happening
        for happening in happenings
    ]


CUTS = st.lists(st.integers(min_value=0, max_value=100_000), max_size=12)


@given(st.lists(HONEST, max_size=6), CUTS)
@settings(max_examples=200, deadline=None)
def test_honest_frames_are_heard_alike_however_they_are_cut(sent: list[bytes], places: list[int]) -> None:
    stream = b"".join(sent)
    whole = hear([stream], admitted=True)
    assert sum(1 for raw in sent if raw != HEARTBEAT_FRAME) == len(whole)
    assert not any(isinstance(happening, Broken) for happening in whole)
    assert hear(cut(stream, places), admitted=True) == whole
    assert hear([stream[at : at + 1] for at in range(len(stream))], admitted=True) == whole


@given(st.lists(st.one_of(HONEST, NOISE), max_size=6), CUTS, st.booleans())
@settings(max_examples=400, deadline=None)
def test_any_stream_is_heard_alike_however_it_is_cut(
    sent: list[bytes], places: list[int], admitted: bool
) -> None:
    stream = (b"" if admitted else PREAMBLE) + b"".join(sent)
    whole = comparable(hear([stream], admitted=admitted))
    assert comparable(hear(cut(stream, places), admitted=admitted)) == whole
    assert comparable(hear([stream[at : at + 1] for at in range(len(stream))], admitted=admitted)) == whole


@given(st.binary(min_size=1, max_size=3000), CUTS)
@settings(max_examples=200, deadline=None)
def test_a_stream_without_the_preamble_ends_at_its_first_wrong_byte(stream: bytes, places: list[int]) -> None:
    if PREAMBLE.startswith(stream[: len(PREAMBLE)]):
        return
    heard = hear(cut(stream, places), admitted=False)
    assert len(heard) == 1
    assert isinstance(heard[0], Broken)
    assert heard[0].error.code == "not-heliograph"


@given(st.integers(min_value=0, max_value=2**32 - 1), st.integers(min_value=0, max_value=255), st.booleans())
@settings(max_examples=100, deadline=None)
def test_a_promise_costs_nothing_until_it_is_kept(length: int, kind: int, admitted: bool) -> None:
    """A header may promise any length: either it is refused at once, or only what arrives is held."""
    peer = Conversation()
    peer.receive(GREETING if admitted else PREAMBLE)
    peer.admit(WELCOME)
    heard = peer.receive(pack_header(length, kind, 0, 0))
    if length > (MAX_FRAME_BYTES if admitted else MAX_GREETING_BYTES):
        assert isinstance(heard[-1], Broken)
        assert heard[-1].error.code == "frame-too-long"
    assert peer.buffered <= len(PREAMBLE) + FRAME_HEADER_BYTES


def test_a_stranger_that_never_finishes_its_greeting_is_held_to_the_limit() -> None:
    peer = Conversation()
    peer.receive(PREAMBLE + pack_header(MAX_GREETING_BYTES, CONTROL, 0, 0))
    held = 0
    heard: list[AnyHappening] = []
    while not heard:
        heard = peer.receive(b"\xc1" * 100)
        held = max(held, peer.buffered)
    assert held <= MAX_GREETING_BYTES + FRAME_HEADER_BYTES + len(PREAMBLE)
    assert isinstance(heard[-1], Broken)


def test_the_largest_frame_is_put_together_from_small_pieces_without_growing() -> None:
    peer = Conversation()
    peer.receive(GREETING)
    peer.admit(WELCOME)
    raw = pack_header(MAX_FRAME_BYTES, CONTROL, 0, 0) + bytes(MAX_FRAME_BYTES)
    heard: list[AnyHappening] = []
    for at in range(0, len(raw), 64 * 1024):
        assert heard == []
        heard = peer.receive(raw[at : at + 64 * 1024])
        assert peer.buffered <= MAX_FRAME_BYTES + FRAME_HEADER_BYTES + len(PREAMBLE)
    assert isinstance(heard[-1], Broken)
    assert heard[-1].error.code == "control-too-long"


def test_a_block_may_follow_a_block_in_one_piece() -> None:
    raw = frames.publish_frame(1, BLOCKS["lone"])
    assert len(hear([raw * 50], admitted=True)) == 50
