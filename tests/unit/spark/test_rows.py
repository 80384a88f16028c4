"""Blocks become Arrow rows and rows become blocks, and nothing of a message is lost on the way (D1)."""

from __future__ import annotations

import pytest

pa = pytest.importorskip("pyarrow")

from heliograph.model.block import BodyKind, Span, pack, pack_lone, parse, slice_span, unpack  # noqa: E402
from heliograph.model.errors import ClientFault  # noqa: E402
from heliograph.model.gathering import gather  # noqa: E402
from heliograph.model.hash_ranges import ranges, stretch_number, value_of  # noqa: E402
from heliograph.model.ids import IdIssuer, lane_of, message_id  # noqa: E402
from heliograph.model.limits import MAX_BLOCK_BYTES, MAX_MESSAGE_BYTES  # noqa: E402
from heliograph.model.message import Head, decode_head, encode_head  # noqa: E402
from heliograph.model.units import unit_number  # noqa: E402
from heliograph.spark.packing import blocks_of, by_destination  # noqa: E402
from heliograph.spark.rows import Rows  # noqa: E402

pytestmark = pytest.mark.req("D1")
LANE = lane_of(IdIssuer(site=1, node=2, started_ms=1_700_000_000_000).session(), 3)


def rows_of(*buffers: bytes, low: int = 0, high: int = 1 << 32) -> list[dict[str, object]]:
    rows = Rows(low, high)
    batches = [batch for buffer in buffers for batch in rows.add(buffer, lsn=7, destination="queue:a")]
    batches += rows.rest()
    return [row for batch in batches for row in batch.to_pylist()]


def test_a_plain_block_a_lone_message_and_a_fragment_become_rows() -> None:
    plain = pack([b"one", b"", b"three"], lane=LANE, first=5, timestamp=1_000_000, kind=BodyKind.TEXT)
    lone = pack_lone(b"four", lane=LANE, sequence=8, timestamp=2_000_000, priority=9, expiry=3_000_000)
    fragment = b"".join(slice_span(Span(parse(plain), 2, 3)))
    found = rows_of(plain, lone, fragment)
    assert [row["body"] for row in found] == [b"one", b"", b"three", b"four", b"three"]
    assert [row["text"] for row in found] == ["one", "", "three", None, "three"]
    assert [row["id"] for row in found] == [message_id(LANE, n) for n in (5, 6, 7, 8, 7)]
    assert [row["priority"] for row in found] == [4, 4, 4, 9, 4]
    assert [str(row["timestamp"])[17:19] for row in found] == ["01", "01", "01", "02", "01"]
    assert [row["expiration"] is None for row in found] == [True, True, True, False, True]
    assert {row["lsn"] for row in found} == {7}
    assert {row["destination"] for row in found} == {"queue:a"}


def test_heads_and_mixed_bodies_are_opened() -> None:
    heads = [
        encode_head(
            Head("c", "queue:r", "t", BodyKind.TEXT, "u", properties={"n": 1, "yes": True, "none": None})
        ),
        encode_head(Head(kind=BodyKind.DATA)),
        b"",
    ]
    block = pack(
        [b"text", b"\x81\xa1a\x01", b"\xff"],
        lane=LANE,
        first=1,
        kind=BodyKind.MIXED,
        heads=heads,
        units=[unit_number("u"), 0, 0],
        priorities=[1, 2, 3],
    )
    first, second, third = rows_of(block)
    assert (first["correlation_id"], first["reply_to"], first["type"]) == ("c", "queue:r", "t")
    assert first["unit_of_order"] == "u"
    assert dict(first["properties"]) == {"n": "1", "yes": "true", "none": None}  # type: ignore[call-overload]
    assert [row["text"] for row in (first, second, third)] == ["text", '{"a": 1}', None]
    assert [row["priority"] for row in (first, second, third)] == [1, 2, 3]
    assert second["properties"] is None


