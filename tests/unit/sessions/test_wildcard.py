"""One consumer of many topics: tags, credit and topics that come and go (M12)."""

from __future__ import annotations

import random
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.bus.commands import CreditGranted, Dispatched, Settled
from heliograph.model.block import Span, pack, parse
from heliograph.model.destination import Address
from heliograph.model.errors import ClientFault
from heliograph.model.ids import ConsumerId, IdIssuer, lane_of
from heliograph.model.patterns import Pattern
from heliograph.sessions.commands import AnySessionEffect, Deliver, Multicast, Settle
from heliograph.sessions.wildcard import Tags, Wildcard

pytestmark = pytest.mark.req("M12")

ISSUER = IdIssuer(site=1, node=1, started_ms=1)
LANE = lane_of(ISSUER.session(), 1)
A, B = ISSUER.consumer(), ISSUER.consumer()


def test_tags_are_numbered_across_attachments_and_found_again() -> None:
    tags = Tags()
    assert tags.add(A, 1, 3) == 1
    assert tags.add(B, 1, 2) == 4
    assert tags.add(A, 4, 1) == 6
    assert tags.take(2, 5) == [(A, 2, 3), (B, 1, 2)]
    with pytest.raises(ClientFault):
        tags.take(2, 2)
    with pytest.raises(ClientFault):
        tags.take(1, 6)  # there is a hole between
    assert tags.take(6, 6) == [(A, 4, 4)]
    assert tags.take(1, 1) == [(A, 1, 1)]
    for first, last in ((1, 1), (7, 7), (0, 0), (3, 2)):
        with pytest.raises(ClientFault):
            tags.take(first, last)
    assert tags.add(B, 3, 1) == 7
    assert tags.clear() == 1


@given(
    st.lists(st.tuples(st.sampled_from([A, B]), st.integers(1, 5)), min_size=1, max_size=20),
    st.randoms(use_true_random=False),
)
def test_every_tag_is_found_once_however_it_is_settled(
    runs: list[tuple[ConsumerId, int]], chance: random.Random
) -> None:
    tags = Tags()
    following = {A: 1, B: 1}
    model: dict[int, tuple[ConsumerId, int]] = {}
    for attachment, length in runs:
        first = tags.add(attachment, following[attachment], length)
        for offset in range(length):
            model[first + offset] = (attachment, following[attachment] + offset)
        following[attachment] += length
    left = sorted(model)
    while left:
        start = chance.randrange(len(left))
        stop = start
        while stop + 1 < len(left) and left[stop + 1] == left[stop] + 1 and chance.random() < 0.7:
            stop += 1
        taken = [
            (attachment, tag)
            for attachment, low, high in tags.take(left[start], left[stop])
            for tag in range(low, high + 1)
        ]
        assert taken == [model[tag] for tag in left[start : stop + 1]]
        del left[start : stop + 1]


