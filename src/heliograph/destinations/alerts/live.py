"""Alerts that are live: in ten levels by priority, each in order of arrival.

A level is cut into chunks of neighbours. The destinations of a chunk stand in one text, a line each, so that a sweep
passes over all of them with one search where none matches (`sweeping.py`). Who is asked for by name is found by name.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from heapq import heappop, heappush
from operator import attrgetter

import msgspec

from heliograph.model.alert import (
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    AlertHeader,
    AlertId,
    AlertType,
    AlertView,
    Classification,
)
from heliograph.model.alert_topics import Prefix, Topic, parse_destination
from heliograph.model.ids import LaneId
from heliograph.model.limits import SWEEP_CHUNK_ALERTS

PRIORITIES = range(HIGHEST_PRIORITY, LOWEST_PRIORITY - 1, -1)
"""From the most urgent down."""
_LEVELS = HIGHEST_PRIORITY + 1
_LEAST_FULL = SWEEP_CHUNK_ALERTS // 4
_SECOND = 1_000_000
# Beside the bytes of header and body: what an alert takes in memory, about.
_OVERHEAD_BYTES = 500


class Alert(msgspec.Struct, eq=False):
    """An alert of a channel, live or not any more. `index` counts arrivals."""

    index: int
    id: AlertId
    lane: LaneId
    sequence: int
    header: AlertHeader
    user: str
    arrived: int
    body: bytes
    topic: Topic
    taken: dict[int, int] = {}  # subscriber → when its application got it
    handed: dict[int, None] = {}  # subscribers that were sent it and have not said what became of it
    acknowledged: list[tuple[int, str, bytes, int]] = []  # when, by whom, with which id and index
    receipts: list[tuple[int, int]] = []  # when the producer was told, and of which subscriber
    ended: str = ""  # why it is not live any more
    ended_by: str = ""
    ended_at: int = 0

    @property
    def expiry(self) -> int:
        """0: it has none."""
        duration = self.header.duration
        return self.arrived + int(duration * _SECOND) if duration else 0

    @property
    def size(self) -> int:
        return len(self.body) + len(self.header.destination) + _OVERHEAD_BYTES

    @property
    def rank(self) -> tuple[int, int]:
        """In this order alerts go out."""
        return -self.header.priority, self.index

    def is_visible(self, clearance: int) -> bool:
        return self.header.classification <= clearance

    def view(self, *, again: bool = False) -> AlertView:
        return AlertView(self.id, self.header, self.user, self.arrived, self.body, again)


def alert_of(index: int, identity: AlertId, lane: LaneId, sequence: int, **fields: object) -> Alert:
    """An alert with its destination read."""
    header = fields["header"]
    assert isinstance(header, AlertHeader)
    return Alert(index, identity, lane, sequence, topic=parse_destination(header.destination), **fields)  # type: ignore[arg-type]


class Chunk:
    """Neighbours in a level."""

    __slots__ = ("_starts", "_text", "alerts", "lines")

    def __init__(self) -> None:
        self.alerts: list[Alert] = []
        self.lines: list[Alert] = []  # those whose destination is in the text
        self._text: bytes | None = None
        self._starts: list[int] = []

    @property
    def last(self) -> int:
        return self.alerts[-1].index

    def changed(self) -> None:
        self._text = None

    @property
    def text(self) -> bytes:
        """The tags, a line each."""
        if self._text is None:
            self.lines = [alert for alert in self.alerts if alert.topic.prefix is Prefix.TAG]
            encoded = [alert.topic.text.encode() for alert in self.lines]
            self._starts = [0]
            for line in encoded:
                self._starts.append(self._starts[-1] + len(line) + 1)
            self._text = b"\n".join(encoded)
        return self._text

    def line_at(self, offset: int) -> int:
        """The number of the line in which a place of the text is."""
        at = bisect_left(self._starts, offset)
        return at if at < len(self._starts) and self._starts[at] == offset else at - 1

    def start_of(self, line: int) -> int:
        return self._starts[line]


_last = attrgetter("last")
_index = attrgetter("index")


class Level:
    """One priority and type."""

    __slots__ = ("chunks", "last")

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.last = 0  # the last arrival: the level is queued up to here (A7)

    def add(self, alert: Alert) -> None:
        assert alert.index > self.last, "arrivals are counted"
        if not self.chunks or len(self.chunks[-1].alerts) >= SWEEP_CHUNK_ALERTS:
            self.chunks.append(Chunk())
        self.chunks[-1].alerts.append(alert)
        self.chunks[-1].changed()
        self.last = alert.index

    def remove(self, alert: Alert) -> None:
        at = bisect_left(self.chunks, alert.index, key=_last)
        chunk = self.chunks[at]
        del chunk.alerts[bisect_left(chunk.alerts, alert.index, key=_index)]
        chunk.changed()
        if not chunk.alerts:
            del self.chunks[at]
        elif len(chunk.alerts) < _LEAST_FULL and at:
            self._join(at)

    def _join(self, at: int) -> None:
        before, chunk = self.chunks[at - 1], self.chunks[at]
        if len(before.alerts) + len(chunk.alerts) <= SWEEP_CHUNK_ALERTS // 2:
            before.alerts += chunk.alerts
            before.changed()
            del self.chunks[at]

    def behind(self, index: int) -> Chunk | None:
        """The first chunk that has something behind an arrival."""
        at = bisect_left(self.chunks, index + 1, key=_last)
        return self.chunks[at] if at < len(self.chunks) else None


class LiveAlerts:
    """All of a channel."""

    def __init__(self) -> None:
        self._by_id: dict[AlertId, Alert] = {}
        self._by_index: dict[int, Alert] = {}
        self.levels = {kind: [Level() for _ in range(_LEVELS)] for kind in AlertType}
        self._named: dict[
            tuple[int, Topic, int], list[int]
        ] = {}  # type, PROFILE or USER, priority → arrivals
        self._expiries: list[tuple[int, int]] = []
        self.bytes = 0
        self.endless = 0
        self.by_classification = dict.fromkeys(map(int, Classification), 0)

    def __len__(self) -> int:
        return len(self._by_index)

    def __iter__(self) -> Iterator[Alert]:
        """In order of arrival, unless parts of a cluster met."""
        return iter(self._by_index.values())

    def get(self, index: int) -> Alert | None:
        return self._by_index.get(index)

    def named(self, identity: AlertId) -> Alert | None:
        return self._by_id.get(identity)

    def level(self, alert: Alert) -> Level:
        return self.levels[AlertType(alert.header.type)][alert.header.priority]

    def add(self, alert: Alert) -> None:
        self._by_id[alert.id] = self._by_index[alert.index] = alert
        self.level(alert).add(alert)
        if alert.topic.prefix is not Prefix.TAG:
            self._named.setdefault(_name_of(alert), []).append(alert.index)
        if alert.expiry:
            heappush(self._expiries, (alert.expiry, alert.index))
        self._count(alert, 1)

    def remove(self, alert: Alert) -> None:
        del self._by_id[alert.id]
        del self._by_index[alert.index]
        self.level(alert).remove(alert)
        if alert.topic.prefix is not Prefix.TAG:
            arrivals = self._named[_name_of(alert)]
            del arrivals[bisect_left(arrivals, alert.index)]
            if not arrivals:
                del self._named[_name_of(alert)]
        self._count(alert, -1)

    def _count(self, alert: Alert, more: int) -> None:
        self.bytes += more * alert.size
        is_endless = not alert.header.duration and alert.header.type == AlertType.ALERT
        self.endless += more if is_endless else 0
        self.by_classification[alert.header.classification] += more

    def to(self, kind: int, topic: Topic, priority: int) -> list[int]:
        """Arrivals that are addressed to a profile or a user."""
        return self._named.get((kind, topic, priority), [])

    @property
    def next_expiry(self) -> int:
        """0: nothing expires."""
        while self._expiries and self._expiries[0][1] not in self._by_index:
            heappop(self._expiries)
        return self._expiries[0][0] if self._expiries else 0

    def expired(self, now: int) -> Iterator[Alert]:
        """What is past its time, to be removed by whoever asks."""
        while 0 < self.next_expiry <= now:
            yield self._by_index[heappop(self._expiries)[1]]


def _name_of(alert: Alert) -> tuple[int, Topic, int]:
    return alert.header.type, alert.topic, alert.header.priority
