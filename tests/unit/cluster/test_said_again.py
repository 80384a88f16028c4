"""What a primary says again in the next view."""

from __future__ import annotations

import pytest

from heliograph.bus.commands import (
    Answered,
    ChunkRead,
    Command,
    ConsumerAttached,
    Introduction,
    Logged,
    Shipped,
    Standing,
    Supplied,
)
from heliograph.cluster.said_again import as_one
from heliograph.model.block import pack_lone, parse
from heliograph.model.destination import Address
from heliograph.model.ids import ConsumerId, LaneId, SessionId

pytestmark = pytest.mark.req("M9", "P5")
ONE, OTHER = (ConsumerId(bytes([number]) * 16) for number in (1, 2))
SESSION = SessionId(b"s" * 16)


def attached(consumer: ConsumerId) -> ConsumerAttached:
    return ConsumerAttached(1, Address("queue:x"), consumer, SESSION, 5)


def stands(consumer: ConsumerId, credit: int) -> Standing:
    return Standing(consumer, 0, credit, 1, False, 0.0, [])


def test_what_was_given_and_taken_back_is_heard_at_once() -> None:
    given = Logged(4, 77, [(b"a", 3)], [Shipped(1, 1, 0, b"given")], standing=[stands(ONE, 0)])
    back = Logged(5, 88, [(b"a", 9)], [Shipped(2, 1, 0, b"back")], standing=[stands(ONE, 1)])
    (said,) = as_one([given, back])
    assert isinstance(said, Logged)
    assert (said.first, said.chain, said.through) == (4, 77, [(b"a", 9)])
    assert [record.payload for record in said.records] == [b"given", b"back"]
    assert said.standing == [stands(ONE, 1)]


def test_the_last_word_about_a_consumer_counts() -> None:
    came = Logged(1, 0, [], [], attached=[attached(ONE), attached(OTHER)], standing=[stands(ONE, 5)])
    went = Logged(1, 0, [], [], gone=[ONE, OTHER])
    again = Logged(1, 0, [], [], attached=[attached(OTHER)], standing=[stands(OTHER, 7)])
    (said,) = as_one([came, went, again])
    assert isinstance(said, Logged)
    assert (said.attached, said.standing, said.gone) == ([attached(OTHER)], [stands(OTHER, 7)], [ONE])


def test_bytes_come_before_what_hands_them_out_pieces_behind_and_an_introduction_stays_by_itself() -> None:
    block = parse(pack_lone(b"body", lane=LaneId(b"l" * 16), sequence=1))
    supplied, piece = Supplied(b"name", block), ChunkRead(SESSION, 1, 0, b"piece")
    introduction = Introduction([], [], [], [], [], [], [])
    ticks = [Logged(1, 0, [], [], decisions=[Answered(number, {})]) for number in range(4)]
    introduces = Logged(1, 0, [], [], introduction=introduction)
    said = list[Command](as_one([ticks[0], piece, supplied, ticks[1], introduces, ticks[2], ticks[3]]))
    assert [type(each) for each in said] == [Supplied, Logged, ChunkRead, Logged, Logged]
    assert said[3] is introduces
    assert [len(each.decisions) for each in said if isinstance(each, Logged)] == [2, 0, 2]
