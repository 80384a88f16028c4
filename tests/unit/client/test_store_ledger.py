"""The books of a store: what is confirmed, what is in doubt, and under which number a lane goes on."""

from __future__ import annotations

import pytest

from heliograph.client.forwarding.ledger import Lane, Ledger
from heliograph.client.forwarding.records import position_of
from heliograph.client.resending import POSSIBLY_DOUBLED, Sealed, marked
from heliograph.model import block
from heliograph.model.block import BodyKind
from heliograph.model.errors import ClientFault
from heliograph.model.ids import ID_BYTES, LaneId
from heliograph.model.limits import MAX_FORWARD_DESTINATIONS
from heliograph.model.message import Head, decode_head, encode_head

pytestmark = pytest.mark.req("U7")


def a_lane(ledger: Ledger, *, stored: int, sent: int = 0, confirmed: int = 0) -> Lane:
    lane = ledger.lane_to("queue:orders")
    for sequence in range(1, stored + 1):
        ledger.added(lane, sequence, 1, position_of(1, sequence), 10)
    ledger.confirm(lane, confirmed)
    lane.sent = max(sent, confirmed)
    return lane


def test_a_confirmation_lets_go_of_whole_blocks_only() -> None:
    ledger = Ledger()
    lane = ledger.lane_to("queue:orders")
    ledger.added(lane, 1, 10, position_of(1, 0), 100)
    ledger.added(lane, 11, 10, position_of(2, 0), 100)
    ledger.confirm(lane, 5)
    assert (ledger.messages, ledger.bytes, ledger.needed_bytes(1)) == (15, 200, 100)
    assert [entry.first for entry in lane.entries_from(6)] == [1, 11]
    ledger.confirm(lane, 12)
    assert (ledger.messages, ledger.bytes, ledger.needed_bytes(1)) == (8, 100, 0)
    ledger.confirm(lane, 3)  # late news
    ledger.confirm(lane, 99)  # more than there is
    assert (ledger.messages, ledger.bytes, lane.confirmed) == (0, 0, 20)


def test_a_server_that_has_what_was_sent_goes_on_with_the_same_lane() -> None:
    ledger = Ledger()
    lane = a_lane(ledger, stored=10, sent=6, confirmed=3)
    assert ledger.resumed(lane, 5)
    assert (lane.wire, lane.shift, lane.confirmed, lane.doubtful) == (1, 0, 5, 0)


def test_in_a_new_session_only_what_was_sent_is_in_doubt() -> None:
    ledger = Ledger()
    lane = a_lane(ledger, stored=10, sent=6, confirmed=3)
    assert ledger.begin_session(b"s" * 16, b"token") == 3
    assert (lane.wire, lane.shift, lane.sent, lane.doubtful) == (1, 3, 3, 6)
    lane.sent = 8
    assert ledger.resumed(lane, 2)
    assert lane.confirmed == 5
    assert ledger.begin_session(b"t" * 16, b"token") == 3, "6, 7 and 8"


def test_a_server_that_knows_less_than_it_said_gets_another_lane_and_the_doubtful_marked() -> None:
    ledger = Ledger()
    lane = a_lane(ledger, stored=10, sent=6, confirmed=3)
    assert not ledger.resumed(lane, 2)
    assert (lane.wire, lane.shift, lane.doubtful) == (MAX_FORWARD_DESTINATIONS + 1, 3, 6)
    assert not ledger.resumed(lane, 1000)
    assert lane.wire == MAX_FORWARD_DESTINATIONS + 2


def test_a_server_that_has_more_than_was_sent_means_that_there_is_a_copy() -> None:
    ledger = Ledger()
    lane = a_lane(ledger, stored=10, sent=6, confirmed=3)
    assert not ledger.resumed(lane, 8)
    assert (lane.confirmed, lane.shift, lane.doubtful) == (6, 6, 8)


def test_what_is_discarded_leaves_no_gap_behind() -> None:
    ledger = Ledger()
    lane = a_lane(ledger, stored=10, sent=6, confirmed=3)
    assert ledger.discard(lane) == 7
    assert (lane.confirmed, lane.sent, lane.shift, ledger.messages) == (10, 10, 10, 0)
    assert lane.wire > MAX_FORWARD_DESTINATIONS


def test_a_block_that_was_written_again_is_found_there() -> None:
    ledger = Ledger()
    lane = a_lane(ledger, stored=3)
    [_, second, _] = lane.entries_from(1)
    ledger.moved(lane, second, position_of(7, 0))
    assert next(entry.position for entry in lane.entries_from(2)) == position_of(7, 0)
    assert (ledger.needed_bytes(1), ledger.needed_bytes(7)) == (20, 10)
    ledger.confirm(lane, 3)
    assert (ledger.needed_bytes(1), ledger.needed_bytes(7)) == (0, 0)
    ledger.moved(lane, second, position_of(8, 0))  # too late
    assert ledger.needed_bytes(8) == 0


def test_there_are_only_so_many_destinations() -> None:
    ledger = Ledger()
    for number in range(MAX_FORWARD_DESTINATIONS):
        ledger.lane_to(f"queue:{number}")
    with pytest.raises(ClientFault) as refusal:
        ledger.lane_to("queue:more")
    assert refusal.value.code == "too-many-lanes"


@pytest.mark.parametrize("kind", [BodyKind.BYTES, BodyKind.TEXT, BodyKind.MIXED])
def test_the_mark_is_a_property_and_changes_nothing_else(kind: BodyKind) -> None:
    heads = [encode_head(Head(kind=BodyKind.TEXT, type="order", properties={"n": 1})), b"", b""]
    buffer = block.pack(
        [b"a", b"b", b"c"],
        lane=LaneId(bytes(ID_BYTES)),
        first=5,
        timestamp=7,
        kind=kind,
        heads=heads,
        priorities=[1, 2, 3],
        expiries=[0, 9, 0],
    )
    contents = block.unpack(marked(Sealed(5, 3, buffer), 6).buffer)
    assert contents.heads is not None
    first, second = decode_head(contents.heads[0]), decode_head(contents.heads[1])
    assert first == Head(kind=BodyKind.TEXT, type="order", properties={"n": 1, POSSIBLY_DOUBLED: True})
    assert second.properties == {POSSIBLY_DOUBLED: True}
    assert second.kind == (BodyKind.BYTES if kind is BodyKind.MIXED else kind)
    assert contents.heads[2] == b""
    assert (contents.bodies, contents.priorities, contents.expiries) == (
        [b"a", b"b", b"c"],
        [1, 2, 3],
        [0, 9, 0],
    )
    assert (contents.first, contents.timestamp, contents.kind) == (5, 7, kind)
