"""Subscriptions that another part has made, and what they get of what was published here meanwhile (P4, PROTOCOL 6).

A subscription gets every message that is not known to be older than it. What came here since the cluster is in parts
is kept for those of other parts (`Topic.regate`); which of it was not known there says the account of the branch. The
record that makes the subscription names it, so there is no moment in which it is here without what it is to get, and
whoever is interrupted and takes in the branch again finds that it has it.

One that was made in both parts gets what is older than it here and not there, and what is older than it there and not
here: to its client it is one subscription, as old as the older of the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from heliograph.cluster.ranges import ALL_THAT_FOLLOWS, NONE, Ranges, common, union
from heliograph.destinations.branch import (
    Account,
    Branch,
    Layout,
    kept_for,
    key_of,
    lying_in,
)
from heliograph.destinations.catalogue import Catalogue
from heliograph.destinations.ledger import encode_record
from heliograph.destinations.subscriptions import FOR_OTHER_PARTS, SubscriptionRecord, Terms
from heliograph.destinations.topic import Topic
from heliograph.model.block import parse_trusted
from heliograph.model.destination import PATTERNS, Address
from heliograph.nodes.branches import layout_of, read
from heliograph.nodes.message_manager import MessageManager

# Bodies that are looked at in one go, for a selector.
_BATCH: Final = 256


class SubscriptionUnion:
    """Takes in the subscriptions of one branch."""

    def __init__(
        self,
        manager: MessageManager,
        branch: Branch,
        write: Callable[[bytes], None],
        topic_at: Callable[[str], Topic | None],
    ) -> None:
        """`write`: the record of a subscription. `topic_at`: the topic there, which is made if need be."""
        self._manager = manager
        self._catalogue = manager.catalogue
        self._branch = branch
        self._accounts = {account.address: account for account in branch.accounts}
        self._write = write
        self._topic_at = topic_at
        self._kept: dict[int, tuple[Ranges, Layout]] = {}

    async def take_in(self) -> None:
        """All of them, and those that patterns of one part make at topics of the other."""
        topics, patterns = dict.fromkeys(self._topics()), dict.fromkeys(_patterns(self._catalogue))
        for address, terms in self._branch.subscribed:
            topic = self._topic_at(address)
            if topic is not None:
                await self._take(topic, terms)
        for topic in (each for each in self._topics() if each.address != PATTERNS):
            for written, terms in self._catalogue.terms_by_patterns(topic):
                is_ours = key_of(written) in patterns
                if (is_ours and topic not in topics) or (not is_ours and self._is_ours_alone(topic)):
                    await self._take(topic, terms)

    def _is_ours_alone(self, topic: Topic) -> bool:
        """Whether a topic was made here while the cluster is in parts. In a topic that was there, a pattern has a
        subscription if its client may receive from that."""
        kept = topic.kept_list
        made = self._catalogue.ledger.made_of(topic.number, kept) if kept is not None else None
        is_there = any(address == topic.address for address, _ in self._branch.subscribed)
        return made is not None and made.begins == 1 and not is_there and topic.address not in self._accounts

    def _topics(self) -> list[Topic]:
        return [each for each in self._catalogue.by_number.values() if isinstance(each, Topic)]

    async def _take(self, topic: Topic, terms: Terms) -> None:
        number, begins = list_named(topic, terms), topic.intake.next_number
        if number is None:
            number, below = topic.next_list, ALL_THAT_FOLLOWS
        elif has_to_get_more(self._catalogue, topic, number):
            made = self._catalogue.ledger.made_of(topic.number, number)
            assert made is not None, "it is younger than the parts"
            terms, below = topic.subscriptions[number].terms, made.begins - 1
        else:
            return
        kept = await self._kept_for(topic, terms, below)
        record = SubscriptionRecord(
            topic.number, number, terms, begins=begins, kept=kept, branch=self._branch.id
        )
        self._write(encode_record(record))

    async def _kept_for(self, topic: Topic, terms: Terms, last: int) -> Ranges:
        kept, layout = await self._kept_in(topic)
        theirs = self._accounts.get(topic.address) or Account(topic.address)
        numbers = kept_for(theirs, key_of(terms), common(kept, ((1, last),)), layout)
        if not terms.selector and not terms.without:
            return numbers
        return await self._matching(topic, terms, numbers, layout)

    async def _kept_in(self, topic: Topic) -> tuple[Ranges, Layout]:
        if topic.number not in self._kept:
            assert self._manager.recovery is not None, "who merges does not act"
            state = self._manager.recovery.destination_state(topic.number)
            lying = lying_in(state, self._catalogue.ledger.base_of(topic.number))
            kept = lying.wanted_by.get(key_of(FOR_OTHER_PARTS), NONE)
            layout = await layout_of(self._manager, lying) if kept else Layout()
            self._kept[topic.number] = kept, layout
        return self._kept[topic.number]

    async def _matching(self, topic: Topic, terms: Terms, numbers: Ranges, layout: Layout) -> Ranges:
        found: list[tuple[int, int]] = []
        blocks = list(layout.of_numbers(numbers))
        for start in range(0, len(blocks), _BATCH):
            batch = blocks[start : start + _BATCH]
            buffers = await read(self._manager, [block.position for block, _, _ in batch])
            for (block, low, high), buffer in zip(batch, buffers, strict=True):
                wanted = topic.wanted(terms, parse_trusted(buffer))
                runs = tuple((block.number + first, block.number + stop - 1) for first, stop in wanted)
                found += common(runs, ((low, high),))
        return union(found)


def with_what_was_before(catalogue: Catalogue, branch: Branch) -> Branch:
    """The same branch, for whoever has its subscriptions by now. What one of them never had there, because it was
    made later, it is not done with if it was made here too, or in a third part."""
    accounts = [_with_what_was_before(catalogue, branch, account) for account in branch.accounts]
    return msgspec.structs.replace(branch, accounts=accounts)


def _with_what_was_before(catalogue: Catalogue, branch: Branch, theirs: Account) -> Account:
    topic = catalogue.by_address.get(Address(theirs.address))
    if not isinstance(topic, Topic):
        return theirs
    wanted_by = dict(theirs.wanted_by)
    for name, before in theirs.before.items():
        number = _list_by_key(topic, name)
        made = catalogue.ledger.made_of(topic.number, number) if number is not None else None
        if made is not None and made.branch != branch.id:
            wanted = wanted_by.get(name, {})
            more = {lane: union(wanted.get(lane, NONE), sequences) for lane, sequences in before.items()}
            wanted_by[name] = {**wanted, **more}
    return msgspec.structs.replace(theirs, wanted_by=wanted_by)


def has_to_get_more(catalogue: Catalogue, topic: Topic, list_number: int) -> bool:
    """Whether a subscription was made here while the cluster is in parts, and has nothing of what was kept before."""
    made = catalogue.ledger.made_of(topic.number, list_number)
    kept = catalogue.ledger.made_of(topic.number, topic.kept_list) if topic.kept_list is not None else None
    return made is not None and kept is not None and not made.has_kept and made.begins > kept.begins


def list_named(topic: Topic, terms: Terms) -> int | None:
    """The durable subscription of that client and name."""
    return _list_by_key(topic, key_of(terms))


def _list_by_key(topic: Topic, key: str) -> int | None:
    for number, subscription in topic.subscriptions.items():
        if subscription.terms.durable and key_of(subscription.terms) == key:
            return number
    return None


def _patterns(catalogue: Catalogue) -> list[str]:
    written = catalogue.by_address.get(PATTERNS)
    if not isinstance(written, Topic):
        return []
    return [key_of(each.terms) for each in written.subscriptions.values() if each.terms.durable]
