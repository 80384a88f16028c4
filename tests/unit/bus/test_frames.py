"""Frames: packed as full as they may be, cut where they must be, and put together by everybody else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.bus import wire
from heliograph.bus.assembling import Assembler
from heliograph.bus.commands import ChunkSent, Command, Confirmed
from heliograph.bus.frames import HEADER_BYTES, FrameWriter, Piece
from heliograph.bus.interface import NO_VIEW, Change, Configuration, Incarnation, Place, Reason, Ring, Stamp
from heliograph.model.errors import ProtocolFault, Unavailable
from heliograph.model.ids import LaneId, SessionId
from heliograph.model.limits import BUS_FRAME_BYTES, MAX_BUS_PAYLOAD_BYTES
from tests.golden.bus_specimens import entry

ANN = Place(1, 100)
ANNS = Incarnation(b"A" * 16)
SESSION = SessionId(bytes(16))
LANE = LaneId(bytes(16))
VIEW = Stamp(b"v" * 24)


def chunk(number: int, size: int) -> ChunkSent:
    return ChunkSent(SESSION, 1, number, bytes([number % 251]) * size)


def configuration(*, joined: list[Place] | None = None, left: list[Place] | None = None) -> Configuration:
    return Configuration(
        Ring(1, 1),
        (),
        tuple(Change(place, Reason.ENTERED) for place in joined or []),
        tuple(Change(place, Reason.LEFT) for place in left or []),
    )


def heard(assembler: Assembler, pieces: list[Piece]) -> list[Command]:
    frames = [assembler.receive(ANN, piece) for piece in pieces]
    return [command for frame in frames if frame is not None for command in frame[1]]


# ---- packing


def test_commands_of_one_turn_share_a_frame() -> None:
    writer = FrameWriter(ANNS)
    said = [Confirmed(LANE, number) for number in range(1000)]
    assert [writer.add(command) for command in said] == [[]] * 1000
    [piece] = writer.seal()
    assert writer.is_empty
    assert writer.seal() == []
    assert heard(Assembler(), [piece]) == said


@given(st.lists(st.integers(0, 3000), max_size=40), st.integers(200, 2000))
def test_whatever_the_sizes_nothing_changes_and_no_piece_is_too_long(
    sizes: list[int], piece_bytes: int
) -> None:
    writer = FrameWriter(ANNS, piece_bytes=piece_bytes)
    said = [chunk(number, size) for number, size in enumerate(sizes)]
    pieces = [piece for command in said for piece in writer.add(command)] + writer.seal()
    assert heard(Assembler(), pieces) == said
    assert all(HEADER_BYTES < len(piece) <= piece_bytes for piece in pieces)


def test_what_was_said_before_a_view_keeps_its_stamp() -> None:
    writer = FrameWriter(ANNS)
    writer.add(Confirmed(LANE, 1))
    pieces = writer.restamp(VIEW)
    writer.add(Confirmed(LANE, 2))
    pieces += writer.seal()
    assembler = Assembler()
    frames = [assembler.receive(ANN, piece) for piece in pieces]
    stamps = [(frame[0].stamp, frame[1]) for frame in frames if frame is not None]
    assert stamps == [(NO_VIEW, [Confirmed(LANE, 1)]), (VIEW, [Confirmed(LANE, 2)])]


def test_a_command_is_written_down_when_it_is_said() -> None:
    writer = FrameWriter(ANNS)
    command = Confirmed(LANE, 1)
    writer.add(command)
    command.last = 99
    assert heard(Assembler(), writer.seal()) == [Confirmed(LANE, 1)]


def test_what_no_frame_can_hold_is_refused_and_nothing_else_is_harmed() -> None:
    writer = FrameWriter(ANNS)
    writer.add(chunk(1, 10))
    with pytest.raises(Unavailable, match="bus-command-too-large"):
        writer.add(chunk(2, MAX_BUS_PAYLOAD_BYTES))
    writer.add(chunk(3, 10))
    assert heard(Assembler(), writer.seal()) == [chunk(1, 10), chunk(3, 10)]


# ---- putting together


def pieces_of(*commands: Command, piece_bytes: int = 1000) -> list[Piece]:
    writer = FrameWriter(ANNS, piece_bytes=piece_bytes)
    return [piece for command in commands for piece in writer.add(command) + writer.seal()]


def test_a_missing_piece_is_noticed_at_the_next_one() -> None:
    pieces = pieces_of(chunk(1, 10), chunk(2, 10), chunk(3, 10))
    assembler = Assembler()
    assembler.receive(ANN, pieces[0])
    with pytest.raises(Unavailable, match="frame 2 of process 100 on node 1 is missing"):
        assembler.receive(ANN, pieces[2])


def test_a_repeated_piece_is_noticed() -> None:
    pieces = pieces_of(chunk(1, 10))
    assembler = Assembler()
    assembler.receive(ANN, pieces[0])
    with pytest.raises(Unavailable, match="bus-gap"):
        assembler.receive(ANN, pieces[0])


def test_of_one_who_came_later_even_the_first_piece_is_missed() -> None:
    assembler = Assembler()
    assembler.configured(configuration(joined=[Place(1, 1)]))
    assembler.configured(configuration(joined=[ANN]))
    with pytest.raises(Unavailable, match="frame 1 of"):
        assembler.receive(ANN, pieces_of(chunk(1, 10), chunk(2, 10))[1])


def test_a_member_that_becomes_another_unseen_is_noticed() -> None:
    assembler = Assembler()
    assembler.receive(ANN, pieces_of(chunk(1, 10))[0])
    other = FrameWriter(Incarnation(b"B" * 16))
    other.add(chunk(1, 10))
    [piece] = other.seal()
    with pytest.raises(Unavailable, match="became another unseen"):
        assembler.receive(ANN, piece)


def test_a_newcomer_passes_over_the_rest_of_a_frame_that_began_without_it() -> None:
    pieces = pieces_of(chunk(1, 3000), chunk(2, 3000))
    assembler = Assembler()
    assembler.configured(configuration(joined=[ANN, Place(1, 1)]))
    assert heard(assembler, pieces[2:]) == [chunk(2, 3000)]


def test_what_a_departed_member_had_begun_is_forgotten_and_its_return_is_a_beginning() -> None:
    pieces = pieces_of(chunk(1, 3000), chunk(2, 10), chunk(3, 10))
    assembler = Assembler()
    assert heard(assembler, pieces[:2]) == []
    assembler.configured(configuration(left=[ANN]))
    found = Change(ANN, Reason.HOST_FOUND)
    assembler.configured(Configuration(Ring(1, 2), (ANN,), (found,)))
    assert heard(assembler, pieces[3:]) == [chunk(2, 10), chunk(3, 10)]


@pytest.mark.parametrize("missed", [0, 1])
def test_of_one_who_was_found_on_a_ring_everything_said_there_is_heard_or_the_gap_is_noticed(
    missed: int,
) -> None:
    writer = FrameWriter(ANNS)
    writer.change_ring(Ring(1, 4))
    pieces = [piece for number in (1, 2) for piece in writer.add(chunk(number, 10)) + writer.seal()]
    writer.change_ring(Ring(1, 8))
    pieces += [piece for number in (3, 4) for piece in writer.add(chunk(number, 10)) + writer.seal()]
    assembler = Assembler()
    assembler.configured(configuration(joined=[Place(2, 2)]))
    assembler.configured(Configuration(Ring(1, 8), (ANN,), (Change(ANN, Reason.HOST_FOUND),)))
    # Of what it said before, any part may be missing.
    assert heard(assembler, pieces[missed + 1 :]) == [chunk(number, 10) for number in range(missed + 2, 5)]
    late = Assembler()
    late.configured(configuration(joined=[Place(2, 2)]))
    late.configured(Configuration(Ring(1, 8), (ANN,), (Change(ANN, Reason.HOST_FOUND),)))
    with pytest.raises(Unavailable, match="said something since we met that is not here"):
        late.receive(ANN, pieces[3])


def test_pieces_of_several_senders_do_not_mix() -> None:
    bob = Place(2, 100)
    anns, bobs = pieces_of(chunk(1, 3000)), pieces_of(chunk(2, 3000))
    assembler = Assembler()
    frames = [
        frame
        for pair in zip(anns, bobs, strict=True)
        for place, piece in zip((ANN, bob), pair, strict=True)
        if (frame := assembler.receive(place, piece)) is not None
    ]
    assert [(origin.place, commands) for origin, commands in frames] == [
        (ANN, [chunk(1, 3000)]),
        (bob, [chunk(2, 3000)]),
    ]


def test_a_frame_without_an_end_holds_no_more_than_a_frame() -> None:
    """Nobody honest sends it. Whoever hears it cannot know what the others made of it."""
    writer = FrameWriter(ANNS)
    assembler = Assembler()
    junk = memoryview(bytes(BUS_FRAME_BYTES - HEADER_BYTES))
    assembler.receive(ANN, writer._piece(1, [junk]))
    for _ in range(MAX_BUS_PAYLOAD_BYTES // len(junk) - 1):
        assert assembler.receive(ANN, writer._piece(0, [junk])) is None
    with pytest.raises(Unavailable, match="a frame of more than"):
        assembler.receive(ANN, writer._piece(0, [junk]))


def test_a_frame_that_breaks_off_and_one_without_a_beginning_end_it() -> None:
    writer = FrameWriter(ANNS)
    assembler = Assembler()
    assembler.receive(ANN, writer._piece(1, [b"some"]))
    with pytest.raises(Unavailable, match="begins before the last one ended"):
        assembler.receive(ANN, writer._piece(3, [b""]))
    writer, assembler = FrameWriter(ANNS), Assembler()
    assembler.receive(ANN, writer._piece(3, [b""]))
    with pytest.raises(Unavailable, match="without a beginning"):
        assembler.receive(ANN, writer._piece(2, [b"rest"]))


@pytest.mark.req("M9")
def test_who_does_not_know_a_command_of_a_member_cannot_go_on() -> None:
    """What it shares a frame with was for this one as well: to pass over either would be to lose it."""
    writer, assembler = FrameWriter(ANNS), Assembler()
    writer.add(chunk(1, 10))
    assert heard(assembler, writer.seal()) == [chunk(1, 10)]
    unknown = wire.ENTRY.pack(60_000, 0, 0, 0)
    with pytest.raises(Unavailable, match="command 60000, which this version does not know") as ended:
        assembler.receive(ANN, writer._piece(3, [entry(chunk(2, 10)), unknown]))
    assert ended.value.code == wire.UNKNOWN


@given(st.binary(max_size=300))
def test_bytes_of_anybody_are_refused_with_a_code_and_nothing_else(raw: bytes) -> None:
    with pytest.raises(ProtocolFault, match="bus-frame-"):
        Assembler().receive(ANN, raw)


@given(st.binary(max_size=300))
def test_a_payload_of_anything_is_read_or_refused_with_a_code(raw: bytes) -> None:
    writer = FrameWriter(ANNS)
    try:
        Assembler().receive(ANN, writer._piece(3, [raw]))
    except Unavailable as fault:
        assert fault.code in {"bus-frame-malformed", "bus-command-unknown"}  # noqa: PT017 - both are right
