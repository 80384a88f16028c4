"""The block where it is subtle: checksum, limits, and each way in which a header can lie."""

import struct
from collections.abc import Iterable

import pytest

from heliograph.model import block
from heliograph.model.block import HEADER_BYTES, PREFIX_BYTES, Span
from heliograph.model.errors import ClientFault
from heliograph.model.limits import MAX_BLOCK_BYTES, MAX_BLOCK_MESSAGES, MAX_SEQUENCE
from tests.golden.specimens import LANE
from tests.properties.block_strategies import resealed

pytestmark = pytest.mark.req("J2")


def forge(buffer: bytes, *changes: tuple[int, str, int]) -> bytes:
    """The block with numbers written over it, and a length and checksum that fit."""
    changed = bytearray(buffer)
    for position, form, value in changes:
        struct.pack_into("<" + form, changed, position, value)
    return resealed(changed)


def plain(*bodies: bytes, **columns: Iterable[int]) -> bytes:
    return block.pack(bodies or (b"one", b"two"), lane=LANE, first=1, **columns)  # type: ignore[arg-type]


def crc32c_by_hand(raw: bytes) -> int:
    """Castagnoli's polynomial, bit by bit, as the reference describes it."""
    checksum = 0xFFFFFFFF
    for byte in raw:
        checksum ^= byte
        for _ in range(8):
            checksum = checksum >> 1 ^ (0x82F63B78 if checksum & 1 else 0)
    return checksum ^ 0xFFFFFFFF


def test_the_checksum_is_crc32c_over_everything_behind_it() -> None:
    assert crc32c_by_hand(b"123456789") == 0xE3069283
    for buffer in (plain(), block.pack_lone(b"body", lane=LANE, sequence=1, head=b"\x80")):
        assert int.from_bytes(buffer[8:12], "little") == crc32c_by_hand(buffer[PREFIX_BYTES:])


def test_a_lone_message_costs_the_header_and_nothing_else() -> None:
    assert len(block.pack_lone(b"12345", lane=LANE, sequence=1)) == HEADER_BYTES + 5


@pytest.mark.parametrize(
    ("lie", "changes"),
    [
        ("no messages", [(12, "I", 0)]),
        ("more messages than there are", [(12, "I", 3)]),
        ("more messages than a block may have", [(12, "I", MAX_BLOCK_MESSAGES + 1)]),
        ("a flag that nobody knows", [(16, "I", 128)]),
        ("a column that is not there", [(16, "I", block.TIMESTAMPS)]),
        ("heads without a column", [(20, "I", 8)]),
        ("fewer body bytes", [(24, "I", 5)]),
        ("priority 10", [(28, "B", 10)]),
        ("sequence 0", [(48, "Q", 0)]),
        ("a sequence beyond all", [(48, "Q", MAX_SEQUENCE)]),
        ("a sequence that wraps around", [(48, "Q", 2**64 - 1)]),
        ("a time before 1970", [(56, "q", -1)]),
        ("an expiry before 1970", [(64, "q", -1)]),
        ("a delivery time before 1970", [(72, "q", -1)]),
        ("a first offset that is not 0", [(80, "I", 1)]),
        ("an offset beyond the end", [(84, "I", 7)]),
        ("offsets that fall", [(84, "I", 2**32 - 1)]),
        ("a last offset that is not the end", [(88, "I", 5)]),
        ("a lone message of two", [(16, "I", block.LONE)]),
    ],
)
def test_a_header_that_lies_is_refused(lie: str, changes: list[tuple[int, str, int]]) -> None:
    with pytest.raises(ClientFault) as refusal:
        block.parse(forge(plain(), *changes))
    assert refusal.value.code == "block-malformed", lie


def test_a_priority_beyond_nine_among_others_is_refused() -> None:
    honest = plain(priorities=(9, 0))
    assert block.parse(honest).flags == block.PRIORITIES
    with pytest.raises(ClientFault, match="beyond 9"):
        block.parse(forge(honest, (HEADER_BYTES + 16 + 1, "B", 10)))


def test_heads_whose_offsets_fall_are_refused() -> None:
    honest = block.pack([b"a", b"b"], lane=LANE, first=1, heads=[b"12", b"34"])
    with pytest.raises(ClientFault, match="climb"):
        block.parse(forge(honest, (HEADER_BYTES + 16 + 4, "I", 9)))


def test_a_lone_message_cannot_hide_a_head() -> None:
    """Lone messages are put together by cutting off the header; a hidden head would become part of a body."""
    honest = block.pack_lone(b"body", lane=LANE, sequence=1, head=b"\x80")
    with pytest.raises(ClientFault, match="without a head"):
        block.parse(forge(honest, (16, "I", block.LONE)))


def test_the_last_sequence_of_all_can_be_used() -> None:
    parsed = block.parse(block.pack([b"a", b"b"], lane=LANE, first=MAX_SEQUENCE - 2))
    assert parsed.last == MAX_SEQUENCE - 1
    assert block.unpack(b"".join(block.slice_span(Span(parsed, 1, 2)))).first == MAX_SEQUENCE - 1


def test_a_block_that_could_not_be_delivered_is_not_taken() -> None:
    """A delivery is a little longer than the publication was; it must fit a frame too."""
    room = MAX_BLOCK_BYTES - HEADER_BYTES
    assert block.parse(block.pack_lone(bytes(room), lane=LANE, sequence=1)).size == MAX_BLOCK_BYTES
    with pytest.raises(ClientFault) as refusal:
        block.parse(block.pack_lone(bytes(room + 1), lane=LANE, sequence=1))
    assert refusal.value.code == "block-too-large"


def test_the_most_messages_of_a_block() -> None:
    bodies = [b"x"] * MAX_BLOCK_MESSAGES
    assert block.parse(block.pack(bodies, lane=LANE, first=1)).count == MAX_BLOCK_MESSAGES
    with pytest.raises(ClientFault, match="1 to 8192"):
        block.parse(block.pack([*bodies, b"x"], lane=LANE, first=1))


def test_a_block_of_another_version_or_form_is_refused_by_everybody() -> None:
    for position, value in ((0, 0), (2, 2), (3, 2)):
        strange = bytearray(plain())
        strange[position] = value
        with pytest.raises(ClientFault, match="version 1"):
            block.parse(bytes(strange))
        with pytest.raises(ClientFault, match="version 1"):
            block.unpack(bytes(strange))


def test_a_fragment_is_not_taken_from_a_producer() -> None:
    fragment = b"".join(block.slice_span(Span(block.parse(plain()), 1, 2)))
    assert block.unpack(fragment).bodies == [b"two"]
    with pytest.raises(ClientFault):
        block.parse(fragment)


def test_a_whole_block_is_passed_on_as_it_came() -> None:
    parsed = block.parse(plain())
    assert block.slice_span(Span(parsed, 0, 2))[0] is parsed.buffer


def test_a_checksum_is_verified_or_not_never_an_exception() -> None:
    buffer = plain()
    assert block.verify_checksum(buffer)
    assert not block.verify_checksum(buffer[:-1])
    assert not block.verify_checksum(buffer[:20])
    assert not block.verify_checksum(buffer[:-1] + b"!")
