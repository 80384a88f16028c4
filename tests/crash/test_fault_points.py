"""A process ends at each step of a transaction, of a dead message's move and of an administrator's, and the next
one finds all of it or nothing (J5, J10, M11, U8).

Two ways to die: before or after any append, write or sync, with the page cache left as it is; and with the
log cut at the beginning of any record or frame, as a torn write or a lost machine leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from heliograph.bus.commands import (
    Answered,
    Asked,
    ConsumerDetached,
    Published,
    RollbackAsked,
    SessionLost,
    Settled,
)
from heliograph.model.policy import Policy
from tests.crash.dying_node import (
    BILLS,
    NEWS,
    ORDERS,
    Found,
    Guillotine,
    Node,
    Tell,
    block,
    commit,
    committed,
    cut,
    find,
    left_by,
    play,
    send,
)

pytestmark = pytest.mark.slow
Check = Callable[[Found, Node, int], None]


class Story(msgspec.Struct):
    """What happens, from where on a process may end, and what must hold whenever it does."""

    name: str
    tell: Tell
    check: Check
    segment_bytes: int = 1 << 20

    def __repr__(self) -> str:
        return self.name


def bodies(found: Found, name: str) -> list[bytes]:
    return [body for body, _ in found.get(name, [])]


def is_marked(found: Found, node: Node, upto: int) -> None:
    """What had left for a consumer when the log was this long comes back marked."""
    for name in ("orders", "news"):
        for body, deliveries in found.get(name, []):
            if body in node.handed_out(upto):
                assert deliveries > 0, "handed out before, and looks new"


# ---- transactions


async def work_through(node: Node, guillotine: Guillotine) -> None:
    """Two orders are received; two bills and a piece of news are sent; one commit covers all."""
    session = await node.open_session()
    orders = await node.lane(session, 1, ORDERS)
    bills = await node.lane(session, 2, BILLS)
    news = await node.lane(session, 3, NEWS)
    desk = await node.attach(session, NEWS, subscription="desk", client="ann", durable=True)
    await node.tell(ConsumerDetached(NEWS, desk))
    await node.tell(send(orders, ORDERS, 1, b"order 1", b"order 2"))
    consumer = await node.attach(session, ORDERS)
    guillotine.arm(node)
    await node.tell(send(bills, BILLS, 1, b"bill 1", staged=True))
    await node.tell(
        send(news, NEWS, 1, b"headline", staged=True), send(bills, BILLS, 2, b"bill 2", staged=True)
    )
    await node.tell(commit(session, 1, 3, (ORDERS, consumer, 2)))
    await node.tell(commit(session, 1, 3, (ORDERS, consumer, 2)))


def all_or_nothing(found: Found, node: Node, upto: int) -> None:
    state = (bodies(found, "orders"), bodies(found, "bills"), bodies(found, "news"))
    before: tuple[list[bytes], ...] = ([b"order 1", b"order 2"], [], [])
    after: tuple[list[bytes], ...] = ([], [b"bill 1", b"bill 2"], [b"headline"])
    assert state in (before, after)
    if node.was_told(committed(1), upto):
        assert state == after, "a commit that was answered is undone"
    is_marked(found, node, upto)


async def in_one_tick(node: Node, guillotine: Guillotine) -> None:
    """The whole transaction arrives at once, behind a message that has nothing to do with it."""
    session, other = await node.open_session(), await node.open_session()
    bills, orders = await node.lane(session, 1, BILLS), await node.lane(other, 1, ORDERS)
    guillotine.arm(node)
    await node.tell(
        send(bills, BILLS, 1, b"bill 1", staged=True),
        send(orders, ORDERS, 1, b"order 1", b"order 2"),
        send(bills, BILLS, 2, b"bill 2", staged=True),
        commit(session, 1, 2),
    )


def bills_together(found: Found, node: Node, upto: int) -> None:
    assert bodies(found, "bills") in ([], [b"bill 1", b"bill 2"])
    assert bodies(found, "orders") in ([], [b"order 1", b"order 2"])
    if node.was_told(committed(1), upto):
        assert bodies(found, "bills")


async def change_of_mind(node: Node, guillotine: Guillotine) -> None:
    """What was staged is rolled back; what was received returns."""
    session = await node.open_session()
    bills, orders = await node.lane(session, 1, BILLS), await node.lane(session, 2, ORDERS)
    await node.tell(send(orders, ORDERS, 1, b"order 1", b"order 2"))
    consumer = await node.attach(session, ORDERS)
    guillotine.arm(node)
    await node.tell(send(bills, BILLS, 1, b"bill 1", staged=True))
    await node.tell(RollbackAsked(77, session, 1, [(ORDERS, consumer, 2)]))
    await node.tell(send(bills, BILLS, 2, b"bill 2", staged=True))
    await node.tell(ConsumerDetached(ORDERS, consumer), SessionLost(session))


def nothing_at_all(found: Found, node: Node, upto: int) -> None:
    assert bodies(found, "bills") == []
    assert bodies(found, "orders") == [b"order 1", b"order 2"]
    is_marked(found, node, upto)


async def two_at_once(node: Node, guillotine: Guillotine) -> None:
    """The second transaction is decided before the first is stored."""
    session = await node.open_session()
    bills = await node.lane(session, 1, BILLS)
    guillotine.arm(node)
    await node.tell(
        send(bills, BILLS, 1, b"first", staged=True),
        commit(session, 1, 1),
        send(bills, BILLS, 2, b"second", staged=True),
        commit(session, 2, 1),
        commit(session, 2, 1),
        commit(session, 1, 1),
    )
    await node.tell(commit(session, 2, 1))


def one_after_the_other(found: Found, node: Node, upto: int) -> None:
    assert bodies(found, "bills") in ([], [b"first"], [b"first", b"second"])
    if node.was_told(committed(2), upto):
        assert bodies(found, "bills") == [b"first", b"second"]


async def over_a_snapshot(node: Node, guillotine: Guillotine) -> None:
    """A snapshot is taken while the transaction is open."""
    session = await node.open_session()
    bills, orders = await node.lane(session, 1, BILLS), await node.lane(session, 2, ORDERS)
    await node.tell(send(orders, ORDERS, 1, b"order 1", b"order 2"))
    consumer = await node.attach(session, ORDERS)
    await node.tell(send(bills, BILLS, 1, b"bill 1", staged=True))
    await node.snapshot()
    guillotine.arm(node)
    await node.tell(send(bills, BILLS, 2, b"bill 2", staged=True))
    await node.tell(commit(session, 1, 2, (ORDERS, consumer, 2)))


def moved_from_orders_to_bills(found: Found, node: Node, upto: int) -> None:
    state = (bodies(found, "orders"), bodies(found, "bills"))
    assert state in (([b"order 1", b"order 2"], []), ([], [b"bill 1", b"bill 2"]))
    if node.was_told(committed(1), upto):
        assert state == ([], [b"bill 1", b"bill 2"])
    is_marked(found, node, upto)


# ---- the dead


async def one_chance(node: Node, guillotine: Guillotine) -> None:
    """Three messages are returned, and one time is too often."""
    session = await node.open_session()
    orders = await node.lane(session, 1, ORDERS)
    await node.set_policy(ORDERS, Policy(redelivery_limit=1))
    await node.tell(send(orders, ORDERS, 1, b"a", b"b", b"c"))
    consumer = await node.attach(session, ORDERS)
    guillotine.arm(node)
    await node.tell(Settled(ORDERS, consumer, True, [(2, 2)], error="no such article"))
    await node.tell(Settled(ORDERS, consumer, True, [(1, 1), (3, 3)], request=9))


async def one_chance_for_each_reader(node: Node, guillotine: Guillotine) -> None:
    """The same from a durable subscription."""
    session = await node.open_session()
    news = await node.lane(session, 1, NEWS)
    consumer = await node.attach(session, NEWS, subscription="desk", client="ann", durable=True)
    await node.set_policy(NEWS, Policy(redelivery_limit=1))
    await node.tell(send(news, NEWS, 1, b"a", b"b", b"c"))
    guillotine.arm(node)
    await node.tell(Settled(NEWS, consumer, True, [(1, 2)], error="no such reader"))
    await node.tell(Settled(NEWS, consumer, True, [(3, 3)]))


async def too_late(node: Node, guillotine: Guillotine) -> None:
    """Messages that expired go to the dead when somebody comes for them."""
    session = await node.open_session()
    orders = await node.lane(session, 1, ORDERS)
    await node.set_policy(ORDERS, Policy(expired_to_dead=True))
    await node.publish(ORDERS, block(orders, 1, b"a", b"b", b"c", expiry=1))
    guillotine.arm(node)
    await node.attach(session, ORDERS)


def in_one_place(found: Found, node: Node, upto: int) -> None:
    """Each of the three is here or among the dead, and nowhere twice."""
    alive = bodies(found, "orders") + bodies(found, "news")
    dead = bodies(found, "dead")
    assert sorted(alive + dead) == [b"a", b"b", b"c"]
    if node.was_told(Answered(9, {}), upto):
        assert sorted(dead) == [b"a", b"b", b"c"]
    is_marked(found, node, upto)


# ---- what an administrator moves


async def another_queue(node: Node, guillotine: Guillotine) -> None:
    """Three messages are moved, two by one selector and one without."""
    session = await node.open_session()
    orders = await node.lane(session, 1, ORDERS)
    await node.lane(session, 2, BILLS)
    urgent = block(orders, 2, b"b", b"c", priority=9)
    await node.tell(send(orders, ORDERS, 1, b"a"), Published(ORDERS, urgent))
    await node.tell(Asked(7, "destination.pause", {"destination": ORDERS, "consumption": True}))
    guillotine.arm(node)
    move = {"destination": ORDERS, "target": BILLS}
    await node.tell(Asked(8, "message.move", {**move, "filter": "JMSPriority = 9"}))
    await node.tell(Asked(9, "message.move", move))


def in_one_queue(found: Found, node: Node, upto: int) -> None:
    """Each is in one of the queues, and those that moved together are in the same."""
    left, moved = bodies(found, "orders"), bodies(found, "bills")
    assert (sorted(left), sorted(moved)) in (
        ([b"a", b"b", b"c"], []),
        ([b"a"], [b"b", b"c"]),
        ([], [b"a", b"b", b"c"]),
    )
    if node.was_told(Answered(9, {"destination": ORDERS, "target": BILLS, "messages": 1}), upto):
        assert not left


STORIES = [
    Story("consumed and sent", work_through, all_or_nothing),
    Story("in one tick", in_one_tick, bills_together),
    Story("rolled back, then lost", change_of_mind, nothing_at_all),
    Story("two at once", two_at_once, one_after_the_other),
    Story("over a snapshot", over_a_snapshot, moved_from_orders_to_bills),
    Story("too often", one_chance, in_one_place),
    Story("too often, of a subscription", one_chance_for_each_reader, in_one_place),
    Story("expired", too_late, in_one_place),
    Story("moved by an administrator", another_queue, in_one_queue),
    Story("moved by an administrator, across segments", another_queue, in_one_queue, segment_bytes=1536),
    # So small a segment that the move has to begin another one.
    Story("too often, across segments", one_chance, in_one_place, segment_bytes=1024),
    Story("consumed and sent, across segments", work_through, all_or_nothing, segment_bytes=1024),
]


@pytest.fixture
def guillotine(monkeypatch: pytest.MonkeyPatch) -> Guillotine:
    return Guillotine(monkeypatch)


@pytest.mark.req("J5", "J10", "M11", "U8")
@pytest.mark.parametrize("story", STORIES, ids=repr)
def test_a_process_that_ends_at_any_step_leaves_all_or_nothing(
    story: Story, guillotine: Guillotine, tmp_path: Path
) -> None:
    steps = _steps_of(story, guillotine, tmp_path / "whole")
    assert {"append", "write"} <= set(steps)
    assert "sync" in steps or story.segment_bytes < 1 << 20, "where segments end, a thread syncs"
    segments = list(left_by(tmp_path / "whole").glob("journal/*.segment"))
    assert (len(segments) > 1) == (story.segment_bytes < 1 << 20), "it is about segments, or it is not"
    for number, kind in enumerate(steps):
        for after in (False, True):
            place = tmp_path / f"{number} {kind} {after}"
            guillotine.plan(number, after=after)
            node = play(place, story.tell, guillotine, segment_bytes=story.segment_bytes)
            found = find(left_by(place))
            story.check(found, node, node.log_end)


@pytest.mark.req("J5", "J10", "M11", "U8")
@pytest.mark.parametrize("machine", ["same machine", "other machine"])
@pytest.mark.parametrize("story", STORIES, ids=repr)
def test_a_log_that_ends_at_any_record_or_frame_tells_all_or_nothing(
    story: Story, machine: str, guillotine: Guillotine, tmp_path: Path
) -> None:
    guillotine.plan(-1)
    node = play(tmp_path / "whole", story.tell, guillotine, segment_bytes=story.segment_bytes)
    boot = b"boot" if machine == "same machine" else b"another boot"
    for number, (position, upto) in enumerate(_cuts(guillotine)):
        place = cut(left_by(tmp_path / "whole"), position, tmp_path / f"cut {number}")
        found = find(place, boot=boot)
        story.check(found, node, upto)


def _steps_of(story: Story, guillotine: Guillotine, place: Path) -> list[str]:
    guillotine.plan(-1)
    play(place, story.tell, guillotine, segment_bytes=story.segment_bytes)
    return list(guillotine.steps)


def _cuts(guillotine: Guillotine) -> Iterator[tuple[int, int]]:
    """Where the log is cut, and where the last whole frame before that ends."""
    ends = sorted({guillotine.begin, *guillotine.frames})
    for position in sorted({*ends, *guillotine.records}):
        yield position, max(end for end in ends if end <= position)