class Story:
    """A wildcard and topics that send whatever they have credit for."""

    def __init__(self, credit: int, topics: int) -> None:
        self.wildcard = Wildcard(1, Pattern.glob("*"), credit=credit, selector="", no_local=False)
        self.credit: dict[ConsumerId, int] = {}
        self.waiting: dict[ConsumerId, int] = {}
        self.next_tag: dict[ConsumerId, int] = {}
        self.delivered: dict[str, list[int]] = {}
        self.outstanding: list[int] = []
        self.settled: dict[ConsumerId, int] = {}
        self.address: dict[ConsumerId, Address] = {}
        self._next_client_tag = 1
        for number in range(topics):
            identity = ISSUER.consumer()
            self.address[identity] = Address(f"topic:{number}")
            self.wildcard.attach(identity, self.address[identity])
            self.credit[identity] = self.wildcard.own_credit
            self.waiting[identity] = self.settled[identity] = 0
            self.next_tag[identity] = 1

    def pump(self) -> None:
        moved = True
        while moved:
            moved = False
            for identity in self.credit:
                amount = min(self.credit[identity], self.waiting[identity], 7)
                if amount:
                    moved = True
                    self.waiting[identity] -= amount
                    self.credit[identity] -= amount
                    tag = self.next_tag[identity]
                    self.next_tag[identity] += amount
                    block = parse(pack([b"x"] * amount, lane=LANE, first=tag))
                    self.carry_out(
                        self.wildcard.dispatched(Dispatched(identity, tag, Span(block, 0, amount), ""))
                    )

    def carry_out(self, effects: list[AnySessionEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Deliver):
                amount = effect.span.stop - effect.span.start
                assert effect.tag == self._next_client_tag
                self._next_client_tag += amount
                first = effect.span.block.first + effect.span.start
                self.delivered.setdefault(effect.destination, []).extend(range(first, first + amount))
                self.outstanding += range(effect.tag, effect.tag + amount)
            elif isinstance(effect, Multicast) and isinstance(effect.command, CreditGranted):
                self.credit[effect.command.consumer] += effect.command.count
            elif isinstance(effect, Multicast) and isinstance(effect.command, Settled):
                for low, high in effect.command.ranges:
                    self.settled[effect.command.consumer] += high - low + 1

    def settle(self, tags: list[int]) -> None:
        command = Settle(1, False, [(tag, tag) for tag in tags], True, False)
        effects, fault = self.wildcard.settle(command)
        assert fault is None
        self.outstanding = [tag for tag in self.outstanding if tag not in tags]
        self.carry_out(effects)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 60),
    st.lists(st.integers(0, 120), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_everything_arrives_once_in_order_within_the_credit(
    credit: int, loads: list[int], chance: random.Random
) -> None:
    story = Story(credit, len(loads))
    for identity, load in zip(story.waiting, loads, strict=True):
        story.waiting[identity] = load
    story.pump()
    for _ in count():
        assert len(story.outstanding) <= credit
        if not story.outstanding:
            break
        some = chance.sample(story.outstanding, chance.randint(1, len(story.outstanding)))
        story.settle(sorted(some))
        story.pump()
    for (identity, address), load in zip(story.address.items(), loads, strict=True):
        assert story.delivered.get(address, []) == list(range(1, load + 1))
        assert story.settled[identity] == load
    # All credit is back: what each topic has of its own, and what they share.
    assert list(story.credit.values()) == [story.wildcard.own_credit] * len(loads)


def test_a_busy_topic_uses_the_credit_of_idle_ones() -> None:
    story = Story(100, 10)
    busy = next(iter(story.waiting))
    story.waiting[busy] = 1000
    story.pump()
    assert len(story.outstanding) == 100


def test_returned_messages_come_again_under_other_tags() -> None:
    story = Story(10, 2)
    for identity in story.waiting:
        story.waiting[identity] = 20
    story.pump()
    outstanding = len(story.outstanding)
    assert outstanding == 10
    returned = story.wildcard.returned(3)
    assert [(address, seen) for address, _, seen in returned] == [("topic:0", 2), ("topic:1", 1)]
    fault = story.wildcard.settle(Settle(1, False, [(1, 1)], True, False))[1]
    assert fault is not None
    assert fault.code == "settlement-unknown"


def test_a_topic_that_is_gone_takes_its_messages_and_leaves_its_credit() -> None:
    story = Story(16, 2)
    gone, stays = story.waiting
    story.waiting[gone] = 100
    story.pump()
    assert len(story.outstanding) == 16
    story.carry_out(story.wildcard.detach(gone))
    del story.credit[gone], story.waiting[gone]
    assert story.wildcard.wants(Address("topic:0"), Address("topic:0"))
    story.settle(list(story.outstanding))  # settles nothing anywhere, and is no fault
    assert story.settled[gone] == 0
    story.waiting[stays] = 100
    story.pump()
    assert len(story.outstanding) == 16
