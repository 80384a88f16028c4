"""What is packed into a block comes out of it, whole or in part, whatever it is."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.model import block
from heliograph.model.block import Block, Contents, Span
from tests.properties.block_strategies import COLUMNS, packable, packable_lone

pytestmark = pytest.mark.req("J2")
COLUMN_FLAGS = {
    "heads": block.HEADS,
    "timestamps": block.TIMESTAMPS,
    "expiries": block.EXPIRIES,
    "delivery_times": block.DELIVERIES,
    "units": block.UNITS,
    "priorities": block.PRIORITIES,
}


def expected(fields: dict[str, Any], start: int = 0, stop: int | None = None) -> Contents:
    """What a consumer must see of messages start..stop."""
    bodies = fields["bodies"][start:stop]
    columns: dict[str, Any] = {name: fields[name][start:stop] if name in fields else None for name in COLUMNS}
    flags = sum(flag for name, flag in COLUMN_FLAGS.items() if name in fields)
    shared = ("priority", "persistent", "kind", "lane", "timestamp", "expiry", "delivery_time")
    return Contents(
        count=len(bodies),
        flags=flags,
        first=fields["first"] + start,
        bodies=bodies,
        **{name: fields[name] for name in shared},
        **columns,
    )


@given(packable())
@settings(max_examples=300, deadline=None)
def test_a_block_gives_back_what_was_packed(fields: dict[str, Any]) -> None:
    buffer = block.pack(**fields)
    assert block.unpack(buffer) == expected(fields)
    parsed = block.parse(buffer)
    assert parsed == Block(
        buffer=buffer,
        size=len(buffer),
        count=len(fields["bodies"]),
        flags=expected(fields).flags,
        priority=fields["priority"],
        persistent=fields["persistent"],
        lane=fields["lane"],
        first=fields["first"],
        timestamp=fields["timestamp"],
        expiry=fields["expiry"],
        delivery_time=fields["delivery_time"],
    )
    assert parsed.last == fields["first"] + len(fields["bodies"]) - 1
    assert block.parse_trusted(buffer) == parsed
    assert block.verify_checksum(buffer)
    assert block.kind_of(parsed) == fields["kind"]


@given(packable_lone())
@settings(max_examples=100, deadline=None)
def test_a_lone_message_gives_back_what_was_packed(fields: dict[str, Any]) -> None:
    buffer = block.pack_lone(**fields)
    parsed = block.parse(buffer)
    contents = block.unpack(buffer)
    assert block.parse_trusted(buffer) == parsed
    assert (parsed.count, parsed.first, parsed.last) == (1, fields["sequence"], fields["sequence"])
    assert contents.bodies == [fields["body"]]
    assert contents.heads == ([fields["head"]] if fields["head"] else None)
    for name in ("priority", "persistent", "kind", "lane", "timestamp", "expiry", "delivery_time"):
        assert getattr(contents, name) == fields[name]
    assert block.slice_span(Span(parsed, 0, 1)) == [buffer]


@given(packable(), st.data())
@settings(max_examples=300, deadline=None)
def test_any_part_of_a_block_is_the_same_part_of_its_messages(
    fields: dict[str, Any], data: st.DataObject
) -> None:
    count = len(fields["bodies"])
    start = data.draw(st.integers(min_value=0, max_value=count - 1))
    stop = data.draw(st.integers(min_value=start + 1, max_value=count))
    parts = block.slice_span(Span(block.parse(block.pack(**fields)), start, stop))
    raw = b"".join(parts)
    assert int.from_bytes(raw[4:8], "little") == len(raw)
    assert raw[3] == (block.WHOLE if stop - start == count else block.FRAGMENT)
    assert block.unpack(raw) == expected(fields, start, stop)


@given(packable())
@settings(max_examples=100, deadline=None)
def test_runs_of_equal_priority_cover_the_block_in_order(fields: dict[str, Any]) -> None:
    fields.setdefault("priorities", [index % 10 for index in range(len(fields["bodies"]))])
    runs = block.priority_runs(block.parse(block.pack(**fields)))
    assert [priority for priority, start, stop in runs for _ in range(start, stop)] == fields["priorities"]
    assert all(one[2] == other[1] and one[0] != other[0] for one, other in pairwise(runs))


@given(
    st.lists(st.tuples(st.binary(max_size=20), st.integers(0, 2**62)), min_size=1, max_size=20),
    packable_lone(),
)
@settings(max_examples=100, deadline=None)
def test_lone_messages_put_together_are_still_the_same_messages(
    messages: list[tuple[bytes, int]], fields: dict[str, Any]
) -> None:
    fields |= {"head": b"", "expiry": 0, "delivery_time": 0}
    first = fields["sequence"]
    run = []
    for index, (body, timestamp) in enumerate(messages):
        lone = {**fields, "body": body, "timestamp": timestamp, "sequence": first + index}
        run.append(block.parse(block.pack_lone(**lone)))
        run[-1].position = 1000 + index
    merged = block.merge_lone(run)
    assert merged.buffer is not None
    contents = block.unpack(merged.buffer)
    assert contents.bodies == [body for body, _ in messages]
    assert contents.timestamps == [timestamp for _, timestamp in messages]
    assert (contents.first, contents.lane, contents.kind) == (first, fields["lane"], fields["kind"])
    assert merged.positions is not None
    assert list(merged.positions) == [block.position for block in run]
    assert block.parse(merged.buffer).count == len(messages)
