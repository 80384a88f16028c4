"""Blocks of every shape for Hypothesis: any choice of columns, empty bodies, one message and many."""

from __future__ import annotations

from typing import Any

from crc32c import crc32c
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from heliograph.model import block
from heliograph.model.ids import LaneId
from heliograph.model.limits import MAX_SEQUENCE

I64 = st.integers(min_value=0, max_value=2**63 - 1)
U64 = st.integers(min_value=0, max_value=2**64 - 1)
LANES = st.binary(min_size=16, max_size=16).map(LaneId)
PRIORITIES = st.integers(min_value=0, max_value=9)
COLUMNS: dict[str, SearchStrategy[Any]] = {
    "heads": st.binary(max_size=20),
    "timestamps": I64,
    "expiries": I64,
    "delivery_times": I64,
    "units": U64,
    "priorities": PRIORITIES,
}
SHARED: dict[str, SearchStrategy[Any]] = {
    "lane": LANES,
    "timestamp": I64,
    "priority": PRIORITIES,
    "persistent": st.booleans(),
    "kind": st.sampled_from((0, 1, 2, 17, 255)),
    "expiry": I64,
    "delivery_time": I64,
}
SEQUENCES = st.integers(min_value=1, max_value=MAX_SEQUENCE - 10_000)


@st.composite
def packable(draw: st.DrawFn, *, max_messages: int = 20) -> dict[str, Any]:
    """Arguments of `block.pack`."""
    count = draw(st.integers(min_value=1, max_value=max_messages))
    fields: dict[str, Any] = draw(st.fixed_dictionaries(SHARED))
    fields["first"] = draw(SEQUENCES)
    fields["bodies"] = draw(st.lists(st.binary(max_size=30), min_size=count, max_size=count))
    for name, values in COLUMNS.items():
        if draw(st.booleans()):
            fields[name] = draw(st.lists(values, min_size=count, max_size=count))
    return fields


@st.composite
def packable_lone(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of `block.pack_lone`."""
    fields: dict[str, Any] = draw(st.fixed_dictionaries(SHARED))
    fields["sequence"] = draw(SEQUENCES)
    fields["body"] = draw(st.binary(max_size=30))
    fields["head"] = draw(st.binary(max_size=20))
    return fields


def whole_blocks(*, max_messages: int = 20) -> SearchStrategy[bytes]:
    """Packed blocks, lone ones among them."""
    many = packable(max_messages=max_messages).map(lambda fields: block.pack(**fields))
    return st.one_of(many, packable_lone().map(lambda fields: block.pack_lone(**fields)))


def resealed(buffer: bytes | bytearray) -> bytes:
    """The same bytes with a length and a checksum that agree with them: whatever else is wrong shows now."""
    changed = bytearray(buffer)
    changed[4:8] = len(changed).to_bytes(4, "little")
    changed[8:12] = crc32c(memoryview(changed)[block.PREFIX_BYTES :]).to_bytes(4, "little")
    return bytes(changed)
