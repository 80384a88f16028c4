"""Queues and topics against the obvious model: consumers, subscriptions, selectors, time, dead messages and
transactions, through paging, full disks, compaction and crashes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from heliograph.destinations import competing, message_list, pages, selective, sequence, waiting
from heliograph.model.block import pack, pack_lone
from heliograph.model.destination import DEAD_MESSAGES, Address
from heliograph.model.message import Head, encode_head
from heliograph.model.policy import Policy
from tests.properties.destination_model import UNKNOWN
from tests.properties.destination_parties import EVERYTHING, SELECTORS, Lane, Subscriber, Taker
from tests.properties.destination_world import ADDRESSES, QUEUE, TOPIC, Client, Ranges, World
from tests.properties.surroundings import HERE, SECOND, put_managers_here

MAX_CONSUMERS = 5
MAX_TEMPORARIES = 2

PRIORITIES = st.sampled_from([4, 4, 4, 9, 0])
COLORS = st.sampled_from(["red", "red", "blue", ""])
CREDIT = st.sampled_from([100, 100, 3, 1, 0])
SECONDS = st.sampled_from([0.0, 1.0, 3.0, 10.0])
SELECTOR = st.sampled_from(SELECTORS)
POLICIES = st.sampled_from(
    [
        Policy(),
        Policy(redelivery_limit=1),
        Policy(redelivery_limit=2),
        Policy(redelivery_limit=3, redelivery_delay=1.0),
        Policy(redelivery_limit=0, redelivery_delay=2.0, redelivery_delay_limit=3.0),
        Policy(expired_to_dead=True),
        Policy(undelivered_to_dead_after=5.0, redelivery_limit=2),
        Policy(prefetch_limit=2),
    ]
)


class Shape(msgspec.Struct, frozen=True):
    """What a block is like: as many messages as there are priorities, and what they have in common or not."""

    persistent: bool
    priorities: tuple[int, ...]
    colors: tuple[str, ...] = ()
    lives: tuple[float, ...] = ()  # seconds until they expire, one for all or one for each
    delays: tuple[float, ...] = ()  # seconds until they may be handed out

    @property
    def count(self) -> int:
        return len(self.priorities)


PLAIN = Shape(True, (4,))


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    count = draw(st.sampled_from([1, 1, 1, 2, 3, 5]))
    persistent = draw(st.booleans())
    priorities = (
        draw(st.lists(PRIORITIES, min_size=count, max_size=count))
        if draw(st.booleans())
        else [draw(PRIORITIES)] * count
    )
    colors = draw(st.lists(COLORS, min_size=count, max_size=count)) if draw(st.booleans()) else []
    return Shape(persistent, tuple(priorities), tuple(colors), draw(times(count)), draw(times(count)))


@st.composite
def times(draw: st.DrawFn, count: int) -> tuple[float, ...]:
    kind = draw(st.sampled_from(["none", "none", "none", "one", "each"]))
    if kind == "none":
        return ()
    length = count if kind == "each" else 1
    return tuple(draw(st.lists(SECONDS, min_size=length, max_size=length)))


BLOCKS = st.lists(shapes(), min_size=1, max_size=5)


def packed(lane: Lane, first: int, shape: Shape) -> bytes:
    now = HERE.loop.now
    bodies = [b"%d of %s" % (first + index, lane.identity.hex().encode()) for index in range(shape.count)]
    heads = [encode_head(Head(properties={"color": color})) if color else b"" for color in shape.colors]
    expiries = [int(now + seconds * SECOND) if seconds else 0 for seconds in shape.lives]
    due = [int(now + seconds * SECOND) if seconds else 0 for seconds in shape.delays]
    if shape.count == 1:
        return pack_lone(
            bodies[0],
            lane=lane.identity,
            sequence=first,
            timestamp=now,
            persistent=shape.persistent,
            priority=shape.priorities[0],
            head=heads[0] if heads else b"",
            expiry=expiries[0] if expiries else 0,
            delivery_time=due[0] if due else 0,
        )
    alike = len(set(shape.priorities)) == 1
    return pack(
        bodies,
        lane=lane.identity,
        first=first,
        timestamp=now,
        persistent=shape.persistent,
        heads=heads or None,
        priority=shape.priorities[0],
        priorities=None if alike else shape.priorities,
        timestamps=[now + index for index in range(shape.count)],
        expiry=expiries[0] if len(expiries) == 1 else 0,
        expiries=expiries if len(expiries) > 1 else None,
        delivery_time=due[0] if len(due) == 1 else 0,
        delivery_times=due if len(due) > 1 else None,
    )


class Destinations(RuleBasedStateMachine):
    """A few clients and consumers at a queue and a topic, on a machine where everything goes wrong."""

    world: World

    @initialize(resident_bytes=st.sampled_from([0, 1500, 4000, 10**9]), credit=CREDIT)
    def start(self, resident_bytes: int, credit: int) -> None:
        self.world = World(resident_bytes)
        ann = self.world.open_session("ann", "one")
        self.world.open_session("bob", "two")
        for address in ADDRESSES:
            self.world.attach(ann, address, credit)

    def _client(self, data: st.DataObject) -> Client:
        """A client that was cut off resumes before it goes on."""
        if not self.world.clients:
            self.world.open_session("ann", "one")
        client = data.draw(st.sampled_from(list(self.world.clients.values())), label="client")
        if any(lane.cut_off for lane in self.world.lanes_of(client)):
            self.world.resume_session(client)
        return client

    def _lane(self, data: st.DataObject) -> Lane:
        client = self._client(data)
        lanes = self.world.lanes_of(client)
        lane = data.draw(st.sampled_from([lanes[0], *lanes]), label="lane")
        if lane.refused and data.draw(st.booleans(), label="resumes"):
            self.world.lose_session(client)
            lane = data.draw(st.sampled_from(self.world.lanes_of(client)), label="other lane")
        return lane

    def _taker(self, data: st.DataObject) -> Taker:
        takers = [taker for taker in self.world.model.takers.values() if not taker.browses]
        if not takers:
            takers = [self.world.attach(self._client(data), QUEUE, 100)]
        return data.draw(st.sampled_from(takers), label="consumer")

    # ---- producers

    @rule(data=st.data(), blocks=BLOCKS)
    def publish(self, data: st.DataObject, blocks: list[Shape]) -> None:
        lane = self._lane(data)
        for shape in blocks:
            self.world.publish(lane, packed(lane, lane.next_sequence, shape))

    @rule(data=st.data(), blocks=BLOCKS)
    def publish_and_store(self, data: st.DataObject, blocks: list[Shape]) -> None:
        self.publish(data, blocks)
        self.store_all()

    @rule(data=st.data(), count=st.integers(2, 8), persistent=st.booleans())
    def publish_one_by_one(self, data: st.DataObject, count: int, persistent: bool) -> None:
        self.publish(data, [Shape(persistent, (4,))] * count)
        self.store_all()

    @rule(data=st.data())
    def send_twice(self, data: st.DataObject) -> None:
        lane = self._lane(data)
        known = [sent for sent in lane.sent if sent.last <= lane.mark]
        if known:
            self.world.send(lane, data.draw(st.sampled_from(known), label="block").buffer)
            self.world.end_of_tick()

    @rule(data=st.data(), shape=shapes(), gap=st.integers(0, 3))
    def miscount(self, data: st.DataObject, shape: Shape, gap: int) -> None:
        """The client leaves a gap, or sends a block of which a part is known."""
        lane = self._lane(data)
        if lane.fresh or lane.refused or not lane.mark:
            return
        first, shape = (lane.mark + 1 + gap, shape) if gap else (lane.mark, Shape(True, (4, 4)))
        assert self.world.send(lane, packed(lane, first, shape)) == "refused"
        self.world.end_of_tick()

    @rule(data=st.data(), blocks=BLOCKS, freed=st.booleans())
    def fill_the_disk(self, data: st.DataObject, blocks: list[Shape], freed: bool) -> None:
        self.world.journal.is_full = True
        self.publish(data, blocks)
        self.world.journal.is_full = not freed

    @rule(data=st.data(), end=st.sampled_from(["closed", "lost", "resumed"]))
    def session_ends(self, data: st.DataObject, end: str) -> None:
        client = self._client(data)
        if end == "closed":
            self.world.close_session(client)
            self.world.open_session("eve", client.identity)
        elif end == "lost":
            self.world.lose_session(client)
        elif not client.staged:
            self.world.move_session(client)

    # ---- transactions

    @rule(data=st.data(), blocks=BLOCKS)
    def stage(self, data: st.DataObject, blocks: list[Shape]) -> None:
        lane = self._lane(data)
        for shape in blocks:
            self.world.publish(lane, packed(lane, lane.next_sequence, shape), staged=True)

    @rule(data=st.data(), miscount=st.sampled_from([0, 0, 0, 0, 1, -1]))
    def commit(self, data: st.DataObject, miscount: int) -> None:
        """What was staged, and some or all of what the session's consumers have."""
        client = self._client(data)
        consumed: list[tuple[Taker, Ranges]] = []
        for taker in self.world.model.takers.values():
            if taker.session == client.session and taker.held and not taker.browses:
                upto = data.draw(st.sampled_from([0, min(taker.held), max(taker.held)]), label="upto")
                consumed.append((taker, [(tag, tag) for tag in sorted(taker.held) if tag <= upto]))
        self.world.commit(client, consumed, miscount=miscount)

    @rule(data=st.data(), blocks=BLOCKS)
    def whole_transaction(self, data: st.DataObject, blocks: list[Shape]) -> None:
        client = self._client(data)
        for lane in self.world.lanes_of(client):
            for shape in blocks[:2]:
                self.world.publish(lane, packed(lane, lane.next_sequence, shape), staged=True)
        self.world.commit(client, [])

    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        client = self._client(data)
        takers = [each for each in self.world.model.takers.values() if each.session == client.session]
        self.world.roll_back(client, {taker.identity: self._seen(data, taker) for taker in takers})

    def _seen(self, data: st.DataObject, taker: Taker) -> int:
        """The last tag that reached the application, if that is known."""
        seen: int = data.draw(st.sampled_from([UNKNOWN, *range(taker.next_tag)]), label="seen")
        return seen

    @rule(data=st.data())
    def repeat_commit(self, data: st.DataObject) -> None:
        client = self._client(data)
        if not client.staged:
            self.world.repeat_commit(client)

    # ---- consumers

    @precondition(lambda self: len(self.world.model.takers) < MAX_CONSUMERS)
    @rule(
        data=st.data(),
        address=st.sampled_from([QUEUE, QUEUE, TOPIC, DEAD_MESSAGES]),
        credit=CREDIT,
        selector=st.one_of(st.just(EVERYTHING), SELECTOR),
    )
    def attach(self, data: st.DataObject, address: Address, credit: int, selector: str) -> None:
        self.world.attach(self._client(data), address, credit, selector=selector)

    @precondition(lambda self: len(self.world.model.takers) < MAX_CONSUMERS)
    @rule(
        data=st.data(),
        credit=CREDIT,
        selector=st.one_of(st.just(EVERYTHING), SELECTOR),
        name=st.sampled_from(["news", "alerts"]),
        kind=st.sampled_from([(True, False), (True, False), (True, True), (False, True)]),
    )
    def subscribe(
        self, data: st.DataObject, credit: int, selector: str, name: str, kind: tuple[bool, bool]
    ) -> None:
        client = self._client(data)
        durable, shared = kind
        identity = data.draw(st.sampled_from([client.identity, "one"]), label="client id")
        self.world.subscribe(client, Subscriber(TOPIC, identity, name, durable, shared, selector), credit)

    @rule(identity=st.sampled_from(["one", "two"]), name=st.sampled_from(["news", "alerts"]))
    def unsubscribe(self, identity: str, name: str) -> None:
        self.world.unsubscribe(identity, name)

    @precondition(lambda self: len(self.world.model.takers) < MAX_CONSUMERS)
    @rule(
        data=st.data(),
        address=st.sampled_from([QUEUE, QUEUE, DEAD_MESSAGES]),
        credit=CREDIT,
        selector=st.one_of(st.just(EVERYTHING), SELECTOR),
    )
    def browse(self, data: st.DataObject, address: Address, credit: int, selector: str) -> None:
        self.world.attach(self._client(data), address, credit, selector=selector, browse=True)

    @rule(data=st.data(), count=st.sampled_from([1, 2, 7]))
    def grant(self, data: st.DataObject, count: int) -> None:
        takers = list(self.world.model.takers.values())
        if takers:
            self.world.grant(data.draw(st.sampled_from(takers), label="consumer"), count)

    @rule(data=st.data(), replenish=st.booleans())
    def settle_all(self, data: st.DataObject, replenish: bool) -> None:
        taker = self._taker(data)
        if taker.held:
            tags = (min(taker.held), max(taker.held))
            ranges = (
                [tags] if tags[1] - tags[0] + 1 == len(taker.held) else [(tag, tag) for tag in taker.held]
            )
            self.world.settle(taker, ranges, returned=False, replenish=replenish, ask=True)

    @rule(data=st.data(), returned=st.booleans(), replenish=st.booleans(), ask=st.booleans())
    def settle(self, data: st.DataObject, returned: bool, replenish: bool, ask: bool) -> None:
        taker = self._taker(data)
        if not taker.held:
            return
        tags = st.integers(min(taker.held), max(taker.held))
        first = data.draw(tags, label="first")
        last = data.draw(st.integers(first, max(taker.held)), label="last")
        ranges = data.draw(
            st.sampled_from(
                [
                    [(first, last)],
                    [(min(taker.held), last)],
                    [(tag, tag) for tag in sorted(taker.held)],
                    [(tag, tag) for tag in sorted(taker.held, reverse=True)],
                    [(first, first), (last, max(taker.held) + 1)],
                    [],
                ]
            ),
            label="ranges",
        )
        self.world.settle(taker, ranges, returned=returned, replenish=replenish, ask=ask)

    @rule(data=st.data())
    def retire(self, data: st.DataObject) -> None:
        taker = self._taker(data)
        self.world.retire(taker, max(self._seen(data, taker), 0))

    @rule(data=st.data())
    def detach(self, data: st.DataObject) -> None:
        takers = list(self.world.model.takers.values())
        if takers:
            taker = data.draw(st.sampled_from(takers), label="consumer")
            self.world.detach(taker, self._seen(data, taker))

    # ---- destinations

    @rule(address=st.sampled_from(ADDRESSES), policy=POLICIES)
    def set_policy(self, address: Address, policy: Policy) -> None:
        self.world.set_policy(address, policy)

    @rule(
        address=st.sampled_from([QUEUE, TOPIC, DEAD_MESSAGES]), paused=st.sampled_from([True, False, False])
    )
    def pause(self, address: Address, paused: bool) -> None:
        self.world.set_paused(address, paused)

    @rule(data=st.data(), count=st.integers(0, 2))
    def use_a_temporary_queue(self, data: st.DataObject, count: int) -> None:
        client = self._client(data)
        if len(client.temporaries) < MAX_TEMPORARIES:
            lane = self.world.make_temporary(client)
            for _ in range(count):
                self.world.publish(lane, packed(lane, lane.next_sequence, PLAIN))
            self.world.attach(client, lane.address, 1)

    @rule(data=st.data())
    def delete_a_temporary_queue(self, data: st.DataObject) -> None:
        client = self._client(data)
        if client.temporaries:
            address = data.draw(st.sampled_from(client.temporaries), label="temporary")
            self.world.delete_temporary(client, address)

    # ---- the node, its disk and its clock

    @rule(data=st.data())
    def store_some(self, data: st.DataObject) -> None:
        unstored = self.world.journal.unstored()
        if unstored:
            self.world.store(data.draw(st.sampled_from(unstored), label="up to"))

    @rule()
    def store_all(self) -> None:
        self.world.store(self.world.journal.boundaries[-1])

    @precondition(lambda self: self.world.journal.is_full)
    @rule()
    def free_the_disk(self) -> None:
        self.world.journal.is_full = False

    @precondition(lambda self: self.world.journal.loads)
    @rule()
    def page_arrives(self) -> None:
        self.world.page_arrives()

    @precondition(lambda self: self.world.turns)
    @rule()
    def next_turns(self) -> None:
        self.world.next_turns()

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.5, 6.0]))
    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @precondition(lambda self: not self.world.journal.writes_snapshot)
    @rule()
    def begin_snapshot(self) -> None:
        self.world.take_snapshot()

    @precondition(lambda self: self.world.journal.writes_snapshot)
    @rule()
    def finish_snapshot(self) -> None:
        self.world.finish_snapshot()

    @precondition(lambda self: not self.world.journal.writes_snapshot)
    @rule()
    def snapshot(self) -> None:
        self.world.take_snapshot()
        self.world.finish_snapshot()

    @precondition(lambda self: self.world.journal.compactable() is not None)
    @rule()
    def begin_compaction(self) -> None:
        self.world.compact()

    @precondition(lambda self: self.world.journal.compactable() is not None)
    @rule()
    def compact(self) -> None:
        self.world.compact()
        while self.world.journal.loads:
            self.world.page_arrives()
        self.store_all()

    @rule(data=st.data(), end=st.sampled_from(["killed", "power lost", "stopped", "stopped for a reboot"]))
    def restart(self, data: st.DataObject, end: str) -> None:
        journal = self.world.journal
        if end == "power lost":
            kept = data.draw(st.sampled_from([journal.stored, *journal.unstored()]), label="kept")
            self.world.crash(kept, machine=True)
        else:
            clean = end != "killed"
            self.world.crash(journal.boundaries[-1], machine=end == "stopped for a reboot", clean=clean)
        for address in data.draw(st.lists(st.sampled_from(ADDRESSES), max_size=2), label="attached"):
            self.world.attach(self._client(data), address, 100)

    # ---- what holds

    @invariant()
    def agrees_with_the_model(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            if sys.exc_info()[0] is None:
                self.world.drain()
        finally:
            self.world.stop()


@pytest.fixture(autouse=True)
def everything_is_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Pages, turns and windows are passed all the time. Thousands of managers leave no thread behind."""
    others = set(threading.enumerate())
    put_managers_here(monkeypatch, tmp_path)
    for module in (pages, sequence):
        monkeypatch.setattr(module, "PAGE_MESSAGES", 4)
    for module in (pages, waiting, sequence):
        monkeypatch.setattr(module, "PAGE_BYTES", 700)
    monkeypatch.setattr(message_list, "DISPATCH_SPANS_PER_TURN", 3)
    monkeypatch.setattr(competing, "CONSUMER_WINDOW_BYTES", 1000)
    monkeypatch.setattr(selective, "SORT_MESSAGES_PER_TURN", 3)
    yield
    assert set(threading.enumerate()) <= others


def machine_settings(max_examples: int, steps: int) -> settings:
    return settings(
        max_examples=max_examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@pytest.mark.req("J1", "J3", "J4", "J5", "J6", "J7", "J8", "J9", "J10", "J11", "M11")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_destinations_agree_with_the_model() -> None:
    run_machine(Destinations, settings=machine_settings(400, 50))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.req("J1", "J3", "J4", "J5", "J6", "J7", "J8", "J9", "J10", "J11", "M11")
def test_destinations_agree_with_the_model_all_night() -> None:
    run_machine(Destinations, settings=machine_settings(5000, 80))
