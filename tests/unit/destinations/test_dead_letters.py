"""How a message is dressed for the dead message queue: its body untouched, its own head kept, and it fits."""

import pytest

from heliograph.destinations.dead_letters import (
    DELIVERIES,
    LAST_ERROR,
    ORIGINAL_DESTINATION,
    ORIGINAL_ID,
    REASON,
    dress,
    portions,
)
from heliograph.model.block import Block, Span, pack, pack_lone, parse, unpack
from heliograph.model.ids import message_id
from heliograph.model.limits import MAX_BLOCK_BYTES, MAX_BLOCK_MESSAGES, MAX_HEAD_BYTES
from heliograph.model.message import Head, decode_head, encode_head
from tests.unit.destinations.stories import LANE, OTHER_LANE

pytestmark = pytest.mark.req("J10", "M11")


def dressed(span: Span, error: str = "", reason: str = "redelivery-limit") -> list[Block]:
    """All of a span. Everything that comes out is a block that the server would take from a client."""
    found, first = [], 1
    for part in portions(span):
        raw = dress(
            part,
            lane=OTHER_LANE,
            first=first,
            address="queue:orders",
            reason=reason,
            now=5_000_000,
            error=error,
        )
        found.append(parse(raw))
        first = found[-1].last + 1
    return found


def bodies(found: list[Block]) -> list[bytes]:
    return [body for block in found for body in unpack(block.buffer or b"").bodies]


def heads(found: list[Block]) -> list[Head]:
    return [decode_head(raw) for block in found for raw in unpack(block.buffer or b"").heads or []]


def test_a_message_keeps_its_body_and_its_properties_and_says_why_it_is_there() -> None:
    head = encode_head(Head(correlation_id="c", properties={"color": "red"}))
    block = parse(pack_lone(b"body", lane=LANE, sequence=9, head=head, timestamp=7, priority=3))
    (found,) = dressed(Span(block, 0, 1, 4), error="no such article")
    assert (found.timestamp, found.priority, found.persistent) == (7, 3, True)
    (dead,) = heads([found])
    assert dead.correlation_id == "c"
    assert dead.properties["color"] == "red"
    assert dead.properties[ORIGINAL_DESTINATION] == "queue:orders"
    assert dead.properties[ORIGINAL_ID] == message_id(LANE, 9)
    assert dead.properties[REASON] == "redelivery-limit"
    assert dead.properties[DELIVERIES] == 5
    assert dead.properties[LAST_ERROR] == "no such article"
    assert bodies([found]) == [b"body"]


def test_a_block_of_very_many_messages_becomes_several() -> None:
    sent = [b"%d" % number for number in range(MAX_BLOCK_MESSAGES)]
    block = parse(pack(sent, lane=LANE, first=1))
    found = dressed(Span(block, 3, block.count), error="x" * 5000)
    assert bodies(found) == sent[3:]
    assert [dead.properties[ORIGINAL_ID] for dead in heads(found)] == [
        message_id(LANE, sequence) for sequence in range(4, MAX_BLOCK_MESSAGES + 1)
    ]


@pytest.mark.parametrize(
    "head", [b"", encode_head(Head(properties={"color": "red"}))], ids=["no head", "head"]
)
def test_a_message_that_fills_its_block_comes_as_it_was(head: bytes) -> None:
    room = MAX_BLOCK_BYTES - 80 - len(head)
    block = parse(pack_lone(b"x" * room, lane=LANE, sequence=1, head=head))
    assert block.size == MAX_BLOCK_BYTES
    found = dressed(Span(block, 0, 1, 9))
    assert bodies(found) == [b"x" * room]
    assert [each.properties for each in heads(found)] == ([{"color": "red"}] if head else [])


def test_one_huge_message_among_tiny_ones_does_not_keep_them_from_the_grave() -> None:
    sent = [b"tiny"] * 100 + [b"x" * (MAX_BLOCK_BYTES - 20_000)] + [b"tiny"] * 100
    block = parse(pack(sent, lane=LANE, first=1))
    assert bodies(dressed(Span(block, 0, block.count))) == sent


@pytest.mark.parametrize(
    "raw",
    [
        b"\xc1",
        b"\x91" * 5000,
        b"\x80" * 10,
        b"\x81\xa1p\xc7\x01\x05x",
        b"\x81\xa1p\x81\xa5color\xd9\xff",
        b"\xff",
        bytes(MAX_HEAD_BYTES),
    ],
    ids=["never used", "deep", "several", "extension", "cut short", "a number", "too long"],
)
def test_a_head_that_cannot_be_read_does_not_stop_the_funeral(raw: bytes) -> None:
    block = parse(pack_lone(b"body", lane=LANE, sequence=1, head=raw))
    found = dressed(Span(block, 0, 1))
    assert bodies(found) == [b"body"]
    assert heads(found)[0].properties[REASON] == "redelivery-limit"
