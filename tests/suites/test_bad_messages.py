"""Selectors, times, properties, transactions and subscriptions that cannot be: a real server refuses each by
its reason, or takes it for what it is, and serves the others as if nothing had been."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from heliograph.frontends.native import frames
from heliograph.frontends.native.frames import (
    PUBLISH,
    RETURNED,
    STAGED,
    BrowseEnded,
    Commit,
    Completed,
    Failed,
    LaneOpened,
    OpenLane,
    Rollback,
    Subscribe,
    pack_header,
)
from heliograph.model import block
from heliograph.model.ids import LaneId
from heliograph.model.limits import MAX_BLOCK_BYTES
from heliograph.model.message import Head, encode_head
from tests.suites.test_bad_input import Peer, house, play

pytestmark = pytest.mark.req("X2")


async def refused(peer: Peer, message: frames.Control) -> str:
    """The code with which a request fails; the connection stays."""
    peer.tell(message)
    return (await peer.hear(Failed)).code


def wish(**wishes: Any) -> Subscribe:
    return Subscribe(**{"request": 5, "number": 0, "consumer": 9, "destination": "queue:orders", **wishes})


BOMBS = {
    "deep": "(" * 5_000 + "a = 1" + ")" * 5_000,
    "nots": "NOT " * 5_000 + "a = 1",
    "sums": "a = 1" + " + 1" * 10_000,
    "long": "a = '" + "x" * 50_000 + "'",
    "members": "a IN (" + ", ".join(["'x'"] * 10_000) + ")",
    "ors": " OR ".join(["a = 1"] * 5_000),
}


@pytest.mark.req("J7")
def test_a_selector_that_is_a_bomb_is_refused_and_the_connection_stays(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            peer = await here.guest()
            for destination in ("queue:orders", "topic:news"):
                for name, bomb in BOMBS.items():
                    code = await refused(peer, wish(destination=destination, selector=bomb))
                    assert code.startswith("selector-"), (name, code)
            peer.tell(wish(selector="a = 1"))
            await peer.hear(Completed)

    play(story)


@pytest.mark.req("J6", "J9")
def test_subscriptions_that_cannot_be_are_refused_by_their_reason(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            peer = await here.guest()
            wishes = {
                "subscription-unnamed": wish(destination="topic:news", shared=True),
                "client-id-missing": wish(destination="topic:news", subscription="s", durable=True),
                "subscription-invalid": wish(
                    destination="topic:news", subscription="s", shared=True, no_local=True
                ),
                "browse-invalid": wish(destination="topic:news", browse=True),
            }
            for code, message in wishes.items():
                assert await refused(peer, message) == code
            end = frames.EndSubscription(request=5, number=0, subscription="never was")
            assert await refused(peer, end) == "subscription-unknown"

    play(story)


@pytest.mark.req("J8")
def test_a_time_before_1970_in_a_column_ends_the_connection(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            for expiries, delivery_times in (([1, -5], None), (None, [-(2**63), 0])):
                peer = await here.guest()
                raw = block.pack(
                    [b"a", b"b"],
                    lane=await peer.open_lane(),
                    first=1,
                    expiries=expiries,
                    delivery_times=delivery_times,
                )
                peer.write(frames.publish_frame(0, raw))
                assert (await peer.dismissed()).code == "block-malformed"

    play(story)


ODD_HEADS = {
    "extension": b"\x81\xa1p\x81\xa5color\xc7\x01\x05x",
    "nested": msgspec.msgpack.encode({"p": {"color": {"a": [1, {"b": 2}]}}}),
    "bytes": msgspec.msgpack.encode({"p": {"color": b"red"}}),
    "huge number": msgspec.msgpack.encode({"p": {"color": 2**64 - 1}}),
    "not a number": msgspec.msgpack.encode({"p": {"color": float("nan")}}),
    "no map": msgspec.msgpack.encode([1, 2, 3]),
    "properties of numbers": msgspec.msgpack.encode({"p": {1: 2}}),
    "properties are text": msgspec.msgpack.encode({"p": "color = red"}),
    "no text": b"\x81\xa1p\x81\xa5color\xa3\xff\xfe\xfd",
    "cut short": b"\x81\xa1p\x81\xa5col",
    "never used": b"\xc1" * 10,
    "deep": b"\x81\xa1p\x81\xa5color" + b"\x91" * 20_000 + b"\xc0",
    "lies about its length": b"\x81\xa1p\xdf\xff\xff\xff\xff",
}


@pytest.mark.req("J7", "J10", "M11")
@pytest.mark.parametrize("destination", ["queue:orders", "topic:news"])
def test_properties_of_unknown_kinds_match_nothing_and_stop_nobody(tmp_path: Path, destination: str) -> None:
    """They wait, are handed to whoever takes everything, and die like others."""

    async def story() -> None:
        async with house(tmp_path, policies=[{"destinations": "*", "redelivery_limit": 1}]) as here:
            chooser, taker = await here.guest(), await here.guest()
            chooser.tell(wish(destination=destination, selector="color = 'red'", credit=100, consumer=1))
            await chooser.hear(Completed)
            if destination.startswith("topic"):
                await taker.subscribe(destination)
            lane = await taker.open_lane(destination)
            heads = [*ODD_HEADS.values(), encode_head(Head(properties={"color": "red"}))]
            for sequence, head in enumerate(heads, start=1):
                lone = block.pack_lone(b"%d" % sequence, lane=lane, sequence=sequence, head=head)
                taker.write(frames.publish_frame(0, lone))
            await taker.until(lambda: taker.confirmed.get(1, 0) == len(heads))
            await chooser.delivered(1)
            assert [contents.bodies for *_, contents in chooser.deliveries] == [[b"%d" % len(heads)]]
            if destination.startswith("queue"):
                await taker.subscribe(destination)
            everything = len(heads) - destination.startswith("queue")
            await taker.until(lambda: _messages(taker) == everything)
            taker.settle((1, everything), outcome=RETURNED)
            await _hears_of_the_dead(await here.guest(), everything)

    play(story)


async def _hears_of_the_dead(peer: Peer, count: int) -> None:
    await peer.subscribe("queue:_DMQ", consumer=3)
    await peer.until(lambda: _messages(peer) == count)


def _messages(peer: Peer) -> int:
    return sum(contents.count for *_, contents in peer.deliveries)


@pytest.mark.req("J10", "M11")
def test_a_message_of_the_largest_size_is_buried_like_any_other(tmp_path: Path) -> None:
    async def story() -> None:
        policies = [{"destinations": "queue:orders", "redelivery_limit": 1}]
        async with house(tmp_path, policies=policies, journal__segment_bytes=32 << 20) as here:
            peer = await here.guest()
            lane = await peer.open_lane()
            await peer.subscribe()
            body = b"x" * (MAX_BLOCK_BYTES - block.HEADER_BYTES)
            peer.write(frames.publish_frame(0, block.pack_lone(body, lane=lane, sequence=1)))
            await peer.delivered(1)
            peer.settle((1, 1), outcome=RETURNED)
            undertaker = await here.guest()
            await undertaker.subscribe("queue:_DMQ", consumer=3)
            await undertaker.delivered(1)
            assert undertaker.deliveries[0][3].bodies == [body]

    play(story)


# ---- transactions


def stage(peer: Peer, lane: LaneId, first: int, *bodies: bytes) -> None:
    raw = block.pack(bodies, lane=lane, first=first)
    peer.write(pack_header(len(raw), PUBLISH, STAGED, 0) + raw)


@pytest.mark.req("J5")
@pytest.mark.parametrize(
    "ranges",
    [
        [(1, [(1, 2)]), (1, [(2, 3)])],
        [(1, [(1, 2)]), (1, [(1, 2)])],
        [(1, [(2, 3), (1, 1)])],
        [(1, [(3, 1)])],
        [(1, [(-5, 2)])],
        [(1, [(1, 2**62)])],
        [(1, [(4, 4)])],
        [(2, [(1, 1)])],
    ],
    ids=[
        "overlapping",
        "twice",
        "backwards",
        "reversed",
        "negative",
        "endless",
        "never given",
        "no consumer",
    ],
)
def test_a_commit_of_what_one_does_not_have_undoes_the_transaction_and_loses_nothing(
    tmp_path: Path, ranges: list[tuple[int, list[tuple[int, int]]]]
) -> None:
    async def story() -> None:
        async with house(tmp_path, sessions__reconnect_seconds=0) as here:
            peer = await here.guest()
            lane = await peer.open_lane()
            await peer.published(lane, 1, b"a", b"b", b"c")
            await peer.subscribe()
            await peer.until(lambda: _messages(peer) == 3)
            peer.tell(OpenLane(request=2, number=0, lane=2, destination="queue:bills"))
            await peer.hear(LaneOpened)
            stage(peer, LaneId(lane[:14] + b"\x00\x02"), 1, b"bill")
            code = await refused(peer, Commit(7, 0, 1, 1, ranges))
            assert code in ("transaction-rolled-back", "settlement-unknown")
            assert await refused(peer, Commit(8, 0, 1, 1, ranges)) == "transaction-rolled-back"
            peer.close()
            other = await here.guest()
            await other.subscribe()
            await other.subscribe("queue:bills", consumer=2)
            await other.until(lambda: _messages(other) == 3)
            assert [body for *_, contents in other.deliveries for body in contents.bodies] == [
                b"a",
                b"b",
                b"c",
            ]

    play(story)


@pytest.mark.req("J5")
def test_numbers_of_transactions_that_cannot_be_stop_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            peer = await here.guest()
            lane = await peer.open_lane()
            stage(peer, lane, 1, b"a")
            for number, messages in ((2**63, 5), (2, -1), (3, 2**62)):
                assert await refused(peer, Commit(7, 0, number, messages))
            peer.tell(Rollback(8, 0, 4))
            await peer.hear(Completed)
            stage(peer, lane, 2, b"b")
            peer.tell(Commit(9, 0, 5, 1))
            await peer.hear(Completed)
            await peer.subscribe()
            await peer.delivered(1)
            assert peer.deliveries[0][3].bodies == [b"b"]

    play(story)


@pytest.mark.req("J9")
def test_a_browser_settles_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            peer = await here.guest()
            lane = await peer.open_lane()
            await peer.published(lane, 1, b"a", b"b")
            peer.tell(wish(browse=True, consumer=1, credit=10))
            await peer.hear(Completed)
            await peer.hear(BrowseEnded)
            peer.settle((1, 2))
            peer.settle((1, 2), outcome=RETURNED)
            assert await refused(peer, Commit(7, 0, 1, 0, [(1, [(1, 2)])])) == "transaction-rolled-back"
            await peer.subscribe(consumer=2)
            await peer.until(lambda: _messages(peer) == 4)

    play(story)
