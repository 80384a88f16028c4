"""A lane, without a socket: how messages become blocks, and what is kept until the server has them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.client.outgoing import Gate, Lane
from heliograph.client.preparing import Outgoing, prepare, unit_alone
from heliograph.model import block
from heliograph.model.block import BodyKind, Contents
from heliograph.model.errors import ClientFault
from heliograph.model.ids import IdIssuer, LaneId, lane_of
from heliograph.model.limits import BLOCK_BYTES, MAX_MESSAGE_BYTES
from heliograph.model.message import decode_head

NOW = 1_700_000_000_000_000
LANE = lane_of(IdIssuer(site=1, node=1, started_ms=1).session(), 1)
OTHER = lane_of(IdIssuer(site=1, node=1, started_ms=2).session(), 1)


def message(body: Any = b"body", *, priority: int = 4, persistent: bool = True, **more: Any) -> Outgoing:
    return prepare(body, priority=priority, persistent=persistent, **more)


def lane(*, block_messages: int = 256, **window: int) -> Lane:
    return Lane(1, LANE, block_messages=block_messages, **window)


def sent(lane: Lane) -> list[Contents]:
    lane.seal(NOW)
    return [block.unpack(buffer) for buffer, _ in lane.take_unsent()]


def numbers(contents: list[Contents]) -> list[int]:
    return [number for one in contents for number in range(one.first, one.first + one.count)]


def test_a_lone_message_is_a_block_without_columns() -> None:
    line = lane()
    line.put(message(b"one"), NOW)
    [contents] = sent(line)
    assert contents.flags == block.LONE
    assert (contents.bodies, contents.first, contents.timestamp, contents.lane) == ([b"one"], 1, NOW, LANE)


def test_plain_messages_share_a_block_without_columns() -> None:
    line = lane()
    for body in (b"one", b"two", b"three"):
        line.put(message(body, priority=7), NOW)
    [contents] = sent(line)
    assert (contents.flags, contents.priority, contents.bodies) == (0, 7, [b"one", b"two", b"three"])


def test_text_bodies_of_one_kind_need_no_heads() -> None:
    line = lane()
    line.put(message("eins"), NOW)
    line.put(message("zwei"), NOW)
    [contents] = sent(line)
    assert (contents.kind, contents.heads) == (BodyKind.TEXT, None)


def test_in_a_mixed_block_every_message_says_what_its_body_is() -> None:
    line = lane()
    line.put(message(b"bytes"), NOW)
    line.put(message("text"), NOW)
    line.put(message({"a": 1}, correlation_id="7"), NOW)
    [contents] = sent(line)
    assert contents.kind == BodyKind.MIXED
    assert contents.heads is not None
    assert contents.heads[0] == b""
    assert decode_head(contents.heads[1]).kind == BodyKind.TEXT
    assert decode_head(contents.heads[2]).kind == BodyKind.DATA
    assert decode_head(contents.heads[2]).correlation_id == "7"


@pytest.mark.req("J3")
def test_persistent_and_other_messages_never_share_a_block() -> None:
    line = lane()
    for persistent in (True, True, False, True):
        line.put(message(persistent=persistent), NOW)
    assert [(one.count, one.persistent) for one in sent(line)] == [(2, True), (1, False), (1, True)]


def test_an_odd_priority_gets_a_column_in_a_small_block_and_a_block_of_its_own_after_a_large_one() -> None:
    small, large = lane(), lane()
    small.put(message(), NOW)
    small.put(message(priority=9), NOW)
    for _ in range(100):
        large.put(message(), NOW)
    large.put(message(priority=9), NOW)
    assert [one.priorities for one in sent(small)] == [[4, 9]]
    assert [(one.count, one.priorities, one.priority) for one in sent(large)] == [
        (100, None, 4),
        (1, None, 9),
    ]


def test_expiries_are_a_column_only_where_they_differ() -> None:
    same, different = lane(), lane()
    for expiry in (5, 5):
        same.put(message(expiry=expiry), NOW)
    for expiry in (5, 0):
        different.put(message(expiry=expiry), NOW)
    assert [(one.expiry, one.expiries) for one in sent(same)] == [(5, None)]
    assert [one.expiries for one in sent(different)] == [[5, 0]]


def test_a_block_does_not_grow_beyond_its_bytes_unless_one_message_does() -> None:
    line = lane()
    for size in (BLOCK_BYTES // 2, BLOCK_BYTES // 2, 10, 3 * BLOCK_BYTES, 10):
        line.put(message(bytes(size)), NOW)
    assert [one.count for one in sent(line)] == [2, 1, 1, 1]


def test_what_cannot_travel_is_refused_before_it_is_numbered() -> None:
    with pytest.raises(ClientFault, match="at most") as too_large:
        message(bytes(MAX_MESSAGE_BYTES + 1))
    assert too_large.value.code == "message-too-large"
    with pytest.raises(ClientFault) as no_priority:
        message(priority=10)
    assert no_priority.value.code == "priority-invalid"
    with pytest.raises(ClientFault):
        message(object())
    with pytest.raises(ClientFault):
        message(properties={"list": [1]})


def test_the_gate_lets_plain_bodies_in_until_one_more_fills_the_block() -> None:
    line, gate = lane(block_messages=4), Gate()
    line.open_gate(gate, 4, True)
    assert gate.limit == 0, "there is no open block yet"
    line.put(message(b"first"), NOW)
    line.open_gate(gate, 4, True)
    while len(gate.bodies) < gate.limit:
        gate.bodies.append(b"quick")
    assert line.pending == 3
    line.put(message(b"last"), NOW)
    assert line.is_block_full
    [contents] = sent(line)
    assert contents.bodies == [b"first", b"quick", b"quick", b"last"]
    assert gate.limit == 0, "a sealed block takes nothing more"


def test_long_bodies_that_came_through_the_gate_count() -> None:
    line, gate = lane(), Gate()
    line.put(message(b"first"), NOW)
    line.open_gate(gate, 4, True)
    while gate.room > 10_000:
        gate.bodies.append(bytes(10_000))
        gate.room -= 10_000
    line.put(message(bytes(10_000)), NOW)
    assert [one.count for one in sent(line)] == [14, 1], "the last one did not fit"


@pytest.mark.req("U4")
def test_bodies_with_a_unit_that_came_through_the_gate_are_packed_like_any_others() -> None:
    slow, quick, gate = lane(), lane(), Gate()
    for line in (slow, quick):
        line.put(message("text"), NOW)
        line.put(message(b"first", unit_of_order="ada", priority=6), NOW)
    quick.open_ordered_gate(gate, 4, True)
    for number in range(20):
        name, body = f"unit-{number % 3}", b"%d" % number
        slow.put(message(body, unit_of_order=name), NOW)
        assert len(gate.bodies) < gate.ordered
        gate.bodies.append(body)
        gate.said.append(unit_alone(name))
        gate.room -= len(body) + len(gate.said[-1][1])
    for line in (slow, quick):
        line.put(message(b"last", type="other"), NOW)
    assert gate.ordered == 0
    (one,), (other,) = sent(slow), sent(quick)
    assert (one.bodies, one.units, one.priorities) == (other.bodies, other.units, other.priorities)
    assert one.heads is not None
    assert other.heads is not None
    assert [decode_head(head) for head in one.heads] == [decode_head(head) for head in other.heads]
    assert (one.kind, one.flags, one.expiry) == (other.kind, other.flags, other.expiry)


@pytest.mark.req("U4")
def test_the_gate_for_units_stays_shut_where_there_is_none_or_the_block_is_full() -> None:
    line, gate = lane(block_messages=4), Gate()
    line.open_ordered_gate(gate, 4, True)
    assert gate.ordered == 0, "there is no open block yet"
    line.put(message(b"plain"), NOW)
    line.open_ordered_gate(gate, 4, True)
    assert gate.ordered == 0, "it has no units"
    line.put(message(b"ordered", unit_of_order="ada"), NOW)
    line.open_ordered_gate(gate, 4, False)
    assert gate.ordered == 0, "another style"
    line.open_ordered_gate(gate, 4, True)
    assert (gate.ordered, gate.limit) == (3, 0)
    line.discard_open()
    assert (gate.ordered, gate.said) == (0, [])


def test_the_gate_stays_shut_for_another_style() -> None:
    line, gate = lane(), Gate()
    line.put(message(priority=5), NOW)
    line.open_gate(gate, 4, True)
    assert gate.limit == 0
    line.open_gate(gate, 5, False)
    assert gate.limit == 0
    line.open_gate(gate, 5, True)
    assert gate.limit > 0
    line.put(message(priority=6), NOW)
    assert gate.limit == 0, "the block has columns now"


@pytest.mark.req("J11")
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["gate", "bytes", "text", "head", "odd", "volatile", "seal"]), st.integers(0, 9)
        )
    )
)
def test_whatever_is_sent_arrives_once_in_order_and_as_it_was(steps: list[tuple[str, int]]) -> None:
    line, gate, expected = lane(block_messages=8), Gate(), []
    for position, (step, value) in enumerate(steps):
        body = b"%d" % position
        if step == "gate":
            line.put(message(body), NOW)
            line.open_gate(gate, 4, True)
            expected.append((body, 0, 4, b""))
            for extra in range(value):
                if len(gate.bodies) < gate.limit:
                    gate.bodies.append(b"%d+%d" % (position, extra))
                    expected.append((b"%d+%d" % (position, extra), 0, 4, b""))
        elif step == "seal":
            line.seal(NOW)
        else:
            said = {
                "bytes": message(body),
                "text": message(body.decode()),
                "head": message(body, type="t"),
                "odd": message(body, priority=value),
                "volatile": message(body, persistent=False),
            }[step]
            line.put(said, NOW)
            expected.append((body, said.kind, said.priority, said.head))
        if line.is_block_full:
            line.seal(NOW)
    contents = sent(line)
    assert numbers(contents) == list(range(1, len(expected) + 1))
    assert line.unconfirmed == len(expected)
    found = []
    for one in contents:
        for index, raw in enumerate(one.bodies):
            head = one.heads[index] if one.heads is not None else b""
            kind = decode_head(head).kind if one.kind == BodyKind.MIXED and head else one.kind % 255
            priority = one.priority if one.priorities is None else one.priorities[index]
            found.append((raw, kind, priority, head if b"t" in head else b""))
    assert [(raw, kind, priority, bool(head)) for raw, kind, priority, head in found] == [
        (raw, kind, priority, bool(head)) for raw, kind, priority, head in expected
    ]


def test_confirmations_answer_receipts_and_free_the_window() -> None:
    line = lane(window_messages=4)
    for receipt in "abcd":
        line.put(message(), NOW, receipt)
        line.seal(NOW)
    assert line.is_full
    assert line.confirm(2) == [(1, "a"), (2, "b")]
    assert not line.is_full
    assert (line.unconfirmed, line.confirmed) == (2, 2)
    assert line.confirm(2) == []
    assert line.confirm(4) == [(3, "c"), (4, "d")]
    assert line.unconfirmed == 0


def test_bytes_fill_the_window_too() -> None:
    line = lane(window_bytes=1000)
    line.put(message(bytes(990)), NOW)
    line.seal(NOW)
    assert line.is_full
    assert not line.has_room
    line.confirm(1)
    assert line.has_room


def test_a_refusal_ends_everything_from_there_on_and_nothing_before() -> None:
    line = lane()
    for receipt in "abc":
        line.put(message(receipt.encode()), NOW, receipt)
    line.seal(NOW)
    line.take_unsent()
    line.put(message(b"d"), NOW, "d")
    assert line.refuse(3) == (2, [(3, "c"), (4, "d")])
    assert line.unconfirmed == 2
    line.disconnect()
    assert [one.bodies for one in sent(line)] == [[b"a", b"b"]], "the rest of a block is still sent again"
    assert line.confirm(2) == [(1, "a"), (2, "b")]


@pytest.mark.req("M8")
def test_after_a_loss_only_what_the_server_lacks_is_sent_again_marked() -> None:
    line = lane(block_messages=2)
    for receipt in "abcdef":
        line.put(message(receipt.encode()), NOW, receipt)
        if line.is_block_full:
            line.seal(NOW)
    line.take_unsent()
    line.put(message(b"g"), NOW, "g")
    line.disconnect()
    line.seal(NOW)
    assert line.resume(3) == [(1, "a"), (2, "b"), (3, "c")]
    again = [(block.unpack(buffer), resent) for buffer, resent in line.take_unsent()]
    assert [(one.bodies, one.first, resent) for one, resent in again] == [
        ([b"d"], 4, True),  # the server had half of this block
        ([b"e", b"f"], 5, True),
        ([b"g"], 7, False),  # it was never written before
    ]


@pytest.mark.req("M8")
def test_on_another_lane_unconfirmed_messages_are_numbered_from_one() -> None:
    line = lane(block_messages=2)
    for receipt in "abcd":
        line.put(message(receipt.encode(), priority=7), NOW, receipt)
        if line.is_block_full:
            line.seal(NOW)
    line.put(message(b"e"), NOW, "e")
    line.confirm(2)
    line.move(5, OTHER)
    moved = [block.unpack(buffer) for buffer, _ in line.take_unsent()]
    assert [(one.lane, one.first, one.bodies, one.priority) for one in moved] == [(OTHER, 1, [b"c", b"d"], 7)]
    assert [(one.lane, one.first) for one in sent(line)] == [(OTHER, 3)]
    assert line.confirm(3) == [(1, "c"), (2, "d"), (3, "e")]


def test_a_relabelled_block_is_one_that_the_server_accepts() -> None:
    line = lane()
    line.put(message(b"a", properties={"x": 1}), NOW)
    line.seal(NOW)
    line.move(2, LaneId(OTHER))
    [(buffer, _)] = line.take_unsent()
    assert block.parse(buffer).lane == OTHER
