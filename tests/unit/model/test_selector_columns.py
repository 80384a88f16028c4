"""Selectors on blocks: headers, properties, what a whole block answers at once, and broken heads (J7)."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from heliograph.model.block import Block, BodyKind, pack, pack_lone, parse
from heliograph.model.ids import IdIssuer, lane_of, message_id
from heliograph.model.message import Head, Property, encode_head
from heliograph.model.selector import Columns, Selector

pytestmark = pytest.mark.req("J7")

LANE = lane_of(IdIssuer(site=1, node=2, started_ms=1_700_000_000_000).session(), 3)


def block(heads: Sequence[Head | bytes | None], **fields: Any) -> Block:
    raw = [encode_head(head) if isinstance(head, Head) else head or b"" for head in heads]
    bodies = [b"body"] * len(raw)
    return parse(pack(bodies, lane=LANE, first=7, heads=raw if any(raw) else None, **fields))


def with_properties(*properties: dict[str, Property]) -> Block:
    return block([Head(properties=each) for each in properties])


def selected(text: str, of: Block, **supplied: Property) -> list[int]:
    return Selector(text).select(Columns(of, supplied))


def test_properties_of_each_message() -> None:
    shop = with_properties(
        {"colour": "blue", "weight": 10}, {"colour": "red", "weight": 30}, {"weight": 20.5}, {"colour": None}
    )
    assert selected("colour = 'blue'", shop) == [0]
    assert selected("weight > 15", shop) == [1, 2]
    assert selected("colour IS NULL", shop) == [2, 3]
    assert selected("colour = 'red' OR weight BETWEEN 5 AND 15", shop) == [0, 1]
    assert selected("NOT colour = 'blue'", shop) == [1]
    assert Selector("weight > 15").select(Columns(shop), within=range(2, 4)) == [2]


def test_headers_that_stand_in_the_head() -> None:
    mail = block(
        [
            Head(type="order", correlation_id="A1", group_id="g", group_sequence=1),
            Head(type="order", group_id="g", group_sequence=2, properties={"JMSType": "liar"}),
            Head(properties={"type": "order"}),
        ]
    )
    assert selected("JMSType = 'order'", mail) == [0, 1]
    assert selected("JMSType = 'liar'", mail) == []
    assert selected("JMSCorrelationID LIKE 'A_'", mail) == [0]
    assert selected("JMSXGroupID = 'g' AND JMSXGroupSeq > 1", mail) == [1]
    assert selected("JMSXGroupSeq IS NULL AND type = 'order'", mail) == [2]


def test_headers_that_stand_in_the_block() -> None:
    plain = block([None] * 3, priority=6, timestamp=1_700_000_000_123_456, persistent=False)
    assert selected("JMSPriority > 5", plain) == [0, 1, 2]
    assert selected("JMSPriority <= 5", plain) == []
    assert selected("JMSTimestamp = 1700000000123", plain) == [0, 1, 2]
    assert selected("JMSDeliveryMode = 'NON_PERSISTENT'", plain) == [0, 1, 2]
    assert selected("JMSDeliveryMode = 'PERSISTENT'", plain) == []
    assert Selector("JMSPriority > 5").select(Columns(plain), within=[1]) == [1]


@pytest.mark.parametrize("heads", [[None] * 5, [Head(type="t")] * 5])
def test_headers_that_differ_from_message_to_message(heads: list[Head | None]) -> None:
    uneven = block(
        heads,
        priorities=[1, 9, 4, 9, 0],
        timestamps=[1000, 2000, 3000, 4999, 5000],
        expiries=[0] * 5,
        units=[0] * 5,
    )
    assert selected("JMSPriority = 9", uneven) == [1, 3]
    assert selected("JMSTimestamp BETWEEN 2 AND 4", uneven) == [1, 2, 3]
    assert selected("JMSPriority = 9 AND JMSTimestamp > 2", uneven) == [3]


def test_message_ids_are_those_that_people_see() -> None:
    plain = block([None] * 3)
    assert selected(f"JMSMessageID = '{message_id(LANE, 8)}'", plain) == [1]


def test_what_only_the_server_knows_is_null_until_it_says_so() -> None:
    claims = with_properties({"JMSXUserID": "root", "JMSXDeliveryCount": 99})
    assert selected("JMSXUserID IS NULL AND JMSXDeliveryCount IS NULL", claims) == [0]
    assert selected("JMSXUserID = 'ann' AND JMSXDeliveryCount = 2", claims) == []
    assert selected("JMSXUserID = 'ann'", claims, JMSXUserID="ann") == [0]
    assert selected("JMSXDeliveryCount > 1", claims, JMSXDeliveryCount=2) == [0]


def test_a_large_message_is_known_whatever_a_producer_claims() -> None:
    claims = with_properties({"JMS_helio_large": True, "n": 1})
    large = parse(pack_lone(b"body", lane=LANE, sequence=9, kind=BodyKind.LARGE))
    assert selected("JMS_helio_large", claims) == []
    assert selected("NOT JMS_helio_large AND n = 1", claims) == [0]
    assert selected("JMS_helio_large", large) == [0]
    assert selected("NOT JMS_helio_large", large) == []


def test_a_lone_message() -> None:
    raw = pack_lone(b"body", lane=LANE, sequence=9, head=encode_head(Head(properties={"n": 1})), priority=3)
    assert selected("n = 1 AND JMSPriority = 3", parse(raw)) == [0]
    assert selected("n = 2", parse(raw)) == []
    bare = parse(pack_lone(b"body", lane=LANE, sequence=9))
    assert selected("n IS NULL", bare) == [0]
    assert selected("n = 1", bare) == []


def test_messages_without_a_head_among_others_with_one() -> None:
    mixed = block([Head(properties={"n": 1}), None, Head(properties={"n": 2}), None])
    assert selected("n IS NULL", mixed) == [1, 3]
    assert selected("n = 2", mixed) == [2]
    assert selected("n = 2 OR JMSType IS NULL", mixed) == [0, 1, 2, 3]


class Decoded(Exception):
    """Somebody looked into the heads."""


def test_a_header_that_rules_out_the_block_is_asked_before_any_head_is_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise Decoded

    monkeypatch.setattr(Columns, "_decode_picked", refuse)
    shop = with_properties({"colour": "blue"})
    assert selected("colour = 'blue' AND JMSPriority > 5", shop) == []
    assert selected("JMSPriority = 4", shop) == [0]
    with pytest.raises(Decoded):
        selected("colour = 'blue' AND JMSPriority = 4", shop)


def test_heads_are_decoded_once_for_all_selectors(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[tuple[str, ...]] = []
    decode = Columns._decode_picked

    def count(self: Columns, fields: tuple[str, ...], properties: tuple[str, ...]) -> None:
        passes.append(properties)
        decode(self, fields, properties)

    monkeypatch.setattr(Columns, "_decode_picked", count)
    columns = Columns(with_properties({"a": 1, "b": 2, "c": 3}))
    assert Selector("a = 1 AND b = 2").select(columns) == [0]
    assert Selector("b = 1 OR a = 1").select(columns) == [0]
    assert Selector("c = 3 AND a = 1").select(columns) == [0]
    assert passes == [("a", "b"), ("c",)]


def test_a_selector_with_very_many_properties() -> None:
    names = [f"p{n}" for n in range(100)]
    wide = with_properties(dict.fromkeys(names, 1), dict.fromkeys(names[1:], 1), {})
    assert selected(" AND ".join(f"{name} = 1" for name in names), wide) == [0]
    assert selected(" OR ".join(f"{name} = 1" for name in names), wide) == [0, 1]
    assert selected(" AND ".join(f"{name} IS NULL" for name in names) + " AND JMSType IS NULL", wide) == [2]


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(
    "broken",
    [
        b"\xc1",
        b"\x81\xa1p\x93\x01\x02\x03",  # properties that are a list
        b"\x93\x01\x02\x03",  # a list
        b"\x81\xa1p\x81\xa1n",  # cut off
        b"\x81\xa1p\x81\x05\x06",  # a number for a name
        b"\x81\xa1p\x81\xa1n\xa1\xff",  # no UTF-8
        b"\x91" * 5000 + b"\x90",
        b"\x81\xa1p\x81\xa1n" + b"\x91" * 5000 + b"\x90",
        b"\x80\x80",  # two heads in the place of one
        b"\x81\xa1p\x81\xa1n\xd6\xff\xff\xff\xff\xff",  # a timestamp
    ],
)
def test_a_head_that_cannot_be_read_has_nothing_in_it(broken: bytes, many: bool) -> None:
    good = Head(properties={"n": 1})
    damaged = block([good, broken, None, good])
    others = " AND ".join(f"q{n} IS NULL" for n in range(50)) if many else "TRUE"
    assert selected(f"n = 1 AND {others}", damaged) == [0, 3]
    assert 2 in selected(f"n IS NULL AND {others}", damaged)
    assert selected(f"n <> 1 AND {others}", damaged) == []


@pytest.mark.parametrize("value", [[1], {"a": 1}, b"bytes", msgspec.msgpack.Ext(5, b"x")])
def test_a_property_of_a_kind_that_cannot_be_compared_is_not_null(value: object) -> None:
    head = msgspec.msgpack.encode({"p": {"n": value}})
    odd = block([head, Head(properties={"n": 1})])
    assert selected("n IS NOT NULL", odd) == [0, 1]
    for text in ("n = 1", "n IN (1)", "n > 0", "n = n"):
        assert selected(text, odd) == [1]
    assert selected("n <> 1 OR n LIKE '%' OR n IN ('a') OR n NOT IN (1)", odd) == []
