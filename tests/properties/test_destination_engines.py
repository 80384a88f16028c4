"""Queues and topics against the obvious model, through paging, full disks, compaction and crashes."""

from __future__ import annotations

import sys

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from heliograph.destinations import message_list, pages, waiting
from heliograph.model.block import pack, pack_lone
from heliograph.model.destination import Address
from heliograph.model.ids import lane_of
from tests.properties.destination_model import Lane, Taker
from tests.properties.destination_world import ADDRESSES, QUEUE, World

PRIORITIES = st.sampled_from([4, 4, 4, 9, 0])
MAX_CONSUMERS = 4


CREDIT = st.sampled_from([100, 100, 3, 1, 0])
Shape = tuple[bool, list[int] | int, int]


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """What a block is like: persistent or not, one priority or one for each message, and how many."""
    count = draw(st.sampled_from([1, 1, 1, 2, 3, 5]))
    persistent = draw(st.booleans())
    if count > 1 and draw(st.booleans()):
        return persistent, draw(st.lists(PRIORITIES, min_size=count, max_size=count)), count
    return persistent, draw(PRIORITIES), count


BLOCKS = st.lists(shapes(), min_size=1, max_size=5)


def packed(lane: Lane, first: int, shape: Shape) -> bytes:
    persistent, priorities, count = shape
    bodies = [b"%d of %s" % (first + index, lane.identity.hex().encode()) for index in range(count)]
    if isinstance(priorities, list):
        return pack(
            bodies,
            lane=lane.identity,
            first=first,
            persistent=persistent,
            priorities=priorities,
            timestamps=range(first, first + count),
        )
    if count == 1:
        return pack_lone(
            bodies[0],
            lane=lane.identity,
            sequence=first,
            timestamp=first,
            persistent=persistent,
            priority=priorities,
        )
    return pack(
        bodies,
        lane=lane.identity,
        first=first,
        persistent=persistent,
        priority=priorities,
        timestamps=range(first, first + count),
    )


class Destinations(RuleBasedStateMachine):
    """Two clients and a few consumers at a queue and a topic, on a machine where everything goes wrong."""

    world: World

    @initialize(resident_bytes=st.sampled_from([0, 1500, 4000, 10**9]), credit=CREDIT)
    def start(self, resident_bytes: int, credit: int) -> None:
        self.world = World(resident_bytes)
        self.world.open_session("ann")
        self.world.open_session("bob")
        for address in ADDRESSES:
            self.world.attach(address, credit)

    def _lane(self, data: st.DataObject) -> Lane:
        """A lane of an open session. A client that was cut off resumes before it goes on."""
        if not self.world.sessions:
            self.world.open_session("ann")
        session = data.draw(st.sampled_from(list(self.world.sessions)), label="session")
        lane = self.world.model.lanes[lane_of(session, data.draw(st.sampled_from([1, 1, 2]), label="lane"))]
        if lane.cut_off or (lane.refused and data.draw(st.booleans(), label="resumes")):
            self.world.resume_session(session)
        return lane

    def _taker(self, data: st.DataObject) -> Taker:
        takers = list(self.world.model.takers.values())
        if not takers:
            self.world.attach(QUEUE, 100)
            takers = list(self.world.model.takers.values())
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
        self.publish(data, [(persistent, 4, 1)] * count)
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
        first, shape = (lane.mark + 1 + gap, shape) if gap else (lane.mark, (True, 4, 2))
        assert self.world.send(lane, packed(lane, first, shape)) == "refused"
        self.world.end_of_tick()

    @rule(data=st.data(), blocks=BLOCKS, freed=st.booleans())
    def fill_the_disk(self, data: st.DataObject, blocks: list[Shape], freed: bool) -> None:
        self.world.journal.is_full = True
        self.publish(data, blocks)
        self.world.journal.is_full = not freed

    @rule(data=st.data(), ends=st.booleans())
    def resume(self, data: st.DataObject, ends: bool) -> None:
        if self.world.sessions:
            session = data.draw(st.sampled_from(list(self.world.sessions)), label="session")
            if ends:
                self.world.close_session(session)
                self.world.open_session("eve")
            else:
                self.world.resume_session(session)

    # ---- consumers

    @precondition(lambda self: len(self.world.model.takers) < MAX_CONSUMERS)
    @rule(address=st.sampled_from(ADDRESSES), credit=CREDIT)
    def attach(self, address: Address, credit: int) -> None:
        self.world.attach(address, credit)

    @rule(data=st.data(), count=st.sampled_from([1, 2, 7]))
    def grant(self, data: st.DataObject, count: int) -> None:
        self.world.grant(self._taker(data), count)

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
    def detach(self, data: st.DataObject) -> None:
        self.world.detach(self._taker(data))

    # ---- the node and its disk

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
            self.world.attach(address, 100)

    # ---- what holds

    @invariant()
    def agrees_with_the_model(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        if sys.exc_info()[0] is None and hasattr(self, "world"):
            self.world.drain()


@pytest.fixture(autouse=True)
def everything_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages, turns and windows are passed all the time."""
    monkeypatch.setattr(pages, "PAGE_MESSAGES", 4)
    for module in (pages, waiting):
        monkeypatch.setattr(module, "PAGE_BYTES", 700)
    monkeypatch.setattr(message_list, "DISPATCH_SPANS_PER_TURN", 3)
    monkeypatch.setattr(message_list, "CONSUMER_WINDOW_BYTES", 1000)


def machine_settings(max_examples: int, steps: int) -> settings:
    return settings(
        max_examples=max_examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@pytest.mark.req("J1", "J3", "J4", "J11")
def test_destinations_agree_with_the_model() -> None:
    run_machine(Destinations, settings=machine_settings(100, 50))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.req("J1", "J3", "J4", "J11")
def test_destinations_agree_with_the_model_all_night() -> None:
    run_machine(Destinations, settings=machine_settings(5000, 80))
