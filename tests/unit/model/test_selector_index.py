"""Thousands of selectors over one block (J7)."""

import time

import msgspec
import pytest

from heliograph.model.block import Block, pack, parse
from heliograph.model.ids import IdIssuer, lane_of
from heliograph.model.message import Head, Property, encode_head
from heliograph.model.selector import Columns, Selector, SelectorIndex, parse_selector

pytestmark = pytest.mark.req("J7")

LANE = lane_of(IdIssuer(site=1, node=1, started_ms=1).session(), 1)


def block(*properties: dict[str, Property]) -> Block:
    heads = [encode_head(Head(properties=each)) for each in properties]
    return parse(pack([b""] * len(heads), lane=LANE, first=1, heads=heads))


def index_of(*texts: str) -> SelectorIndex[str]:
    index: SelectorIndex[str] = SelectorIndex()
    for text in texts:
        index.add(text, Selector(text))
    return index


SHOP = block(
    {"type": "a", "size": 1},
    {"type": "b", "size": 5, "urgent": True},
    {"type": "a", "size": 9, "urgent": False},
    {"size": 9, "urgent": 1},
    {"type": 1, "size": True},
)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("type = 'a'", [0, 2]),
        ("'b' = type", [1]),
        ("type = 'a' AND size > 3", [2]),
        ("size > 3 AND type = 'a' AND urgent = FALSE", [2]),
        ("type IN ('a', 'b') AND size > 3", [1, 2]),
        ("type = 'b' OR type IN ('a', 'x')", [0, 1, 2]),
        ("type = 'b' OR size = 9", [1, 2, 3]),
        ("urgent", [1]),
        ("urgent = 1", [3]),
        ("urgent = TRUE OR urgent = 1", [1, 3]),
        ("size = 1", [0]),
        ("size = TRUE", [4]),
        ("size = 9.0 AND type IS NULL", [3]),
        ("NOT type = 'a'", [1]),
        ("type = 'a' AND type = 'b'", []),
        ("JMSPriority = 4 AND size = 5", [1]),
        ("JMSPriority = 4", [0, 1, 2, 3, 4]),
        ("JMSPriority = 5", []),
        ("missing = 'x'", []),
        ("TRUE", [0, 1, 2, 3, 4]),
    ],
)
def test_one_selector_gets_from_the_index_what_it_selects_alone(text: str, rows: list[int]) -> None:
    assert Selector(text).select(Columns(SHOP)) == rows
    assert index_of(text).match(Columns(SHOP)) == ([(text, rows)] if rows else [])


def test_keys_with_the_same_selector_share_one_evaluation() -> None:
    index: SelectorIndex[int] = SelectorIndex()
    for key in range(5):
        index.add(key, Selector("type  =  'a'" if key % 2 else "type = 'a'"))
    matched = index.match(Columns(SHOP))
    assert sorted(key for key, _ in matched) == [0, 1, 2, 3, 4]
    assert len({id(rows) for _, rows in matched}) == 1


def test_a_removed_key_gets_nothing_and_the_others_do() -> None:
    texts = ["type = 'a'", "type IN ('a', 'b')", "size > 3", "size = 5 AND type = 'b'"]
    index = index_of(*texts)
    index.add("twin", Selector("type = 'a'"))
    index.remove("type = 'a'")
    index.remove("type = 'a'")
    assert "type = 'a'" not in index
    assert dict(index.match(Columns(SHOP)))["twin"] == [0, 2]
    for key in ("twin", *texts[1:]):
        index.remove(key)
    assert len(index) == 0
    assert index.match(Columns(SHOP)) == []
    index.add("again", Selector("type = 'b'"))
    assert index.match(Columns(SHOP)) == [("again", [1])]


def test_an_empty_index_leaves_nothing_behind() -> None:
    index = index_of("type = 'a' AND size > 3", "urgent", "size BETWEEN 1 AND 2")
    for key in ("type = 'a' AND size > 3", "urgent", "size BETWEEN 1 AND 2"):
        index.remove(key)
    left = [getattr(index, name) for name in ("_entries", "_by_key", "_filed", "_others", "_names")]
    assert left == [{}] * 5


def test_the_least_crowded_term_is_the_one_to_file_under() -> None:
    index = index_of(*(f"region = 'eu' AND customer = {n}" for n in range(100)))
    crowd = max(len(drawer) for drawers in index._filed.values() for drawer in drawers.values())
    assert crowd == 1


def test_a_property_that_cannot_be_looked_up_disturbs_nobody() -> None:
    heads = [msgspec.msgpack.encode({"p": {"type": value}}) for value in ([1], "a", {"x": 1}, "a")]
    odd = parse(pack([b""] * 4, lane=LANE, first=1, heads=heads))
    assert index_of("type = 'a'").match(Columns(odd)) == [("type = 'a'", [1, 3])]


def test_the_order_of_the_answer_depends_on_nothing_but_the_history() -> None:
    texts = [f"type = '{letter}'" for letter in "zyxba"] + ["size > 3", "type IN ('b', 'a')"]
    assert index_of(*texts).match(Columns(SHOP)) == index_of(*texts).match(Columns(SHOP))


def test_thousands_of_different_properties() -> None:
    index: SelectorIndex[int] = SelectorIndex()
    for key in range(2000):
        index.add(key, Selector(f"p{key} = 1"))
    assert index.match(Columns(block({"p7": 1, "p8": 2}, {"p8": 1}, {}))) == [(7, [0]), (8, [1])]


@pytest.mark.nightly
def test_ten_thousand_subscriptions_keep_up_with_twenty_thousand_messages_a_second() -> None:
    index: SelectorIndex[int] = SelectorIndex()
    for key in range(10_000):
        selector = parse_selector(f"type = '{key % 100}' AND size > 3")
        assert selector is not None
        index.add(key, selector)
    properties: list[dict[str, Property]] = [{"type": str(n * 37 % 100), "size": n % 8} for n in range(256)]
    messages = block(*properties)
    seconds = []
    for _ in range(5):
        begin = time.process_time()
        index.match(Columns(messages))
        seconds.append(time.process_time() - begin)
    assert 256 / min(seconds) > 20_000
