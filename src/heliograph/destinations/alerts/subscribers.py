"""Who gets alerts, and which topics lead to whom.

A subscriber is a user under a name, or one consumer of one session. Subscribers that ask for the same topic share it:
it is matched once.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from heliograph.destinations.alerts.live import Alert
from heliograph.destinations.alerts.pattern_index import PatternIndex
from heliograph.model.alert import AlertType
from heliograph.model.alert_topics import Prefix, Topic
from heliograph.model.ids import SessionId, text_of

Wish = tuple[int, Topic]
"""A type of alert, and a topic."""
Key = tuple[str, str, bytes, int]
"""User and name; of a subscriber without a name also its session and number there."""


class Attachment(msgspec.Struct, frozen=True):
    """Where a subscriber is at present, and how much it takes ahead."""

    session: SessionId
    number: int
    credit: int


class Sweep(msgspec.Struct):
    """A way through what is live, for new wishes of a subscriber (`sweeping.py`).

    It is through with all levels above `priority`, and at that one with what arrived up to `passed`. What arrived
    after `until` is no business of it, nor, at each level, up to `after`.
    """

    wishes: list[Wish]
    until: int
    after: list[int]
    priority: int
    passed: int = 0
    begun: bool = False  # what is asked for by name was found at this level


class Subscriber(msgspec.Struct, eq=False):
    """One of a channel."""

    number: int
    key: Key
    clearance: int
    wishes: dict[Wish, None]
    attachment: Attachment | None = None
    last_session: SessionId | None = None  # in which it was attached last
    doubt_until: int = 0  # while it is away: until when it may still hand over what it was handed
    ready: list[tuple[int, int]] = []  # a heap of ranks
    waiting: dict[int, None] = {}  # arrivals that are in it and still wanted
    handed: dict[int, None] = {}  # arrivals
    maybe_seen: dict[int, None] = {}  # arrivals that it was handed before, and may have seen
    unsure: int = 0  # of arrivals up to here nobody knows any more which it was handed
    sweeps: list[Sweep] = []

    @property
    def user(self) -> str:
        return self.key[0]

    @property
    def name(self) -> str:
        return self.key[1]

    @property
    def session(self) -> SessionId | None:
        """With which it ends; None: it lasts."""
        return SessionId(self.key[2]) if self.key[2] else None

    @property
    def label(self) -> str:
        """For who reads a trail."""
        if self.name:
            return f"{self.user}/{self.name}"
        return f"{self.user}/{text_of(self.key[2])}#{self.key[3]}"

    def knows(self, alert: Alert) -> bool:
        """Whether there is nothing to do about an alert but what is being done."""
        return self.number in alert.taken or alert.index in self.handed or alert.index in self.waiting


class Subscribers:
    """All of a channel."""

    def __init__(self) -> None:
        self.by_number: dict[int, Subscriber] = {}
        self._by_key: dict[Key, Subscriber] = {}
        self._attached: dict[SessionId, dict[int, Subscriber]] = {}
        self._of_session: dict[SessionId, dict[int, Subscriber]] = {}
        self._lists: dict[Wish, dict[int, Subscriber]] = {}
        self._patterns = {kind: PatternIndex() for kind in AlertType}
        self.labels: dict[int, str] = {}  # of those who are gone, as long as trails name them
        self.next_number = 1

    def __len__(self) -> int:
        return len(self.by_number)

    def __iter__(self) -> Iterator[Subscriber]:
        return iter(list(self.by_number.values()))

    def get(self, key: Key) -> Subscriber | None:
        return self._by_key.get(key)

    def attached_as(self, session: SessionId, number: int) -> Subscriber | None:
        return self._attached.get(session, {}).get(number)

    def attached_in(self, session: SessionId) -> list[Subscriber]:
        return list(self._attached.get(session, {}).values())

    def of_session(self, session: SessionId) -> list[Subscriber]:
        """Those that end with a session."""
        return list(self._of_session.get(session, {}).values())

    def label_of(self, number: int) -> str:
        subscriber = self.by_number.get(number)
        return subscriber.label if subscriber is not None else self.labels.get(number, f"subscriber {number}")

    # ---- coming and going

    def make(self, number: int, key: Key, clearance: int) -> Subscriber:
        subscriber = Subscriber(number, key, clearance, {})
        self.by_number[number] = self._by_key[key] = subscriber
        if subscriber.session is not None:
            self._of_session.setdefault(subscriber.session, {})[number] = subscriber
        self.next_number = max(self.next_number, number + 1)
        return subscriber

    def forget(self, subscriber: Subscriber) -> None:
        self.detach(subscriber)
        for wish in list(subscriber.wishes):
            self.unwish(subscriber, wish)
        del self.by_number[subscriber.number]
        del self._by_key[subscriber.key]
        if subscriber.session is not None:
            of_session = self._of_session[subscriber.session]
            del of_session[subscriber.number]
            if not of_session:
                del self._of_session[subscriber.session]
        self.labels[subscriber.number] = subscriber.label

    def attach(self, subscriber: Subscriber, attachment: Attachment) -> None:
        self.detach(subscriber)
        subscriber.attachment, subscriber.last_session = attachment, attachment.session
        self._attached.setdefault(attachment.session, {})[attachment.number] = subscriber

    def detach(self, subscriber: Subscriber) -> None:
        where, subscriber.attachment = subscriber.attachment, None
        if where is not None:
            there = self._attached[where.session]
            del there[where.number]
            if not there:
                del self._attached[where.session]

    # ---- topics

    def wish(self, subscriber: Subscriber, wish: Wish) -> None:
        subscriber.wishes[wish] = None
        sharing = self._lists.get(wish)
        if sharing is None:
            sharing = self._lists[wish] = {}
            kind, topic = wish
            if topic.prefix is Prefix.TAG:
                self._patterns[AlertType(kind)].add(topic.text)
        sharing[subscriber.number] = subscriber

    def unwish(self, subscriber: Subscriber, wish: Wish) -> None:
        del subscriber.wishes[wish]
        sharing = self._lists[wish]
        del sharing[subscriber.number]
        if not sharing:
            del self._lists[wish]
            kind, topic = wish
            if topic.prefix is Prefix.TAG:
                self._patterns[AlertType(kind)].remove(topic.text)

    def wanting(self, alert: Alert) -> Iterator[Subscriber]:
        """Who asked for such an alert and may see it, each once."""
        kind, topic = alert.header.type, alert.topic
        if topic.prefix is not Prefix.TAG:
            lists = [self._lists.get((kind, topic), {})]
        else:
            matching = self._patterns[AlertType(kind)].match(topic.text)
            lists = [self._lists[kind, Topic(Prefix.TAG, pattern)] for pattern in matching]
        if len(lists) > 1:
            merged: dict[int, Subscriber] = {}
            for sharing in lists:
                merged.update(sharing)
            lists = [merged]
        for sharing in lists:
            for subscriber in sharing.values():
                if alert.is_visible(subscriber.clearance):
                    yield subscriber