def test_what_was_picked_from_many_blocks_keeps_its_ids() -> None:
    other = lane_of(IdIssuer(site=1, node=3, started_ms=1_700_000_000_000).session(), 1)
    blocks = [parse(pack([b"a", b"b"], lane=LANE, first=1)), parse(pack([b"c", b"d"], lane=other, first=9))]
    picked = gather([Span(blocks[0], 1, 2), Span(blocks[1], 0, 1)])
    found = rows_of(b"".join(picked))
    assert [(row["id"], row["body"]) for row in found] == [
        (message_id(LANE, 2), b"b"),
        (message_id(other, 9), b"c"),
    ]


def test_each_message_is_in_one_range_and_a_unit_in_one() -> None:
    units = [unit_number(f"unit {n % 7}") if n % 3 else 0 for n in range(500)]
    blocks = [pack([b"%d" % n for n in range(500)], lane=LANE, first=4000, units=units)]
    blocks += [
        pack([b"p%d" % n for n in range(500)], lane=LANE, first=first) for first in range(1, 40_000, 500)
    ]
    found = [rows_of(*blocks, low=low, high=high) for low, high in ranges(4)]
    bodies = sorted(str(row["id"]) + str(row["body"]) for rows in found for row in rows)
    assert bodies == sorted(str(row["id"]) + str(row["body"]) for row in rows_of(*blocks))
    assert all(len(rows) > 1000 for rows in found)
    homes: dict[int, set[int]] = {}
    for place, rows in enumerate(found):
        for row in rows:
            body = row["body"]
            assert isinstance(body, bytes)
            if not body.startswith(b"p") and units[int(body)]:
                homes.setdefault(units[int(body)], set()).add(place)
    assert len(homes) == 7
    assert all(len(places) == 1 for places in homes.values())


def test_values_stay_what_they_are() -> None:
    assert [value_of(n) for n in (0, 1, 2**63, 2**64 - 1)] == GOLDEN
    assert value_of(stretch_number(LANE, 5)) == GOLDEN_STRETCH


GOLDEN = [540910421, 747863319, 783291953, 1037937157]
GOLDEN_STRETCH = 391412803


def test_rows_become_blocks_that_a_server_takes() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "body": [b"one", None, b"three"],
            "priority": [1, None, 9],
            "unit_of_order": ["u", None, None],
            "type": [None, "t", None],
            "properties": [[("a", "1")], None, []],
        },
        schema=pa.schema(
            [
                ("body", pa.binary()),
                ("priority", pa.int32()),
                ("unit_of_order", pa.string()),
                ("type", pa.string()),
                ("properties", pa.map_(pa.string(), pa.string())),
            ]
        ),
    )
    ((destination, rows),) = by_destination(batch, "queue:out")
    ((count, _, pack_them),) = blocks_of(rows, 1_000_000)
    block = parse(pack_them(LANE, 11))
    assert (destination, count, block.first, block.count) == ("queue:out", 3, 11, 3)
    assert block.buffer is not None
    found = unpack(block.buffer)
    assert found.bodies == [b"one", b"", b"three"]
    assert found.priorities == [1, 4, 9]
    assert found.units == [unit_number("u"), 0, 0]
    again = rows_of(block.buffer)
    assert [row["type"] for row in again] == [None, "t", None]
    assert again[0]["properties"] == [("a", "1")]


def test_a_batch_of_many_rows_is_cut_into_blocks_and_sorted_by_destination() -> None:
    names = ["queue:a" if n % 2 else "queue:b" for n in range(10_000)]
    batch = pa.RecordBatch.from_pydict({"text": [f"row {n}" for n in range(10_000)], "destination": names})
    found: dict[str, list[bytes]] = {}
    for destination, rows in by_destination(batch, ""):
        first = 1
        for count, _, pack_them in blocks_of(rows.slice(3), 0):
            block = unpack(parse(pack_them(LANE, first)).buffer or b"")
            assert block.kind == BodyKind.TEXT
            found.setdefault(destination, []).extend(block.bodies)
            first += count
    assert found["queue:a"] == [b"row %d" % n for n in range(1, 10_000, 2)][3:]
    assert found["queue:b"] == [b"row %d" % n for n in range(0, 10_000, 2)][3:]


