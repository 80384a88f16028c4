"""No bytes do harm: what is no block is refused with one kind of error, what is accepted can be used."""

import struct
from itertools import combinations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heliograph.frontends.native.conversation import encode
from heliograph.model import block
from heliograph.model.block import HEADER_BYTES, Block, Contents, Span
from heliograph.model.errors import ClientFault
from heliograph.sessions.commands import Confirm, Deliver
from tests.golden.specimens import BLOCKS
from tests.properties.block_strategies import resealed, whole_blocks

pytestmark = pytest.mark.req("X2")

# The header behind the checksum, field by field: where and how long.
FIELDS = {"count": (12, 4), "flags": (16, 4), "head_bytes": (20, 4), "body_bytes": (24, 4), "first": (48, 8)}
TELLING = (
    0,
    1,
    2,
    3,
    7,
    8,
    9,
    127,
    128,
    8192,
    8193,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
)


def is_refused(buffer: bytes) -> bool:
    """Whether `parse` refuses, with the error it promises."""
    code = ""
    try:
        block.parse(buffer)
    except ClientFault as fault:
        code = fault.code
    assert code in {"", "block-malformed", "block-too-large"}
    return bool(code)


def use_to_the_end(accepted: Block) -> None:
    """Everything that server and client do with a block that was accepted."""
    assert accepted.buffer is not None
    contents = block.unpack(accepted.buffer)
    check(contents)
    count = accepted.count
    cuts = sorted({0, 1, count // 2, count - 1, count})
    for start, stop in combinations([cut for cut in cuts if 0 <= cut <= count], 2):
        sent: list[bytes | memoryview] = []
        encode(1, Deliver(1, 1, Span(accepted, start, stop), "user"), sent)
        raw = b"".join(sent)
        assert int.from_bytes(raw[:4], "little") == len(raw) - 8
        part = block.unpack(raw[8 + 18 + 4 :])
        check(part)
        assert part.bodies == contents.bodies[start:stop]
        assert part.first == contents.first + start
        assert (part.heads or []) == (contents.heads or [])[start:stop]
        assert (part.priorities or []) == (contents.priorities or [])[start:stop]
    encode(1, Confirm(1, accepted.last), [])
    if accepted.flags & block.PRIORITIES:
        assert block.priority_runs(accepted)[-1][2] == count


def check(contents: Contents) -> None:
    """A block taken apart agrees with itself."""
    assert len(contents.bodies) == contents.count
    for column in (
        contents.heads,
        contents.timestamps,
        contents.expiries,
        contents.delivery_times,
        contents.units,
        contents.priorities,
    ):
        assert column is None or len(column) == contents.count


# ---- damage on the way


@pytest.mark.parametrize("name", [name for name in BLOCKS if name != "fragment"])
def test_a_block_with_any_one_bit_changed_is_refused(name: str) -> None:
    buffer = BLOCKS[name]
    for position in range(len(buffer)):
        for bit in range(8):
            damaged = bytearray(buffer)
            damaged[position] ^= 1 << bit
            assert is_refused(bytes(damaged)), f"byte {position}, bit {bit}"


@given(whole_blocks(), st.data())
@settings(max_examples=300, deadline=None)
def test_a_block_with_any_one_byte_changed_is_refused(buffer: bytes, data: st.DataObject) -> None:
    position = data.draw(st.integers(min_value=0, max_value=len(buffer) - 1))
    damaged = bytearray(buffer)
    damaged[position] ^= data.draw(st.integers(min_value=1, max_value=255))
    assert is_refused(bytes(damaged))


@given(whole_blocks(), st.integers(min_value=1, max_value=200), st.binary(min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_a_block_that_was_cut_or_grew_is_refused(buffer: bytes, cut: int, more: bytes) -> None:
    assert is_refused(buffer[:-cut])
    assert is_refused(buffer + more)


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_refused(buffer: bytes) -> None:
    assert is_refused(buffer)
    with pytest.raises(ClientFault):
        block.unpack(buffer)


# ---- malice: the checksum is right, the rest is not


@st.composite
def forged(draw: st.DrawFn) -> bytes:
    """A block whose header or columns were changed and whose length and checksum fit again."""
    buffer = bytearray(draw(whole_blocks(max_messages=6)))
    for _ in range(draw(st.integers(min_value=1, max_value=3))):
        match draw(st.sampled_from(("field", "byte", "column", "cut", "grow"))):
            case "field":
                position, size = FIELDS[draw(st.sampled_from(sorted(FIELDS)))]
                old = int.from_bytes(buffer[position : position + size], "little")
                near = st.integers(min_value=old - 9, max_value=old + 9)
                new = draw(st.one_of(st.sampled_from(TELLING), near)) % 2 ** (8 * size)
                buffer[position : position + size] = new.to_bytes(size, "little")
            case "byte":
                position = draw(st.integers(min_value=block.PREFIX_BYTES, max_value=len(buffer) - 1))
                buffer[position] = draw(st.integers(min_value=0, max_value=255))
            case "column" if len(buffer) >= HEADER_BYTES + 4:
                position = HEADER_BYTES + 4 * draw(st.integers(0, (len(buffer) - HEADER_BYTES) // 4 - 1))
                struct.pack_into("<I", buffer, position, draw(st.sampled_from(TELLING)) & 0xFFFFFFFF)
            case "cut":
                keep = draw(st.integers(min_value=HEADER_BYTES, max_value=len(buffer)))
                del buffer[keep:]
            case _:
                buffer += draw(st.binary(max_size=16))
    return resealed(buffer)


@given(forged())
@settings(max_examples=1000, deadline=None)
def test_a_forged_block_is_refused_or_can_be_used_to_the_end(buffer: bytes) -> None:
    if not is_refused(buffer):
        use_to_the_end(block.parse(buffer))


@given(whole_blocks())
@settings(max_examples=100, deadline=None)
def test_an_honest_block_can_be_used_to_the_end(buffer: bytes) -> None:
    use_to_the_end(block.parse(buffer))


@given(whole_blocks(max_messages=6), st.data())
@example(BLOCKS["fragment"], None)
@settings(max_examples=300, deadline=None)
def test_a_damaged_fragment_is_refused_or_agrees_with_itself(
    buffer: bytes, data: st.DataObject | None
) -> None:
    fragment = bytearray(buffer)
    fragment[3] = block.FRAGMENT  # nothing is checked but its shape
    if data is not None:
        for _ in range(3):
            position = data.draw(st.integers(min_value=0, max_value=len(fragment) - 1))
            fragment[position] = data.draw(st.sampled_from((0, 1, 2, 3, 8, 127, 255)))
    try:
        contents = block.unpack(bytes(fragment))
    except ClientFault:
        return
    if not contents.flags & block.LONE:
        check(contents)
