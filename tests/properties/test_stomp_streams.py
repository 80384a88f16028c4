"""However the network cuts a stream of STOMP frames, the same frames come out; and no bytes at all break the
reader or the conversation."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heliograph.frontends.conversation import AnyHappening, Broken, Greeted
from heliograph.frontends.held_tags import HeldTags
from heliograph.frontends.stomp.conversation import StompConversation
from heliograph.frontends.stomp.frames import V1_1, V1_2, Frame, FrameReader, encode
from heliograph.model.errors import ProtocolFault

LIMIT = 64
LETTERS = "ab:\\\n é€"
names = st.text(LETTERS, min_size=1, max_size=6)
values = st.text(LETTERS, max_size=8)
bodies = st.binary(max_size=LIMIT)
heads = st.dictionaries(names.filter(lambda name: name != "content-length"), values, max_size=4)


@st.composite
def frames(draw: st.DrawFn) -> tuple[Frame, bytes]:
    command = draw(st.sampled_from(["SEND", "ACK", "SUBSCRIBE", "DISCONNECT"]))
    headers, body = draw(heads), draw(bodies)
    if b"\0" in body or draw(st.booleans()):
        headers = {**headers, "content-length": str(len(body))}
    return Frame(command, headers, body), encode(command, headers, body) + draw(
        st.sampled_from([b"", b"\n", b"\r\n"])
    )


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted(place % (len(data) + 1) for place in places)
    return [data[start:stop] for start, stop in zip([0, *ends], [*ends, len(data)], strict=True)]


def outcome(pieces: list[bytes], version: str) -> tuple[list[Frame], str]:
    reader = FrameReader(LIMIT)
    reader.version = version
    read: list[Frame] = []
    try:
        for piece in pieces:
            read += reader.feed(piece)
    except ProtocolFault as fault:
        return read, fault.code
    return read, ""


@given(st.lists(frames(), max_size=6), st.lists(st.integers(0, 10_000), max_size=8))
def test_frames_survive_any_cut(sent: list[tuple[Frame, bytes]], places: list[int]) -> None:
    stream = b"".join(raw for _, raw in sent)
    read, code = outcome(cut(stream, places), V1_2)
    assert (read, code) == ([frame for frame, _ in sent], "")


noise = st.lists(
    st.one_of(
        st.binary(max_size=20),
        st.sampled_from(
            [b"SEND\n", b"\n\n", b"\n\r\n", b"\0", b"a:b\n", b"content-length:3\n", b"\\", b"CONNECT\n"]
        ),
    ),
    max_size=20,
).map(b"".join)


@given(noise, st.lists(st.integers(0, 1000), max_size=8), st.sampled_from([V1_1, V1_2]))
def test_nonsense_comes_to_the_same_end_however_it_is_cut(
    data: bytes, places: list[int], version: str
) -> None:
    """What a reader takes before a fault may differ only by nothing: frames and fault are those of the whole."""

    def frames_of(pieces: list[bytes]) -> tuple[list[Frame], str]:
        reader = FrameReader(LIMIT)
        reader.version = version
        read: list[Frame] = []
        for piece in pieces:
            try:
                for frame in reader.feed(piece):
                    read.append(frame)
            except ProtocolFault as fault:
                return read, fault.code
        return read, ""

    assert frames_of(cut(data, places)) == frames_of([data])


@given(noise, st.lists(st.integers(0, 1000), max_size=5))
def test_no_bytes_break_a_conversation(data: bytes, places: list[int]) -> None:
    conversation = StompConversation()
    happened: list[AnyHappening] = []
    for piece in cut(b"CONNECT\naccept-version:1.2\n\n\0" + data, places):
        happened += conversation.receive(piece)
    assert all(isinstance(each, Greeted | Broken) for each in happened)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 30), st.integers(0, 6)), max_size=25))
def test_held_tags_are_a_set_of_numbers(steps: list[tuple[bool, int, int]]) -> None:
    held, model, following = HeldTags(), set[int](), 1
    for is_new, first, more in steps:
        if is_new:
            held.add(following, following + more)
            model |= set(range(following, following + more + 1))
            following += more + 1
        else:
            taken = {tag for low, high in held.take(first, first + more) for tag in range(low, high + 1)}
            assert taken == model & set(range(first, first + more + 1))
            model -= taken
            if taken and more % 2:  # an aborted transaction gives them back
                for tag in sorted(taken):
                    held.add(tag, tag)
                model |= taken
        assert {tag for low, high in held.ranges() for tag in range(low, high + 1)} == model
        assert all((tag in held) == (tag in model) for tag in range(40))