def sent_again(*buffers: bytes) -> list[bytes]:
    """What a writer makes of the rows of these blocks."""
    rows = Rows()
    batches = [batch for buffer in buffers for batch in rows.add(buffer, lsn=7, destination="queue:a")]
    (batch,) = [*batches, *rows.rest()]
    blocks = [parse(pack_them(LANE, 1)) for _, _, pack_them in blocks_of(batch, 0)]
    return [block.buffer or b"" for block in blocks]


def test_what_is_written_again_is_of_the_kind_and_the_types_that_it_was() -> None:
    properties = {"n": 1, "much": 2.5, "yes": True, "raw": b"\xff", "word": "1", "none": None}
    heads = [
        encode_head(Head("c", "queue:r", "t", BodyKind.DATA, "u", "g", 3, properties)),
        encode_head(Head(kind=BodyKind.TEXT)),
        b"",
    ]
    mixed = pack([b"\x81\xa1a\x01", b"text", b"\xff"], lane=LANE, first=1, kind=BodyKind.MIXED, heads=heads)
    data = pack([b"\x91\x01"], lane=LANE, first=9, kind=BodyKind.DATA)
    before = rows_of(mixed, data)
    assert [row["body_kind"] for row in before] == ["data", "text", "bytes", "data"]
    (again,) = sent_again(mixed, data)
    found = unpack(again)
    assert found.kind == BodyKind.MIXED
    assert found.heads is not None
    kept = [decode_head(raw) for raw in found.heads]
    assert [head.kind for head in kept] == [BodyKind.DATA, BodyKind.TEXT, BodyKind.BYTES, BodyKind.DATA]
    assert kept[0] == Head("c", "queue:r", "t", BodyKind.DATA, "u", "g", 3, properties)
    assert [type(value) for value in kept[0].properties.values()] == [
        int,
        float,
        bool,
        bytes,
        str,
        type(None),
    ]
    assert found.bodies == [b"\x81\xa1a\x01", b"text", b"\xff", b"\x91\x01"]
    (alone,) = sent_again(data)
    assert (unpack(alone).kind, unpack(alone).heads) == (BodyKind.DATA, None)


def test_a_property_that_was_changed_on_the_way_is_what_it_became() -> None:
    head = encode_head(Head(properties={"n": 1, "m": 2, "gone": 3}))
    ((count, _, pack_them),) = blocks_of(
        pa.RecordBatch.from_pydict(
            {
                "body": [b""],
                "properties": pa.array(
                    [[("n", "1"), ("m", "3"), ("new", "4")]], pa.map_(pa.string(), pa.string())
                ),
                "head": [head],
            }
        ),
        0,
    )
    (raw,) = unpack(pack_them(LANE, 1)).heads or [b""]
    assert (count, decode_head(raw).properties) == (1, {"n": 1, "m": "3", "new": "4"})


def test_text_and_bytes_are_told_apart_without_a_kind_too() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "body": [b"text", b"\xff", b"\x91\x01"],
            "text": ["text", None, "[1]"],
            "body_kind": pa.nulls(3, pa.string()),
        }
    )
    ((_, _, pack_them),) = blocks_of(batch, 0)
    found = unpack(pack_them(LANE, 1))
    assert [decode_head(raw).kind for raw in found.heads or ()] == [
        BodyKind.TEXT,
        BodyKind.BYTES,
        BodyKind.BYTES,
    ]


