"""Times that no clock shows are refused in a block's columns as they are in its header."""

import struct

import pytest

from heliograph.model.block import pack, pack_lone, parse
from heliograph.model.errors import ClientFault
from heliograph.model.ids import LaneId
from tests.properties.block_strategies import resealed

LANE = LaneId(bytes(16))
pytestmark = pytest.mark.req("X2", "J8")


@pytest.mark.parametrize("heads", [None, [b"", b"head", b""]], ids=["no heads", "heads"])
@pytest.mark.parametrize("timestamps", [None, [1, 2, 3]], ids=["no timestamps", "timestamps"])
@pytest.mark.parametrize("priorities", [None, [1, 2, 3]], ids=["no priorities", "priorities"])
@pytest.mark.parametrize("bad", [0, 1, 2])
@pytest.mark.parametrize("column", ["expiries", "delivery_times", "both"])
def test_a_time_before_1970_is_refused_wherever_it_stands(
    column: str,
    bad: int,
    heads: list[bytes] | None,
    timestamps: list[int] | None,
    priorities: list[int] | None,
) -> None:
    times = [5, 0, 7]
    times[bad] = -1
    good = [1, 2, 3]
    block = pack(
        [b"a", b"b", b"c"],
        lane=LANE,
        first=1,
        heads=heads,
        timestamps=timestamps,
        priorities=priorities,
        units=[1, 2, 2**64 - 1],
        expiries=times if column == "expiries" else good if column == "both" else None,
        delivery_times=times if column != "expiries" else None,
    )
    with pytest.raises(ClientFault) as refusal:
        parse(block)
    assert refusal.value.code == "block-malformed"


def test_times_that_can_be_are_taken() -> None:
    block = pack([b"a", b"b"], lane=LANE, first=1, expiries=[0, 2**63 - 1], delivery_times=[1, 0])
    assert parse(block).count == 2


@pytest.mark.parametrize("at", [20, 24], ids=["heads", "bodies"])
def test_a_header_that_promises_three_gigabytes_is_refused_before_anybody_makes_room(at: int) -> None:
    raw = bytearray(pack_lone(b"body", lane=LANE, sequence=1, head=b"head"))
    struct.pack_into("<I", raw, at, 3 * 1024**3)
    with pytest.raises(ClientFault) as refusal:
        parse(resealed(bytes(raw)))
    assert refusal.value.code == "block-malformed"