def test_a_large_message_is_never_sent_as_an_empty_one() -> None:
    large = pack_lone(b"a reference", lane=LANE, sequence=1, kind=BodyKind.LARGE)
    plain = pack([b"plain"], lane=LANE, first=2, kind=BodyKind.TEXT)
    assert [(row["body"], row["text"], row["body_kind"]) for row in rows_of(large, plain)] == [
        (None, None, "large"),
        (b"plain", "plain", "text"),
    ]
    for blocks in ([large], [plain, large]):
        with pytest.raises(ClientFault) as refused:
            sent_again(*blocks)
        assert refused.value.code == "body-missing"
    fetched = pa.RecordBatch.from_pydict({"body": [b"content"], "body_kind": ["large"]})
    ((_, _, pack_them),) = blocks_of(fetched, 0)
    assert unpack(pack_them(LANE, 1)).kind == BodyKind.BYTES
    with pytest.raises(ClientFault, match="body_kind is one of"):
        list(blocks_of(pa.RecordBatch.from_pydict({"body": [b""], "body_kind": ["huge"]}), 0))


@pytest.mark.parametrize(
    "body",
    [
        b"\x81\xc4\x01a\x01",  # a map whose key is bytes
        b"\x81\x91\x01\x01",  # or a list
        b"\x91" * 5000 + b"\xc0",  # lists in lists
        b"\xa3\xed\xa0\x80",  # half of a letter
        b"\xc1",
    ],
    ids=["bytes as a key", "a list as a key", "very deep", "half a letter", "no value"],
)
def test_a_body_that_cannot_be_told_as_json_has_no_text_and_harms_nobody(body: bytes) -> None:
    block = pack(
        [body, b"\x81\xa1a\x01"], lane=LANE, first=1, kind=BodyKind.DATA, heads=[b"\x91" * 5000, b""]
    )
    first, second = rows_of(block)
    assert (first["text"], second["text"]) == (None, '{"a": 1}')
    assert first["body"] == body


def test_each_row_has_the_body_that_it_has_though_others_have_it_elsewhere() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "body": pa.array([b"\xff", None, None, None, b"b"], pa.binary()),
            "value": pa.array([None, b"\x01", None, None, b"v"], pa.binary()),
            "text": ["said", None, "text", None, "t"],
            "body_kind": [None, None, None, None, "data"],
        }
    )
    ((count, _, pack_them),) = blocks_of(batch, 0)
    found = unpack(pack_them(LANE, 1))
    assert (count, found.bodies) == (5, [b"\xff", b"\x01", b"text", b"", b"b"])
    assert [decode_head(raw).kind for raw in found.heads or ()] == [
        BodyKind.BYTES,
        BodyKind.BYTES,
        BodyKind.TEXT,
        BodyKind.BYTES,
        BodyKind.DATA,
    ]


@pytest.mark.parametrize("is_mixed", [False, True], ids=["of one kind", "of several kinds"])
def test_blocks_fit_a_frame_with_all_that_stands_in_heads(is_mixed: bool) -> None:
    count = 5000
    batch = pa.RecordBatch.from_pydict(
        {
            "body": [b"x"] * count,
            "body_kind": ["text" if is_mixed and n % 2 else "bytes" for n in range(count)],
            "properties": pa.array([[("p", "y" * 4000)]] * count, pa.map_(pa.string(), pa.string())),
            "unit_of_order": [f"u{n}" for n in range(count)],
        }
    )
    first = 1
    for number, size, pack_them in blocks_of(batch.slice(1), 0):
        block = pack_them(LANE, first)
        assert size <= len(block) <= MAX_BLOCK_BYTES
        found = unpack(block)
        assert found.units == [unit_number(f"u{n}") for n in range(first, first + number)]
        assert [decode_head(raw).unit for raw in found.heads or ()] == [
            f"u{n}" for n in range(first, first + number)
        ]
        kinds = [decode_head(raw).kind if is_mixed else found.kind for raw in found.heads or ()]
        assert kinds == [int(is_mixed and n % 2) for n in range(first, first + number)]
        first += number
    assert first == count


def test_a_row_that_no_message_has_room_for_is_refused() -> None:
    batch = pa.RecordBatch.from_pydict({"body": [b"", b"x" * (MAX_MESSAGE_BYTES + 1)]})
    with pytest.raises(ClientFault, match=rf"at most {MAX_MESSAGE_BYTES} are allowed") as refused:
        list(blocks_of(batch, 0))
    assert refused.value.code == "message-too-large"
